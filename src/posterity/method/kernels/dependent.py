"""Beliefs of models that err together: from all votes of an item, whatever the number of classes.

An item's candidates are the classes voted for, and "none of these". What a candidate is worth is
the chance that just its voters were right (levels of difficulty), and that the others gave the
wrong labels they gave (copying each other). See ``beliefs.dependent`` for the formulas.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity.method.kernels.compiler import compiled
from posterity.method.kernels.patterns import NUMBER, alike, draw, slots, tally, twin

LEAST = 1e-300
"""What a float can hold with room for one more factor."""
FARTHEST = 60.0
"""Raw scores further below the best than this are as good as impossible, and stay finite."""
SHORT = 16
"""Factors that are multiplied before a logarithm is taken: none can underflow."""
LARGE, SMALL = 1e100, 1e-100
RARE = 1e-12
"""The least weight of what was not voted for, where rounding would leave less than nothing."""


class Parameters(NamedTuple):
    """What is known of the models, as bare arrays."""

    prior: Any
    """(K,)"""
    common: Any
    """Classes by prior, highest first."""
    spread: float
    """Σ π log π over all classes."""
    levels: Any
    """(K, D) P(d | truth k)."""
    overall: Any
    """(D,) the same for any truth, as the prior has it."""
    odds: Any
    """(T, D) of being right at each level."""
    shifts: Any
    """(T, K) what they are multiplied by for each truth."""
    copies: Any
    """(T, T) the chance that a wrong vote repeats the wrong label of another model."""
    rates: Any
    """(T, K) how often a wrong vote names each class."""
    starts: Any
    """(K+1,) where the wrong labels seen under each truth begin."""
    wrong: Any
    """Those labels, ascending under each truth."""
    seen: Any
    """How often, an item counting once."""
    totals: Any
    """(K,) the same added up."""
    pull: float
    """How many such items the models' own rates count for beside them."""
    alone: Any
    """(T, K+1) how often each model is right under each truth; last under any."""
    calibrator: Any
    """(9,)"""
    dullest: float
    """Sharpness is never less than that: order stays."""
    patterns: Any
    """Votes of labelled items; see ``kernels.patterns``."""


class Room(NamedTuple):
    """Scratch space, made once a block."""

    model: Any
    code: Any
    place: Any
    """Of each vote among the candidates."""
    candidates: Any
    raw: Any
    pair: Any
    product: Any
    belief: Any
    near: Any
    """(M, C) the closest earlier voter for a candidate."""
    copied: Any
    """(M, C) all of them together."""
    soft: Any
    """(M+1) what soft votes lean to the class of each vote by; last to none of these."""
    lean: Any
    """(C+1) the same of the candidates."""
    told: Any
    """(C+1) labelled items with the same votes, by their truth."""


@compiled
def room(votes: int) -> Any:
    """For items of at most so many votes."""
    many = votes + 1
    return Room(
        np.zeros(many, np.int64),
        np.zeros(many, np.int64),
        np.zeros(many, np.int64),
        np.zeros(many, np.int64),
        np.zeros(many + 1),
        np.zeros(many + 1),
        np.zeros(many + 1),
        np.zeros(many + 1),
        np.zeros((many, many)),
        np.zeros((many, many)),
        np.zeros(many + 1),
        np.zeros(many + 1),
        np.zeros(many + 1),
    )


@compiled
def gather(hard: Any, who: Any, leaning: Any, item: int, space: Any) -> int:
    """The votes of an item, in order of arrival; how many there are."""
    votes, softly = 0, leaning.size > 0
    space.soft[-1] = leaning[item, len(who)] if softly else 0.0
    for at in range(len(who)):
        code = hard[item, at]
        if code >= 0:
            space.model[votes] = who[at]
            space.code[votes] = code
            space.soft[votes] = leaning[item, at] if softly else 0.0
            votes += 1
    return votes


