"""Policies: how items are selected and labels decided; and which of several serves a goal best.

What each did on labelled items, over a whole history of steps, is in its figures. A goal says which
figures are good:

    balance:90%   at least 90 % of the highest gain in accuracy, over the history and at its end;
                  of those policies the one that breaks fewest labels
    soon:90%      the same, but only accuracy over the history counts
    final:90%     the same, but only accuracy at its end counts
    ratio:5       a broken label costs five fixed ones
    at-most:1%    no step breaks more than 1 % of all labels, with confidence; of such policies the
                  one with most net corrections
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

from posterity.errors import InvalidParameter, UnknownName
from posterity.method.data.spec import Spec, plain_number, plain_share, read_share
from posterity.method.decide.rules import AtMost, Rule, refuse_ratio
from posterity.method.decide.rules import parse as parse_rule
from posterity.method.decide.selectors import Contested, Entropy, Selector, Value

SELECTORS: tuple[Selector, ...] = (Value(), Contested(), Entropy())
RULES = (
    *("balanced:80%", "balanced:95%", "max-belief"),
    *(f"cost-ratio:{ratio}" for ratio in (1.5, 2, 3, 5, 7, 10)),
    *(f"cost-ratio:{ratio}+confirm" for ratio in (1.5, 3, 7)),
    *(f"cost-ratio:{ratio}+two-votes" for ratio in (1.5, 2, 3, 5)),
)
BALANCE, SOON, FINAL, RATIO, AT_MOST = "balance", "soon", "final", "ratio", "at-most"
NAMES = (BALANCE, SOON, FINAL, RATIO, AT_MOST)
SHARE = 0.9
SUREST = 1 - 1e-9
"""The highest confidence: each promise that is compared is made with more."""
LEAST_DIGITS = 4
"""Of a confidence; what is beyond them is rounded up."""


@dataclass(frozen=True)
class Policy:
    """How items are selected, and how their labels are decided."""

    selector: Selector
    rule: Rule

    def __str__(self) -> str:
        return f"{self.selector}, {self.rule}"


@dataclass(frozen=True)
class Figures:
    """What a policy did on labelled items over a whole history."""

    items: int
    first: float
    """Accuracy after the first step, which is the same under any policy."""
    final: float
    mean: float
    """Over all steps."""
    fixed: int
    broken: int

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return dict(vars(self))

    def beats(self, other: Figures) -> bool:
        """Whether it is as good in every respect, and better in one."""
        mine, others = self._merits, other._merits
        return mine != others and all(a >= b for a, b in zip(mine, others, strict=True))

    def apart(self, other: Figures) -> float:
        """How far both accuracies are from those of another policy."""
        return abs(self.final - other.final) + abs(self.mean - other.mean)

    @property
    def _merits(self) -> tuple[float, float, int]:
        return self.final, self.mean, -self.broken


@dataclass(frozen=True)
class Goal:
    """What is wanted of a policy."""

    name: str = BALANCE
    number: float = SHARE
    """The share of the highest gain, the cost ratio, or the share of labels that may break."""
    confidence: float = 0.9

    @classmethod
    def parse(cls, text: str | Goal) -> Goal:
        """What a name stands for.

        >>> str(Goal.parse("final")), str(Goal.parse("ratio:5")), str(Goal.parse("at-most:0.5%"))
        ('final:90%', 'ratio:5', 'at-most:0.5%,confidence=0.9')
        """
        if isinstance(text, Goal):
            return text
        if not isinstance(text, str):
            raise InvalidParameter.of("goal", "a name, as in balance:90%", text)
        spec = Spec.parse(text, "goal")
        if spec.name not in NAMES:
            raise UnknownName.among("goal", spec.name, NAMES)
        if spec.name == AT_MOST:
            rule = parse_rule(text)
            refuse_ratio(rule)
            if isinstance(rule, AtMost):
                if rule.confidence > SUREST:
                    allowed = f"a confidence of at most {SUREST}"
                    raise InvalidParameter.of("goal", allowed, text)
                return cls(AT_MOST, rule.rate, rule.confidence)
        spec.refuse_extras("goal", value=True)
        if spec.name == RATIO:
            allowed = "ratio:C with a number C above 0, as in ratio:5"
            ratio = spec.number("goal", spec.value or "", allowed)
            if not 0 < ratio < float("inf"):
                raise InvalidParameter.of("goal", allowed, text)
            return cls(RATIO, ratio)
        try:
            share = SHARE if spec.value is None else read_share(spec.value)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            allowed = f"{spec.name}:SHARE, a share above 0 % and below 100 %"
            raise InvalidParameter.of("goal", allowed, text)
        return cls(spec.name, share)

    @property
    def policies(self) -> list[Policy]:
        """Those that are tried for it.

        A promise is made by each of several policies, and the one that looks best is taken: so
        each is made with so much more confidence that all of them are kept together (Bonferroni).
        """
        if self.name != AT_MOST:
            rules = [parse_rule(rule) for rule in RULES]
            return [Policy(selector, rule) for selector in SELECTORS for rule in rules]
        doubt = (1 - self.confidence) / len(SELECTORS)
        digits = 10 ** max(LEAST_DIGITS, 2 + ceil(-log10(doubt)))
        promise = AtMost(self.number, ceil(digits * (1 - doubt)) / digits)
        return [Policy(selector, promise) for selector in SELECTORS]

    def choose(self, tried: Sequence[Figures]) -> int:
        """The place of the policy that serves the goal best.

        Of equally good ones it is the most accurate one, and of those the first.
        """
        places = range(len(tried))
        if self.name in (RATIO, AT_MOST):
            cost = self.number if self.name == RATIO else 1.0

            def worth(at: int) -> tuple[float, float, float]:
                one = tried[at]
                return one.fixed - cost * one.broken, one.final, one.mean

            return max(places, key=worth)
        gains: list[Callable[[Figures], float]] = []
        if self.name != SOON:
            gains.append(lambda one: one.final - one.first)
        if self.name != FINAL:
            gains.append(lambda one: one.mean - one.first)
        most = [max(map(gain, tried)) for gain in gains]
        wanted = [min(self.number * best, best) for best in most]

        def above(at: int) -> float:
            return min(gain(tried[at]) - want for gain, want in zip(gains, wanted, strict=True))

        enough = [at for at in places if above(at) >= 0]
        if not enough:  # no policy may have most of both; then the one that falls short least
            return max(places, key=above)

        def badness(at: int) -> tuple[float, ...]:
            one = tried[at]
            return one.broken, -sum(gain(one) for gain in gains), -one.final, -one.mean

        return min(enough, key=badness)

    @property
    def meaning(self) -> str:
        """In words."""
        share = plain_share(self.number)
        if self.name == RATIO:
            return (
                f"most corrections, if a broken label costs {plain_number(self.number)} fixed ones"
            )
        if self.name == AT_MOST:
            return f"most net corrections, if no step may break more than {share} of all labels"
        when = {
            BALANCE: "over the history and at its end",
            SOON: "over the history",
            FINAL: "at the end of the history",
        }[self.name]
        return f"fewest broken labels with at least {share} of the highest gain in accuracy {when}"

    def __str__(self) -> str:
        if self.name == RATIO:
            return f"{RATIO}:{plain_number(self.number)}"
        if self.name == AT_MOST:
            return str(AtMost(self.number, self.confidence))
        return f"{self.name}:{plain_share(self.number)}"
