"""What a rule is: the one method every rule has, and what else differs between ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from posterity.method.data.arrays import Codes
from posterity.method.data.votes import MISSING, check_same_length
from posterity.method.decide.evidence import Evidence


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
