"""Operations that make a step: update, import, review, settle, redecide, revert."""

from __future__ import annotations

NEXT, WORTH, ANSWER = 50, "worth", "answer"
"""A review by default: how many items, in which order, and the column that a person fills in."""
