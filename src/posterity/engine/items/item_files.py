"""Items in files: first their ids and votes, then their payload, read where the executor works.

Ids and votes are kept here. The payload is read a second time, and written where it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, takewhile
from typing import TypeVar

import numpy as np
import pyarrow as pa

from posterity.engine.executors import Executor
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, PosterityError
from posterity.method.data.votes import ModelVotes
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.table import Table, delta_schema
from posterity.storage.input import as_numbers, ids_of
from posterity.storage.input_files import InputReader, Portion
from posterity.storage.row_groups import Feed, grouped
from posterity.storage.spool import IdDigest, IdSpool
from posterity.storage.stream import Stream

Some = TypeVar("Some")

RESERVED = ("shard", "row")
FILE_ROWS = 2**20
"""Items in one file, at most."""
FILE_BYTES = 2**27
"""A file that has so many bytes gets no more items."""

CastOf = Callable[[pa.Table, str], ModelVotes]
"""A model's votes on the rows of a batch, which is called so for people."""


@dataclass(frozen=True, eq=False)
class Batch:
    """What is kept of some rows that were read together."""

    at: int
    """Which of the portions they are of."""
    ids: pa.ChunkedArray
    numbers: bool
    """Whether all of these ids can be whole numbers."""
    votes: list[ModelVotes]
    """Of each model."""
    digest: bytes
    """Names all ids of the portion so far."""


@dataclass(frozen=True, eq=False)
class ReadPortion:
    """A portion that was read once: how many rows it has, and what names their ids."""

    portion: Portion
    rows: int
    digest: bytes


@dataclass(frozen=True, eq=False)
class Look:
    """Reads ids and votes of portions, and refuses what is wrong with a row by itself."""

    reader: InputReader
    casts: Sequence[CastOf] = ()

    def each(self, portions: Sequence[Portion]) -> Iterator[Batch]:
        """Batch by batch, in order."""
        for at, portion in enumerate(portions):
            first, digest = portion.first, IdDigest()
            for batch in self.reader.batches(portion):
                where = f"'{portion.piece.name}' (rows from {first})"
                ids = ids_of(batch, self.reader.ids, f"file {where}")
                digest.add(ids)
                numbers = not portion.piece.from_text or (
                    not len(ids) or pa.types.is_integer(as_numbers(ids).type)
                )
                votes = [cast(batch, where) for cast in self.casts]
                yield Batch(at, ids, numbers, votes, digest.value())
                first += batch.num_rows

    def __call__(self, portions: Sequence[Portion]) -> list[Batch]:
        """All of them at once, to be handed over."""
        return list(self.each(portions))


def look_through(
    executor: Executor,
    stream: Stream,
    look: Look,
    ids: IdSpool,
    take: Callable[[list[ModelVotes]], None] | None = None,
) -> list[ReadPortion]:
    """Read all rows once, in order: ids go to the spool, votes to whoever takes them."""
    seen: list[ReadPortion] = []
    for portion, batch in _batches(executor, look, stream.portions):
        ids.add(portion.piece, batch.ids, numbers=batch.numbers)
        if take is not None:
            take(batch.votes)
        if not seen or seen[-1].portion is not portion:
            seen.append(ReadPortion(portion, 0, b""))
        seen[-1] = replace(seen[-1], rows=seen[-1].rows + len(batch.ids), digest=batch.digest)
    stream.refuse_nothing(len(ids))
    return seen


def _batches(
    executor: Executor, look: Look, portions: Sequence[Portion]
) -> Iterator[tuple[Portion, Batch]]:
    for here, some in groupby(portions, key=lambda portion: stays(portion) or portion.large):
        if here:  # what is too large to be handed over is handed over batch by batch
            for portion in some:
                yield from ((portion, batch) for batch in look.each([portion]))
        else:
            tasks = list(gathered(some, lambda portion: portion.weight))
            for task, batches in zip(tasks, executor.map(look, tasks), strict=True):
                yield from ((task[batch.at], batch) for batch in batches)


def stays(portion: Portion) -> bool:
    """Whether it is in the memory of this process, and so is read here."""
    return portion.piece.table is not None


def gathered(parts: Iterable[Some], weight: Callable[[Some], float]) -> Iterator[list[Some]]:
    """Parts that follow each other, together about as much as one task should have (1).

    >>> list(gathered([0.2, 0.3, 0.9, 5, 0.1], lambda part: part))
    [[0.2, 0.3], [0.9], [5], [0.1]]
    """
    held: list[Some] = []
    total = 0.0
    for part in parts:
        if held and total + weight(part) > 1 and total >= 0.5:  # less is not worth a task
            yield held
            held, total = [], 0.0
        held.append(part)
        total += weight(part)
    if held:
        yield held


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
    """Writes items as files of their table; a dry run only reads them, and fits them."""

    payload: PayloadReader
    table: Table
    shard_rows: int
    dry_run: bool

    def __call__(self, part: ItemTask) -> Written:
        """Refused, it tells its files all the same, so that whoever asked can delete them."""
        files: list[DataFile] = []
        try:
            read = self.payload.batches(part.seen)
            batches = (fitted(items, self.table.schema) for items in read)
            if self.dry_run:
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


def items_table(context: Context, incoming: Incoming) -> Table:
    """Where items are written to: the table there is, or the one there will be."""
    if context.items is not None:
        return context.items.table
    numbers = (("shard", pa.int32()), ("row", pa.int64()))
    return context.layout.items(pa.schema([*numbers, *incoming.payload.schema]))


def write_all(
    context: Context, table: Table, incoming: Incoming, start: int, *, dry_run: bool = False
) -> Iterator[Written]:
    """Write all items from a row on, part by part; if any is refused, no file is left."""
    writer = Writer(incoming.payload, table, context.description.shard_rows, dry_run)
    refused: list[PosterityError] = []
    written: list[DataFile] = []
    parts = takewhile(lambda _: not refused, incoming.parts(start))
    try:
        for here, some in groupby(parts, key=lambda part: part.here):
            for done in map(writer, some) if here else context.executor.map(writer, some):
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
