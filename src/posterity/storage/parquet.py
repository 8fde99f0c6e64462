"""Parquet files read part by part: of an object, only the bytes of the parts asked for are fetched.

Arrow never gets a file that is implemented in Python: its threads would call into the interpreter,
also while that shuts down, which aborts the process. Bytes are fetched here, in the calling thread.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posterity.method.data.votes import MISSING, ModelVotes, SoftVotes
from posterity.storage.files import Files, RemoteFiles, arrow_memory

TAIL = 2**16
"""Bytes fetched from the end of an object at first; most footers are shorter."""
LARGE = 2**30
"""Bytes of an object from which on its place in memory is not reserved."""
TOGETHER = 2**26
"""Bytes of an object that are fetched together, unless one row group has more."""
PADDING = 100
"""Old writers understate the length of a column; Arrow reads this much more."""

Range = tuple[int, int]
"""Where bytes begin and end."""


class ParquetParts:
    """A Parquet file and its footer; the rest is read when it is asked for."""

    def __init__(self, files: Files, path: str, *, at_once: bool = False) -> None:
        """``at_once``: get the whole file with one request, as is best where it is small."""
        self._files, self._path = files, path
        self._object: _Object | None = None
        if at_once:
            self._file = pq.ParquetFile(pa.BufferReader(files.read(path)))
        elif isinstance(files, RemoteFiles):
            self._object = _Object(files, path)
            self._file = pq.ParquetFile(self._object.footer())
        else:
            self._file = pq.ParquetFile(files.open(path))
        self.metadata: Any = self._file.metadata
        self.schema: pa.Schema = self._file.schema_arrow

    def group(self, number: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one row group."""
        held = self._holding([number], columns)
        # A group has few columns that are large: threads would only hold more of them at once.
        return held.read_row_group(number, list(columns), use_threads=False)

    def batches(
        self,
        groups: Sequence[int],
        columns: Sequence[str] | None,
        size: int,
        *,
        ahead: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some row groups, so many at a time.

        ``ahead``: hold no more of a column than so many bytes, where the file is local.
        """
        for some in self._together(groups, columns):
            file = self._holding(some, columns)
            if ahead is not None and self._object is None:
                file = pq.ParquetFile(
                    self._files.open(self._path),
                    metadata=self.metadata,
                    pre_buffer=False,
                    buffer_size=ahead,
                )
            yield from file.iter_batches(size, row_groups=some, columns=columns)

    def _holding(self, groups: Sequence[int], columns: Sequence[str] | None) -> pq.ParquetFile:
        """The file, with what reading these row groups needs."""
        if self._object is None:
            return self._file
        ranges = [one for group in groups for one in self._ranges(group, columns)]
        return pq.ParquetFile(self._object.part(ranges), metadata=self.metadata)

    def _together(
        self, groups: Sequence[int], columns: Sequence[str] | None
    ) -> Iterator[Sequence[int]]:
        """The row groups, cut where a part of an object would become too large for memory."""
        if self._object is None:
            yield groups
            return
        some: list[int] = []
        held = 0
        for group in groups:
            size = sum(end - begin for begin, end in self._ranges(group, columns))
            if some and held + size > TOGETHER:
                yield some
                some, held = [], 0
            some.append(group)
            held += size
        if some:
            yield some

    def _ranges(self, group: int, columns: Sequence[str] | None) -> Iterator[Range]:
        """Where the columns of a row group are."""
        held = self.metadata.row_group(group)
        for column in map(held.column, range(held.num_columns)):
            path = f"{column.path_in_schema}."
            if columns is None or any(path.startswith(f"{name}.") for name in columns):
                begin = column.data_page_offset
                if column.has_dictionary_page and 0 < column.dictionary_page_offset < begin:
                    begin = column.dictionary_page_offset
                yield begin, begin + column.total_compressed_size + PADDING


class _Object:
    """An object of which some bytes are fetched, at their places in a map of its whole length."""

    def __init__(self, files: RemoteFiles, path: str) -> None:
        self._files, self._path = files, path
        self._size = files.size_of(path)

    def footer(self) -> pa.BufferReader:
        """With the end of the object."""
        first = max(0, self._size - TAIL)
        (tail,) = self._files.ranges(self._path, [(first, self._size)]) if self._size else (b"",)
        begin = self._size - 8 - int.from_bytes(bytes(tail[-8:-4]), "little")
        parts = [(first, tail)]
        if 0 <= begin < first:
            parts += self._fetched([(begin, first)])
        return self._mapped(parts)

    def part(self, ranges: Iterable[Range]) -> pa.BufferReader:
        """With some ranges of bytes."""
        return self._mapped(self._fetched(ranges))

    def _fetched(self, ranges: Iterable[Range]) -> list[tuple[int, Any]]:
        within = [(max(0, begin), min(end, self._size)) for begin, end in ranges]
        within = [(begin, end) for begin, end in within if begin < end]
        found = self._files.ranges(self._path, within) if within else []
        return [(begin, part) for (begin, _), part in zip(within, found, strict=True)]

    def _mapped(self, parts: Iterable[tuple[int, Any]]) -> pa.BufferReader:
        if self._size <= LARGE:
            return pa.BufferReader(arrow_memory(self._size, parts))
        # Only what is written takes memory. Without a reservation, where Python has no name for it.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        flags |= 0x4000 if sys.platform == "linux" else 0
        held = mmap.mmap(-1, self._size, flags=flags)
        for begin, part in parts:
            held[begin : begin + len(part)] = bytes(part)
        return pa.BufferReader(pa.py_buffer(held))


ROW_GROUP = 2**20
SAMPLE = 2**14
SAMPLE_BYTES = 2**22
FEWEST = 4
"""Values that are looked at, however large each of them is."""
DICTIONARY_BYTES = 2**22
"""Beyond this a dictionary is given up, and the rest of a row group written as it is."""

FLOATS_LEFT = 0.88
"""What zstd leaves of split floats that are all different: only their first byte compresses."""
TEXTS_LEFT = 0.5
"""What shared prefixes and zstd leave of texts that are all different."""


def write_options(rows: pa.Table) -> dict[str, Any]:
    """How these rows are best written as Parquet, as options of ``pq.write_table``."""
    dictionaries: list[str] = []
    encodings: dict[str, str] = {}
    for field in rows.schema:
        path, kind, sample = field.name, field.type, _sample(rows.column(field.name))
        count: float = rows.num_rows
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            path, kind = f"{path}.list.element", kind.value_type
            flat = pc.list_flatten(sample)
            count, sample = count * len(flat) / max(1, len(sample)), flat
        encoding = _encoding(kind)
        if encoding is None or _few(sample, count, encoding):
            dictionaries.append(path)
        else:
            encodings[path] = encoding
    return {
        "compression": "zstd",
        "use_dictionary": dictionaries,
        "column_encoding": encodings,
        "dictionary_pagesize_limit": DICTIONARY_BYTES,
    }


def _encoding(kind: pa.DataType) -> str | None:
    """What suits values of a type that are mostly different; None: leave it to Parquet."""
    if pa.types.is_integer(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "DELTA_BYTE_ARRAY"
    return None


def _sample(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values from all over the column, not too large together; all of them if they are few."""
    fitting = int(SAMPLE_BYTES * len(column) / max(1, column.nbytes))
    count = min(SAMPLE, max(FEWEST, fitting))
    if len(column) <= count:
        return column
    return column.take(pa.array(np.linspace(0, len(column) - 1, count).astype(np.int64)))


def _few(sample: pa.ChunkedArray, rows: float, encoding: str) -> bool:
    """Whether a dictionary and numbers into it are smaller than the values."""
    sample = sample.drop_null()
    if not len(sample):
        return True
    found = pc.count_distinct(sample).as_py()
    group = max(min(rows, ROW_GROUP), len(sample))
    distinct = distinct_of(found, len(sample), group)
    if encoding == "DELTA_BYTE_ARRAY":
        width = 4 + pc.mean(pc.binary_length(sample)).as_py()
        plain = width * TEXTS_LEFT
    else:
        width = sample.type.bit_width / 8
        plain = width * FLOATS_LEFT
    if encoding == "DELTA_BINARY_PACKED":
        ends = pc.min_max(sample).as_py()
        plain = (math.log2(1 + ends["max"] - ends["min"]) + 1) / 8
    return bool(width * distinct / group + math.ceil(math.log2(distinct)) / 8 < plain)


def distinct_of(found: int, sampled: int, rows: float) -> float:
    """How many different values rows hold, if a sample holds so many and all are as frequent.

    >>> round(distinct_of(983, 4096, 1_000_000)), distinct_of(10, 10, 10)
    (1000, 10)
    """
    if found >= sampled or sampled >= rows:
        return rows if sampled < rows else found
    low, high = float(found), float(rows)
    for _ in range(40):
        middle = (low + high) / 2
        if middle * -math.expm1(-sampled / middle) < found:
            low = middle
        else:
            high = middle
    return high


NAMES = ("soft_classes", "soft_weights")

ANY_NUMBER = 2**31 - 1
"""How many classes a stored soft vote is about: whoever folds it says, since classes may come."""


def to_columns(cast: ModelVotes) -> dict[str, pa.Array]:
    """Nulls where a vote is hard; classes without weight are left out."""
    if cast.soft is None:
        return {
            name: pa.nulls(len(cast), pa.list_(kind))
            for name, kind in zip(NAMES, (pa.int32(), pa.float32()), strict=True)
        }
    # Rounded first: a weight that single precision calls zero is no weight.
    weights = cast.soft.weights.astype(np.float32)
    held = (cast.soft.codes != MISSING) & (weights > 0)
    counts = held.sum(axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    none = pa.array(counts == 0)
    return {
        name: pa.ListArray.from_arrays(offsets, pa.array(values[held]), mask=none)
        for name, values in zip(NAMES, (cast.soft.codes, weights), strict=True)
    }


def from_columns(rows: pa.Table, hard: np.ndarray) -> SoftVotes | None:
    """The soft votes among rows; None if all votes are hard."""
    codes, weights = (rows.column(name).combine_chunks() for name in NAMES)
    if codes.null_count == len(codes):
        return None
    counts = np.asarray(codes.value_lengths().fill_null(0))
    most = int(counts.max())
    held = np.arange(most) < counts[:, None]
    padded_codes = np.full((len(counts), most), MISSING, dtype=np.int32)
    padded_weights = np.zeros((len(counts), most))
    padded_codes[held] = codes.flatten().to_numpy()
    padded_weights[held] = weights.flatten().to_numpy()
    softly = np.where(counts > 0, hard, np.int32(MISSING))
    return SoftVotes(padded_codes, padded_weights, ANY_NUMBER, softly)
