"""Compact: fewer, larger files; removed items purged. Vacuum: delete what nothing refers to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posterity.engine.context import Context
from posterity.engine.planning import load_plan
from posterity.engine.publishing import publish_labels
from posterity.engine.runs import Run, all_runs, tidy, unfinished
from posterity.errors import InvalidParameter
from posterity.tables.delta import Snapshot, to_parquet

RETENTION_HOURS = 168


@dataclass(frozen=True)
class Compacted:
    """What a compaction did."""

    files_before: int
    files_after: int
    purged: int
    """Removed items whose rows are gone from every table."""

    def to_dict(self) -> dict[str, int]:
        """As ``--json`` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        purged = f"; {self.purged:,} removed items purged" if self.purged else ""
        return f"{self.files_before} files became {self.files_after}{purged}"


def compact(context: Context) -> Compacted:
    """Rewrite items and ledger as one file a shard, without the rows of removed items.

    Items come last: as long as a removed item is among them, a compaction that was cut short
    finds it again and purges it from every other table.
    """
    gone = context.removed.rows
    lost: list[str] = []
    if context.items is not None:
        known = context.items.read(["row", "id"])
        removed = pa.array(context.removed[known.column("row").to_numpy()])
        lost = [str(value) for value in known.filter(removed).column("id").to_pylist()]
    tidy(context)
    before = len(context.ledger.data_files())
    after = _rewrite(context.ledger, lambda rows: _without(rows, "row", gone))
    if lost:
        _purge_runs(context, gone)
        _rewrite(context.layout.labelled.head(), lambda rows: _without_keys(rows, lost))
        publish_labels(Context(context.files), anew=True)
    if context.items is not None:
        before += len(context.items.data_files())
        after += _rewrite(context.items, lambda rows: _without(rows, "row", gone))
    return Compacted(before, after, len(lost))


def _rewrite(snapshot: Snapshot, keep: Callable[[pa.Table], pa.Table]) -> int:
    table = snapshot.table
    written, retired, kept = [], [], 0
    for value in snapshot.partitions() if table.partition else [None]:
        own = [
            file
            for file in snapshot.data_files()
            if value is None or file.partition.get(table.partition or "") == str(value)
        ]
        stored = snapshot.read(partition=value)
        rows = keep(stored)
        if len(own) < 2 and rows.num_rows == stored.num_rows:
            kept += len(own)
            continue
        if "step" in rows.column_names:
            rows = rows.sort_by([("step", "ascending"), ("row", "ascending")])
        elif "row" in rows.column_names:
            rows = rows.sort_by("row")
        retired += own
        if rows.num_rows:
            written.append(table.write(rows, label="compacted", partition=value))
    if retired:
        snapshot.commit(written, removes=retired, data_change=False)
    return kept + len(written)


def _without(rows: pa.Table, column: str, gone: np.ndarray) -> pa.Table:
    if not len(gone):
        return rows
    lost = pc.is_in(rows.column(column), value_set=pa.array(gone))
    return rows.filter(pc.invert(lost))


def _without_keys(rows: pa.Table, ids: list[str]) -> pa.Table:
    lost = pc.is_in(rows.column("key"), value_set=pa.array(ids, pa.string()))
    return rows.filter(pc.invert(lost))


def _purge_runs(context: Context, gone: np.ndarray) -> None:
    if not len(gone):
        return
    for run in all_runs(context):
        for path in context.files.list(f"runs/{run}"):
            if path.endswith(".parquet"):
                rows = pq.read_table(pa.BufferReader(context.files.read(path)))
                context.files.write(path, to_parquet(_without(rows, "row", gone)))


def vacuum(context: Context, *, hours: float = RETENTION_HOURS, dry_run: bool = False) -> int:
    """Delete files that no table refers to any more and that are older than the retention."""
    if not (math.isfinite(hours) and hours >= 0):
        raise InvalidParameter.of("hours", "a number ≥ 0", hours)
    if hours < 1 and unfinished(context):
        raise InvalidParameter.of(
            "hours", "longer than any running job, at least 1 while runs are unfinished", hours
        )
    snapshots = [table.head() for table in context.layout.fixed]
    if context.items is not None:
        snapshots.append(context.items)
    if context.files.list("labels/_delta_log"):
        snapshots.append(context.layout.labels.head())
    if not dry_run:
        tidy(context)
        _drop_stale_plans(context)
    return sum(snapshot.vacuum(hours, dry_run=dry_run) for snapshot in snapshots)


def _drop_stale_plans(context: Context) -> None:
    """Plans nothing was spent on, of a head that has moved."""
    spent = set(unfinished(context))
    for run in all_runs(context):
        kept = None if run in spent else load_plan(context, run)
        if kept is not None and kept.head < context.head:
            Run(context, run).drop()
