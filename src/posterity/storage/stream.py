"""Rows too many for memory: files, folders, globs and object-store prefixes, batch by batch."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import pyarrow as pa

from posterity.errors import InvalidData
from posterity.storage.delta.table import delta_schema
from posterity.storage.files import local_path, open_files
from posterity.storage.input import SUFFIXES, Types, check_file, is_records, rows_in_memory
from posterity.storage.input_files import InputReader, Piece, Portion, portions_of

FILES = f"a file ({', '.join(SUFFIXES)}), folder, glob or object-store URI, or a list of these"
"""Where rows may be, besides the memory of a program."""

Map = Callable[..., Iterator[Any]]
"""As the builtin one, wherever it calls what it is given."""


class Stream:
    """Rows from wherever they are, read as often as needed, never all at once."""

    def __init__(
        self,
        given: Any,
        options: dict[str, str] | None = None,
        *,
        name: str = "predictions",
        ids: str | None = None,
        values: str | None = None,
        spread: Map = map,
    ) -> None:
        """``ids``, ``values``: as of ``read_rows``; ``spread``: files are looked at by this map,
        tables in memory always here.
        """
        self._options, self._tables, self._name = options, 0, name
        self._ids, self._values, self._spread = ids, values, spread
        self._known: dict[str, list[pa.Schema]] = {}
        several = given if isinstance(given, (list, tuple)) and not is_records(given) else [given]
        self.pieces: list[Piece] = [piece for one in several for piece in self._expand(one)]
        if not self.pieces:
            raise InvalidData(f"There are no {name}: the list is empty.")

    def batches(
        self, columns: Sequence[str] | None = None, *, ids: str, types: Types | None = None
    ) -> Iterator[tuple[Piece, pa.Table]]:
        """Each batch with the piece it comes from; the given columns, or all."""
        reader, count = self.reader(columns, ids=ids, types=types), 0
        for piece in self.pieces:
            for batch in reader.batches(Portion(piece)):
                count += batch.num_rows
                yield piece, batch
        if columns is not None:
            self.refuse_nothing(count)

    def refuse_nothing(self, rows: int) -> None:
        """One empty file among others is nothing strange; if all are, the first is named."""
        if not rows:
            raise InvalidData(f"'{self.pieces[0].name}' holds no rows.")

    def reader(
        self, columns: Sequence[str] | None, *, ids: str, types: Types | None = None
    ) -> InputReader:
        """What reads any piece, here or elsewhere."""
        return InputReader(self._options, ids, columns, types or {})

    @cached_property
    def portions(self) -> list[Portion]:
        """All rows, in order, in portions that can be read apart from each other."""
        cut = self._of_each(partial(portions_of, self._options))
        return [portion for portions in cut for portion in portions]

    def names(self, *, ids: str) -> list[str]:
        """The columns all pieces have; a piece with others is named."""
        first: list[str] = []
        for piece, schema in zip(self.pieces, self._schemas(ids), strict=True):
            found = schema.names
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
        for piece, schema in zip(self.pieces, self._schemas(ids), strict=True):
            reader = self.reader(None, ids=ids, types=agreed)
            reader.refuse_missing(piece, columns, schema.names)
            if piece.from_text and any(
                schema.field(name).type != kind for name, kind in agreed.items()
            ):
                schema = reader.schema(piece)  # 007 is a name where an earlier file shows it
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

    def _schemas(self, ids: str) -> list[pa.Schema]:
        """The columns of each piece, looked at once."""
        if ids not in self._known:
            self._known[ids] = list(self._of_each(self.reader(None, ids=ids).schema))
        return self._known[ids]

    def _of_each(self, look: Callable[[Piece], Any]) -> Iterator[Any]:
        """What is seen of each piece, in order."""
        found = self._spread(look, [piece for piece in self.pieces if piece.table is None])
        for piece in self.pieces:
            yield next(found) if piece.table is None else look(piece)

    def _expand(self, given: Any) -> Iterable[Piece]:
        if not isinstance(given, (str, os.PathLike)):
            name = "the table" if not self._tables else f"table {self._tables + 1}"
            self._tables += 1
            held = rows_in_memory(
                given, self._name, ids=self._ids, values=self._values, files=FILES
            )
            yield Piece(name, table=held)
            return
        text = local_path(os.fspath(given))
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
    listed: list[str] = []
    if key and not key.endswith("/") and files.size(key) is not None:
        listed = [key]
    elif _pattern(key):
        folder = re.split(r"[*?\[]", key)[0].rpartition("/")[0]
        listed = [path for path in files.list(folder) if _matches(path.split("/"), key.split("/"))]
    if not listed:  # the name of a folder may look like a pattern
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
