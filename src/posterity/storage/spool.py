"""Ids too many for memory: read once, kept in a local folder, gone through as often as needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from posterity.errors import InvalidData, StoreError
from posterity.method.data.arrays import Codes, Rows
from posterity.method.data.votes import MISSING, ModelVotes, SoftVotes
from posterity.storage.input_files import Piece

HELD = 2**20
"""So many ids are kept in memory; more go to the folder."""


class IdSpool:
    """The ids of all rows that are added, in order, of one type."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[tuple[bool, pa.Array]] = []
        self._files: list[tuple[bool, Path]] = []
        self._writer: Any = None
        self._kind: tuple[bool, pa.DataType] | None = None
        self._count = 0
        self._begins: dict[tuple[bool, pa.DataType], Piece] = {}
        self._pieces: list[tuple[Piece, int, int]] = []
        self._numbers = True
        self.type: pa.DataType = pa.string()
        """What all of them are, once ``finish`` was called."""

    def __len__(self) -> int:
        return self._count

    def add(self, piece: Piece, ids: pa.ChunkedArray, *, numbers: bool) -> None:
        """Take the next ids of a piece; ``numbers``: all of them can be whole numbers."""
        if self._pieces and self._pieces[-1][0].name == piece.name:
            _, begin, count = self._pieces.pop()
            self._pieces.append((piece, begin, count + len(ids)))
        else:
            first = max((a + n for one, a, n in self._pieces if one.name == piece.name), default=0)
            self._pieces.append((piece, first, len(ids)))
        if len(ids):
            self._numbers &= numbers
            self._begins.setdefault((piece.from_text, ids.type), piece)
        self._held += [(piece.from_text, chunk) for chunk in ids.chunks if len(chunk)]
        self._count += len(ids)
        if self._count > HELD:
            self._spill()

    def finish(self, stored: pa.DataType | None) -> None:
        """Agree on one type: ids in text without types take that of the others."""
        if self._writer is not None:
            with writing():
                self._writer.close()
        typed = {kind for from_text, kind in self._begins if not from_text}
        typed = typed if stored is None else {stored}
        become = typed <= {pa.int64()} and self._numbers
        kinds = [
            (pa.int64() if from_text and become else kind, piece)
            for (from_text, kind), piece in self._begins.items()
        ]
        if not kinds:
            return
        self.type, begin = kinds[0]
        for kind, piece in kinds:
            if kind != self.type:
                raise InvalidData(
                    f"Ids must be of one type; those in '{begin.name}' are {self.type}, those in "
                    f"'{piece.name}' {kind}."
                )

    def each(self) -> Iterator[pa.Array]:
        """All ids, part by part."""
        for from_text, path in self._files:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as parts:
                for part in parts:
                    yield self._typed(from_text, part.column(0))
        for from_text, part in self._held:
            yield self._typed(from_text, part)

    def whole(self) -> pa.ChunkedArray:
        """All ids at once; only where they are few."""
        return pa.chunked_array(list(self.each()), self.type)

    def at(self, row: int) -> Any:
        """The id of a row."""
        for ids in self.each():
            if row < len(ids):
                return ids[row].as_py()
            row -= len(ids)
        raise IndexError(row)

    def where(self, row: int) -> str:
        """The place of a row among the files."""
        for piece, first, count in self._pieces:
            if row < count:
                return f"row {first + row} of '{piece.name}'"
            row -= count
        return f"row {row}"

    def _typed(self, from_text: bool, ids: pa.Array) -> pa.Array:
        return ids.cast(self.type) if from_text else ids

    def _spill(self) -> None:
        with writing():
            for from_text, ids in self._held:
                batch = pa.record_batch([ids], names=["id"])
                if self._kind != (from_text, ids.type):
                    self._open(from_text, batch.schema)
                    self._kind = (from_text, ids.type)
                self._writer.write_batch(batch)
        self._held = []

    def _open(self, from_text: bool, schema: pa.Schema) -> None:
        if self._writer is not None:
            self._writer.close()
        path = self._folder / f"ids-{len(self._files)}"
        # Names have much in common; what a compressed file saves in writing pays for the work.
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_stream(str(path), schema, options=options)
        self._files.append((from_text, path))


