"""Files of items, row group by row group: which rows and ids one holds, told by its footer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from posterity.method.data.arrays import Rows
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.table import Snapshot
from posterity.storage.parquet import ParquetParts

Range = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Group:
    """What is read of the items at once: a row group of one file."""

    snapshot: Snapshot
    file: DataFile
    number: int
    rows: Range | None
    """The lowest and the highest row; None: not told."""
    ids: Range | None

    def read(self) -> tuple[Rows, pa.Array]:
        """Its rows and their ids."""
        held = self._read(["row", "id"])
        rows: Rows = held.column("row").to_numpy()
        return rows, _joined(held.column("id"))

    def read_ids(self) -> pa.Array:
        """Its ids alone."""
        return _joined(self._read(["id"]).column("id"))

    def _read(self, columns: list[str]) -> pa.Table:
        with self.snapshot.whole(self.file):
            held = _parts(self.snapshot, self.file).group(self.number, columns)
        schema = self.snapshot.table.schema
        return held.select(columns).cast(pa.schema([schema.field(name) for name in columns]))


def groups(snapshot: Snapshot, shards: Collection[int] | None = None) -> list[Group]:
    """The row groups of all items, or of some shards, in the order of their rows."""
    found = []
    for file in snapshot.data_files():
        if shards is None or shard_of(file) in shards:
            found += groups_of(snapshot, file)
    return sorted(found, key=lambda one: (shard_of(one.file), one.rows[0] if one.rows else 0))


def shard_of(file: DataFile) -> int:
    """The shard all rows of a file are in."""
    return int(file.partition["shard"] or 0)


def groups_of(snapshot: Snapshot, file: DataFile) -> list[Group]:
    """The row groups of one file."""
    with snapshot.whole(file):
        footer = _parts(snapshot, file).metadata
    listed = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        told: dict[str, Range | None] = {}
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in ("row", "id"):
                held = column.statistics
                full = held is not None and held.has_min_max
                told[column.path_in_schema] = (held.min, held.max) if full else None
        listed.append(Group(snapshot, file, number, told.get("row"), told.get("id")))
    return listed


def _parts(snapshot: Snapshot, file: DataFile) -> ParquetParts:
    return ParquetParts(snapshot.table.files, _path(snapshot, file))


def _path(snapshot: Snapshot, file: DataFile) -> str:
    return f"{snapshot.table.name}/{file.path}"


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
