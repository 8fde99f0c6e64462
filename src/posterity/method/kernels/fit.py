"""What is learnt on the labelled set: who is right where, who errs alike, and the calibrator."""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled
from posterity.method.kernels.dependent import FARTHEST, calibrate, gather, highest_of, room, score
from posterity.method.kernels.patterns import IMPOSSIBLE, alike, place_of, tally, worth_of

LEAST, MOST = 0.001, 0.999


@compiled
def responsibilities(right: Any, truth: Any, levels: Any, accuracies: Any, out: Any) -> float:
    """``out`` (n, D): P(level | who was right, truth); returns the log-likelihood.

    ``right`` (n, T): 1, 0, or −1 where there is no vote.
    """
    items, models = right.shape
    depth = accuracies.shape[1]
    hit, miss = np.log(accuracies), np.log(1.0 - accuracies)
    logs = np.log(levels)
    likelihood = 0.0
    for item in range(items):
        highest = -np.inf
        for level in range(depth):
            total = logs[truth[item], level]
            for model in range(models):
                if right[item, model] == 1:
                    total += hit[model, level]
                elif right[item, model] == 0:
                    total += miss[model, level]
            out[item, level] = total
            highest = max(highest, total)
        total = 0.0
        for level in range(depth):
            out[item, level] = np.exp(out[item, level] - highest)
            total += out[item, level]
        for level in range(depth):
            out[item, level] /= total
        likelihood += highest + np.log(total)
    return likelihood


@compiled
def accuracies_of(right: Any, shares: Any, out: Any) -> None:
    """``out`` (T, D): how often each model is right at each level, with half an item added."""
    items, models = right.shape
    depth = shares.shape[1]
    for model in range(models):
        for level in range(depth):
            hits, votes = 0.5, 1.0
            for item in range(items):
                if right[item, model] >= 0:
                    votes += shares[item, level]
                    if right[item, model] == 1:
                        hits += shares[item, level]
            out[model, level] = min(max(hits / votes, LEAST), MOST)


@compiled
def shifts_of(
    right: Any, truth: Any, shares: Any, odds: Any, variance: float, turns: int, out: Any
) -> Any:
    """``out`` (T, K): log-odds that a truth adds to a model's, shrunk to 0; by Newton's method.

    Returns slope and curvature at 0, from which the variance can be told: (T, K, 2).
    """
    items, models = right.shape
    classes = out.shape[1]
    depth = odds.shape[1]
    first = np.zeros((models, classes, 2))
    slope, curve = np.zeros(classes), np.zeros(classes)
    for model in range(models):
        out[model] = 0.0
        for turn in range(turns):
            slope[:], curve[:] = 0.0, 0.0
            for item in range(items):
                if right[item, model] < 0:
                    continue
                known = truth[item]
                factor = np.exp(out[model, known])
                for level in range(depth):
                    chance = odds[model, level] * factor
                    chance /= 1.0 + chance
                    slope[known] += shares[item, level] * (right[item, model] - chance)
                    curve[known] += shares[item, level] * chance * (1.0 - chance)
            if turn == 0:
                first[model, :, 0], first[model, :, 1] = slope, curve
            for known in range(classes):
                change = (slope[known] - out[model, known] / variance) / (
                    curve[known] + 1.0 / variance
                )
                out[model, known] += min(max(change, -1.0), 1.0)
    return first


@compiled
def agreements(votes: Any, truth: Any, both: Any, same: Any) -> None:
    """(T, T): how often two models were wrong together, and with the same label."""
    items, models = votes.shape
    for item in range(items):
        for one in range(models):
            if votes[item, one] < 0 or votes[item, one] == truth[item]:
                continue
            for other in range(one):
                if votes[item, other] < 0 or votes[item, other] == truth[item]:
                    continue
                both[one, other] += 1.0
                if votes[item, one] == votes[item, other]:
                    same[one, other] += 1.0


