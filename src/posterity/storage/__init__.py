"""Storage: files, Delta tables, Parquet, and reading what users give. No steps, no beliefs."""
