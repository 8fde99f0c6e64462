"""Row groups: what is written, read and held at once, bounded in bytes as well as in rows.

An item may be a number or a picture of several megabytes, so that a number of rows says little
about how much memory they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from posterity.storage.parquet import ROW_GROUP, write_options

WRITTEN = 2**14
"""Items written together, for evaluation elsewhere."""


GROUP_BYTES = 2**25
"""What a row group holds in memory, unless a single row is larger. To read one item is to read its
row group."""


READ_AHEAD = 2**24


def write_rows(
    sink: Any,
    rows: pa.Table | Iterator[pa.Table],
    *,
    without: str | None = None,
    full: int | None = None,
) -> int:
    """Write rows as a Parquet file, without one of their columns; returns how many.

    Row groups that come one by one are never held together; no more of them are taken once the
    file has ``full`` bytes.
    """
    if isinstance(rows, pa.Table):
        sample, groups = rows, grouped([rows]) if rows.num_rows else iter([rows])
    else:
        sample = next(rows)
        groups = chain([sample], rows)
    kept = [field for field in sample.schema if field.name != without]
    schema = pa.schema(kept, metadata=sample.schema.metadata)
    count = 0
    with pq.ParquetWriter(sink, schema, **write_options(sample.select(schema.names))) as parquet:
        for group in groups:
            parquet.write_table(group.select(schema.names), row_group_size=max(1, group.num_rows))
            count += group.num_rows
            if full is not None and sink.tell() >= full:
                break
    return count


def grouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that each make a good row group: small ones joined, large ones cut.

    >>> few = [pa.table({"id": range(10)})] * 3
    >>> [group.num_rows for group in grouped(few)]
    [30]
    """
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        for start in range(0, table.num_rows, ROW_GROUP):
            for part in cut(table.slice(start, ROW_GROUP), GROUP_BYTES):
                more = part.nbytes
                if waiting and (rows + part.num_rows > ROW_GROUP or size + more > GROUP_BYTES):
                    yield pa.concat_tables(waiting)
                    waiting, rows, size = [], 0, 0
                waiting.append(part)
                rows, size = rows + part.num_rows, size + more
    if waiting:
        yield pa.concat_tables(waiting)


def cut(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Rows in slices of at most so many bytes, or of one row.

    >>> texts = pa.table({"text": ["a" * 40] * 4})
    >>> [part.num_rows for part in cut(texts, 100)]
    [2, 2]
    """
    if rows.num_rows < 2 or rows.nbytes <= most:
        yield rows
        return
    half = rows.num_rows // 2
    yield from cut(rows.slice(0, half), most)
    yield from cut(rows.slice(half), most)


def row_bytes(rows: pa.Table) -> float:
    """About how many bytes a row takes, its values written out where there is a dictionary."""
    total = 0.0
    for column in rows.columns:
        for chunk in column.chunks:
            if pa.types.is_dictionary(chunk.type):
                values = chunk.dictionary
                total += len(chunk) * (values.nbytes / max(1, len(values)))
            else:
                total += chunk.nbytes
    return float(total / max(1, rows.num_rows))


Ranges = dict[str, tuple[Any, Any]]
"""The lowest and the highest value of columns; one that is not among them is not known."""


def ranges_of(footer: Any, names: Sequence[str]) -> list[Ranges]:
    """Of each row group, as far as a file's footer has them."""
    found: list[Ranges] = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        ranges: Ranges = {}
        for column in map(group.column, range(group.num_columns)):
            statistics = column.statistics if column.path_in_schema in names else None
            if statistics is not None and statistics.has_min_max:
                ranges[column.path_in_schema] = statistics.min, statistics.max
        found.append(ranges)
    return found


class Chunks:
    """What a Parquet file's footer has on some of its columns, row group by row group."""

    def __init__(self, footer: Any, names: Sequence[str]) -> None:
        self._footer, wanted = footer, set(names)
        paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
        # A column may be nested, or have a dot in its name.
        self._columns = {
            at: path if path in wanted else path.split(".")[0]
            for at, path in enumerate(paths)
            if path in wanted or path.split(".")[0] in wanted
        }

    @property
    def ahead(self) -> int:
        """Bytes to read ahead of each column, so that all of them together are few."""
        return max(2**16, READ_AHEAD // max(1, len(self._columns)))

    def rows(self, group: int) -> int:
        """Its rows."""
        return int(self._footer.row_group(group).num_rows)

    def size(self, group: int) -> int:
        """Bytes of the columns, as they are encoded."""
        held = self._footer.row_group(group)
        return sum(held.column(at).total_uncompressed_size for at in self._columns)

    def row_bytes(self, group: int) -> float:
        """The same for a row."""
        return self.size(group) / max(1, self.rows(group))

    def repeated(self, group: int) -> list[str]:
        """Small columns of texts or bytes: a value may be kept once and stand in many rows."""
        held = self._footer.row_group(group)
        columns = {name: held.column(at) for at, name in self._columns.items()}
        return [
            name
            for name, column in columns.items()
            if column.has_dictionary_page
            and column.total_uncompressed_size <= GROUP_BYTES
            and column.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
        ]


class Feed:
    """Tables that come one after the other, of which the next so many rows are taken."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = iter(tables)
        self._left: pa.Table | None = None

    def take(self, count: int) -> Iterator[pa.Table]:
        """The next rows, in tables as they come; fewer where no more come."""
        while count > 0:
            if self._left is None or not self._left.num_rows:
                self._left = next(self._tables, None)
            if self._left is None:
                return
            part = self._left.slice(0, count)
            self._left = self._left.slice(part.num_rows)
            count -= part.num_rows
            if part.num_rows:
                yield part