class IdDigest:
    """Names ids by what they are, however they are cut into parts."""

    def __init__(self) -> None:
        self._lengths, self._content = blake2b(digest_size=16), blake2b(digest_size=16)

    def add(self, ids: pa.ChunkedArray) -> None:
        """Take the next ones."""
        for part in ids.chunks:
            if pa.types.is_integer(part.type):
                self._content.update(part.to_numpy())
            else:
                self._lengths.update(lengths_of(part))
                self._content.update(texts_of(part))

    def value(self) -> bytes:
        """The name of those so far."""
        return self._lengths.digest() + self._content.digest()


def lengths_of(ids: pa.Array) -> bytes:
    """How many bytes each text has."""
    lengths: bytes = pc.binary_length(ids).to_numpy().tobytes()
    return lengths


def texts_of(ids: pa.Array) -> bytes | memoryview:
    """The bytes of all texts."""
    _, offsets, texts = ids.buffers()
    if texts is None or not len(ids):
        return b""
    ends = np.frombuffer(offsets, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    return memoryview(texts)[ends[0] : ends[-1]]


@contextmanager
def writing() -> Iterator[None]:
    """What a full disk says, for people."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"The temporary folder cannot be written: {error.strerror or error}.",
            hint="Nothing was changed; make room there, or name another folder in TMPDIR.",
        ) from None


BLOCK = 2**20
"""Votes read at once where all of them are gone through."""


class VoteSpool:
    """The votes of one model on all rows, in order; those on any rows can be read again."""

    def __init__(self, folder: Path, name: str, width: int) -> None:
        """``width``: so many classes of a soft vote are kept; 0 where all votes are hard."""
        self._width, self._held, self._classes = width, 0, 0
        self.count = 0
        """How many rows there are."""
        self.cast = 0
        """How many of them have a vote."""
        kinds: dict[str, Any] = {"hard": np.int32}
        if width:
            kinds |= {"codes": np.int32, "weights": np.float64}
        self._kinds = kinds
        self._paths = {kind: folder / f"{name}-{kind}" for kind in kinds}
        with writing():
            self._files = {kind: path.open("wb") for kind, path in self._paths.items()}

    def add(self, votes: ModelVotes) -> None:
        """Take the votes on the next rows."""
        columns: dict[str, NDArray[Any]] = {"hard": votes.hard}
        if self._width:
            codes = np.full((len(votes), self._width), MISSING, dtype=np.int32)
            weights = np.zeros((len(votes), self._width))
            if votes.soft is not None:
                held = votes.soft.codes.shape[1]
                codes[:, :held], weights[:, :held] = votes.soft.codes, votes.soft.weights
                self._held = max(self._held, held)
                self._classes = max(self._classes, votes.soft.classes)
            columns |= {"codes": codes, "weights": weights}
        with writing():
            for kind, file in self._files.items():
                np.ascontiguousarray(columns[kind], dtype=self._kinds[kind]).tofile(file)
        self.count += len(votes)
        self.cast += int(np.count_nonzero(votes.hard != MISSING))

    def finish(self) -> None:
        """All rows are there."""
        with writing():
            for file in self._files.values():
                file.close()

    def first_missing(self) -> int | None:
        """The first row without a vote; None if all have one."""
        if self.cast == self.count:
            return None
        starts = range(0, self.count, BLOCK)
        empty = (self._mapped("hard")[start : start + BLOCK] == MISSING for start in starts)
        return next(
            start + int(np.flatnonzero(rows)[0])
            for start, rows in zip(starts, empty, strict=True)
            if rows.any()
        )

    def read(self, rows: Rows | slice) -> ModelVotes:
        """The votes on some rows, wherever they are."""
        if not self.count:
            return ModelVotes(np.zeros(0, dtype=np.int32))
        hard: Codes = np.array(self._mapped("hard")[rows])
        if not self._held:
            return ModelVotes(hard)
        codes, weights = (np.array(self._mapped(kind)[rows]) for kind in ("codes", "weights"))
        # A soft vote stands beside a hard one, which is the vote itself.
        softly = np.where(codes[:, 0] == MISSING, np.int32(MISSING), hard)
        return ModelVotes(hard, SoftVotes(codes, weights, self._classes, softly))

    def bytes(self) -> Iterator[NDArray[Any]]:
        """What the votes consist of: all hard ones, then classes and weights of soft ones."""
        for kind in self._kinds if self._held else ("hard",):
            for start in range(0, self.count, BLOCK):
                yield np.ascontiguousarray(self._mapped(kind)[start : start + BLOCK])

    def _mapped(self, kind: str) -> NDArray[Any]:
        held = np.memmap(self._paths[kind], dtype=self._kinds[kind], mode="r")
        return held if kind == "hard" else held.reshape(-1, self._width)[:, : self._held]
