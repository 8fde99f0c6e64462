"""Half of the labelled items, carried along as if they were stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import numpy as np

from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import Codes, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, SoftVotes, VoteTable
from posterity.method.decide.balance import TINY, FlipMargins
from posterity.method.decide.rules import Balanced, Evidence, MaxBelief, Rule, traits
from posterity.method.decide.selectors import ByVotes, row_hash
from posterity.method.step import Decision, Labels, Shard, update
from posterity.validation.outcome import RehearsedStep


class Half:
    """Half of the labelled items: they are believed by what was learnt on the other."""

    def __init__(self, truth: Codes, prior: Floats, rule: Rule, side: int, dependent: bool) -> None:
        self.own = np.flatnonzero(np.arange(len(truth)) % 2 == side)
        """Which of the labelled items they are."""
        self.truth = truth[self.own]
        self.shard = Shard(prior, len(self.own), [rule], dependent=dependent)
        self.voted: dict[int, Mask] = {}
        """Which items each model has voted on."""
        self.cast = VoteTable.only(np.full((len(self.own), 0), MISSING, dtype=np.int32))
        """The votes, those of the step at hand included; kept for dependent beliefs."""
        self.answered = np.zeros(len(self.own), dtype=np.bool_)
        """Items people have answered for: their labels are right, and cannot change."""
        self.best = np.full(len(self.own), MISSING, dtype=np.int32)
        self.belief_best = np.zeros(len(self.own))

    @property
    def labels(self) -> Labels:
        """Where its labels stand."""
        return self.shard.labels[0]

    def eligible(self, votes: Codes, model: int) -> Mask:
        """Which items the model could vote on."""
        may: Mask = (votes[self.own] != MISSING) & ~self.answered
        return may & ~self.voted[model] if model in self.voted else may

    @property
    def changeable(self) -> Mask:
        """Which items have a label that can change."""
        has: Mask = self.labels.label != MISSING
        return has & ~self.answered

    def answer(self, believed: Floats, picked: Mask) -> None:
        """People answer for as many items as in a store, among labels that are believed alike.

        ``believed``: labels of the store, and which were ``picked``. Whatever they were picked by,
        labels of the same rank in what is believed are picked as often here.
        """
        labels, at = self.labels, np.flatnonzero(self.changeable)
        waits = labels.proposed[at] != MISSING
        own = np.where(waits, labels.belief_proposed[at], labels.belief[at])
        rows = at[_by_rank(own)[picked_alike(picked[_by_rank(believed)], len(at))]]
        labels.label[rows], labels.belief[rows] = self.truth[rows], 1.0
        labels.proposed[rows] = MISSING
        self.answered[rows] = True

    def worth(
        self, known: Dependence, step: RehearsedStep, places: Rows | None = None
    ) -> Callable[[], Floats] | None:
        """What a selector that looks at votes makes of each item; None: this one does not.

        ``places``: where the labelled items stand among the patterns of the fit, if it knows them.
        """
        if not isinstance(step.selector, ByVotes):
            return None
        beliefs, ratio = self.shard.dependent, traits(step.rule).cost
        weigh = partial(step.selector.weigh, known, beliefs.table, beliefs.who, self.labels.label)
        own = None if places is None else places[self.own]
        return partial(weigh, model=step.model, ratio=ratio, own=own)

    def again(self, known: Dependence) -> Standing:
        """Where its items stand with all their votes."""
        rows = np.flatnonzero(self.changeable)
        label, votes = self.labels.label[rows], self.shard.dependent.table[rows]
        believed = known.believe(votes, range(votes.hard.shape[1]), label, asked=label[:, None])
        support = (votes.hard == believed.best[:, None]).sum(axis=1, dtype=np.int32)
        truth, gain, loss = self.truth[rows], believed.belief_best, believed.asked[:, 0]
        return Standing(rows, label, truth, believed.best, gain, loss, support)

    def breaks(
        self,
        rows: Rows,
        votes: Codes | SoftVotes,
        known: Dependence,
        model: int,
        own: Rows | None,
    ) -> tuple[Rows, Floats]:
        """Right labels that would break if the most believed class were taken, and by how much.

        ``own``: where the items stand among the patterns; see ``Dependence.believe``.
        """
        label = self.labels.label[rows]
        voted = self.shard.dependent.table.with_votes(votes[self.own[rows]], rows, model)[rows]
        who, asked = range(voted.hard.shape[1]), label[:, None]
        believed = known.believe(voted, who, label, asked=asked, own=own)
        broken = (believed.best != label) & (label == self.truth[rows])
        margins = believed.belief_best[broken] / believed.asked[broken, 0].clip(TINY)
        return rows[broken], margins

    def update(
        self, rows: Rows, votes: Codes | SoftVotes, known: Confusion | Dependence, model: int
    ) -> list[Decision]:
        """Fold a model's votes on some rows, and decide."""
        if not len(rows):
            return []
        self.voted.setdefault(model, np.zeros(len(self.own), dtype=np.bool_))[rows] = True
        new, truth = votes[self.own[rows]], self.truth[rows]
        return update(self.shard, rows, new, known, truth=truth, model=model)


def picked_alike(picked: Mask, items: int) -> Mask:
    """Which of some items, in the order of others, are picked, if as many are in every part.

    >>> picked_alike(np.array([True, True, False, False, False, True]), 3).tolist()
    [True, False, True]
    """
    passed = np.concatenate([[0], np.cumsum(picked)])
    ends = np.linspace(0, len(picked), items + 1)
    counts = np.interp(ends, np.arange(len(passed)), passed) * items / max(1, len(picked))
    # Halves that are not quite halves would be rounded to one side and to the other.
    alike: Mask = np.diff(np.floor(counts.round(9) + 0.5)) > 0
    return alike


def _by_rank(believed: Floats) -> Rows:
    """The least believed first; ties by a hash, which has nothing to do with what is right."""
    return np.lexsort((row_hash(np.arange(len(believed))), believed))


class Standing(NamedTuple):
    """Labelled items that have a label, to be decided again."""

    rows: Rows
    label: Codes
    truth: Codes
    best: Codes
    gain: Floats
    """The belief in the best class."""
    loss: Floats
    """The belief in the label."""
    support: Codes
    """How many votes are for the best class."""

    @property
    def evidence(self) -> Evidence:
        """For rules that compare beliefs; the new vote is not looked at."""
        return Evidence(
            label=self.label,
            vote=self.label,
            best=self.best,
            belief_best=self.gain,
            belief_label=self.loss,
            support=self.support,
        )


def margins_of(one: Standing, changed: Mask) -> FlipMargins:
    """The flips to the best class, of some of the items."""
    label, best, truth = one.label[changed], one.best[changed], one.truth[changed]
    return FlipMargins.of(label, best, truth, one.gain[changed], one.loss[changed])


def flips_tried(
    half: Half,
    rows: Rows,
    votes: Codes | SoftVotes,
    known: Confusion | Dependence,
    model: int,
    rule: Rule,
) -> Iterator[tuple[Rows, FlipMargins]]:
    """The flips the rule would make at a cost ratio of 1, and their rows; nothing is changed."""
    trial = deepcopy(half)
    trial.shard.rules = [Balanced(ratio=1.0) if isinstance(rule, Balanced) else MaxBelief()]
    for made in trial.update(rows, votes, known, model):
        at, flipped = made.rows[made.flipped], made.flipped
        before, after = made.before[flipped], made.after[flipped]
        gain, loss = made.belief_after[flipped], made.belief_before[flipped]
        yield at, FlipMargins.of(before, after, half.truth[at], gain, loss)
