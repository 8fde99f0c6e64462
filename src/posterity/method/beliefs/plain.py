"""Beliefs: the posterior over each item's true class given its votes so far.

The product of likelihoods of the paper (`Träuble et al., 2021
<https://arxiv.org/abs/2107.01057>`_, equation 2). What is kept of an item is its votes, not a
number for each class: whatever is asked is computed from them, exactly, by ``product``.
"""

from __future__ import annotations

import numpy as np

from posterity.errors import InvalidData, InvalidParameter
from posterity.method.beliefs import priors
from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.product import Product
from posterity.method.beliefs.state import BeliefState
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Rows
from posterity.method.data.votes import (
    MISSING,
    SoftVotes,
    VoteTable,
    as_array,
    check_codes,
    check_rows,
    check_same_length,
)


class Beliefs(BeliefState):
    """The beliefs of a block of items, built up vote by vote.

    log p_t(k) = log p_{t−1}(k) + log π^t(ŷ^t, k), normalised when read. All votes of an item are
    multiplied in the order of the models, so folding them in blocks or all over again gives the
    same bits. One model at a time gives them to rounding: what was folded before a model came is
    not folded again, and how sums are taken depends on the models.

    >>> from posterity.method.beliefs.confusion import Confusion
    >>> beliefs = Beliefs(priors.uniform(3), items=2)
    >>> beliefs.fold([0, 1], Confusion.from_accuracy(0.6, classes=3))
    >>> beliefs.fold([0, 2], Confusion.from_accuracy(0.8, classes=3))
    >>> beliefs.probabilities().round(3)
    array([[0.923, 0.038, 0.038],
           [0.083, 0.25 , 0.667]])
    >>> beliefs.most_believed()
    array([0, 2], dtype=int32)
    >>> beliefs.of([0, 1]).round(3)
    array([0.923, 0.25 ])
    >>> beliefs.entropy().round(3)
    array([0.325, 0.824])
    """

    def __init__(self, prior: ArrayLike, items: int) -> None:
        weights = as_array(prior, "prior")
        if weights.ndim != 1:
            raise InvalidData(f"'prior' must hold a weight a class; got shape {weights.shape}.")
        if items < 0:
            raise InvalidParameter.of("items", "a count ≥ 0", items)
        super().__init__(priors.given(weights, classes=len(weights)), items)
        self._product = Product(self.prior, [])
        self._folded = self._product.fold(self.table)

    @classmethod
    def from_votes(cls, product: Product, votes: VoteTable, stored: Codes | None = None) -> Beliefs:
        """From all votes at once; the product names the models, in the order of the votes.

        ``stored``: the labels that ``of_stored`` is about.
        """
        made = cls.__new__(cls)
        BeliefState.__init__(made, product.prior, len(votes))
        made.table, made._product = votes, product
        made._folded = product.fold(votes, stored)
        return made

    def fold(
        self, votes: ArrayLike | SoftVotes, confusion: Confusion, *, rows: ArrayLike | None = None
    ) -> None:
        """Absorb one model's votes: one for every item, or for the items at ``rows``."""
        if confusion.classes != self.classes:
            raise InvalidData(
                f"'confusion' has {confusion.classes} classes, these beliefs have {self.classes}."
            )
        where = self._at(rows)
        if rows is not None and len(np.unique(where)) < len(where):
            raise InvalidData("'rows' must be different positions: an item has one vote a model.")
        soft = votes if isinstance(votes, SoftVotes) else None
        if soft is not None and soft.classes != self.classes:
            raise InvalidData(
                f"'votes' are about {soft.classes} classes, these beliefs about {self.classes}."
            )
        hard = check_codes(soft.hard if soft else votes, self.classes, "votes")  # type: ignore[arg-type]
        check_same_length(votes=len(hard), rows=len(where))
        confusions = self._product.confusions
        self.table = self.table.with_votes(soft or hard, where, len(confusions))
        self._product = Product(self.prior, [*confusions, confusion])
        present = where[hard != MISSING]
        now = self._product.fold(self.table[present])
        for name, values in self._folded._asdict().items():
            values[present] = getattr(now, name)

    def entropy(self, rows: ArrayLike | None = None) -> Floats:
        """S_n = −Σ_k p(k) log p(k), in nats."""
        return self._folded.entropy[self._at(rows)]

    def most_believed(
        self, rows: ArrayLike | None = None, *, stored: ArrayLike | None = None
    ) -> Codes:
        """k̂, the class with the highest belief.

        Exact ties go to the stored label if it is among them, else to the tied class voted for
        most recently, else to the lowest code.
        """
        where = self._at(rows)
        if stored is None:
            labels = np.full(len(where), MISSING, dtype=np.int32)
        else:
            labels = self._labels(stored, "stored", where)
        folded = self._folded if rows is None else self._folded.of_rows(where)
        if not folded.tied.any():
            return folded.best.copy()
        return self._product.prefer(self.table[where], labels, folded)

    def of(self, labels: ArrayLike, rows: ArrayLike | None = None) -> Floats:
        """p(y_n = label_n); 0 where there is no label yet."""
        where = self._at(rows)
        return self.of_each(self._labels(labels, "labels", where)[:, None], where)[:, 0]

    def of_each(self, labels: Codes, rows: Rows) -> Floats:
        """(n, m): p(y_n = label) for several labels of each item at once; 0 where there is none."""
        joint = self._product.joints(self.table[rows], labels)
        joint -= self._folded.log_total[rows, None]
        return np.exp(joint, out=joint)

    def of_stored(self) -> Floats:
        """p(l) of the labels these beliefs were made with; 0 where there is none."""
        return self._folded.belief_stored

    def of_best(self, rows: ArrayLike | None = None) -> Floats:
        """p(k̂)."""
        return self._folded.of_rows(self._at(rows)).belief_best

    def _at(self, rows: ArrayLike | None) -> Rows:
        return super()._at(None if rows is None else check_rows(rows, self.items))

    def _labels(self, given: ArrayLike, name: str, rows: Rows) -> Codes:
        labels = check_codes(given, self.classes, name)
        check_same_length(**{name: len(labels), "rows": len(rows)})
        return labels


ENTROPY_BITS, BELIEF_BITS = 12, 16


def kept(values: Floats, bits: int) -> Floats:
    """What is kept of an entropy (``ENTROPY_BITS``) or a belief (``BELIEF_BITS``) with an item.

    Single precision, rounded to so many bits after the first: four and five digits. Selection
    ranks by what is kept, and ties go by the hash of the row.

    >>> kept(np.array([0.123456789, 1e-20]), 12)
    array([1.23458862e-01, 1.00006136e-20])
    """
    plain = np.asarray(values, dtype=np.float32).view(np.uint32)
    last = np.uint32(1 << (23 - bits))
    rounded = (plain + (last >> np.uint32(1))) & ~(last - np.uint32(1))
    found: Floats = rounded.view(np.float32).astype(np.float64)
    return found
