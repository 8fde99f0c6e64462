"""Calibrated soft votes once more, with plain loops and straight from their definition.

A soft vote is a dict from class to weight; a missing one is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Soft = dict[int, float]


def calibrated(soft: Soft, sharpness: float, biases: Sequence[float]) -> Soft:
    """s̃ of the classes kept, without the tail."""
    worth = {
        code: sharpness * math.log(max(weight, 1e-7)) + biases[code]
        for code, weight in soft.items()
        if weight > 0
    }
    top = max(worth.values(), default=0.0)
    total = sum(math.exp(value - top) for value in worth.values())
    return {code: math.exp(value - top) / total for code, value in worth.items()}


def likelihood(
    votes: Sequence[Soft], truth: Sequence[int], sharpness: float, biases: Sequence[float]
) -> float:
    """Of the truths that are kept."""
    total = 0.0
    for soft, true in zip(votes, truth, strict=True):
        if soft.get(true, 0) > 0:
            total += math.log(calibrated(soft, sharpness, biases)[true])
    return total


def tail(votes: Sequence[Soft], truth: Sequence[int], classes: int) -> float:
    """How often the truth is none of the classes kept, among votes that do not keep all."""
    cast = [(soft, true) for soft, true in zip(votes, truth, strict=True) if any(soft.values())]
    outside = sum(1 for soft, true in cast if not soft.get(true))
    room = sum(1 for soft, _ in cast if sum(1 for w in soft.values() if w > 0) < classes)
    return (outside + (outside + 0.5) / (len(cast) + 1)) / (room + 1)


def chances(soft: Soft, known: Any, classes: int) -> list[float]:
    """s̃ of every class, the tail among those that are not kept; ``known``: a Temperature."""
    kept = calibrated(soft, known.sharpness, known.biases.tolist())
    tail = known.tail if len(kept) < classes else 0.0
    return [
        kept[k] * (1 - tail) if k in kept else tail / (classes - len(kept)) for k in range(classes)
    ]


def leaning(
    votes: Sequence[tuple[int, int]],
    softs: Sequence[Soft | None],
    known: Sequence[Any],
    classes: int,
) -> dict[int | None, float]:
    """What soft votes say of each candidate beyond the votes themselves; None: none of these.

    ``votes``: (model, class); ``softs``: the soft vote of each, None where it is only hard.
    """
    voted = {code for _, code in votes}
    found: dict[int | None, float] = dict.fromkeys([*voted, None], 0.0)
    for (model, code), soft in zip(votes, softs, strict=True):
        if not soft or known[model] is None:
            continue
        said, right = chances(soft, known[model], classes), known[model].accuracy
        for one in found:
            if one is not None:
                chance, alone = said[one], right if one == code else (1 - right) / (classes - 1)
            elif len(voted) < classes:
                left = [said[k] for k in range(classes) if k not in voted]
                chance, alone = sum(left) / len(left), (1 - right) / (classes - 1)
            else:
                continue
            found[one] += math.log(max(chance, 1e-12)) - math.log(alone)
    return found
