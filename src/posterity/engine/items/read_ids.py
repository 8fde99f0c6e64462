"""Read ids: ids and votes of rows that come in, read where the executor works and kept here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

import pyarrow as pa

from posterity.engine.executors import Executor
from posterity.method.data.votes import ModelVotes
from posterity.storage.input import as_numbers, ids_of
from posterity.storage.input_files import InputReader, Portion
from posterity.storage.spool import IdDigest, IdSpool
from posterity.storage.stream import Stream

Some = TypeVar("Some")

CastOf = Callable[[pa.Table, str], ModelVotes]
"""A model's votes on the rows of a batch, which is called so for people."""


@dataclass(frozen=True, eq=False)
class Batch:
    """What is kept of some rows that were read together."""

    at: int
    """Which of the portions they are of."""
    ids: pa.ChunkedArray
    numbers: bool
    """Whether all of these ids can be whole numbers."""
    votes: list[ModelVotes]
    """Of each model."""
    digest: bytes
    """Names all ids of the portion so far."""


@dataclass(frozen=True, eq=False)
class ReadPortion:
    """A portion that was read once: how many rows it has, and what names their ids."""

    portion: Portion
    rows: int
    digest: bytes


@dataclass(frozen=True, eq=False)
class Look:
    """Reads ids and votes of portions, and refuses what is wrong with a row by itself."""

    reader: InputReader
    casts: Sequence[CastOf] = ()

    def each(self, portions: Sequence[Portion]) -> Iterator[Batch]:
        """Batch by batch, in order."""
        for at, portion in enumerate(portions):
            first, digest = portion.first, IdDigest()
            for batch in self.reader.batches(portion):
                where = f"'{portion.piece.name}' (rows from {first})"
                ids = ids_of(batch, self.reader.ids, f"file {where}")
                digest.add(ids)
                numbers = not portion.piece.from_text or (
                    not len(ids) or pa.types.is_integer(as_numbers(ids).type)
                )
                votes = [cast(batch, where) for cast in self.casts]
                yield Batch(at, ids, numbers, votes, digest.value())
                first += batch.num_rows

    def __call__(self, portions: Sequence[Portion]) -> list[Batch]:
        """All of them at once, to be handed over."""
        return list(self.each(portions))


def look_through(
    executor: Executor,
    stream: Stream,
    look: Look,
    ids: IdSpool,
    take: Callable[[list[ModelVotes]], None] | None = None,
) -> list[ReadPortion]:
    """Read all rows once, in order: ids go to the spool, votes to whoever takes them."""
    seen: list[ReadPortion] = []
    for portion, batch in _batches(executor, look, stream.portions):
        ids.add(portion.piece, batch.ids, numbers=batch.numbers)
        if take is not None:
            take(batch.votes)
        if not seen or seen[-1].portion is not portion:
            seen.append(ReadPortion(portion, 0, b""))
        seen[-1] = replace(seen[-1], rows=seen[-1].rows + len(batch.ids), digest=batch.digest)
    stream.refuse_nothing(len(ids))
    return seen


def _batches(
    executor: Executor, look: Look, portions: Sequence[Portion]
) -> Iterator[tuple[Portion, Batch]]:
    for here, some in groupby(portions, key=lambda portion: stays(portion) or portion.large):
        if here:  # what is too large to be handed over is handed over batch by batch
            for portion in some:
                yield from ((portion, batch) for batch in look.each([portion]))
        else:
            tasks = list(gathered(some, lambda portion: portion.weight))
            for task, batches in zip(tasks, executor.map(look, tasks), strict=True):
                yield from ((task[batch.at], batch) for batch in batches)


def stays(portion: Portion) -> bool:
    """Whether it is in the memory of this process, and so is read here."""
    return portion.piece.table is not None


def gathered(parts: Iterable[Some], weight: Callable[[Some], float]) -> Iterator[list[Some]]:
    """Parts that follow each other, together about as much as one task should have (1).

    >>> list(gathered([0.2, 0.3, 0.9, 5, 0.1], lambda part: part))
    [[0.2, 0.3], [0.9], [5], [0.1]]
    """
    held: list[Some] = []
    total = 0.0
    for part in parts:
        if held and total + weight(part) > 1 and total >= 0.5:  # less is not worth a task
            yield held
            held, total = [], 0.0
        held.append(part)
        total += weight(part)
    if held:
        yield held
