"""Outcome: what a step did on the labelled set, for which target, and adapted to it how far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import MISSING, SoftVotes
from posterity.method.decide.balance import RatioOutcome
from posterity.method.decide.budget import Budget
from posterity.method.decide.rules import Rule
from posterity.method.decide.selectors import Selector
from posterity.method.metrics import Flips
from posterity.method.step import Decision
from posterity.validation import expectation, shift
from posterity.validation.cross_fits import Fits
from posterity.validation.expectation import Checked, Estimate, Sums, forecast
from posterity.validation.reliability import Reliability
from posterity.validation.shift import Difference, Seen


@dataclass(frozen=True)
class Coverage:
    """Which part of some items a step looks at.

    Items that are added later get their first labels by steps that look at no other item again:
    labelled items, which have long had a label, must not be looked at more often for that.
    """

    unlabelled: float
    """Of the items without a label."""
    labelled: float
    """Of those with a label that can change."""

    @classmethod
    def of(cls, first: int, unlabelled: int, others: int, labelled: int) -> Coverage:
        """From how many of both a step looks at, and how many there are."""
        return cls(min(1.0, first / max(1, unlabelled)), min(1.0, others / max(1, labelled)))

    def count(self, unlabelled: int, labelled: int) -> int:
        """The same part of other items.

        >>> Coverage.of(20, 20, 60, 400).count(0, 1000)
        150
        """
        return round(self.unlabelled * unlabelled + self.labelled * labelled)


@dataclass(frozen=True)
class Rehearsed:
    """The last step on the labelled set, both halves together."""

    items: int
    evaluations: int
    accuracy_before: float
    accuracy_after: float
    fixed: int
    broken: int
    dispersion: float = 1.0
    """How much more these vary than if each item was on its own."""
    trust: Trust | None = None
    """What all steps so far say of beliefs, where these are dependent."""
    ratio: float | None = None
    """The cost ratio that was chosen, by a rule that has it chosen on the labelled set."""
    choices: tuple[RatioOutcome, ...] = ()
    """What other cost ratios would do with the same votes."""
    labels: int = 0
    """How many of the items had a label before that could change."""
    answered: int = 0
    """How many have the right label, as those people have answered for in the store."""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        told = {name: value for name, value in vars(self).items() if name != "trust"}
        return told | {"choices": [self._choice(one) for one in self.choices]}

    def _choice(self, one: RatioOutcome) -> dict[str, Any]:
        after = self.accuracy_before + one.net / max(1, self.items)
        return {**vars(one), "accuracy_after": after}

    def net(self, labels: int) -> Estimate:
        """Corrections less new errors that can be expected of so many labels that can change."""
        return forecast(
            self.fixed,
            self.broken,
            labelled=self.labels,
            items=labels,
            dispersion=self.dispersion,
        )

    @property
    def _reviewed(self) -> str:
        """That some of them count as answered for."""
        return f" ({self.answered:,} taken as reviewed)" if self.answered else ""

    def __str__(self) -> str:
        return (
            f"on {self.items:,} labelled items{self._reviewed} the same would fix {self.fixed} and "
            f"break {self.broken}: accuracy {100 * self.accuracy_before:.1f} % → "
            f"{100 * self.accuracy_after:.1f} %"
            + (f"; cost ratio {self.ratio:g}, chosen on them" if self.ratio else "")
        )


@dataclass(frozen=True)
class RehearsedStep:
    """One step to rehearse: whose votes, on how many items, chosen and decided how."""

    model: int
    """The model's place among those learnt about."""
    selector: Selector
    rule: Rule
    budget: Budget


@dataclass(frozen=True, eq=False)
class PastStep:
    """A step of a history, to be made under any policy: whose votes, on which share of items."""

    fits: Fits
    votes: Codes | SoftVotes
    model: int
    share: float


@dataclass(frozen=True)
class Target:
    """The items a step is about to be made on."""

    items: int
    chosen_by: Dependence
    """What they are believed by when they are chosen."""
    believed_by: Callable[[], Dependence]
    """What they will be believed by when it is decided, with the calibrator of the step."""


@dataclass(frozen=True, eq=False)
class StepHalf:
    """One step on half of the labelled items, by what was learnt on the other."""

    labels: Checked
    """Beliefs in the labels they have after it."""
    fixing: Checked
    """Beliefs in the new labels of flips."""
    breaking: Checked
    """Beliefs in the old ones."""
    flips: Flips
    seen: Seen
    reliability: Reliability
    """Of the beliefs in the labels."""

    @classmethod
    def of(
        cls,
        label: Codes,
        believed: Floats,
        truth: Codes,
        decisions: Sequence[Decision],
        flips: Flips,
        seen: Seen,
        drift: float,
    ) -> StepHalf:
        """From labels after a step that can change, what it did, and what its votes looked like.

        ``drift``: how much more the labels are believed by the step's fit than they were.
        """
        has = label != MISSING
        right, belief = (label == truth)[has], believed[has]
        fixing, breaking = Checked(), Checked()
        for made in decisions:
            changed, true = made.flipped, truth[made.rows]
            fixing += Checked.of((made.after == true)[changed], made.belief_after[changed])
            breaking += Checked.of((made.before == true)[changed], made.belief_before[changed])
        return cls(
            Checked.of(right, belief, label[has]).drifted(drift),
            fixing,
            breaking,
            flips,
            seen.with_held(Sums.of(belief)),
            Reliability.of(right, belief),
        )


@dataclass(frozen=True, eq=False)
class Trust:
    """What the labelled items say, step by step; the last one is the step at hand."""

    steps: tuple[tuple[StepHalf, StepHalf], ...]

    @property
    def checks(self) -> bool:
        """Whether enough labelled items have a label by now."""
        one, other = self.steps[-1]
        return one.labels.items + other.labels.items > 1

    def accuracy(self, held: Sums) -> Estimate | None:
        """Of a target whose labels are believed so."""
        one, other = self.steps[-1]
        return expectation.accuracy(held, one.labels + other.labels)

    def fixed(self, flips: Sums) -> Estimate:
        """Positive flips among those a step made, from the beliefs in their new labels."""
        return expectation.flips(flips, [(a.fixing, b.fixing) for a, b in self.steps])

    def broken(self, flips: Sums) -> Estimate:
        """Negative ones, from the beliefs in their old labels."""
        return expectation.flips(flips, [(a.breaking, b.breaking) for a, b in self.steps])

    @property
    def dispersion(self) -> float:
        """How much more net corrections vary than if each item was on its own."""
        differences = []
        for one, other in ((a.flips, b.flips) for a, b in self.steps):
            net = one.positive - one.negative - other.positive + other.negative
            moved = one.positive + one.negative + other.positive + other.negative
            differences.append((net, moved))
        return expectation.dispersion(differences)

    @property
    def reliability(self) -> Reliability:
        """Of the beliefs in the labels."""
        one, other = self.steps[-1]
        return one.reliability + other.reliability

    def compare(
        self, target: Seen, earlier: Sequence[Sequence[Difference]] = ()
    ) -> list[Difference]:
        """How a target differs from the labelled items; ``earlier``: how it did in steps before."""
        one, other = self.steps[-1]
        apart = [shift.differences(a.seen, b.seen) for a, b in self.steps]
        found = shift.dispersions(apart)
        return shift.compare(target, one.seen + other.seen, found, earlier)
