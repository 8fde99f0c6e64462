"""One Delta Lake table of a store: opening, reading and writing it.

Data files are written by us and published by one commit (see ``commits``), so that a change of any
number of files is visible as a whole or not at all. A *fence* is a pair (application, number)
stored with the commit: whoever read the table before that commit cannot commit with the same
application.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from posterity.errors import InvalidData, StoreError, Superseded
from posterity.storage import row_groups
from posterity.storage.delta import commits
from posterity.storage.delta.commits import Change, DataFile, Place
from posterity.storage.parquet import ParquetParts
from posterity.storage.row_groups import Ranges, write_rows

__all__ = ["DataFile", "Leftovers", "RowGroup", "Snapshot", "Table", "delta_schema", "to_parquet"]

EVERY = (0, 2**62)
"""The rows a part of a file may hold, where its footer does not tell."""
RECENT = 600.0
"""Seconds for which a table's log is looked at for new entries only; see ``Snapshot.again``."""


@dataclass(frozen=True)
class Leftovers:
    """Files that a table does not name."""

    retired: list[str]
    """Once part of it, and replaced long enough ago."""
    orphans: list[str]
    """Never part of it: of a writer that died, or that has not committed yet."""
    barrier: int
    """In milliseconds: whoever began a file before must not commit it any more."""


