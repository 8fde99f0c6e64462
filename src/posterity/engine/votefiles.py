"""Files of votes: made elsewhere, read batch by batch, and checked before any of them counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._arrays import distinct
from posterity._wording import counted
from posterity.answers import Answers
from posterity.engine.context import Context
from posterity.engine.lookups import Lookup
from posterity.engine.planning import Plan
from posterity.engine.rowsets import RowSet
from posterity.engine.runs import Run
from posterity.errors import InvalidData, InvalidParameter
from posterity.models import answers_of
from posterity.rules import AtMost
from posterity.softcolumns import SoftColumns, read_soft
from posterity.tables import softvotes
from posterity.tables.sources import as_numbers, column, ids_of, read_rows, truth_types
from posterity.tables.streams import Stream
from posterity.votes import MISSING, Cast

WHAT = "file of votes"
TOGETHER = 2**22
"""Ids that are looked up together."""
BYTES = 2**28
"""Or fewer, where their votes take more than this."""
STRANGERS = 2**20
"""Ids of no item of the store that are remembered, to find those that come twice."""


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
                f"{counted(self.unmatched, 'id', 'are')} not in the store, such as "
                f"{self.strangers[0]!r}"
            )
        if self.without:
            told.append(f"{counted(self.without, 'planned item')} had no vote")
        return "; ".join(told)


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
    rule = context.rule(plan.request.rule)
    if keep_unplanned and isinstance(rule, AtMost):
        raise InvalidParameter(
            f"The rule '{rule}' is about the items that were chosen; others cannot be kept.",
            hint="Leave out keep_unplanned (--keep-unplanned).",
        )
    answers = answers_of(context.model(plan.request.model).settings, context.classes)
    file = _VoteFile(context, source, answers, id_column, vote_column, soft)
    with _Aside() as aside:
        read = _Reading(context, file, plan, keep_unplanned, aside)
        kept = run.kept()
        had = without = 0
        for shard, start, items in context.shards:
            have = kept.rows_of(shard)
            lacking = plan.chosen.among(start, items) & ~read.taken.among(start, items)
            lacking[have - start] = False
            had += len(have)
            without += int(lacking.sum())
        counted = FromFile(
            folded=len(read.taken),
            unplanned=read.unplanned,
            unmatched=read.unmatched,
            strangers=read.strangers,
            without=without,
        )
        if not (counted.folded or had or plan.note):  # where labelled items come first, it says so
            raise InvalidData(
                f"None of the {read.total:,} votes in the file is on a planned item; "
                f"{counted.unplanned:,} are on others.",
                hint="Give the budget, selector and rule of the plan they were made for, or its id "
                "with --plan; --keep-unplanned folds them all the same.",
            )
        if strict and without:
            raise InvalidData(f"{without} planned items have no row in the file of votes.")
        for shard, start, items in context.shards:
            votes = aside.between(start, items)
            if votes.num_rows and had:
                rows = votes.column("row").to_numpy()
                votes = votes.filter(pa.array(~np.isin(rows, kept.rows_of(shard))))
            if votes.num_rows:
                run.keep_table(shard, votes.sort_by("row"))
    return counted


class _Reading:
    """One pass over a file of votes: everything that can be wrong with it is known after it."""

    def __init__(
        self, context: Context, file: _VoteFile, plan: Plan, keep_unplanned: bool, aside: _Aside
    ) -> None:
        self.taken = RowSet(context.rows)
        """The rows whose votes are to be folded."""
        self.total = self.unplanned = self.unmatched = 0
        self.strangers: list[Any] = []
        self._seen, self._strange = RowSet(context.rows), set[Any]()
        problem: InvalidData | None = None
        repeated = empty = 0
        lookup = Lookup(context)
        for ids, table in file.batches():
            self.total += len(ids)
            found = lookup.rows(ids)
            repeated += self._repeated(ids.filter(found.is_null()))
            rows = found.fill_null(-1).to_numpy()
            known = rows >= 0
            repeated += self._repeated_rows(rows[known])
            planned = np.zeros(len(rows), dtype=np.bool_)
            planned[known] = plan.chosen[rows[known]]
            keep = known if keep_unplanned else planned
            self.unplanned += int((known & ~keep).sum())
            if problem is not None or repeated or not keep.any():
                continue  # the rest is only counted: what is told first is what was always told
            try:
                votes = file.votes(table.filter(pa.array(keep)))
            except InvalidData as error:
                problem = error
                continue
            empty += int((votes.hard == MISSING).sum())
            own = rows[keep]
            self.taken.mark(own)
            aside.add(pa.table({"row": own, "vote": votes.hard, **softvotes.to_columns(votes)}))
        if repeated:
            raise InvalidData(f"The file of votes has {counted(repeated, 'id')} more than once.")
        if self.unmatched == self.total:
            shown = ", ".join(repr(value) for value in self.strangers)
            raise InvalidData(
                f"None of the {counted(self.total, 'id')} in the file of votes is in the store: "
                f"{shown}."
            )
        if problem is not None:
            raise problem
        if empty:
            raise InvalidData(f"The file of votes has {counted(empty, 'row')} without one.")

    def _repeated_rows(self, rows: Any) -> int:
        own = distinct(rows)
        again = len(rows) - len(own) + int(self._seen[own].sum())
        self._seen.mark(own)
        return again

    def _repeated(self, strange: pa.ChunkedArray) -> int:
        """Ids of nobody that come twice, as far as they can be remembered."""
        self.unmatched += len(strange)
        self.strangers += strange[: 5 - len(self.strangers)].to_pylist()
        unique = strange.unique()
        again = len(strange) - len(unique)
        own = set(unique[: STRANGERS - len(self._strange)].to_pylist())
        again += len(own & self._strange)
        self._strange |= own
        return again


class _VoteFile:
    """Where ids and votes are in what a user gave."""

    def __init__(
        self,
        context: Context,
        source: Any,
        answers: Answers,
        id_column: str,
        vote_column: str,
        soft: str | None,
    ) -> None:
        self._kind, self._answers = context.id_kind, answers
        self._id, self._vote, self._soft = id_column, vote_column, soft
        self._types = truth_types(answers.kind, vote_column)
        places = isinstance(source, (str, os.PathLike, list, tuple))
        given = source if places else read_rows(source, "votes")
        self._stream = Stream(given, context.files.options)
        self._columns = self._find_columns()

    def _find_columns(self) -> list[str]:
        """The columns needed; one that is not there is named."""
        for _, batch in self._stream.batches(ids=self._id, types=self._types):
            ids_of(batch, self._id, WHAT)
            needed = (
                [] if self._soft is None else SoftColumns.parse(self._soft).columns(self._answers)
            )
            # Without a column of votes, the most probable class will do.
            if self._soft is None or self._vote in batch.column_names:
                needed.insert(0, self._vote)
            for name in needed:
                column(batch, name, WHAT)
            return list(dict.fromkeys([self._id, *needed]))
        return [self._id]

    def batches(self) -> Iterator[tuple[pa.ChunkedArray, pa.Table]]:
        """Ids and the rows they are in, as many as are looked up together."""
        waiting: list[pa.Table] = []
        text = False
        for piece, batch in self._stream.batches(self._columns, ids=self._id, types=self._types):
            other = bool(waiting) and (waiting[0].schema != batch.schema or text != piece.from_text)
            full = sum(one.num_rows for one in waiting) + batch.num_rows > TOGETHER
            if waiting and (other or full or sum(one.nbytes for one in waiting) > BYTES):
                yield self._joined(waiting, text)
                waiting = []
            text = piece.from_text
            if batch.num_rows:
                waiting.append(batch)
        if waiting:
            yield self._joined(waiting, text)

    def _joined(self, parts: list[pa.Table], text: bool) -> tuple[pa.ChunkedArray, pa.Table]:
        table = pa.concat_tables(parts)
        ids = ids_of(table, self._id, WHAT)
        return as_numbers(ids) if text and self._kind != pa.string() else ids, table

    def votes(self, rows: pa.Table) -> Cast:
        """The votes in some rows, hard or soft."""
        if self._vote in rows.column_names:
            given = rows.column(self._vote)
        else:
            given = pa.chunked_array([pa.nulls(rows.num_rows)])
        hard = self._answers.column(given, WHAT)
        if self._soft is None:
            return Cast(hard)
        return read_soft(self._soft, rows, self._answers, hard, WHAT)


class _Aside:
    """Votes in temporary files, until all of them are known to be right."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="posterity-")
        self._parts: list[pa.Table] = []

    def __enter__(self) -> _Aside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parts = []
        self._folder.cleanup()

    def add(self, votes: pa.Table) -> None:
        """Set votes aside, by row; they are mapped, not held."""
        path = f"{self._folder.name}/{len(self._parts)}.arrow"
        ordered = votes.sort_by("row").combine_chunks()
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, ordered.schema) as writer:
            writer.write_table(ordered)
        with pa.memory_map(path) as mapped:
            self._parts.append(pa.ipc.open_file(mapped).read_all())

    def between(self, start: int, items: int) -> pa.Table:
        """Votes on so many rows from ``start`` on."""
        parts = [pa.table({"row": pa.array([], pa.int64())})]
        for part in self._parts:
            rows = part.column("row").to_numpy()
            low, high = np.searchsorted(rows, [start, start + items]).tolist()
            parts.append(part.slice(low, high - low))
        found = parts[1:] or parts
        return pa.concat_tables(found)
