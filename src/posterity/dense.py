"""Dense beliefs: one log-joint per item and class, in the order of the votes.

What ``beliefs`` says from the votes alone, with K numbers an item. Steps made by earlier versions
were decided with this arithmetic, and are decided again with it, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from posterity import priors
from posterity._arrays import ArrayLike, Codes, Floats, Mask, Rows
from posterity.confusion import Confusion
from posterity.votes import MISSING, SoftVotes

BLOCK_CELLS = 2**17
"""Log-joints worked on at a time: 1 MiB, so that a block stays in a core's cache."""


class DenseBeliefs:
    """The same questions and answers as ``Beliefs``.

    >>> from posterity.confusion import Confusion
    >>> beliefs = DenseBeliefs(priors.uniform(3), items=1)
    >>> beliefs.fold(np.array([1], dtype=np.int32), Confusion.from_accuracy(0.8, classes=3))
    >>> beliefs.of(np.array([1])).round(3)
    array([0.8])
    """

    def __init__(self, prior: Floats, items: int) -> None:
        self.items = items
        self.classes = len(prior)
        self._entropy: Floats = np.zeros(items)
        self._log_joint = np.tile(priors.log(prior), (items, 1))
        self._log_total: Floats = np.zeros(items)
        self._best: Codes = np.zeros(items, dtype=np.int32)
        self._log_best: Floats = np.zeros(items)
        self._tied: Mask = np.zeros(items, dtype=np.bool_)
        self._votes: list[Codes] = []
        for rows in _blocks(np.arange(items), self.classes):
            self._summarise(rows, self._log_joint[rows])

    def fold(self, votes: Codes | SoftVotes, confusion: Confusion) -> None:
        """Absorb one model's votes."""
        soft = votes if isinstance(votes, SoftVotes) else None
        hard: Codes = votes.hard if isinstance(votes, SoftVotes) else votes
        for block in _blocks(np.flatnonzero(hard != MISSING), self.classes):
            log_likelihood = (
                _soft_log(soft[block], confusion) if soft else confusion.log[hard[block]]
            )
            log_joint = self._log_joint[block]
            log_joint += log_likelihood
            self._log_joint[block] = log_joint
            self._summarise(block, log_joint)
        self._votes.append(hard)

    def entropy(self, rows: ArrayLike | None = None) -> Floats:
        """S_n = −Σ_k p(k) log p(k), in nats."""
        return self._entropy[self._at(rows)]

    def most_believed(
        self, rows: ArrayLike | None = None, *, stored: ArrayLike | None = None
    ) -> Codes:
        """k̂; exact ties as in ``Beliefs``."""
        where = self._at(rows)
        best = self._best[where]
        for at in np.flatnonzero(self._tied[where]):
            row = where[at]
            tied = self._log_joint[row] == self._log_best[row]
            recent = [int(cast[row]) for cast in reversed(self._votes)]
            preferred = ([] if stored is None else [int(np.asarray(stored)[at])]) + recent
            best[at] = next((k for k in preferred if k != MISSING and tied[k]), best[at])
        return best

    def of(self, labels: ArrayLike, rows: ArrayLike | None = None) -> Floats:
        """p(y_n = label_n); 0 where there is no label yet."""
        where = self._at(rows)
        believed = np.exp(self._log_joint[where, labels] - self._log_total[where])
        return np.where(np.asarray(labels) == MISSING, 0.0, believed)

    def of_best(self, rows: ArrayLike | None = None) -> Floats:
        """p(k̂)."""
        where = self._at(rows)
        return np.exp(self._log_best[where] - self._log_total[where])

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
        return np.arange(self.items) if rows is None else np.asarray(rows)


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