@dataclass(frozen=True)
class Table(Place):
    """A table of the store by its name, schema and partition column."""

    def create(self) -> None:
        """Make the empty table; no error if somebody else just did."""
        if not commits.create(self, Change()):
            self.sync(0)

    def create_with(
        self, adds: Sequence[DataFile], description: str, *, fences: Sequence[tuple[str, int]] = ()
    ) -> bool:
        """Make the table with its first files and a description; False if there is one."""
        return commits.create(self, Change(adds, fences=fences), description)

    def head(self) -> Snapshot:
        """The table as it is now."""
        return Snapshot(self, self._open())

    def _open(self, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(self.uri, version=version, storage_options=self.files.options)
        except (TableNotFoundError, DeltaError, OSError) as error:
            raise StoreError(
                f"The table '{self.name}' of the store at '{self.files.root}' cannot be opened: "
                f"{error}."
            ) from None

    def write(
        self,
        rows: pa.Table | Iterator[pa.Table],
        *,
        label: str,
        partition: int | None = None,
        full: int | None = None,
    ) -> DataFile:
        """Write rows, or row groups as they come; nobody sees the file before a commit names it."""
        values: dict[str, str | None] = {}
        folder = ""
        if self.partition:
            values[self.partition] = str(partition)
            folder = f"{self.partition}={partition}/"
        path = f"{folder}{label}-{uuid.uuid4().hex[:12]}.parquet"
        begun = time.time()
        with self.files.writing(f"{self.name}/{path}") as sink:
            count = write_rows(sink, rows, without=self.partition, full=full)
            size = sink.tell()
        return DataFile(path, size, count, values, begun)


@dataclass(frozen=True)
class RowGroup:
    """A part of a file of a table, and what the footer of the file tells of it."""

    snapshot: Snapshot
    file: DataFile
    number: int
    ranges: Ranges

    @property
    def rows(self) -> tuple[int, int]:
        """The lowest and the highest row it may hold."""
        return self.ranges.get("row", EVERY)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some of its columns."""
        return self.snapshot.read_group(self.file, self.number, columns)


class Snapshot:
    """A table as it was when it was opened; what is committed names what was read."""

    def __init__(self, table: Table, handle: DeltaTable) -> None:
        self.table = table
        self._opened: DeltaTable | None = handle
        self._files: list[DataFile] | None = None
        self._since = time.monotonic()
        self.version = int(handle.version())
        """Delta's version number."""

    def __getstate__(self) -> dict[str, Any]:
        # A process that works on a shard is told which files there are; it reads no log.
        self.data_files()
        kept = {name: value for name, value in self.__dict__.items() if name != "content"}
        return kept | {"_opened": None}

    def again(self) -> Snapshot:
        """The table as it is now, opened only if somebody has committed since."""
        later = self.table.log_entry(self.version + 1)
        # Of an old log, entries are deleted; of one that was read lately, none is.
        recent = time.monotonic() - self._since < RECENT
        return self if recent and self.table.files.size(later) is None else self.table.head()

    def self_described(self) -> Snapshot:
        """The same with the columns that the table itself says it has."""
        described = Snapshot(replace(self.table, schema=self.schema), self._handle)
        described._files = self._files
        return described

    @property
    def _handle(self) -> DeltaTable:
        if self._opened is None:
            self._opened = self.table._open(self.version)
        return self._opened

    @property
    def schema(self) -> pa.Schema:
        """The schema the table itself says it has."""
        return pa.schema(self._handle.schema().to_arrow())

    @property
    def description(self) -> str:
        """What the table was made with."""
        return str(self._handle.metadata().description or "")

    def fence(self, application: str) -> int | None:
        """The number the last commit of this application left."""
        number = self._handle.transaction_version(application)
        return None if number is None else int(number)

    def data_files(self) -> list[DataFile]:
        """The files the table consists of, sorted by path."""
        if self._files is None:
            column = self.table.partition
            listed = [
                DataFile(
                    action["path"],
                    action["size_bytes"],
                    action["num_records"],
                    {column: str(action[f"partition.{column}"])} if column else {},
                )
                for action in pa.table(self._handle.get_add_actions(flatten=True)).to_pylist()
            ]
            self._files = sorted(listed, key=lambda file: file.path)
        return self._files

    def partitions(self) -> list[int]:
        """The values of the partition column, ascending."""
        column = self.table.partition or ""
        return sorted({int(file.partition[column] or 0) for file in self.data_files()})

    def read(self, columns: Sequence[str] | None = None, partition: int | None = None) -> pa.Table:
        """Rows of all files, or of one partition, in the order of the files."""
        return self.read_files(self.files_of(partition), columns or self.table.schema.names)

    @cached_property
    def content(self) -> pa.Table:
        """All rows, read once: of a small table."""
        return self.read()

    def read_files(self, files: Sequence[DataFile], columns: Sequence[str]) -> pa.Table:
        """Rows of some files, in their order."""
        empty = self.table.schema.empty_table().select(list(columns))
        return pa.concat_tables([empty, *(self.read_file(file, columns) for file in files)])

    def files_of(self, partition: int | None = None) -> list[DataFile]:
        """The files of one partition, or all."""
        column = self.table.partition or ""
        return [
            file
            for file in self.data_files()
            if partition is None or file.partition.get(column) == str(partition)
        ]

    def each(
        self, columns: Sequence[str], partition: int | None = None
    ) -> Iterator[tuple[DataFile, pa.Table]]:
        """Each file with its rows."""
        for file in self.files_of(partition):
            yield file, self.read_file(file, columns)

    def read_file(self, file: DataFile, columns: Sequence[str]) -> pa.Table:
        """The rows of one file."""
        with self.whole(file):
            content = self.table.files.read(f"{self.table.name}/{file.path}")
            parquet = pq.ParquetFile(pa.BufferReader(content))
            rows = parquet.read(self._held(parquet.schema_arrow, columns))
        return self._fitted(file, rows, columns)

    def row_groups(
        self, file: DataFile, columns: Sequence[str], *, row: int | None = None
    ) -> Iterator[pa.Table]:
        """The rows of one file part by part; with ``row``, only the parts that may hold it."""
        at_once = file.size <= row_groups.GROUP_BYTES
        with self.whole(file):
            parts = self._parts(file, at_once=at_once)
            ranges = row_groups.ranges_of(parts.metadata, ["row"])
        for number, known in enumerate(ranges):
            low, high = known.get("row", EVERY)
            if row is not None and not low <= row <= high:
                continue
            if at_once:
                yield self._read_group(file, parts, number, columns)
            else:  # a file that stays open holds on to what was read of it
                yield self.read_group(file, number, columns)

    def groups(self, file: DataFile, *names: str) -> list[RowGroup]:
        """The row groups of a file, with the ranges of some columns; only its end is read."""
        with self.whole(file):
            ranges = row_groups.ranges_of(self._parts(file).metadata, names)
        return [RowGroup(self, file, number, known) for number, known in enumerate(ranges)]

    def read_group(self, file: DataFile, number: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one part of a file; the others are not fetched."""
        with self.whole(file):
            parts = self._parts(file)
        return self._read_group(file, parts, number, columns)

    def _read_group(
        self, file: DataFile, parts: ParquetParts, number: int, columns: Sequence[str]
    ) -> pa.Table:
        with self.whole(file):
            rows = parts.group(number, self._held(parts.schema, columns))
        return self._fitted(file, rows, columns)

    def _parts(self, file: DataFile, *, at_once: bool = False) -> ParquetParts:
        return ParquetParts(self.table.files, f"{self.table.name}/{file.path}", at_once=at_once)

    def highest(self, files: Sequence[DataFile], column: str) -> int | None:
        """The largest value of a column as statistics of files tell; None if they do not."""
        ranges = [group.ranges.get(column) for file in files for group in self.groups(file, column)]
        known = [int(one[1]) for one in ranges if one is not None]
        return max(known) if known and len(known) == len(ranges) else None

    def _held(self, schema: pa.Schema, columns: Sequence[str]) -> list[str]:
        held = set(schema.names) - {self.table.partition}
        return [name for name in columns if name in held]

    @contextmanager
    def whole(self, file: DataFile) -> Iterator[None]:
        """While a file is read: what goes wrong is damage, or it was replaced meanwhile."""
        try:
            yield
        except Superseded:
            raise
        except (pa.ArrowInvalid, OSError, StoreError) as error:
            self._refuse_vacuumed(file)
            raise StoreError(
                f"The file '{self.table.name}/{file.path}' of the store is damaged: {error}.",
                hint="Restore it from a copy; `store.check()` names all that is broken.",
            ) from None

    def _refuse_vacuumed(self, file: DataFile) -> None:
        """A file that is gone is no damage where the table has others by now."""
        if self.table.files.size(f"{self.table.name}/{file.path}") is None and file.path not in {
            now.path for now in self.table.head().data_files()
        }:
            raise Superseded(
                f"The table '{self.table.name}' was compacted and vacuumed while it was read.",
                hint="Nothing is lost; run the same command again.",
            )

    def _fitted(self, file: DataFile, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """With the columns as the table has them: some came after the file, one is in its path."""
        schema = pa.schema([self.table.schema.field(name) for name in columns])
        for field in schema:
            if field.name == self.table.partition:
                value = pa.scalar(int(file.partition[field.name] or 0), field.type)
                rows = rows.append_column(field, pa.repeat(value, rows.num_rows))
            elif field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(list(columns)).cast(schema)

    def scan(self, columns: Sequence[str], predicate: str) -> Iterable[Any]:
        """Batches by a condition, as Delta's own engine understands it; see ``filters``."""
        batches: Iterable[Any] = self._handle.scan(columns=list(columns), predicate=predicate)
        return batches

    def commit(
        self,
        adds: Sequence[DataFile] = (),
        *,
        removes: Iterable[DataFile] = (),
        fences: Sequence[tuple[str, int]] = (),
        unmoved: Sequence[str] = (),
        replace: bool = False,
        data_change: bool = True,
    ) -> None:
        """Publish files and retire others, while ``unmoved`` fences stay; or ``CommitConflict``."""
        change = Change(list(adds), list(removes), list(fences), replace, data_change)
        numbers = {name: self.fence(name) for name in (*unmoved, *dict(change.fences))}
        # With a handle of its own: a commit moves it, and a snapshot stays what was read.
        commits.commit(self.table._open(), self.table, change, self.version, numbers)

    def leftovers(self, hours: float, times: Mapping[str, float], now: float) -> Leftovers:
        """Files that this table does not name and that are older than so many hours.

        ``times`` are those of the store's files, listed after ``now``.
        """

        def retired(least: int) -> set[str]:
            return set(
                self._handle.vacuum(
                    retention_hours=least, dry_run=True, enforce_retention_duration=False
                )
            )

        before, folder = now - 3600 * hours, f"{self.table.name}/"
        named = {file.path for file in self.data_files()} | retired(0)
        inside = {
            path.removeprefix(folder): time
            for path, time in times.items()
            if path.startswith(folder) and not path.startswith(f"{folder}_delta_log/")
        }
        orphans = [path for path, time in inside.items() if time <= before and path not in named]
        barrier = math.ceil(1000 * (before + self.table.files.grain))
        # The library takes whole hours: rather too long than too short.
        return Leftovers(sorted(retired(math.ceil(hours))), orphans, barrier)


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as Delta keeps it: signed integers, microseconds, plain strings."""
    widened = []
    for field in schema:
        wider = {"uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64()}
        wider |= {"uint64": pa.int64(), "halffloat": pa.float32(), "null": pa.string()}
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        widened.append(pa.field(field.name, wider.get(str(kind), kind)))
    try:
        return pa.schema(Schema.from_arrow(pa.schema(widened)).to_arrow())
    except Exception as error:  # whatever Delta says, it is about a type it cannot keep
        raise InvalidData(
            f"These columns cannot be stored: {str(error).splitlines()[0]}."
        ) from None


def to_parquet(rows: pa.Table) -> pa.Buffer:
    """Parquet bytes with encodings that suit row numbers, codes, entropies and ids."""
    sink = pa.BufferOutputStream()
    write_rows(sink, rows)
    return sink.getvalue()
