"""Predictions that exist: ids and votes of all their rows, checked before any is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._text import counted
from posterity.engine.items.add import payload_of, refuse_reserved
from posterity.engine.items.item_files import Incoming, Look, ReadPortion, look_through
from posterity.engine.labelled.labelled_file import StoredVotes
from posterity.engine.labelled.register import stored_votes
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.arrays import Rows
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.models.class_map import Answers
from posterity.models.model import Model
from posterity.models.soft_columns import SoftColumns
from posterity.storage.input import Types, expanded, truth_types
from posterity.storage.spool import IdSpool, VoteSpool, lengths_of, texts_of
from posterity.storage.stream import Stream

STRANGE = 0.5
"""The share of rows whose label is not their most probable class that means another order."""


@dataclass(frozen=True, eq=False)
class Source:
    """One model of an import: which column holds its votes, and where soft ones are."""

    model: Model
    column: str
    soft: SoftColumns | None = None


@dataclass(frozen=True)
class MissingVotes:
    """Rows of an import without a vote of some model: their items are added without its label."""

    model: str
    column: str
    rows: int
    first: Any
    """The id of the first of them."""
    where: str
    """Its row, and in which file."""

    def __str__(self) -> str:
        told = counted(self.rows, "item", "have")
        return (
            f"{told} no label in column '{self.column}'; the first is {self.first!r}, {self.where}"
        )


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
    """Ids and votes of all rows, checked and kept in a local folder; the payload stays put."""

    def __init__(
        self,
        context: Context,
        stream: Stream,
        sources: Sequence[Source],
        id_column: str,
        folder: Path,
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
        self.ids = IdSpool(folder)
        self.votes = [
            VoteSpool(folder, f"votes-{at}", answers.top if source.soft else 0)
            for at, (source, answers) in enumerate(zip(sources, self._answers, strict=True))
        ]
        self._orders = [_Order(source) for source in sources]
        self._seen: list[ReadPortion] = []
        self._looked: tuple[pa.ChunkedArray, Rows] | None = None
        self._read()

    @property
    def files(self) -> int:
        """How many files, or tables, there are."""
        return len(self._stream.pieces)

    def _answers_of(self, source: Source) -> Answers:
        """As registered, but for what the model says anew."""
        known = self._context.models.get(source.model.name)
        settings = source.model.settings(self._context.classes)
        if known is not None:
            settings = known.settings.revised(settings)
        return settings.answers(self._context.classes)

    def _read(self) -> None:
        casts = [
            _CastOf(source.column, source.soft, answers)
            for source, answers in zip(self._sources, self._answers, strict=True)
        ]
        look = Look(self._stream.reader(self._used, ids=self._id, types=self._types), casts)
        try:
            self._seen = look_through(
                self._context.executor, self._stream, look, self.ids, self._take
            )
        finally:
            for votes in self.votes:
                votes.finish()
        self.ids.finish(self._context.id_kind)
        for order in self._orders:
            order.refuse_other()

    def _take(self, votes: Sequence[ModelVotes]) -> None:
        for at, cast in enumerate(votes):
            self._orders[at].add(cast)
            self.votes[at].add(cast)

    def missing(self) -> list[MissingVotes]:
        """The models without a vote on some rows."""
        found = []
        for source, votes in zip(self._sources, self.votes, strict=True):
            row = votes.first_missing()
            if row is not None:
                where = (self.ids.at(row), self.ids.where(row))
                name = source.model.name
                found.append(MissingVotes(name, source.column, votes.count - votes.cast, *where))
        return found

    def digest(self, rule: str) -> str:
        """Names the import by what it holds."""
        # One model's votes become first labels under every rule.
        told = hashlib.sha256(rule.encode() if len(self._sources) > 1 else b"")
        for piece in _bytes_of(self.ids):
            told.update(piece)
        for source, votes in zip(self._sources, self.votes, strict=True):
            told.update(source.model.name.encode())
            for block in votes.bytes():
                told.update(block.data)
        return told.hexdigest()[:16]

    def payload(self, wanted: Sequence[str] | None) -> Types:
        """The columns to keep with the items: those asked for, or all that mean nothing to us."""
        if wanted is None or any("*" in name for name in wanted):
            held = [name for name in self._stream.names(ids=self._id) if name not in self._used]
            columns = expanded(["*"] if wanted is None else wanted, held) if held else []
        else:
            columns = list(dict.fromkeys(wanted))
        refuse_reserved(columns)
        return self._stream.types(columns, ids=self._id)

    def items(self, payload: Types) -> Incoming:
        """Items with their payload, to be read a second time."""
        read = payload_of(self._stream, self._id, payload, self.ids.type, done="imported")
        return Incoming(read, self._seen)

    def stored(self, at: int) -> StoredVotes:
        """A model's votes by id, as an import finds them before they are in the ledger."""

        def look_up(ids: pa.ChunkedArray) -> ModelVotes:
            if ids.type != self.ids.type:
                raise InvalidData(f"The ids are of type {self.ids.type}; got {ids.type}.")
            where = self._positions(ids)
            here = np.flatnonzero(where >= 0)
            return earlier.look_up(ids).put(here, self.votes[at].read(where[here]))

        # Items that were there before may be among them.
        earlier = stored_votes(self._context, self._sources[at].model.name)
        return StoredVotes(self.ids.type, look_up)

    def _positions(self, wanted: pa.ChunkedArray) -> Rows:
        """The place of each id among all; −1 where it is not."""
        if self._looked is None or not self._looked[0].equals(wanted):
            unique = wanted.unique()
            places = np.full(len(unique), -1, dtype=np.int64)
            start = 0
            for ids in self.ids.each():
                found = pc.index_in(ids, value_set=unique)
                places[np.asarray(found.drop_null())] = start + np.flatnonzero(found.is_valid())
                start += len(ids)
            every = places[np.asarray(pc.index_in(wanted, value_set=unique))]
            self._looked = wanted, every  # all models are mostly told the same truth
        return self._looked[1]


