"""Totals: the beliefs in all labels of a store, summed up and carried from step to step.

A step adds what it changes to what the step before has recorded, so that no other item is read. In
whole millionths: so sums are the same in whatever order and parts they are made, and a revert comes
back to the very number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import Decided
from posterity.engine.ledger.reports import UNIT
from posterity.engine.ledger.state import state_of
from posterity.method.beliefs.plain import BELIEF_BITS, kept
from posterity.method.data.arrays import Codes, Mask
from posterity.method.data.votes import MISSING
from posterity.validation.expectation import Sums


def correctable(context: Context, evaluations: int, first: int) -> tuple[float, int]:
    """Which share of the items with a label a step looks at, and how many items those are.

    Those with a label that no vote decides are left out. ``first`` of the step's items have none
    yet: they come first, and nothing about them can be corrected.
    """
    total = total_of(context)
    every = context.there - total.pinned
    if not first or not context.live_updates:
        return evaluations / max(1, every), every
    labels = min(every, total.labels - total.pinned)
    return (evaluations - first) / max(1, labels), labels


def undecided(context: Context) -> int:
    """How many items there are whose labels votes decide, and no answer or given truth."""
    return context.there - total_of(context).pinned


@dataclass(frozen=True)
class Total:
    """How many items have a label, and how much these are believed."""

    labels: int = 0
    belief: int = 0
    squares: int = 0
    removed: int = 0
    """Items removed when it was made: a sum that knows of fewer is out of date."""
    pinned: int = 0
    """Labels that people decided; believed fully, they are among the others."""

    @property
    def sums(self) -> Sums:
        """As expectations take them: of labels that votes decided."""
        left = self.labels - self.pinned
        return Sums(left, self.belief / UNIT - self.pinned, self.squares / UNIT - self.pinned)

    def to_dict(self) -> dict[str, int]:
        """As a header keeps it."""
        return asdict(self)

    def __add__(self, other: Total) -> Total:
        """Of one part and of another, or of what another part changes."""
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Total(*(own + more for own, more in pairs))

    def plus(self, label: Codes, belief: Any, *, sign: int = 1) -> Total:
        """With some labels more, or less."""
        has = label != MISSING
        each = np.asarray(belief, dtype=np.float64)[has]
        return Total(
            self.labels + sign * int(has.sum()),
            self.belief + sign * _whole(each),
            self.squares + sign * _whole(each**2),
            self.removed,
            self.pinned,
        )

    def pins(self, more: int) -> Total:
        """With so many labels more that people decided, or less."""
        return replace(self, pinned=self.pinned + more)

    def moved(self, label: Codes, belief: Any, decided: Decided, here: Mask | None = None) -> Total:
        """When items stood so before, and are decided now; ``here``: those that are there."""
        at = slice(None) if here is None else here
        # As it will be read again: what is kept of a belief is rounded.
        after = kept(decided.belief, BELIEF_BITS)
        return self.plus(label[at], belief[at], sign=-1).plus(decided.after[at], after[at])


def total_of(context: Context) -> Total:
    """Of all items now: as the last step has recorded it, or counted anew."""
    removed = len(context.removed)
    if not context.headers:
        return Total(removed=removed)
    last = context.headers[-1]
    if last.removed == removed:
        return Total(**last.report["held"])
    parts = context.executor.map(partial(_of_shard, context), context.shards)
    return sum(parts, Total(removed=removed))


def _of_shard(context: Context, shard: RowRange) -> Total:
    _, start, items = shard
    state = state_of(context, *shard)
    now, here = state.current(0.0), ~context.removed.among(start, items)
    total = Total().plus(now.label[here], now.belief[here])
    return total.pins(int((state.pinned & here).sum()))


def _whole(values: Any) -> int:
    return int(np.rint(values * UNIT).astype(np.int64).sum())
