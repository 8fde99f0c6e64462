"""Plain rehearsal: what a step would have done on the labelled set, by plain beliefs.

See ``rehearsal`` for dependent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posterity.method import metrics
from posterity.method.beliefs.confusion import Confusion
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import MISSING
from posterity.method.decide.budget import FULL, Budget
from posterity.method.decide.rules import Rule
from posterity.method.decide.selectors import Selector
from posterity.method.step import Shard, choose, settle, update
from posterity.validation.outcome import Rehearsed


@dataclass(frozen=True)
class RehearsedStep:
    """One step to rehearse: whose votes, what share of the items, chosen and decided how."""

    model: int
    """The model's place among the votes."""
    share: float
    selector: Selector
    rule: Rule


def rehearse(
    truth: Codes, votes: Codes, parts: Sequence[RehearsedStep], *, prior: Floats, estimator: str
) -> Rehearsed:
    """Walk the steps over the labelled set; the last one is the step to be judged."""
    halves = np.arange(len(truth)) % 2
    done = [
        _walk(
            truth[halves == half],
            votes[:, halves == half],
            parts,
            prior,
            [
                Confusion.from_pairs(
                    truth[halves != half],
                    cast[halves != half],
                    classes=len(prior),
                    estimator=estimator,
                )
                for cast in votes
            ],
        )
        for half in (0, 1)
    ]
    weights = [(halves == half).mean() for half in (0, 1)]
    return Rehearsed(
        items=len(truth),
        evaluations=sum(score.evaluations for _, score in done),
        accuracy_before=float(np.dot(weights, [before for before, _ in done])),
        accuracy_after=float(np.dot(weights, [score.accuracy for _, score in done])),
        fixed=sum(score.flips.positive for _, score in done),
        broken=sum(score.flips.negative for _, score in done),
    )


def _walk(
    truth: Codes,
    votes: Codes,
    parts: Sequence[RehearsedStep],
    prior: Floats,
    confusions: Sequence[Confusion],
) -> tuple[float, metrics.StepScore]:
    shard = Shard(prior, len(truth), [parts[-1].rule])
    labels = shard.labels[0]
    seen = np.zeros(votes.shape, dtype=np.bool_)
    before, spent = labels.label.copy(), 0
    for number, part in enumerate(parts):
        labels.rule = part.rule
        before = labels.label.copy()
        budget = FULL if number == 0 else Budget.of(min(1.0, part.share))
        eligible = (votes[part.model] != MISSING) & ~seen[part.model]
        rows = choose(shard, selector=part.selector, budget=budget, eligible=eligible, step=number)
        update(shard, rows, votes[part.model, rows], confusions[part.model])
        seen[part.model, rows] = True
        spent = len(rows)
    settle(shard)  # what the step proposes is judged as if it were made
    scored = metrics.score_step(truth, before, labels.label, evaluations=spent)
    return metrics.accuracy(truth, before), scored
