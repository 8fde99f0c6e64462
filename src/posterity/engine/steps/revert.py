"""Revert: undo a step by a new one. Nothing is deleted, and a revert can be reverted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posterity._text import Result, counted
from posterity.engine.ledger.commit import retried
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import StepPolicy, decide_all
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.history import ShardHistory, parts_of, voteless_parts
from posterity.engine.ledger.proposals import count_pending
from posterity.engine.ledger.publish import make_step, publish_labels
from posterity.engine.ledger.reports import still_expected
from posterity.engine.ledger.steps import (
    REVERT,
    REVIEW,
    TUNE,
    Header,
    live_reviews,
    live_updates,
    origin,
)
from posterity.engine.ledger.totals import Total, total_of
from posterity.engine.steps.fold import write_rows
from posterity.errors import InvalidParameter
from posterity.method.data.arrays import Mask, Rows
from posterity.method.data.votes import MISSING
from posterity.method.decide.rules import traits
from posterity.storage.delta.commits import DataFile


@dataclass(frozen=True, repr=False)
class Reverted(Result):
    """What a revert did."""

    step: int
    reverts: int
    items: int
    """Items decided anew: those the undone step had touched, and those whose pending flips it
    would make or has made."""
    changed: int
    """Labels that are different now."""
    note: str = ""
    pending: int = 0
    """Flips pending after it."""

    def __str__(self) -> str:
        return self.note or (
            f"step {self.step}: reverts step {self.reverts}; "
            f"of {counted(self.items, 'item')} it had touched, "
            f"{counted(self.changed, 'label')} changed"
            + (f"; {counted(self.pending, 'flip', 'are')} pending" if self.pending else "")
        )


LAST = "last"
"""The last step that counts, but for reverts: asked for again, it is the one before."""


def revert(context: Context, target: int | str) -> Reverted:
    """Mask the votes of a step and decide anew the items it touched."""
    step = _last(context) if isinstance(target, str) and target == LAST else target
    context.check_step(step, other=f", or {LAST!r}")
    return retried(context, lambda now: _revert(now, int(step)))


def _last(context: Context) -> int:
    counting = [
        header.step
        for header in context.headers
        if header.kind != REVERT and header.step not in context.undone
    ]
    if not counting:
        raise InvalidParameter("There is no step left to revert.")
    return counting[-1]


def _revert(context: Context, target: int) -> Reverted:
    if target in context.undone:
        # Asked twice, or killed after its commit: the step is there, what follows it may not be.
        publish_labels(context)
        last = max(header.step for header in context.headers if header.reverts == target)
        return Reverted(last, target, 0, 0, f"Nothing to do: step {last} reverts step {target}.")
    step = context.head + 1
    headers = [*context.headers, Header(step, REVERT, "", reverts=target)]
    live, voteless = live_updates(headers), voteless_parts(context, headers)
    was, reviews = context.live_reviews, live_reviews(headers)
    steps, now = parts_of(context, live), context.fits.now()
    toggled = origin(context.headers, target)
    # A review has no say in the pending flips of other items, nor has a policy for later steps.
    kind = next(one.kind for one in context.headers if one.step == toggled)
    apart = kind in (REVIEW, TUNE)
    patient = [
        one
        for one, part in zip(live, steps, strict=True)
        if traits(part.rule).patient and one.step < toggled and not apart
    ]
    undo = _Undo(context, step, target, live, voteless, steps, now, patient, was, reviews)
    total, pending = total_of(context), count_pending(context)[0]
    parts = [part for part in context.executor.map(undo, context.shards) if part is not None]
    files, waiting = [part.file for part in parts], [part.shard for part in parts if part.waits]
    touched, changed = sum(file.rows for file in files), sum(part.changed for part in parts)
    total = sum((part.moved for part in parts), total)
    pending += sum(part.pending for part in parts)
    done = Reverted(step, target, touched, changed, pending=pending)
    report: dict[str, Any] = {"items": touched, "changed": changed, "pending": pending}
    report["held"] = total.to_dict()
    if kind == TUNE:
        report |= still_expected(context)
    fit = now.to_dict([])
    make_step(context, REVERT, files, report, reverts=target, fit=fit, pending=waiting)
    return done


@dataclass(frozen=True, eq=False)
class _Undone:
    """What a revert made of one shard."""

    shard: int
    file: DataFile
    changed: int
    moved: Total
    pending: int
    """Flips that are pending now, less those that were."""
    waits: bool


@dataclass(frozen=True, eq=False)
class _Undo:
    """A revert, to be made shard by shard."""

    context: Context
    step: int
    target: int
    live: Sequence[Header]
    voteless: Sequence[tuple[int, StepPolicy | None]]
    steps: Sequence[StepPolicy]
    now: Fit
    patient: Sequence[Header]
    was: Sequence[Header]
    reviews: Sequence[Header]

    def __call__(self, shard: RowRange) -> _Undone | None:
        """Decide the shard's items anew; None where the step made no difference to any."""
        number, start, _ = shard
        context = self.context
        history = ShardHistory.read(context.ledger, *shard)
        written = history.steps.get(self.target)
        own = np.zeros(0, dtype=np.int64) if written is None else written.rows
        rows = _affected(history, own, self.patient)
        if not len(rows):
            return None
        _refuse_two_votes(history, self.live)
        stored, pins = history.current(self.live, 0.0), history.pins(self.reviews)[rows]
        votes = history.votes_of(rows, self.live)
        decided = decide_all(self.now, self.steps, votes, len(rows), self.voteless).pinned(pins)
        moved = stored.label[rows] != decided.after
        moved |= stored.proposed[rows] != decided.proposed
        at = np.flatnonzero(moved & ~context.removed[start + rows] | np.isin(rows, own))
        if not len(at):
            return None
        rows, decided, pins = rows[at], decided[at], pins[at]
        file = write_rows(context, self.step, number, start + rows, None, decided)
        present = ~context.removed[start + rows]
        total = Total().moved(stored.label[rows], stored.belief[rows], decided, present)
        had = history.pins(self.was)[rows] != MISSING
        total = total.pins(int((present & (pins != MISSING)).sum()) - int((present & had).sum()))
        waits = present & (decided.proposed != MISSING)
        waited = present & (stored.proposed[rows] != MISSING)
        changed = int((stored.label[rows] != decided.after).sum())
        pending = int(waits.sum()) - int(waited.sum())
        return _Undone(number, file, changed, total, pending, bool(waits.any()))


def _affected(history: ShardHistory, own: Rows, patient: Sequence[Header]) -> Rows:
    """The items that stand elsewhere without a step: those it touched, and those it could touch.

    A step makes the flips that are pending on items it has no vote on. Which these are depends on
    the steps that count: it may be others than those it has written about.
    """
    voters = [history.voters(header.step) for header in patient]
    return np.unique(np.concatenate([own, *voters]))


def _refuse_two_votes(history: ShardHistory, live: Sequence[Header]) -> None:
    """An item has at most one vote of a model that counts."""
    voted: dict[str | None, Mask] = {}
    for header in live:
        voters = history.voters(header.step)
        own = voted.setdefault(header.model, np.zeros(history.items, dtype=np.bool_))
        if own[voters].any():
            raise InvalidParameter(
                f"With that, '{header.model}' would have two votes on the same item; "
                f"revert step {header.step} first."
            )
        own[voters] = True
