"""Casts: the votes of a block of items and the sets of models they are of, as kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity._kernels.policy import compiled


class Cast(NamedTuple):
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
    slots: Any
    """Where ``of`` holds keys: the number of each, times 32, plus how many models; else empty."""
    voters: Any
    """(D, T+1) how many models, and which; of size 0 where sets are counts of kinds."""
    sums: Any
    """(D, 8) what all classes add up to."""
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
