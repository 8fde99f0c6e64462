"""Evaluate: obtain the votes of a plan's items from a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from posterity._arrays import Rows
from posterity.engine.context import Context
from posterity.engine.planning import Plan
from posterity.engine.rowsets import RowSet
from posterity.engine.runs import Progress, Run
from posterity.errors import (
    InvalidParameter,
    MissingExtra,
    PosterityError,
    StoreError,
    Unavailable,
)
from posterity.models import Loaded, Predict, answers_of
from posterity.tables.delta import Snapshot
from posterity.votes import Cast

BATCH = 1024
MAX_ERRORS = 100
WRITTEN = 2**14
"""Items written together, for evaluation elsewhere."""


def ask_model(
    run: Run,
    plan: Plan,
    predict: Predict,
    *,
    batch: int = BATCH,
    max_errors: int = MAX_ERRORS,
    progress: Progress | None = None,
) -> None:
    """Let the model vote on what is left of the plan; each batch is durable before the next."""
    if batch < 1 or max_errors < 0:
        raise InvalidParameter("'batch' must be at least 1 and 'max_errors' at least 0.")
    context = run.context
    kept, failed = run.kept(), run.errors()
    _refuse_errors(failed, max_errors)
    left = RowSet(context.rows)
    for shard, start, items in context.shards:
        rows = plan.chosen.between(start, items)
        rows = rows[~np.isin(rows, [*failed]) & ~context.removed[rows]]
        left.mark(np.setdiff1d(rows, kept.rows_of(shard), assume_unique=True))
    done = plan.evaluations - len(left)
    source = _Source(context, plan.request.model, predict)
    for rows, asked in payload_of(context, left, batch):
        voted, votes, reasons = _vote(source, rows, asked, max_errors - len(failed))
        if len(voted):
            run.keep_votes(voted, votes)
        if reasons:
            run.keep_errors(reasons)
        failed |= reasons
        _refuse_errors(failed, max_errors)
        done += len(rows)
        if progress:
            progress(done, plan.evaluations)


def _refuse_errors(failed: dict[int, str], most: int) -> None:
    if len(failed) > most:
        raise StoreError(
            f"The model failed on {len(failed)} items, more than {most}; the last said: "
            f"{list(failed.values())[-1].rstrip('.')}.",
            hint="All votes are kept. Mend the model and run the same with --retry-errors.",
        )


class _Source:
    """A model to be asked, and how its words become our classes."""

    def __init__(self, context: Context, model: str, predict: Predict) -> None:
        self._answers = answers_of(context.model(model).settings, context.classes)
        self._own_named = self._answers.own is None
        """Nobody said what its classes are, so that it may name them itself."""
        self._predict = Loaded(predict)

    def __call__(self, items: pa.Table) -> Cast:
        """One vote an item."""
        given = self._predict(items)
        own = self._predict.classes
        if self._own_named and own != self._answers.own:
            self._answers = replace(self._answers, own=own)  # once, since it maps all classes
        return self._answers.votes(given, items.num_rows)


def _vote(
    source: _Source, rows: Rows, items: pa.Table, most: int
) -> tuple[Rows, Cast, dict[int, str]]:
    """Votes of a batch; if the model fails on it, of each item alone, so that one costs one."""
    try:
        return rows, source(items), {}
    except (Unavailable, MissingExtra):
        raise  # no item is to blame
    except Exception as error:
        if len(rows) == 1:
            told = error.message if isinstance(error, PosterityError) else repr(error)
            return rows[:0], Cast.joined([]), {int(rows[0]): told}
    voted, votes, reasons = [rows[:0]], list[Cast](), dict[int, str]()
    for at in range(len(rows)):
        one, vote, reason = _vote(source, rows[at : at + 1], items.slice(at, 1), most)
        voted.append(one)
        votes.append(vote)
        reasons |= reason
        if len(reasons) > most:
            break  # the rest of the batch is not worth asking for
    return np.concatenate(voted), Cast.joined(votes), reasons


def payload_of(context: Context, rows: RowSet, batch: int) -> Iterator[tuple[Rows, pa.Table]]:
    """Items of the given rows in batches, shard by shard, reading one file at a time."""
    if context.items is None or not len(rows):
        return
    names = [name for name in context.items.table.schema.names if name != "shard"]
    waiting: list[pa.Table] = []
    held = 0
    for part in _files(context.items, names, context, rows):
        chosen = part.filter(pa.array(rows[part.column("row").to_numpy()]))
        if chosen.num_rows:
            waiting.append(chosen)
            held += chosen.num_rows
        while held >= batch:
            joined = pa.concat_tables(waiting)
            yield _batch(joined.slice(0, batch))
            waiting, held = [joined.slice(batch)], held - batch
    if held:
        yield _batch(pa.concat_tables(waiting))


def _batch(items: pa.Table) -> tuple[Rows, pa.Table]:
    return items.column("row").to_numpy(), items.drop_columns(["row"])


def _files(items: Snapshot, names: list[str], context: Context, rows: RowSet) -> Iterator[pa.Table]:
    """The files of items that may hold some of the given rows."""
    for shard, start, count in context.shards:
        if rows.among(start, count).any():
            yield from (part for _, part in items.each(names, shard))


def planned_batches(context: Context, plan: Plan) -> Iterator[pa.Table]:
    """A plan's items with their payload, a batch at a time."""
    rows = RowSet(context.rows)
    for _, start, items in context.shards:
        own = plan.chosen.between(start, items)
        rows.mark(own[~context.removed[own]])
    for _, items_of in payload_of(context, rows, WRITTEN):
        yield items_of


def planned_items(context: Context, plan: Plan) -> pa.Table:
    """A plan's items with their payload, all at once."""
    parts = list(planned_batches(context, plan))
    return pa.concat_tables(parts) if parts else pa.table({})
