"""What a vote could change, and which items earlier votes leave undecided."""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled
from posterity.method.kernels.dependent import (
    calibrate,
    gather,
    room,
    score,
)
from posterity.method.kernels.patterns import (
    NUMBER,
    alike,
    draw,
    place_of,
    slots,
    tally,
    twin,
    weight_of,
    worth_of,
)


@compiled
def value(
    par: Any,
    hard: Any,
    who: Any,
    leaning: Any,
    stored: Any,
    own: Any,
    model: int,
    ratio: float,
    hope: float,
    out: Any,
    start: int,
    stop: int,
) -> None:
    """What a vote of ``model`` is expected to be worth, in positive flips.

    With every class it may vote for: the beliefs after it, and what the best change of the label
    would then bring, a negative flip costing ``hope``; less what a change would bring now, a
    negative flip costing ``ratio``. ``own``: see ``believe``.
    """
    space, then = room(len(who) + 1), room(len(who) + 1)
    belief, after = space.belief, then.belief
    kept, seen, nothing = np.zeros(len(who) + 2), slots(), np.zeros((0, 0), np.int32)
    depth, usual, worth_of_one = par.odds.shape[1], par.calibrator[NUMBER], 0.0
    found = np.zeros(len(par.patterns.truth), np.int64)
    voting = np.zeros(len(par.patterns.truth), np.int64)
    for item in range(start, stop):
        out[item] = 0.0
        earlier = -1 if leaning.size or own.size else twin(seen, hard, stored, nothing, item)
        if earlier >= 0:
            out[item] = out[earlier]
            continue
        votes = gather(hard, who, leaning, item, space)
        if votes == 0:
            continue
        count = score(par, votes, space)
        calibrate(par, votes, count, space)
        # Labelled items with the same votes also tell what this model says next.
        many, itself = alike(par, votes, space, found), own[item] if own.size else -1
        scale, total = tally(par, found, many, count, space, itself), 1.0
        if many:
            worth_of_one = worth_of(usual, space.told, count, belief)
            for one in range(count + 1):
                total += worth_of_one * space.told[one]
        label = -1
        for one in range(count):
            if space.candidates[one] == stored[item]:
                label = one
        for at in range(votes):
            then.model[at], then.code[at] = space.model[at], space.code[at]
            then.soft[at] = space.soft[at]
        then.soft[-1] = space.soft[-1]
        then.model[votes] = model
        for one in range(count + 1):
            kept[one] = 1.0
        worth = 0.0
        for vote in range(count):
            then.code[votes] = space.candidates[vote]
            then.soft[votes] = space.lean[vote]  # the vote to come is hard, and adds nothing
            score(par, votes + 1, then)
            calibrate(par, votes + 1, count, then)
            chance = 0.0
            for one in range(count + 1):
                if belief[one] > 0.0:
                    # The same sum but for one more factor: the chance of this vote.
                    likely = min(np.exp(then.raw[one] - space.raw[one]), 1.0)
                    kept[one] -= likely
                    chance += belief[one] * likely
            saying = 0
            if many:
                counted = 0.0
                for at in range(many):
                    if par.patterns.votes[found[at], model] == space.candidates[vote]:
                        voting[saying] = found[at]
                        saying += 1
                        counted += weight_of(par, found[at], itself)
                chance = (chance + worth_of_one * scale * counted) / total
                if saying:
                    tally(par, voting, saying, count, then, itself)
                    draw(usual, then.told, count, after)
            worth += chance * gain(after, count, label, hope)
        if count < len(par.prior):
            # A class nobody voted for: right only if the truth is none of these.
            right, all_levels = 0.0, 0.0
            for level in range(depth):
                weight = par.overall[level]
                for at in range(votes):
                    weight /= 1.0 + par.odds[space.model[at], level]
                chance = par.odds[model, level]
                all_levels += weight
                right += weight * chance / (1.0 + chance)
            chance = 0.0
            for one in range(count + 1):
                chance += belief[one] * max(kept[one], 0.0)
            new, old = 0.0, 0.0
            if chance > 0.0 and all_levels > 0.0:
                new = min(belief[count] * right / all_levels, chance)
                old = belief[label] * max(kept[label], 0.0) if label >= 0 else 0.0
            for at in range(many):
                says = par.patterns.votes[found[at], model]
                if place_of(says, space.candidates, count) == count:
                    truth = par.patterns.truth[found[at]]
                    counted = weight_of(par, found[at], itself)
                    new += worth_of_one * scale * counted if says == truth else 0.0
                    old += worth_of_one * scale * counted if truth == stored[item] else 0.0
            worth += max(new - hope * old, 0.0) / total
        if many:
            draw(usual, space.told, count, belief)
        out[item] = worth - gain(belief, count, label, ratio)


@compiled
def gain(belief: Any, count: int, label: int, ratio: float) -> Any:
    """What the best change of the label would bring, if any would."""
    best = 0
    for one in range(1, count):
        if belief[one] > belief[best]:
            best = one
    if best == label:
        return 0.0
    loss = belief[label] if label >= 0 else 0.0
    return max(belief[best] - ratio * loss, 0.0)


@compiled
def contest(par: Any, hard: Any, who: Any, leaning: Any, out: Any, start: int, stop: int) -> None:
    """How undecided the votes of items ``start`` to ``stop`` leave it, models taken one by one.

    The entropy of a product of likelihoods with one accuracy for each model and errors that are
    spread evenly, whatever the classes.
    """
    space, classes, overall = room(len(who)), len(par.prior), par.alone.shape[1] - 1
    candidates, worth = space.candidates, space.raw
    for item in range(start, stop):
        votes, count = gather(hard, who, leaning, item, space), 0
        for at in range(votes):
            right = par.alone[space.model[at], overall]
            other = np.log((1.0 - right) / max(classes - 1, 1))
            place = place_of(space.code[at], candidates, count)
            if place == count:
                candidates[count], worth[count] = space.code[at], 0.0
                count += 1
            worth[place] += np.log(right) - other
        best = 0.0
        for one in range(count):
            best = max(best, worth[one])
        total = (classes - count) * np.exp(-best)
        for one in range(count):
            total += np.exp(worth[one] - best)
        # −Σ p log p with p = exp(worth − best) / total.
        mean = (classes - count) * np.exp(-best) / total * -best
        for one in range(count):
            mean += np.exp(worth[one] - best) / total * (worth[one] - best)
        out[item] = max(np.log(total) - mean, 0.0)
