"""Pins: labels people decided, and what tells whether they are still those that were given."""

from __future__ import annotations

import numpy as np

from posterity._arrays import Codes, Rows
from posterity.selectors import row_hash


def fingerprint(rows: Rows, answers: Codes) -> int:
    """A number that answers on different rows add up to, in whatever order and parts.

    >>> first, second = np.array([3]), np.array([9])
    >>> whole = fingerprint(np.array([9, 3]), np.array([1, 0]))
    >>> parts = fingerprint(first, np.array([0])) + fingerprint(second, np.array([1]))
    >>> whole == parts % 2**64, whole == fingerprint(np.array([9, 3]), np.array([0, 1]))
    (True, False)
    """
    # Two rounds, so that a row and an answer cannot make up for one another.
    mixed = row_hash(row_hash(np.asarray(rows)) ^ np.asarray(answers).astype(np.uint64))
    return int(mixed.sum(dtype=np.uint64))
