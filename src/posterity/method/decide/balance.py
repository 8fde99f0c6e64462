"""Balance: the cost ratio that makes most of the possible corrections and breaks few labels.

Labelled items go through the step as stored ones do. Each flip that the most believed class would
make there has a margin m = p(k̂)/p(l), and the truth tells whether it fixes a label or breaks one. A
cost ratio c makes the flips with m > c, so that all ratios are compared in one pass:

    net(c) = #{fixed, m > c} − #{broken, m > c}

The choice is the highest c with net(c) ≥ share · max net. Beliefs, and so margins, were learnt on
other labelled items than those they are tried on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from posterity.method.data.arrays import Codes, Floats, Mask
from posterity.method.decide.rules import CAUTIOUS, Balanced

RATIOS = (1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0)
"""Below the first, flips are little more than the toss of a coin."""
SHOWN = (1.0, 2.0, 5.0, 10.0)
"""Cost ratios that are told of beside the one in force."""
USUAL = 1.5
"""Where the labelled set is too small to show a difference."""
CLEAR = 2.0
"""Standard errors beyond which net corrections are no accident."""
TINY = 1e-300


@dataclass(frozen=True)
class RatioOutcome:
    """What the flips of one cost ratio did on the labelled set."""

    ratio: float
    fixed: int
    broken: int

    @property
    def net(self) -> int:
        """Corrections less new errors."""
        return self.fixed - self.broken

    @property
    def chance(self) -> float:
        """How far from zero net corrections could be by chance."""
        return CLEAR * sqrt(self.fixed + self.broken)


@dataclass(frozen=True, eq=False)
class FlipMargins:
    """The flips that the most believed class would make on labelled items."""

    margins: Floats
    """p(k̂)/p(l)."""
    fixes: Mask
    breaks: Mask

    @classmethod
    def of(
        cls, before: Codes, after: Codes, truth: Codes, gain: Floats, loss: Floats
    ) -> FlipMargins:
        """From labels before and after, and the beliefs in both."""
        return cls(gain / loss.clip(TINY), after == truth, before == truth)

    @classmethod
    def joined(cls, parts: Iterable[FlipMargins]) -> FlipMargins:
        """Of several parts of the labelled set."""
        none = np.zeros(0, dtype=np.bool_)
        listed = [cls(np.zeros(0), none, none), *parts]
        return cls(
            *(np.concatenate([getattr(one, name) for one in listed]) for name in vars(listed[0]))
        )

    def outcome(self, ratio: float) -> RatioOutcome:
        """What a cost ratio does.

        >>> yes, no = True, False
        >>> flips = FlipMargins(
        ...     np.array([9.0, 3.0, 1.5]), np.array([yes, yes, no]), np.array([no, no, yes])
        ... )
        >>> flips.outcome(2)
        RatioOutcome(ratio=2, fixed=2, broken=0)
        """
        made = self.margins > ratio
        return RatioOutcome(ratio, int((made & self.fixes).sum()), int((made & self.breaks).sum()))

    def outcomes(self, ratios: Sequence[float]) -> list[RatioOutcome]:
        """What each of some ratios does."""
        return [self.outcome(ratio) for ratio in ratios]


def choose(rule: Balanced, flips: FlipMargins) -> Balanced:
    """The rule with its cost ratio.

    >>> rng = np.random.default_rng(0)
    >>> fixes = rng.random(1000) < 0.8
    >>> choose(Balanced(0.8), FlipMargins(np.where(fixes, 6.0, 1.3), fixes, ~fixes)).ratio
    5.0
    """
    outcomes = flips.outcomes(RATIOS)
    best = max(outcomes, key=lambda one: one.net)
    if best.net > 0 and best.net >= best.chance:
        enough = [one.ratio for one in outcomes if one.net >= rule.share * best.net]
        return replace(rule, ratio=max(enough))
    # Nothing is clear; but a ratio that clearly does harm is not taken.
    usual = flips.outcome(USUAL)
    harmless = [one.ratio for one in outcomes if one.net >= 0]
    if usual.net > -usual.chance or not usual.net:
        return replace(rule, ratio=USUAL)
    return replace(rule, ratio=min(harmless, default=CAUTIOUS))
