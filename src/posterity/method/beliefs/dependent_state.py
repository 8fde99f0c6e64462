"""Dependent beliefs of a block of items, built up vote by vote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posterity.errors import InvalidData
from posterity.method.beliefs.dependent import Believed, Dependence
from posterity.method.beliefs.state import BeliefState
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Rows, evenly
from posterity.method.data.votes import MISSING, SoftVotes, VoteTable


class DependentBeliefs(BeliefState):
    """The beliefs of a block of items under dependence, built up vote by vote.

    What is folded at a step is believed as that step's fit has it; other items stay as they are.
    Votes, labels and rows were checked where they came from.
    """

    _fit: Dependence
    """The last fit; there is none before the first vote."""

    def __init__(self, prior: ArrayLike, items: int) -> None:
        super().__init__(np.asarray(prior, dtype=np.float64), items)
        self._who: Sequence[int] = ()
        """The model of each column of the votes."""
        self._at_once: tuple[Codes, Believed] | None = None
        """What was computed for some labels at once; forgotten with the next vote."""
        possible = self.prior[self.prior > 0]
        self._entropy: Floats = np.full(items, -float((possible * np.log(possible)).sum()))

    @classmethod
    def from_votes(
        cls,
        fit: Dependence,
        votes: Codes | VoteTable,
        who: Sequence[int],
        stored: Codes | None = None,
    ) -> DependentBeliefs:
        """From all votes at once; ``stored``: the labels that win ties, and are asked for first."""
        made = cls(fit.prior, len(votes))
        made.table = votes if isinstance(votes, VoteTable) else VoteTable.only(votes)
        made._who, made._fit = who, fit
        labels = np.full(len(votes), MISSING, dtype=np.int32) if stored is None else stored
        believed = fit.believe(votes, who, labels, labels[:, None])
        made._entropy, made._at_once = believed.entropy, (labels, believed)
        return made

    def fold(
        self,
        votes: Codes | SoftVotes,
        fit: Dependence,
        *,
        rows: Rows | None = None,
        model: int | None = None,
    ) -> None:
        """Absorb a model's votes, by default the next one's.

        The fit knows all models so far, and is what these rows are believed by.
        """
        where = self._at(rows)
        self.table = self.table.with_votes(votes, where, len(self._who) if model is None else model)
        self._who = range(self.table.hard.shape[1])
        self._fit, self._at_once = fit, None
        self._entropy[where] = fit.believe(self.table[where], self._who).entropy

    def entropy(self, rows: ArrayLike | None = None) -> Floats:
        """S_n, as the fit of its last vote has it."""
        return self._entropy.copy() if rows is None else self._entropy[np.asarray(rows)]

    def most_believed(
        self, rows: ArrayLike | None = None, *, stored: ArrayLike | None = None
    ) -> Codes:
        """k̂; exact ties go to the stored label, else to the class voted for most recently."""
        labels = None if stored is None else np.asarray(stored)
        if self._at_once is None or rows is not None or labels is None:
            return self._fit.believe(self._votes(rows), self._who, labels).best
        asked, believed = self._at_once
        best = believed.best.copy()
        # Labels matter in a tie only, and then not if they are the best, or those asked for.
        others = np.flatnonzero((labels != asked) & (labels != best))
        if len(others):
            best[others] = self._fit.believe(self.table[others], self._who, labels[others]).best
        return best

    def of_best(self, rows: ArrayLike | None = None) -> Floats:
        """p(k̂)."""
        if self._at_once is not None and rows is None:
            return self._at_once[1].belief_best
        return self._fit.believe(self._votes(rows), self._who).belief_best

    def of_stored(self) -> Floats:
        """p(l) of the labels these beliefs were made with; 0 where there is none."""
        if self._at_once is None:
            raise InvalidData("These beliefs were not made with labels.")
        return self._at_once[1].asked[:, 0]

    def of_each(self, labels: Codes, rows: Rows) -> Floats:
        """(n, m): p(y_n = label) for several labels of each item at once; 0 where there is none."""
        return self._fit.believe(self.table[rows], self._who, asked=labels).asked

    def entropy_without(self, model: int, rows: Rows) -> Floats:
        """The entropies without a model's votes, under the same fit."""
        others = [at for at in self._who if at != model]
        return self._fit.believe(self.table[rows].of(others), others).entropy

    def drift(self, fit: Dependence, labels: Codes, believed: Floats) -> float:
        """How much more labels are believed by this fit than when they were last looked at.

        In the mean, as a sample has it: most items are nearly what they were.
        """
        looked_at = evenly(self.items)
        rows = looked_at[labels[looked_at] != MISSING]
        if not len(rows):
            return 0.0
        now = fit.believe(self.table[rows], self._who, asked=labels[rows][:, None]).asked[:, 0]
        return float((now - believed[rows]).mean())

    @property
    def who(self) -> Sequence[int]:
        """The model of each column of the votes."""
        return self._who

    def _votes(self, rows: ArrayLike | None) -> VoteTable:
        return self.table if rows is None else self.table[np.asarray(rows)]
