"""Predictions that exist: ids and votes of all their rows, read and checked before any is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._arrays import Codes
from posterity.answers import Answers
from posterity.engine.context import Context
from posterity.engine.evidence import StoredVotes
from posterity.engine.items import prepared, refuse_reserved
from posterity.engine.registering import stored_votes
from posterity.engine.runs import Progress
from posterity.errors import InvalidData, InvalidParameter
from posterity.models import Model, answers_of, settings_of
from posterity.softcolumns import TOP, SoftColumns
from posterity.tables.sources import Types, as_numbers, ids_of, truth_types
from posterity.tables.streams import Piece, Stream
from posterity.votes import MISSING, Cast

STRANGE = 0.5
"""The share of rows whose label is not their most probable class that means another order."""


@dataclass(frozen=True, eq=False)
class Source:
    """One model of an import: which column holds its votes, and where soft ones are."""

    model: Model
    column: str
    soft: SoftColumns | None = None


def sources_of(
    votes: Mapping[str, Model | str], soft: Mapping[str, str] | None = None
) -> list[Source]:
    """Columns and models as a user gives them, in the models' order of arrival."""
    softly = dict(soft or {})
    sources = []
    for column, given in votes.items():
        model = Model(given) if isinstance(given, str) else given
        text = softly.pop(model.name, None)
        sources.append(Source(model, column, None if text is None else SoftColumns.parse(text)))
    if softly:
        raise InvalidParameter.of("soft", "columns by the name of a model given", min(softly))
    return sources


