"""How hard items look from their votes: the levels of difficulty that would explain them."""

from __future__ import annotations

from typing import Any

from posterity._kernels.dependence import LARGE, RARE, calibrate, gather, room, score
from posterity._kernels.policy import compiled


@compiled
def hardness(
    par: Any, scale: Any, hard: Any, who: Any, leaning: Any, start: int, stop: int, out: Any
) -> None:
    """The mean of ``scale`` over levels, as the votes of items ``start`` to ``stop`` have it.

    Over the candidates by what is believed of them, and for each over the levels by how likely it
    is there that just its voters were right.
    """
    space = room(len(who))
    prior, levels, odds, shifts = par.prior, par.levels, par.odds, par.shifts
    depth = len(scale)
    for item in range(start, stop):
        votes = gather(hard, who, leaning, item, space)
        count = score(par, votes, space)
        calibrate(par, votes, count, space)
        mean = 0.0
        for one in range(count + 1):
            if space.belief[one] <= 0.0:
                continue
            none = one == count
            truth = 0 if none else space.candidates[one]
            total, weighed = 0.0, 0.0
            for level in range(depth):
                weight = par.overall[level] if none else levels[truth, level]
                if none:
                    for other in range(count):
                        code = space.candidates[other]
                        weight -= prior[code] * levels[code, level]
                    weight = max(weight, RARE)
                divisor = 1.0
                for at in range(votes):
                    chance = odds[space.model[at], level]
                    if not none:
                        chance *= shifts[space.model[at], truth]
                    divisor *= 1.0 + chance
                    if space.place[at] == one:
                        weight *= chance
                    if divisor > LARGE:
                        weight, divisor = weight / divisor, 1.0
                weight /= divisor
                total += weight
                weighed += weight * scale[level]
            if total > 0.0:
                mean += space.belief[one] * weighed / total
        out[item] = mean
