"""Runs: votes as they arrive, durable batch by batch until their step is committed."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity._text import Result
from posterity.engine.evaluation.plans import load_plan
from posterity.engine.ledger.context import Context
from posterity.errors import StoreError, UnknownName
from posterity.method.data.arrays import Rows, distinct
from posterity.method.data.votes import ModelVotes
from posterity.storage import parquet
from posterity.storage.delta.schema import LEDGER
from posterity.storage.delta.table import to_parquet

BEGUN = "begun.json"
"""The file that says that a run's items are being evaluated, since when."""


OF_SHARD = re.compile(r"/votes-(\d+)-[0-9a-f]+\.parquet$")
"""How a file of one shard's votes is named."""


@dataclass(frozen=True)
class Run:
    """The folder of a run."""

    context: Context
    id: str

    @property
    def folder(self) -> str:
        """Where its files are."""
        return f"runs/{self.id}"

    def begin(self) -> None:
        """Say that it is being evaluated: from now on nobody takes it for a plan that is stale."""
        begun = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
        if self.context.files.size(f"{self.folder}/{BEGUN}") is None:
            self.context.files.write(f"{self.folder}/{BEGUN}", json.dumps(begun).encode())

    def give_up(self) -> None:
        """Its evaluation ended before anything was spent: it is a plan again."""
        if not self.is_spent:
            self.context.files.delete(f"{self.folder}/{BEGUN}")

    @property
    def is_spent(self) -> bool:
        """Whether the model was asked: there are votes, or items it failed on."""
        return bool(self.batches("votes") or self.batches("errors"))

    def batches(self, kind: str) -> list[str]:
        """The files of one kind (``votes`` or ``errors``)."""
        prefix = f"{self.folder}/{kind}-"
        return [path for path in self.context.files.list(self.folder) if path.startswith(prefix)]

    def keep_votes(self, rows: Rows, votes: ModelVotes) -> None:
        """Make a batch of votes durable, those of each shard in a file of their own."""
        shards = rows // self.context.description.shard_rows
        for shard in np.unique(shards).tolist():
            at = np.flatnonzero(shards == shard)
            own = votes[at]
            columns = {"row": rows[at], "vote": own.hard, **parquet.to_columns(own)}
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

    def votes(self) -> tuple[Rows, ModelVotes]:
        """All votes so far, by row."""
        return self._votes(self.batches("votes"))

    def kept(self) -> KeptVotes:
        """The votes so far, to be read shard by shard."""
        of_shards: dict[int, list[str]] = {}
        for path in self.batches("votes"):
            if (named := OF_SHARD.search(path)) is not None:
                of_shards.setdefault(int(named[1]), []).append(path)
        return KeptVotes(self, of_shards)

    def _votes(self, paths: Sequence[str]) -> tuple[Rows, ModelVotes]:
        soft = {name: LEDGER.field(name).type for name in parquet.NAMES}
        table = self._read(paths, {"row": pa.int64(), "vote": pa.int32(), **soft})
        rows, votes = (table.column(name).to_numpy() for name in ("row", "vote"))
        cast = ModelVotes(votes, parquet.from_columns(table, votes))
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
                parts.append(file.read(list(columns)).select(list(columns)).cast(empty.schema))
            except (OSError, KeyError, pa.ArrowException) as error:
                raise StoreError(
                    f"'{path}' of the run is damaged: {error}.",
                    hint=f"Drop the run with `posterity runs STORE --drop {self.id}`.",
                ) from None
        return pa.concat_tables(parts)


@dataclass(frozen=True)
class KeptVotes:
    """A run's votes as they were when its folder was listed, one shard in memory at a time."""

    run: Run
    of_shards: dict[int, list[str]]

    def of(self, shard: int) -> tuple[Rows, ModelVotes]:
        """The votes of one shard, by row."""
        return self.run._votes(self.of_shards.get(shard, []))

    def rows_of(self, shard: int) -> Rows:
        """The rows of one shard that have a vote, ascending."""
        held = self.run._read(self.of_shards.get(shard, []), {"row": pa.int64()})
        return distinct(held.column("row").to_numpy())


def all_runs(context: Context) -> list[str]:
    """The ids of plans and runs that are not yet a step."""
    done = {header.run for header in context.headers}
    seen = {path.split("/")[1] for path in context.files.list("runs")}
    return sorted(seen - done)


def unfinished(context: Context) -> list[str]:
    """The ids of runs that were begun, not yet a step."""
    signs = re.compile(rf"runs/([^/]+)/({re.escape(BEGUN)}$|votes-|errors-)")
    found = {sign[1] for path in context.files.list("runs") if (sign := signs.match(path))}
    return sorted(found & set(all_runs(context)))


def tidy(context: Context) -> None:
    """Remove what committed runs have left behind."""
    done = {header.run for header in context.headers}
    for run in sorted({path.split("/")[1] for path in context.files.list("runs")} & done):
        Run(context, run).drop()


PLANNED, STARTED, DAMAGED = "planned", "started", "damaged"


@dataclass(frozen=True)
class OpenRun(Result):
    """A plan, or a run with votes that wait for their step."""

    run: str
    state: str
    """``planned``: nothing is spent; ``started``: its update runs, or was cut short; ``damaged``"""
    model: str | None = None
    planned: int | None = None
    """Items to evaluate."""
    votes: int | None = None
    """Votes that are kept."""
    failed: int | None = None
    read: int | None = None
    """The last step when it was planned."""
    started: str | None = None


def open_runs(context: Context) -> list[OpenRun]:
    """Every plan and run that is not a step yet."""
    started = set(unfinished(context))
    return [_described(context, run, run in started) for run in all_runs(context)]


def _described(context: Context, name: str, started: bool) -> OpenRun:
    run, begun = Run(context, name), f"runs/{name}/{BEGUN}"
    try:
        plan = load_plan(context, name)
        since = None
        if context.files.size(begun) is not None:
            since = json.loads(context.files.read(begun).to_pybytes()).get("time")
        votes, failed = len(run.votes()[0]), len(run.errors())
    except (StoreError, ValueError, AttributeError):
        return OpenRun(name, DAMAGED)
    state = STARTED if started else PLANNED
    if plan is None:  # an import, or what a run left that lost its plan
        return OpenRun(name, state, votes=votes, failed=failed, started=since)
    return OpenRun(
        *(name, state, plan.request.model, plan.evaluations, votes, failed, plan.head, since)
    )


def drop_run(context: Context, name: str) -> OpenRun:
    """Delete a plan or run with all its votes; the same update begins anew."""
    if name not in (known := all_runs(context)):
        raise UnknownName.among("run", name, known)
    dropped = _described(context, name, name in unfinished(context))
    Run(context, name).drop()
    return dropped
