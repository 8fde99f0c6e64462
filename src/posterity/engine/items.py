"""Items: adding, removing, finding them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._arrays import Rows
from posterity.engine.context import NEXT_ROW, Context
from posterity.engine.distinct import Distinct
from posterity.engine.idspools import IdReader, IdSpool
from posterity.engine.lookups import Lookup
from posterity.errors import CommitConflict, InvalidData, PosterityError
from posterity.tables.delta import DataFile, Snapshot, Table, delta_schema
from posterity.tables.layout import REMOVED
from posterity.tables.sources import Types, ids_of
from posterity.tables.streams import Stream

RESERVED = ("shard", "row")
TRIES = 20
BATCH = 2**22
"""Ids that are looked up at once."""
FILE_ROWS = 2**20
"""Items in one file: what is held in memory while they are written."""


def add_items(
    context: Context, data: Any, *, id_column: str = "id", options: dict[str, str] | None = None
) -> int:
    """Give new items rows and make them part of the store; returns how many.

    All of them or none: an id that occurs twice, or that the store has already, refuses the call.
    The data is read twice, first its ids, and never held as a whole.
    """
    stream = Stream(data, options, name="items")
    with TemporaryDirectory(prefix="posterity-") as folder:
        ids = IdSpool(Path(folder))
        for piece, batch in stream.batches([id_column], ids=id_column):
            ids.add(piece, batch, id_column)
        ids.finish(context.id_kind)
        payload = [name for name in stream.names(ids=id_column) if name != id_column]
        refuse_reserved(payload)
        types = stream.types(payload, ids=id_column)
        distinct = Distinct(ids, Path(folder))
        commit_items(context, distinct, lambda: read_items(stream, ids, id_column, types))
    return len(ids)


def read_items(
    stream: Stream, ids: IdSpool, id_column: str, payload: Types, *, done: str = "added"
) -> Iterator[pa.Table]:
    """Items with their payload, read after their ids were; ``done`` is what was not, if in vain."""
    columns = list(dict.fromkeys([id_column, *payload]))
    schema = pa.schema([("id", ids.type), *payload.items()])
    expected = IdReader(ids)
    for piece, batch in stream.batches(columns, ids=id_column, types=payload):
        changed = InvalidData(f"'{piece.name}' changed while it was read; nothing was {done}.")
        known = expected.take(batch.num_rows)
        read = batch.column(id_column)
        if read.type != known.type:
            read, told = read.cast(pa.string()), known.cast(pa.string())
        else:
            told = known
        if not read.equals(told):
            raise changed
        kept = {name: batch.column(name) for name in payload}
        try:
            yield prepared(pa.table({"id": known, **kept})).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise changed from None


def refuse_reserved(payload: Iterable[str]) -> None:
    """Names the store uses itself cannot be payload."""
    clash = [name for name in payload if name.lower() in (*RESERVED, "id")]
    if clash:
        raise InvalidData(f"The payload column '{clash[0]}' has a name the store uses itself.")


def prepared(items: pa.Table) -> pa.Table:
    """Items in the types the table format keeps."""
    try:
        return items.cast(delta_schema(items.schema))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidData(f"The payload cannot be stored: {str(error).splitlines()[0]}.") from None


def commit_items(
    context: Context,
    distinct: Distinct,
    batches: Callable[[], Iterator[pa.Table]],
    *,
    mark: str | None = None,
    ready: Callable[[], None] | None = None,
) -> int:
    """Write items batch by batch and make all of them visible at once; returns their first row.

    ``batches`` may be asked for more than once: if somebody adds items at the same time, theirs
    have rows then and ours get the next. ``mark`` names the commit; one of that name is made once.
    ``ready`` is called when all is written and nothing visible yet.
    """
    distinct.refuse_repeated()
    for _ in range(TRIES):
        done = None if mark is None or context.items is None else context.items.fence(mark)
        if done is not None:
            return done
        try:
            return _commit_items(context, distinct, batches(), mark, ready)
        except CommitConflict:
            context = context.again()
    raise CommitConflict("Too many others are adding items; nothing was added.")


def _commit_items(
    context: Context,
    distinct: Distinct,
    batches: Iterator[pa.Table],
    mark: str | None,
    ready: Callable[[], None] | None,
) -> int:
    start = context.rows
    first = next(batches)
    if context.items is None:
        table = context.layout.items(
            pa.schema([("shard", pa.int32()), ("row", pa.int64()), *first.schema])
        )
    else:
        distinct.refuse_known(context.items)
        table = context.items.table
    written: list[DataFile] = []
    try:
        for file in _write_items(context, table, chain([first], batches), start):
            written.append(file)
        if sum(file.rows for file in written) != distinct.count:
            raise InvalidData("The data changed while it was read; nothing was added.")
    except PosterityError:
        for file in written:
            context.files.delete(f"{table.name}/{file.path}")
        raise
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


def _write_items(
    context: Context, table: Table, batches: Iterator[pa.Table], start: int
) -> Iterator[DataFile]:
    """Files of at most ``FILE_ROWS`` rows, none across two shards."""
    size = context.description.shard_rows
    waiting: list[pa.Table] = []
    held, row = 0, start

    def flush() -> DataFile:
        nonlocal waiting, held, row
        items = pa.concat_tables(waiting)
        items = items.add_column(0, "row", pa.array(np.arange(row, row + held)))
        file = table.write(items, label=f"items-{row}", partition=row // size)
        waiting, row, held = [], row + held, 0
        return file

    for batch in batches:
        items = fitted(batch, table.schema)
        while items.num_rows:
            room = min((row // size + 1) * size - row, FILE_ROWS) - held
            waiting.append(items.slice(0, room))
            held += waiting[-1].num_rows
            items = items.slice(room)
            if held == min((row // size + 1) * size - row, FILE_ROWS):
                yield flush()
    if held:
        yield flush()


def fitted(items: pa.Table, schema: pa.Schema) -> pa.Table:
    """Items with the columns the store's have; those they lack are empty."""
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