@dataclass(frozen=True, eq=False)
class _CastOf:
    """Reads the votes of one model; without the model itself, which stays here."""

    column: str
    soft: SoftColumns | None
    answers: Answers

    def __call__(self, batch: pa.Table, where: str) -> ModelVotes:
        what = f"column '{self.column}' of {where}"
        hard = self.answers.column(batch.column(self.column), what)
        if self.soft is None:
            return ModelVotes(hard)
        return self.soft.read(batch, self.answers, hard, f"soft votes of {where}")


class _Order:
    """Counts where a model's votes are not its most probable classes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._seen = self._both = self._odd = 0
        self._first: int | None = None

    def add(self, cast: ModelVotes) -> None:
        """Look at the next rows."""
        if self._source.soft is not None and cast.soft is not None:
            top = cast.soft.codes[:, 0]
            both = (cast.hard != MISSING) & (top != MISSING)
            odd = np.flatnonzero(both & (cast.hard != top))
            if self._first is None and len(odd):
                self._first = self._seen + int(odd[0])
            self._both += int(both.sum())
            self._odd += len(odd)
        self._seen += len(cast)

    def refuse_other(self) -> None:
        """Labels and probabilities that disagree in many rows: the columns mean other classes."""
        if self._odd > STRANGE * self._both:
            raise InvalidData(
                f"In {self._odd:,} of {self._both:,} rows the most probable class of "
                f"'{self._source.model.name}' is not its vote in '{self._source.column}'; first in "
                f"row {self._first}.",
                hint="Name its own classes in the order of its probabilities (`classes=`).",
            )


def _bytes_of(ids: IdSpool) -> Iterator[bytes | memoryview]:
    """What ids consist of, however they are cut into parts."""
    if pa.types.is_integer(ids.type):
        yield from (part.to_numpy().tobytes() for part in ids.each())
        return
    yield from map(lengths_of, ids.each())
    yield from map(texts_of, ids.each())
