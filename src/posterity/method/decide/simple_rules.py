"""What a rule is, what it may look at, and the rules that need no number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from posterity.errors import InvalidParameter
from posterity.method.beliefs.state import BeliefState
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Rows
from posterity.method.data.votes import MISSING, as_array, check_codes, check_same_length

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
    support: Codes | None = None
    """How many votes are for k̂."""
    truth: Codes | None = None
    """Replay only: never known at run time."""

    @classmethod
    def of(
        cls,
        beliefs: BeliefState,
        *,
        label: ArrayLike,
        vote: ArrayLike,
        entropy_before: Floats | None = None,
        rows: Rows | None = None,
        majority: Codes | None = None,
        cast: Codes | None = None,
        truth: Codes | None = None,
        belief_label: Floats | None = None,
    ) -> Evidence:
        """What beliefs say about stored labels, after the new votes were folded into them.

        ``cast`` (n, M): all votes so far, for rules that count them.
        """
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
            support=None if cast is None else (cast == best[:, None]).sum(axis=1),
            truth=truth,
        )

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        arrays = {name: as_array(value, name) for name, value in given.items()}
        check_same_length(**{name: len(array) for name, array in arrays.items()})
        for name, array in arrays.items():
            object.__setattr__(self, name, array)


def given(rule: object, field: str, value: _T | None) -> _T:
    """What a rule cannot do without."""
    if value is None:
        raise InvalidParameter(f"The rule '{rule}' needs '{field}' in its evidence.")
    return value


@runtime_checkable
class Rule(Protocol):
    """Decides the label after a step."""

    def decide(self, evidence: Evidence) -> Codes:
        """The label of each item after the step."""


class KnownRule(Rule):
    """What differs between rules beside their decisions; see ``traits`` for a user's own."""

    name: ClassVar[str] = ""
    uses: ClassVar[frozenset[str]] = frozenset({"best"})
    """What of the evidence it looks at, by which rules differ."""
    patient: ClassVar[bool] = False
    """Whether a flip is proposed first, and made later."""
    promises: ClassVar[bool] = False
    """Whether it states how many labels a step breaks at most."""
    rehearsed: ClassVar[bool] = False
    """Whether its cost ratio is chosen on the labelled set when a step is made."""

    @property
    def cost(self) -> float:
        """How many positive flips a negative one costs."""
        return 1.0

    def threshold(self, label: int) -> float | None:  # noqa: ARG002
        """How many times as much as this label another must be believed; None: it does not ask."""
        return None

    def among(self, classes: Sequence[object]) -> Rule:  # noqa: ARG002
        """The rule where these are the classes; refuses one that names others."""
        return self

    def __str__(self) -> str:
        return self.name


class _OwnRule(KnownRule):
    """A user's own rule: nothing is known of what it looks at."""

    uses = frozenset()

    def decide(self, evidence: Evidence) -> Codes:
        """Never asked: it stands for what is not known of the rule."""
        return evidence.label


def traits(rule: Rule) -> KnownRule:
    """What differs between rules; a user's own has what most rules have."""
    return rule if isinstance(rule, KnownRule) else _OwnRule()


def among(rule: Rule, classes: Sequence[object]) -> Rule:
    """The rule where these are the classes; refuses one that names others."""
    return rule.among(classes) if isinstance(rule, KnownRule) else rule


def decide(rule: Rule, evidence: Evidence) -> Codes:
    """The labels after a step, under any rule.

    An item's first vote becomes its label; an item without a new vote keeps its label.
    """
    decided = rule.decide(evidence)
    check_same_length(decided=len(decided), label=len(evidence.label))
    first = evidence.label == MISSING
    changed = np.where(first, evidence.vote, decided)
    return np.where(evidence.vote == MISSING, evidence.label, changed).astype(np.int32)


@dataclass(frozen=True)
class Replace(KnownRule):
    """The new vote, always: a backfill."""

    name = "replace"
    uses = frozenset()

    def decide(self, evidence: Evidence) -> Codes:
        """l^t = ŷ^t."""
        return evidence.vote


@dataclass(frozen=True)
class MajorityVote(KnownRule):
    """The most frequent vote so far; a tie goes to the tied class voted for most recently."""

    name = "majority-vote"
    uses = frozenset({"majority"})

    def decide(self, evidence: Evidence) -> Codes:
        """See ``votes.majority``."""
        return given(self, "majority", evidence.majority)


@dataclass(frozen=True)
class MaxBelief(KnownRule):
    """MB: the most believed class."""

    name = "max-belief"

    def decide(self, evidence: Evidence) -> Codes:
        """l^t = k̂."""
        return given(self, "best", evidence.best)


@dataclass(frozen=True)
class MaxBeliefMinEntropy(KnownRule):
    """MBME: the most believed class if the entropy fell in this step."""

    name = "max-belief-min-entropy"
    uses = frozenset({"best", "entropy_before"})

    def decide(self, evidence: Evidence) -> Codes:
        """l^t = k̂ if S^t < S^{t−1}, else l."""
        after = given(self, "entropy", evidence.entropy)
        fell = after < given(self, "entropy_before", evidence.entropy_before)
        return np.where(fell, given(self, "best", evidence.best), evidence.label)


@dataclass(frozen=True)
class Oracle(KnownRule):
    """Replay only: the new vote exactly where that is a positive flip."""

    name = "oracle"
    uses = frozenset({"truth"})

    def decide(self, evidence: Evidence) -> Codes:
        """Bounds what any rule could do with these votes."""
        truth = given(self, "truth", evidence.truth)
        positive = (evidence.label != truth) & (evidence.vote == truth)
        return np.where(positive, evidence.vote, evidence.label)
