"""One Delta Lake table of a store; the only module that talks to ``deltalake``.

Data files are written by us and published by one commit, so that a change of any number of files
is visible as a whole or not at all. A *fence* is a pair (application, number) stored with the
commit: whoever read the table before that commit cannot commit with the same application.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from posterity.errors import CommitConflict, InvalidData, StoreError
from posterity.tables.encodings import ROW_GROUP, write_options
from posterity.tables.failpoints import reach
from posterity.tables.files import Files


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that is written but not yet, or already, part of a table."""

    path: str
    """Relative to the table."""
    size: int
    rows: int
    partition: dict[str, str | None]


@dataclass(frozen=True)
class Table:
    """A table of the store by its name, schema and partition column."""

    files: Files
    name: str
    schema: pa.Schema
    partition: str | None = None

    @property
    def uri(self) -> str:
        """Where the table lives."""
        return f"{self.files.root}/{self.name}"

    def create(self) -> None:
        """Make the empty table; no error if somebody else just did."""
        try:
            DeltaTable.create(
                self.uri,
                schema=self.schema,
                partition_by=[self.partition] if self.partition else None,
                storage_options=self.files.options,
                mode="ignore",
            )
        except (DeltaError, OSError) as error:
            raise StoreError(f"'{self.uri}' cannot be made: {error}.") from None
        self._sync(0)

    def evolve(self) -> None:
        """Add the columns an older table lacks; no error if somebody else just did."""
        snapshot = self.head()
        missing = [field for field in self.schema if field.name not in snapshot.schema.names]
        if not missing:
            return
        try:
            snapshot._handle.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
        except DeltaError as error:
            if any(field.name not in self.head().schema.names for field in missing):
                raise StoreError(f"The table '{self.name}' cannot be changed: {error}.") from None
        for version in range(snapshot.version, self.head().version + 1):
            self._sync(version)

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

    def write(self, rows: pa.Table, *, label: str, partition: int | None = None) -> DataFile:
        """Write rows as a data file; nobody sees it before a commit names it."""
        values: dict[str, str | None] = {}
        folder = ""
        if self.partition:
            values[self.partition] = str(partition)
            folder = f"{self.partition}={partition}/"
            rows = (
                rows.drop_columns([self.partition]) if self.partition in rows.column_names else rows
            )
        path = f"{folder}{label}-{uuid.uuid4().hex[:12]}.parquet"
        size = self.files.write(f"{self.name}/{path}", to_parquet(rows))
        return DataFile(path, size, rows.num_rows, values)

    def _sync(self, version: int) -> None:
        # delta-rs does not sync its log; without this a commit could outlive its own files.
        self.files.sync(f"{self.name}/_delta_log/{version:020}.json")


