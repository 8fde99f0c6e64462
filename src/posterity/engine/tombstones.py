"""Tombstones: which rows are removed. Few among many: kept as numbers, not as a mask."""

from __future__ import annotations

import numpy as np

from posterity._arrays import Mask, Rows, among, distinct


class Tombstones:
    """The rows of removed items.

    >>> gone = Tombstones(np.array([7, 3, 7]))
    >>> len(gone), gone[np.array([2, 3, 7])].tolist(), gone.among(3, 2).tolist()
    (2, [False, True, True], [True, False])
    """

    def __init__(self, rows: Rows) -> None:
        self.rows: Rows = distinct(rows)
        """Ascending."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Rows) -> Mask:
        """Which of the given rows are removed."""
        return among(rows, self.rows)

    def among(self, start: int, items: int) -> Mask:
        """Which of so many rows from ``start`` on are removed."""
        mask = np.zeros(items, dtype=np.bool_)
        low, high = np.searchsorted(self.rows, [start, start + items])
        mask[self.rows[low:high] - start] = True
        return mask
