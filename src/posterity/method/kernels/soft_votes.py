"""What soft votes lean to: what their probabilities say beyond the votes themselves.

See ``beliefs.temperature`` for s̃ and ``beliefs.dependent`` for what comes of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity.method.kernels.compiler import compiled

FLOOR = 1e-7
"""Smaller weights are not told apart, as in ``posterity.method.beliefs.temperature``."""
RAREST = 1e-12
"""No soft vote calls a class less likely than this: one alone rules nothing out."""


class ReadingArrays(NamedTuple):
    """How the soft votes of each model are to be read."""

    sharpness: Any
    """(T,) no number: they are not."""
    tails: Any
    accuracies: Any
    biases: Any
    """(T, K)"""
    classes: int


@compiled
def lean(
    read: Any,
    hard: Any,
    who: Any,
    places: Any,
    kept: Any,
    weights: Any,
    out: Any,
    start: int,
    stop: int,
) -> None:
    """(n, M+1) what soft votes lean to the class of each vote by, and last to none of these.

    ``places`` (n, M): where the classes ``kept`` by a soft vote and their ``weights`` are, −1 for
    a hard one.
    """
    models, width, classes = len(who), kept.shape[1], read.classes
    candidates = np.empty(models + 1, np.int64)
    place = np.empty(models + 1, np.int64)
    total = np.empty(models + 2)
    worth = np.empty(width)
    for item in range(start, stop):
        count = 0
        for at in range(models):
            out[item, at] = 0.0
            code = hard[item, at]
            if code < 0:
                continue
            found = 0
            while found < count and candidates[found] != code:
                found += 1
            if found == count:
                candidates[count] = code
                count += 1
            place[at] = found
        for other in range(count + 1):
            total[other] = 0.0
        for at in range(models):
            code, model, row = hard[item, at], who[at], places[item, at]
            if code < 0 or row < 0 or np.isnan(read.sharpness[model]):
                continue
            held, highest, mass = 0, -np.inf, 0.0
            for one in range(width):
                worth[one] = -np.inf
                if kept[row, one] >= 0 and weights[row, one] > 0.0:
                    worth[one] = read.sharpness[model] * np.log(max(weights[row, one], FLOOR))
                    worth[one] += read.biases[model, kept[row, one]]
                    highest = max(highest, worth[one])
                    held += 1
            if held == 0:
                continue
            for one in range(width):
                mass += np.exp(worth[one] - highest)
            # Where all classes are kept there is no tail.
            tail = read.tails[model] if held < classes else 0.0
            rest = tail / max(classes - held, 1)
            right = np.log(read.accuracies[model])
            wrong = np.log((1.0 - read.accuracies[model]) / (classes - 1))
            others, spare = 0.0, classes - held
            for one in range(width):
                if worth[one] > -np.inf:
                    worth[one] = (1.0 - tail) * np.exp(worth[one] - highest) / mass
                    voted = False
                    for other in range(count):
                        voted |= candidates[other] == kept[row, one]
                    if not voted:
                        others += worth[one]
                else:
                    worth[one] = -1.0
            for other in range(count):
                chance, found = rest, 0
                for one in range(width):
                    if worth[one] >= 0.0 and kept[row, one] == candidates[other]:
                        chance, found = worth[one], 1
                spare -= 1 - found
                alone = right if candidates[other] == code else wrong
                total[other] += np.log(max(chance, RAREST)) - alone
            if count < classes:
                chance = (others + spare * rest) / (classes - count)
                total[count] += np.log(max(chance, RAREST)) - wrong
        for at in range(models):
            if hard[item, at] >= 0:
                out[item, at] = total[place[at]]
        out[item, models] = total[count]
