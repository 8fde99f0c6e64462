"""Planning: which items a model should look at, and what that would bring."""
