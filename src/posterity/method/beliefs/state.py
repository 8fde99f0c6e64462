"""What plain and dependent beliefs have in common: items, and the votes on them so far."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from posterity.method.data.arrays import ArrayLike, Codes, Floats, Rows
from posterity.method.data.votes import MISSING, VoteTable


class BeliefState(ABC):
    """A block of items, their votes so far, and what is believed because of them.

    How beliefs are computed is what the kinds differ in.
    """

    def __init__(self, prior: Floats, items: int) -> None:
        self.prior = prior
        self.items, self.classes = items, len(prior)
        self.table = VoteTable.only(np.full((items, 0), MISSING, dtype=np.int32))
        """Every vote folded so far, item by item."""

    @property
    def votes(self) -> Codes:
        """(T, n): every vote folded so far, in order of arrival; soft votes by their top class."""
        return self.table.hard.T.copy()

    @abstractmethod
    def entropy(self, rows: ArrayLike | None = None) -> Floats:
        """S_n = −Σ_k p(k) log p(k), in nats."""

    @abstractmethod
    def most_believed(
        self, rows: ArrayLike | None = None, *, stored: ArrayLike | None = None
    ) -> Codes:
        """k̂; exact ties go to the stored label, else to the class voted for most recently."""

    @abstractmethod
    def of_best(self, rows: ArrayLike | None = None) -> Floats:
        """p(k̂)."""

    @abstractmethod
    def of_stored(self) -> Floats:
        """p(l) of the labels these beliefs were made with; 0 where there is none."""

    @abstractmethod
    def of_each(self, labels: Codes, rows: Rows) -> Floats:
        """(n, m): p(y_n = label) for several labels of each item at once; 0 where there is none."""

    def of(self, labels: ArrayLike, rows: ArrayLike | None = None) -> Floats:
        """p(y_n = label_n); 0 where there is no label yet."""
        return self.of_each(np.asarray(labels)[:, None], self._at(rows))[:, 0]

    def probabilities(self, rows: ArrayLike | None = None) -> Floats:
        """(n, K): the beliefs themselves."""
        where = self._at(rows)
        every = np.tile(np.arange(self.classes, dtype=np.int32), (len(where), 1))
        return self.of_each(every, where)

    def _at(self, rows: ArrayLike | None) -> Rows:
        return np.arange(self.items) if rows is None else np.asarray(rows)
