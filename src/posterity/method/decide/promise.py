"""Promises: the cost ratio at which few enough labels break, with a stated confidence.

Labelled items that go through a step are like the stored ones, so that those whose right label the
step would break are, by their margin p(k̂)/p(l), a random part of all such items. Let at most b of
them have a margin above the ratio. More than m stored labels then break only if m + 1 stored ones
come before the labelled one in place b + 1, all in descending order of margin:

    P(X ≤ b),   X ~ Hypergeometric(n + N items, of which b + m + 1 break, n of them labelled)

with n labelled and N stored items and m = ⌊rate · N⌋. The largest b for which that is at most
1 − confidence is allowed, and the ratio is the margin in place b + 1. This holds for any models and
any beliefs, good or bad, and although the ratio is chosen by looking at the same items: only their
order counts. It does not hold where the stored items are unlike the labelled ones.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import replace
from fractions import Fraction

import numpy as np

from posterity.errors import InvalidData
from posterity.method.data.arrays import Floats
from posterity.method.decide.rules import AtMost

ROUNDING = 1e-9
DIGITS = 4
"""Of a ratio; what is beyond them is rounded up."""


def keep(rule: AtMost, margins: Floats, *, labelled: int, items: int) -> AtMost:
    """The rule with the lowest cost ratio that keeps its promise about so many items.

    ``margins``: how many times the new label was believed more than the old one, of the labelled
    items whose right label would break; infinite where no ratio can prevent it.

    >>> keep(AtMost(0.01), np.array([40.0, 2.0, 9.0, 1.5]), labelled=500, items=10_000).ratio
    9.0
    """
    most = allowed(labelled, items, rate=rule.rate, confidence=rule.confidence)
    if most is None:
        few = f"{labelled:,} labelled items are too few to promise '{rule}' for {items:,} items"
        enough = needed(items, rate=rule.rate, confidence=rule.confidence)
        raise InvalidData(
            f"{few}; at least {enough:,} are needed, even if the step broke none of them.",
            hint="Promise less, label more items, or choose a cost ratio yourself.",
        )
    if len(margins) <= most:
        return replace(rule, ratio=1.0)
    least = float(np.sort(margins)[::-1][most])
    if not math.isfinite(least):
        raise InvalidData(
            f"The rule '{rule}' cannot be kept: the pending flips this step would make break more "
            "labels than it allows.",
            hint="Make them in a step of their own first: posterity settle.",
        )
    return replace(rule, ratio=max(1.0, _rounded_up(least)))


def allowed(labelled: int, items: int, *, rate: float, confidence: float) -> int | None:
    """How many labelled items may break; None where they are too few to promise anything.

    >>> [allowed(some, 100_000, rate=0.002, confidence=0.9) for some in (500, 5_000)]
    [None, 5]
    """
    most = _most(items, rate)

    def chance(broken: int) -> float:
        return _chance(broken, labelled, items, most)

    few_enough = bisect_right(range(labelled + 1), _doubt(confidence), key=chance)
    return few_enough - 1 if few_enough else None


def needed(items: int, *, rate: float, confidence: float) -> int:
    """So many labelled items must all stay right for the promise to be worth anything."""
    doubt, most, enough = _doubt(confidence), _most(items, rate), 1
    while _chance(0, enough, items, most) > doubt:
        enough *= 2
    fewer = range(enough // 2 + 1, enough)
    return fewer.start + bisect_left(
        fewer, True, key=lambda some: _chance(0, some, items, most) <= doubt
    )


def _doubt(confidence: float) -> float:
    """A chance that is exactly this much is none too many, whatever rounding made of it."""
    return 1 - confidence + ROUNDING


def _most(items: int, rate: float) -> int:
    """m, with the rate as the decimal its user wrote, not as the nearest binary number."""
    return math.floor(Fraction(repr(rate)) * items)


def _chance(broken: int, labelled: int, items: int, most: int) -> float:
    """P(X ≤ b): that more than m stored labels break where no more than b labelled ones do."""
    if most >= items:
        return 0.0
    breaking = broken + most + 1
    if breaking > labelled + items:
        return 0.0
    ways = _log_choose(labelled + items, breaking)
    first = max(0, breaking - items)
    logs = (
        _log_choose(labelled, one) + _log_choose(items, breaking - one) - ways
        for one in range(first, min(broken, labelled) + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def _log_choose(total: int, some: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(some + 1) - math.lgamma(total - some + 1)


def _rounded_up(ratio: float) -> float:
    """With few digits, and never below: a flip with just this margin must not be made."""
    scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(ratio)))
    found = math.ceil(ratio * scale) / scale
    return found if found >= ratio else math.nextafter(ratio, math.inf)
