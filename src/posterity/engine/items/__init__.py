"""Items: adding them, their ids, and their payload."""
