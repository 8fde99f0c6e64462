"""One update in memory: choose the items, fold their votes, decide their labels.

    rows = choose(shard, selector=…, budget=…, eligible=…, step=t)     nothing spent yet
    votes = the model's, for these rows
    decisions = update(shard, rows, votes, confusion)                  one per rule

Rules never touch beliefs, so one shard carries the labels of any number of rules: the votes are
folded once and every rule decides on the same beliefs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posterity._arrays import ArrayLike, Codes, Floats, Mask, Rows
from posterity.beliefs import ENTROPY_BITS, Beliefs, kept
from posterity.budget import Budget
from posterity.confusion import Confusion
from posterity.errors import InvalidData
from posterity.metrics import flipped
from posterity.rules import Evidence, Oracle, Rule, decide
from posterity.selectors import Candidates, Selector
from posterity.selectors import choose as choose_highest
from posterity.votes import MISSING, SoftVotes, majority


class Labels:
    """The stored labels of a shard's items under one rule."""

    def __init__(self, rule: Rule, items: int) -> None:
        self.rule = rule
        self.label: Codes = np.full(items, MISSING, dtype=np.int32)
        self.belief: Floats = np.zeros(items)
        """p(l), kept beside the label so that nothing is computed anew for untouched items."""


class Shard:
    """Items in memory: their beliefs, and their labels under each rule."""

    def __init__(self, prior: ArrayLike, items: int, rules: Sequence[Rule]) -> None:
        self.beliefs = Beliefs(prior, items)
        self.labels = [Labels(rule, items) for rule in rules]
        self.voted: Mask = np.zeros(items, dtype=np.bool_)


@dataclass(frozen=True)
class Decision:
    """What one rule did with the items evaluated in a step."""

    rows: Rows
    before: Codes
    after: Codes
    belief_before: Floats
    """Belief in the label before, with the step's votes folded in."""
    belief_after: Floats

    @property
    def flipped(self) -> Mask:
        """Where the label changed; a first label is not a flip."""
        return flipped(self.before, self.after)


def choose(
    shard: Shard,
    *,
    selector: Selector,
    budget: Budget,
    eligible: Mask,
    step: int,
    seed: int = 0,
) -> Rows:
    """The rows the arriving model should look at: within the budget, unvoted items first."""
    evaluations = budget.evaluations(int(eligible.sum()))
    rows = np.arange(shard.beliefs.items)
    entropy = kept(shard.beliefs.entropy(), ENTROPY_BITS)  # as a store keeps it with the item
    candidates = Candidates(entropy=entropy, rows=rows, step=step, seed=seed)
    return choose_highest(
        selector.score(candidates),
        rows=rows,
        eligible=eligible,
        first=~shard.voted,
        evaluations=evaluations,
    )


def update(
    shard: Shard,
    rows: Rows,
    votes: Codes | SoftVotes,
    confusion: Confusion,
    *,
    truth: Codes | None = None,
) -> list[Decision]:
    """Fold the votes of the chosen rows into the beliefs, and let every rule decide its labels."""
    hard = votes.hard if isinstance(votes, SoftVotes) else votes
    if (hard == MISSING).any():
        raise InvalidData("An evaluated item has a vote; leave out the rows without one.")
    beliefs = shard.beliefs
    entropy_before = beliefs.entropy(rows)
    beliefs.fold(votes, confusion, rows=rows)
    shard.voted[rows] = True
    most_frequent = majority(beliefs.votes[:, rows])
    # All rules together: what is believed of any label costs a look at all votes of its item.
    before = np.empty((len(rows), len(shard.labels)), dtype=np.int32)
    for at, labels in enumerate(shard.labels):
        before[:, at] = labels.label[rows]
    believed = beliefs.of_each(before, rows)
    after = np.empty_like(before)
    for at, labels in enumerate(shard.labels):
        evidence = Evidence.of(
            beliefs,
            rows=rows,
            label=before[:, at],
            vote=hard,
            entropy_before=entropy_before,
            majority=most_frequent,
            # The truth is shown to the oracle alone, so that no other rule can lean on it.
            truth=truth if isinstance(labels.rule, Oracle) else None,
            belief_label=believed[:, at],
        )
        after[:, at] = decide(labels.rule, evidence)
    now = beliefs.of_each(after, rows)
    decisions = []
    for at, labels in enumerate(shard.labels):
        labels.label[rows], labels.belief[rows] = after[:, at], now[:, at]
        decisions.append(
            Decision(
                rows,
                before[:, at],
                after[:, at],
                belief_before=believed[:, at],
                belief_after=now[:, at],
            )
        )
    return decisions
