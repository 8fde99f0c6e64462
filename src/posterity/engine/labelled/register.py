"""Register: make a model known, and say how well that is founded."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._text import Result, counted
from posterity.engine.items.add import id_array, rows_or_none
from posterity.engine.labelled.labelled_file import (
    NOTHING,
    UNKNOWN_ITEM,
    LabelledData,
    StoredVotes,
    labelled_weights,
    read_evidence,
    values_of,
)
from posterity.engine.labelled.labelled_votes import (
    are_lost,
    checksum,
    labelled_rows,
    labelled_truth,
)
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.fits import Registered
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.steps import live_updates
from posterity.errors import CommitConflict, InvalidData
from posterity.method.data.arrays import Rows
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.models.model import Model, settings_of, shown_source
from posterity.storage import parquet
from posterity.storage.delta.schema import MODELS, WEIGHT
from posterity.validation.expectation import wilson

ARRIVALS = "posterity.models.model"
TRIES = 20
FEW_PER_CLASS = 5
WIDE = 0.05
"""Half the width of an interval of the accuracy that is worth a warning."""


@dataclass(frozen=True)
class Registration(Result):
    """What is known of a model after it was registered."""

    model: str
    labelled: int
    """Labelled items with a vote; 0 where a confusion was stated."""
    accuracy: float | None
    interval: tuple[float, float] | None
    """Of the accuracy, at 95 %."""
    pending: int = 0
    """Labelled items the model must vote on first."""
    warning: str = ""
    source: str | None = None
    """Where its votes come from, if the store knows."""
    cost: float | None = None

    def __str__(self) -> str:
        told = f"{self.model} is registered"
        if self.pending:
            told += f"; it votes on {counted(self.pending, 'labelled item')} first"
        if self.accuracy is not None:
            told += f": right on {100 * self.accuracy:.1f} %"
        if self.interval is not None:
            low, high = (100 * end for end in self.interval)
            told += f" of {counted(self.labelled, 'labelled item')} (95 %: {low:.1f} to {high:.1f})"
        if self.source is not None:
            told += f"; votes from {self.source}"
        if self.cost is not None:
            told += f"; cost {self.cost:g} an evaluation"
        return told + (f"\nwarning: {self.warning}" if self.warning else "")


def register(
    context: Context, model: Model, *, stored: StoredVotes | None = None
) -> Registration | None:
    """Make a model known, however many others are registering at the same time.

    None if nothing new was said of a model that is known. ``stored`` tells its votes on stored
    items where they are not in the ledger yet.
    """
    for _ in range(TRIES):
        try:
            return _register(context, model, stored or stored_votes(context, model.name))
        except CommitConflict:
            context.forget_models()
    raise CommitConflict("Too many others are registering models; nothing was registered.")


def check_evidence(
    context: Context, model: Model, *, stored: StoredVotes | None = None
) -> Registration | None:
    """What registering would say; nothing is changed."""
    evidence = _evidence(context, model, stored or stored_votes(context, model.name))
    return None if evidence is None else registration(context, model.name, evidence)


def _evidence(context: Context, model: Model, stored: StoredVotes) -> LabelledData | None:
    """How a model errs, if that is news; None if it is known."""
    known = context.models.get(model.name)
    if model.labelled is None and model.confusion is None and model.accuracy is None:
        if known is not None:
            return None
        shared = _shared_truth(context, stored)
        if shared is None:
            raise InvalidData(
                f"Nothing tells how the model '{model.name}' errs, so its votes cannot be weighed "
                "against others.",
                hint=NOTHING,
            )
        return shared
    evidence = read_evidence(model, context.classes, stored, partial(values_of, context))
    if known is None or (known.pending and not evidence.pending):
        return evidence
    if known.settings["digest"] == evidence.digest and are_lost(context, known):
        return evidence
    if not _same(context, known, evidence):
        raise InvalidData(
            f"A model '{model.name}' is registered with other labelled votes.",
            hint="Leave them out to go on with that model, or give the new one another name.",
        )
    return None


def _same(context: Context, known: Registered, evidence: LabelledData) -> bool:
    """Whether a model came with this already.

    The truth of stored items is the same whatever was voted on them, or removed, since.
    """
    if known.settings["digest"] == evidence.digest:
        return True
    if not (evidence.stored and known.settings["stored"]):
        return False
    keys, truth = labelled_truth(context, known)
    left = rows_of_keys(context, keys) >= 0
    listed = zip(keys, truth.tolist(), left.tolist(), strict=True)
    said = dict(zip(evidence.keys or [], evidence.truth.tolist(), strict=True))
    return all(said.get(key) == code for key, code, has in listed if has)


def _register(context: Context, model: Model, stored: StoredVotes) -> Registration | None:
    evidence = _evidence(context, model, stored)
    known = context.models.get(model.name)
    settings = settings_of(model.answers(context.classes)) | {
        "cost": None if model.cost is None else float(model.cost),
        "predict": model.predict if isinstance(model.predict, str) else None,
    }
    if evidence is None:
        if known is not None:
            _revise(context, known, settings)
        return None
    if known is not None:
        settings = known.settings | _said(settings)
    _write(context, model.name, known, evidence, settings)
    return registration(context, model.name, evidence)


def complete(context: Context, name: str, rows: Rows, votes: ModelVotes) -> Registration:
    """A model that was to vote on its labelled items has done so."""
    for _ in range(TRIES):
        if not context.model(name).pending:
            return registered(context, name)  # somebody else was faster
        try:
            return _complete(context, name, rows, votes)
        except CommitConflict:
            context.forget_models()
    raise CommitConflict("Too many others are registering models; the votes are kept.")


def _complete(context: Context, name: str, rows: Rows, votes: ModelVotes) -> Registration:
    """``rows`` are sorted, as a run gives them."""
    known = context.model(name)
    keys, truth = labelled_truth(context, known)
    wanted = rows_of_keys(context, keys)
    if not len(rows):
        raise InvalidData(
            f"'{name}' must vote on its {len(keys):,} labelled items first; it gave none."
        )
    place = np.searchsorted(rows, wanted).clip(max=len(rows) - 1)
    cast = votes[place].where(rows[place] == wanted)
    weights = labelled_weights(labelled_rows(context, known))
    evidence = LabelledData(truth, cast.hard, keys, cast.soft, stored=True, weights=weights)
    _write(context, name, known, evidence, known.settings)
    return registration(context, name, evidence)


def rows_of_keys(context: Context, keys: list[str]) -> Rows:
    """The rows of labelled items that are stored; −1 where one was removed since."""
    return np.asarray(rows_or_none(context, typed_keys(context, keys)).fill_null(-1))


def typed_keys(context: Context, keys: list[str]) -> pa.ChunkedArray:
    """Keys, which are kept as texts, as ids of the store's type."""
    kind = context.id_kind or pa.string()
    return id_array(pa.chunked_array([pa.array(keys, pa.string()).cast(kind)]))


