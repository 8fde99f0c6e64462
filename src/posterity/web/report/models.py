"""Models: how each errs on the labelled set, class by class, and how far they agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from posterity.engine.labelled.labelled_votes import labelled_rows
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.fits import Registered
from posterity.method.data.arrays import Codes, Counts, Rows
from posterity.method.data.votes import MISSING
from posterity.models.model import shown_source
from posterity.validation.expectation import wilson

SHOWN = 20
"""Classes of a heat map; of more of them those with most errors are shown."""
CONFUSED = 15


def models_view(context: Context) -> dict[str, Any]:
    """The models in their order of arrival, and on how many labelled items they agree."""
    votes: dict[str, int] = {}
    for header in context.live_updates:
        votes[header.voter] = votes.get(header.voter, 0) + header.evaluations
    listed = [
        _model(context, model) | {"votes": votes.get(model.name, 0)}
        for model in context.models.values()
    ]
    return {"models": listed, "agreement": agreement_view(context)}


def model_view(context: Context, name: str) -> dict[str, Any]:
    """How one model errs, class by class."""
    model, classes = context.model(name), context.classes.names
    cells = _Cells.of(model, len(classes))
    per_class = []
    for at in np.flatnonzero(cells.truths).tolist():
        labelled, right = int(cells.truths[at]), int(cells.right[at])
        low, high = wilson(right, labelled)
        rate = {"accuracy": right / labelled, "low": low, "high": high}
        per_class.append({"class": str(classes[at]), "labelled": labelled, "right": right, **rate})
    return {
        **_model(context, model),
        "classes": sorted(per_class, key=lambda row: (row["accuracy"], row["class"])),
        "unlabelled": int((cells.truths == 0).sum()),
        "confusion": cells.heat_map(classes),
        "confused": cells.confused(classes),
        "stated": model.probabilities is not None or model.settings.accuracy is not None,
    }


def _model(context: Context, model: Registered) -> dict[str, Any]:
    cells = _Cells.of(model, len(context.classes))
    right, labelled = int(cells.right.sum()), int(cells.truths.sum())
    low, high = wilson(right, labelled) if labelled else (None, None)
    return {
        "model": model.name,
        "arrival": model.arrival,
        "labelled": labelled,
        "accuracy": right / labelled if labelled else model.settings.accuracy,
        "low": low,
        "high": high,
        "pending": model.pending,
        "cost": model.settings.cost,
        "source": shown_source(model.settings.predict),
    }


@dataclass(frozen=True, eq=False)
class _Cells:
    """How often a model votes what on which truth: only what occurs, however many classes."""

    vote: Codes
    truth: Codes
    count: Counts
    truths: Counts
    """Labelled items of each class."""
    right: Counts
    """Those of them it votes right on."""

    @classmethod
    def of(cls, model: Registered, classes: int) -> _Cells:
        """Of a registered model; nothing where a confusion was stated."""
        counted = model.probabilities is None
        vote, truth = (np.array(codes if counted else [], dtype=np.int32) for codes in model.cells)
        count = np.array(model.counts if counted else [], dtype=np.int64)
        hit = vote == truth
        return cls(
            vote,
            truth,
            count,
            np.bincount(truth, count, classes).astype(np.int64),
            np.bincount(truth[hit], count[hit], classes).astype(np.int64),
        )

    def _errors(self) -> Rows:
        """The cells of errors, the most frequent first."""
        wrong = np.flatnonzero(self.vote != self.truth)
        order: Rows = wrong[np.argsort(-self.count[wrong], kind="stable")]
        return order

    def confused(self, names: Any) -> list[dict[str, Any]]:
        """The most frequent errors."""
        return [
            {
                "truth": str(names[self.truth[at]]),
                "vote": str(names[self.vote[at]]),
                "items": int(self.count[at]),
                "share": float(self.count[at] / self.truths[self.truth[at]]),
            }
            for at in self._errors()[:CONFUSED]
        ]

    def heat_map(self, names: Any) -> dict[str, Any]:
        """Shares of votes by truth, of the classes that are confused most.

        Those of a pair beside each other, or all in their order where there is room for all.
        """
        seen = np.flatnonzero(self.truths).tolist()
        at = seen
        if len(seen) > SHOWN:
            pairs = ((self.vote[one], self.truth[one]) for one in self._errors())
            found = [int(code) for pair in pairs for code in pair if self.truths[code]]
            at = list(dict.fromkeys([*found, *seen]))[:SHOWN]
        place = {code: number for number, code in enumerate(at)}
        shares = np.zeros((len(at), len(at)))
        for vote, truth, count in zip(self.vote, self.truth, self.count, strict=True):
            if int(vote) in place and int(truth) in place:
                shares[place[int(vote)], place[int(truth)]] = count / self.truths[truth]
        return {
            "classes": [str(names[code]) for code in at],
            "of": len(seen),
            "shares": shares.tolist(),
            "labelled": self.truths[at].tolist(),
        }


def agreement_view(context: Context) -> dict[str, Any] | None:
    """On how many labelled items two models say the same, and the same wrong; None: not known."""
    known = [
        model for model in context.models.values() if model.settings.keyed and not model.pending
    ]
    if len(known) < 2:
        return None
    votes = [_Voted.of(context, model) for model in known]
    pairs = [[one.beside(other) for other in votes] for one in votes]
    return {
        "models": [model.name for model in known],
        "items": [[pair[0] for pair in row] for row in pairs],
        "agree": [[pair[1] for pair in row] for row in pairs],
        "same_errors": [[pair[2] for pair in row] for row in pairs],
    }


@dataclass(frozen=True, eq=False)
class _Voted:
    """The labelled items a model has voted on, by key."""

    key: Any
    vote: Codes
    truth: Codes

    @classmethod
    def of(cls, context: Context, model: Registered) -> _Voted:
        own = labelled_rows(context, model)
        own = own.filter(pc.not_equal(own.column("vote"), MISSING))
        key = own.column("key").to_numpy(zero_copy_only=False).astype(str)
        order = np.argsort(key, kind="stable")
        vote, truth = (own.column(name).to_numpy()[order] for name in ("vote", "truth"))
        return cls(key[order], vote, truth)

    def beside(self, other: _Voted) -> tuple[int, float | None, float | None]:
        """Items both have voted on; the share they agree on; and of items one of them is wrong on,
        the share both are wrong on alike.
        """
        vote, truth, votes = self.vote, self.truth, other.vote
        if not np.array_equal(self.key, other.key):
            _, mine, theirs = np.intersect1d(
                self.key, other.key, assume_unique=True, return_indices=True
            )
            vote, truth, votes = vote[mine], truth[mine], votes[theirs]
        if not len(truth):
            return 0, None, None
        wrong = (vote != truth) | (votes != truth)
        alike = (vote == votes) & (vote != truth)
        return len(truth), float((vote == votes).mean()), float(alike.sum() / max(1, wrong.sum()))
