"""Rules: whether a stored label changes. A rule only touches the label, never the belief."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from posterity.errors import InvalidParameter, UnknownName
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.spec import Spec, plain_number, plain_share, read_share
from posterity.method.decide.simple_rules import (
    Evidence,
    KnownRule,
    MajorityVote,
    MaxBelief,
    MaxBeliefMinEntropy,
    Oracle,
    Replace,
    Rule,
    among,
    decide,
    given,
    traits,
)

__all__ = [
    "AtMost",
    "Balanced",
    "Confirm",
    "CostRatio",
    "Evidence",
    "KnownRule",
    "MajorityVote",
    "MaxBelief",
    "MaxBeliefMinEntropy",
    "Oracle",
    "Replace",
    "Rule",
    "TwoVotes",
    "among",
    "decide",
    "inner",
    "parse",
    "refuse_ratio",
    "traits",
]


@dataclass(frozen=True)
class CostRatio(KnownRule):
    """CR: change only if a negative flip, costing c times a positive one, is unlikely enough.

    The most believed class k̂ ≠ l is taken iff p(k̂) − c·p(l) − c₀·(1 − p(k̂) − p(l)) > 0, with
    c₀ the cost of a neutral flip; for c₀ = 0 that is the paper's p(k̂)/p(l) > c. Labels of some
    classes may cost more: ``of`` names their own c.

    >>> evidence = Evidence(
    ...     label=np.array([0, 0]), vote=np.array([1, 1]), best=np.array([1, 1]),
    ...     belief_best=np.array([0.6, 0.9]), belief_label=np.array([0.3, 0.05]),
    ... )
    >>> CostRatio(10).decide(evidence)
    array([0, 1])
    """

    ratio: float
    neutral: float = 0.0
    of: Mapping[str, float] = field(default_factory=dict)
    """The ratio of some classes, by name: what it costs to break a label of theirs."""
    by_code: tuple[float, ...] = field(default=(), compare=False, repr=False)
    """The same for every class, once it is known which there are; see ``among``."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "of", {str(name): self.of[name] for name in sorted(self.of, key=str)}
        )
        for ratio in (self.ratio, *self.of.values()):
            if not (_is_finite(ratio) and ratio > 0):
                raise InvalidParameter.of("cost ratio", "a finite number above 0", ratio)
        if not (_is_finite(self.neutral) and self.neutral >= 0):
            raise InvalidParameter.of("neutral", "a finite number ≥ 0", self.neutral)

    @property
    def cost(self) -> float:
        """That of most labels."""
        return float(self.ratio)

    def among(self, classes: Sequence[object]) -> Rule:
        """With the ratio of each class."""
        if not self.of:
            return self
        names = [str(name) for name in classes]
        for name in self.of:
            if name not in names:
                raise UnknownName.among("class", name, names)
        return replace(self, by_code=tuple(self.of.get(name, self.ratio) for name in names))

    def decide(self, evidence: Evidence) -> Codes:
        """The comparison is with the stored label's belief, not with the previous best."""
        best = given(self, "best", evidence.best)
        gain = given(self, "belief_best", evidence.belief_best)
        loss = given(self, "belief_label", evidence.belief_label)
        worth = gain - self.of_labels(evidence.label) * loss - self.neutral * (1 - gain - loss) > 0
        return np.where((best != evidence.label) & worth, best, evidence.label)

    def threshold(self, label: int) -> float:
        """The ratio of the label's class."""
        return float(np.ravel(self.of_labels(np.array([label], dtype=np.int32)))[0])

    def of_labels(self, labels: Codes) -> Floats | float:
        """The cost ratio of each label."""
        if not self.of:
            return self.ratio
        if not self.by_code:
            raise InvalidParameter(f"The rule '{self}' has to know the classes; see rules.among.")
        return np.array([*self.by_code, self.ratio])[labels]  # −1: no label, the last one

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        neutral = f",neutral={plain_number(self.neutral)}" if self.neutral else ""
        # Names may hold anything; escaped, they are read again.
        own = "".join(
            f",of.{quote(name, safe='')}={plain_number(ratio)}" for name, ratio in self.of.items()
        )
        return f"cost-ratio:{plain_number(self.ratio)}{neutral}{own}"