def stored_votes(context: Context, name: str) -> StoredVotes:
    """A model's votes as the ledger has them."""

    def look_up(ids: pa.ChunkedArray) -> ModelVotes:
        found = rows_or_none(context, ids)
        rows = np.asarray(found.fill_null(-1))
        votes = ModelVotes(np.where(rows < 0, np.int32(UNKNOWN_ITEM), np.int32(MISSING)))
        own = [header for header in live_updates(context.headers) if header.model == name]
        for shard, start, items in context.shards if own else []:
            at = np.flatnonzero((rows >= start) & (rows < start + items))
            if not len(at):
                continue
            history = ShardHistory.read(context.ledger, shard, start, items)
            for cast in history.votes_of(rows[at] - start, own):
                has = np.flatnonzero(cast.hard != MISSING)
                votes = votes.put(at[has], cast[has])
        return votes

    kind = context.id_kind
    return StoredVotes(kind, look_up)


def _shared_truth(context: Context, stored: StoredVotes) -> LabelledData | None:
    """The truth of stored items that another model came with serves for all."""
    for model in sorted(context.models.values(), key=lambda model: -model.arrival):
        if model.settings["stored"]:
            keys, truth = labelled_truth(context, model)
            votes = stored(typed_keys(context, keys))
            present = votes.hard != UNKNOWN_ITEM  # an item may have been removed since
            if not present.any():
                continue
            kept = [key for key, has in zip(keys, present, strict=True) if has]
            own, pending = votes[present], not (votes.hard[present] != MISSING).any()
            weights = labelled_weights(labelled_rows(context, model))
            return LabelledData(
                *(truth[present], own.hard, kept, own.soft),
                stored=True,
                pending=pending,
                weights=None if weights is None else weights[present],
            )
    return None


