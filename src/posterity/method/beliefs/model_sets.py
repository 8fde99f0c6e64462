"""Sets of models: which of them voted on an item, and what is kept of each set that occurs.

What all classes add up to without corrections depends on the set of models alone, so that it is
computed once a set, and not once an item.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posterity.method import kernels
from posterity.method.data.arrays import Codes, Counts, Floats, Mask, Rows

if TYPE_CHECKING:
    from posterity.method.kernels.sets import Sets, Terms


TABLE_CELLS = 2**20
"""Sets × classes that are tabulated whole: 16 MiB."""
MOST_SETS = 2**20
FEW = 2**10
"""So many sets are always worth a look, however few the items."""
MOST_BITS = 62


FEW_MODELS = 16
"""So few models that touch one class a vote have few sets: none need be tabulated whole."""


def model_sets(terms: Terms) -> Tabulated | Numbered:
    """Whichever suits the models; which one never depends on the items."""
    if terms.single and len(terms.logs) <= FEW_MODELS:
        return Numbered(terms)
    kinds = _kinds(terms.logs)
    radix = 1 + np.bincount(kinds[kinds >= 0])
    # In Python's own numbers, which do not overflow.
    if math.prod(radix.tolist()) * len(terms.prior) > TABLE_CELLS:
        return Numbered(terms)
    return Tabulated(terms, kinds, radix)


class Tabulated:
    """Few possible sets: those that occur are tabulated with all their classes.

    Models with the same base need not be told apart, so that a set is how many of each kind voted.
    """

    def __init__(self, terms: Terms, kinds: Counts, radix: Counts) -> None:
        """``kinds``: of each model; ``radix``: how many of each may have voted, and one more."""
        self._terms, self._radix = terms, radix
        firsts = [int(np.argmax(kinds == kind)) for kind in range(len(radix))]
        self._kind_logs = np.ascontiguousarray(terms.logs[firsts])
        place_values = np.concatenate([np.cumprod([1, *radix[:-1]]), [0]]).astype(np.int64)
        self._values = place_values[kinds]  # 0 of models that change nothing: their kind is −1
        number, classes = math.prod(radix.tolist()), len(terms.prior)
        self._table = np.empty((number, classes, 2))
        self._sums = _room(number)
        self._ready = np.zeros(number, dtype=np.bool_)

    def of(self, hard: Codes) -> tuple[Sets, int]:
        """The set of each item, with what is known of those that occur; the highest code."""
        occurs = np.zeros(len(self._ready), dtype=np.bool_)
        of, highest = _survey(hard, self._values, occurs)
        given = self._terms.prior, self._kind_logs
        for one in np.flatnonzero(occurs & ~self._ready):
            counts = np.array(np.unravel_index(one, self._radix[::-1]))[::-1].astype(np.int64)
            kernels.sets.tabulate(*given, counts, self._table, self._sums, int(one))
            self._ready[one] = True
        sets = kernels.sets.Sets(of, _NO_VOTERS, self._sums, self._table)
        return sets, highest


class Numbered:
    """Many possible sets: those that occur are numbered, unless they are as many as items."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._models = len(terms.logs)
        self._given_up = self._models > MOST_BITS
        self._number = 0
        self._known: Counts = np.zeros(0, dtype=np.int64)
        self._voters: NDArray[np.int16] = np.zeros((0, self._models + 1), dtype=np.int16)
        self._sums = _room(0)
        self._slots: Codes = np.zeros(0, dtype=np.int32)
        self._grow(FEW)

    def _grow(self, room: int) -> None:
        """Make room for more sets; their numbers stay."""
        have = self._number
        known, voters = np.zeros(room, np.int64), np.zeros((room, self._models + 1), np.int16)
        sums = _room(room)
        known[:have], voters[:have] = self._known[:have], self._voters[:have]
        sums[:have] = self._sums[:have]
        self._known, self._voters, self._sums = known, voters, sums
        self._slots = np.full(1 << int(2 * room - 1).bit_length(), -1, dtype=np.int32)
        again = np.empty(have, dtype=np.int64)
        kernels.sets.number_keys(known[:have], self._slots, np.zeros_like(known), 0, have, again)

    def of(self, hard: Codes) -> tuple[Sets, int]:
        """The set of each item, with what is known of those that occur; the highest code."""
        none = kernels.sets.Sets(
            np.empty(0, dtype=np.int64), self._voters[:0], self._sums, _NO_TABLE
        )
        if self._given_up:
            return none, int(hard.max(initial=-1))
        keys, highest = _survey(hard, np.int64(1) << np.arange(self._models), _NO_MARKS)
        limit = min(MOST_SETS, self._number + max(FEW, len(hard) // 8))
        if limit > len(self._known):
            self._grow(limit)
        of = np.empty(len(hard), dtype=np.int64)
        number, reached = kernels.sets.number_keys(
            keys, self._slots, self._known, self._number, limit, of
        )
        if reached < len(hard):
            # As many sets as items: it costs less to sum over the classes of each item.
            self._given_up = True
            return none, highest
        self._fill(number)
        return kernels.sets.Sets(of, self._voters, self._sums, _NO_TABLE), highest

    def _fill(self, number: int) -> None:
        """What there is to know of the sets that are new, up to that number."""
        first, self._number = self._number, number
        if number == first:
            return
        bits = (self._known[first:number, None] >> np.arange(self._models)) & 1
        self._voters[first:number, 0] = bits.sum(axis=1)
        self._voters[first:number, 1:] = np.argsort(1 - bits, axis=1, kind="stable")
        # Those that begin with the same models next to each other.
        backwards = bits @ (np.int64(1) << np.arange(self._models)[::-1])
        order = first + np.argsort(backwards)
        given = self._terms, self._voters, order, self._sums
        kernels.compiler.spread(number - first, kernels.sets.fill, *given, least=64)


def _survey(hard: Codes, values: Counts, occurs: Mask) -> tuple[Rows, int]:
    """The key of each item, from the values of the models that voted; and the highest code."""
    keys = np.empty(len(hard), dtype=np.int64)
    given = hard, values, keys, occurs
    return keys, max(kernels.compiler.spread(len(hard), kernels.sets.survey, *given))


_NO_MARKS: Mask = np.zeros(0, dtype=np.bool_)
_NO_VOTERS: NDArray[np.int16] = np.zeros((0, 0), dtype=np.int16)
_NO_TABLE: Floats = np.empty((0, 0, 0))


def _room(sets: int) -> Floats:
    return np.empty((sets, kernels.sets.COLUMNS))


def _kinds(base: Floats) -> Counts:
    """Models by their base: the number of each one's kind; −1 where it changes nothing."""
    numbers: dict[bytes, int] = {}
    return np.array(
        [numbers.setdefault(row.tobytes(), len(numbers)) if row.any() else -1 for row in base],
        dtype=np.int64,
    )
