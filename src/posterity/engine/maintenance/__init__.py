"""Keeping a store in order: create, check, repair, compact, vacuum."""