def _revise(context: Context, known: Registered, settings: dict[str, Any]) -> None:
    """Keep what was said anew; what was not said stays as it was."""
    revised = known.settings | _said(settings)
    if revised == known.settings:
        return
    _commit(
        context,
        known.name,
        known.arrival,
        revised | {"revision": known.settings["revision"] + 1},
        {
            "vote": list(known.cells[0]),
            "truth": list(known.cells[1]),
            "count": list(known.counts),
            "probability": None if known.probabilities is None else list(known.probabilities),
        },
    )


def _said(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value not in (None, [])}


def _write(
    context: Context,
    name: str,
    known: Registered | None,
    evidence: LabelledData,
    settings: dict[str, Any],
) -> None:
    """Labelled votes first, then the row that makes them visible."""
    count = len(evidence.truth)
    settings = settings | {
        "digest": evidence.digest,
        "keyed": evidence.keys is not None,
        "labelled": count,
        "stored": evidence.stored,
        "pending": evidence.pending,
        "accuracy": evidence.accuracy,
        "classes_then": len(context.classes),
        "revision": 0 if known is None else known.settings["revision"] + 1,
    }
    if count:
        rows = {
            "model": [name] * count,
            "digest": [evidence.digest] * count,
            "key": pa.nulls(count, pa.string()) if evidence.keys is None else evidence.keys,
            "truth": evidence.truth,
            "vote": evidence.votes,
            **parquet.to_columns(ModelVotes(evidence.votes, evidence.soft)),
            WEIGHT: pa.nulls(count) if evidence.weights is None else evidence.weights,
        }
        table = context.layout.labelled
        labelled = pa.table(rows, schema=table.schema)
        settings["checksum"] = checksum(labelled)
        table.head().commit([table.write(labelled, label="labelled")])
    cells = evidence.columns(context.classes)
    _commit(context, name, len(context.models) if known is None else known.arrival, settings, cells)


def _commit(
    context: Context, name: str, arrival: int, settings: dict[str, Any], cells: dict[str, Any]
) -> None:
    row = {
        "name": [name],
        "arrival": [arrival],
        "settings": [json.dumps(settings)],
        **{column: [values] for column, values in cells.items()},
    }
    file = context.layout.models.write(pa.table(row, schema=MODELS), label="model")
    number = (context.arrivals.fence(ARRIVALS) or 0) + 1
    context.arrivals.commit([file], fences=[(ARRIVALS, number)])
    context.forget_models()


def registered(context: Context, name: str) -> Registration:
    """What is known of a model that is registered."""
    known = context.model(name)
    rows = labelled_rows(context, known)
    truth, votes = (rows.column(column).to_numpy() for column in ("truth", "vote"))
    counts = known.counted(len(context.classes))
    matrix = None if known.probabilities is None else np.ones(1)
    evidence = LabelledData(
        truth,
        votes,
        pending=known.pending,
        counts=counts if len(counts.counts) else None,
        matrix=matrix,
        accuracy=known.settings["accuracy"],
    )
    return registration(context, name, evidence)


def registration(context: Context, name: str, evidence: LabelledData) -> Registration:
    """What is known now, and a warning where that is little."""
    found, known = _found(context, name, evidence), context.models.get(name)
    if known is None:
        return found
    source = shown_source(known.settings["predict"])
    return replace(found, source=source, cost=known.settings["cost"])


def _found(context: Context, name: str, evidence: LabelledData) -> Registration:
    if evidence.pending:
        return Registration(name, 0, None, None, len(evidence.truth), evidence.note)
    if evidence.matrix is not None or evidence.accuracy is not None:
        warning = "stated, not counted: how sure that is, nobody can tell"
        return Registration(name, 0, evidence.accuracy, None, 0, warning)
    cells = evidence.cells(context.classes)
    total, right = int(cells.counts.sum()), int(cells.right.sum())
    low, high = wilson(right, total)
    told = [evidence.note] if evidence.note else []
    per_class = cells.truth_counts
    if (high - low) / 2 > WIDE:
        told.append(
            f"{total:,} labelled items tell the accuracy only to ±{50 * (high - low):.0f} points"
        )
    if (per_class < FEW_PER_CLASS).any():
        told.append(
            f"{int((per_class < FEW_PER_CLASS).sum()):,} of {len(per_class):,} classes have fewer "
            f"than {FEW_PER_CLASS} labelled items, {int((per_class == 0).sum()):,} have none"
        )
    return Registration(name, total, right / total, (low, high), 0, "; ".join(told))
