"""What a vote could change, and what the calibrator is fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.method.kernels.compiler import compiled
from posterity.method.kernels.dependent import (
    FARTHEST,
    calibrate,
    gather,
    highest_of,
    room,
    score,
)
from posterity.method.kernels.patterns import (
    IMPOSSIBLE,
    NUMBER,
    alike,
    draw,
    place_of,
    slots,
    tally,
    twin,
    worth_of,
)


@compiled
def value(
    par: Any,
    hard: Any,
    who: Any,
    leaning: Any,
    stored: Any,
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
    negative flip costing ``ratio``.
    """
    space, then = room(len(who) + 1), room(len(who) + 1)
    belief, after = space.belief, then.belief
    kept, seen, nothing = np.zeros(len(who) + 2), slots(), np.zeros((0, 0), np.int32)
    depth, usual, worth_of_one = par.odds.shape[1], par.calibrator[NUMBER], 0.0
    found = np.zeros(len(par.patterns.truth), np.int64)
    voting = np.zeros(len(par.patterns.truth), np.int64)
    for item in range(start, stop):
        out[item] = 0.0
        earlier = -1 if leaning.size else twin(seen, hard, stored, nothing, item)
        if earlier >= 0:
            out[item] = out[earlier]
            continue
        votes = gather(hard, who, leaning, item, space)
        if votes == 0:
            continue
        count = score(par, votes, space)
        calibrate(par, votes, count, space)
        # Labelled items with the same votes also tell what this model says next.
        many = alike(par, votes, space, found)
        scale, total = tally(par, found, many, count, space, -1), 1.0
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
                        counted += par.patterns.counts[found[at]] * par.patterns.weights[found[at]]
                chance = (chance + worth_of_one * scale * counted) / total
                if saying:
                    tally(par, voting, saying, count, then, -1)
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
                    counted = par.patterns.counts[found[at]] * par.patterns.weights[found[at]]
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


_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_END = np.uint64(0x94D049BB133111EB)


@compiled
def hash_texts(
    offsets: NDArray[np.int32], content: NDArray[np.uint8], seed: np.uint64
) -> NDArray[Any]:
    """A 64-bit hash of each text: eight bytes at a time, mixed as splitmix64 does it."""
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for at in range(len(hashes)):
        start, end = offsets[at], offsets[at + 1]
        # The length goes in first: the last word of a text is filled up with zeros.
        state = (seed ^ np.uint64(end - start)) * _ODD
        while start < end:
            word = np.uint64(0)
            for place in range(min(8, end - start)):
                word |= np.uint64(content[start + place]) << np.uint64(8 * place)
            state = (state ^ word) * _MIX
            state ^= state >> np.uint64(29)
            start += 8
        state = (state ^ (state >> np.uint64(31))) * _END
        hashes[at] = state ^ (state >> np.uint64(32))
    return hashes
