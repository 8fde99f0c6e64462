"""Items: adding, removing, finding them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._arrays import Rows
from posterity.engine.context import NEXT_ROW, Context
from posterity.errors import CommitConflict, InvalidData
from posterity.tables.delta import delta_schema
from posterity.tables.layout import REMOVED
from posterity.tables.sources import ids_of, read_rows

RESERVED = ("shard", "row")
TRIES = 20


def add_items(context: Context, data: Any, *, id_column: str = "id") -> int:
    """Give new items rows and make them part of the store; returns how many.

    All of them or none: an id that occurs twice, or that the store has already, refuses the call.
    """
    rows = read_rows(data, "items", ids=id_column)
    ids = ids_of(rows, id_column, "data")
    if not len(ids):
        raise InvalidData("The data holds no items.")
    payload = [name for name in rows.column_names if name != id_column]
    clash = [name for name in payload if name.lower() in (*RESERVED, "id")]
    if clash:
        raise InvalidData(f"The payload column '{clash[0]}' has a name the store uses itself.")
    _refuse_repeated(ids)
    plain = pa.table({"id": ids, **{name: rows.column(name) for name in payload}})
    try:
        prepared = plain.cast(delta_schema(plain.schema))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidData(f"The payload cannot be stored: {str(error).splitlines()[0]}.") from None
    for _ in range(TRIES):
        try:
            return _commit_items(context, prepared)
        except CommitConflict:
            # Somebody added items at the same time: theirs have rows now, ours get the next.
            context = Context(context.files)
    raise CommitConflict("Too many others are adding items; nothing was added.")


def _commit_items(context: Context, items: pa.Table) -> int:
    layout, size, start = context.layout, context.description.shard_rows, context.rows
    if context.items is None:
        schema = pa.schema([("shard", pa.int32()), ("row", pa.int64()), *items.schema])
        table = layout.items(schema)
        table.create()
        snapshot = table.head()
        if snapshot.schema.names != schema.names or snapshot.fence(NEXT_ROW) is not None:
            raise CommitConflict("Somebody else added the first items.")
    else:
        snapshot, table = context.items, context.items.table
        items = _fitted(items, table.schema)
        _refuse_known(snapshot, items.column("id"))
    written = []
    first = start
    while first < start + items.num_rows:
        shard = first // size
        last = min((shard + 1) * size, start + items.num_rows)
        part = items.slice(first - start, last - first)
        part = part.add_column(0, "row", pa.array(np.arange(first, last)))
        written.append(table.write(part, label=f"items-{first}", partition=shard))
        first = last
    snapshot.commit(written, fence=(NEXT_ROW, start + items.num_rows))
    return int(items.num_rows)


def _fitted(items: pa.Table, schema: pa.Schema) -> pa.Table:
    wanted = [field for field in schema if field.name not in RESERVED]
    strange = [name for name in items.column_names if name not in schema.names]
    if strange:
        raise InvalidData(
            f"The store's items have no column '{strange[0]}'; they have: "
            f"{', '.join(field.name for field in wanted)}."
        )
    columns = []
    for field in wanted:
        if field.name not in items.column_names:
            columns.append(pa.nulls(items.num_rows, field.type))
            continue
        try:
            columns.append(items.column(field.name).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidData(
                f"The column '{field.name}' must hold {field.type}: {error}."
            ) from None
    return pa.table(columns, names=[field.name for field in wanted])


def _refuse_repeated(ids: pa.ChunkedArray) -> None:
    counted = pc.value_counts(ids)
    repeated = counted.filter(pc.greater(counted.field("counts"), 1))
    if len(repeated):
        shown = ", ".join(repr(value) for value in repeated.field("values")[:5].to_pylist())
        raise InvalidData(f"{len(repeated)} ids occur more than once: {shown}. Nothing was added.")


def _refuse_known(snapshot: Any, ids: pa.ChunkedArray) -> None:
    count = 0
    named: list[Any] = []
    for _, part in snapshot.each(["id"]):
        known = part.column("id").filter(pc.is_in(part.column("id"), value_set=ids))
        count += len(known)
        named += known[: max(0, 5 - len(named))].to_pylist()
    if count:
        shown = ", ".join(repr(value) for value in named)
        raise InvalidData(f"{count} ids are in the store already: {shown}. Nothing was added.")


def find_rows(context: Context, ids: pa.ChunkedArray, what: str = "id") -> Rows:
    """The row of each id; an id that does not exist, or was removed, is named."""
    found = rows_or_none(context, ids)
    if found.null_count:
        missing = ids.filter(found.is_null())
        shown = ", ".join(repr(value) for value in missing[:5].to_pylist())
        raise InvalidData(f"{len(missing)} {what}s are not in the store: {shown}.")
    rows: Rows = found.to_numpy()
    return rows


def rows_or_none(context: Context, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The row of each id; null where there is no such item."""
    if context.items is None:
        return pa.chunked_array([pa.nulls(len(ids), pa.int64())])
    kind = context.items.table.schema.field("id").type
    if ids.type != kind:
        raise InvalidData(f"The store's ids are of type {kind}; got {ids.type}.")
    table = context.items.read(["row", "id"])
    keep = pa.array(~context.removed[table.column("row").to_numpy()])
    table = table.filter(keep)
    return table.column("row").take(pc.index_in(ids, value_set=table.column("id")))


def remove_items(context: Context, ids: Any) -> int:
    """Mark items as removed: gone at once for everybody, purged at the next compaction."""
    rows = np.unique(find_rows(context, id_array(ids)))
    table = context.layout.removed
    file = table.write(pa.table({"row": rows}, schema=REMOVED), label="removed")
    table.head().commit([file])
    return len(rows)


def id_array(ids: Any) -> pa.ChunkedArray:
    """One id or many as a column."""
    listed = [ids] if isinstance(ids, (str, int)) else ids
    try:
        column = listed if isinstance(listed, pa.ChunkedArray) else pa.array(listed)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InvalidData(f"These are no ids: {error}.") from None
    return ids_of(pa.table({"id": column}), "id", "list of items")
