"""Names for the few kinds of array that travel between modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int32]
"""Class codes; ``votes.MISSING`` (−1) stands for none."""

Rows = NDArray[np.int64]
"""Positions of items within a block."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

Whole = TypeVar("Whole", np.int64, np.uint64)

ArrayLike = Sequence[Any] | NDArray[Any]
"""What the functions at the door accept before they validate it."""


def distinct(rows: Rows) -> Rows:
    """Rows ascending, each once; those that are so already are not touched.

    By sorting: for integers NumPy's own way hashes, which takes ten times as long.

    >>> distinct(np.array([5, 1, 5])).tolist()
    [1, 5]
    """
    if (rows[1:] > rows[:-1]).all():
        return rows
    ordered = np.sort(rows)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def among(rows: NDArray[Whole], wanted: NDArray[Whole]) -> Mask:
    """Which of the rows are wanted; those wanted are ascending.

    >>> among(np.array([4, 1, 9]), np.array([1, 4])).tolist()
    [True, True, False]
    """
    if not len(wanted):
        return np.zeros(len(rows), dtype=np.bool_)
    at = np.searchsorted(wanted, rows).clip(max=len(wanted) - 1)
    found: Mask = wanted[at] == rows
    return found


SAMPLE = 10_000
"""Items that are looked at: θ is then known to a few hundredths."""
STRETCHES, STRETCH = 4, 2**18
"""Of very many items so many stretches of so many are looked at: few parts of a store are read."""


def evenly(items: int) -> Rows:
    """The rows that are looked at, ascending: spread over all of them, or over parts of very many.

    They depend on the number of items alone, so that it does not matter how these are stored.
    """
    if items <= SAMPLE:
        return np.arange(items)
    wide = min(items // STRETCHES, STRETCH)
    starts = np.linspace(0, items - wide, STRETCHES).round().astype(np.int64)
    within = np.linspace(0, wide - 1, SAMPLE // STRETCHES).round().astype(np.int64)
    rows: Rows = (starts[:, None] + within).ravel()
    return rows