@dataclass(frozen=True)
class AtMost(KnownRule):
    """A promise: a step breaks at most this share of all items, with this confidence.

    The cost ratio that keeps it is found on the labelled set when a step is made; see ``promise``.

    >>> str(AtMost(0.002))
    'at-most:0.2%,confidence=0.9'
    """

    promises = rehearsed = True
    rate: float
    confidence: float = 0.9
    ratio: float | None = None
    """As a step has found it: from then on the rule is that of a cost ratio."""

    def __post_init__(self) -> None:
        _check_share(self, "rate", "at-most:0.2%,confidence=0.9")
        _check_share(self, "confidence", "at-most:0.2%,confidence=0.9")
        _check_ratio(self.ratio)

    @property
    def cost(self) -> float:
        """Whatever ratio keeps the promise: that is found among the items this one chooses."""
        return 10.0

    def threshold(self, label: int) -> float:  # noqa: ARG002
        """The same for every label."""
        return given(self, "ratio", self.ratio)

    def decide(self, evidence: Evidence) -> Codes:
        """As the cost ratio has it."""
        return CostRatio(given(self, "ratio", self.ratio)).decide(evidence)

    def __str__(self) -> str:
        confidence = plain_number(self.confidence)
        return f"at-most:{plain_share(self.rate)},confidence={confidence}{_ratio_text(self.ratio)}"


@dataclass(frozen=True)
class Balanced(KnownRule):
    """Most of the corrections a step can make, with as few broken labels as that allows.

    The cost ratio is chosen on the labelled set when a step is made: the highest with this share of
    the best one's net corrections; see ``balance``. Labels change only to classes with a vote.

    >>> str(Balanced()), str(Balanced(0.95, ratio=1.5))
    ('balanced:80%', 'balanced:95%,ratio=1.5')
    """

    rehearsed = True
    uses = frozenset({"best", "support"})
    share: float = 0.8
    ratio: float | None = None
    """As a step has chosen it. Without a labelled set to choose on it is ``CAUTIOUS``."""

    def __post_init__(self) -> None:
        _check_share(self, "share", "balanced:80%")
        _check_ratio(self.ratio)

    @property
    def cost(self) -> float:
        """Items are chosen as for this ratio; theirs is chosen afterwards."""
        return 2.0

    def threshold(self, label: int) -> float:  # noqa: ARG002
        """The same for every label."""
        return self.ratio or CAUTIOUS

    def decide(self, evidence: Evidence) -> Codes:
        """As a cost ratio, where there is a vote for the new label."""
        wanted = CostRatio(self.ratio or CAUTIOUS).decide(evidence)
        return np.where(given(self, "support", evidence.support) >= 1, wanted, evidence.label)

    def __str__(self) -> str:
        return f"balanced:{plain_share(self.share)}{_ratio_text(self.ratio)}"


CAUTIOUS = 10.0
"""Of beliefs that nobody could check: a product of votes is far too sure of itself."""


def _check_share(rule: AtMost | Balanced, name: str, example: str) -> None:
    share = getattr(rule, name)
    if not (_is_finite(share) and 0 < share < 1):
        raise InvalidParameter.of(name, f"a share above 0 and below 1, as in {example}", share)
    object.__setattr__(rule, name, float(share))  # NumPy's would be kept by another name


def _check_ratio(ratio: float | None) -> None:
    if ratio is not None and not (_is_finite(ratio) and ratio >= 1):
        raise InvalidParameter.of("ratio", "a finite number of at least 1", ratio)


def _ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f",ratio={plain_number(ratio)}"


@dataclass(frozen=True)
class Confirm(KnownRule):
    """A rule with patience (``+confirm``): a flip it wants is proposed first; see ``propose``.

    >>> str(Confirm(CostRatio(10)))
    'cost-ratio:10+confirm'
    """

    patient = True
    rule: Rule

    def __post_init__(self) -> None:
        if isinstance(self.rule, (Confirm, TwoVotes)):
            raise InvalidParameter(f"The rule '{self.rule}' has a modifier already.")
        if isinstance(self.rule, Oracle):
            raise InvalidParameter(
                "The rule 'oracle' takes no '+confirm': it knows the truth, so that another vote "
                "could tell it nothing.",
                hint="Put it on another rule, as in max-belief+confirm.",
            )
        if isinstance(self.rule, (AtMost, Balanced)):
            raise InvalidParameter(
                f"The rule '{self.rule}' takes no '+confirm': its cost ratio is chosen by what one "
                "step does, and flips that wait are made by another."
            )

    @property
    def cost(self) -> float:
        """That of the inner rule."""
        return traits(self.rule).cost

    def among(self, classes: Sequence[object]) -> Rule:
        """With the inner rule where these are the classes."""
        return Confirm(among(self.rule, classes))

    def decide(self, evidence: Evidence) -> Codes:
        """The label the inner rule wants; whether it has to wait is told by ``step.propose``."""
        return self.rule.decide(evidence)

    def __str__(self) -> str:
        return f"{self.rule}+confirm"


