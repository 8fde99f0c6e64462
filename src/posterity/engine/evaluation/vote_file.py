"""Files of votes: made elsewhere, read batch by batch, and checked before any of them counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._text import counted
from posterity.engine.evaluation.durable_votes import Run
from posterity.engine.evaluation.plans import Plan, is_labelled
from posterity.engine.items.lookup import Lookup
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.arrays import distinct
from posterity.method.data.row_sets import RowSet
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.method.decide.rules import traits
from posterity.models.class_map import Answers
from posterity.models.soft_columns import SoftColumns, read_soft
from posterity.storage import parquet
from posterity.storage.input import as_numbers, as_stored, column, ids_of, read_rows, truth_types
from posterity.storage.stream import Stream

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
        return self._told(f", such as {self.strangers[0]!r}" if self.strangers else "")

    @property
    def kept(self) -> str:
        """As the ledger keeps it: without ids, which may have to be forgotten."""
        return self._told("")

    def _told(self, stranger: str) -> str:
        told = []
        if self.unplanned:
            told.append(f"{self.unplanned:,} votes on items not planned were left out")
        if self.unmatched:
            told.append(f"{counted(self.unmatched, 'id', 'are')} not in the store{stranger}")
        if self.without:
            told.append(f"{counted(self.without, 'planned item')} had no vote")
        return "; ".join(told)


@dataclass(frozen=True, eq=False)
class VoteFile:
    """Votes made elsewhere: a table or a file, and how it is read."""

    source: Any
    id: str = "id"
    vote: str = "vote"
    soft: str | None = None
    """Columns of soft votes; see ``SoftColumns``."""
    strict: bool = False
    """Refuse the file if a planned item has no vote in it."""
    keep_unplanned: bool = False
    """Fold votes on items outside of the plan too."""

    @classmethod
    def of(cls, votes: Any) -> VoteFile:
        """The same, or a source with columns of the usual names."""
        return votes if isinstance(votes, VoteFile) else cls(votes)


Evaluate = Callable[[Run, Plan], FromFile | None]
"""Fills a run with votes on the plan's items."""


def take_votes(run: Run, plan: Plan, votes: VoteFile) -> FromFile:
    """Votes made elsewhere: rows of the plan's items are folded, others counted and left out."""
    context = run.context
    rule = context.rule(plan.request.rule)
    if votes.keep_unplanned and traits(rule).promises:
        raise InvalidParameter(
            f"The rule '{rule}' is about the items that were chosen; others cannot be kept.",
            hint="Leave out keep_unplanned (--keep-unplanned).",
        )
    answers = context.model(plan.request.model).settings.answers(context.classes)
    file = _Columns(context, votes, answers)
    with tempfile.TemporaryDirectory(prefix="posterity-") as folder:
        aside = _Aside(folder)
        read = _Reading(context, file, plan, votes.keep_unplanned, aside)
        kept = run.kept()
        had = without = 0
        for shard, start, items in context.shards:
            have = kept.rows_of(shard)
            lacking = plan.chosen.among(start, items) & ~read.taken.among(start, items)
            lacking[have - start] = False
            had += len(have)
            without += int(lacking.sum())
        folded = len(read.taken)
        # Given again, a file need not have votes on what is still without a label.
        if not (folded or had or plan.again or is_labelled(plan.id)):
            raise InvalidData(
                f"None of the {read.total:,} votes in the file is on a planned item; "
                f"{read.unplanned:,} are on others.",
                hint="Give the budget, selector and rule of the plan they were made for, or its id "
                "with --plan; --keep-unplanned folds them all the same.",
            )
        if votes.strict and without:
            raise InvalidData(f"{without} planned items have no row in the file of votes.")
        for shard, start, items in context.shards if folded else []:
            new = aside.between(start, items)
            if new.num_rows and had:
                rows = new.column("row").to_numpy()
                new = new.filter(pa.array(~np.isin(rows, kept.rows_of(shard))))
            if new.num_rows:
                run.keep_table(shard, new.sort_by("row"))
    return FromFile(folded, read.unplanned, read.unmatched, read.strangers, without)


class _Reading:
    """One pass over a file of votes: everything that can be wrong with it is known after it."""

    def __init__(
        self, context: Context, file: _Columns, plan: Plan, keep_unplanned: bool, aside: _Aside
    ) -> None:
        self.taken = RowSet(context.rows)
        """The rows whose votes are to be folded."""
        self.total = self.unplanned = self.unmatched = 0
        self.strangers: list[Any] = []
        self._seen, self._strange = RowSet(context.rows), set[Any]()
        problem: InvalidData | None = None
        repeated = empty = 0
        lookup = Lookup(context)
        for given, table, from_text in file.batches():
            self.total += len(given)
            ids = as_stored(given, lookup.has) if from_text else given
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
            aside.add(pa.table({"row": own, "vote": votes.hard, **parquet.to_columns(votes)}))
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


class _Columns:
    """Where ids and votes are in what a user gave."""

    def __init__(self, context: Context, votes: VoteFile, answers: Answers) -> None:
        self._kind, self._answers = context.id_kind, answers
        self._id, self._vote, self._soft = votes.id, votes.vote, votes.soft
        self._types = truth_types(answers.kind, votes.vote)
        places = isinstance(votes.source, (str, os.PathLike, list, tuple))
        given = votes.source if places else read_rows(votes.source, "votes")
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

    def batches(self) -> Iterator[tuple[pa.ChunkedArray, pa.Table, bool]]:
        """Ids and the rows they are in, as many as are looked up together; and whether of CSV."""
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

    def _joined(self, parts: list[pa.Table], text: bool) -> tuple[pa.ChunkedArray, pa.Table, bool]:
        table = pa.concat_tables(parts)
        ids = ids_of(table, self._id, WHAT)
        return as_numbers(ids) if text and self._kind != pa.string() else ids, table, text

    def votes(self, rows: pa.Table) -> ModelVotes:
        """The votes in some rows, hard or soft."""
        if self._vote in rows.column_names:
            given = rows.column(self._vote)
        else:
            given = pa.chunked_array([pa.nulls(rows.num_rows)])
        hard = self._answers.column(given, WHAT)
        if self._soft is None:
            return ModelVotes(hard)
        return read_soft(self._soft, rows, self._answers, hard, WHAT)


class _Aside:
    """Votes in files of a folder, until all of them are known to be right."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._parts: list[pa.Table] = []

    def add(self, votes: pa.Table) -> None:
        """Set votes aside, by row; they are mapped, not held."""
        path = f"{self._folder}/{len(self._parts)}.arrow"
        ordered = votes.sort_by("row").combine_chunks()
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, ordered.schema) as writer:
            writer.write_table(ordered)
        with pa.memory_map(path) as mapped:
            self._parts.append(pa.ipc.open_file(mapped).read_all())

    def between(self, start: int, items: int) -> pa.Table:
        """Votes on so many rows from ``start`` on."""
        parts = []
        for part in self._parts:
            rows = part.column("row").to_numpy()
            low, high = np.searchsorted(rows, [start, start + items]).tolist()
            parts.append(part.slice(low, high - low))
        return pa.concat_tables(parts)
