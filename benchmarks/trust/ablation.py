"""What each part of the belief model brings, on identical histories.

The first model has voted on every item, each later one on a random share. The same histories are
believed by the whole model and by the model without one of its parts, fitted and calibrated on the
labelled half as always: nothing is chosen by the beliefs, so that nothing else differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust.experiments import Given
from posterity import priors
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.beliefs.plain import Beliefs
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import MISSING
from posterity.replay.split import Parts, from_source, read_split, take_apart

SHARES = (0.1, 0.3, 1.0)
WRONG_LABELS, PRODUCT = 5, 6
"""Places of two numbers in the calibrator."""


def _as_it_is(fit: Dependence) -> Dependence:
    return fit


def _one_level(fit: Dependence) -> Dependence:
    """Each model has one accuracy, whatever the item; class shifts stay."""
    right = (fit.prior @ fit.levels) @ fit.accuracies.T
    return replace(fit, levels=np.ones((fit.classes, 1)), accuracies=right[:, None])


def _no_copies(fit: Dependence) -> Dependence:
    return replace(fit, copies=np.zeros_like(fit.copies))


def _no_classes(fit: Dependence) -> Dependence:
    """All classes are equally hard, for every model."""
    overall = fit.prior @ fit.levels
    return replace(fit, levels=np.tile(overall, (fit.classes, 1)), shifts=np.zeros_like(fit.shifts))


def _no_wrong_labels(fit: Dependence) -> Dependence:
    """Which wrong labels were seen under which truth is forgotten."""
    return replace(
        fit,
        starts=np.zeros_like(fit.starts),
        wrong=fit.wrong[:0],
        seen=fit.seen[:0],
    )


PARTS: dict[str, tuple[Callable[[Dependence], Dependence], tuple[int, ...] | None]] = {
    "everything": (_as_it_is, ()),
    "no levels of difficulty": (_one_level, ()),
    "no copied labels": (_no_copies, ()),
    "no classes": (_no_classes, ()),
    "no wrong labels": (_no_wrong_labels, ()),
    "no plain product": (_as_it_is, (PRODUCT,)),
    "no calibrator": (_as_it_is, None),
}
PLAIN = ("diagonal", "full", "shrunk")


def ablate(to: Given, path: Path) -> None:
    """Measure one recording, its first split; kept as JSON."""
    split = _split(to)
    classes = len(split.target.classes)
    labelled = np.ascontiguousarray(split.labelled.votes.T.astype(np.int32))
    target = np.ascontiguousarray(split.target.votes.T.astype(np.int32))
    prior, side = priors.uniform(classes), np.arange(len(labelled)) % 2
    fits = [
        beliefs_fit.fit(labelled[side != half], split.labelled.truth[side != half], prior)
        for half in (0, 1)
    ]
    whole = beliefs_fit.fit(labelled, split.labelled.truth, prior)
    found = []
    for share in SHARES:
        known, given = _thinned(labelled, share, 1), _thinned(target, share, 2)
        for name, (change, without) in PARTS.items():
            numbers: Floats = np.array(PLAIN_CALIBRATOR)
            if without is not None:
                numbers = beliefs_fit.calibrate(
                    [
                        (change(fit), known[side == half], split.labelled.truth[side == half])
                        for half, fit in enumerate(fits)
                    ],
                    range(labelled.shape[1]),
                    numbers,
                    without=without,
                )
            truth = split.target.truth.astype(np.int32)
            believed = (
                change(whole)
                .calibrated(numbers)
                .believe(given, range(given.shape[1]), asked=truth[:, None])
            )
            found.append(
                _told(share, name, truth, believed.best, believed.belief_best, believed.asked[:, 0])
            )
        found += [_plainly(share, name, split, given) for name in PLAIN]
    path.write_text(json.dumps(found))


def _split(to: Given) -> Parts:
    """As a replay has it."""
    source, models = to.common["source"], to.common["models"]
    recording = to.recording if models is None else to.recording.pick(models)
    if source is not None:
        return from_source(source, recording)
    return take_apart(recording, read_split(None, recording), seed=to.common["seed"])


def _thinned(votes: Codes, share: float, seed: int) -> Codes:
    """A history: all votes of the first model, a random share of the others'."""
    kept = np.random.default_rng(seed).random(votes.shape) < share
    kept[:, 0] = True
    return np.where(kept, votes, np.int32(MISSING))


def _plainly(share: float, estimator: str, split: Parts, given: Codes) -> dict[str, Any]:
    """The product of votes, with confusions of all labelled items."""
    classes = len(split.target.classes)
    beliefs = Beliefs(priors.uniform(classes), len(given))
    for model, cast in enumerate(split.labelled.votes):
        confusion = Confusion.from_pairs(
            split.labelled.truth, cast, classes=classes, estimator=estimator
        )
        rows = np.flatnonzero(given[:, model] != MISSING)
        beliefs.fold(given[rows, model], confusion, rows=rows)
    truth = split.target.truth.astype(np.int32)
    best = beliefs.most_believed()
    return _told(share, estimator, truth, best, beliefs.of_best(), beliefs.of(truth))


def _told(
    share: float, name: str, truth: Codes, best: Codes, sure: Floats, of_truth: Floats
) -> dict[str, Any]:
    return {
        "share": share,
        "part": name,
        "accuracy": 100 * float((best == truth).mean()),
        "off": 100 * float(sure.mean() - (best == truth).mean()),
        "surprise": float(-np.log(np.maximum(of_truth, 1e-12)).mean()),
    }
