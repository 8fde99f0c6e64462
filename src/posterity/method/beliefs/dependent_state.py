"""Dependent beliefs of a block of items, built up vote by vote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posterity.errors import InvalidData
from posterity.method.beliefs.dependent import Believed, Dependence
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Rows, evenly
from posterity.method.data.votes import (
    MISSING,
    SoftVotes,
    VoteTable,
    check_codes,
    check_rows,
    check_same_length,
    stacked,
)


class DependentBeliefs:
    """The beliefs of a block of items under dependence, built up vote by vote.

    What is folded at a step is believed as that step's fit has it; other items stay as they are.
    """

    def __init__(self, prior: ArrayLike, items: int) -> None:
        self.prior = np.asarray(prior, dtype=np.float64)
        self.items, self.classes = items, len(self.prior)
        self._votes = VoteTable.only(np.full((items, 0), MISSING, dtype=np.int32))
        self._who: list[int] = []
        self._fit: Dependence | None = None
        self._known: tuple[Codes, Believed] | None = None
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
        made._votes = votes if isinstance(votes, VoteTable) else VoteTable.only(votes)
        made._who, made._fit = list(who), fit
        labels = np.full(len(votes), MISSING, dtype=np.int32) if stored is None else stored
        believed = fit.believe(votes, who, labels, labels[:, None])
        made._entropy, made._known = believed.entropy, (labels, believed)
        return made

    @property
    def cast(self) -> VoteTable:
        """(n, T): the same item by item, soft ones as they are."""
        return self._votes

    @property
    def votes(self) -> Codes:
        """(T, n): every vote folded so far, in order of arrival."""
        return self._votes.hard.T.copy()

    @property
    def fitted(self) -> Dependence:
        """The last fit."""
        if self._fit is None:
            raise InvalidData("Nothing was folded yet.")
        return self._fit

    def fold(
        self,
        votes: ArrayLike | SoftVotes,
        fit: Dependence,
        *,
        rows: ArrayLike | None = None,
        model: int | None = None,
    ) -> None:
        """Absorb a model's votes, by default the next one's.

        The fit knows all models so far, and is what these rows are believed by.
        """
        where = self._at(rows)
        hard = votes.hard if isinstance(votes, SoftVotes) else votes
        cast = check_codes(hard, self.classes, "votes")
        check_same_length(votes=len(cast), rows=len(where))
        place = len(self._who) if model is None else model
        self._votes = self.with_votes(votes if isinstance(votes, SoftVotes) else cast, where, place)
        self._who = list(range(self._votes.hard.shape[1]))
        self._fit, self._known = fit, None
        self._entropy[where] = fit.believe(self._votes[where], self._who).entropy

    def with_votes(self, votes: Codes | SoftVotes, rows: Rows, model: int) -> VoteTable:
        """(n, T): the votes so far and these, a column a model."""
        held = self._votes
        more = max(model + 1 - held.hard.shape[1], 0)
        hard = np.pad(held.hard, ((0, 0), (0, more)), constant_values=MISSING)
        hard[rows, model] = votes.hard if isinstance(votes, SoftVotes) else votes
        if not isinstance(votes, SoftVotes) and not held.soft.size:
            return VoteTable.only(hard)
        soft = np.full(hard.shape, MISSING, dtype=np.int64)
        if held.soft.size:
            soft[:, : held.soft.shape[1]] = held.soft
        if not isinstance(votes, SoftVotes):
            return VoteTable(hard, soft, held.classes, held.weights)
        present = np.flatnonzero(votes.hard != MISSING)
        soft[rows[present], model] = len(held.classes) + np.arange(len(present))
        classes = stacked(held.classes, votes.codes[present], MISSING)
        return VoteTable(hard, soft, classes, stacked(held.weights, votes.weights[present], 0.0))

    def entropy(self, rows: ArrayLike | None = None) -> Floats:
        """S_n, as the fit of its last vote has it."""
        return self._entropy[self._at(rows)]

    def most_believed(
        self, rows: ArrayLike | None = None, *, stored: ArrayLike | None = None
    ) -> Codes:
        """k̂; exact ties go to the stored label, else to the class voted for most recently."""
        where = self._at(rows)
        labels = None if stored is None else check_codes(stored, self.classes, "stored")
        if self._known is not None and rows is None and labels is not None:
            asked, believed = self._known
            best = believed.best.copy()
            # Labels matter in a tie only, and then not if they are the best, or those asked for.
            others = np.flatnonzero((labels != asked) & (labels != best))
            if len(others):
                best[others] = self.fitted.believe(
                    self._votes[others], self._who, labels[others]
                ).best
            return best
        return self.fitted.believe(self._votes[where], self._who, labels).best

    def of_best(self, rows: ArrayLike | None = None) -> Floats:
        """p(k̂)."""
        if self._known is not None and rows is None:
            return self._known[1].belief_best
        return self.fitted.believe(self._votes[self._at(rows)], self._who).belief_best

    def of(self, labels: ArrayLike, rows: ArrayLike | None = None) -> Floats:
        """p(y_n = label_n); 0 where there is no label yet."""
        where = self._at(rows)
        codes = check_codes(labels, self.classes, "labels")
        check_same_length(labels=len(codes), rows=len(where))
        return self.of_each(codes[:, None], where)[:, 0]

    def of_stored(self) -> Floats:
        """p(l) of the labels these beliefs were made with; 0 where there is none."""
        if self._known is None:
            raise InvalidData("These beliefs were not made from all votes at once.")
        return self._known[1].asked[:, 0]

    def of_each(self, labels: Codes, rows: Rows) -> Floats:
        """(n, m): p(y_n = label) for several labels of each item at once; 0 where there is none."""
        return self.fitted.believe(self._votes[rows], self._who, asked=labels).asked

    def probabilities(self, rows: ArrayLike | None = None) -> Floats:
        """(n, K): the beliefs themselves."""
        where = self._at(rows)
        every = np.broadcast_to(np.arange(self.classes, dtype=np.int32), (len(where), self.classes))
        return self.of_each(np.ascontiguousarray(every), where)

    def entropy_without(self, model: int, rows: Rows) -> Floats:
        """The entropies without a model's votes, under the same fit."""
        others = [at for at in self._who if at != model]
        return self.fitted.believe(self._votes[rows].of(others), others).entropy

    def drift(self, fit: Dependence, labels: Codes, believed: Floats) -> float:
        """How much more labels are believed by this fit than when they were last looked at.

        In the mean, as a sample has it: most items are nearly what they were.
        """
        looked_at = evenly(self.items)
        rows = looked_at[labels[looked_at] != MISSING]
        if not len(rows):
            return 0.0
        now = fit.believe(self._votes[rows], self._who, asked=labels[rows][:, None]).asked[:, 0]
        return float((now - believed[rows]).mean())

    def value(self, stored: Codes, *, fit: Dependence, model: int, ratio: float) -> Floats:
        """What a vote of the next model could change; see ``Dependence.value``."""
        return fit.value(self._votes, self._who, stored, model=model, ratio=ratio)

    def _at(self, rows: ArrayLike | None) -> Rows:
        return np.arange(self.items) if rows is None else check_rows(rows, self.items)
