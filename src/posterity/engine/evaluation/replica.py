"""Replica: one copy of a model reads its items, votes, and makes its votes durable by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from posterity.engine.evaluation.run_votes import Run
from posterity.engine.items.payload import Payload
from posterity.engine.ledger.context import Context
from posterity.errors import MissingExtra, PosterityError, Superseded, Unavailable
from posterity.method.data.arrays import Rows
from posterity.method.data.votes import ModelVotes
from posterity.models.model import Loaded, Predict, load_predict


@dataclass(frozen=True, eq=False)
class Unit:
    """Some items to be asked about, in batches."""

    rows: Rows
    batch: int
    most: int
    """Items the model may fail on before the rest is not worth asking for."""
    tries: int = 0
    """Replicas that died over it without a vote."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What a replica made of a unit."""

    done: int
    """Items it voted or failed on."""
    errors: dict[int, str] = field(default_factory=dict)


class Voter:
    """A replica of a model: its state is made once, when the first batch comes."""

    def __init__(self, run: Run, model: str, predict: Predict | str) -> None:
        self._run, self._payload = run, Payload(run.context)
        # Given by its name, it is looked for where it is asked.
        found = load_predict(predict) if isinstance(predict, str) else predict
        self._source = _Source(run.context, model, found)

    def __call__(self, unit: Unit) -> Asked:
        """Vote on a unit's items; each batch is durable before the next."""
        done, errors = 0, dict[int, str]()
        for rows, items in self._batches(unit):
            voted, votes, reasons = _vote(self._source, rows, items, unit.most - len(errors))
            if len(voted):
                self._run.keep_votes(voted, votes)
            if reasons:
                self._run.keep_errors(reasons)
            errors |= reasons
            done += len(rows)
            if len(errors) > unit.most:
                break
        return Asked(done, errors)

    def _batches(self, unit: Unit) -> Iterator[tuple[Rows, pa.Table]]:
        """As many items as a batch should have, or fewer where they are large."""
        for low in range(0, len(unit.rows), unit.batch):
            yield from self._items(unit.rows[low : low + unit.batch])

    def _items(self, rows: Rows) -> Iterator[tuple[Rows, pa.Table]]:
        """Evaluation may take days: files are replaced by a compaction, and vacuumed."""
        left = rows
        try:
            for part in self._payload.parts(rows):
                yield part
                left = left[left > part[0][-1]]
        except Superseded:
            self._payload = Payload(self._run.context.again())
            yield from self._payload.parts(left)


class _Source:
    """A model to be asked, and how its words become our classes."""

    def __init__(self, context: Context, model: str, predict: Predict) -> None:
        self._answers = context.model(model).settings.answers(context.classes)
        self._own_named = self._answers.own is None
        """Nobody said what its classes are, so that it may name them itself."""
        self._predict = predict if isinstance(predict, Loaded) else Loaded(predict)

    def __call__(self, items: pa.Table) -> ModelVotes:
        """One vote an item."""
        given = self._predict(items)
        own = self._predict.classes
        if self._own_named and own != self._answers.own:
            self._answers = replace(self._answers, own=own)  # once, since it maps all classes
        return self._answers.votes(given, items.num_rows)


def _vote(
    source: _Source, rows: Rows, items: pa.Table, most: int
) -> tuple[Rows, ModelVotes, dict[int, str]]:
    """Votes of a batch; if the model fails on it, of each item alone, so that one costs one."""
    try:
        return rows, source(items), {}
    except (Unavailable, MissingExtra):
        raise  # no item is to blame
    except Exception as error:
        if len(rows) == 1:
            told = error.message if isinstance(error, PosterityError) else repr(error)
            return rows[:0], ModelVotes.joined([]), {int(rows[0]): told}
    voted, votes, reasons = [rows[:0]], list[ModelVotes](), dict[int, str]()
    for at in range(len(rows)):
        one, vote, reason = _vote(source, rows[at : at + 1], items.slice(at, 1), most)
        voted.append(one)
        votes.append(vote)
        reasons |= reason
        if len(reasons) > most:
            break  # the rest of the batch is not worth asking for
    return np.concatenate(voted), ModelVotes.joined(votes), reasons
