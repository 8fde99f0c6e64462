"""What a walk is scored by: the only place in replay that compares labels with the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posterity import metrics
from posterity._arrays import Codes
from posterity.replay.walk import Step
from posterity.votes import MISSING


@dataclass(frozen=True)
class ScoredStep:
    """One step of one rule: against the truth, and as the beliefs would have it."""

    model: str
    score: metrics.StepScore
    expected_accuracy: float
    expected_flips: metrics.ExpectedFlips
    forecast: float | None
    """Net corrections as the rehearsal on the labelled set has them, before the step was spent."""


class Scores:
    """The scored steps of each rule, gathered while a walk goes on."""

    def __init__(self, truth: Codes, rules: int) -> None:
        self.by_rule: list[list[ScoredStep]] = [[] for _ in range(rules)]
        self._truth = truth
        self._before = [np.full(len(truth), MISSING, dtype=np.int32) for _ in range(rules)]

    def add(self, step: Step) -> None:
        """Score a step under every rule."""
        rehearsed = step.rehearsed
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
                forecast=None if rehearsed is None else rehearsed.net(len(self._truth)).value,
            )
            self.by_rule[at].append(scored)
            self._before[at] = labels.label.copy()
