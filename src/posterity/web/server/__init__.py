"""The server of the pages: the one place that uses Starlette and uvicorn."""