class Snapshot:
    """A table as it was when it was opened; what is committed names what was read."""

    def __init__(self, table: Table, handle: DeltaTable) -> None:
        self.table = table
        self._opened: DeltaTable | None = handle
        self._pinned = int(handle.version())
        self._files: list[DataFile] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A process that works on a shard is told which files there are; it reads no log.
        self.data_files()
        return self.__dict__ | {"_opened": None}

    @property
    def _handle(self) -> DeltaTable:
        if self._opened is None:
            self._opened = self.table._open(self._pinned)
        return self._opened

    @property
    def schema(self) -> pa.Schema:
        """The schema the table itself says it has."""
        return pa.schema(self._handle.schema().to_arrow())

    @property
    def version(self) -> int:
        """Delta's version number."""
        return self._pinned

    def fence(self, application: str) -> int | None:
        """The number the last commit of this application left."""
        number = self._handle.transaction_version(application)
        return None if number is None else int(number)

    def data_files(self) -> list[DataFile]:
        """The files the table consists of, sorted by path."""
        if self._files is None:
            self._files = self._list_files()
        return self._files

    def _list_files(self) -> list[DataFile]:
        actions = pa.table(self._handle.get_add_actions(flatten=True)).to_pylist()
        key = f"partition.{self.table.partition}"
        listed = [
            DataFile(
                action["path"],
                action["size_bytes"],
                action["num_records"],
                {self.table.partition: str(action[key])} if self.table.partition else {},
            )
            for action in actions
        ]
        return sorted(listed, key=lambda file: file.path)

    def limited(self, files: Sequence[DataFile]) -> Snapshot:
        """The same table as if it had these files only, to be read."""
        part = copy(self)
        part._files = list(files)
        return part

    def partitions(self) -> list[int]:
        """The values of the partition column, ascending."""
        column = self.table.partition or ""
        return sorted({int(file.partition[column] or 0) for file in self.data_files()})

    def read(self, columns: Sequence[str] | None = None, partition: int | None = None) -> pa.Table:
        """Rows of all files, or of one partition, in the order of the files."""
        wanted = list(columns) if columns is not None else self.table.schema.names
        pieces = [part for _, part in self.each(wanted, partition)]
        empty = self.table.schema.empty_table().select(wanted)
        return pa.concat_tables([empty, *pieces]) if pieces else empty

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
        with self._whole(file):
            parquet = self._open(file)
            rows = parquet.read(self._held(parquet, columns))
        return self._fitted(file, rows, columns)

    def row_groups(
        self, file: DataFile, columns: Sequence[str], *, row: int | None = None
    ) -> Iterator[pa.Table]:
        """The rows of one file part by part; with ``row``, only the parts that may hold it."""
        with self._whole(file):
            parquet = self._open(file)
            spans = enumerate(_spans(parquet.metadata))
            wanted = [at for at, (low, high) in spans if row is None or low <= row <= high]
        for group in wanted:
            with self._whole(file):
                rows = parquet.read_row_group(group, self._held(parquet, columns))
            yield self._fitted(file, rows, columns)

    def spans(self, file: DataFile) -> list[tuple[int, int]]:
        """For each part of a file the lowest and the highest row it may hold."""
        with self._whole(file):  # only the end of it is read
            return _spans(pq.read_metadata(self._ranged(file)))

    def read_group(self, file: DataFile, group: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one part of a file; the others are not fetched."""
        with self._whole(file):
            parquet = pq.ParquetFile(self._ranged(file))
            # In this thread: others would wait for the lock that a file of Python needs.
            rows = parquet.read_row_group(
                group, self._held(parquet, columns), use_threads=self.table.files.options is None
            )
        return self._fitted(file, rows, columns)

    def _ranged(self, file: DataFile) -> Any:
        """A file to be read in parts."""
        return self.table.files.open(f"{self.table.name}/{file.path}")

    def highest(self, file: DataFile, column: str) -> int | None:
        """The largest value of a column as the file's statistics tell; None if they do not."""
        with self._whole(file):  # only the end of it is read
            told = pq.read_metadata(self._ranged(file))
        names = told.schema.names
        at = names.index(column) if column in names else None
        if at is None or not told.num_row_groups:
            return None
        groups = [told.row_group(group).column(at) for group in range(told.num_row_groups)]
        if not all(group.is_stats_set and group.statistics.has_min_max for group in groups):
            return None
        return max(int(group.statistics.max) for group in groups)

    def _open(self, file: DataFile) -> pq.ParquetFile:
        content = self.table.files.read(f"{self.table.name}/{file.path}")
        return pq.ParquetFile(pa.BufferReader(content))

    def _held(self, parquet: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
        held = set(parquet.schema_arrow.names) - {self.table.partition}
        return [name for name in columns if name in held]

    @contextmanager
    def _whole(self, file: DataFile) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowInvalid, OSError) as error:
            raise StoreError(
                f"The file '{self.table.name}/{file.path}' of the store is damaged: {error}.",
                hint="Restore it from a copy; `posterity check` names all that is broken.",
            ) from None

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

    def selected(self, columns: Sequence[str], predicate: str) -> Iterator[pa.RecordBatch]:
        """Rows that satisfy a condition in SQL, in batches, in any order."""
        try:
            for batch in self._handle.scan(columns=list(columns), predicate=predicate):
                yield pa.record_batch(batch)
        except (DeltaError, OSError, ValueError) as error:
            raise StoreError(f"The filter {predicate!r} cannot be used: {error}.") from None

    def commit(
        self,
        adds: Sequence[DataFile],
        *,
        removes: Iterable[DataFile] = (),
        fences: Sequence[tuple[str, int]] = (),
        replace: bool = False,
        data_change: bool = True,
    ) -> None:
        """Publish files (and retire others) in one commit, or raise ``CommitConflict``."""
        self._check(adds)
        now = int(time.time() * 1000)
        actions: list[Any] = [
            AddAction(
                file.path,
                file.size,
                file.partition,
                now,
                data_change,
                json.dumps({"numRecords": file.rows}),
            )
            for file in adds
        ]
        actions += [
            RemoveAction(file.path, data_change, now, file.size, file.partition) for file in removes
        ]
        properties = CommitProperties(
            app_transactions=[Transaction(*fence) for fence in fences] or None,
            # A retry would commit on top of something this change has not read.
            max_commit_retries=0 if fences else None,
        )
        reach("commit.before")
        try:
            self._handle.create_write_transaction(
                actions,
                "overwrite" if replace else "append",
                self.table.schema,
                [self.table.partition] if self.table.partition else None,
                commit_properties=properties,
            )
        except CommitFailedError:
            raise CommitConflict(
                f"Somebody else changed the table '{self.table.name}' in the meantime.",
                hint="Nothing was changed by this call; run it again.",
            ) from None
        except (DeltaError, OSError) as error:
            raise StoreError(f"The table '{self.table.name}' cannot be changed: {error}.") from None
        reach("commit.made")
        read = self.version
        self._handle.update_incremental()
        self._pinned, self._files = int(self._handle.version()), None
        # Ours is one of these; others may have committed after it.
        for version in range(read + 1, self.version + 1):
            self.table._sync(version)
        reach("commit.synced")

    def vacuum(self, hours: float, *, dry_run: bool = False) -> int:
        """Delete files the table no longer names; returns how many."""
        found = self._handle.vacuum(
            retention_hours=int(hours), dry_run=dry_run, enforce_retention_duration=False
        )
        return len(found)

    def _check(self, adds: Sequence[DataFile]) -> None:
        # Delta takes our word for it; a missing file would only show when somebody reads it.
        for file in adds:
            size = self.table.files.size(f"{self.table.name}/{file.path}")
            if size != file.size:
                raise StoreError(f"'{file.path}' has {size} bytes where {file.size} were written.")


def _spans(told: Any) -> list[tuple[int, int]]:
    """The lowest and highest row of each row group, as far as a file's metadata tell."""
    every = (0, 2**62)
    names = told.schema.names
    if "row" not in names:
        return [every] * told.num_row_groups
    found = []
    for group in range(told.num_row_groups):
        statistics = told.row_group(group).column(names.index("row")).statistics
        known = statistics is not None and statistics.has_min_max
        found.append((statistics.min, statistics.max) if known else every)
    return found


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
    pq.write_table(rows, sink, row_group_size=ROW_GROUP, **write_options(rows))
    return sink.getvalue()
