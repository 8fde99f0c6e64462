"""Temperatures: what a model's class probabilities are worth, learnt on its labelled soft votes.

A model's probabilities are rarely those of being right. With a sharpness 1/τ and a bias for each
class, of the classes a soft vote keeps

    s̃(k) = (1 − ε) · exp(log s(k) / τ + b_k) / Σ_j exp(log s(j) / τ + b_j)

and ε, the tail, is spread evenly over the classes it does not keep. A temperature alone keeps the
order of the classes. Biases are shrunk towards zero, as hard as halves of the labelled set that
judge each other ask for: with few items a class they stay there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posterity.errors import InvalidData
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Mask
from posterity.method.data.votes import MISSING, SoftVotes, check_codes, check_same_length

FLOOR = 1e-7
"""Half precision cannot tell smaller weights apart."""
DULLEST, SHARPEST = 0.02, 20.0
"""Of the sharpness: votes that are all right, or all wrong, would drive it without end."""
DRAWN = 1.0
"""How hard the sharpness is shrunk towards one; in items."""
RIDGES = (np.inf, 100.0, 30.0, 10.0, 3.0, 1.0)
"""How hard biases are shrunk towards zero; in items."""
LEAST = 20
"""Fewer labelled soft votes than this say nothing of classes."""
CLEARLY = 3.0
"""How much likelier biases must make the other half's truths, in nats, to be no accident."""
TURNS = 60
SIZES = tuple(0.5**power for power in range(12))
"""Of steps uphill: shorter ones where a whole one leads down."""


@dataclass(frozen=True, eq=False)
class Temperature:
    """How a model's probabilities are to be read."""

    sharpness: float
    """1/τ."""
    biases: Floats
    """(K,) b."""
    tail: float
    """ε, how often the truth is none of the classes a soft vote keeps."""
    accuracy: float = 0.5
    """How often the vote beside it is right."""

    @classmethod
    def none(cls, classes: int) -> Temperature:
        """Probabilities as they are."""
        return cls(1.0, np.zeros(classes), 0.0)

    def kept(self) -> Temperature:
        """As a store keeps it: in single precision, and used as it is kept."""
        return from_arrays(to_arrays([self]))[0] or self

    def calibrated(self, soft: SoftVotes) -> SoftVotes:
        """The same votes with probabilities that can be believed, of the classes they keep."""
        return replace(soft, weights=np.exp(self.logs(soft)))

    def logs(self, soft: SoftVotes) -> Floats:
        """(n, m): log s̃ of the classes kept, without the tail; −inf where there is none."""
        held = kept(soft)
        return _logs(self.sharpness, self.biases, _scores(soft, held), soft.codes, held)


def kept(soft: SoftVotes) -> Mask:
    """(n, m) which entries are classes a soft vote keeps: those with a weight."""
    found: Mask = (soft.codes != MISSING) & (soft.weights > 0)
    return found


def fit(soft: SoftVotes, truth: ArrayLike, *, classes: int) -> Temperature:
    """The temperature under which a model's labelled soft votes name the truth most likely.

    Missing votes are left out; without any, probabilities stay as they are.

    >>> soft = SoftVotes.top(np.tile([0.98, 0.02], (100, 1)))    # surer than it is right
    >>> fitted = fit(soft, np.repeat([0, 1], [80, 20]), classes=2)
    >>> float(fitted.calibrated(soft).weights[0, 0].round(2))
    0.8
    """
    known = check_codes(truth, classes, "truth", allow_missing=False)
    check_same_length(votes=len(soft), truth=len(known))
    if int(soft.codes.max(initial=MISSING)) >= classes:
        raise InvalidData(f"'soft' must be about {classes} classes.")
    held = kept(soft)
    present = held.any(axis=1)
    soft, known, held = soft[present], known[present], held[present]
    if not len(known):
        return Temperature.none(classes)
    own = held & (soft.codes == known[:, None])
    inside = own.any(axis=1)
    # Where all classes are kept the truth is among them: that says nothing of the other votes.
    room, outside = int((held.sum(axis=1) < classes).sum()), int((~inside).sum())
    tail = (outside + (outside + 0.5) / (len(known) + 1)) / (room + 1)
    data = _Data(_scores(soft, held)[inside], soft.codes[inside], held[inside], own[inside])
    sharpness, biases = _fit(data, _ridge(data, classes), (1.0, np.zeros(classes)))
    accuracy = float(((soft.hard == known).sum() + 0.5) / (len(known) + 1))
    return Temperature(sharpness, biases, tail, accuracy).kept()


