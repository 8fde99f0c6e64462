"""Runs: votes as they arrive, durable batch by batch until their step is committed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity._arrays import Rows, distinct
from posterity.engine.context import Context
from posterity.errors import StoreError
from posterity.tables import softvotes
from posterity.tables.delta import to_parquet
from posterity.tables.layout import LEDGER
from posterity.votes import Cast

Progress = Callable[[int, int], None]
"""Called with the evaluations done and the evaluations in all."""

OF_SHARD = re.compile(r"/votes-(\d+)-[0-9a-f]+\.parquet$")
"""How a file of one shard's votes is named; those of older versions do not name the shard."""


@dataclass(frozen=True)
class Run:
    """The folder of a run."""

    context: Context
    id: str

    @property
    def folder(self) -> str:
        """Where its files are."""
        return f"runs/{self.id}"

    def batches(self, kind: str) -> list[str]:
        """The files of one kind (``votes`` or ``errors``)."""
        prefix = f"{self.folder}/{kind}-"
        return [path for path in self.context.files.list(self.folder) if path.startswith(prefix)]

    def keep_votes(self, rows: Rows, votes: Cast) -> None:
        """Make a batch of votes durable, those of each shard in a file of their own."""
        shards = rows // self.context.description.shard_rows
        for shard in np.unique(shards).tolist():
            at = np.flatnonzero(shards == shard)
            own = votes[at]
            columns = {"row": rows[at], "vote": own.hard, **softvotes.to_columns(own)}
            self.keep_table(shard, pa.table(columns))

    def keep_table(self, shard: int, votes: pa.Table) -> None:
        """Make votes of one shard durable that are in columns already."""
        self._keep(f"votes-{shard}", votes)

    def keep_errors(self, reasons: dict[int, str]) -> None:
        """Remember items the model failed on."""
        rows = {"row": list(reasons), "reason": list(reasons.values())}
        self._keep("errors", pa.table(rows))

    def _keep(self, kind: str, rows: pa.Table) -> None:
        # A name of its own: two processes may work on the same run.
        path = f"{self.folder}/{kind}-{uuid.uuid4().hex[:16]}.parquet"
        self.context.files.write(path, to_parquet(rows))

    def votes(self) -> tuple[Rows, Cast]:
        """All votes so far, by row."""
        return self._votes(self.batches("votes"))

    def kept(self) -> KeptVotes:
        """The votes so far, to be read shard by shard."""
        of_shards: dict[int, list[str]] = {}
        others = []
        for path in self.batches("votes"):
            named = OF_SHARD.search(path)
            if named is None:
                others.append(path)
            else:
                of_shards.setdefault(int(named[1]), []).append(path)
        return KeptVotes(self, of_shards, others)

    def _votes(self, paths: Sequence[str]) -> tuple[Rows, Cast]:
        soft = {name: LEDGER.field(name).type for name in softvotes.NAMES}
        table = self._read(paths, {"row": pa.int64(), "vote": pa.int32(), **soft})
        rows, votes = (table.column(name).to_numpy() for name in ("row", "vote"))
        cast = Cast(votes, softvotes.from_columns(table, votes))
        if (rows[1:] > rows[:-1]).all():
            return rows, cast
        # Two processes on one run may have asked for the same vote.
        unique, first = np.unique(rows, return_index=True)
        return unique, cast[first]

    def errors(self) -> dict[int, str]:
        """The items the model failed on, with its last words."""
        table = self._read(self.batches("errors"), {"row": pa.int64(), "reason": pa.string()})
        return dict(
            zip(table.column("row").to_pylist(), table.column("reason").to_pylist(), strict=True)
        )

    def forget_errors(self) -> None:
        """So that the items are tried again."""
        for path in self.batches("errors"):
            self.context.files.delete(path)

    def drop(self) -> None:
        """Remove the run; its step is committed, or its votes are not wanted."""
        for path in self.context.files.list(self.folder):
            self.context.files.delete(path)

    def _read(self, paths: Sequence[str], columns: dict[str, pa.DataType]) -> pa.Table:
        empty = pa.schema(list(columns.items())).empty_table()
        parts = [empty]
        for path in paths:
            try:
                # Not a Python file: Arrow's threads may outlive the interpreter's lock.
                file = pq.ParquetFile(pa.BufferReader(self.context.files.read(path)))
                held = file.read([name for name in columns if name in file.schema_arrow.names])
                for name in set(columns) - set(held.column_names):  # of an older version
                    held = held.append_column(name, pa.nulls(held.num_rows, columns[name]))
                parts.append(held.select(list(columns)).cast(empty.schema))
            except (OSError, pa.ArrowInvalid) as error:
                raise StoreError(f"'{path}' of the run is damaged: {error}.") from None
        return pa.concat_tables(parts)


@dataclass(frozen=True)
class KeptVotes:
    """A run's votes as they were when its folder was listed, one shard in memory at a time."""

    run: Run
    of_shards: dict[int, list[str]]
    others: list[str]
    """Files of an older version, which hold rows of any shard."""

    def of(self, shard: int) -> tuple[Rows, Cast]:
        """The votes of one shard, by row."""
        rows, votes = self.run._votes([*self.others, *self.of_shards.get(shard, [])])
        own = self._own(rows, shard)
        return rows[own], votes[own]

    def rows_of(self, shard: int) -> Rows:
        """The rows of one shard that have a vote, ascending."""
        paths = [*self.others, *self.of_shards.get(shard, [])]
        rows = distinct(self.run._read(paths, {"row": pa.int64()}).column("row").to_numpy())
        return rows[self._own(rows, shard)]

    def count_of(self, shard: int) -> int:
        """How many rows of one shard have a vote."""
        return len(self.rows_of(shard))

    def _own(self, rows: Rows, shard: int) -> slice:
        size = self.run.context.description.shard_rows
        return slice(*np.searchsorted(rows, [shard * size, (shard + 1) * size]).tolist())


def all_runs(context: Context) -> list[str]:
    """The ids of plans and runs that are not yet a step."""
    done = {header.run for header in context.headers}
    seen = {path.split("/")[1] for path in context.files.list("runs")}
    return sorted(seen - done)


def unfinished(context: Context) -> list[str]:
    """The ids of runs something was spent on, not yet a step."""
    return [
        run
        for run in all_runs(context)
        if Run(context, run).batches("votes") or Run(context, run).batches("errors")
    ]


def tidy(context: Context) -> None:
    """Remove what committed runs have left behind."""
    done = {header.run for header in context.headers}
    for run in sorted({path.split("/")[1] for path in context.files.list("runs")} & done):
        Run(context, run).drop()
