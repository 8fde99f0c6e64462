"""One walk: a sequence of models arriving over a target, under one budget and one selector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from posterity import shards
from posterity._arrays import Floats, Rows
from posterity.budget import FULL, Budget
from posterity.confusion import Confusion
from posterity.errors import InvalidData
from posterity.replay.recording import Recording
from posterity.rules import Rule
from posterity.selectors import Selector
from posterity.votes import MISSING


@dataclass(frozen=True)
class Step:
    """What one arriving model changed."""

    number: int
    model: str
    rows: Rows
    """The items it evaluated."""
    decisions: list[shards.Decision]
    """One per rule."""
    shard: shards.Shard
    """All items after the step: beliefs, and labels under each rule."""


def walk(
    target: Recording,
    confusions: Sequence[Confusion],
    *,
    prior: Floats,
    selector: Selector,
    budget: Budget,
    rules: Sequence[Rule],
    soft: bool = False,
    seed: int = 0,
) -> Iterator[Step]:
    """Let the target's models arrive in order; yields after each step.

    The first model labels everything it has a vote for, outside the budget. The truth is passed
    on for the oracle rule only. Flips that are still pending after the last step (``+confirm``)
    are made, and count in it: nobody comes to confirm them.
    """
    shard = shards.Shard(prior, len(target), rules)
    for number, model in enumerate(target.models):
        rows = shards.choose(
            shard,
            selector=selector,
            budget=FULL if number == 0 else budget,
            eligible=target.votes[number] != MISSING,
            step=number,
            seed=seed,
        )
        votes = target.soft_votes(number)[rows] if soft else target.votes[number, rows]
        decisions = shards.update(shard, rows, votes, confusions[number], truth=target.truth[rows])
        if number + 1 == len(target.models):
            outstanding = shards.settle(shard)
            decisions = [one + more for one, more in zip(decisions, outstanding, strict=True)]
        yield Step(number, model, rows, decisions, shard)


def fit(labelled: Recording, estimator: str) -> list[Confusion]:
    """Each model's confusion, estimated on the labelled set."""
    classes, fitted = len(labelled.classes), []
    for model, cast in zip(labelled.models, labelled.votes, strict=True):
        try:
            fitted.append(
                Confusion.from_pairs(labelled.truth, cast, classes=classes, estimator=estimator)
            )
        except InvalidData as error:
            raise InvalidData(f"The model '{model}': {error.message}", hint=error.hint) from None
    return fitted
