"""Labelled votes: those a model came with, and those on items people have answered about.

Nothing is copied: the answers are those of the reviews that count, and the votes those of the
ledger, so that a review that is reverted, or an item that is removed, is forgotten by the next fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.engine.items.lookup import id_of
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.fits import Registered
from posterity.engine.ledger.history import ShardHistory
from posterity.method.beliefs import temperature
from posterity.method.beliefs.temperature import Temperature
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import MISSING, SoftVotes
from posterity.storage import parquet
from posterity.storage.delta.schema import WEIGHT
from posterity.validation import shift
from posterity.validation.expectation import LEAST


def answered_votes(
    context: Context, models: Sequence[str], known: Collection[str]
) -> tuple[Codes, Codes]:
    """Votes (n, T) of models on items whose answers are to be learnt from, −1 for none; truths.

    They tell how models err together, and nothing else: which items a step would choose and how
    far beliefs hold is rehearsed on the labelled items of the models, which nobody has picked.
    ``known``: the keys of those, which do not count twice.
    """
    reviews, live = context.live_reviews, context.live_updates
    learnt, known = [header for header in reviews if header.learn], set(known)
    places = {name: at for at, name in enumerate(models)}
    votes, truth = [np.zeros((0, len(models)), np.int32)], [np.zeros(0, np.int32)]
    for shard, start, items in context.shards if learnt else []:
        history = ShardHistory.read(context.ledger, shard, start, items)
        here = (history.pins(learnt) != MISSING) & ~context.removed.among(start, items)
        rows = np.flatnonzero(here)
        if not len(rows):
            continue
        cast = np.full((len(rows), len(models)), MISSING, dtype=np.int32)
        for header, own in zip(live, history.votes_of(rows, live), strict=True):
            place = places.get(header.voter)
            if place is not None:
                cast[:, place] = np.where(own.hard == MISSING, cast[:, place], own.hard)
        ids = id_of(context, pa.array(rows + start), shard).to_pylist()
        new = np.array([str(one) not in known for one in ids], dtype=np.bool_)
        keep = new & (cast != MISSING).any(axis=1)
        votes.append(cast[keep])
        truth.append(history.pins(reviews)[rows][keep])  # a later answer holds
    return np.concatenate(votes), np.concatenate(truth)


@dataclass(frozen=True, eq=False)
class Labelled:
    """What the models of a store have voted on the same labelled items."""

    truth: Codes
    votes: Codes
    """(n, T) −1 where a model has none."""
    soft: list[SoftVotes | None]
    """Of each model, where all of its votes on these items are soft."""
    keys: list[str]
    given: int
    """How many there were before they were weighed."""


def labelled_of(context: Context, models: Sequence[str], *, dependent: bool) -> Labelled | None:
    """The labelled items of these models; None where too few are known to be the same.

    For dependent beliefs only those that weights leave, and soft votes as they are.
    """
    if not all(context.models[name].settings.keyed for name in models):
        return None  # also where a confusion was stated: nobody knows on which items
    tables = [labelled_rows(context, context.models[name]) for name in models]
    weight_of: dict[str, float] = {}
    rows_of = []
    for own in tables:
        names, cast = own.column("key").to_pylist(), own.column("vote").to_pylist()
        rows_of.append({key: row for row, key in enumerate(names) if cast[row] != MISSING})
        weights = labelled_weights(own)
        if weights is not None:  # the latest that came with any has it
            weight_of = dict(zip(names, weights.tolist(), strict=True))
    keys = sorted(set(rows_of[0]).intersection(*rows_of[1:]))
    places = np.array([[rows[key] for key in keys] for rows in rows_of], dtype=np.int64)
    truths, votes = (
        np.stack(
            [own.column(name).to_numpy()[at] for own, at in zip(tables, places, strict=True)],
            axis=1,
        )
        for name in ("truth", "vote")
    )
    # Models that disagree about the truth of an item cannot be compared on it.
    kept = np.flatnonzero((truths == truths[:, :1]).all(axis=1))
    given = len(kept)
    if weight_of and dependent and given >= LEAST:
        kept = kept[shift.kept(np.array([weight_of[keys[at]] for at in kept.tolist()]))]
    if len(kept) < LEAST:
        return None
    soft: list[SoftVotes | None] = []
    for own, at in zip(tables, places, strict=True):
        each = parquet.from_columns(own, own.column("vote").to_numpy()) if dependent else None
        each = None if each is None else each[at[kept]]
        soft.append(None if each is None or (each.hard == MISSING).any() else each)
    return Labelled(
        truths[kept, 0].astype(np.int32),
        votes[kept].astype(np.int32),
        soft,
        [keys[at] for at in kept.tolist()],
        given,
    )


def labelled_truth(context: Context, model: Registered) -> tuple[list[str], Codes]:
    """The keys of a model's labelled items and their truth."""
    own = labelled_rows(context, model)
    return own.column("key").to_pylist(), own.column("truth").to_numpy()


def labelled_rows(context: Context, model: Registered) -> pa.Table:
    """Its rows by digest: a registration that was cut short leaves rows nobody refers to.

    The same one made again leaves them twice.
    """
    table = context.labelled
    own = table.filter(
        pc.and_(
            pc.equal(table.column("model"), model.name),
            pc.equal(table.column("digest"), model.settings.digest),
        )
    )
    if not model.settings.keyed:
        return own.slice(0, model.settings.labelled)
    _, first = np.unique(own.column("key").to_pylist(), return_index=True)
    return own.take(pa.array(np.sort(first)))


def labelled_weights(rows: pa.Table) -> Floats | None:
    """The weights of labelled items, where they came with any."""
    weights = rows.column(WEIGHT)
    return None if weights.null_count else np.asarray(weights)


def are_lost(context: Context, model: Registered) -> bool:
    """Whether labelled votes are lost; those on stored items go with the items."""
    settings = model.settings
    return not settings.stored and labelled_rows(context, model).num_rows < settings.labelled


def checksum(rows: pa.Table) -> str:
    """Names what labelled votes are, in whatever order."""
    listed = sorted(map(repr, rows.to_pylist()))
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]


def temperatures_of(context: Context, models: Sequence[str]) -> dict[str, Temperature]:
    """Of the models that have labelled soft votes; those of the others count as they are."""
    found = {}
    for name in models:
        own = labelled_rows(context, context.models[name])
        soft = parquet.from_columns(own, own.column("vote").to_numpy())
        if soft is not None:
            truth = own.column("truth").to_numpy()
            found[name] = temperature.fit(soft, truth, classes=len(context.classes))
    return found
