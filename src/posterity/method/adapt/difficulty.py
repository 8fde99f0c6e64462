"""Difficulty: a target that is harder or easier than the labelled set, told by its votes alone.

Where models disagree more than they did on labelled items, items are harder, and everything
believed of them is too high. So the shares of the levels of difficulty are tilted,

    P(d | k) ∝ P_labelled(d | k) · exp(θ h_d),     h_d the mean error of all models at level d,
                                                   from 0 at the easiest to 1 at the hardest,

with the θ at which levels are as hard as the target's votes say (a few turns of expectation-
maximisation: stopping early draws it to the labelled set). The fewer votes items have, the smaller
a part of the way each turn goes; so where the target looks harder, some more of it is extrapolated
from two turns. One number cannot turn a confusion around. The same is done on the labelled items,
cross-fitted, where the answer should be 0: what comes out there is the method's own error, and is
taken off. What is left is shrunk towards 0 as far as it could be chance. Selection looks at earlier
votes alone, so it does not mislead the likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from posterity.method import kernels
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import Floats
from posterity.method.data.votes import MISSING, VoteTable

TURNS = 2
SHORTEST = 0.5
"""No turn is taken to go less than so much of the way that is left."""
WIDEST = 4.0
"""No target is taken to be further from the labelled set than that."""
PULL = 100.0
"""Items as hard as the labelled ones that are added to those looked at: few prove nothing."""
DOUBT = 2.0
"""At so many standard errors half of a difference is believed."""
FLAT, RARE = 1e-6, 1e-300
BLOCK = 2**14
"""Labelled items that are weighed at once."""


@dataclass(frozen=True)
class Tilt:
    """What the votes on some items say of how hard they are."""

    size: float
    """θ."""
    error: float
    """Its standard error."""
    farther: float | None = None
    """Where more turns would lead, as two of them tell; None: nowhere else."""

    @property
    def end(self) -> float:
        """With what is left of the way."""
        return self.size if self.farther is None else self.farther


def tilt_of(fit: Dependence, given: VoteTable, who: Sequence[int]) -> Tilt:
    """Of items with votes (n, M) of the models ``who``, under a calibrated fit."""
    cast = (given.hard != MISSING).sum(axis=1)
    votes, scale = given[np.flatnonzero(cast)], _scale(fit)
    if scale is None or not (cast > 1).any():
        return Tilt(0.0, np.inf)  # a single vote agrees with itself
    overall, seen = fit.prior @ fit.levels, len(votes)
    mean = float(overall @ scale)
    spread = max(float(overall @ scale**2) - mean**2, FLAT)
    size, before, first, error = 0.0, 0.0, 0.0, 0.0
    for turn in range(TURNS):
        told = _hardness(replace(fit, levels=_tilted(fit.levels, scale, size)), scale, votes, who)
        goal = (float(told.sum()) + PULL * mean) / (seen + PULL)
        before, size = size, _reaching(fit, scale, goal, size)
        if turn == 0:
            # Items that look alike by chance do not make it certain: the levels count for one.
            variance = (seen * float(told.var()) + spread) / (seen + 1)
            first, error = size, float(np.sqrt(variance / seen)) / spread
    # Later turns enlarge what the first one saw, and its error with it.
    error *= max(1.0, size / first if abs(first) > FLAT else 1.0)
    gone = 1 - (size - before) / first if abs(first) > FLAT else 1.0
    return Tilt(size, error, before + (size - before) / min(1.0, max(SHORTEST, gone)))


def tilted(fit: Dependence, size: float) -> Dependence:
    """The same models on items that are harder (θ above 0) or easier."""
    scale = _scale(fit)
    if not size or scale is None:
        return fit
    factors = _factors(fit, np.exp(size * scale))
    levels = _tilted(fit.levels, scale, size)
    return replace(fit, levels=levels, patterns=fit.patterns.weighed(factors))


def _factors(fit: Dependence, tilt: Floats) -> Floats:
    """How much more frequent labelled items like each pattern's are where levels are tilted.

    Which level each is at is told by the models that are right on it.
    """
    seen = fit.patterns
    factors = np.ones(len(seen.truth))
    for rows in np.array_split(np.arange(len(factors)), len(factors) // BLOCK + 1):
        truth = seen.truth[rows]
        odds = (fit.accuracies / (1 - fit.accuracies)) * np.exp(fit.shifts[:, truth].T)[:, :, None]
        right = (seen.votes[rows] == truth[:, None])[:, :, None]
        weights = np.log(np.maximum(fit.levels[truth], RARE)) + np.where(
            right, np.log(odds / (1 + odds)), -np.log1p(odds)
        ).sum(axis=1)
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        mean = (weights @ tilt) / weights.sum(axis=1)
        factors[rows] = mean / (fit.levels[truth] @ tilt)
    return factors


def _tilted(levels: Floats, scale: Floats, size: float) -> Floats:
    if not size:
        return levels  # to the last bit
    moved = levels * np.exp(size * scale)
    moved /= moved.sum(axis=1, keepdims=True)
    return moved


def difference(target: Tilt, labelled: Sequence[Tilt]) -> float:
    """θ of the target beyond that of the labelled set, shrunk towards 0 as chance allows.

    That a target is harder is believed sooner than that it is easier: models that err alike on
    strange items look as if they agreed.
    """
    sizes = np.array([part.size for part in labelled])
    errors = np.array([part.error for part in labelled])
    size = target.size - float(sizes.mean())
    parts = len(labelled)
    chance = target.error**2 + float((errors**2).sum()) / parts**2 + float(sizes.var()) / parts
    if not np.isfinite(chance):
        return 0.0
    trust = size**2 / (size**2 + DOUBT**2 * chance) if size else 0.0
    if size > 0:
        size = max(size, target.end - sum(part.end for part in labelled) / parts)
    return float(np.clip(trust * size, -WIDEST, WIDEST))


def _scale(fit: Dependence) -> Floats | None:
    """h; None where all levels are equally hard."""
    errors = (1 - fit.accuracies).mean(axis=0)
    width = float(errors.max() - errors.min())
    if width < FLAT:
        return None
    scale: Floats = (errors - errors.min()) / width
    return scale


def _hardness(fit: Dependence, scale: Floats, votes: VoteTable, who: Sequence[int]) -> Floats:
    given = fit.inputs(votes, who)
    out = np.empty(len(given[1]))
    kernels.compiler.spread(len(out), kernels.adapt.hardness, *given, scale, out)
    return out


def _reaching(fit: Dependence, scale: Floats, goal: float, near: float) -> float:
    """The θ at which the levels' mean hardness is the goal; by bisection, for it only grows."""
    low, high = near - WIDEST, near + WIDEST
    for _ in range(40):
        middle = (low + high) / 2
        mean = float(fit.prior @ _tilted(fit.levels, scale, middle) @ scale)
        low, high = (middle, high) if mean < goal else (low, middle)
    return (low + high) / 2
