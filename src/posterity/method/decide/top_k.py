"""Top k: exactly B of N items block by block: what is kept between passes does not grow with N.

    cut = find_cut(blocks, lambda available: B)        one pass, more only where ties are many
    for told in chosen(blocks, cut, tell): …           one pass

Blocks may be on other machines: what is looked for goes to them, and what is seen comes back.

The result is that of ``selectors.choose`` on all blocks at once, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from posterity.errors import InvalidData
from posterity.method.data.arrays import Codes, Counts, Floats, Mask, Rows
from posterity.method.decide.selectors import choose, row_hash
from posterity.method.decide.top_k_keys import WIDTHS, Cut, DigitCounts, Keys, descending, digit

CAP = 2**22
"""Candidates held in memory to choose among them exactly."""

LOWEST, HIGHEST = np.uint64(0), np.uint64(2**64 - 1)


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


@dataclass(frozen=True, eq=False)
class _Counted:
    """How many candidates have each value of a digit, and between which keys they lie."""

    tally: DigitCounts
    lowest: np.uint64 = HIGHEST
    highest: np.uint64 = LOWEST


def _count_digits(blocks: Iterable[Block], cut: Cut, level: int) -> _Counted:
    tally, lowest, highest = DigitCounts(level), HIGHEST, LOWEST
    for block in blocks:
        _, at = block.split(cut)
        tally.add(block.digit(level)[at])
        if 0 < level < 3:
            keys: Keys = descending(block.score[at])
            lowest = min(lowest, keys.min(initial=lowest))
            highest = max(highest, keys.max(initial=highest))
    return _Counted(tally, lowest, highest)


def _counted(blocks: Blocks, cut: Cut, level: int) -> _Counted:
    tally, lowest, highest = DigitCounts(level), HIGHEST, LOWEST
    for part in blocks(partial(_count_digits, cut=cut, level=level)):
        tally.merge(part.tally)
        lowest, highest = min(lowest, part.lowest), max(highest, part.highest)
    return _Counted(tally, lowest, highest)


def find_cut(blocks: Blocks, evaluations: Callable[[int], int], *, cap: int = CAP) -> Cut:
    """Where the choice ends, given how many to choose when so many are available.

    One pass finds a cut with few enough candidates at it, unless many have nearly the same score.
    """
    tally = _counted(blocks, Cut.whole(0, 0), 0).tally
    cut = Cut.whole(tally.total, evaluations(tally.total))
    if cut.left == cut.held or not cut.left:
        return cut
    cut = cut.narrowed(tally)
    level = 1
    while min(cut.left, cut.held - cut.left) and cut.held > cap and level < len(WIDTHS):
        counted = _counted(blocks, cut, level)
        cut = cut.narrowed(counted.tally)
        # Equal scores have no more bits to tell them apart; only the hash of the row has.
        equal = counted.lowest == counted.highest
        level = 3 if level < 3 and equal else level + 1
    return cut


Told = TypeVar("Told")


def chosen(blocks: Blocks, cut: Cut, tell: Callable[[Rows, Codes], Told]) -> Iterator[Told]:
    """What there is to tell of the chosen rows and their codes: of those of each block that are
    before the cut, where the block is, then of those at it.
    """
    waiting: list[Block] = []
    for part in blocks(partial(_before, cut=cut, tell=tell)):
        waiting += part.waiting
        yield from part.told
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


@dataclass(frozen=True, eq=False)
class _Before:
    """What is told of the items before a cut, and the items at it."""

    told: list[Any]
    waiting: list[Block]


def _before(blocks: Iterable[Block], cut: Cut, tell: Callable[[Rows, Codes], Any]) -> _Before:
    found = _Before([], [])
    for block in blocks:
        before, at = block.split(cut)
        if cut.left == cut.held:
            before |= at
        elif cut.left:
            own = block.score[at], block.rows[at], block.first[at], block.codes[at]
            found.waiting.append(Block(*own))
        found.told.append(tell(block.rows[before], block.codes[before]))
    return found