@compiled
def score(par: Any, votes: int, space: Any) -> int:
    """Raw log-scores of the candidates and of none of these; how many candidates there are."""
    model, code, place, candidates = space.model, space.code, space.place, space.candidates
    odds, shifts, levels, rates = par.odds, par.shifts, par.levels, par.rates
    prior, overall, starts, wrong = par.prior, par.overall, par.starts, par.wrong
    near, copied, alone = space.near, space.copied, par.alone
    depth = odds.shape[1]
    count = 0
    for at in range(votes):
        found = -1
        for other in range(count):
            if candidates[other] == code[at]:
                found = other
                break
        if found < 0:
            found = count
            candidates[count] = code[at]
            count += 1
        place[at] = found
        space.lean[found] = space.soft[at]
    space.lean[count] = space.soft[-1]
    for at in range(votes):
        for other in range(count):
            near[at, other] = copied[at, other] = 0.0
        for earlier in range(at):
            chance = par.copies[model[at], model[earlier]]
            copied[at, place[earlier]] += chance
            if chance > near[at, place[earlier]]:
                near[at, place[earlier]] = chance
    for one in range(count + 1):
        none = one == count
        truth = 0 if none else candidates[one]
        left = 1.0 if none else prior[truth]
        if none:
            for other in range(count):
                left -= prior[candidates[other]]
        if left <= (RARE if none else 0.0) or (none and count == len(prior)):
            space.raw[one] = space.product[one] = -np.inf  # impossible
            space.pair[one] = 0.0
            continue
        # Who is right: the chance, over levels, that just the voters for this class were.
        right = 0.0
        for level in range(depth):
            if none:
                weight = overall[level]
                for other in range(count):
                    weight -= prior[candidates[other]] * levels[candidates[other], level]
                weight = max(weight, RARE)
            else:
                weight = prior[truth] * levels[truth, level]
            divisor = 1.0
            for at in range(votes):
                chance = odds[model[at], level]
                if not none:
                    chance *= shifts[model[at], truth]
                divisor *= 1.0 + chance
                if place[at] == one:
                    weight *= chance
                if divisor > LARGE:
                    weight, divisor = weight / divisor, 1.0
            right += weight / divisor
        # Which wrong labels the others gave, one after the other.
        total, pair, product = 0.0, 0.0, 0.0
        others, specific, single, factors = right, 1.0, left, 0
        if right < SMALL:  # with room for the factors below a logarithm less is taken
            total, others = np.log(max(right, LEAST)), 1.0
        column = len(prior) if none else truth
        for at in range(votes):
            if factors == SHORT:
                total += np.log(max(others, LEAST))
                pair += np.log(specific)
                product += np.log(max(single, LEAST))
                others, specific, single, factors = 1.0, 1.0, 1.0, 0
            factors += 1
            if place[at] == one:
                single *= alone[model[at], column]
                continue
            rate = rates[model[at], code[at]]
            if not none:
                rate /= 1.0 - rates[model[at], truth]
            together, closest = 0.0, 0.0
            for other in range(count):
                if other != one:
                    together += copied[at, other]
                    closest = max(closest, near[at, other])
            divisor = 1.0 + together - closest
            repeats = copied[at, place[at]] / divisor
            fresh = 1.0 - together / divisor
            chance = repeats + fresh * rate
            others *= chance
            if not none:
                low, high = starts[truth], starts[truth + 1]
                while low < high:
                    middle = (low + high) >> 1
                    if wrong[middle] < code[at]:
                        low = middle + 1
                    else:
                        high = middle
                found = low < starts[truth + 1] and wrong[low] == code[at]
                often = par.seen[low] if found else 0.0
                rate = (often + par.pull * rate) / (par.totals[truth] + par.pull)
                specific *= (repeats + fresh * rate) / chance
            single *= (1.0 - alone[model[at], column]) * rate
        space.raw[one] = total + np.log(max(others, LEAST))
        space.pair[one] = 0.0 if none else pair + np.log(specific)
        space.product[one] = product + np.log(max(single, LEAST))
    return count


@compiled
def highest_of(raw: Any, product: Any, count: int) -> Any:
    """Of what is possible, the best raw score and the best plain product."""
    best = likeliest = -np.inf
    for one in range(count + 1):
        if raw[one] > -np.inf:
            best, likeliest = max(best, raw[one]), max(likeliest, product[one])
    return best, likeliest


