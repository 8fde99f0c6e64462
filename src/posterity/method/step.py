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

from posterity.errors import InvalidData
from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.dependent import Dependence
from posterity.method.beliefs.dependent_state import DependentBeliefs
from posterity.method.beliefs.plain import ENTROPY_BITS, Beliefs, kept
from posterity.method.beliefs.state import BeliefState
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, SoftVotes, majority
from posterity.method.decide.budget import Budget
from posterity.method.decide.rules import Rule, decide, traits
from posterity.method.decide.selectors import Candidates, Selector, ranked
from posterity.method.decide.selectors import choose as choose_highest
from posterity.method.decide.simple_rules import Evidence, given
from posterity.method.metrics import flipped

T = TypeVar("T")


class Labels:
    """The stored labels of a shard's items under one rule."""

    def __init__(self, items: int) -> None:
        self.label: Codes = np.full(items, MISSING, dtype=np.int32)
        self.belief: Floats = np.zeros(items)
        """p(l), kept beside the label so that nothing is computed anew for untouched items."""
        self.proposed: Codes = np.full(items, MISSING, dtype=np.int32)
        """The class a pending proposal names; −1 where none is pending."""
        self.belief_proposed: Floats = np.zeros(items)
        """The belief in it when it was proposed."""

    def take(self, rows: Rows, verdict: Verdict) -> Decision:
        """What a rule made of these rows; proposals pending on others are made, and returned."""
        self.proposed[rows] = MISSING  # of those without a vote, nobody looks at them again
        made = self.settle()
        self.label[rows], self.belief[rows] = verdict.label, verdict.belief
        self.proposed[rows], self.belief_proposed[rows] = verdict.proposed, verdict.belief_proposed
        return made

    def settle(self) -> Decision:
        """Make all pending proposals, with the beliefs they were proposed with."""
        rows = np.flatnonzero(self.proposed != MISSING)
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
        self.rules = list(rules)
        self.labels = [Labels(items) for _ in rules]
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
        place = beliefs.table.hard.shape[1] if model is None else model
        beliefs.fold(votes, _of(Dependence, confusion), rows=rows, model=place)
        entropy_before = beliefs.entropy_without(place, rows)  # under the same fit
    shard.voted[rows] = True
    cast = beliefs.table.hard[rows]
    most_frequent = majority(cast.T)
    # All rules together: what is believed of any label costs a look at all votes of its item.
    before = np.empty((len(rows), len(shard.labels)), dtype=np.int32)
    for at, labels in enumerate(shard.labels):
        before[:, at] = labels.label[rows]
    believed = beliefs.of_each(before, rows)
    decisions = []
    for at, (rule, labels) in enumerate(zip(shard.rules, shard.labels, strict=True)):
        evidence = Evidence.of(
            beliefs,
            rows=rows,
            label=before[:, at],
            vote=hard,
            entropy_before=entropy_before,
            majority=most_frequent,
            cast=cast if "support" in traits(rule).uses else None,
            # The truth is shown to the oracle alone, so that no other rule can lean on it.
            truth=truth if "truth" in traits(rule).uses else None,
            belief_label=believed[:, at],
        )
        verdict = judge(rule, beliefs, evidence, labels.proposed[rows], rows)
        decided = Decision(rows, before[:, at], verdict.label, believed[:, at], verdict.belief)
        decisions.append(decided + labels.take(rows, verdict) if len(rows) else decided)
    return decisions


def _of(kind: type[T], given: object) -> T:
    if not isinstance(given, kind):
        raise InvalidData(f"These beliefs need a {kind.__name__}; got {type(given).__name__}.")
    return given


def settle(shard: Shard) -> list[Decision]:
    """Make all pending flips; one decision per rule."""
    return [labels.settle() for labels in shard.labels]


@dataclass(frozen=True, eq=False)
class Verdict:
    """Where items with a new vote stand after a rule has decided."""

    label: Codes
    belief: Floats
    """In the label."""
    proposed: Codes
    """The class a pending proposal names; −1 where none is pending."""
    belief_proposed: Floats


def judge(
    rule: Rule,
    beliefs: BeliefState,
    evidence: Evidence,
    pending: Codes,
    rows: Rows | None = None,
) -> Verdict:
    """Decide items (all, or these rows) from their evidence, and say what is believed of that."""
    label, proposed = propose(rule, evidence, pending)
    at = np.arange(len(label)) if rows is None else rows
    before, best = given(rule, "belief_label", evidence.belief_label), evidence.belief_best
    belief = np.where(label == evidence.label, before, given(rule, "belief_best", best))
    # Neither the stored label nor the best: rules that do not look at beliefs.
    other = np.flatnonzero((label != evidence.label) & (label != evidence.best))
    belief[other] = beliefs.of(label[other], at[other])
    waiting, waits = np.zeros(len(label)), np.flatnonzero(proposed != MISSING)
    waiting[waits] = beliefs.of(proposed[waits], at[waits])
    return Verdict(label, belief, proposed, waiting)


def propose(rule: Rule, evidence: Evidence, pending: Codes) -> tuple[Codes, Codes]:
    """Labels of items with a new vote, and the classes of proposals that are pending (else −1).

    >>> from posterity.method.decide.rules import Confirm, Replace
    >>> evidence = Evidence(label=np.array([0, 0, 0, -1]), vote=np.array([1, 1, 0, 1]))
    >>> rule = Confirm(Replace())
    >>> propose(rule, evidence, np.array([-1, 2, 1, -1]))
    (array([0, 1, 0, 1], dtype=int32), array([ 1, -1, -1, -1], dtype=int32))
    """
    wanted = decide(rule, evidence)
    none = np.full(len(wanted), MISSING, dtype=np.int32)
    if not traits(rule).patient:
        return wanted, none
    # A first label is no flip: there is nothing it could break.
    change = (evidence.label != MISSING) & (wanted != evidence.label)
    waits = change & (pending == MISSING)
    label = np.where(waits, evidence.label, wanted).astype(np.int32)
    return label, np.where(waits, wanted, none)
