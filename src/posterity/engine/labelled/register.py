"""Register: make a model known, and say how well that is founded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from posterity._text import Result, counted, lines
from posterity.engine.items.lookup import rows_or_none
from posterity.engine.labelled.labelled_file import (
    NOTHING,
    UNKNOWN_ITEM,
    LabelledData,
    StoredVotes,
    read_evidence,
)
from posterity.engine.labelled.labelled_votes import (
    are_lost,
    checksum,
    labelled_rows,
    labelled_truth,
    labelled_weights,
)
from posterity.engine.ledger.commit import attempts
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.fits import Registered
from posterity.engine.ledger.history import ShardHistory
from posterity.errors import CommitConflict, InvalidData
from posterity.method.beliefs.confusion import Cells
from posterity.method.data.arrays import Codes, Rows
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.method.decide.defaults import DEPENDENT
from posterity.models.class_map import ModelSettings
from posterity.models.model import Model, shown_source
from posterity.storage import parquet
from posterity.storage.delta.schema import MODELS, WEIGHT
from posterity.validation.expectation import wilson

ARRIVALS = "posterity.models"
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
    labels: str = ""
    """What became of labels, where the truth of stored items was given."""

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
        return lines((told, f"warning: {self.warning}" if self.warning else "", self.labels))


def register(
    context: Context, model: Model, *, stored: StoredVotes | None = None
) -> Registration | None:
    """Make a model known, however many others are registering at the same time.

    None if nothing new was said of a model that is known. ``stored`` tells its votes on stored
    items where they are not in the ledger yet.
    """
    for now in attempts(context):
        with suppress(CommitConflict):
            made = _register(now, model, stored or stored_votes(now, model.name))
            if now is not context:
                context.forget_models()
            return made
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
    evidence = read_evidence(context, model, stored)
    if known is None or (known.pending and not evidence.pending):
        return evidence
    if known.settings.digest == evidence.digest and are_lost(context, known):
        return evidence
    if _adds_soft(known, evidence):
        return evidence
    if not _same(context, known, evidence):
        raise InvalidData(
            f"A model '{model.name}' is registered with other labelled votes.",
            hint="Leave them out to go on with that model, or give the new one another name.",
        )
    return None


def _adds_soft(known: Registered, evidence: LabelledData) -> bool:
    """Whether the labelled votes are those a model came with, now with their probabilities."""
    hard = replace(evidence, soft=None)
    return evidence.digest != known.settings.digest == hard.digest


def _same(context: Context, known: Registered, evidence: LabelledData) -> bool:
    """Whether a model came with this already.

    The truth of stored items is the same whatever was voted on them, or removed, since.
    """
    if known.settings.digest == evidence.digest:
        return True
    if not (evidence.stored and known.settings.stored):
        return False
    keys, truth = labelled_truth(context, known)
    left = rows_of_keys(context, keys) >= 0
    listed = zip(keys, truth.tolist(), left.tolist(), strict=True)
    said = dict(zip(evidence.keys or [], evidence.truth.tolist(), strict=True))
    return all(said.get(key) == code for key, code, has in listed if has)


def _register(context: Context, model: Model, stored: StoredVotes) -> Registration | None:
    evidence = _evidence(context, model, stored)
    known = context.models.get(model.name)
    stated = model.settings(context.classes)
    settings = stated if known is None else known.settings.revised(stated)
    if evidence is not None:
        _write(context, model.name, known, evidence, settings)
        return registration(context, model.name, evidence)
    if known is not None and settings != known.settings:
        _commit(context, replace(known, settings=replace(settings, revision=settings.revision + 1)))
    return None


def complete(context: Context, name: str, rows: Rows, votes: ModelVotes) -> Registration:
    """A model that was to vote on its labelled items has done so."""
    for now in attempts(context):
        if not now.model(name).pending:
            return registered(now, name)  # somebody else was faster
        with suppress(CommitConflict):
            made = _complete(now, name, rows, votes)
            if now is not context:
                context.forget_models()
            return made
    raise CommitConflict("Too many others are registering models; the votes are kept.")


def _complete(context: Context, name: str, rows: Rows, votes: ModelVotes) -> Registration:
    known = context.model(name)
    if not known.pending:
        return registered(context, name)  # somebody else was faster
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
    return pa.chunked_array([pa.array(keys, pa.string()).cast(kind)])


def stored_votes(context: Context, name: str) -> StoredVotes:
    """A model's votes as the ledger has them."""

    def look_up(ids: pa.ChunkedArray) -> ModelVotes:
        rows = np.asarray(rows_or_none(context, ids).fill_null(-1))
        votes = ModelVotes(np.where(rows < 0, np.int32(UNKNOWN_ITEM), np.int32(MISSING)))
        own = [header for header in context.live_updates if header.model == name]
        for shard, start, items in context.shards if own else []:
            at = np.flatnonzero((rows >= start) & (rows < start + items))
            if not len(at):
                continue
            history = ShardHistory.read(context.ledger, shard, start, items)
            for cast in history.votes_of(rows[at] - start, own):
                has = np.flatnonzero(cast.hard != MISSING)
                votes = votes.put(at[has], cast[has])
        return votes

    return StoredVotes(context.id_kind, look_up)


