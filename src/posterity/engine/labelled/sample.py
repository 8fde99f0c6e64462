"""Samples: some items of a store with all their votes, to see how hard the whole of it is.

However large the store, a few of its shards are read. Which rows are looked at does not depend on
how many rows a shard has: nor does then what a step makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.history import Current, ShardHistory
from posterity.engine.ledger.steps import Header
from posterity.method.data.arrays import Codes, Floats, Mask, Rows, evenly
from posterity.method.data.votes import MISSING, ModelVotes, VoteTable

VotesOf = Callable[[int], tuple[Rows, ModelVotes]]
"""A shard's new votes, by row."""
_Drawn = tuple[list[ModelVotes], Codes, Floats, Mask, Mask]
"""Votes by model, labels, beliefs in them, which are fresh, and which are pinned."""
_NOTHING = (np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.bool_), np.zeros(0, np.bool_))


@dataclass(frozen=True, eq=False)
class Sample:
    """Items with their votes, and where they stood before a step."""

    votes: VoteTable
    """(n, updates) in order; last those of the step, if it has any yet."""
    models: list[str]
    """Whose they are."""
    label: Codes
    belief: Floats
    fresh: Mask
    """Which have a vote of the step."""
    pinned: Mask
    """Which have a label a person decided."""

    @classmethod
    def of(
        cls, context: Context, live: Sequence[Header], arriving: str, new: VotesOf | None = None
    ) -> Sample:
        """Of a store now; ``new``: the votes of a step that is about to be made."""
        drawn = partial(_drawn, context, live, arriving, new)
        parts = list(context.executor.map(drawn, _wanted(context)))
        models = [*(header.voter for header in live), *([arriving] if new else [])]
        columns = [
            ModelVotes.joined([votes[at] for votes, *_ in parts]) for at in range(len(models))
        ]
        label, belief, fresh, pinned = (
            np.concatenate([none, *(part[at] for part in parts)])
            for at, none in enumerate(_NOTHING, 1)
        )
        return cls(
            VoteTable.side_by_side(columns, len(label)), models, label, belief, fresh, pinned
        )

    def drift(self, fit: Fit) -> float:
        """How much more labels are believed by a step's fit than when they were last looked at."""
        has = (self.label != MISSING) & ~self.pinned  # what people said does not drift
        old = np.flatnonzero(has & ~self.fresh)
        if not len(old):
            return 0.0
        known = fit.dependence.believe(
            self.votes[old], fit.who(self.models), asked=self.label[old][:, None]
        )
        changes = known.asked[:, 0] - self.belief[old]
        return float(changes.sum() / (has | self.fresh & ~self.pinned).sum())


@dataclass(frozen=True, eq=False)
class Answered:
    """The labels people could have been asked about in a review, of some items of the store."""

    believed: Floats
    """The beliefs in them before; where a flip was pending, in what it would make of the label."""
    picked: Mask
    """Which the review has answers for."""


def answered(context: Context) -> dict[int, Answered]:
    """Each review that counts, by its step."""
    reviews = [header.step for header in context.live_reviews]
    if not reviews:
        return {}
    parts = list(context.executor.map(partial(_answered, context, reviews), _wanted(context)))
    return {
        step: Answered(*(np.concatenate(arrays) for arrays in zip(*own, strict=True)))
        for step, *own in zip(reviews, *parts, strict=True)
    }


def _answered(
    context: Context, reviews: Sequence[int], wanted: tuple[RowRange, Rows]
) -> list[tuple[Floats, Mask]]:
    """The same of the sampled items of one shard."""
    shard, given = wanted
    rows, history = given - shard.start, ShardHistory.read(context.ledger, *shard)
    now, free = Current.nothing(shard.items, 0.0), np.ones(len(rows), dtype=np.bool_)
    found = []
    for step in sorted({*history.steps, *reviews}):
        written = history.steps.get(step)
        if step in reviews:
            picked = np.isin(rows, rows[:0] if written is None else written.rows)
            could = free & (now.label[rows] != MISSING)
            waits = now.proposed[rows] != MISSING
            believed = np.where(waits, now.belief_proposed[rows], now.belief[rows])
            found.append((believed[could].astype(np.float64), picked[could]))
            free &= ~picked
        if written is not None:
            now.follow(step, written)
    return found


def _among(wanted: Rows, rows: Rows, cast: ModelVotes) -> tuple[Mask, ModelVotes]:
    """The votes on some rows, missing where there is none."""
    if not len(rows):
        return np.zeros(len(wanted), np.bool_), ModelVotes(np.full(len(wanted), MISSING, np.int32))
    at = np.searchsorted(rows, wanted).clip(max=len(rows) - 1)
    has = rows[at] == wanted
    return has, cast[at].where(has)


def _wanted(context: Context) -> list[tuple[RowRange, Rows]]:
    """The rows that are looked at, shard by shard."""
    every, wanted = evenly(context.rows), []
    for shard in context.shards:
        rows = every[shard.within(every)]
        rows = rows[~context.removed[rows]]
        if len(rows):
            wanted.append((shard, rows))
    return wanted


def _drawn(
    context: Context,
    live: Sequence[Header],
    arriving: str,
    new: VotesOf | None,
    wanted: tuple[RowRange, Rows],
) -> _Drawn:
    """The sampled items of one shard."""
    (shard, start, items), given = wanted
    rows = given - start
    history = ShardHistory.read(context.ledger, shard, start, items)
    now, votes = history.current(live, 0.0), history.votes_of(rows, live)
    has = np.zeros(len(rows), dtype=np.bool_)
    if new is not None:
        has, cast = _among(given, *new(shard))
        # Whom the model has seen by another way meanwhile has no vote in the step.
        has &= ~history.voted_by(live, arriving)[rows]
        votes = [*votes, cast.where(has)]
    belief, pins = now.belief[rows].astype(np.float64), history.pins(context.live_reviews)
    return list(votes), now.label[rows], belief, has, pins[rows] != MISSING
