"""Delta tables: the one place that uses the deltalake package."""
