"""Rules: whether a stored label changes. A rule only touches the label, never the belief."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from posterity._arrays import ArrayLike, Codes, Floats, Rows
from posterity.beliefs import Beliefs
from posterity.dense import DenseBeliefs
from posterity.dependent import DependentBeliefs
from posterity.errors import InvalidParameter, UnknownName
from posterity.specs import Spec, plain_number
from posterity.votes import MISSING, as_array, check_codes, check_same_length

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a rule may look at: the items with a new vote in this step.

    Only what the rule at hand uses needs to be given.
    """

    label: Codes
    """l, the stored label before the step."""
    vote: Codes
    """The new vote."""
    best: Codes | None = None
    """k̂, the most believed class."""
    belief_best: Floats | None = None
    """p(k̂)."""
    belief_label: Floats | None = None
    """p(l)."""
    entropy: Floats | None = None
    entropy_before: Floats | None = None
    """The entropy before the new vote was folded."""
    majority: Codes | None = None
    """The most frequent vote so far, the new one included."""
    truth: Codes | None = None
    """Replay only: never known at run time."""

    @classmethod
    def of(
        cls,
        beliefs: Beliefs | DenseBeliefs | DependentBeliefs,
        *,
        label: ArrayLike,
        vote: ArrayLike,
        entropy_before: Floats | None = None,
        rows: Rows | None = None,
        majority: Codes | None = None,
        truth: Codes | None = None,
        belief_label: Floats | None = None,
    ) -> Evidence:
        """What beliefs say about stored labels, after the new votes were folded into them."""
        stored = check_codes(label, beliefs.classes, "label")
        best = beliefs.most_believed(rows, stored=stored)
        return cls(
            label=stored,
            vote=check_codes(vote, beliefs.classes, "vote"),
            best=best,
            belief_best=beliefs.of_best(rows),
            belief_label=beliefs.of(stored, rows) if belief_label is None else belief_label,
            entropy=beliefs.entropy(rows),
            entropy_before=entropy_before,
            majority=majority,
            truth=truth,
        )

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        arrays = {name: as_array(value, name) for name, value in given.items()}
        check_same_length(**{name: len(array) for name, array in arrays.items()})
        for name, array in arrays.items():
            object.__setattr__(self, name, array)


@runtime_checkable
class Rule(Protocol):
    """Decides the label after a step."""

    def decide(self, evidence: Evidence) -> Codes:
        """The label of each item after the step."""


@dataclass(frozen=True)
class Replace:
    """The new vote, always: a backfill."""

    def decide(self, evidence: Evidence) -> Codes:
        """l^t = ŷ^t."""
        return evidence.vote

    def __str__(self) -> str:
        return "replace"


@dataclass(frozen=True)
class MajorityVote:
    """The most frequent vote so far; a tie goes to the tied class voted for most recently."""

    def decide(self, evidence: Evidence) -> Codes:
        """See ``votes.majority``."""
        return _given(self, "majority", evidence.majority)

    def __str__(self) -> str:
        return "majority-vote"


@dataclass(frozen=True)
class MaxBelief:
    """MB: the most believed class."""

    def decide(self, evidence: Evidence) -> Codes:
        """l^t = k̂."""
        return _given(self, "best", evidence.best)

    def __str__(self) -> str:
        return "max-belief"


@dataclass(frozen=True)
class MaxBeliefMinEntropy:
    """MBME: the most believed class if the entropy fell in this step."""

    def decide(self, evidence: Evidence) -> Codes:
        """l^t = k̂ if S^t < S^{t−1}, else l."""
        after = _given(self, "entropy", evidence.entropy)
        fell = after < _given(self, "entropy_before", evidence.entropy_before)
        return np.where(fell, _given(self, "best", evidence.best), evidence.label)

    def __str__(self) -> str:
        return "max-belief-min-entropy"


@dataclass(frozen=True)
class CostRatio:
    """CR: change only if a negative flip, costing c times a positive one, is unlikely enough.

    The most believed class k̂ ≠ l is taken iff p(k̂) − c·p(l) − c₀·(1 − p(k̂) − p(l)) > 0, with
    c₀ the cost of a neutral flip; for c₀ = 0 that is the paper's p(k̂)/p(l) > c.

    >>> evidence = Evidence(
    ...     label=np.array([0, 0]), vote=np.array([1, 1]), best=np.array([1, 1]),
    ...     belief_best=np.array([0.6, 0.9]), belief_label=np.array([0.3, 0.05]),
    ... )
    >>> CostRatio(10).decide(evidence)
    array([0, 1])
    """

    ratio: float
    neutral: float = 0.0

    def __post_init__(self) -> None:
        if not (_is_finite(self.ratio) and self.ratio > 0):
            raise InvalidParameter.of("cost ratio", "a finite number above 0", self.ratio)
        if not (_is_finite(self.neutral) and self.neutral >= 0):
            raise InvalidParameter.of("neutral", "a finite number ≥ 0", self.neutral)

    def decide(self, evidence: Evidence) -> Codes:
        """The comparison is with the stored label's belief, not with the previous best."""
        best = _given(self, "best", evidence.best)
        gain = _given(self, "belief_best", evidence.belief_best)
        loss = _given(self, "belief_label", evidence.belief_label)
        worth = gain - self.ratio * loss - self.neutral * (1 - gain - loss) > 0
        return np.where((best != evidence.label) & worth, best, evidence.label)

    def __str__(self) -> str:
        neutral = f",neutral={plain_number(self.neutral)}" if self.neutral else ""
        return f"cost-ratio:{plain_number(self.ratio)}{neutral}"


