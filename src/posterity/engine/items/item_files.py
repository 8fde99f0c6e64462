"""Items in files: read again with their payload, and written where the executor works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, takewhile

import numpy as np
import pyarrow as pa

from posterity.engine.items.read_ids import ReadPortion, gathered, stays
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, PosterityError
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.table import Table, delta_schema
from posterity.storage.input import ids_of
from posterity.storage.input_files import InputReader
from posterity.storage.row_groups import Feed, grouped
from posterity.storage.spool import IdDigest

RESERVED = ("shard", "row")
FILE_ROWS = 2**20
"""Items in one file, at most."""
FILE_BYTES = 2**27
"""A file that has so many bytes gets no more items."""


@dataclass(frozen=True, eq=False)
class PayloadReader:
    """How items are read after their ids were."""

    reader: InputReader
    """Of the ids and the columns to keep; its types are what those hold."""
    ids: pa.DataType
    """What ids are, where files alone do not tell."""
    done: str = "added"
    """What was not, if in vain."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of an item."""
        return pa.schema([("id", self.ids), *self.reader.types.items()])

    def batches(self, seen: Sequence[ReadPortion]) -> Iterator[pa.Table]:
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

    payload: PayloadReader
    seen: list[ReadPortion]

    def parts(self, start: int = 0) -> Iterator[ItemTask]:
        """As tasks of about a file each, from a row on."""
        for here, some in groupby(self.seen, key=lambda one: stays(one.portion)):
            for together in gathered(some, _share):
                rows = sum(one.rows for one in together)
                if rows:
                    yield ItemTask(together, start, rows, here=here)
                start += rows


@dataclass(frozen=True, eq=False)
class ItemTask:
    """Items that are written by one task."""

    seen: list[ReadPortion]
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

    payload: PayloadReader
    schema: pa.Schema
    shard_rows: int
    table: Table | None = None

    def __call__(self, part: ItemTask) -> Written:
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


def _share(one: ReadPortion) -> float:
    """How much of a file a portion is."""
    return max(one.rows / FILE_ROWS, one.portion.size / FILE_BYTES)


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


def _done(context: Context, writer: Writer, parts: Iterator[ItemTask]) -> Iterator[Written]:
    for here, some in groupby(parts, key=lambda part: part.here):
        spread = map if here else context.executor.map
        yield from spread(writer, some)


def _schema(context: Context, incoming: Incoming) -> pa.Schema:
    return incoming.payload.schema if context.items is None else context.items.table.schema


def _files(
    table: Table, batches: Iterator[pa.Table], row: int, shard_rows: int
) -> Iterator[DataFile]:
    """Files of at most ``FILE_ROWS`` rows and about ``FILE_BYTES``, none across two shards."""
    feed = Feed(batches)
    while True:
        shard = row // shard_rows
        end = min((shard + 1) * shard_rows, row + FILE_ROWS)
        groups = grouped(feed.take(end - row))
        for first in groups:
            numbered = _numbered(chain([first], groups), row)
            file = table.write(numbered, label=f"items-{row}", partition=shard, full=FILE_BYTES)
            row += file.rows
            yield file
        if row < end:
            return


def _numbered(groups: Iterable[pa.Table], row: int) -> Iterator[pa.Table]:
    """Items with their rows, from the given one on."""
    for items in groups:
        end = row + items.num_rows
        yield items.add_column(0, "row", pa.array(np.arange(row, end)))
        row = end


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
