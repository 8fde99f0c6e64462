"""Pages: the report, and the server that shows a store in a browser."""
