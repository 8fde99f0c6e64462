"""Evaluate: obtain the votes of a plan's items, from a model or from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._arrays import Rows
from posterity.engine.context import Context
from posterity.engine.items import rows_or_none
from posterity.engine.planning import Plan
from posterity.engine.runs import Progress, Run
from posterity.errors import (
    InvalidData,
    InvalidParameter,
    MissingExtra,
    PosterityError,
    StoreError,
    Unavailable,
)
from posterity.models import Loaded, Predict, answers_of
from posterity.softcolumns import read_soft
from posterity.tables.sources import column, ids_of, read_rows, truth_types
from posterity.votes import MISSING, Cast

BATCH = 1024
MAX_ERRORS = 100


@dataclass(frozen=True)
class FromFile:
    """What a file of votes had for a plan."""

    folded: int
    unplanned: int
    """Rows for items the plan does not name; left out."""
    unmatched: int
    """Rows for ids the store does not know."""
    strangers: list[Any]
    """The first of those ids."""
    without: int
    """Planned items the file has no row for; they stay unevaluated."""

    def __str__(self) -> str:
        told = []
        if self.unplanned:
            told.append(f"{self.unplanned:,} votes on items not planned were left out")
        if self.unmatched:
            told.append(
                f"{self.unmatched:,} ids are not in the store, such as {self.strangers[0]!r}"
            )
        if self.without:
            told.append(f"{self.without:,} planned items had no vote")
        return "; ".join(told)


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
    have, _ = run.votes()
    failed = run.errors()
    _refuse_errors(failed, max_errors)
    left = np.setdiff1d(plan.rows, np.concatenate([have, np.array(list(failed), dtype=np.int64)]))
    left = left[~context.removed[left]]
    done = len(plan.rows) - len(left)
    source = _Source(context, plan.request.model, predict)
    for rows, items in _payload(context, left, batch):
        voted, votes, reasons = _vote(source, rows, items, max_errors - len(failed))
        if len(voted):
            run.keep_votes(voted, votes)
        if reasons:
            run.keep_errors(reasons)
        failed |= reasons
        _refuse_errors(failed, max_errors)
        done += len(rows)
        if progress:
            progress(done, len(plan.rows))


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


def _payload(context: Context, rows: Rows, batch: int) -> Iterator[tuple[Rows, pa.Table]]:
    """Items of the given rows in batches, reading one file of items at a time."""
    if context.items is None or not len(rows):
        return
    names = [name for name in context.items.table.schema.names if name != "shard"]
    waiting: list[pa.Table] = []
    held = 0
    for _, part in context.items.each(names):
        numbers = part.column("row").to_numpy()
        chosen = part.take(pa.array(np.flatnonzero(np.isin(numbers, rows, assume_unique=True))))
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


def planned_items(context: Context, plan: Plan) -> pa.Table:
    """A plan's items with their payload, by row."""
    rows = plan.rows[~context.removed[plan.rows]]
    parts = [items for _, items in _payload(context, rows, BATCH)]
    return pa.concat_tables(parts) if parts else pa.table({})


def take_votes(
    run: Run,
    plan: Plan,
    source: Any,
    *,
    id_column: str,
    vote_column: str,
    soft: str | None = None,
    strict: bool = False,
    keep_unplanned: bool = False,
) -> FromFile:
    """Votes made elsewhere: rows of the plan's items are folded, others counted and left out."""
    context = run.context
    answers = answers_of(context.model(plan.request.model).settings, context.classes)
    types = truth_types(answers.kind, vote_column)
    kind = context.id_kind
    rows = read_rows(source, "votes", ids=id_column, id_kind=kind, types=types)
    ids = ids_of(rows, id_column, "file of votes")
    if soft is None or vote_column in rows.column_names:
        hard = column(rows, vote_column, "file of votes")
    else:
        hard = pa.chunked_array([pa.nulls(rows.num_rows)])  # the most probable class will do
    repeated = len(ids) - pc.count_distinct(ids).as_py()
    if repeated:
        raise InvalidData(f"The file of votes has {repeated} ids more than once.")
    numbers = rows_or_none(context, ids)
    known = numbers.is_valid()
    planned = pc.is_in(numbers, value_set=pa.array(plan.rows))
    strangers = ids.filter(numbers.is_null())
    if len(strangers) == len(ids):
        shown = ", ".join(repr(value) for value in strangers[:5].to_pylist())
        raise InvalidData(
            f"None of the {len(ids)} ids in the file of votes is in the store: {shown}."
        )
    keep = known if keep_unplanned else pc.and_(known, planned)
    kept_rows = numbers.filter(keep).to_numpy()
    votes = Cast(answers.column(hard.filter(keep), "file of votes"))
    if soft is not None:
        votes = read_soft(soft, rows.filter(keep), answers, votes.hard, "file of votes")
    empty = int((votes.hard == MISSING).sum())
    if empty:
        raise InvalidData(f"The file of votes has {empty} rows without one.")
    have, _ = run.votes()
    counted = FromFile(
        folded=len(kept_rows),
        unplanned=0
        if keep_unplanned
        else int(pc.sum(pc.and_(known, pc.invert(planned))).as_py() or 0),
        unmatched=numbers.null_count,
        strangers=strangers[:5].to_pylist(),
        without=len(np.setdiff1d(plan.rows, np.concatenate([kept_rows, have]))),
    )
    if not (
        counted.folded or len(have) or plan.note
    ):  # where labelled items come first, it says so
        raise InvalidData(
            f"None of the {len(ids):,} votes in the file is on a planned item; "
            f"{counted.unplanned:,} are on others.",
            hint="Give the budget, selector and rule of the plan they were made for, or its id "
            "with --plan; --keep-unplanned folds them all the same.",
        )
    if strict and counted.without:
        raise InvalidData(f"{counted.without} planned items have no row in the file of votes.")
    new = ~np.isin(kept_rows, have, assume_unique=True)
    if new.any():
        order = np.argsort(kept_rows[new], kind="stable")
        run.keep_votes(kept_rows[new][order], votes[np.flatnonzero(new)[order]])
    return counted
