"""Read a store: what a step flipped, what happened to an item, what is believed of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from posterity.engine import deciding, publishing, updating
from posterity.engine.context import Context
from posterity.engine.history import ShardHistory
from posterity.engine.items import find_rows, id_array
from posterity.engine.steps import live_updates, masked
from posterity.errors import InvalidParameter
from posterity.votes import MISSING


def flips(context: Context, step: int | None = None) -> pa.Table:
    """The labels a step changed: id, old and new label, belief in the new, vote."""
    number = context.head if step is None else step
    context.check_step(number)
    names = pa.array(context.classes.names)
    parts = []
    for shard, start, items in context.shards:
        history = ShardHistory.read(context.ledger, shard, start, items)
        written = history.steps.get(number)
        if written is None:
            continue
        earlier = {at: rows for at, rows in history.steps.items() if at < number}
        before = ShardHistory(start, items, earlier).current([], 0.0).label[written.rows]
        at = np.flatnonzero((before != MISSING) & (before != written.label))
        at = at[~context.removed[start + written.rows[at]]]
        rows = pa.array(start + written.rows[at])
        parts.append(
            pa.table(
                {
                    "id": context.id_of(rows),
                    "row": rows,
                    "old": names.take(pa.array(before[at])),
                    "new": names.take(pa.array(written.label[at], mask=written.label[at] < 0)),
                    "belief": pa.array(written.belief[at]),
                    "step": pa.array(np.full(len(at), number, dtype=np.int32)),
                }
            )
        )
    kind = publishing.labels_schema(context).field("id").type
    columns = [("id", kind), ("row", pa.int64()), ("old", names.type), ("new", names.type)]
    schema = pa.schema([*columns, ("belief", pa.float32()), ("step", pa.int32())])
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])


def history(context: Context, item: str | int) -> list[dict[str, Any]]:
    """What happened to one item: a row per step that touched it."""
    (row,) = find_rows(context, id_array([item])).tolist()
    shard, start, items = context.shards[row // context.description.shard_rows]
    history = ShardHistory.read(context.ledger, shard, start, items)
    undone = masked(context.headers)
    told = []
    for header in context.headers:
        written = history.steps.get(header.step)
        at = None if written is None else np.flatnonzero(written.rows == row - start)
        if written is None or at is None or not len(at):
            continue
        vote, label = context.classes.decode([written.vote[at[0]], written.label[at[0]]])
        told.append(
            {
                "step": header.step,
                "kind": header.kind,
                "model": header.model,
                "vote": vote,
                "label": label,
                "belief": float(written.belief[at[0]]),
                "entropy": float(written.entropy[at[0]]),
                "counts": header.step not in undone,
            }
        )
    return told


def beliefs(context: Context, ids: Any = None, *, top: int = 3) -> pa.Table:
    """The most believed classes of items (all by default) and the beliefs in them."""
    if top < 1:
        raise InvalidParameter.of("top", "at least 1", top)
    rows = np.flatnonzero(~context.removed) if ids is None else find_rows(context, id_array(ids))
    live = live_updates(context.headers)
    steps = updating.votes_of_steps(context, live)
    names = pa.array(context.classes.names)
    parts = [_beliefs_table(pa.array([], pa.int64()), names, np.zeros((0, 1)), np.zeros((0, 1)))]
    for shard, start, items in context.shards:
        local = rows[(rows >= start) & (rows < start + items)] - start
        if not len(local):
            continue
        history = ShardHistory.read(context.ledger, shard, start, items)
        votes = history.votes_of(local, live)
        codes, believed = deciding.most_believed(context.prior, steps, votes, top)
        parts.append(_beliefs_table(pa.array(local + start), names, codes, believed))
    table = pa.concat_tables(parts)
    if context.items is None:
        return table
    return table.add_column(0, "id", context.id_of(table.column("row")))


def _beliefs_table(rows: pa.Array, names: pa.Array, codes: Any, believed: Any) -> pa.Table:
    width = codes.shape[1]
    flat = names.take(pa.array(codes.ravel().astype(np.int64)))
    offsets = pa.array(np.arange(0, codes.size + 1, width), pa.int32())
    return pa.table(
        {
            "row": rows,
            "classes": pa.ListArray.from_arrays(offsets, flat),
            "beliefs": pa.ListArray.from_arrays(offsets, pa.array(believed.ravel())),
        }
    )
