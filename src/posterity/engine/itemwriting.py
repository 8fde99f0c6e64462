"""Items in files: read again with their payload, and written where the executor works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile

import numpy as np
import pyarrow as pa

from posterity.engine.arriving import Seen, gathered, stays
from posterity.engine.context import Context
from posterity.engine.idspools import IdDigest
from posterity.errors import InvalidData, PosterityError
from posterity.tables.delta import DataFile, Table, delta_schema
from posterity.tables.pieces import Reader
from posterity.tables.sources import ids_of

RESERVED = ("shard", "row")
FILE_ROWS = 2**20
"""Items in one file: what is held in memory while they are written."""


@dataclass(frozen=True, eq=False)
class Payload:
    """How items are read after their ids were."""

    reader: Reader
    """Of the ids and the columns to keep; its types are what those hold."""
    ids: pa.DataType
    """What ids are, where files alone do not tell."""
    done: str = "added"
    """What was not, if in vain."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of an item."""
        return pa.schema([("id", self.ids), *self.reader.types.items()])

    def batches(self, seen: Sequence[Seen]) -> Iterator[pa.Table]:
        """The items of some portions, in order; their ids are those that were read before."""
        for one in seen:
            name = one.portion.piece.name
            changed = InvalidData(f"'{name}' changed while it was read; nothing was {self.done}.")
            digest, left = IdDigest(), one.rows
            for batch in self.reader.batches(one.portion):
                try:
                    ids = ids_of(batch, self.reader.ids, name)
                    kept = {column: batch.column(column) for column in self.reader.types}
                    items = prepared(pa.table({"id": ids.cast(self.ids), **kept}))
                    items = items.cast(self.schema)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    raise changed from None
                digest.add(ids)
                left -= len(ids)
                if left < 0:  # the next row is that of another portion's item
                    raise changed
                yield items
            if digest.value() != one.digest:
                raise changed


@dataclass(frozen=True, eq=False)
class Incoming:
    """All items that are to be added: how they are read, and what was seen of them."""

    payload: Payload
    seen: list[Seen]

    def parts(self, start: int = 0) -> Iterator[Part]:
        """As tasks of about a file each, from a row on."""
        for here, some in groupby(self.seen, key=lambda one: stays(one.portion)):
            for together in gathered(some, lambda one: one.rows / FILE_ROWS):
                rows = sum(one.rows for one in together)
                if rows:
                    yield Part(together, start, rows, here=here)
                start += rows


@dataclass(frozen=True, eq=False)
class Part:
    """Items that are written by one task."""

    seen: list[Seen]
    row: int
    """Of the first of them."""
    rows: int
    here: bool
    """Whether they are in the memory of this process."""


@dataclass(frozen=True, eq=False)
class Written:
    """What became of a part: files nobody sees yet, and why there are no more of them."""

    rows: int
    files: list[DataFile] = field(default_factory=list)
    refused: PosterityError | None = None


@dataclass(frozen=True, eq=False)
class Writer:
    """Writes items as files of their table; without one it only reads them, and fits them."""

    payload: Payload
    schema: pa.Schema
    shard_rows: int
    table: Table | None = None

    def __call__(self, part: Part) -> Written:
        """Refused, it tells its files all the same, so that whoever asked can delete them."""
        files: list[DataFile] = []
        try:
            batches = (fitted(items, self.schema) for items in self.payload.batches(part.seen))
            if self.table is None:
                for _ in batches:
                    pass
            else:
                for file in _files(self.table, batches, part.row, self.shard_rows):
                    files.append(file)
        except PosterityError as error:
            return Written(part.rows, files, error)
        return Written(part.rows, files)


def read_all(context: Context, incoming: Incoming) -> Iterator[Written]:
    """Read all items as if they were to be written."""
    schema = _schema(context, incoming)
    writer = Writer(incoming.payload, schema, context.description.shard_rows)
    for done in _done(context, writer, incoming.parts()):
        if done.refused is not None:
            raise done.refused
        yield done


def write_all(context: Context, table: Table, incoming: Incoming, start: int) -> Iterator[Written]:
    """Write all items from a row on, part by part; if any is refused, no file is left."""
    writer = Writer(incoming.payload, table.schema, context.description.shard_rows, table)
    refused: list[PosterityError] = []
    written: list[DataFile] = []
    parts = takewhile(lambda _: not refused, incoming.parts(start))
    try:
        for done in _done(context, writer, parts):
            written += done.files
            if done.refused is not None:
                refused.append(done.refused)  # others are under way; their files are told too
            elif not refused:
                yield done
        if refused:
            raise refused[0]
    except PosterityError:
        for file in written:
            context.files.delete(f"{table.name}/{file.path}")
        raise


def _done(context: Context, writer: Writer, parts: Iterator[Part]) -> Iterator[Written]:
    for here, some in groupby(parts, key=lambda part: part.here):
        spread = map if here else context.executor.map
        yield from spread(writer, some)


def _schema(context: Context, incoming: Incoming) -> pa.Schema:
    return incoming.payload.schema if context.items is None else context.items.table.schema


def _files(
    table: Table, batches: Iterator[pa.Table], row: int, shard_rows: int
) -> Iterator[DataFile]:
    """Files of at most ``FILE_ROWS`` rows, none across two shards."""
    waiting: list[pa.Table] = []
    held = 0

    def flush() -> DataFile:
        nonlocal waiting, held, row
        items = pa.concat_tables(waiting)
        items = items.add_column(0, "row", pa.array(np.arange(row, row + held)))
        file = table.write(items, label=f"items-{row}", partition=row // shard_rows)
        waiting, row, held = [], row + held, 0
        return file

    for items in batches:
        while items.num_rows:
            room = min((row // shard_rows + 1) * shard_rows - row, FILE_ROWS) - held
            waiting.append(items.slice(0, room))
            held += waiting[-1].num_rows
            items = items.slice(room)
            if held == min((row // shard_rows + 1) * shard_rows - row, FILE_ROWS):
                yield flush()
    if held:
        yield flush()


def prepared(items: pa.Table) -> pa.Table:
    """Items in the types the table format keeps."""
    try:
        return items.cast(delta_schema(items.schema))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidData(f"The payload cannot be stored: {str(error).splitlines()[0]}.") from None


def fitted(items: pa.Table, schema: pa.Schema) -> pa.Table:
    """Items with the columns the store's have; those they lack are empty."""
    wanted = [column for column in schema if column.name not in RESERVED]
    strange = [name for name in items.column_names if name not in schema.names]
    if strange:
        raise InvalidData(
            f"The store's items have no column '{strange[0]}'; they have: "
            f"{', '.join(column.name for column in wanted)}."
        )
    fitting = []
    for column in wanted:
        if column.name not in items.column_names:
            fitting.append(pa.nulls(items.num_rows, column.type))
            continue
        try:
            fitting.append(items.column(column.name).cast(column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidData(
                f"The column '{column.name}' must hold {column.type}: {error}."
            ) from None
    return pa.table(fitting, names=[column.name for column in wanted])
