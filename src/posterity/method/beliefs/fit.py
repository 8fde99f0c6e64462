"""Fit: how models err together, and how far beliefs can be trusted, on the labelled set."""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma
from typing import Any

import numpy as np

from posterity.method import kernels
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.beliefs.patterns import CLEARLY, Patterns
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.votes import MISSING, VoteTable

DEPTH = 6
"""Levels of difficulty."""
TURNS = 15
STRENGTHS = tuple(2.0**power for power in range(0, 11))
"""Items that a class's own levels, or a model's own wrong labels, are drawn by."""
VARIANCES = (1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
PULLS = (1.0, 4.0, 16.0, 64.0, 1024.0)
AGREEMENTS = 20.0
"""Common errors of two models that the mean over all pairs counts for."""
MOST_COPIED, MOST_RATE, CERTAIN = 0.995, 0.98, 1e-9

NUMBERS = len(PLAIN_CALIBRATOR) - 1
"""Of the calibrator, but for what labelled items with the same votes count for."""
DRAWN = 1.0
"""How hard the calibrator is shrunk towards its start; in items."""


def fit(
    votes: Codes, truth: Codes, prior: Floats, *, patterns: Patterns | None = None
) -> Dependence:
    """From the votes (n, T) of models in order of arrival on labelled items; −1 for none.

    The calibrator is left plain: see ``calibrate``. ``patterns``: where not all of these items are
    a fair sample of those with the same votes.
    """
    classes, items = len(prior), len(truth)
    cast = np.ascontiguousarray(votes, dtype=np.int32)
    truth = np.ascontiguousarray(truth, dtype=np.int32)
    right = np.where(cast == MISSING, -1, cast == truth[:, None]).astype(np.int8)
    accuracies, shares = _start(right)
    strength = 0.0
    for turn in range(3 * TURNS):
        counts = _added(truth, shares, classes)
        overall = (counts.sum(axis=0) + 0.5) / (items + 0.5 * counts.shape[1])
        if turn in (TURNS, 2 * TURNS):
            # How unlike classes are is told by the levels their items have so far.
            strength = _strength(counts, overall)
        if turn < TURNS:
            levels = np.tile(overall, (classes, 1))
        else:
            levels = (counts + strength * overall) / (counts.sum(axis=1, keepdims=True) + strength)
        kernels.fit.accuracies_of(right, shares, accuracies)
        kernels.fit.responsibilities(right, truth, levels, accuracies, shares)
    shifts = _shifts(right, truth, shares, accuracies, classes)
    rate, cells = _wrong_labels(cast, truth, classes)
    pull = _pull(cast, truth, rate, classes)
    starts, wrong, seen = cells
    return Dependence(
        prior=np.asarray(prior, dtype=np.float64),
        levels=levels,
        accuracies=accuracies,
        shifts=shifts,
        copies=_copies(cast, truth, rate, cells, pull),
        rates=_own_rates(cast, truth, rate),
        starts=starts,
        wrong=wrong,
        seen=seen,
        pull=pull,
        calibrator=np.array(PLAIN_CALIBRATOR),
        patterns=Patterns.of(cast, truth) if patterns is None else patterns,
    ).kept()


def calibrate(
    parts: Sequence[tuple[Dependence, Codes | VoteTable, Codes]],
    who: Sequence[int],
    start: Floats,
    *,
    drawn: float = DRAWN,
    without: Sequence[int] = (),
) -> Floats:
    """The calibrator under which the truths of labelled histories are most likely.

    What labelled items with the same votes count for is not changed: see ``weigh_patterns``.
    ``parts``: fits, and the histories (n, M) and truths of items they were not learnt on. The
    numbers are shrunk towards ``start`` as if ``drawn`` items had told so of each; those at
    the places ``without`` stay there.
    """
    rows, ends, own, begin, longest = [], [], [], 0, 1
    for fitted, given, truth in parts:
        votes = given if isinstance(given, VoteTable) else VoteTable.only(given)
        voted = np.flatnonzero((votes.hard != MISSING).any(axis=1))
        described, last, true = _described(fitted, votes[voted], truth[voted], who)
        rows.append(described)
        ends.append(last + begin)
        own.append(true + begin)
        begin += len(described)
        longest = max(longest, int((votes.hard != MISSING).sum(axis=1).max(initial=1)))
    described, last, true = np.concatenate(rows), np.concatenate(ends), np.concatenate(own)
    described[:, list(without)] = 0.0
    first = start[:NUMBERS]
    numbers = _logit(described, last, true, first, drawn)
    most = np.log(longest)
    if numbers[0] + numbers[1] * most >= 0 or not most:
        return np.append(numbers, start[NUMBERS:])
    # A raw score never speaks against a class: with most votes it says nothing, at the least.
    described[:, 0] -= described[:, 1] / most
    described[:, 1] = 0.0
    numbers = _logit(described, last, true, first, drawn)
    numbers[1] = -numbers[0] / most
    return np.append(numbers, start[NUMBERS:])


def weigh_patterns(
    parts: Sequence[tuple[Dependence, Codes | VoteTable, Codes]],
    who: Sequence[int],
    start: float = 0.0,
) -> float:
    """What a labelled item with the same votes usually counts for; 0: formulas alone are believed.

    ``parts``: calibrated fits, and the histories and truths of items they were not learnt on, which
    it makes likeliest, and clearly likelier than ``start``.
    """
    worths = np.array([0.0, *kernels.patterns.WORTHS])
    likely, out = np.zeros(len(worths)), np.empty(len(worths))
    for fitted, votes, truth in parts:
        looking = fitted.calibrated(np.append(fitted.calibrator[:NUMBERS], 1.0))
        known = np.ascontiguousarray(truth, dtype=np.int32)
        kernels.fit.compare(*looking.inputs(votes, who), known, worths, out)
        likely += out
    best = int(likely.argmax())
    usual = int(np.flatnonzero(worths == start)[0])
    return float(worths[best if likely[best] > likely[usual] + CLEARLY else usual])


def _described(
    fitted: Dependence, votes: VoteTable, truth: Codes, who: Sequence[int]
) -> tuple[Floats, Rows, Rows]:
    most = int((votes.hard != MISSING).sum() + len(votes))
    rows, ends = np.empty((most, NUMBERS)), np.empty(len(votes), dtype=np.int64)
    own = np.empty(len(votes), dtype=np.int64)
    known = np.ascontiguousarray(truth, dtype=np.int32)
    kernels.fit.describe(*fitted.inputs(votes, who), known, ends, rows, own)
    return rows[: ends[-1] if len(ends) else 0], ends, own


def _logit(rows: Floats, ends: Rows, own: Rows, start: Floats, weight: float) -> Floats:
    """Newton's method, with shorter steps where a whole one leads down."""
    numbers = start.copy()
    slope, curve = np.zeros(NUMBERS), np.zeros((NUMBERS, NUMBERS))
    if not len(ends):
        return numbers

    def likelihood(at: Floats) -> float:
        drawn = weight / 2 * float(((at - start) ** 2).sum())
        return float(kernels.fit.logit(rows, ends, own, at, slope, curve)) - drawn

    now = likelihood(numbers)
    for _ in range(50):
        step = np.linalg.solve(curve + weight * np.eye(NUMBERS), slope - weight * (numbers - start))
        size, after = 1.0, likelihood(numbers + step)
        while after < now and size > 1e-6:
            size /= 2
            after = likelihood(numbers + size * step)
        if after < now:
            break
        numbers, now = numbers + size * step, after
        if np.abs(size * step).max() < 1e-6:
            break
    return numbers


def _start(right: Any) -> tuple[Floats, Floats]:
    """Items that nobody gets wrong, and the others in equal groups by the share of wrong votes."""
    cast = right >= 0
    depth = min(DEPTH, right.shape[1] + 1)
    wrong = (right == 0).sum(axis=1) / np.maximum(cast.sum(axis=1), 1)
    level = np.zeros(len(right), dtype=np.int64)
    some = np.flatnonzero(wrong > 0)
    order = some[np.argsort(wrong[some], kind="stable")]
    for group, part in enumerate(np.array_split(order, depth - 1)):
        level[part] = group + 1
    shares = np.full((len(right), depth), 0.02 / depth)
    shares[np.arange(len(right)), level] += 0.98
    return np.empty((right.shape[1], depth)), shares


def _added(truth: Codes, shares: Floats, classes: int) -> Floats:
    return np.stack([np.bincount(truth, share, minlength=classes) for share in shares.T], axis=1)


def _strength(counts: Floats, overall: Floats) -> float:
    """Of a Dirichlet prior around the overall shares, the likeliest for these counts."""
    totals = counts.sum(axis=1)
    known = totals > 0

    def likelihood(strength: float) -> float:
        drawn = strength * overall
        sum_of_logs = known.sum() * (lgamma(strength) - sum(map(lgamma, drawn.tolist())))
        sum_of_logs += sum(map(lgamma, (counts[known] + drawn).ravel().tolist()))
        return float(sum_of_logs - sum(map(lgamma, (totals[known] + strength).tolist())))

    return max(STRENGTHS, key=likelihood)


def _shifts(right: Any, truth: Codes, shares: Floats, accuracies: Floats, classes: int) -> Floats:
    odds = accuracies / (1 - accuracies)
    shifts = np.zeros((right.shape[1], classes))
    first = kernels.fit.shifts_of(right, truth, shares, odds, 1.0, 1, shifts)
    slope, curve = first[..., 0], first[..., 1]
    known = curve > 1e-9

    def likelihood(variance: float) -> float:
        spread = curve[known] + variance * curve[known] ** 2
        return float(-0.5 * (np.log(spread) + slope[known] ** 2 / spread).sum())

    variance = max(VARIANCES, key=likelihood)
    kernels.fit.shifts_of(right, truth, shares, odds, variance, 6, shifts)
    return shifts


def _wrong_labels(
    votes: Codes, truth: Codes, classes: int
) -> tuple[Floats, tuple[Rows, Codes, Floats]]:
    """How often each class is a wrong label, and under which truth; an item counts once."""
    item, model, weight = _erring(votes, truth)
    named, known = votes[item, model], truth[item]
    rate: Any = np.bincount(named, weight, minlength=classes) + 0.5
    flat, at = np.unique(known.astype(np.int64) * classes + named, return_inverse=True)
    seen: Any = np.bincount(at, weight, minlength=len(flat))
    starts: Any = np.searchsorted(flat, np.arange(classes + 1) * classes)
    return rate / rate.sum(), (starts, (flat % classes).astype(np.int32), seen)


def _erring(votes: Codes, truth: Codes) -> tuple[Rows, Rows, Floats]:
    """The wrong votes, each with the share of its item."""
    wrong = (votes != MISSING) & (votes != truth[:, None])
    item, model = np.nonzero(wrong)
    return item, model, 1 / wrong.sum(axis=1)[item]


def _pull(votes: Codes, truth: Codes, rate: Floats, classes: int) -> float:
    """How far the wrong labels of one half of the items tell those of the other."""
    total = dict.fromkeys(PULLS, 0.0)
    half = np.arange(len(truth)) % 2
    for side in (0, 1):
        _, (starts, wrong, seen) = _wrong_labels(votes[half == side], truth[half == side], classes)
        item, model, weight = _erring(votes[half != side], truth[half != side])
        named, known = votes[half != side][item, model], truth[half != side][item]
        often, totals = _looked_up(starts, wrong, seen, known, named, classes)
        even = rate[named] / (1 - rate[known])
        for pull in PULLS:
            total[pull] += float((weight * np.log((often + pull * even) / (totals + pull))).sum())
    return max(total, key=total.__getitem__)


def _looked_up(
    starts: Rows, wrong: Codes, seen: Floats, known: Codes, named: Codes, classes: int
) -> tuple[Floats, Floats]:
    truths = np.repeat(np.arange(classes), np.diff(starts))
    cells = truths * np.int64(classes) + wrong
    totals: Any = np.bincount(truths, seen, minlength=classes)
    if not len(cells):
        return np.zeros(len(known)), totals[known]
    asked = known.astype(np.int64) * classes + named
    at = np.searchsorted(cells, asked).clip(max=len(cells) - 1)
    return np.where(cells[at] == asked, seen[at], 0.0), totals[known]


def _own_rates(votes: Codes, truth: Codes, rate: Floats) -> Floats:
    """Each model's own wrong labels, shrunk towards those of all."""
    wrong = (votes != MISSING) & (votes != truth[:, None])
    counts = np.stack(
        [
            np.bincount(votes[wrong[:, model], model], minlength=len(rate))
            for model in range(votes.shape[1])
        ]
    ).astype(np.float64)
    strength = _strength_of_rates(counts, rate)
    drawn: Floats = (counts + strength * rate) / (counts.sum(axis=1, keepdims=True) + strength)
    return np.minimum(drawn, MOST_RATE)


def _strength_of_rates(counts: Floats, rate: Floats) -> float:
    def likelihood(strength: float) -> float:
        return sum(
            lgamma(strength)
            - lgamma(strength + own.sum())
            + sum(
                lgamma(count + strength * share) - lgamma(strength * share)
                for count, share in zip(own[own > 0].tolist(), rate[own > 0].tolist(), strict=True)
            )
            for own in counts
        )

    return max((4.0**power for power in range(10)), key=likelihood)


def _copies(
    votes: Codes, truth: Codes, rate: Floats, cells: tuple[Rows, Codes, Floats], pull: float
) -> Floats:
    """How often a wrong vote repeats another's label, beyond coincidence."""
    models, classes = votes.shape[1], len(rate)
    both, same = np.zeros((models, models)), np.zeros((models, models))
    kernels.fit.agreements(votes, truth, both, same)
    mean = (same.sum() + 1) / (both.sum() + 2)
    agreement = (same + AGREEMENTS * mean) / (both + AGREEMENTS)
    starts, wrong, seen = cells
    truths = np.repeat(np.arange(classes), np.diff(starts))
    totals = np.bincount(truths, seen, minlength=classes)
    # Σ_v q(v|k)² of the drawn rates, for the truths under which models erred.
    even = pull * rate[wrong] / (1 - rate[truths])
    square = pull**2 * ((rate**2).sum() - rate**2) / (1 - rate) ** 2
    square += np.bincount(truths, (seen + even) ** 2 - even**2, minlength=classes)
    chance = float((totals * square / (totals + pull) ** 2).sum() / max(totals.sum(), 1e-9))
    if 1 - chance < CERTAIN:
        return np.zeros((models, models))  # two classes: whoever is wrong says the other
    beyond = np.tril(((agreement - chance) / (1 - chance)).clip(0, MOST_COPIED), -1)
    copied: Floats = beyond + beyond.T
    return copied
