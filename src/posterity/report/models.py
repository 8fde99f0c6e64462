"""Models: how each errs on the labelled set, class by class, and how far they agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from posterity._arrays import Codes, Counts
from posterity.engine.context import Context
from posterity.engine.fits import Registered
from posterity.engine.registering import labelled_rows
from posterity.engine.steps import live_updates
from posterity.expectations import wilson
from posterity.votes import MISSING

SHOWN = 24
"""Classes of a heat map; of more of them those with most errors are shown."""
CONFUSED = 15


def models_view(context: Context) -> dict[str, Any]:
    """The models in their order of arrival, and on how many labelled items they agree."""
    votes: dict[str, int] = {}
    for header in live_updates(context.headers):
        name = header.model or ""
        votes[name] = votes.get(name, 0) + int(header.report.get("evaluations", 0))
    listed = [
        _model(context, model) | {"votes": votes.get(model.name, 0)}
        for model in context.models.values()
    ]
    return {"models": listed, "agreement": agreement_view(context)}


def model_view(context: Context, name: str) -> dict[str, Any]:
    """How one model errs, class by class."""
    model = context.model(name)
    counts, classes = model.count_table(len(context.classes)), context.classes.names
    truths = counts.sum(axis=0)
    right = counts.diagonal()
    per_class = [
        {
            "class": str(classes[at]),
            "labelled": int(truths[at]),
            "right": int(right[at]),
            "accuracy": float(right[at] / truths[at]),
            "low": wilson(int(right[at]), int(truths[at]))[0],
            "high": wilson(int(right[at]), int(truths[at]))[1],
        }
        for at in np.flatnonzero(truths).tolist()
    ]
    return {
        **_model(context, model),
        "classes": sorted(per_class, key=lambda row: (row["accuracy"], row["class"])),
        "unlabelled": int((truths == 0).sum()),
        "confusion": _heat_map(counts, classes),
        "confused": _confused(counts, classes),
        "stated": model.probabilities is not None or model.settings.get("accuracy") is not None,
    }


def _model(context: Context, model: Registered) -> dict[str, Any]:
    counts = model.count_table(len(context.classes))
    right, labelled = int(counts.trace()), int(counts.sum())
    low, high = wilson(right, labelled) if labelled else (None, None)
    stated = model.settings.get("accuracy")
    source = model.settings.get("predict")
    return {
        "model": model.name,
        "arrival": model.arrival,
        "labelled": labelled,
        "accuracy": right / labelled if labelled else stated,
        "low": low,
        "high": high,
        "pending": model.pending,
        "cost": model.settings.get("cost"),
        # Addresses may have credentials in them.
        "source": None if source is None else source.split("?")[0].split("@")[-1],
    }


def _heat_map(counts: Counts, names: Any) -> dict[str, Any]:
    """Shares of votes by truth, of the classes that are taken for each other most.

    Those of a pair beside each other, or all in their order where there is room for all.
    """
    seen = np.flatnonzero(counts.sum(axis=0))
    at = seen
    if len(seen) > SHOWN:
        off = counts[np.ix_(seen, seen)].copy()
        np.fill_diagonal(off, 0)
        first = np.argsort(-off, axis=None, kind="stable")[: SHOWN**2]
        pairs = np.stack(np.unravel_index(first, off.shape), axis=1)
        at = seen[list(dict.fromkeys(pairs.ravel().tolist()))[:SHOWN]]
    truths = np.maximum(counts.sum(axis=0)[at], 1)
    shares = counts[np.ix_(at, at)] / truths
    return {
        "classes": [str(names[code]) for code in at.tolist()],
        "of": len(seen),
        "shares": shares.tolist(),
        "labelled": counts.sum(axis=0)[at].tolist(),
    }


def _confused(counts: Counts, names: Any) -> list[dict[str, Any]]:
    """The most frequent errors."""
    off = counts.copy()
    np.fill_diagonal(off, 0)
    flat = np.argsort(-off, axis=None, kind="stable")[:CONFUSED]
    found = []
    for vote, truth in zip(*np.unravel_index(flat, off.shape), strict=True):
        if off[vote, truth]:
            found.append(
                {
                    "truth": str(names[truth]),
                    "vote": str(names[vote]),
                    "items": int(off[vote, truth]),
                    "share": float(off[vote, truth] / counts[:, truth].sum()),
                }
            )
    return found


def agreement_view(context: Context) -> dict[str, Any] | None:
    """On how many labelled items two models say the same, and the same wrong; None: not known."""
    known = [
        model for model in context.models.values() if model.settings["keyed"] and not model.pending
    ]
    if len(known) < 2:
        return None
    votes, truth = _aligned(context, known)
    if not len(truth):
        return None
    agree = [[float((one == other).mean()) for other in votes] for one in votes]
    wrong = [vote != truth for vote in votes]
    alike = [
        [
            _share((votes[a] == votes[b]) & wrong[a] & wrong[b], wrong[a] | wrong[b])
            for b in range(len(known))
        ]
        for a in range(len(known))
    ]
    return {
        "models": [model.name for model in known],
        "items": len(truth),
        "agree": agree,
        "same_errors": alike,
    }


def _share(some: Any, of: Any) -> float:
    """Of the items one of two models is wrong on, those both are wrong on alike."""
    return float(some.sum() / max(1, of.sum()))


def _aligned(context: Context, models: list[Registered]) -> tuple[list[Codes], Codes]:
    """The votes of models on the labelled items all of them have, by key, and their truth."""
    columns = []
    for model in models:
        own = labelled_rows(context, model)
        own = own.filter(pc.not_equal(own.column("vote"), MISSING))
        key = own.column("key").to_numpy(zero_copy_only=False).astype(str)
        order = np.argsort(key, kind="stable")
        vote, truth = (own.column(name).to_numpy()[order] for name in ("vote", "truth"))
        columns.append((key[order], vote, truth))
    common = columns[0][0]
    for key, _, _ in columns[1:]:
        common = common if np.array_equal(common, key) else np.intersect1d(common, key)
    places = [np.searchsorted(key, common) for key, _, _ in columns]
    votes = [vote[at] for (_, vote, _), at in zip(columns, places, strict=True)]
    return votes, columns[0][2][places[0]]
