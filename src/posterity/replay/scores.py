"""What a walk is scored by: the only place in replay that compares labels with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posterity import metrics
from posterity._arrays import Codes
from posterity.expectations import Estimate, Sums
from posterity.likeness import Difference
from posterity.replay.walk import Step
from posterity.shards import Decision
from posterity.votes import MISSING


@dataclass(frozen=True)
class ScoredStep:
    """One step of one rule: against the truth, and as the beliefs would have it."""

    model: str
    score: metrics.StepScore
    expected_accuracy: float
    expected_flips: metrics.ExpectedFlips
    checked: Checked
    """The same as the labelled set has it."""


@dataclass(frozen=True)
class Checked:
    """What the labelled items that went through the same steps say; None where there are none."""

    accuracy: Estimate | None = None
    positive_flips: Estimate | None = None
    negative_flips: Estimate | None = None
    forecast: Estimate | None = None
    """Net corrections, told before the step was spent."""
    differences: Sequence[Difference] = ()
    """Between the target and the labelled set."""


class Scores:
    """The scored steps of each rule, gathered while a walk goes on."""

    def __init__(self, truth: Codes, rules: int) -> None:
        self.by_rule: list[list[ScoredStep]] = [[] for _ in range(rules)]
        self._truth = truth
        self._differences: list[Sequence[Difference]] = []
        self._before = [np.full(len(truth), MISSING, dtype=np.int32) for _ in range(rules)]

    def add(self, step: Step) -> None:
        """Score a step under every rule."""
        for at, (labels, decision) in enumerate(
            zip(step.shard.labels, step.decisions, strict=True)
        ):
            flipped = decision.flipped
            scored = ScoredStep(
                model=step.model,
                score=metrics.score_step(
                    self._truth, self._before[at], labels.label, evaluations=len(step.rows)
                ),
                expected_accuracy=metrics.expected_accuracy(labels.belief),
                expected_flips=metrics.expected_flips(
                    decision.belief_before[flipped], decision.belief_after[flipped]
                ),
                checked=self._checked(step, decision),
            )
            self.by_rule[at].append(scored)
            self._before[at] = labels.label.copy()

    def _checked(self, step: Step, decision: Decision) -> Checked:
        rehearsed, seen = step.rehearsed, step.seen
        if rehearsed is None or rehearsed.trust is None or seen is None:
            return Checked()
        trust, items, flipped = rehearsed.trust, len(self._truth), decision.flipped
        found = trust.compare(seen, self._differences)
        self._differences.append(found)
        accuracy = trust.accuracy(seen.held.drifted(step.drift))
        return Checked(
            # An item without a label counts as wrong, as it does with the truth known.
            accuracy=None if accuracy is None else accuracy.times(seen.held.items / items),
            positive_flips=trust.fixed(Sums.of(decision.belief_after[flipped])),
            negative_flips=trust.broken(Sums.of(decision.belief_before[flipped])),
            forecast=rehearsed.net(items),
            differences=found,
        )
