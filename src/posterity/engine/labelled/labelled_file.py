"""Labelled data: how a model errs, in the forms people have it."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.beliefs import confusion
from posterity.method.beliefs.confusion import Cells, Confusion
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.classes import Classes
from posterity.method.data.votes import MISSING, ModelVotes, SoftVotes, as_array
from posterity.models.class_map import Answers
from posterity.models.model import Model
from posterity.models.soft_columns import read_soft
from posterity.storage.input import as_stored, column, ids_of, is_csv, read_rows, truth_types
from posterity.validation import shift
from posterity.validation.expectation import LEAST

LEAST_BITS = 64.0
"""What the order of labelled truths must hold, for no other set to have the same by chance."""


@dataclass(frozen=True)
class StoredVotes:
    """A model's stored votes on items by id."""

    kind: pa.DataType | None
    """The type of the ids; None while there are none."""
    look_up: Callable[[pa.ChunkedArray], ModelVotes]
    """−1 where it has none, ``UNKNOWN_ITEM`` where there is no such item."""


NOTHING = (
    "Give a table with the truth and the model's vote on a few labelled items (`labelled=`), the "
    "truth of some stored items by id, a confusion matrix (`confusion=`), or one accuracy "
    "(`accuracy=`)."
)


def _nobody() -> Codes:
    return np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class LabelledData:
    """What is known of a model: labelled pairs, or a stated confusion."""

    truth: Codes = field(default_factory=_nobody)
    votes: Codes = field(default_factory=_nobody)
    keys: list[str] | None = None
    soft: SoftVotes | None = None
    """The same votes with weights, where the model gave them."""
    stored: bool = False
    """The keys are ids of stored items."""
    pending: bool = False
    """The votes are still to be asked for."""
    counts: Cells | None = None
    """A confusion matrix of counts."""
    matrix: Floats | None = None
    """A confusion matrix of probabilities, π(vote, truth)."""
    accuracy: float | None = None
    weights: Floats | None = None
    """How much more frequent items like each are in the store; None: as frequent."""
    match: str | None = None
    """The column they follow from; its values may become more or less frequent since."""
    note: str = ""

    @classmethod
    def of_stored(
        cls,
        keys: list[str],
        truth: Codes,
        votes: ModelVotes,
        weights: Floats | None = None,
        *,
        match: str | None = None,
        note: str = "",
    ) -> LabelledData:
        """Of stored items: their votes are those the store has, or are to be asked for."""
        present = votes.hard != UNKNOWN_ITEM
        own = votes[present]
        return cls(
            truth[present],
            own.hard,
            [key for key, has in zip(keys, present, strict=True) if has],
            own.soft,
            stored=True,
            pending=not (own.hard != MISSING).any(),
            weights=None if weights is None else weights[present],
            match=match,
            note=note,
        )

    @property
    def digest(self) -> str:
        """Names the evidence."""
        tables = (None if self.counts is None else self.counts.table, self.matrix)
        stated = [None if table is None else table.tolist() for table in tables]
        told = [self.keys, self.truth.tolist(), self.votes.tolist()]
        if any(stated) or self.accuracy is not None:
            told += [stated, self.accuracy]
        elif self.keys is None:
            told[0] = [None] * len(self.truth)
        if self.soft is not None and not self.stored:
            told += [self.soft.codes.tolist(), self.soft.weights.astype(np.float32).tolist()]
        if self.weights is not None:
            told += [self.weights.tolist() if self.match is None else self.match]
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

    def cells(self, classes: Classes) -> Cells:
        """c(i, k)."""
        if self.counts is not None:
            return self.counts
        return Cells.of_pairs(self.truth, self.votes, classes=classes)

    def confusion(
        self, classes: Classes
    ) -> tuple[tuple[list[int], list[int]], list[int], list[float] | None]:
        """The cells that occur, with their counts; or those with a stated probability."""
        if self.matrix is not None:
            votes, truths = np.nonzero(self.matrix)
            stated = self.matrix[votes, truths].tolist()
            return (votes.tolist(), truths.tolist()), [], stated
        cells = self.cells(classes)
        return (cells.votes.tolist(), cells.truths.tolist()), cells.counts.tolist(), None