@dataclass(frozen=True)
class Oracle:
    """Replay only: the new vote exactly where that is a positive flip."""

    def decide(self, evidence: Evidence) -> Codes:
        """Bounds what any rule could do with these votes."""
        truth = _given(self, "truth", evidence.truth)
        positive = (evidence.label != truth) & (evidence.vote == truth)
        return np.where(positive, evidence.vote, evidence.label)

    def __str__(self) -> str:
        return "oracle"


@dataclass(frozen=True)
class Confirm:
    """A rule with patience (``+confirm``): a flip it wants is proposed first (see ``proposals``).

    >>> str(Confirm(CostRatio(10)))
    'cost-ratio:10+confirm'
    """

    rule: Rule

    def __post_init__(self) -> None:
        if isinstance(self.rule, Confirm):
            raise InvalidParameter(f"The rule '{self.rule}' has the modifier '+confirm' already.")
        if isinstance(self.rule, Oracle):
            raise InvalidParameter(
                "The rule 'oracle' takes no '+confirm': it knows the truth, so that another vote "
                "could tell it nothing.",
                hint="Put it on another rule, as in max-belief+confirm.",
            )

    def decide(self, evidence: Evidence) -> Codes:
        """The label the inner rule wants; whether it has to wait is told by ``proposals``."""
        return self.rule.decide(evidence)

    def __str__(self) -> str:
        return f"{self.rule}+confirm"


def inner(rule: Rule) -> Rule:
    """The rule without its modifiers: what it looks at is what this one looks at."""
    return rule.rule if isinstance(rule, Confirm) else rule


_PLAIN: dict[str, type[Replace | MajorityVote | MaxBelief | MaxBeliefMinEntropy | Oracle]] = {
    "replace": Replace,
    "majority-vote": MajorityVote,
    "max-belief": MaxBelief,
    "max-belief-min-entropy": MaxBeliefMinEntropy,
    "oracle": Oracle,
}
NAMES = (*_PLAIN, "cost-ratio")
MODIFIERS = ("confirm",)


def parse(text: str | Rule) -> Rule:
    """The rule a name stands for.

    >>> parse("cost-ratio:10,neutral=0.5")
    CostRatio(ratio=10.0, neutral=0.5)
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
            raise UnknownName.among("rule modifier", modifier, MODIFIERS)
        rule = Confirm(rule)
    return rule


def _unmodified(spec: Spec, text: str) -> Rule:
    if spec.name in _PLAIN:
        spec.refuse_extras("rule", modifiers=True)
        return _PLAIN[spec.name]()
    if spec.name != "cost-ratio":
        raise UnknownName.among("rule", spec.name, NAMES)
    spec.refuse_extras("rule", value=True, options=("neutral",), modifiers=True)
    allowed = "cost-ratio:C with a number C above 0, as in cost-ratio:10"
    if spec.value is None:
        raise InvalidParameter.of("rule", allowed, text)
    ratio = spec.number("rule", spec.value, allowed)
    neutral = spec.number(
        "rule", spec.options.get("neutral", "0"), "neutral=C0 with a number C0 ≥ 0"
    )
    return CostRatio(ratio, neutral)


def decide(rule: Rule, evidence: Evidence) -> Codes:
    """The labels after a step, under any rule.

    An item's first vote becomes its label; an item without a new vote keeps its label.
    """
    decided = rule.decide(evidence)
    check_same_length(decided=len(decided), label=len(evidence.label))
    first = evidence.label == MISSING
    changed = np.where(first, evidence.vote, decided)
    return np.where(evidence.vote == MISSING, evidence.label, changed).astype(np.int32)


def cost_of(rule: Rule) -> float:
    """How many positive flips a negative one costs, as the rule has it.

    >>> cost_of(Confirm(CostRatio(10))), cost_of(MaxBelief())
    (10.0, 1.0)
    """
    inner = rule.rule if isinstance(rule, Confirm) else rule
    return float(inner.ratio) if isinstance(inner, CostRatio) else 1.0


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _given(rule: object, field: str, value: _T | None) -> _T:
    if value is None:
        raise InvalidParameter(f"The rule '{rule}' needs '{field}' in its evidence.")
    return value
