"""Beliefs: the posterior over each item's true class given its votes so far.

The product of likelihoods of the paper (`Träuble et al., 2021
<https://arxiv.org/abs/2107.01057>`_, equation 2), with dense arrays: one log-joint per item and
class.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from posterity import priors
from posterity._arrays import ArrayLike, Codes, Floats, Mask, Rows
from posterity.confusion import Confusion
from posterity.errors import InvalidData, InvalidParameter
from posterity.votes import (
    MISSING,
    SoftVotes,
    as_array,
    check_codes,
    check_rows,
    check_same_length,
)

BLOCK_CELLS = 2**17
"""Log-joints worked on at a time: 1 MiB, so that a block stays in a core's cache."""


class Beliefs:
    """The beliefs of a block of items, built up vote by vote.

    log p_t(k) = log p_{t−1}(k) + log π^t(ŷ^t, k), normalised when read. What is kept is the
    unnormalised sum in the order of the votes, so folding votes one model at a time, in blocks,
    or all over again gives the same bits.

    >>> from posterity.confusion import Confusion
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
        checked = priors.given(weights, classes=len(weights))
        if items < 0:
            raise InvalidParameter.of("items", "a count ≥ 0", items)
        self.items = items
        self.classes = len(checked)
        self._entropy: Floats = np.zeros(items)
        self._log_joint = np.tile(priors.log(checked), (items, 1))
        self._log_total: Floats = np.zeros(items)
        self._best: Codes = np.zeros(items, dtype=np.int32)
        self._log_best: Floats = np.zeros(items)
        self._tied: Mask = np.zeros(items, dtype=np.bool_)
        self._votes: list[Codes] = []
        for rows in _blocks(np.arange(items), self.classes):
            self._summarise(rows, self._log_joint[rows])

    @property
    def votes(self) -> Codes:
        """(T, n): every vote folded so far, in order of arrival; soft votes by their top class."""
        return np.array(self._votes, dtype=np.int32).reshape(-1, self.items)

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
        cast = np.full(self.items, MISSING, dtype=np.int32)
        cast[where] = hard
        present = np.flatnonzero(hard != MISSING)
        for block in _blocks(present, self.classes):
            log_likelihood = (
                _soft_log(soft[block], confusion) if soft else confusion.log[hard[block]]
            )
            log_joint = self._log_joint[where[block]]
            log_joint += log_likelihood
            self._log_joint[where[block]] = log_joint
            self._summarise(where[block], log_joint)
        self._votes.append(cast)

    def entropy(self, rows: ArrayLike | None = None) -> Floats:
        """S_n = −Σ_k p(k) log p(k), in nats."""
        return self._entropy[self._at(rows)]

    def most_believed(
        self, rows: ArrayLike | None = None, *, stored: ArrayLike | None = None
    ) -> Codes:
        """k̂, the class with the highest belief.

        Exact ties go to the stored label if it is among them, else to the tied class voted for
        most recently, else to the lowest code.
        """
        where = self._at(rows)
        best = self._best[where]
        labels = None if stored is None else check_codes(stored, self.classes, "stored")
        if labels is not None:
            check_same_length(stored=len(labels), rows=len(where))
        for at in np.flatnonzero(self._tied[where]):
            row = where[at]
            tied = self._log_joint[row] == self._log_best[row]
            recent = [int(cast[row]) for cast in reversed(self._votes)]
            preferred = ([] if labels is None else [int(labels[at])]) + recent
            best[at] = next((k for k in preferred if k != MISSING and tied[k]), best[at])
        return best

    def of(self, labels: ArrayLike, rows: ArrayLike | None = None) -> Floats:
        """p(y_n = label_n); 0 where there is no label yet."""
        where = self._at(rows)
        codes = check_codes(labels, self.classes, "labels")
        check_same_length(labels=len(codes), rows=len(where))
        believed = np.exp(self._log_joint[where, codes] - self._log_total[where])
        return np.where(codes == MISSING, 0.0, believed)

    def probabilities(self, rows: ArrayLike | None = None) -> Floats:
        """(n, K): the beliefs themselves."""
        where = self._at(rows)
        return np.exp(self._log_joint[where] - self._log_total[where, None])

    def _summarise(self, rows: Rows, log_joint: Floats) -> None:
        """Entropy, normaliser, best class of a block whose log-joints have changed.

        The best class's own term is kept out of the sum and brought back by log1p: otherwise an
        entropy below 1e-16 would round to zero and nearly settled items would lose their order.
        """
        within = np.arange(len(rows))
        best = log_joint.argmax(axis=1)
        log_best = log_joint[within, best]
        below = log_joint - log_best[:, None]
        self._tied[rows] = np.count_nonzero(below == 0, axis=1) > 1
        weight = np.exp(below)
        weight[within, best] = 0.0
        rest = weight.sum(axis=1)
        below *= weight
        log_rest = np.log1p(rest)
        self._entropy[rows] = log_rest - below.sum(axis=1) / (1 + rest)
        self._log_total[rows] = log_best + log_rest
        self._best[rows] = best
        self._log_best[rows] = log_best

    def _at(self, rows: ArrayLike | None) -> Rows:
        return np.arange(self.items) if rows is None else check_rows(rows, self.items)


def _soft_log(votes: SoftVotes, confusion: Confusion) -> Floats:
    """Log Σ_i s_i π(i, k), summed class by class: a matrix product would round by block size."""
    likelihood = np.zeros((len(votes), confusion.classes))
    for code, weight in zip(votes.codes.T, votes.weights.T, strict=True):
        likelihood += weight[:, None] * confusion.probabilities[code]
    return np.log(likelihood)


def _blocks(rows: Rows, classes: int) -> Iterator[Rows]:
    size = max(1, BLOCK_CELLS // classes)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