def read_evidence(context: Context, model: Model, stored: StoredVotes) -> LabelledData:
    """What a model was given with; ``stored`` looks up its votes on items the store has."""
    classes = context.classes
    if model.accuracy is not None:
        if np.ndim(model.accuracy):
            raise InvalidParameter.of("accuracy", "one number from 0 to 1", model.accuracy)
        Confusion.from_accuracy(model.accuracy, classes=classes)
        return LabelledData(accuracy=float(model.accuracy))
    answers = model.answers(classes)
    if model.confusion is not None:
        return _read_matrix(model, classes)
    types = truth_types(answers.kind, model.vote, "vote", model.name)
    types |= truth_types(classes.kind, model.truth)
    rows = read_rows(
        model.labelled,
        "labelled data",
        ids=model.key,
        values=model.truth,
        pair=(model.truth, model.vote or "vote"),
        id_kind=stored.kind,
        types=types,
    )
    truth = Answers(classes).column(
        column(rows, model.truth, "labelled data"), f"labelled column '{model.truth}'"
    )
    if (truth == MISSING).any():
        first = int(np.flatnonzero(truth == MISSING)[0])
        raise InvalidData(
            f"The labelled data of '{model.name}' has {int((truth == MISSING).sum())} rows without "
            f"a truth; first row {first}."
        )
    name, weights = _vote_column(model, rows), _weights(context, model, rows)
    if weights is not None and (left := len(shift.kept(weights))) < min(LEAST, len(weights)):
        raise InvalidData(
            f"Of the {len(weights):,} labelled items of '{model.name}' weights leave {left}; at "
            f"least {LEAST} are needed.",
            hint="Give less unequal weights, or label more items like the stored ones.",
        )
    if name is None and model.labelled_soft is None:
        return _by_id(model, rows, truth, weights, stored)
    cast = ModelVotes(np.full(len(truth), MISSING, dtype=np.int32))
    if name is not None:
        cast = ModelVotes(answers.column(rows.column(name), f"labelled column '{name}'"))
    if model.labelled_soft is not None:
        cast = read_soft(model.labelled_soft, rows, answers, cast.hard, "labelled data")
    if not (cast.hard != MISSING).any():
        raise InvalidData(f"The labelled data of '{model.name}' holds no vote.")
    keys: list[str] | None
    if model.key in rows.column_names:
        keys = _keys(model, ids_of(rows, model.key, "labelled data"))
    elif weights is not None:
        raise InvalidData(
            f"The labelled data of '{model.name}' has weights, but no ids to weigh by.",
            hint=f"Name its column of ids with `key=`; it is '{model.key}' now.",
        )
    else:
        keys = _by_order(truth)
    return LabelledData(truth, cast.hard, keys, cast.soft, weights=weights, match=model.match)


def _weights(context: Context, model: Model, rows: pa.Table) -> Floats | None:
    """Given, or from how frequent the values of a column are here and in the store."""
    if model.weight is not None:
        given = column(rows, model.weight, "labelled data")
        if given.null_count or not (
            pa.types.is_floating(given.type) or pa.types.is_integer(given.type)
        ):
            raise InvalidData(
                f"The labelled column '{model.weight}' must hold one number an item, none missing; "
                f"it holds {given.type} with {given.null_count} missing."
            )
        return shift.checked(given.to_numpy(), model.weight)
    if model.match is None:
        return None
    own = [str(value) for value in column(rows, model.match, "labelled data").to_pylist()]
    counts = {str(value): count for value, count in values_of(context, model.match).items()}
    names = sorted({*own, *counts})
    place = {name: at for at, name in enumerate(names)}
    if not any(name in counts for name in own):
        raise InvalidData(
            f"No stored item has a value of '{model.match}' that a labelled one has, such as "
            f"{own[0]!r}.",
            hint="Add the items first; or give weights yourself, with `weight=`.",
        )
    target = np.array([counts.get(name, 0) for name in names], dtype=np.float64)
    return shift.weights_of_groups(np.array([place[name] for name in own]), target, len(names))


def _vote_column(model: Model, rows: pa.Table) -> str | None:
    if model.vote is not None:
        column(rows, model.vote, "labelled data")
        return model.vote
    held = set(rows.column_names) - {model.truth, model.key, model.weight, model.match}
    return next((name for name in ("vote", model.name) if name in held), None)


def _by_order(truth: Codes) -> list[str] | None:
    """Keys of labelled items without ids: the same truths in the same order are the same items.

    None where that could be chance: where there are few, or where they are sorted by class or
    go round the classes. An order that is no accident can be written in fewer bits than a random
    one of the same classes has.
    """
    content = truth.astype("<i4").tobytes()
    shares = np.unique(truth, return_counts=True)[1] / len(truth)
    random_bits = -len(truth) * float(np.sum(shares * np.log2(shares)))
    if random_bits < LEAST_BITS or 8 * len(zlib.compress(content, 9)) < 0.9 * random_bits:
        return None
    whole = hashlib.sha256(content).hexdigest()[:16]
    return [f"{whole}:{row}" for row in range(len(truth))]


def _keys(model: Model, ids: pa.ChunkedArray) -> list[str]:
    keys = [str(key) for key in ids.to_pylist()]
    if len(set(keys)) < len(keys):
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise InvalidData(
            f"The labelled data of '{model.name}' has an item more than once: {twice!r}."
        )
    return keys


