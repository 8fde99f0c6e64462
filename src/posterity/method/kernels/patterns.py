"""Labelled items with just the votes an item has, and what is believed of it with them."""

from __future__ import annotations

from math import lgamma
from typing import Any, NamedTuple

import numpy as np

from posterity.method.kernels.compiler import compiled

NUMBER = 8
"""The place in the calibrator of what a labelled item with the same votes counts for."""
WORTHS = tuple(float(np.float32(worth)) for worth in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0))
"""What one labelled item may count for beside a belief; fits are kept in single precision."""
ELSEWHERE = 0.1
"""The chance that a pattern is not like most: that its labelled items count for any of these."""
IMPOSSIBLE = 1e-12
SLOTS = 2**14
"""Items that are remembered for others with the same votes."""


class PatternArrays(NamedTuple):
    """Votes that labelled items have, as bare arrays."""

    votes: Any
    """(n, T)"""
    truth: Any
    """(n,)"""
    counts: Any
    """(n,) how many labelled items there are with these votes and this truth."""
    weights: Any
    """(n,) what each of them counts for."""
    starts: Any
    """(T·K+1,) where the rows of each vote of each model begin."""
    rows: Any
    """Those rows."""


@compiled
def alike(par: Any, votes: int, space: Any, found: Any) -> int:
    """``found``: the rows with all the votes of an item; how many there are."""
    known, classes = par.patterns, len(par.prior)
    if par.calibrator[NUMBER] <= 0.0 or votes == 0:
        return 0
    low, high = 0, len(known.rows) + 1
    for at in range(votes):  # the vote that fewest rows have
        cell = space.model[at] * classes + space.code[at]
        if known.starts[cell + 1] - known.starts[cell] < high - low:
            low, high = known.starts[cell], known.starts[cell + 1]
    many = 0
    for place in range(low, high):
        row = known.rows[place]
        same = True
        for at in range(votes):
            if known.votes[row, space.model[at]] != space.code[at]:
                same = False
                break
        if same:
            found[many] = row
            many += 1
    return many


@compiled
def place_of(code: int, candidates: Any, count: int) -> int:
    """Of a class among the candidates; after the last of them if it is none."""
    for one in range(count):
        if candidates[one] == code:
            return one
    return count


@compiled
def weight_of(par: Any, row: int, own: int) -> Any:
    """What the labelled items of a row count for together; see ``tally``."""
    return (par.patterns.counts[row] - (1.0 if row == own else 0.0)) * par.patterns.weights[row]


@compiled
def tally(par: Any, found: Any, many: int, count: int, space: Any, own: int) -> float:
    """How many labelled items of these rows there are, by the candidate that is their truth.

    As many as they are worth: where weights differ, fewer than there are (Kish). What a weight is
    multiplied by for that. ``own``: the row of an item that is not to count itself; −1: none.
    """
    known, told = par.patterns, space.told
    total, squares = 0.0, 0.0
    for one in range(count + 1):
        told[one] = 0.0
    for at in range(many):
        row = found[at]
        weight = weight_of(par, row, own)
        told[place_of(known.truth[row], space.candidates, count)] += weight
        total += weight
        squares += weight * known.weights[row]
    scale = total / squares if squares > 0.0 else 0.0
    for one in range(count + 1):
        told[one] *= scale
    return scale


@compiled
def worth_of(usual: float, told: Any, count: int, belief: Any) -> float:
    """What one of an item's like counts for: ``usual``, or more where they contradict formulas.

    How likely these counts are, if what is true of the pattern was drawn around the belief with
    the strength of 1/worth items (Dirichlet), tells how likely each worth is.
    """
    total = 0.0
    for one in range(count + 1):
        total += told[one]
    likely = np.empty(len(WORTHS))
    for at in range(len(WORTHS)):
        strength = 1.0 / WORTHS[at]
        likely[at] = lgamma(strength) - lgamma(strength + total)
        for one in range(count + 1):
            if told[one] > 0.0:
                drawn = strength * max(belief[one], IMPOSSIBLE)
                likely[at] += lgamma(drawn + told[one]) - lgamma(drawn)
        own = 1.0 - ELSEWHERE if WORTHS[at] == usual else 0.0
        likely[at] += np.log(own + ELSEWHERE / len(WORTHS))
    highest, formula, counted = likely.max(), 0.0, 0.0
    for at in range(len(WORTHS)):
        share = np.exp(likely[at] - highest) / (1.0 + WORTHS[at] * total)
        formula += share
        counted += share * WORTHS[at]
    return counted / formula  # that of the mean of what each would make of the belief


@compiled
def draw(usual: float, told: Any, count: int, belief: Any) -> None:
    """Beliefs shrunk towards what was true of labelled items with the same votes."""
    total, worth = 0.0, worth_of(usual, told, count, belief)
    for one in range(count + 1):
        total += told[one]
    if total > 0.0:  # else to the last bit what they were
        for one in range(count + 1):
            belief[one] = (belief[one] + worth * told[one]) / (1.0 + worth * total)


@compiled
def slots() -> Any:
    """To be filled by ``twin``."""
    return np.full(SLOTS, -1, np.int64)


@compiled
def twin(seen: Any, hard: Any, more: Any, others: Any, item: int) -> int:
    """An earlier item with the same votes and the same labels; −1: none is remembered.

    Most items of a large store have a few votes, so that few are like no other.
    """
    mixed = np.uint64(1469598103934665603)
    for at in range(hard.shape[1]):
        mixed = (mixed ^ np.uint64(hard[item, at] + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ np.uint64(more[item] + 1)) * np.uint64(0x9E3779B97F4A7C15)
    for at in range(others.shape[1]):
        mixed = (mixed ^ np.uint64(others[item, at] + 1)) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(3)) & (SLOTS - 1)
    earlier = seen[slot]
    seen[slot] = item
    if earlier < 0 or more[item] != more[earlier]:
        return -1
    for at in range(hard.shape[1]):
        if hard[item, at] != hard[earlier, at]:
            return -1
    for at in range(others.shape[1]):
        if others[item, at] != others[earlier, at]:
            return -1
    return int(earlier)
