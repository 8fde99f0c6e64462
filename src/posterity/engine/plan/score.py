"""Score: the items of each shard a model may look at, and how much they are worth looking at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import BLOCK_ITEMS
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.state import state_of
from posterity.method.beliefs.plain import ENTROPY_BITS, kept
from posterity.method.data.arrays import Codes, Counts, Floats, Mask, Rows
from posterity.method.data.row_sets import Bits, RowSet, packed, unpacked
from posterity.method.data.votes import MISSING, VoteTable
from posterity.method.decide.selectors import ByVotes, Candidates, Selector
from posterity.method.decide.top_k import Block, Part
from posterity.storage.delta.filters import check, rows_where
from posterity.storage.delta.table import Snapshot

ValueOf = Callable[[VoteTable, Sequence[str], Codes], Floats]
"""What a vote could change: from votes (n, T), whose they are, and stored labels."""

CLOSE = 64
"""Rows between two chosen ones beyond which a number takes less than a bit for each."""
BLOCK = 2**20
"""Items scored together: scores, keys and digits take several times what a shard does."""


class Survey:
    """The candidates for a step of a model, looked at shard by shard, wherever that is done."""

    def __init__(self, scoring: Scoring, *, where: str | None, value: ValueOf | None) -> None:
        self._context, self._scoring = scoring.context, scoring
        self._satisfied = satisfying(self._context, where)
        # Computed once a shard: a selection looks at scores thrice.
        self._values: Sequence[Floats | None] = [None] * len(self._context.shards)
        if value is not None:
            worth = partial(_values_of, self._context, value)
            self._values = self._context.executor.hold(worth, self._context.shards)

    def look(self, see: Callable[[Iterable[Block]], Part]) -> Iterator[Part]:
        """What is seen of the eligible items of each shard."""
        return self._context.executor.map(
            partial(self._scoring.see, see),
            self._context.shards,
            self._satisfied,
            self._values,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Scoring:
    """What the eligible items of a shard are, and how they are ranked."""

    context: Context
    model: str
    selector: Selector
    seed: int
    since: int = 0
    """Of items with a label only rows from this one on."""
    without: Rows
    """Rows that are left out while they have a label."""
    only: Sequence[int] | None = None
    """These rows and no others."""
    prior_entropy: float = field(init=False)

    def __post_init__(self) -> None:
        # As it is kept of items whose votes were reverted, with which these compete.
        prior = np.array([self.context.fits.now(self.model).prior_entropy])
        object.__setattr__(self, "prior_entropy", float(kept(prior, ENTROPY_BITS)[0]))

    def see(
        self,
        see: Callable[[Iterable[Block]], Part],
        shard: RowRange,
        satisfied: Bits | None,
        values: Floats | None,
    ) -> Part:
        """What is seen of one shard."""
        return see(self.blocks(shard, satisfied, values))

    def blocks(
        self, shard: RowRange, satisfied: Bits | None, values: Floats | None
    ) -> Iterator[Block]:
        """The eligible items of a shard, some at a time."""
        _, start, items = shard
        state = state_of(self.context, *shard)
        now = state.current(self.prior_entropy)
        unlabelled = now.label == MISSING
        eligible = self._allowed(start, unlabelled)
        if satisfied is not None:
            eligible &= unpacked(satisfied, items)
        eligible &= ~(state.voted_by(self.model) | state.pinned)
        for low in range(0, items, BLOCK):
            part = slice(low, low + BLOCK)
            rows = np.arange(start + low, start + min(low + BLOCK, items))
            candidates = Candidates(
                entropy=now.entropy[part],
                rows=rows,
                step=self.context.head + 1,
                seed=self.seed,
                value=None if values is None else partial(_wide, values[part]),
            )
            yield Block.of(
                self.selector.score(candidates),
                rows=rows,
                eligible=eligible[part],
                first=unlabelled[part],
                codes=now.label[part],
            )

    def _allowed(self, start: int, unlabelled: Mask) -> Mask:
        """What may be looked at, whatever its votes; items without a label always."""
        items = len(unlabelled)
        allowed = np.ones(items, dtype=np.bool_)
        allowed[: max(0, self.since - start)] = False
        own = (self.without >= start) & (self.without < start + items)
        allowed[self.without[own] - start] = False
        allowed |= unlabelled
        if self.only is not None:
            allowed &= np.isin(np.arange(start, start + items), self.only)
        return allowed & ~self.context.removed.among(start, items)


def _wide(values: Floats) -> Floats:
    return values.astype(np.float64)


def _values_of(context: Context, value: ValueOf, shard: RowRange) -> NDArray[np.float32]:
    """What votes could change, of all items of a shard."""
    _, _, items = shard
    live = context.live_updates
    label = state_of(context, *shard).current(0.0).label
    history = ShardHistory.read(context.ledger, *shard)
    worth = np.empty(items, dtype=np.float32)
    for low in range(0, items, BLOCK_ITEMS):
        rows = np.arange(low, min(low + BLOCK_ITEMS, items))
        votes = VoteTable.side_by_side(history.votes_of(rows, live), len(rows))
        worth[rows] = value(votes, [header.voter for header in live], label[rows])
    return worth


def satisfying(context: Context, where: str | None) -> Sequence[Bits | None]:
    """For each shard the rows a filter lets through; None where there is no filter."""
    if where is None or context.items is None:
        if where is not None:
            check(where)
        return [None] * len(context.shards)
    return context.executor.hold(partial(_satisfying, context.items, where), context.shards)


def _satisfying(stored: Snapshot, where: str, shard: RowRange) -> Bits:
    number, start, items = shard
    let = np.zeros(items, dtype=np.bool_)
    for rows in rows_where(stored, where, number):
        let[rows - start] = True
    return packed(let)


@dataclass(frozen=True, eq=False)
class Worth:
    """What a selector makes of items' votes, by what is known of all models."""

    selector: ByVotes
    known: Fit
    model: int
    ratio: float

    def __call__(self, votes: VoteTable, models: Sequence[str], labels: Codes) -> Floats:
        """Of each item."""
        who = self.known.who(models)
        fit, ratio = self.known.dependence, self.ratio
        return self.selector.weigh(fit, votes, who, labels, model=self.model, ratio=ratio)


@dataclass(frozen=True, eq=False)
class Taken:
    """Chosen rows as they are sent: where they lie close together, one bit a row."""

    start: int
    items: int
    bits: Bits
    rows: Rows
    """Those that do not."""
    counts: Counts
    """How many have each label; first those without one."""

    @classmethod
    def of(cls, rows: Rows, labels: Codes, *, classes: int) -> Taken:
        """Of some chosen rows and their labels."""
        counts = np.bincount(labels - MISSING, minlength=classes + 1)
        start = int(rows.min()) // 8 * 8 if len(rows) else 0
        span = int(rows.max(initial=start - 1)) + 1 - start
        if span > CLOSE * len(rows):
            return cls(0, 0, packed(np.zeros(0, dtype=np.bool_)), rows, counts)
        mask = np.zeros(span, dtype=np.bool_)
        mask[rows - start] = True
        return cls(start, span, packed(mask), rows[:0], counts)

    def mark(self, chosen: RowSet) -> None:
        """Add them to the others."""
        chosen.mark_among(self.start, self.bits, self.items)
        chosen.mark(self.rows)
