"""Sets: what the classes nobody's vote touches add up to, for each set of models that voted.

An item's log-joint is prior(k) + Σ base(k) over the models that voted, plus corrections at the few
classes its votes touch. Without the corrections it depends on the set of models alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity.method.kernels.compiler import compiled, reordered

FAR = -500.0
"""Below this logarithm a product of weights may have left the range of a float."""


class Terms(NamedTuple):
    """The prior and the models, packed. Logarithms are relative to the highest of each model."""

    prior: Any
    """(K, 2) logarithm and weight of each class."""
    logs: Any
    """(T, K) the logarithm for a vote of model t that has no cell of its own."""
    weights: Any
    """(T, K) the same as a weight."""
    near: Any
    """(K, T+1, 4) what one look needs together: the prior's two, then of each model both once more,
    and the cell of the class itself."""
    starts: Any
    """(T, K+1) where the cells of each vote of each model begin."""
    truths: Any
    """The classes of the cells."""
    kinds: Any
    """Which of ``ratios`` each cell has: few differ, and a small table stays close."""
    ratios: Any
    """(kinds, 2) logarithm and ratio by which a cell differs from its base."""
    middle: Any
    """(T+1,) the mean logarithm of the prior and of each model's base, over possible classes."""
    possible: int
    """How many classes the prior does not rule out."""
    single: bool
    """Every vote touches its own class, and no other."""


COLUMNS = 5
"""Of the sums of a set: the logarithm of the most believed class if none were touched; Σ w and
Σ w·(log w − that) of all others; its own weight; which class it is, the lowest of those."""


@compiled
def add(one: Any, other: Any, into: Any) -> None:
    """The logarithms with one more model."""
    for k in range(len(one)):
        into[k] = one[k] + other[k]


@compiled
def multiply(one: Any, other: Any, into: Any) -> None:
    """The weights with one more model."""
    for k in range(len(one)):
        into[k] = one[k] * other[k]


@compiled
def accumulate(terms: Any, voters: Any, count: int, logs: Any, weights: Any) -> None:
    """Logarithms and weights of all classes, untouched, in the order of the models."""
    classes = len(logs)
    for k in range(classes):
        logs[k] = terms.prior[k, 0]
        weights[k] = terms.prior[k, 1]
    at = 0
    # Several models in one pass: the running values are read and written less often.
    while at + 4 <= count:
        a, b, c, d = voters[at], voters[at + 1], voters[at + 2], voters[at + 3]
        la, lb, lc, ld = terms.logs[a], terms.logs[b], terms.logs[c], terms.logs[d]
        wa, wb, wc, wd = terms.weights[a], terms.weights[b], terms.weights[c], terms.weights[d]
        for k in range(classes):
            logs[k] = (((logs[k] + la[k]) + lb[k]) + lc[k]) + ld[k]
            weights[k] = (((weights[k] * wa[k]) * wb[k]) * wc[k]) * wd[k]
        at += 4
    while at < count:
        add(logs, terms.logs[voters[at]], logs)
        multiply(weights, terms.weights[voters[at]], weights)
        at += 1


@reordered
def highest(logs: Any) -> float:
    """The highest of them."""
    found: float = logs[0]
    for k in range(1, len(logs)):
        found = max(found, logs[k])
    return found


@reordered
def add_up(logs: Any, weights: Any, most: float) -> tuple[float, float]:
    """Σ w and Σ w·(log w − most)."""
    total = 0.0
    product = 0.0
    for k in range(len(logs)):
        total += weights[k]
        product += weights[k] * (logs[k] - most)
    return total, product


@compiled
def summarise(logs: Any, weights: Any, sums: Any) -> None:
    """Fill one row of the sums. The weights are as before when it is done."""
    most = highest(logs)
    top = 0
    while logs[top] != most:
        top += 1
    weight = weights[top]
    # Left out, and not subtracted later: nothing is lost where it outweighs all others.
    weights[top] = 0.0
    sums[0] = most
    sums[1], sums[2] = add_up(logs, weights, most)
    sums[3] = weight
    sums[4] = top
    if most < FAR:
        sums[1] = np.nan
    weights[top] = weight


@compiled
def fill(terms: Any, voters: Any, order: Any, sums: Any, start: int, stop: int) -> None:
    """The sets from there to there in that order; ``voters`` holds how many models, and which.

    What a set has in common with the one before it, from its first model on, is not done again.
    """
    classes, models = len(terms.prior), len(terms.logs)
    logs = np.empty((models + 1, classes))
    weights = np.empty((models + 1, classes))
    for k in range(classes):
        logs[0, k] = terms.prior[k, 0]
        weights[0, k] = terms.prior[k, 1]
    path = np.full(models + 1, -1)
    for at in range(start, stop):
        one = order[at]
        count = voters[one, 0]
        depth = 0
        while depth < count and path[depth] == voters[one, depth + 1]:
            depth += 1
        while depth < count:
            model = voters[one, depth + 1]
            path[depth] = model
            path[depth + 1] = -1
            add(logs[depth], terms.logs[model], logs[depth + 1])
            multiply(weights[depth], terms.weights[model], weights[depth + 1])
            depth += 1
        summarise(logs[count], weights[count], sums[one])


