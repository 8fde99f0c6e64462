"""How often models are right where their votes look: beside how often they were thought to be."""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled
from posterity.method.kernels.dependent import LARGE, RARE, calibrate, gather, room, score


@compiled
def weigh_levels(par: Any, votes: int, count: int, one: int, space: Any, out: Any) -> float:
    """``out`` (D,): how likely just the voters for a candidate are right at each level; the sum.

    ``score`` has it written out: there a call would take half as long again.
    """
    none = one == count
    truth = 0 if none else space.candidates[one]
    total = 0.0
    for level in range(len(out)):
        if none:
            weight = par.overall[level]
            for other in range(count):
                code = space.candidates[other]
                weight -= par.prior[code] * par.levels[code, level]
            weight = max(weight, RARE)
        else:
            weight = par.levels[truth, level]
        divisor = 1.0
        for at in range(votes):
            chance = par.odds[space.model[at], level]
            if not none:
                chance *= par.shifts[space.model[at], truth]
            divisor *= 1.0 + chance
            if space.place[at] == one:
                weight *= chance
            if divisor > LARGE:
                weight, divisor = weight / divisor, 1.0
        out[level] = weight / divisor
        total += out[level]
    return total


@compiled
def rightness(
    par: Any,
    hard: Any,
    who: Any,
    leaning: Any,
    believed: Any,
    thought: Any,
    spread: Any,
    start: int,
    stop: int,
) -> None:
    """(n, M) for each vote of items ``start`` to ``stop``, 0 where there is none.

    ``believed``: that it is right, given all votes of the item; ``thought``: how likely that was at
    the levels of difficulty these speak for; ``spread``: the variance of the latter.
    """
    space, weights = room(len(who)), np.empty(par.odds.shape[1])
    for item in range(start, stop):
        votes = gather(hard, who, leaning, item, space)
        count = score(par, votes, space)
        calibrate(par, votes, count, space)
        for at in range(len(who)):
            believed[item, at] = thought[item, at] = spread[item, at] = 0.0
        for one in range(count + 1):
            if space.belief[one] <= 0.0:
                continue
            none = one == count
            truth = 0 if none else space.candidates[one]
            total = weigh_levels(par, votes, count, one, space, weights)
            if total <= 0.0:
                continue
            vote = 0
            for at in range(len(who)):
                if hard[item, at] < 0:
                    continue
                if space.place[vote] == one:
                    believed[item, at] += space.belief[one]
                for level in range(len(weights)):
                    chance = par.odds[who[at], level]
                    if not none:
                        chance *= par.shifts[who[at], truth]
                    chance /= 1.0 + chance
                    share = space.belief[one] * weights[level] / total
                    thought[item, at] += share * chance
                    spread[item, at] += share * chance * (1.0 - chance)
                vote += 1


@compiled
def hardness(
    par: Any, hard: Any, who: Any, leaning: Any, scale: Any, out: Any, start: int, stop: int
) -> None:
    """The mean of ``scale`` over levels, as the votes of items ``start`` to ``stop`` have it.

    Over the candidates by what is believed of them, and for each over the levels by how likely it
    is there that just its voters were right.
    """
    space, weights = room(len(who)), np.empty(par.odds.shape[1])
    for item in range(start, stop):
        votes = gather(hard, who, leaning, item, space)
        count = score(par, votes, space)
        calibrate(par, votes, count, space)
        mean = 0.0
        for one in range(count + 1):
            if space.belief[one] <= 0.0:
                continue
            total, weighed = weigh_levels(par, votes, count, one, space, weights), 0.0
            for level in range(len(scale)):
                weighed += weights[level] * scale[level]
            if total > 0.0:
                mean += space.belief[one] * weighed / total
        out[item] = mean
