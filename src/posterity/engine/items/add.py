"""Items: adding, removing, finding them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._progress import ShowProgress, progress_line
from posterity._text import counted
from posterity.engine.items.item_files import (
    RESERVED,
    Incoming,
    Look,
    PayloadReader,
    fitted,
    items_table,
    look_through,
    write_all,
)
from posterity.engine.items.lookup import Lookup, find_rows, id_array
from posterity.engine.items.payload import Payload as StoredPayload
from posterity.engine.items.unique_ids import Distinct
from posterity.engine.ledger.commit import discarded, retried
from posterity.engine.ledger.context import NEXT_ROW, Context
from posterity.errors import CommitConflict, InvalidData
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.schema import REMOVED
from posterity.storage.delta.table import Snapshot, Table
from posterity.storage.input import Types
from posterity.storage.spool import IdSpool
from posterity.storage.stream import Stream

log = logging.getLogger(__name__)


def add_items(
    context: Context,
    data: Any,
    *,
    id_column: str = "id",
    options: dict[str, str] | None = None,
    progress: ShowProgress = None,
) -> int:
    """Give new items rows and make them part of the store; returns how many.

    All of them or none: an id that occurs twice, or that the store has already, refuses the call;
    unless it has all of them just as they are given, and there is nothing to do. The data is read
    twice, first its ids, and never held as a whole.
    """
    spread = context.executor.map
    stream = Stream(data, options, name="items", ids=id_column, spread=spread)
    with TemporaryDirectory(prefix="posterity-") as folder:
        ids = IdSpool(Path(folder))
        look = Look(stream.reader([id_column], ids=id_column))
        seen = look_through(context.executor, stream, look, ids)
        ids.finish(context.id_kind)
        columns = [name for name in stream.names(ids=id_column) if name != id_column]
        refuse_reserved(columns)
        types = stream.types(columns, ids=id_column)
        payload = payload_of(stream, id_column, types, ids.type)
        incoming, distinct = Incoming(payload, seen), Distinct(ids, Path(folder))
        distinct.refuse_repeated()
        try:
            commit_items(context, distinct, incoming, progress=progress)
        except InvalidData:
            if not are_there(context.again(), incoming):
                raise
            return 0  # done already, perhaps by a call that was cut short
    return len(ids)


def payload_of(
    stream: Stream, id_column: str, types: Types, ids: pa.DataType, *, done: str = "added"
) -> PayloadReader:
    """How items are read with the given columns; ``done`` is what was not, if in vain."""
    columns = list(dict.fromkeys([id_column, *types]))
    return PayloadReader(stream.reader(columns, ids=id_column, types=types), ids, done)


def refuse_reserved(payload: Iterable[str]) -> None:
    """Names the store uses itself cannot be payload."""
    names = list(payload)
    if any("\0" in name for name in names):
        raise InvalidData("A payload column has a null character in its name.")
    clash = [name for name in names if name.lower() in (*RESERVED, "id")]
    if clash:
        raise InvalidData(f"The payload column '{clash[0]}' has a name the store uses itself.")


def commit_items(
    context: Context,
    distinct: Distinct,
    incoming: Incoming,
    *,
    mark: str | None = None,
    ready: Callable[[], None] | None = None,
    progress: ShowProgress = None,
) -> int:
    """Write items part by part and make all of them visible at once; returns their first row.

    No id occurs twice among them. They may be written more than once: if somebody adds items at the
    same time, theirs have rows then and ours get the next. ``mark`` names the commit; one of that
    name is made once. ``ready`` is called when all is written and nothing visible yet.
    """

    def attempt(now: Context) -> int:
        if mark is not None and now.items is not None:
            done_before = now.items.fence(mark)
            if done_before is not None:
                return done_before
        start, table = now.rows, items_table(now, incoming)
        if now.items is not None:
            distinct.refuse_known(now.items)
        written: list[DataFile] = []
        count = 0
        with progress_line(progress, "Writing", "items") as report:
            for done in write_all(now, table, incoming, start):
                written += done.files
                count += done.rows
                if report is not None:
                    report(count, distinct.count)
        if ready is not None:
            ready()
        snapshot = now.items or _first_items(table)
        # An attempt that was cut short may have left an empty table with other columns.
        anew = now.items is None and not snapshot.schema.equals(table.schema)
        fences = [(NEXT_ROW, start + distinct.count)] + ([] if mark is None else [(mark, start)])
        with discarded(table, written):
            snapshot.commit(written, fences=fences, replace=anew)
        log.info("%s: %s added", now.files.root, counted(distinct.count, "item"))
        return start

    return retried(context, attempt)


def are_there(context: Context, incoming: Incoming) -> bool:
    """Whether the store has all these items, with the same payload."""
    if context.items is None:
        return False
    schema, lookup, payload = context.items.table.schema, Lookup(context), StoredPayload(context)
    try:
        for batch in incoming.payload.batches(incoming.seen):
            given = fitted(batch, schema)
            rows = lookup.rows(given.column("id"))
            if rows.null_count:
                return False
            order = np.argsort(np.asarray(rows))
            _, stored = payload.of(np.asarray(rows)[order])
            if not stored.equals(given.take(pa.array(order)).select(stored.column_names)):
                return False
    except InvalidData:
        return False
    return True


def _first_items(table: Table) -> Snapshot:
    table.create()
    snapshot = table.head()
    if snapshot.fence(NEXT_ROW) is not None:
        raise CommitConflict("Somebody else added the first items.")
    return snapshot


def remove_items(context: Context, ids: Any) -> int:
    """Mark items as removed: gone at once for everybody, purged at the next compaction.

    Returns how many were there; those that are removed already, and not purged yet, are no error.
    """
    column = id_array(ids)

    def attempt(now: Context) -> int:
        rows = np.unique(find_rows(now, column, removed=True))
        rows = rows[~now.removed[rows]]
        if len(rows):
            table = now.layout.removed
            file = table.write(pa.table({"row": rows}, schema=REMOVED), label="removed")
            table.head().commit([file])
            log.info("%s: %s removed", now.files.root, counted(len(rows), "item"))
        return len(rows)

    return retried(context, attempt)
