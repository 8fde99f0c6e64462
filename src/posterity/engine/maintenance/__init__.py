"""Keeping a store in order: create, check, repair, compact, vacuum."""

from __future__ import annotations

RETENTION_HOURS = 168
"""Files that nothing refers to are kept so long by default."""