@compiled
def calibrate(par: Any, votes: int, count: int, space: Any) -> None:
    """Beliefs in the candidates, and in none of these, from raw scores."""
    raw, pair, belief, numbers = space.raw, space.pair, space.belief, par.calibrator
    many = np.log(max(votes, 1))
    sharpness = max(numbers[0] + numbers[1] * many, par.dullest)
    best, likeliest = highest_of(raw, space.product, count)
    highest = -np.inf
    for one in range(count + 1):
        worth = sharpness * max(raw[one] - best, -FARTHEST) + numbers[5] * pair[one]
        worth += numbers[6] * max(space.product[one] - likeliest, -FARTHEST)
        worth += numbers[7] * space.lean[one]
        if one == count:
            worth += numbers[2] + numbers[3] * many + numbers[4] * (count - 1)
        if raw[one] == -np.inf:
            worth = -np.inf
        belief[one] = worth
        highest = max(highest, worth)
    total = 0.0
    for one in range(count + 1):
        belief[one] = np.exp(belief[one] - highest)
        total += belief[one]
    for one in range(count + 1):
        belief[one] /= total


@compiled
def believe(
    par: Any,
    hard: Any,
    who: Any,
    leaning: Any,
    stored: Any,
    asked: Any,
    own: Any,
    out: Any,
    start: int,
    stop: int,
) -> None:
    """Items ``start`` to ``stop``: entropy, most believed class, and belief in classes asked for.

    ``leaning``: what soft votes lean to, of size 0 if there are none; ``stored``: the labels that
    win a tie; ``asked``: (n, m) classes, −1 for none; ``own``: the row of each item among labelled
    patterns, where it must not count itself, of size 0 if none is among them.
    """
    space, seen = room(len(who)), slots()
    candidates, belief, prior = space.candidates, space.belief, par.prior
    classes, found = len(prior), np.zeros(len(par.patterns.truth), np.int64)
    for item in range(start, stop):
        earlier = -1 if leaning.size or own.size else twin(seen, hard, stored, asked, item)
        if earlier >= 0:
            out.entropy[item], out.best[item] = out.entropy[earlier], out.best[earlier]
            out.belief_best[item] = out.belief_best[earlier]
            for at in range(asked.shape[1]):
                out.asked[item, at] = out.asked[earlier, at]
            continue
        votes = gather(hard, who, leaning, item, space)
        count = score(par, votes, space)
        calibrate(par, votes, count, space)
        many = alike(par, votes, space, found)
        if many:
            tally(par, found, many, count, space, own[item] if own.size else -1)
            draw(par.calibrator[NUMBER], space.told, count, belief)
        left, spread = 1.0, par.spread
        for one in range(count):
            share = prior[candidates[one]]
            if share > 0.0:
                left -= share
                spread -= share * np.log(share)
        left, entropy = max(left, RARE), 0.0
        best, highest = -1, -1.0
        for one in range(count):
            if belief[one] > 0.0:
                entropy -= belief[one] * np.log(belief[one])
            # Of exactly tied ones the stored label, else the class voted for most recently.
            latest = belief[one] == highest and candidates[best] != stored[item]
            if belief[one] > highest or (latest and last(space, votes, one, best)):
                best, highest = one, belief[one]
            elif belief[one] == highest and candidates[one] == stored[item]:
                best = one
        code = candidates[best] if best >= 0 else 0
        if belief[count] > 0.0 and count < classes:
            entropy -= belief[count] * (np.log(belief[count]) + spread / left - np.log(left))
            # The likeliest class nobody voted for, should it be likelier than all the others.
            for at in range(count + 1):
                other = par.common[at]
                voted = False
                for one in range(count):
                    voted |= candidates[one] == other
                if not voted:
                    chance = belief[count] * prior[other] / left
                    if chance > highest or (chance == highest and other == stored[item]):
                        code, highest = other, chance
                    break
        out.entropy[item] = max(entropy, 0.0)
        out.best[item] = code
        out.belief_best[item] = highest
        for at in range(asked.shape[1]):
            wanted = asked[item, at]
            known = 0.0
            if wanted >= 0:
                known = belief[count] * prior[wanted] / left if count < classes else 0.0
                for one in range(count):
                    if candidates[one] == wanted:
                        known = belief[one]
            out.asked[item, at] = known


@compiled
def last(space: Any, votes: int, one: int, other: int) -> bool:
    """Whether a candidate was voted for more recently than another."""
    for at in range(votes - 1, -1, -1):
        if space.place[at] == one:
            return True
        if space.place[at] == other:
            return False
    return False