def to_arrays(models: Sequence[Temperature | None]) -> dict[str, Any]:
    """Of several models, to be written to a file; None: nothing is known of its soft votes."""
    classes = max((len(each.biases) for each in models if each is not None), default=0)
    numbers, biases = np.full((len(models), 3), np.nan), np.zeros((len(models), classes))
    for at, each in enumerate(models):
        if each is not None:
            numbers[at] = each.sharpness, each.tail, each.accuracy
            biases[at, : len(each.biases)] = each.biases
    return {"temperatures": numbers.astype(np.float32), "biases": biases.astype(np.float32)}


def from_arrays(arrays: Any) -> list[Temperature | None]:
    """What ``to_arrays`` made."""
    numbers, biases = (arrays[name].astype(np.float64) for name in ("temperatures", "biases"))
    return [
        None
        if np.isnan(own[0])
        else Temperature(float(own[0]), shifts, float(own[1]), float(own[2]))
        for own, shifts in zip(numbers, biases, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Data:
    """Soft votes that keep their truth."""

    scores: Floats
    codes: Codes
    held: Mask
    own: Mask
    """Which entry is the truth."""

    def __len__(self) -> int:
        return len(self.codes)

    def where(self, rows: Mask) -> _Data:
        return _Data(self.scores[rows], self.codes[rows], self.held[rows], self.own[rows])

    def chances(self, sharpness: float, biases: Floats) -> tuple[float, Floats]:
        """The log-likelihood, and s̃ of every entry."""
        logs = _logs(sharpness, biases, self.scores, self.codes, self.held)
        return float(logs[self.own].sum()), np.exp(logs)


def _scores(soft: SoftVotes, held: Mask) -> Floats:
    """The logarithms of what is kept; 0 elsewhere."""
    return np.log(np.where(held, np.maximum(soft.weights, FLOOR), 1.0))


def _logs(sharpness: float, biases: Floats, scores: Floats, codes: Codes, held: Mask) -> Floats:
    worth = np.where(held, sharpness * scores + biases[codes], -np.inf)
    most = worth.max(axis=1, initial=-np.inf, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)  # a missing vote
    total = np.exp(worth - most).sum(axis=1, keepdims=True)
    return worth - most - np.log(np.where(total > 0, total, 1.0))


def _ridge(data: _Data, classes: int) -> float:
    """How hard biases are shrunk: as each half is judged best by the other, or not at all."""
    if len(data) < LEAST:
        return np.inf
    half = np.arange(len(data)) % 2 == 0
    sides = (data.where(half), data.where(~half))
    found = [(1.0, np.zeros(classes)) for _ in sides]
    said: dict[float, float] = {}
    for ridge in RIDGES:
        # From the harder one on: the way from there is short.
        found = [_fit(side, ridge, start) for side, start in zip(sides, found, strict=True)]
        judged = zip(sides, reversed(found), strict=True)
        said[ridge] = sum(side.chances(*learnt)[0] for side, learnt in judged)
        if said[ridge] < max(said.values()):
            break
    best = max(said, key=said.__getitem__)
    return best if said[best] > said[np.inf] + CLEARLY else np.inf


def _fit(data: _Data, ridge: float, start: tuple[float, Floats]) -> tuple[float, Floats]:
    """Uphill by turns: the sharpness, then all biases; no step is taken that leads down."""
    sharpness, biases = start
    drawn = ridge if np.isfinite(ridge) else 0.0

    def worth(sharpness: float, biases: Floats) -> float:
        away = DRAWN * (sharpness - 1) ** 2 + drawn * float((biases**2).sum())
        return data.chances(sharpness, biases)[0] - away / 2

    now = worth(sharpness, biases)
    for _ in range(TURNS):
        before = now
        _, chances = data.chances(sharpness, biases)
        mean = (chances * data.scores).sum(axis=1)
        slope = (data.scores[data.own] - mean).sum() - DRAWN * (sharpness - 1)
        curve = (chances * data.scores**2).sum() - (mean**2).sum() + DRAWN
        for size in SIZES:
            tried = float(np.clip(sharpness + size * slope / curve, DULLEST, SHARPEST))
            after = worth(tried, biases)
            if after >= now:
                sharpness, now = tried, after
                break
        if drawn:
            _, chances = data.chances(sharpness, biases)
            slopes = _added(data, data.own - chances, len(biases)) - drawn * biases
            curves = _added(data, chances * (1 - chances), len(biases)) + drawn
            for size in SIZES:
                moved = biases + size * slopes / curves
                after = worth(sharpness, moved)
                if after >= now:
                    biases, now = moved, after
                    break
        if now - before < 1e-7 * max(1.0, abs(now)):
            break
    return sharpness, biases


def _added(data: _Data, values: Floats, classes: int) -> Floats:
    found: Any = np.bincount(data.codes[data.held], values[data.held], minlength=classes)
    added: Floats = found.astype(np.float64)
    return added
