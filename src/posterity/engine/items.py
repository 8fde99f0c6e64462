"""Items: adding, removing, finding them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._arrays import Rows
from posterity._wording import counted
from posterity.engine.arriving import Look, look_through
from posterity.engine.context import NEXT_ROW, Context
from posterity.engine.distinct import Distinct
from posterity.engine.idspools import IdSpool
from posterity.engine.itemwriting import RESERVED, Incoming, Payload, write_all
from posterity.engine.lookups import Lookup
from posterity.errors import CommitConflict, InvalidData
from posterity.tables.delta import DataFile, Snapshot, Table
from posterity.tables.layout import REMOVED
from posterity.tables.sources import Types, ids_of
from posterity.tables.streams import Stream

TRIES = 20
BATCH = 2**22
"""Ids that are looked up at once."""


def add_items(
    context: Context, data: Any, *, id_column: str = "id", options: dict[str, str] | None = None
) -> int:
    """Give new items rows and make them part of the store; returns how many.

    All of them or none: an id that occurs twice, or that the store has already, refuses the call.
    The data is read twice, first its ids, and never held as a whole.
    """
    stream = Stream(data, options, name="items", spread=context.executor.map)
    with TemporaryDirectory(prefix="posterity-") as folder:
        ids = IdSpool(Path(folder))
        look = Look(stream.reader([id_column], ids=id_column))
        seen = look_through(context.executor, stream, look, ids)
        ids.finish(context.id_kind)
        columns = [name for name in stream.names(ids=id_column) if name != id_column]
        refuse_reserved(columns)
        types = stream.types(columns, ids=id_column)
        payload = payload_of(stream, id_column, types, ids.type)
        commit_items(context, Distinct(ids, Path(folder)), Incoming(payload, seen))
    return len(ids)


def payload_of(
    stream: Stream, id_column: str, types: Types, ids: pa.DataType, *, done: str = "added"
) -> Payload:
    """How items are read with the given columns; ``done`` is what was not, if in vain."""
    columns = list(dict.fromkeys([id_column, *types]))
    return Payload(stream.reader(columns, ids=id_column, types=types), ids, done)


def refuse_reserved(payload: Iterable[str]) -> None:
    """Names the store uses itself cannot be payload."""
    clash = [name for name in payload if name.lower() in (*RESERVED, "id")]
    if clash:
        raise InvalidData(f"The payload column '{clash[0]}' has a name the store uses itself.")


def commit_items(
    context: Context,
    distinct: Distinct,
    incoming: Incoming,
    *,
    mark: str | None = None,
    ready: Callable[[], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write items part by part and make all of them visible at once; returns their first row.

    They may be written more than once: if somebody adds items at the same time, theirs have rows
    then and ours get the next. ``mark`` names the commit; one of that name is made once. ``ready``
    is called when all is written and nothing visible yet.
    """
    distinct.refuse_repeated()
    for _ in range(TRIES):
        done = None if mark is None or context.items is None else context.items.fence(mark)
        if done is not None:
            return done
        try:
            return _commit_items(context, distinct, incoming, mark, ready, progress)
        except CommitConflict:
            context = context.again()
    raise CommitConflict("Too many others are adding items; nothing was added.")


def _commit_items(
    context: Context,
    distinct: Distinct,
    incoming: Incoming,
    mark: str | None,
    ready: Callable[[], None] | None,
    progress: Callable[[int, int], None] | None,
) -> int:
    start = context.rows
    if context.items is None:
        table = context.layout.items(
            pa.schema([("shard", pa.int32()), ("row", pa.int64()), *incoming.payload.schema])
        )
    else:
        distinct.refuse_known(context.items)
        table = context.items.table
    written: list[DataFile] = []
    count = 0
    for done in write_all(context, table, incoming, start):
        written += done.files
        count += done.rows
        if progress is not None:
            progress(count, distinct.count)
    if ready is not None:
        ready()
    snapshot = context.items or _first_items(table)
    # An attempt that was cut short may have left an empty table with other columns.
    anew = context.items is None and not snapshot.schema.equals(table.schema)
    fences = [(NEXT_ROW, start + distinct.count)] + ([] if mark is None else [(mark, start)])
    snapshot.commit(written, fences=fences, replace=anew)
    return start


def _first_items(table: Table) -> Snapshot:
    table.create()
    snapshot = table.head()
    if snapshot.fence(NEXT_ROW) is not None:
        raise CommitConflict("Somebody else added the first items.")
    return snapshot


def find_rows(context: Context, ids: pa.ChunkedArray, what: str = "id") -> Rows:
    """The row of each id; an id that does not exist, or was removed, is named."""
    found = rows_or_none(context, ids)
    if found.null_count:
        missing = ids.filter(found.is_null())
        shown = ", ".join(repr(value) for value in missing[:5].to_pylist())
        raise InvalidData(f"{counted(len(missing), what, 'are')} not in the store: {shown}.")
    rows: Rows = found.to_numpy()
    return rows


def rows_or_none(context: Context, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The row of each id; null where there is no such item."""
    lookup = Lookup(context)
    parts = [lookup.rows(ids.slice(at, BATCH)) for at in range(0, len(ids), BATCH)]
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.int64())


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
