"""Answered: items people have labelled, as labelled items of the models that voted on them.

Nothing is copied: the answers are those of the reviews that count, and the votes those of the
ledger, so that a review that is reverted, or an item that is removed, is forgotten by the next fit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from posterity._arrays import Codes
from posterity.engine.context import Context
from posterity.engine.history import ShardHistory
from posterity.engine.steps import live_reviews, live_updates
from posterity.votes import MISSING


def answered_votes(
    context: Context, models: Sequence[str], known: Collection[str]
) -> tuple[Codes, Codes]:
    """Votes (n, T) of models on items whose answers are to be learnt from, −1 for none; truths.

    They tell how models err together, and nothing else: which items a step would choose and how
    far beliefs hold is rehearsed on the labelled items of the models, which nobody has picked.
    ``known``: the keys of those, which do not count twice.
    """
    reviews, live = live_reviews(context.headers), live_updates(context.headers)
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
            place = places.get(header.model or "")
            if place is not None:
                cast[:, place] = np.where(own.hard == MISSING, cast[:, place], own.hard)
        ids = context.id_of(pa.array(rows + start), shard).to_pylist()
        new = np.array([str(one) not in known for one in ids], dtype=np.bool_)
        keep = new & (cast != MISSING).any(axis=1)
        votes.append(cast[keep])
        truth.append(history.pins(reviews)[rows][keep])  # a later answer holds
    return np.concatenate(votes), np.concatenate(truth)
