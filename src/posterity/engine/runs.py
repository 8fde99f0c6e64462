"""Runs: votes as they arrive, durable batch by batch until their step is committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity._arrays import Rows
from posterity.engine.context import Context
from posterity.errors import StoreError
from posterity.tables import softvotes
from posterity.tables.delta import to_parquet
from posterity.tables.layout import LEDGER
from posterity.votes import Cast

Progress = Callable[[int, int], None]
"""Called with the evaluations done and the evaluations in all."""


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
        """Make a batch of votes durable."""
        soft = softvotes.to_columns(votes)
        self._keep("votes", pa.table({"row": rows, "vote": votes.hard, **soft}))

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
        soft = {name: LEDGER.field(name).type for name in softvotes.NAMES}
        table = self._read("votes", {"row": pa.int64(), "vote": pa.int32(), **soft})
        rows, votes = (table.column(name).to_numpy() for name in ("row", "vote"))
        # Two processes on one run may have asked for the same vote.
        unique, first = np.unique(rows, return_index=True)
        return unique, Cast(votes, softvotes.from_columns(table, votes))[first]

    def errors(self) -> dict[int, str]:
        """The items the model failed on, with its last words."""
        table = self._read("errors", {"row": pa.int64(), "reason": pa.string()})
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

    def _read(self, kind: str, columns: dict[str, pa.DataType]) -> pa.Table:
        empty = pa.schema(list(columns.items())).empty_table()
        parts = [empty]
        for path in self.batches(kind):
            try:
                # Not a Python file: Arrow's threads may outlive the interpreter's lock.
                held = pq.read_table(pa.BufferReader(self.context.files.read(path)))
                for name in set(columns) - set(held.column_names):  # of an older version
                    held = held.append_column(name, pa.nulls(held.num_rows, columns[name]))
                parts.append(held.select(list(columns)).cast(empty.schema))
            except (OSError, pa.ArrowInvalid) as error:
                raise StoreError(f"'{path}' of the run is damaged: {error}.") from None
        return pa.concat_tables(parts)


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