def given_truths(context: Context, model: Model) -> tuple[Rows, Codes] | None:
    """The truth of stored items a model was given with, by row.

    None where it came with nothing of the kind. Keys that equal ids are not enough: only truth that
    was given as being about stored items is.
    """
    if model.labelled is None or model.keep_labels:
        return None
    evidence = read_evidence(context, model, stored_votes(context, ""))  # of nobody: truths only
    if not evidence.stored:
        return None
    rows = rows_of_keys(context, evidence.keys or [])
    order = np.argsort(rows)
    return rows[order], evidence.truth[order]


def _shared_truth(context: Context, stored: StoredVotes) -> LabelledData | None:
    """The truth of stored items that another model came with serves for all."""
    for model in sorted(context.models.values(), key=lambda model: -model.arrival):
        if model.settings.stored:
            keys, truth = labelled_truth(context, model)
            votes = stored.look_up(typed_keys(context, keys))
            if (votes.hard != UNKNOWN_ITEM).any():  # items may have been removed since
                weights = labelled_weights(labelled_rows(context, model))
                return LabelledData.of_stored(keys, truth, votes, weights)
    return None


def _write(
    context: Context,
    name: str,
    known: Registered | None,
    evidence: LabelledData,
    settings: ModelSettings,
) -> None:
    """Labelled votes first, then the row that makes them visible."""
    count = len(evidence.truth)
    settings = replace(
        settings,
        digest=evidence.digest,
        keyed=evidence.keys is not None,
        labelled=count,
        stored=evidence.stored,
        pending=evidence.pending,
        accuracy=evidence.accuracy,
        classes_then=len(context.classes),
        revision=0 if known is None else known.settings.revision + 1,
        checksum=None,
    )
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
        settings = replace(settings, checksum=checksum(labelled))
        table.head().commit([table.write(labelled, label="labelled")])
    arrival = len(context.models) if known is None else known.arrival
    _commit(context, Registered(name, arrival, settings, *evidence.confusion(context.classes)))


def _commit(context: Context, model: Registered) -> None:
    votes, truths = model.cells
    row = {
        "name": model.name,
        "arrival": model.arrival,
        "settings": model.settings.to_json(),
        "vote": votes,
        "truth": truths,
        "count": model.counts,
        "probability": model.probabilities,
    }
    file = context.layout.models.write(pa.Table.from_pylist([row], schema=MODELS), label="model")
    number = (context.arrivals.fence(ARRIVALS) or 0) + 1
    context.arrivals.commit([file], fences=[(ARRIVALS, number)])
    context.forget_models()


def not_calibrated(name: str) -> str:
    """Why a model's probabilities do not count, and what would change that."""
    return (
        f"the probabilities of {name} are kept but not used: none of its labelled votes has any to "
        "calibrate them on. Register it again with the same labelled votes and their probabilities "
        "(labelled_soft, --labelled-soft)"
    )


def registered(context: Context, name: str) -> Registration:
    """What is known of a model that is registered."""
    known = context.model(name)
    waiting = labelled_rows(context, known).num_rows if known.pending else None
    stated = known.probabilities is not None or known.settings.accuracy is not None
    cells = None if stated else known.counted(len(context.classes))
    return _registration(context, name, waiting, cells, known.settings.accuracy)


def registration(context: Context, name: str, evidence: LabelledData) -> Registration:
    """What is known now, and a warning where that is little."""
    waiting = len(evidence.truth) if evidence.pending else None
    stated = evidence.matrix is not None or evidence.accuracy is not None
    cells = None if stated else evidence.cells(context.classes)
    notes = [evidence.note] if evidence.note else []
    known = context.models.get(name)
    softly = known is not None and known.settings.soft is not None and evidence.soft is None
    dependent = context.description.beliefs == DEPENDENT  # plain ones take them as they are given
    if softly and dependent and cells is not None and not waiting:
        notes.append(not_calibrated(name))
    return _registration(context, name, waiting, cells, evidence.accuracy, notes)


def _registration(
    context: Context,
    name: str,
    waiting: int | None,
    cells: Cells | None,
    accuracy: float | None,
    notes: Sequence[str] = (),
) -> Registration:
    """``waiting``: labelled items it votes on first; ``cells``: None where they were stated."""
    known = context.models.get(name)
    settings = ModelSettings() if known is None else known.settings
    source, cost = shown_source(settings.predict), settings.cost
    if waiting is not None:
        return Registration(name, 0, None, None, waiting, "; ".join(notes), source, cost)
    if cells is None:
        warning = "stated, not counted: how sure that is, nobody can tell"
        return Registration(name, 0, accuracy, None, 0, warning, source, cost)
    total, right = int(cells.counts.sum()), int(cells.right.sum())
    low, high = wilson(right, total)
    warnings = [*notes]
    few = cells.truth_counts < FEW_PER_CLASS
    if (high - low) / 2 > WIDE:
        warnings.append(
            f"{total:,} labelled items tell the accuracy only to ±{50 * (high - low):.0f} points"
        )
    if few.any():
        warnings.append(
            f"{int(few.sum()):,} of {len(few):,} classes have fewer than {FEW_PER_CLASS} labelled "
            f"items, {int((cells.truth_counts == 0).sum()):,} have none"
        )
    told = "; ".join(warnings)
    return Registration(name, total, right / total, (low, high), 0, told, source, cost)
