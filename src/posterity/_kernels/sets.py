"""Sets: what the classes nobody's vote touches add up to, for each set of models that voted.

An item's log-joint is prior(k) + Σ base(k) over the models that voted, plus corrections at the few
classes its votes touch. Without the corrections it depends on the set of models alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity._kernels.policy import compiled, reordered

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
    """(T, K, 4) both once more, and the cell of the class itself: what one look needs together."""
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


class Masses(NamedTuple):
    """One row for each set of models."""

    top: Any
    """The most believed class if no class were touched, the lowest of those."""
    sums: Any
    """(D, 4) its logarithm; Σ w and Σ w·(log w − that) of all others; its own weight."""


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
        la, wa = terms.logs[voters[at]], terms.weights[voters[at]]
        for k in range(classes):
            logs[k] += la[k]
            weights[k] *= wa[k]
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
def summarise(logs: Any, weights: Any, sums: Any) -> int:
    """Fill one row of the sums; returns the top class. The weight of the top class is lost."""
    most = highest(logs)
    top = 0
    while logs[top] != most:
        top += 1
    sums[0] = most
    sums[3] = weights[top]
    # Left out, and not subtracted later: nothing is lost where it outweighs all others.
    weights[top] = 0.0
    sums[1], sums[2] = add_up(logs, weights, most)
    if most < FAR:
        sums[1] = np.nan
    return top


@compiled
def fill(terms: Any, voters: Any, masses: Any, first: int, last: int) -> None:
    """Sets ``first`` to ``last``; ``voters`` holds how many models, and which."""
    classes = len(terms.prior)
    logs = np.empty(classes)
    weights = np.empty(classes)
    for one in range(first, last):
        accumulate(terms, voters[one, 1:], voters[one, 0], logs, weights)
        masses.top[one] = summarise(logs, weights, masses.sums[one])


@compiled
def tabulate(prior: Any, kinds: Any, counts: Any, table: Any, masses: Any, one: int) -> None:
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
    masses.top[one] = summarise(logs, weights, masses.sums[one])


@compiled
def pack_keys(votes: Any, start: int, stop: int, keys: Any) -> None:
    """A bit for each model that voted on an item."""
    for item in range(start, stop):
        key = np.int64(0)
        for model in range(votes.shape[1]):
            key |= np.int64(votes[item, model] >= 0) << model
        keys[item] = key


@compiled
def count_kinds(votes: Any, strides: Any, start: int, stop: int, sets: Any) -> None:
    """The set of each item, as how many models of each kind voted, in mixed radix."""
    for item in range(start, stop):
        key = 0
        for model in range(votes.shape[1]):
            if votes[item, model] >= 0:
                key += strides[model]
        sets[item] = key


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