@dataclass(frozen=True)
class TwoVotes(KnownRule):
    """A rule with caution (``+two-votes``): a label changes only to a class with two votes.

    >>> str(TwoVotes(CostRatio(2)))
    'cost-ratio:2+two-votes'
    """

    uses = frozenset({"best", "support"})
    rule: Rule

    def __post_init__(self) -> None:
        if not isinstance(self.rule, (CostRatio, MaxBelief)):
            raise InvalidParameter(
                f"The rule '{self.rule}' takes no '+two-votes'.",
                hint="Put it on cost-ratio:C or max-belief.",
            )

    @property
    def cost(self) -> float:
        """That of the inner rule."""
        return traits(self.rule).cost

    def among(self, classes: Sequence[object]) -> Rule:
        """With the inner rule where these are the classes."""
        return TwoVotes(among(self.rule, classes))

    def decide(self, evidence: Evidence) -> Codes:
        """What the inner rule wants, where two votes are for it."""
        wanted, support = self.rule.decide(evidence), given(self, "support", evidence.support)
        return np.where(support >= 2, wanted, evidence.label)

    def __str__(self) -> str:
        return f"{self.rule}+two-votes"


def inner(rule: Rule) -> Rule:
    """The rule without its modifiers: what it looks at is what this one looks at."""
    return rule.rule if isinstance(rule, (Confirm, TwoVotes)) else rule


_PLAIN: dict[str, type[KnownRule]] = {
    rule.name: rule for rule in (Replace, MajorityVote, MaxBelief, MaxBeliefMinEntropy, Oracle)
}
NAMES = (*_PLAIN, "cost-ratio", "at-most", "balanced")
MODIFIERS: dict[str, type[Confirm | TwoVotes]] = {"confirm": Confirm, "two-votes": TwoVotes}
OF = "of."


def parse(text: str | Rule) -> Rule:
    """The rule a name stands for.

    >>> parse("cost-ratio:10,neutral=0.5")
    CostRatio(ratio=10.0, neutral=0.5, of={})
    >>> parse("max-belief+confirm")
    Confirm(rule=MaxBelief())
    """
    if isinstance(text, Rule) and not isinstance(text, type):
        return text
    if not isinstance(text, str):
        raise InvalidParameter.of("rule", "a name or a rule object, as in CostRatio(10)", text)
    spec = Spec.parse(text, "rule")
    rule = _unmodified(spec, text)
    for modifier in spec.modifiers:
        if modifier.strip() not in MODIFIERS:
            raise UnknownName.among("rule modifier", modifier, list(MODIFIERS))
        rule = MODIFIERS[modifier.strip()](rule)
    return rule


def _unmodified(spec: Spec, text: str) -> Rule:
    if spec.name in _PLAIN:
        spec.refuse_extras("rule", modifiers=True)
        return _PLAIN[spec.name]()
    if spec.name in ("at-most", "balanced"):
        return _rehearsed(spec, text)
    if spec.name != "cost-ratio":
        raise UnknownName.among("rule", spec.name, NAMES)
    own = [key for key in spec.options if key.startswith(OF)]
    spec.refuse_extras("rule", value=True, options=("neutral", *own), modifiers=True)
    allowed = "cost-ratio:C with a number C above 0, as in cost-ratio:10"
    if spec.value is None:
        raise InvalidParameter.of("rule", allowed, text)
    ratio = spec.number("rule", spec.value, allowed)
    least = "neutral=C0 with a number C0 ≥ 0"
    neutral = spec.number("rule", spec.options.get("neutral", "0"), least)
    wanted = "of.CLASS=C with a number C above 0, as in of.cat=50"
    unlike = {
        unquote(key.removeprefix(OF)): spec.number("rule", spec.options[key], wanted) for key in own
    }
    if len(unlike) < len(own):
        raise InvalidParameter(f"The rule {text!r} names a class twice.")
    return CostRatio(ratio, neutral, unlike)


def _rehearsed(spec: Spec, text: str) -> AtMost | Balanced:
    promise = spec.name == "at-most"
    options = ("confidence", "ratio") if promise else ("ratio",)
    spec.refuse_extras("rule", value=True, options=options, modifiers=True)
    allowed = "balanced or balanced:SHARE, as in balanced:90%"
    if promise:
        allowed = "at-most:SHARE[,confidence=P], as in at-most:0.2%,confidence=0.9"
    try:
        share = read_share(spec.value or ("" if promise else "80%"))
        confidence = read_share(spec.options.get("confidence", "0.9"))
    except ValueError:
        raise InvalidParameter.of("rule", allowed, text) from None
    told = spec.options.get("ratio")
    ratio = None if told is None else spec.number("rule", told, allowed)
    return AtMost(share, confidence, ratio) if promise else Balanced(share, ratio)


def refuse_ratio(rule: Rule) -> None:
    """What is chosen on the labelled set is not given."""
    if isinstance(rule, (AtMost, Balanced)) and rule.ratio is not None:
        raise InvalidParameter(
            f"The rule '{rule}' finds its ratio by itself, on the labelled set.",
            hint=f"Leave it out, or take cost-ratio:{plain_number(rule.ratio)}.",
        )


def _is_finite(value: object) -> bool:
    number: Any = value  # a whole one may be larger than any float
    largest = sys.float_info.max
    return isinstance(value, Real) and not isinstance(value, bool) and abs(number) <= largest
