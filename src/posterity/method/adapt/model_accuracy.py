"""Model accuracy: models that err more, or less, on a target than on the labelled set.

One model may suffer where others do not: from noise, from a new kind of text. Votes show that too,
if less clearly than that all items are harder (see ``difficulty``): a model that is outvoted more
often than on labelled items errs more often. So each model's log-odds of being right get an offset,

    log α'_td / (1 − α'_td) = log α_td / (1 − α_td) + δ_t,

by expectation-maximisation from the votes on a sample of the target: δ_t is such that t is right
as often as believed given all votes. That is a maximum a posteriori. The fit on the labelled set is
the prior: levels, copied wrong labels and what classes differ by stay as they are, a few numbers
move, and not the further the more items are looked at. As with difficulty, what the same finds on
labelled items, cross-fitted, is taken off, and what is left is shrunk towards 0 as far as it
could be chance. No offset turns a confusion around: a model stays likelier to name the truth
than any wrong class, wherever it was so on the labelled set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from posterity.method import kernels
from posterity.method.beliefs.dependent import Dependence
from posterity.method.beliefs.patterns import Patterns
from posterity.method.data.arrays import Floats, Mask
from posterity.method.data.votes import MISSING, VoteTable

TURNS = 4
WIDTH = 0.5
"""The standard deviation of offsets before anything is looked at."""
WIDEST = 1.5
"""No model is taken to be further from what it is on the labelled set."""
DOUBT = 2.0
"""At so many standard errors half of an offset is believed."""
LEAST, MOST = 0.001, 0.999
"""As ``fit`` has it: nothing is certain."""
FLAT = 1e-9
HALVINGS = 12


@dataclass(frozen=True, eq=False)
class Offsets:
    """What the votes on some items say of how often each model is right."""

    sizes: Floats
    """(T,) δ; 0 where nothing tells."""
    errors: Floats
    """(T,) their standard errors; infinite where nothing tells."""


def offsets_of(fit: Dependence, given: VoteTable, who: Sequence[int]) -> Offsets:
    """Of items with votes (n, M) of the models ``who``, under a calibrated fit."""
    # A single vote agrees with itself: it says nothing of who errs.
    votes = given[np.flatnonzero((given.hard != MISSING).sum(axis=1) > 1)]
    sizes, errors = np.zeros(fit.models), np.full(fit.models, np.inf)
    if not len(votes):
        return Offsets(sizes, errors)
    first = np.zeros(fit.models)
    for turn in range(TURNS):
        believed, thought, spread = _rightness(moved(fit, sizes), votes, who)
        slope = _by_model(believed - thought, who, fit.models)
        curve = _by_model(spread, who, fit.models)
        step = (slope - sizes / WIDTH**2) / (curve + 1 / WIDTH**2)
        sizes = np.clip(sizes + step, -WIDEST, WIDEST)
        if turn == 0:
            first = sizes
            noise = np.sqrt(_by_model((believed - thought) ** 2, who, fit.models))
            known = curve > FLAT
            errors[known] = (noise[known] + 0.5) / curve[known]
    # Later turns enlarge what the first one saw, and its error with it.
    grown = np.where(np.abs(first) > FLAT, sizes / np.where(first, first, 1.0), 1.0)
    return Offsets(sizes, errors * np.maximum(1.0, grown))


def difference(target: Offsets, labelled: Sequence[Offsets]) -> Floats:
    """δ of the target beyond those of the labelled set, shrunk towards 0 as chance allows."""
    sizes = np.stack([part.sizes for part in labelled])
    errors = np.stack([part.errors for part in labelled])
    parts = len(labelled)
    with np.errstate(invalid="ignore"):
        chance = target.errors**2 + (errors**2).sum(axis=0) / parts**2 + sizes.var(axis=0) / parts
        size = target.sizes - sizes.mean(axis=0)
        drawn = size * size**2 / (size**2 + DOUBT**2 * chance)
    return np.where(np.isfinite(chance) & (size != 0), drawn, 0.0)


def moved(fit: Dependence, sizes: Floats) -> Dependence:
    """The same with each model right more or less often; see ``guarded``."""
    if not sizes.any():
        return fit
    odds = fit.accuracies / (1 - fit.accuracies) * np.exp(sizes)[:, None]
    right = (odds / (1 + odds)).clip(LEAST, MOST)
    accuracies = np.where(sizes[:, None] == 0, fit.accuracies, right)
    # What was true of labelled items with the same votes is not true of other models.
    return replace(fit, accuracies=accuracies, patterns=Patterns.none(fit.models))


def guarded(fit: Dependence, sizes: Floats) -> Floats:
    """The offsets, each halved until it turns no confusion around."""
    held = _upright(fit)
    kept = sizes.copy()
    for _ in range(HALVINGS):
        turned = (held & ~_upright(moved(fit, kept))).any(axis=1)
        if not turned.any():
            return kept
        kept[turned] /= 2
    kept[turned] = 0.0
    return kept


def _upright(fit: Dependence) -> Mask:
    """(T, K) whether a model is likelier to name a truth than the wrong class it names most."""
    out = np.empty((fit.models, fit.classes), dtype=np.bool_)
    truths = np.repeat(np.arange(fit.classes), np.diff(fit.starts))
    totals = np.bincount(truths, fit.seen, minlength=fit.classes) + fit.pull
    for model, rates in enumerate(fit.rates):
        right = right_of(fit, model)
        order = np.argsort(-rates, kind="stable")[:2]
        other = np.where(np.arange(fit.classes) == order[0], rates[order[-1]], rates[order[0]])
        generic = other / (1 - rates)
        # With what was seen under the truth the likeliest wrong class may be another one.
        seen = np.zeros(fit.classes)
        often = fit.seen + fit.pull * rates[fit.wrong] / (1 - rates[truths])
        np.maximum.at(seen, truths, np.where(fit.wrong == truths, 0.0, often / totals[truths]))
        out[model] = right > (1 - right) * np.maximum(generic, seen)
    return out


def right_of(fit: Dependence, model: int) -> Floats:
    """(K,) how often a model is right under each truth."""
    odds = fit.accuracies[model] / (1 - fit.accuracies[model])
    shifted = np.exp(fit.shifts[model])[:, None] * odds
    chance: Floats = (fit.levels * shifted / (1 + shifted)).sum(axis=1)
    return chance


def most(before: Dependence, after: Dependence) -> float:
    """By how much the accuracy of the model that was moved most was moved."""
    return max(
        abs(float(before.prior @ (right_of(after, at) - right_of(before, at))))
        for at in range(before.models)
    )


def _rightness(
    fit: Dependence, votes: VoteTable, who: Sequence[int]
) -> tuple[Floats, Floats, Floats]:
    shape = votes.hard.shape
    out = np.empty(shape), np.empty(shape), np.empty(shape)
    given = *fit.inputs(votes, who), *out
    kernels.compiler.spread(len(votes), kernels.adapt.rightness, *given)
    return out


def _by_model(each: Floats, who: Sequence[int], models: int) -> Floats:
    """Added up over items; a model may have several columns, of several steps."""
    total = np.zeros(models)
    np.add.at(total, np.asarray(who, dtype=np.int64), each.sum(axis=0))
    return total
