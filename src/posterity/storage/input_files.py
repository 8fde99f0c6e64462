"""Input files: large files and tables, read batch by batch, some of their rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from posterity.errors import InvalidData, PosterityError
from posterity.storage.files import Files, LocalFiles, open_files
from posterity.storage.input import (
    Types,
    built,
    check_csv,
    check_file,
    csv_options,
    csv_parsing,
    is_csv,
    named,
)
from posterity.storage.parquet import ParquetParts
from posterity.storage.row_groups import Chunks, row_bytes

BATCH = 2**17
BATCH_BYTES = 2**24
"""About how many bytes a batch has, if its rows are like the others of their row group."""
CSV_BLOCK = 2**24
FIRST = 3 * CSV_BLOCK
"""Bytes of a text file that show its columns: its first block, and what is read ahead."""
PORTION = 2**18
"""About how many rows of a file are read at once where its format says where they are."""
PORTION_BYTES = 2**27
PROBE = 16
"""Rows of a row group that are looked at first, to see how many bytes they take in memory."""
HELD_BYTES = 2**25
"""Columns of a row group that are larger than this are not fetched as a whole."""
LARGE_ROWS = 2**22
LARGE_BYTES = 2**28
"""What cannot be cut and is larger than this is not held as a whole, not even of a few columns."""


CHANGED = "Nothing was changed here; run the same again when it is complete."


@dataclass(frozen=True, eq=False)
class Piece:
    """One file, or one table in memory."""

    name: str
    root: str = ""
    path: str = ""
    table: pa.Table | None = None

    @property
    def suffix(self) -> str:
        """What the name of its file ends in."""
        return Path(self.path).suffix.lower()

    @property
    def from_text(self) -> bool:
        """Whether it is text without types."""
        return is_csv(self.path)


@dataclass(frozen=True, eq=False)
class Portion:
    """Some rows of a piece that are read together."""

    piece: Piece
    first: int = 0
    """The row of the piece it begins with."""
    groups: tuple[int, int] | None = None
    """Which row groups of a Parquet file, from and to; None: all there is."""
    shape: tuple[int, int] | None = None
    """How many row groups and rows that file had when it was cut."""
    weight: float = 1.0
    """How much it is of what is read at once; 1: enough by itself."""
    size: int = 0
    """Bytes of all its columns."""
    large: bool = False
    """Whether even a few columns of it may be more than memory holds."""


def portions_of(options: dict[str, str] | None, piece: Piece) -> list[Portion]:
    """A piece cut where that can be done without reading it."""
    if piece.table is not None:
        starts = range(0, max(1, piece.table.num_rows), PORTION)
        parts = [replace(piece, table=piece.table.slice(start, PORTION)) for start in starts]
        return [Portion(part, start) for part, start in zip(parts, starts, strict=True)]
    try:
        if piece.suffix == ".parquet":
            footer = _parts(piece, options).metadata
            groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
            sizes = [group.total_byte_size for group in groups]
            return _grouped(piece, [group.num_rows for group in groups], sizes)
        size = open_files(piece.root, options).size(piece.path) or 0
    except (PosterityError, pa.ArrowException, OSError):
        return [Portion(piece)]  # what is wrong with it is told when its turn comes
    large = size > LARGE_BYTES
    return [Portion(piece, weight=8 * size / LARGE_BYTES, size=size, large=large)]


def _grouped(piece: Piece, counts: Sequence[int], sizes: Sequence[int]) -> list[Portion]:
    """Row groups that follow each other, as many as make a portion."""
    cuts, rows, size = [0], 0, 0
    for at, (more, larger) in enumerate(zip(counts, sizes, strict=True)):
        if rows and (rows + more > PORTION or size + larger > PORTION_BYTES):
            cuts.append(at)
            rows = size = 0
        rows, size = rows + more, size + larger
    portions, shape = [], (len(counts), sum(counts))
    for begin, end in zip(cuts, [*cuts[1:], len(counts)], strict=True):
        rows, first, size = sum(counts[begin:end]), sum(counts[:begin]), sum(sizes[begin:end])
        weight, large = rows / PORTION, rows > LARGE_ROWS
        portions.append(Portion(piece, first, (begin, end), shape, weight, size, large))
    return portions


@dataclass(frozen=True, eq=False)
class InputReader:
    """How pieces are read, wherever that is done."""

    options: dict[str, str] | None
    ids: str
    """The column of ids, which stay as they are written in text."""
    columns: Sequence[str] | None = None
    """Those that are read; None: all."""
    types: Types = field(default_factory=dict)
    most: int | None = None
    """Bytes of a text file that are needed; None: all."""

    def batches(self, portion: Portion) -> Iterator[pa.Table]:
        """The rows of a portion, in order; at least one batch, if only an empty one."""
        for batch in _guarded(self._read(portion), portion.piece.name):
            if self.columns is None:
                yield batch
            else:
                self.refuse_missing(portion.piece, self.columns, batch.schema.names)
                yield batch.select(list(self.columns))

    def schema(self, piece: Piece) -> pa.Schema:
        """The columns of a piece, as its first rows have them."""
        if piece.suffix == ".parquet":
            schema = built(lambda: _parts(piece, self.options).schema, piece.name)
            built(lambda: schema.names, piece.name)  # those that are not UTF-8 fail only then
            return schema
        first = replace(self, columns=None, most=FIRST)
        for batch in _guarded(first._read(Portion(piece)), piece.name):
            return batch.schema
        return pa.schema([])

    def refuse_missing(self, piece: Piece, columns: Sequence[str], held: Sequence[str]) -> None:
        """Name a column a piece lacks, and those it has."""
        for name in columns:
            if name not in held:
                listed = ", ".join(replace(self, types={}).schema(piece).names)
                raise InvalidData(f"'{piece.name}' has no column '{name}'; it has: {listed}.")

    def _read(self, portion: Portion) -> Iterator[pa.Table]:
        piece = portion.piece
        if piece.table is not None:
            size = _fitting(row_bytes(piece.table))
            for start in range(0, max(1, piece.table.num_rows), size):
                yield piece.table.slice(start, size)
        elif piece.suffix == ".parquet":
            yield from self._read_parquet(portion)
        elif piece.from_text:
            yield from self._read_csv(piece)
        else:
            file = _open(piece, self.options, self.most)
            for batch in pa_json.open_json(file, pa_json.ReadOptions(block_size=CSV_BLOCK)):
                yield pa.Table.from_batches([batch])

    def _read_parquet(self, portion: Portion) -> Iterator[pa.Table]:
        parquet = _parts(portion.piece, self.options)
        held = parquet.schema.names
        wanted = None if self.columns is None else [name for name in self.columns if name in held]
        footer = parquet.metadata
        if not footer.num_rows:
            yield parquet.schema.empty_table()
        shape = footer.num_row_groups, footer.num_rows
        if portion.shape not in (None, shape):  # else rows nobody knows of would be left out
            raise InvalidData(f"'{portion.piece.name}' changed while it was read.", hint=CHANGED)
        chunks = Chunks(footer, held if wanted is None else wanted)
        groups = [at for at in range(*(portion.groups or (0, shape[0]))) if chunks.rows(at)]
        for rows, some in groupby(groups, key=lambda at: _fitting(chunks.row_bytes(at))):
            together = list(some)
            # Else each column is fetched as a whole before its first row is read.
            ahead = chunks.ahead if max(map(chunks.size, together)) > HELD_BYTES else None
            repeated = [name for name in chunks.repeated(together[0]) if name != self.ids]
            if repeated:
                rows = min(rows, _fitting(_probed(parquet, together[0], repeated)))
            for batch in parquet.batches(together, wanted, rows, ahead=ahead):
                yield pa.Table.from_batches([batch])

    def _read_csv(self, piece: Piece) -> Iterator[pa.Table]:
        options = csv_options(self.ids, self.types)

        def opened(most: int | None) -> pa_csv.CSVStreamingReader:
            file = _open(piece, self.options, most)
            return pa_csv.open_csv(
                file,
                read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK),
                parse_options=csv_parsing(file, piece.name),
                convert_options=options,
            )

        reader = opened(self.most if self.columns is None else FIRST)
        if self.columns is not None and set(self.columns) <= set(reader.schema.names):
            # Else a column nobody needs, of another kind after the first block, would be fatal.
            options.include_columns = list(self.columns)
            reader = opened(None)
        count = 0
        for batch in reader:
            check_csv(batch, piece.name)
            count += 1
            yield pa.Table.from_batches([batch])
        if not count:  # its columns are looked at all the same
            yield reader.schema.empty_table()


def _probed(parquet: ParquetParts, group: int, columns: Sequence[str]) -> float:
    """Bytes of a row in memory, as far as the first rows of a row group show."""
    first = next(parquet.batches([group], columns, PROBE))
    return row_bytes(pa.Table.from_batches([first]))


def _fitting(size: float) -> int:
    """How many rows of so many bytes are read together: a power of two, so that few differ."""
    fitting = max(1, int(BATCH_BYTES / max(1.0, size)))
    return min(BATCH, 1 << fitting.bit_length() - 1)


def _files_of(piece: Piece, options: dict[str, str] | None) -> Files:
    files = open_files(piece.root, options)
    if isinstance(files, LocalFiles):
        check_file(Path(files.root) / piece.path)
    return files


def _open(piece: Piece, options: dict[str, str] | None, most: int | None = None) -> Any:
    return _files_of(piece, options).open(piece.path, most)


def _parts(piece: Piece, options: dict[str, str] | None) -> ParquetParts:
    return ParquetParts(_files_of(piece, options), piece.path)


def _guarded(batches: Iterator[pa.Table], name: str) -> Iterator[pa.Table]:
    """What a reader says of a damaged file, with the file's name."""
    while True:
        batch = built(lambda: named(next(batches, None)), name)
        if batch is None:
            return
        yield batch
