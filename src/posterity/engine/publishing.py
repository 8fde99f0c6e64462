"""Publish: the derived table of current labels, for readers that know nothing of us."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from posterity.engine.context import Context
from posterity.engine.history import ShardHistory
from posterity.engine.steps import live_updates
from posterity.tables.delta import Table

PUBLISHED = "posterity.published"
COLUMNS = ["id", "row", "label", "belief", "step"]


def labels_of(context: Context, shard: int, start: int, items: int) -> pa.Table:
    """Current labels of one shard: id, row, label name, belief, step of the last change."""
    if context.items is None:
        return pa.table({})
    history = ShardHistory.read(context.ledger, shard, start, items)
    now = history.current(live_updates(context.headers), 0.0)
    known = context.items.read(["row", "id"], shard)
    local = known.column("row").to_numpy() - start
    keep = np.flatnonzero(~context.removed[local + start])
    at = local[keep]
    names = pa.array([str(name) for name in context.classes], pa.string())
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


def all_labels(context: Context) -> pa.Table:
    """Current labels of all items, by row."""
    parts = [labels_of(context, *shard) for shard in context.shards]
    return pa.concat_tables(parts).sort_by("row") if parts else pa.table({})


def publish_labels(context: Context, *, anew: bool = False) -> bool:
    """Bring the derived table up to date; False if it was, unless it is to be made anew."""
    if context.items is None:
        return False
    kind = context.items.table.schema.field("id").type
    schema = pa.schema(
        [
            ("shard", pa.int32()),
            ("id", kind),
            ("row", pa.int64()),
            ("label", pa.string()),
            ("belief", pa.float32()),
            ("step", pa.int32()),
        ]
    )
    table = Table(context.files, "labels", schema, "shard")
    if not context.files.list("labels/_delta_log"):
        table.create()
    snapshot = table.head()
    if snapshot.fence(PUBLISHED) == context.head and not anew:
        return False
    files = [
        table.write(
            labels_of(context, *shard), label=f"labels-{context.head:06}", partition=shard[0]
        )
        for shard in context.shards
    ]
    snapshot.commit(files, replace=True, fence=(PUBLISHED, context.head))
    return True
