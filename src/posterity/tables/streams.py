"""Rows too many for memory: files, folders, globs and object-store prefixes, batch by batch."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from posterity.errors import InvalidData
from posterity.tables.delta import delta_schema
from posterity.tables.files import LocalFiles, open_files
from posterity.tables.sources import (
    CSV_PARSING,
    SUFFIXES,
    Types,
    built,
    check_csv,
    check_file,
    csv_options,
    read_rows,
)

BATCH = 2**17
CSV_BLOCK = 2**24


@dataclass(frozen=True)
class Piece:
    """One file, or one table in memory."""

    name: str
    root: str = ""
    path: str = ""
    table: pa.Table | None = None

    @property
    def from_text(self) -> bool:
        """Whether it is text without types."""
        return self.path.lower().endswith(".csv")


class Stream:
    """Rows from wherever they are, read as often as needed, never all at once."""

    def __init__(
        self, given: Any, options: dict[str, str] | None = None, *, name: str = "predictions"
    ) -> None:
        self._options, self._tables, self._name = options, 0, name
        several = given if isinstance(given, (list, tuple)) else [given]
        self.pieces: list[Piece] = [piece for one in several for piece in self._expand(one)]
        if not self.pieces:
            raise InvalidData("No files were given.")

    def batches(
        self, columns: Sequence[str] | None = None, *, ids: str, types: Types | None = None
    ) -> Iterator[tuple[Piece, pa.Table]]:
        """Each batch with the piece it comes from; the given columns, or all."""
        count = 0
        for piece in self.pieces:
            for batch in _guarded(self._read(piece, columns, ids, types or {}), piece.name):
                if columns is not None:
                    self._refuse_missing(piece, columns, batch.schema.names, ids)
                    batch = batch.select(list(columns))
                count += batch.num_rows
                yield piece, batch
        if not count and columns is not None:  # one empty file among others is nothing strange
            raise InvalidData(f"'{self.pieces[0].name}' holds no rows.")

    def names(self, *, ids: str) -> list[str]:
        """The columns all pieces have; a piece with others is named."""
        first: list[str] = []
        for piece in self.pieces:
            found = self._schema(piece, ids).names
            if not first:
                first = found
            elif set(found) != set(first):
                odd = sorted(set(found) ^ set(first))[0]
                one, other = (piece.name, self.pieces[0].name)
                if odd in first:
                    one, other = other, one
                raise InvalidData(
                    f"'{one}' has a column '{odd}' that '{other}' has not.",
                    hint="Name the payload columns to take, or make the files alike.",
                )
        twice = {
            name.lower() for name in first if [n.lower() for n in first].count(name.lower()) > 1
        }
        if twice:
            raise InvalidData(f"The column '{min(twice)}' is there twice (case does not count).")
        return first

    def types(self, columns: Sequence[str], *, ids: str) -> Types:
        """What the given columns hold, the same in all pieces; one that differs is named."""
        agreed: Types = {}
        whence: dict[str, Piece] = {}
        for piece in self.pieces:
            schema = self._schema(piece, ids, agreed)
            self._refuse_missing(piece, columns, schema.names, ids)
            held = delta_schema(pa.schema([schema.field(name) for name in columns]))
            for name in columns:
                if pa.types.is_null(schema.field(name).type):
                    continue
                kind = held.field(name).type
                if agreed.setdefault(name, kind) != kind:
                    raise InvalidData(
                        f"The column '{name}' holds {kind} in '{piece.name}', and {agreed[name]} "
                        f"in '{whence[name].name}'.",
                        hint="Make the files alike, or leave the column out of the payload.",
                    )
                whence.setdefault(name, piece)
        return {name: agreed.get(name, pa.string()) for name in columns}

    def _refuse_missing(
        self, piece: Piece, columns: Sequence[str], held: Sequence[str], ids: str
    ) -> None:
        for name in columns:
            if name not in held:
                listed = ", ".join(self._schema(piece, ids).names)
                raise InvalidData(f"'{piece.name}' has no column '{name}'; it has: {listed}.")

    def _schema(self, piece: Piece, ids: str, types: Types | None = None) -> pa.Schema:
        for batch in _guarded(self._read(piece, None, ids, types or {}), piece.name):
            return batch.schema
        return pa.schema([])

    def _read(
        self, piece: Piece, columns: Sequence[str] | None, ids: str, types: Types
    ) -> Iterator[pa.Table]:
        if piece.table is not None:
            for start in range(0, max(1, piece.table.num_rows), BATCH):
                yield piece.table.slice(start, BATCH)
            return
        file = self._open(piece)
        suffix = Path(piece.path).suffix.lower()
        if suffix == ".parquet":
            # Buffered ahead, what was read of a file is kept until its end.
            parquet = pq.ParquetFile(file, pre_buffer=False)
            held = parquet.schema_arrow.names
            wanted = None if columns is None else [name for name in columns if name in held]
            if not parquet.metadata.num_rows:
                yield parquet.schema_arrow.empty_table()
            for batch in parquet.iter_batches(BATCH, columns=wanted):
                yield pa.Table.from_batches([batch])
        elif suffix == ".csv":
            reading = pa_csv.ReadOptions(block_size=CSV_BLOCK)
            options = csv_options(ids, types)
            reader = pa_csv.open_csv(
                file, read_options=reading, parse_options=CSV_PARSING, convert_options=options
            )
            if columns is not None and set(columns) <= set(reader.schema.names):
                # Else a column nobody needs, of another kind after the first block, would be fatal.
                options.include_columns = list(columns)
                reader = pa_csv.open_csv(
                    self._open(piece),
                    read_options=reading,
                    parse_options=CSV_PARSING,
                    convert_options=options,
                )
            count = 0
            for batch in reader:
                check_csv(batch, piece.name)
                count += 1
                yield pa.Table.from_batches([batch])
            if not count:  # its columns are looked at all the same
                yield reader.schema.empty_table()
        else:
            for batch in pa_json.open_json(file, pa_json.ReadOptions(block_size=CSV_BLOCK)):
                yield pa.Table.from_batches([batch])

    def _open(self, piece: Piece) -> Any:
        files = open_files(piece.root, self._options)
        if isinstance(files, LocalFiles):
            check_file(Path(files.root) / piece.path)
        return files.open(piece.path)

    def _expand(self, given: Any) -> Iterable[Piece]:
        if not isinstance(given, (str, os.PathLike)):
            name = "the table" if not self._tables else f"table {self._tables + 1}"
            self._tables += 1
            yield Piece(name, table=read_rows(given, self._name))
            return
        text = os.fspath(given).removeprefix("file://")
        found = _remote(text, self._options) if "://" in text else _local(text)
        if not found:
            raise InvalidData(
                f"'{text}' holds no files that end in one of {', '.join(SUFFIXES)}."
                if not _pattern(text)
                else f"No file matches '{text}'."
            )
        yield from found


def _local(text: str) -> list[Piece]:
    path = Path(text)
    if path.is_dir():
        listed = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        listed = [p for p in listed if not _hidden(p.relative_to(path))]
    elif _pattern(text) and not path.exists():
        # A pattern may begin anywhere, which Path.glob does not allow.
        found = (Path(name) for name in glob.glob(text, recursive=True))  # noqa: PTH207
        listed = sorted(one for one in found if one.is_file())
    else:
        check_file(path)
        listed = [path]
    return [Piece(str(p), str(p.absolute().parent), p.name) for p in listed]


def _remote(text: str, options: dict[str, str] | None) -> list[Piece]:
    """The fixed part of a pattern is listed; what follows it must match."""
    scheme, _, rest = text.partition("://")
    bucket, _, key = rest.partition("/")
    root = f"{scheme}://{bucket}"
    files = open_files(root, options)
    if _pattern(key):
        folder = re.split(r"[*?\[]", key)[0].rpartition("/")[0]
        listed = [path for path in files.list(folder) if _matches(path.split("/"), key.split("/"))]
    elif key and not key.endswith("/") and files.size(key) is not None:
        listed = [key]
    else:
        folder = key.rstrip("/")
        listed = files.list(folder)
        listed = [p for p in listed if not _hidden(PurePosixPath(p).relative_to(folder))]
    return [
        Piece(f"{root}/{path}", root, path)
        for path in listed
        if Path(path).suffix.lower() in SUFFIXES
    ]


def _hidden(path: PurePath) -> bool:
    """What other tools keep beside their data: logs, work in progress."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """As in a folder: a star stays within one level, two stars are any number of levels."""
    if not pattern:
        return not parts
    if pattern[0] == "**" and _matches(parts, pattern[1:]):
        return True
    if not parts:
        return False
    if pattern[0] == "**":
        return _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _guarded(batches: Iterator[pa.Table], name: str) -> Iterator[pa.Table]:
    """What a reader says of a damaged file, with the file's name."""
    while True:
        batch = built(lambda: _named(next(batches, None)), name)
        if batch is None:
            return
        yield batch


def _named(batch: pa.Table | None) -> pa.Table | None:
    """Look at the column names: those that are not UTF-8 fail only then."""
    return None if batch is None else batch.select(batch.schema.names)
