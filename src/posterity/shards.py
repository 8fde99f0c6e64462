"""One update in memory: choose the items, fold their votes, decide their labels.

    rows = choose(shard, selector=…, budget=…, eligible=…, step=t)     nothing spent yet
    votes = the model's, for these rows
    decisions = update(shard, rows, votes, confusion)                  one per rule

Rules never touch beliefs, so one shard carries the labels of any number of rules: the votes are
folded once and every rule decides on the same beliefs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from posterity._arrays import ArrayLike, Codes, Floats, Mask, Rows
from posterity.beliefs import ENTROPY_BITS, Beliefs, kept
from posterity.budget import Budget
from posterity.confusion import Confusion
from posterity.dependence import Dependence
from posterity.dependent import DependentBeliefs
from posterity.errors import InvalidData
from posterity.metrics import flipped
from posterity.proposals import propose
from posterity.rules import Evidence, Oracle, Rule
from posterity.selectors import Candidates, Selector, ranked
from posterity.selectors import choose as choose_highest
from posterity.votes import MISSING, SoftVotes, majority

T = TypeVar("T")


class Labels:
    """The stored labels of a shard's items under one rule."""

    def __init__(self, rule: Rule, items: int) -> None:
        self.rule = rule
        self.label: Codes = np.full(items, MISSING, dtype=np.int32)
        self.belief: Floats = np.zeros(items)
        """p(l), kept beside the label so that nothing is computed anew for untouched items."""
        self.proposed: Codes = np.full(items, MISSING, dtype=np.int32)
        """The class a pending proposal names; −1 where none is pending."""
        self.belief_proposed: Floats = np.zeros(items)
        """The belief in it when it was proposed."""

    def settle(self, rows: Rows) -> Decision:
        """Make the proposals pending on these rows, with the beliefs they were proposed with."""
        before, after = self.label[rows], self.proposed[rows]
        believed, now = self.belief[rows], self.belief_proposed[rows]
        self.label[rows], self.belief[rows] = after, now
        self.proposed[rows] = MISSING
        return Decision(rows, before, after, believed, now)


class Shard:
    """Items in memory: their beliefs, and their labels under each rule."""

    def __init__(
        self,
        prior: ArrayLike,
        items: int,
        rules: Sequence[Rule],
        *,
        dependent: bool = False,
    ) -> None:
        self.beliefs: Beliefs | DependentBeliefs = (
            DependentBeliefs(prior, items) if dependent else Beliefs(prior, items)
        )
        self.labels = [Labels(rule, items) for rule in rules]
        self.voted: Mask = np.zeros(items, dtype=np.bool_)

    @property
    def dependent(self) -> DependentBeliefs:
        """The beliefs, where they are dependent."""
        return _of(DependentBeliefs, self.beliefs)


@dataclass(frozen=True)
class Decision:
    """What one rule did with the items evaluated in a step, and with proposals left pending."""

    rows: Rows
    before: Codes
    after: Codes
    belief_before: Floats
    """Belief in the label before, with the step's votes folded in; of a flip that was pending, as
    it was when the flip was proposed."""
    belief_after: Floats

    def __add__(self, other: Decision) -> Decision:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Decision(*(np.concatenate(pair) for pair in pairs))

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
    value: Callable[[], Floats] | None = None,
) -> Rows:
    """The rows the arriving model should look at: within the budget, unvoted items first.

    ``value`` tells what its votes could change, where the beliefs know.
    """
    return choose_highest(
        _scores(shard, selector, step, seed, value),
        rows=np.arange(shard.beliefs.items),
        eligible=eligible,
        first=~shard.voted,
        evaluations=budget.evaluations(int(eligible.sum())),
    )


def in_order(
    shard: Shard,
    *,
    selector: Selector,
    eligible: Mask,
    step: int,
    value: Callable[[], Floats] | None = None,
) -> Rows:
    """All eligible rows in the order in which they would be chosen."""
    scores = _scores(shard, selector, step, 0, value)
    rows = np.arange(shard.beliefs.items)
    return ranked(scores, rows=rows, eligible=eligible, first=~shard.voted)


def _scores(
    shard: Shard, selector: Selector, step: int, seed: int, value: Callable[[], Floats] | None
) -> Floats:
    entropy = kept(shard.beliefs.entropy(), ENTROPY_BITS)  # as a store keeps it with the item
    rows = np.arange(shard.beliefs.items)
    return selector.score(Candidates(entropy=entropy, rows=rows, step=step, seed=seed, value=value))


def update(
    shard: Shard,
    rows: Rows,
    votes: Codes | SoftVotes,
    confusion: Confusion | Dependence,
    *,
    truth: Codes | None = None,
    model: int | None = None,
) -> list[Decision]:
    """Fold the votes of the chosen rows into the beliefs, and let every rule decide its labels.

    How the model errs is told by its confusion or, for dependent beliefs, by a fit of all models
    so far, of which it is the last or the ``model`` named. Flips that were pending on other rows
    are made. Without any vote there is no step, and they stay pending, as in a store.
    """
    hard = votes.hard if isinstance(votes, SoftVotes) else votes
    if (hard == MISSING).any():
        raise InvalidData("An evaluated item has a vote; leave out the rows without one.")
    beliefs = shard.beliefs
    entropy_before = beliefs.entropy(rows)
    if isinstance(beliefs, Beliefs):
        beliefs.fold(votes, _of(Confusion, confusion), rows=rows)
    else:
        place = len(beliefs.votes) if model is None else model
        beliefs.fold(votes, _of(Dependence, confusion), rows=rows, model=place)
        entropy_before = beliefs.entropy_without(place, rows)  # under the same fit
    shard.voted[rows] = True
    most_frequent = majority(beliefs.votes[:, rows])
    # All rules together: what is believed of any label costs a look at all votes of its item.
    before = np.empty((len(rows), len(shard.labels)), dtype=np.int32)
    for at, labels in enumerate(shard.labels):
        before[:, at] = labels.label[rows]
    believed = beliefs.of_each(before, rows)
    after, proposed = np.empty_like(before), np.empty_like(before)
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
        outcome = propose(labels.rule, evidence, labels.proposed[rows])
        after[:, at], proposed[:, at] = outcome.label, outcome.proposed
    now = beliefs.of_each(after, rows)
    decisions = []
    for at, labels in enumerate(shard.labels):
        labels.label[rows], labels.belief[rows] = after[:, at], now[:, at]
        decided = Decision(
            rows,
            before[:, at],
            after[:, at],
            belief_before=believed[:, at],
            belief_after=now[:, at],
        )
        # Those of the rows with a vote are decided; what is left has nobody looking at it.
        labels.proposed[rows] = MISSING
        if len(rows):
            decided += labels.settle(np.flatnonzero(labels.proposed != MISSING))
        waits = np.flatnonzero(proposed[:, at] != MISSING)
        if len(waits):
            own, codes = rows[waits], proposed[waits, at]
            labels.proposed[own], labels.belief_proposed[own] = codes, beliefs.of(codes, own)
        decisions.append(decided)
    return decisions


def _of(kind: type[T], given: object) -> T:
    if not isinstance(given, kind):
        raise InvalidData(f"These beliefs need a {kind.__name__}; got {type(given).__name__}.")
    return given


def settle(shard: Shard) -> list[Decision]:
    """Make all pending flips; one decision per rule."""
    return [labels.settle(np.flatnonzero(labels.proposed != MISSING)) for labels in shard.labels]
