"""Compact: fewer, larger files, and removed items purged."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posterity._text import Result, counted
from posterity.engine.evaluation.durable_votes import all_runs, tidy
from posterity.engine.ledger.commit import discarded, retried
from posterity.engine.ledger.context import HEAD, PURGED, Context
from posterity.engine.ledger.publish import publish_labels
from posterity.errors import Missing
from posterity.method.data.row_sets import Tombstones
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.table import Snapshot, to_parquet
from posterity.storage.row_groups import Feed, grouped

log = logging.getLogger(__name__)

FILE_ROWS = 2**22
FILE_BYTES = 2**27
"""What a file holds after a compaction, about."""


@dataclass(frozen=True, repr=False)
class Compacted(Result):
    """What a compaction did."""

    files_before: int
    files_after: int
    purged: int
    """Removed items whose rows are gone from every table."""

    def __str__(self) -> str:
        purged = f"; {counted(self.purged, 'removed item')} purged" if self.purged else ""
        return f"{counted(self.files_before, 'file')} became {self.files_after}{purged}"


def compact(context: Context) -> Compacted:
    """Rewrite items and ledger as few files per shard, without the rows of removed items.

    Items come last: as long as a removed item is among them, a compaction that was cut short
    finds it again and purges it from every other table. One that is removed while a compaction is
    under way is left to the next, however often this one has to begin again.
    """
    gone = context.removed
    lost = [str(value) for value in _lost_ids(context)]
    tidy(context)
    before, after = retried(context, lambda now: _compact_shards(now, gone, now.ledger, PURGED))
    if lost:
        _purge_runs(context)
        retried(context, partial(_purge_labelled, lost))
        publish_labels(context.again(), anew=True)
    items = retried(context, lambda now: _compact_shards(now, gone, now.items))
    done = Compacted(before + items[0], after + items[1], len(lost))
    log.info("%s: %s", context.files.root, done)
    return done


def _lost_ids(context: Context) -> Iterator[Any]:
    """The ids of removed items that are not purged yet."""
    gone = context.removed.rows
    if context.items is None:
        return
    for shard in np.unique(gone // context.description.shard_rows).tolist():
        known = context.items.read(["row", "id"], shard)
        removed = pa.array(context.removed[known.column("row").to_numpy()])
        yield from known.filter(removed).column("id").to_pylist()


def _compact_shards(
    context: Context, gone: Tombstones, snapshot: Snapshot | None, purges: str | None = None
) -> tuple[int, int]:
    """Fewer files in each shard where that is possible, in one commit: how many were and are.

    ``purges`` is the fence that counts the commits by which rows of removed items go.
    """
    if snapshot is None:
        return 0, 0
    shards = snapshot.partitions()
    written, retired = list[DataFile](), list[DataFile]()
    task = partial(_compact_shard, gone, context.description.shard_rows, snapshot)
    for shard, new in zip(shards, context.executor.map(task, shards), strict=True):
        if new is not None:
            written += new
            retired += snapshot.files_of(shard)
    before = len(snapshot.data_files())
    fewer = sum(file.rows for file in written) < sum(file.rows for file in retired)
    fences, unmoved = list[tuple[str, int]](), list[str]()
    if purges and fewer:
        # A step made meanwhile may have rows of the items that are purged here.
        fences, unmoved = [(purges, (snapshot.fence(purges) or 0) + 1)], [HEAD]
    if retired:
        with discarded(snapshot.table, written):
            snapshot.commit(
                written, removes=retired, fences=fences, unmoved=unmoved, data_change=False
            )
    return before, before - len(retired) + len(written)


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
        snapshot.table.write(groups, label="compacted", partition=shard)
        for groups in parts_of(rows, most, removed if losing else None)
    ]


def _parts(files: Sequence[DataFile]) -> int:
    """How many files these are best kept in."""
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    return max(1, math.ceil(rows / FILE_ROWS), math.ceil(size / FILE_BYTES))


def parts_of(
    rows: Iterator[pa.Table], most: int, gone: Tombstones | None
) -> Iterator[Iterator[pa.Table]]:
    """The rows that stay, so many for each file, as row groups that are never held together.

    A file's row groups have to be taken before the next file is asked for.
    """
    feed = Feed(rows if gone is None else (_staying(part, gone) for part in rows))
    while True:
        groups = grouped(feed.take(most))
        first = next(groups, None)
        if first is None:
            return
        yield chain([first], groups)


def _staying(rows: pa.Table, gone: Tombstones) -> pa.Table:
    return rows.filter(pa.array(~gone[rows.column("row").to_numpy()]))


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


def _purge_labelled(ids: Sequence[str], context: Context) -> None:
    """The labelled votes on removed items, of models whose labelled set is stored items.

    The keys of other labelled sets are names of their own: that one equals an id says nothing.
    """
    snapshot, models = context.labelled_table, context.models.values()
    about = pa.array([model.name for model in models if model.settings.stored], pa.string())
    stored = snapshot.read()
    gone = pc.and_(
        pc.is_in(stored.column("model"), value_set=about),
        pc.is_in(stored.column("key"), value_set=pa.array(ids, pa.string())),
    )
    rows, own = stored.filter(pc.invert(gone)), snapshot.data_files()
    if len(own) < 2 and rows.num_rows == stored.num_rows:
        return
    written = [snapshot.table.write(rows, label="compacted")] if rows.num_rows else []
    with discarded(snapshot.table, written):
        snapshot.commit(written, removes=own, data_change=False)


def _purge_runs(context: Context) -> None:
    for run in all_runs(context):
        for path in context.files.list(f"runs/{run}"):
            if not path.endswith(".parquet"):
                continue
            with suppress(Missing):  # its step was committed meanwhile
                rows = pq.read_table(pa.BufferReader(context.files.read(path)))
                lost = context.removed[rows.column("row").to_numpy()]
                if lost.any():
                    context.files.write(path, to_parquet(rows.filter(pa.array(~lost))))
