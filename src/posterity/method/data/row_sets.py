"""Row sets: which of very many rows are meant, one bit a row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from posterity.method.data.arrays import Mask, Rows, among, distinct

STRETCH = 2**20
"""Rows looked at together where all are wanted."""


Bits = NDArray[np.uint8]
"""A mask, one bit an item."""


def packed(mask: Mask) -> Bits:
    """A mask as it is kept and sent."""
    return np.packbits(mask, bitorder="little")


def unpacked(bits: Bits, items: int) -> Mask:
    """The mask of so many items."""
    return np.unpackbits(bits, count=items, bitorder="little").view(np.bool_)


class RowSet:
    """A set of rows below a limit; it only grows.

    The bits are zeroed by the system when they are first touched, so that a set of a few rows of a
    large store costs little.

    >>> rows = RowSet.of(np.array([9, 2, 3]))
    >>> len(rows), rows.all().tolist(), rows.between(3, 4).tolist()
    (3, [2, 3, 9], [3])
    >>> rows[np.array([1, 2, 500])].tolist()
    [False, True, False]
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._bits = np.zeros((limit + 7) // 8, dtype=np.uint8)
        self._count = 0

    @classmethod
    def of(cls, rows: Rows) -> RowSet:
        """Of rows in any order, however often each is named."""
        held = cls(int(rows.max(initial=-1)) + 1)
        held.mark(distinct(rows))
        return held

    def mark(self, rows: Rows) -> None:
        """Add rows, each named once."""
        if not len(rows):
            return
        if rows.max() >= self.limit:
            raise IndexError(f"row {rows.max()} of a set of rows below {self.limit}")
        self._count += len(rows) - int(np.count_nonzero(self[rows]))
        first, last = int(rows.min()) >> 3, int(rows.max()) >> 3
        if last - first < 8 * len(rows):
            # Close together: a mask is packed faster than bits are set one by one.
            mask = np.zeros(8 * (last - first + 1), dtype=np.bool_)
            mask[rows - 8 * first] = True
            self._bits[first : last + 1] |= np.packbits(mask, bitorder="little")
            return
        bits = np.left_shift(1, rows & 7).astype(np.uint8)
        np.bitwise_or.at(self._bits, rows >> 3, bits)

    def mark_among(self, start: int, bits: Bits, items: int) -> None:
        """Add those of so many rows from ``start`` on whose bit is set."""
        if start % 8 or start + items > self.limit:
            self.mark(np.flatnonzero(unpacked(bits, items)) + start)
            return
        own = self._bits[start // 8 : start // 8 + len(bits)]
        self._count += int(np.bitwise_count(bits & ~own).sum())
        own |= bits

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Rows) -> Mask:
        """Which of the given rows are in the set."""
        if not self.limit:
            return np.zeros(len(rows), dtype=np.bool_)
        bits = self._bits[np.minimum(rows, self.limit - 1) >> 3] >> (rows & 7).astype(np.uint8)
        found: Mask = ((bits & 1) != 0) & (rows < self.limit)
        return found

    def among(self, start: int, items: int) -> Mask:
        """Which of so many rows from ``start`` on are in the set."""
        first, mask = start // 8, np.zeros(items, dtype=np.bool_)
        held = np.unpackbits(self._bits[first : (start + items + 7) // 8], bitorder="little")
        own = held[start - 8 * first :][:items]
        mask[: len(own)] = own
        return mask

    def between(self, start: int, items: int) -> Rows:
        """Those of so many rows from ``start`` on that are in the set, ascending."""
        rows: Rows = np.flatnonzero(self.among(start, items)) + start
        return rows

    def stretches(self) -> Iterator[Rows]:
        """All rows, ascending, a part at a time."""
        for start in range(0, self.limit, STRETCH):
            yield self.between(start, STRETCH)

    def all(self) -> Rows:
        """All rows at once, ascending."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.stretches()])


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
