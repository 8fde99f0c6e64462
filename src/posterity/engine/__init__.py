"""The engine: plan, update and revert a store. The story of one update is in ``updating``."""
