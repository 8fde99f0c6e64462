"""Keys of the top k: the B lowest of N keys without sorting them, by histograms that can be added.

Two keys of 64 bits (a score and a hash) are looked at a digit of about 22 bits at a time: count how
many keys have each value of the digit, find the value at which B is reached, and go on with the
keys that have it. Between passes only counts are kept: ``DigitCounts`` count one digit, a ``Cut``
is the digits found so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.method.data.arrays import ArrayLike, Counts

Keys = NDArray[np.uint64]
SIGN = np.uint64(1 << 63)


def descending(scores: ArrayLike) -> Keys:
    """Keys that are lower the higher the score: the bits of a float, made to compare as it does.

    >>> keys = descending(np.array([2.0, 0.0, -0.0, -1.0]))
    >>> bool(keys[0] < keys[1] == keys[2] < keys[3])
    True
    """
    plain = np.asarray(scores, dtype=np.float64) + 0.0  # there is no −0 after that
    bits = plain.view(np.uint64)
    negative = bits >= SIGN
    ascending: Keys = np.where(negative, ~bits, bits | SIGN)
    return ~ascending


WIDTHS = (22, 22, 21, 22, 22, 20)
"""Bits of each digit of a composite key: one bit and a key of 64, then a second key of 64."""

GROUP = 2**10
FEW = 2**18
"""Digits that are kept as they are, since counts of all values would take more."""


def digit(place: int, group: ArrayLike | None, keys: Keys) -> Counts:
    """The first, second or third digit of keys; a group of 0 or 1 comes before the first bit.

    >>> keys = np.array([2**63 + 1], dtype=np.uint64)
    >>> [int(digit(place, [1], keys)[0]) for place in range(3)]
    [3145728, 0, 1]
    """
    widths = WIDTHS[3:] if group is None else (WIDTHS[0] - 1, *WIDTHS[1:3])
    shift, width = 64 - sum(widths[: place + 1]), widths[place]
    own = ((keys >> np.uint64(shift)) & np.uint64((1 << width) - 1)).astype(np.int64)
    return own if place or group is None else own | (np.asarray(group, dtype=np.int64) << width)


class DigitCounts:
    """How many keys have each value of one digit; tallies of parts can be added."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.total = 0
        self._waiting: list[Counts] = []
        self._held = 0
        self._counts: Counts | None = None
        self._sent: tuple[Any, Any] | None = None
        """Counts that came from elsewhere: which values, or all of them, and how many of each."""

    def __getstate__(self) -> dict[str, Any]:
        # Of four million counts most are zero or small; they go from machine to machine as such.
        if self._counts is None:
            return self.__dict__.copy()
        short = self._counts.astype(np.min_scalar_type(int(self._counts.max())))
        seen = np.flatnonzero(short).astype(np.uint32)
        few = len(seen) * (4 + short.itemsize) < short.nbytes
        sent = (seen, short[seen]) if few else (None, short)
        return self.__dict__ | {"_counts": None, "_sent": sent}

    def add(self, digits: Counts) -> None:
        """Count some keys by their digits."""
        self.total += len(digits)
        self._waiting.append(digits)
        self._held += len(digits)
        if self._held >= FEW:
            self._settle()

    def merge(self, other: DigitCounts) -> None:
        """Add what was counted elsewhere."""
        self.total += other.total
        self._waiting += other._waiting
        self._held += other._held
        for sent in (other._sent, None if other._counts is None else (None, other._counts)):
            self._receive(sent)
        if self._held >= FEW:
            self._settle()

    def _receive(self, sent: tuple[Any, Any] | None) -> None:
        if sent is None:
            return
        if self._counts is None:
            self._counts = np.zeros(1 << WIDTHS[self.level], dtype=np.int64)
        seen, counts = sent
        if seen is None:
            self._counts += counts
        else:
            self._counts[seen] += counts  # each value is named once

    @property
    def counts(self) -> Counts:
        """Of each value of the digit."""
        return self._settle()

    def _settle(self) -> Counts:
        sent, self._sent = self._sent, None
        self._receive(sent)
        none = np.zeros(0, dtype=np.int64)
        digits = np.concatenate([none, *self._waiting])
        counts: Counts = np.bincount(digits, minlength=1 << WIDTHS[self.level])
        if self._counts is not None:
            counts += self._counts
        self._counts = counts
        self._waiting, self._held = [], 0
        return self._counts

    def reach(self, count: int) -> tuple[int, int, int]:
        """The value at which so many are reached; how many have a lower one, and it itself."""
        if self._counts is None and self._sent is None:
            digits = np.concatenate(self._waiting)
            value = int(np.partition(digits, count - 1)[count - 1])
            return value, int((digits < value).sum()), int((digits == value).sum())
        # First among groups of values: sums of all would take as much memory again.
        groups = self.counts.reshape(-1, GROUP)
        sums = np.cumsum(groups.sum(axis=1))
        group = int(np.searchsorted(sums, count))
        before = int(sums[group - 1]) if group else 0
        within = np.cumsum(groups[group])
        place = int(np.searchsorted(within, count - before))
        below = before + (int(within[place - 1]) if place else 0)
        return group * GROUP + place, below, int(groups[group, place])


@dataclass(frozen=True)
class Cut:
    """Every key with lower digits is among the lowest, and so many of those that have these."""

    available: int
    """Keys in all."""
    left: int
    """How many of the keys that have the digits are among the lowest."""
    held: int
    """How many have them."""
    digits: dict[int, int] = field(default_factory=dict)
    """The value of each digit that was looked at, by its level."""

    @classmethod
    def whole(cls, available: int, count: int) -> Cut:
        """Before any digit is known."""
        return cls(available, min(count, available), available)

    def narrowed(self, tally: DigitCounts) -> Cut:
        """With one more digit, counted among the keys that have the others.

        >>> tally = DigitCounts(0)
        >>> tally.add(np.array([5, 1, 9, 5, 5]))
        >>> Cut.whole(5, 3).narrowed(tally)
        Cut(available=5, left=2, held=3, digits={0: 5})
        """
        reached, below, held = tally.reach(self.left)
        digits = {**self.digits, tally.level: reached}
        return Cut(self.available, self.left - below, held, digits)
