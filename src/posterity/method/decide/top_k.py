"""Top k: exactly B of N items block by block: what is kept between passes does not grow with N.

    cut = find_cut(blocks, lambda others, first: B)    one pass, more only where ties are many
    for told in chosen(blocks, cut, tell): …           one pass

Blocks may be on other machines: what is looked for goes to them, and what is seen comes back.

The order of choice is that of two keys of 64 bits, a score and a hash. They are looked at a digit
of about 22 bits at a time: count how many keys have each value of the digit, find the value at
which B is reached, and go on with the keys that have it. Between passes only counts are kept.

The result is that of ``selectors.choose`` on all blocks at once, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from posterity.errors import InvalidData
from posterity.method.data.arrays import ArrayLike, Codes, Counts, Floats, Mask, Rows
from posterity.method.decide.selectors import Keys, choose, descending, row_hash

CAP = 2**22
"""Candidates held in memory to choose among them exactly."""

LOWEST, HIGHEST = np.uint64(0), np.uint64(2**64 - 1)

WIDTHS = (22, 22, 21, 22, 22, 20)
"""Bits of each digit of a composite key: one bit and a key of 64, then a second key of 64."""

FIRST = 1 << (WIDTHS[0] - 1)
"""Below this is the first digit of items without any vote."""
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
        self.lowest, self.highest = HIGHEST, LOWEST
        """Between which keys they lie, as far as that was looked at."""
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

    def reach_over(self, keys: Keys) -> None:
        """The keys that were counted."""
        self.lowest = min(self.lowest, keys.min(initial=self.lowest))
        self.highest = max(self.highest, keys.max(initial=self.highest))

    def merge(self, other: DigitCounts) -> None:
        """Add what was counted elsewhere."""
        self.total += other.total
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)
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

    def below(self, value: int) -> int:
        """How many have a lower value."""
        if self._counts is None and self._sent is None:
            return sum(int((digits < value).sum()) for digits in self._waiting)
        return int(self.counts[:value].sum())

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
    first: int = 0
    """Keys of items without any vote, among all."""
    digits: dict[int, int] = field(default_factory=dict)
    """The value of each digit that was looked at, by its level."""

    @classmethod
    def whole(cls, available: int, count: int, first: int = 0) -> Cut:
        """Before any digit is known."""
        return cls(available, min(count, available), available, first)

    def narrowed(self, tally: DigitCounts) -> Cut:
        """With one more digit, counted among the keys that have the others.

        >>> tally = DigitCounts(0)
        >>> tally.add(np.array([5, 1, 9, 5, 5]))
        >>> Cut.whole(5, 3).narrowed(tally)
        Cut(available=5, left=2, held=3, first=0, digits={0: 5})
        """
        reached, below, held = tally.reach(self.left)
        digits = {**self.digits, tally.level: reached}
        return Cut(self.available, self.left - below, held, self.first, digits)


@dataclass(frozen=True, eq=False)
class Block:
    """Eligible items, each in one block only."""

    score: Floats
    rows: Rows
    first: Mask
    """Items without any vote: they come before all others."""
    codes: Codes
    """What the caller wants to know of the chosen ones, such as their label."""

    @classmethod
    def of(cls, score: Floats, *, rows: Rows, eligible: Mask, first: Mask, codes: Codes) -> Block:
        """The eligible ones of some items."""
        at = np.flatnonzero(eligible)
        if not np.isfinite(np.asarray(score)[at]).all():
            raise InvalidData("A selector must give finite scores.")
        return cls(np.asarray(score)[at], rows[at], first[at], codes[at])

    def __len__(self) -> int:
        return len(self.rows)

    def digit(self, level: int) -> Counts:
        """The next bits of each item's place in the order of choice: group, score, hash."""
        if level < 3:
            return digit(level, np.where(self.first, 0, 1), descending(self.score))
        return digit(level - 3, None, row_hash(self.rows))

    def split(self, cut: Cut) -> tuple[Mask, Mask]:
        """Which items are before a cut, and which are at it."""
        before, at = np.zeros(len(self), dtype=np.bool_), np.ones(len(self), dtype=np.bool_)
        for level, reached in cut.digits.items():
            found = self.digit(level)
            before |= at & (found < reached)
            at &= found == reached
        return before, at


Part = TypeVar("Part")


class Blocks(Protocol):
    """All items that could be chosen, in parts that are looked at where they are."""

    def __call__(self, see: Callable[[Iterable[Block]], Part], /) -> Iterator[Part]:
        """What is seen of each part, in order; every call is one pass over all items."""


def _count_digits(blocks: Iterable[Block], cut: Cut, level: int) -> DigitCounts:
    tally = DigitCounts(level)
    for block in blocks:
        _, at = block.split(cut)
        tally.add(block.digit(level)[at])
        if 0 < level < 3:
            tally.reach_over(descending(block.score[at]))
    return tally


def _counted(blocks: Blocks, cut: Cut, level: int) -> DigitCounts:
    tally = DigitCounts(level)
    for part in blocks(partial(_count_digits, cut=cut, level=level)):
        tally.merge(part)
    return tally


def find_cut(blocks: Blocks, evaluations: Callable[[int, int], int], *, cap: int = CAP) -> Cut:
    """Where the choice ends, given how many to choose when so many have votes, and so many none.

    One pass finds a cut with few enough candidates at it, unless many have nearly the same score.
    """
    tally = _counted(blocks, Cut.whole(0, 0), 0)
    first = tally.below(FIRST)
    cut = Cut.whole(tally.total, evaluations(tally.total - first, first), first)
    if cut.left == cut.held or not cut.left:
        return cut
    cut = cut.narrowed(tally)
    level = 1
    while min(cut.left, cut.held - cut.left) and cut.held > cap and level < len(WIDTHS):
        tally = _counted(blocks, cut, level)
        cut = cut.narrowed(tally)
        # Equal scores have no more bits to tell them apart; only the hash of the row has.
        equal = tally.lowest == tally.highest
        level = 3 if level < 3 and equal else level + 1
    return cut


Told = TypeVar("Told")


def chosen(blocks: Blocks, cut: Cut, tell: Callable[[Rows, Codes], Told]) -> Iterator[Told]:
    """What there is to tell of the chosen rows and their codes: of those of each block that are
    before the cut, where the block is, then of those at it.
    """
    waiting: list[Block] = []
    for told, at_cut in blocks(partial(_before, cut=cut, tell=tell)):
        waiting += at_cut
        yield from told
    if not waiting:
        return
    rows = np.concatenate([block.rows for block in waiting])
    codes = np.concatenate([block.codes for block in waiting])
    among = choose(
        np.concatenate([block.score for block in waiting]),
        rows=rows,
        eligible=np.ones(len(rows), dtype=np.bool_),
        first=np.concatenate([block.first for block in waiting]),
        evaluations=cut.left,
    )
    taken = np.isin(rows, among, assume_unique=True)
    yield tell(rows[taken], codes[taken])


def _before(
    blocks: Iterable[Block], cut: Cut, tell: Callable[[Rows, Codes], Told]
) -> tuple[list[Told], list[Block]]:
    """What is told of the items before a cut, and the items at it."""
    told, waiting = [], []
    for block in blocks:
        before, at = block.split(cut)
        if cut.left == cut.held:
            before |= at
        elif cut.left:
            own = block.score[at], block.rows[at], block.first[at], block.codes[at]
            waiting.append(Block(*own))
        told.append(tell(block.rows[before], block.codes[before]))
    return told, waiting