@compiled
def logit(rows: Any, ends: Any, own: Any, numbers: Any, slope: Any, curve: Any) -> float:
    """The log-likelihood of a conditional logit, with its slope and curvature."""
    width = rows.shape[1]
    mean = np.empty(width)
    worth = np.empty(0)
    likelihood, first = 0.0, 0
    slope[:], curve[:] = 0.0, 0.0
    for item in range(len(ends)):
        count = ends[item] - first
        if count == 0:
            continue
        if len(worth) < count:
            worth = np.empty(2 * count)
        highest = -np.inf
        for one in range(count):
            total = 0.0
            for at in range(width):
                total += rows[first + one, at] * numbers[at]
            worth[one] = total
            highest = max(highest, total)
        total = 0.0
        for one in range(count):
            worth[one] = np.exp(worth[one] - highest)
            total += worth[one]
        mean[:] = 0.0
        for one in range(count):
            worth[one] /= total
            for at in range(width):
                mean[at] += worth[one] * rows[first + one, at]
        likelihood += np.log(max(worth[own[item] - first], 1e-300))
        for at in range(width):
            slope[at] += rows[own[item], at] - mean[at]
        for one in range(count):
            for at in range(width):
                share = worth[one] * (rows[first + one, at] - mean[at])
                for other in range(width):
                    curve[at, other] += share * (rows[first + one, other] - mean[other])
        first = ends[item]
    return likelihood


@compiled
def describe(
    par: Any, hard: Any, who: Any, leaning: Any, truth: Any, ends: Any, out: Any, own: Any
) -> None:
    """What the calibrator is fitted to: the candidates of each item, below each other.

    ``out``: (candidates, 8) what its numbers are multiplied by; ``own``: which is the truth.
    """
    space = room(len(who))
    for item in range(len(truth)):
        votes = gather(hard, who, leaning, item, space)
        count = score(par, votes, space)
        first = 0 if item == 0 else ends[item - 1]
        best, likeliest = highest_of(space.raw, space.product, count)
        many = np.log(max(votes, 1))
        own[item] = first + count
        ends[item] = first + count + 1
        for one in range(count + 1):
            below = max(space.raw[one] - best, -FARTHEST)
            row = first + one
            out[row, 0], out[row, 1], out[row, 5] = below, below * many, space.pair[one]
            out[row, 2] = out[row, 3] = out[row, 4] = 0.0
            out[row, 6] = max(space.product[one] - likeliest, -FARTHEST)
            out[row, 7] = space.lean[one]
            if one == count:
                out[row, 2], out[row, 3], out[row, 4] = 1.0, many, count - 1.0
                if space.raw[one] == -np.inf:
                    ends[item] -= 1  # nothing else can be
            elif space.candidates[one] == truth[item]:
                own[item] = row
        if own[item] >= ends[item]:
            ends[item] = first  # its truth cannot be: it says nothing


@compiled
def compare(par: Any, hard: Any, who: Any, leaning: Any, truth: Any, usual: Any, out: Any) -> None:
    """How likely the truths of items are if labelled ones with the same votes count for so much.

    ``usual``: what one of them may count for; ``out``: the sum of the logarithms for each. The
    calibrator has some number for them, or they are not looked up.
    """
    space = room(len(who))
    found = np.zeros(len(par.patterns.truth), np.int64)
    for at in range(len(usual)):
        out[at] = 0.0
    for item in range(len(truth)):
        votes = gather(hard, who, leaning, item, space)
        count = score(par, votes, space)
        calibrate(par, votes, count, space)
        own = place_of(truth[item], space.candidates, count)
        many = alike(par, votes, space, found)
        if many == 0:
            continue
        tally(par, found, many, count, space, -1)
        total = 0.0
        for one in range(count + 1):
            total += space.told[one]
        for at in range(len(usual)):
            chance = space.belief[own]
            if usual[at] > 0.0:
                worth = worth_of(usual[at], space.told, count, space.belief)
                chance = (chance + worth * space.told[own]) / (1.0 + worth * total)
            out[at] += np.log(max(chance, IMPOSSIBLE))