class Predictions:
    """Ids and votes of all rows, checked; the payload stays where it is."""

    def __init__(
        self, context: Context, stream: Stream, sources: Sequence[Source], id_column: str
    ) -> None:
        self._context, self._stream, self._id = context, stream, id_column
        self._sources = sources
        self._answers = [self._answers_of(source) for source in sources]
        self._used = [id_column]
        for source, answers in zip(sources, self._answers, strict=True):
            soft = source.soft.columns(answers) if source.soft else []
            self._used += [name for name in (source.column, *soft) if name not in self._used]
        self._types: Types = {}
        for source, answers in zip(sources, self._answers, strict=True):
            self._types |= truth_types(answers.kind, source.column)
        self.ids, self.casts = self._read()
        for source, cast in zip(sources, self.casts, strict=True):
            _refuse_other_order(source, cast)

    def _answers_of(self, source: Source) -> Answers:
        """As registered, but for what the model says anew."""
        known = self._context.models.get(source.model.name)
        answers = source.model.answers(self._context.classes)
        if known is not None:
            said = {k: v for k, v in settings_of(answers).items() if v not in (None, [])}
            answers = answers_of(known.settings | said, self._context.classes)
        if source.soft is not None and answers.soft is None:
            return replace(answers, soft=min(TOP, len(answers.classes)))
        return answers

    def _read(self) -> tuple[pa.ChunkedArray, list[Cast]]:
        ids: list[tuple[Piece, pa.ChunkedArray]] = []
        casts: list[list[Cast]] = [[] for _ in self._sources]
        place: dict[str, int] = {}
        self._pieces: list[tuple[Piece, int, int]] = []
        for piece, batch in self._stream.batches(self._used, ids=self._id, types=self._types):
            first = place.get(piece.name, 0)
            place[piece.name] = first + batch.num_rows
            self._pieces.append((piece, first, batch.num_rows))
            where = f"'{piece.name}' (rows from {first})"
            ids.append((piece, ids_of(batch, self._id, f"file {where}")))
            for at, source in enumerate(self._sources):
                casts[at].append(self._cast(batch, source, self._answers[at], where))
        return self._joined(ids), [Cast.joined(parts) for parts in casts]

    def _joined(self, ids: list[tuple[Piece, pa.ChunkedArray]]) -> pa.ChunkedArray:
        """All ids, of one type; in text without types they take that of the others."""
        typed = {column.type for piece, column in ids if not piece.from_text}
        if self._context.items is not None:
            typed = {self._context.items.table.schema.field("id").type}
        texts = [column for piece, column in ids if piece.from_text]
        if texts and typed <= {pa.int64()}:
            kind = as_numbers(_chunked(texts)).type
            ids = [
                (piece, column.cast(kind) if piece.from_text else column) for piece, column in ids
            ]
        begin, first = ids[0]
        for piece, column in ids:
            if column.type != first.type:
                raise InvalidData(
                    f"Ids must be of one type; those in '{begin.name}' are {first.type}, those in "
                    f"'{piece.name}' {column.type}."
                )
        return _chunked([column for _, column in ids])

    @staticmethod
    def _cast(batch: pa.Table, source: Source, answers: Answers, where: str) -> Cast:
        what = f"column '{source.column}' of {where}"
        hard = answers.column(batch.column(source.column), what)
        if source.soft is None:
            return Cast(hard)
        return source.soft.read(batch, answers, hard, f"soft votes of {where}")

    def where(self, row: int) -> str:
        """The place of a row among the files."""
        for piece, first, count in self._pieces:
            if row < count:
                return f"row {first + row} of '{piece.name}'"
            row -= count
        return f"row {row}"

    def digest(self, rule: str) -> str:
        """Names the import by what it holds."""
        # One model's votes become first labels under every rule.
        told = hashlib.sha256(rule.encode() if len(self._sources) > 1 else b"")
        for piece in _bytes_of(self.ids):
            told.update(piece)
        for source, cast in zip(self._sources, self.casts, strict=True):
            told.update(source.model.name.encode())
            told.update(np.ascontiguousarray(cast.hard).tobytes())
            if cast.soft is not None:
                told.update(np.ascontiguousarray(cast.soft.codes).tobytes())
                told.update(np.ascontiguousarray(cast.soft.weights).tobytes())
        return told.hexdigest()[:16]

    def payload(self, wanted: Sequence[str] | None) -> Types:
        """The columns to keep with the items: those asked for, or all that mean nothing to us."""
        if wanted is None:
            held = self._stream.names(ids=self._id)
            columns = [name for name in held if name not in self._used]
        else:
            columns = list(dict.fromkeys(wanted))
        refuse_reserved(columns)
        return self._stream.types(columns, ids=self._id)

    def items(self, payload: Types, progress: Progress | None) -> Iterator[pa.Table]:
        """Items with their payload, read a second time."""
        columns = list(dict.fromkeys([self._id, *payload]))
        schema = pa.schema([("id", self.ids.type), *payload.items()])
        done = 0
        for piece, batch in self._stream.batches(columns, ids=self._id, types=payload):
            known = self.ids.slice(done, batch.num_rows)
            read = batch.column(self._id).cast(pa.string())
            changed = InvalidData(
                f"'{piece.name}' changed while it was read; nothing was imported."
            )
            if not read.equals(known.cast(pa.string())):
                raise changed
            kept = {name: batch.column(name) for name in payload}
            try:
                items = prepared(pa.table({"id": known, **kept})).cast(schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise changed from None
            yield items
            done += batch.num_rows
            if progress:
                progress(done, len(self.ids))

    def stored(self, at: int) -> StoredVotes:
        """A model's votes by id, as an import finds them before they are in the ledger."""

        def look_up(ids: pa.ChunkedArray) -> Codes:
            if ids.type != self.ids.type:
                raise InvalidData(f"The ids are of type {self.ids.type}; got {ids.type}.")
            found = pc.index_in(ids, value_set=self.ids)
            where = np.asarray(found.fill_null(-1))
            votes: Codes = self.casts[at].hard[where]
            return np.where(where < 0, earlier(ids), votes)

        # Items that were there before may be among them.
        earlier = stored_votes(self._context, self._sources[at].model.name)
        return StoredVotes(self.ids.type, look_up)


def _refuse_other_order(source: Source, cast: Cast) -> None:
    """Labels and probabilities that disagree in many rows: the columns mean other classes."""
    if source.soft is None or cast.soft is None:
        return
    both = (cast.hard != MISSING) & (cast.soft.codes[:, 0] != MISSING)
    odd = np.flatnonzero(both & (cast.hard != cast.soft.codes[:, 0]))
    if len(odd) > STRANGE * both.sum():
        raise InvalidData(
            f"In {len(odd):,} of {int(both.sum()):,} rows the most probable class of "
            f"'{source.model.name}' is not its vote in '{source.column}'; first in row {odd[0]}.",
            hint="Name the model's own classes in the order of its probabilities.",
        )


def _chunked(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks])


def _bytes_of(ids: pa.ChunkedArray) -> Iterator[bytes | memoryview]:
    """What ids consist of, however they are cut into chunks."""
    if pa.types.is_integer(ids.type):
        yield from (chunk.to_numpy().tobytes() for chunk in ids.chunks)
        return
    yield from (pc.binary_length(chunk).to_numpy().tobytes() for chunk in ids.chunks)
    for chunk in ids.chunks:
        _, offsets, texts = chunk.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        if texts is not None and len(chunk):
            yield memoryview(texts)[ends[0] : ends[-1]]
