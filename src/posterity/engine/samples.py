"""Samples: some items of a store with all their votes, to see how hard the whole of it is.

However large the store, a few of its shards are read. Which rows are looked at does not depend on
how many rows a shard has: nor does then what a step makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from posterity._arrays import Codes, Floats, Mask, Rows
from posterity.difficulty import evenly
from posterity.engine.context import Context
from posterity.engine.deciding import side_by_side
from posterity.engine.fits import Fit
from posterity.engine.history import ShardHistory
from posterity.engine.steps import Header, live_reviews
from posterity.products import Votes
from posterity.votes import MISSING, Cast

VotesOf = Callable[[int], tuple[Rows, Cast]]
"""A shard's new votes, by row."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Items with their votes, and where they stood before a step."""

    votes: Votes
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
        every = evenly(context.rows)
        columns: list[list[Cast]] = [[] for _ in range(len(live) + (new is not None))]
        labels, beliefs, fresh = [np.zeros(0, np.int32)], [np.zeros(0)], [np.zeros(0, np.bool_)]
        pinned, reviews = [np.zeros(0, np.bool_)], live_reviews(context.headers)
        for shard, start, items in context.shards:
            rows = every[slice(*np.searchsorted(every, [start, start + items]))] - start
            rows = rows[~context.removed.among(start, items)[rows]]
            if not len(rows):
                continue
            history = ShardHistory.read(context.ledger, shard, start, items)
            now, votes = history.current(live, 0.0), history.votes_of(rows, live)
            has = np.zeros(len(rows), dtype=np.bool_)
            if new is not None:
                has, cast = _among(rows + start, *new(shard))
                # Whom the model has seen by another way meanwhile has no vote in the step.
                has &= ~history.voted_by(live, arriving)[rows]
                votes = [*votes, cast.where(has)]
            for column, one in zip(columns, votes, strict=True):
                column.append(one)
            labels.append(now.label[rows])
            beliefs.append(now.belief[rows].astype(np.float64))
            fresh.append(has)
            pinned.append(history.pins(reviews)[rows] != MISSING)
        label = np.concatenate(labels)
        return cls(
            side_by_side([Cast.joined(column) for column in columns], len(label)),
            [*(header.model or "" for header in live), *([arriving] if new else [])],
            label,
            np.concatenate(beliefs),
            np.concatenate(fresh),
            np.concatenate(pinned),
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


def _among(wanted: Rows, rows: Rows, cast: Cast) -> tuple[Mask, Cast]:
    """The votes on some rows, missing where there is none."""
    if not len(rows):
        return np.zeros(len(wanted), np.bool_), Cast(np.full(len(wanted), MISSING, np.int32))
    at = np.searchsorted(rows, wanted).clip(max=len(rows) - 1)
    has = rows[at] == wanted
    return has, cast[at].where(has)
