"""Compact: fewer, larger files; removed items purged. Vacuum: delete what nothing refers to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posterity._wording import counted
from posterity.engine.context import Context
from posterity.engine.planfiles import load_plan
from posterity.engine.publishing import publish_labels
from posterity.engine.runs import Run, all_runs, tidy, unfinished
from posterity.engine.tombstones import Tombstones
from posterity.errors import InvalidParameter
from posterity.tables.delta import DataFile, Snapshot, to_parquet

RETENTION_HOURS = 168
FILE_ROWS = 2**22
FILE_BYTES = 2**27
"""What a file holds at most after a compaction, and so what is held in memory."""


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
        purged = f"; {counted(self.purged, 'removed item')} purged" if self.purged else ""
        return f"{counted(self.files_before, 'file')} became {self.files_after}{purged}"


def compact(context: Context) -> Compacted:
    """Rewrite items and ledger as few files a shard, without the rows of removed items.

    Items come last: as long as a removed item is among them, a compaction that was cut short
    finds it again and purges it from every other table.
    """
    lost = [str(value) for value in _lost_ids(context)]
    tidy(context)
    before = len(context.ledger.data_files())
    after = _compact_shards(context, context.ledger)
    if lost:
        _purge_runs(context)
        _purge_labelled(context.labelled_table, lost)
        publish_labels(context.again(), anew=True)
    if context.items is not None:
        before += len(context.items.data_files())
        after += _compact_shards(context, context.items)
    return Compacted(before, after, len(lost))


def _lost_ids(context: Context) -> Iterator[Any]:
    """The ids of removed items that are not purged yet."""
    gone = context.removed.rows
    if context.items is None:
        return
    for shard in np.unique(gone // context.description.shard_rows).tolist():
        known = context.items.read(["row", "id"], shard)
        removed = pa.array(context.removed[known.column("row").to_numpy()])
        yield from known.filter(removed).column("id").to_pylist()


def _compact_shards(context: Context, snapshot: Snapshot) -> int:
    """Fewer files in each shard where that is possible, in one commit; how many there are then."""
    shards = snapshot.partitions()
    written, retired = list[DataFile](), list[DataFile]()
    task = partial(_compact_shard, context.removed, context.description.shard_rows, snapshot)
    for shard, new in zip(shards, context.executor.map(task, shards), strict=True):
        if new is not None:
            written += new
            retired += snapshot.files_of(shard)
    before = len(snapshot.data_files())
    if retired:
        snapshot.commit(written, removes=retired, data_change=False)
    return before - len(retired) + len(written)


def _compact_shard(
    removed: Tombstones, shard_rows: int, snapshot: Snapshot, shard: int
) -> list[DataFile] | None:
    """The files that take the place of a shard's; None where they are best as they are."""
    own, parts = snapshot.files_of(shard), _parts(snapshot.files_of(shard))
    crowded = len(removed) and removed.among(shard * shard_rows, shard_rows).any()
    losing = bool(crowded) and any(
        removed[rows.column("row").to_numpy()].any() for _, rows in snapshot.each(["row"], shard)
    )
    if len(own) <= parts and not losing:
        return None
    rows = ordered_rows(snapshot, own)
    most = math.ceil(sum(file.rows for file in own) / parts)
    return [
        snapshot.table.write(part, label="compacted", partition=shard)
        for part in parts_of(rows, most, removed if losing else None)
    ]


def _parts(files: Sequence[DataFile]) -> int:
    """How many files these are best kept in."""
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    return max(1, math.ceil(rows / FILE_ROWS), math.ceil(size / FILE_BYTES))


def parts_of(rows: Iterator[pa.Table], most: int, gone: Tombstones | None) -> Iterator[pa.Table]:
    """The rows that stay, in tables of so many rows; no more than that is held."""
    waiting: list[pa.Table] = []
    held = 0
    for part in rows:
        if gone is not None:
            part = part.filter(pa.array(~gone[part.column("row").to_numpy()]))
        while part.num_rows:
            waiting.append(part.slice(0, most - held))
            held += waiting[-1].num_rows
            part = part.slice(waiting[-1].num_rows)
            if held == most:
                yield pa.concat_tables(waiting)
                waiting, held = [], 0
    if held:
        yield pa.concat_tables(waiting)


def ordered_rows(snapshot: Snapshot, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of some files by step and row, a part at a time.

    A step's file is sorted by row and steps follow one another, so that files need only be put in
    the order of what they begin with; those that overlap, or are not sorted, are sorted together.
    """
    names = snapshot.table.schema.names
    key = [name for name in ("step", "row") if name in names]
    told = (_span(snapshot, file, key) for file in files if file.rows)
    spans = sorted(told, key=lambda span: span.first)
    while spans:
        group, last = [spans[0]], spans[0].last
        while len(group) < len(spans) and spans[len(group)].first <= last:
            last = max(last, spans[len(group)].last)
            group.append(spans[len(group)])
        spans = spans[len(group) :]
        if len(group) == 1 and group[0].ascending:
            yield from snapshot.row_groups(group[0].file, names)
            continue
        rows = pa.concat_tables([snapshot.read_file(span.file, names) for span in group])
        yield rows.sort_by([(name, "ascending") for name in key])


@dataclass(frozen=True)
class _Span:
    """What a file begins and ends with."""

    file: DataFile
    first: tuple[int, ...]
    last: tuple[int, ...]
    ascending: bool


def _span(snapshot: Snapshot, file: DataFile, key: Sequence[str]) -> _Span:
    rows = snapshot.read_file(file, key)
    # Headers have no row.
    values = [rows.column(name).fill_null(-1).to_numpy() for name in key]
    rises = np.ones(max(0, rows.num_rows - 1), dtype=np.bool_)
    for value in reversed(values):
        rises = (value[1:] > value[:-1]) | ((value[1:] == value[:-1]) & rises)
    ascending = bool(rises.all())
    ends = (0, -1) if ascending else np.lexsort(values[::-1])[[0, -1]]
    first, last = (tuple(int(value[at]) for value in values) for at in ends)
    return _Span(file, first, last, ascending)


def _purge_labelled(snapshot: Snapshot, ids: Sequence[str]) -> None:
    """The votes on removed items that were labelled, by their ids."""
    gone = pa.array(ids, pa.string())
    stored = snapshot.read()
    rows = stored.filter(pc.invert(pc.is_in(stored.column("key"), value_set=gone)))
    own = snapshot.data_files()
    if len(own) < 2 and rows.num_rows == stored.num_rows:
        return
    written = [snapshot.table.write(rows, label="compacted")] if rows.num_rows else []
    snapshot.commit(written, removes=own, data_change=False)


def _purge_runs(context: Context) -> None:
    for run in all_runs(context):
        for path in context.files.list(f"runs/{run}"):
            if not path.endswith(".parquet"):
                continue
            rows = pq.read_table(pa.BufferReader(context.files.read(path)))
            lost = context.removed[rows.column("row").to_numpy()]
            if lost.any():
                context.files.write(path, to_parquet(rows.filter(pa.array(~lost))))


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