@compiled
def tabulate(prior: Any, kinds: Any, counts: Any, table: Any, sums: Any, one: int) -> None:
    """One set given by how many models of each kind voted; its classes are kept as well.

    Models of one kind have the same base; ``kinds`` holds its logarithms.
    """
    classes = len(prior)
    logs = np.empty(classes)
    weights = np.empty(classes)
    for k in range(classes):
        log = prior[k, 0]
        for kind in range(len(kinds)):
            log += counts[kind] * kinds[kind, k]
        logs[k] = log
        weights[k] = np.exp(log)
        table[one, k, 0] = log
        table[one, k, 1] = weights[k]
    summarise(logs, weights, sums[one])


@compiled
def survey(votes: Any, values: Any, keys: Any, occurs: Any, start: int, stop: int) -> int:
    """The key of each item, the sum of the values of those who voted; returns the top code.

    ``occurs`` has a mark for each key, or no room at all.
    """
    models, marked = votes.shape[1], occurs.size > 0
    # Model by model, although one number would do: so an item is a few steps of a vector.
    highest = np.full(models, np.int32(-1))
    for item in range(np.uint64(start), np.uint64(stop)):
        key = 0
        for model in range(models):
            key += values[model] if votes[item, model] >= 0 else 0
            highest[model] = max(highest[model], votes[item, model])
        keys[item] = key
        if marked:
            occurs[np.uint64(key)] = True
    top = -1
    for model in range(models):
        top = max(top, highest[model])
    return top


@compiled
def number_keys(
    keys: Any, slots: Any, known: Any, number: int, limit: int, sets: Any
) -> tuple[int, int]:
    """The number of each key, new ones numbered on; returns how many there are, and how far it got.

    ``slots`` is a hash table of numbers, with room for twice the limit; ``known`` the keys by
    number. It stops before an item whose key would be one too many.
    """
    mask = len(slots) - 1
    for item in range(len(keys)):
        key = keys[item]
        mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
        at = np.int64(mixed >> np.uint64(20)) & mask
        while slots[at] >= 0 and known[slots[at]] != key:
            at = (at + 1) & mask
        if slots[at] < 0:
            if number == limit:
                return number, item
            slots[at] = number
            known[number] = key
            number += 1
        sets[item] = slots[at]
    return number, len(keys)


class VoteArrays(NamedTuple):
    """The votes of a block of items. A vote is the cells it touches."""

    hard: Any
    """(n, T) codes, −1 where there is no vote; a soft vote by its own code."""
    soft: Any
    """(n, T) the place of its soft vote, −1 where it is only hard; of size 0 if all are."""
    soft_cells: Any
    """(places, 2) where the cells of each soft vote begin and end."""
    truths: Any
    """The classes of the cells: those of the models, then those of the soft votes."""
    kinds: Any
    """Which of ``ratios`` each cell has."""
    ratios: Any
    """(kinds, 2) by what logarithm and ratio cells differ from the base."""


class Sets(NamedTuple):
    """The set of models of each item, and what is known of it."""

    of: Any
    """(n,) its number; of size 0 if sets are as many as items and are not kept."""
    voters: Any
    """(D, T+1) how many models, and which; of size 0 where sets are counts of kinds."""
    sums: Any
    """(D, COLUMNS) what all classes add up to."""
    table: Any
    """(D, K, 2) logarithm and weight of each class where sets are few; else of size 0."""


@compiled
def soften(
    terms: Any, models: Any, classes: Any, weights: Any, ranges: Any, truths: Any, ratios: Any
) -> None:
    """Soft votes as cells: log Σ_i s_i π(i, k), relative to the base, where their classes have any.

    ``ranges`` holds where the cells of each begin; where they end is written. Each cell has a ratio
    of its own, at its own place.
    """
    place = np.full(len(terms.prior), -1, np.int64)
    for one in range(len(models)):
        model, first = models[one], ranges[one, 0]
        last = first
        total = 0.0
        for at in range(classes.shape[1]):
            code, weight = classes[one, at], weights[one, at]
            if code < 0 or weight == 0.0:
                continue
            total += weight
            for cell in range(terms.starts[model, code], terms.starts[model, code + 1]):
                k = terms.truths[cell]
                if place[k] < 0:
                    place[k] = last
                    truths[last] = k
                    ratios[last, 0] = 0.0
                    ratios[last, 1] = 0.0
                    last += 1
                ratios[place[k], 0] += weight
                ratios[place[k], 1] += weight * terms.ratios[terms.kinds[cell], 1]
        for at in range(first, last):
            place[truths[at]] = -1
            # What has no cell here is added up, and not subtracted: nothing cancels.
            left = 0.0
            if ratios[at, 0] < total:
                for one_class in range(classes.shape[1]):
                    code, weight = classes[one, one_class], weights[one, one_class]
                    if code < 0 or weight == 0.0:
                        continue
                    found = False
                    for cell in range(terms.starts[model, code], terms.starts[model, code + 1]):
                        if terms.truths[cell] == truths[at]:
                            found = True
                            break
                    if not found:
                        left += weight
            ratio = (left + ratios[at, 1]) / total
            ratios[at, 0] = np.log(ratio)
            ratios[at, 1] = ratio
        ranges[one, 1] = last