def _by_id(
    model: Model,
    rows: pa.Table,
    truth: Codes,
    weights: Floats | None,
    stored: StoredVotes,
) -> LabelledData:
    """The truth of stored items."""
    if model.key not in rows.column_names:
        raise InvalidData(
            f"The labelled data of '{model.name}' has no column of votes ('vote' or "
            f"'{model.name}'), and no ids of stored items; it has: {', '.join(rows.column_names)}.",
            hint="Name the column of votes with `vote=`, or the column of ids with `key=`.",
        )
    ids = ids_of(rows, model.key, "labelled data")
    if is_csv(model.labelled):
        ids = as_stored(ids, lambda ids: stored.look_up(ids).hard != UNKNOWN_ITEM)
    keys = _keys(model, ids)
    votes = stored.look_up(ids)
    known = votes.hard != UNKNOWN_ITEM
    note = ""
    if not known.all():
        strangers = ids.filter(pa.array(~known))[:5].to_pylist()
        note = (
            f"{int((~known).sum()):,} labelled ids are not in the store, such as {strangers[0]!r}"
        )
        if not known.any():
            raise InvalidData(
                f"None of the {len(keys)} labelled ids of '{model.name}' is in the store: "
                f"{strangers}."
            )
    return LabelledData.of_stored(keys, truth, votes, weights, match=model.match, note=note)


UNKNOWN_ITEM = -2
"""Stands for the vote on an id the store does not know."""


def _read_matrix(model: Model, classes: Classes) -> LabelledData:
    """Truths in rows, votes in columns: as classes × classes numbers, or as a table with names."""
    given = model.confusion
    if isinstance(given, Confusion):
        table = given.probabilities.T
    elif isinstance(given, (str, Path, dict)) or hasattr(given, "__arrow_c_stream__"):
        table = _named_matrix(model, classes)
    else:
        table = as_array(given, "confusion")
        if table.dtype.kind not in "fiu":
            raise InvalidData(
                f"The confusion matrix of '{model.name}' must hold numbers; got {table.dtype}."
            )
    if table.shape != (len(classes), len(classes)):
        raise InvalidData(
            f"The confusion matrix of '{model.name}' must be {len(classes)} × {len(classes)}, "
            f"truths in rows and votes in columns; got shape {table.shape}."
        )
    if isinstance(given, Confusion):
        return LabelledData(matrix=given.probabilities)
    table = table.astype(np.float64)
    if (table >= 0).all() and (table <= 2).all() and np.abs(table.sum(axis=1) - 1).max() < 1e-6:
        matrix = Confusion.from_matrix(table, truth="rows").probabilities
        return LabelledData(matrix=matrix)
    if confusion.are_counts(table) and table.any():
        truths, votes = np.nonzero(table)
        counts = Cells.of(votes, truths, table[truths, votes], len(classes))
        return LabelledData(counts=counts)
    raise InvalidData(
        f"The confusion matrix of '{model.name}' must hold counts ({confusion.COUNTS_ALLOWED}), or "
        "probabilities with rows, one a truth, that sum to one."
    )


def _named_matrix(model: Model, classes: Classes) -> Floats:
    """A table with a row for each truth: a column of names, and a column for each vote."""
    rows = read_rows(
        model.confusion, "confusion matrix", types=truth_types(classes.kind, model.truth)
    )
    first = rows.column_names[0]
    if model.truth not in rows.column_names and first in ("", "Unnamed: 0"):
        rows = rows.rename_columns([model.truth, *rows.column_names[1:]])  # as pandas writes it
    truth = Answers(classes).column(
        column(rows, model.truth, "confusion matrix"), f"column '{model.truth}'"
    )
    if sorted(truth.tolist()) != list(range(len(classes))):
        raise InvalidData(
            f"The confusion matrix of '{model.name}' must have one row for each of the "
            f"{len(classes)} classes; its column '{model.truth}' names {len(truth)}."
        )
    table = np.zeros((len(classes), len(classes)))
    answers = model.answers(classes)
    names = [name for name in rows.column_names if name != model.truth]
    codes = answers.column(_typed(names, answers), "confusion matrix's columns")
    for name, code in zip(names, codes, strict=True):
        try:
            table[truth, code] += rows.column(name).cast(pa.float64()).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InvalidData(f"The confusion matrix's column '{name}' holds no numbers.") from None
    return table


def _typed(names: list[str], answers: Answers) -> pa.Array:
    """Names of columns, which are texts, as the class names they stand for."""
    by_text = {str(name): name for name in (*answers.classes, *answers.names, *answers.rename)}
    typed: list[Any] = [by_text.get(name, name) for name in names]
    return pa.array(typed if len({type(name) for name in typed}) == 1 else names)


def values_of(context: Context, column: str) -> dict[Any, int]:
    """How many items there are with each value; those that were removed do not count."""
    items = context.items
    if items is None:
        raise InvalidData(
            f"There are no items yet whose '{column}' labelled items could be matched with.",
            hint="Add the items first; or give weights yourself, with `weight=`.",
        )
    known = [name for name in items.table.schema.names if name not in ("shard", "row")]
    if column not in known:
        raise InvalidData(
            f"The items have no column '{column}' to match labelled ones with; they have: "
            f"{', '.join(known)}."
        )
    found: Counter[Any] = Counter()
    for _, part in items.each(["row", column]):
        there = ~context.removed[part.column("row").to_numpy()]
        values = part.column(column).filter(pa.array(there))
        for each in pc.value_counts(values).to_pylist():
            found[each["values"]] += each["counts"]
    return dict(found)
