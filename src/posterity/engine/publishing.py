"""Publish: the derived table of current labels, for readers that know nothing of us."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from posterity.engine.context import Context
from posterity.engine.history import ShardHistory
from posterity.engine.runs import Progress
from posterity.errors import CommitConflict
from posterity.tables.delta import Table

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


def each_shard(
    context: Context, progress: Progress | None = None
) -> Iterator[tuple[int, int, int]]:
    """The shards one after the other, telling how far that is."""
    for shard, start, items in context.shards:
        yield shard, start, items
        if progress is not None:
            progress(start + items, context.rows)


def each_labels(context: Context, progress: Progress | None = None) -> Iterator[pa.Table]:
    """Current labels shard by shard, by row."""
    for shard in each_shard(context, progress):
        yield labels_of(context, *shard)


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
    """Bring the derived table up to date; False if it was, unless it is to be made anew."""
    if context.items is None:
        return False
    table = Table(context.files, "labels", labels_schema(context), "shard")
    table.create()
    for _ in range(TRIES):
        snapshot = table.head()
        published = snapshot.fence(PUBLISHED)
        whole = all(
            context.files.size(f"labels/{file.path}") == file.size for file in snapshot.data_files()
        )
        if published is not None and published >= context.head and whole and not anew:
            return False
        name = f"labels-{context.head:06}"
        files = [
            table.write(labels_of(context, *shard), label=name, partition=shard[0])
            for shard in context.shards
        ]
        try:
            snapshot.commit(files, replace=True, fences=[(PUBLISHED, context.head)])
            return True
        except CommitConflict:
            context = Context(context.files)  # somebody else published; perhaps something newer
    return False
