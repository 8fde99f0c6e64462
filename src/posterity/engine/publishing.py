"""Publish: the derived table of current labels, for readers that know nothing of us."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from posterity.engine.context import Context, Shard
from posterity.engine.exporting import Sharded
from posterity.engine.history import ShardHistory
from posterity.engine.runs import Progress
from posterity.engine.steps import last_step
from posterity.errors import CommitConflict
from posterity.tables.delta import DataFile, Snapshot, Table

PUBLISHED = "posterity.published"
TRIES = 20


def labels_of(context: Context, shard: int, start: int, items: int) -> pa.Table:
    """Current labels of one shard: id, row, label name, belief, step of the last change."""
    if context.items is None:
        return own_schema(context).empty_table()
    history = ShardHistory.read(context.ledger, shard, start, items)
    now = history.current([], 0.0)
    known = by_row(context.items.read(["row", "id"], shard))
    local = known.column("row").to_numpy() - start
    keep = np.flatnonzero(~context.removed[local + start])
    at = local[keep]
    names = pa.array(context.classes.names)
    codes = pa.array(now.label[at], mask=now.label[at] < 0)
    changed = now.changed[at]
    return pa.table(
        {
            "id": known.column("id").take(pa.array(keep)),
            "row": pa.array(at + start),
            "label": names.take(codes),
            "belief": pa.array(now.belief[at], mask=now.label[at] < 0),
            "step": pa.array(changed, mask=changed < 0),
        }
    )


def by_row(rows: pa.Table) -> pa.Table:
    """In the order of their rows; what was written shard by shard mostly is already."""
    given = rows.column("row").to_numpy()
    return rows if (given[1:] >= given[:-1]).all() else rows.sort_by("row")


def labels_by_shard(context: Context) -> Sharded:
    """Current labels, as what each shard has of them."""
    return Sharded(context, own_schema(context), partial(_labels_of, context))


def _labels_of(context: Context, shard: Shard) -> pa.Table:
    return labels_of(context, *shard)


def each_labels(context: Context, progress: Progress | None = None) -> Iterator[pa.Table]:
    """Current labels shard by shard, by row."""
    return labels_by_shard(context).each(progress)


def all_labels(context: Context) -> pa.Table:
    """Current labels of all items, by row."""
    return pa.concat_tables([own_schema(context).empty_table(), *each_labels(context)])


def own_schema(context: Context) -> pa.Schema:
    """The columns of current labels: those of the derived table without its partition."""
    schema = labels_schema(context)
    return schema.remove(schema.get_field_index("shard"))


def labels_schema(context: Context) -> pa.Schema:
    """The columns of the derived table; ids and labels have the types of the store's own."""
    kind = context.id_kind or pa.string()
    return pa.schema(
        [
            ("shard", pa.int32()),
            ("id", kind),
            ("row", pa.int64()),
            ("label", pa.array(context.classes.names).type),
            ("belief", pa.float32()),
            ("step", pa.int32()),
        ]
    )


def publish_labels(context: Context, *, anew: bool = False) -> bool:
    """Bring the derived table up to date; False if it was.

    ``anew``: look at it even if it is of the last step, because items were removed since. Only the
    shards where something changed are written, and one commit puts them in the place of the old.
    """
    if context.items is None:
        return False
    table = Table(context.files, "labels", labels_schema(context), "shard")
    table.create()
    for _ in range(TRIES):
        snapshot = table.head()
        published = snapshot.fence(PUBLISHED)
        damaged = {file.path for file in snapshot.data_files() if not _is_whole(snapshot, file)}
        if published is not None and published >= context.head and not damaged and not anew:
            return False
        # Read after the table: it knows of every step and removal that is published already.
        context = context.again()
        afresh = published is None or published > context.head or snapshot.schema != table.schema
        stale = context.shards
        if not afresh:
            known = partial(_is_published, context, snapshot, published, damaged)
            told = context.executor.map(known, context.shards)
            stale = [shard for shard, is_ in zip(stale, told, strict=True) if not is_]
        fresh = {str(shard) for shard, _, _ in context.shards} - {str(shard[0]) for shard in stale}
        retired = [file for file in snapshot.data_files() if file.partition["shard"] not in fresh]
        if not stale and not retired and published == context.head:
            return False
        name = f"labels-{context.head:06}"
        files = list(context.executor.map(partial(_write, context, table, name), stale))
        try:
            snapshot.commit(
                files,
                removes=[] if afresh else retired,
                replace=afresh,
                fences=[(PUBLISHED, context.head)],
            )
            return True
        except CommitConflict:
            context = context.again()  # somebody else published; perhaps something newer
    return False


def _write(context: Context, table: Table, name: str, shard: Shard) -> DataFile:
    return table.write(labels_of(context, *shard), label=name, partition=shard[0])


def _is_whole(snapshot: Snapshot, file: DataFile) -> bool:
    path = f"{snapshot.table.name}/{file.path}"
    return snapshot.table.files.size(path) == file.size


def _is_published(
    context: Context,
    snapshot: Snapshot,
    published: int | None,
    damaged: Collection[str],
    shard: Shard,
) -> bool:
    """Whether the files of a shard say what the ledger, the items and the tombstones say now."""
    number, start, items = shard
    own = snapshot.files_of(number)
    if published is None or any(file.path in damaged for file in own):
        return False
    gone = context.removed.among(start, items)
    left = items - int(gone.sum())
    if sum(file.rows for file in own) != left:
        return False
    # Rows are given in ascending order and never twice. So if the last one is the same, none was
    # added that is still there; and if as many are left, none was removed either.
    if left and _highest(snapshot, own, "row") != start + int(np.flatnonzero(~gone)[-1]):
        return False
    return all(
        (step := last_step(context.ledger, file)) is not None and step <= published
        for file in context.ledger.files_of(number)
    )


def _highest(snapshot: Snapshot, files: Sequence[DataFile], column: str) -> int | None:
    told = [snapshot.highest(file, column) for file in files]
    known = [value for value in told if value is not None]
    return max(known) if known and len(known) == len(told) else None
