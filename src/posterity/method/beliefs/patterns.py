"""Patterns: which votes labelled items have together, and what was true of them.

Formulas for how models err hold in the mean; where labelled items have just the votes an item has,
what was true of those says more. With n_k of them whose truth is k, and p the belief in its place,

    p'(k) = (p(k) + g · n_k) / (1 + g · Σ n)

with g what one labelled item counts for: most often the one that makes held-out truths likeliest,
and more where the counts of a pattern clearly contradict the formulas (``kernels.patterns``). Items
are selected by votes alone, so that those with the same votes of the same models are a fair sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from posterity.method import kernels
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.votes import MISSING

CLEARLY = 2.0
"""By so much the log-likelihood of held-out truths must grow: else formulas alone are believed."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """Votes of all models on labelled items, and their truths; each pattern once."""

    votes: Codes
    """(n, T)"""
    truth: Codes
    counts: Floats
    """How many labelled items have these votes and this truth."""
    weights: Floats
    """What each of them counts for, on a target that is harder or easier than they are."""

    @classmethod
    def of(cls, votes: Codes, truth: Codes) -> Patterns:
        """Of the items every model has voted on.

        >>> seen = Patterns.of(np.array([[0, 1], [0, 1], [0, 1], [1, 1]]), np.array([1, 1, 0, 1]))
        >>> seen.truth.tolist(), seen.counts.tolist()
        ([0, 1, 1], [1.0, 2.0, 1.0])
        """
        all_of_them = (votes != MISSING).all(axis=1)
        each = np.column_stack([votes[all_of_them], truth[all_of_them]]).astype(np.int32)
        unique, counts = np.unique(each, axis=0, return_counts=True)
        own, true = np.ascontiguousarray(unique[:, :-1]), np.ascontiguousarray(unique[:, -1])
        return cls(own, true, counts.astype(np.float64), np.ones(len(true)))

    @classmethod
    def none(cls, models: int) -> Patterns:
        """Without any labelled item."""
        return cls.of(np.zeros((0, models), dtype=np.int32), np.zeros(0, dtype=np.int32))

    def weighed(self, factors: Floats) -> Self:
        """With other weights."""
        return replace(self, weights=self.weights * factors)

    def kept(self) -> Self:
        """As a store keeps it: in single precision."""
        return replace(self, weights=self.weights.astype(np.float32).astype(np.float64))

    def to_arrays(self) -> dict[str, Any]:
        """To be written to a file."""
        small = np.int16 if self.votes.max(initial=0) < 2**15 > self.truth.max(initial=0) else None
        return {
            "patterns": np.column_stack([self.votes, self.truth]).astype(small or np.int32),
            "pattern_counts": self.counts.astype(np.int32),
            "pattern_weights": self.weights.astype(np.float32),
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Patterns:
        """What ``to_arrays`` made."""
        each = np.asarray(arrays["patterns"]).astype(np.int32)
        counts, weights = (
            np.asarray(arrays[name]).astype(np.float64)
            for name in ("pattern_counts", "pattern_weights")
        )
        own, true = np.ascontiguousarray(each[:, :-1]), np.ascontiguousarray(each[:, -1])
        return cls(own, true, counts, weights)

    def arrays(self, prior: Floats) -> Any:
        """As kernels take them, weighed to what classes are believed to be like in frequency."""
        shares = np.bincount(self.truth, self.counts, minlength=len(prior))
        known = np.maximum(shares[self.truth], 1.0) / max(self.counts.sum(), 1.0)
        starts, rows = self._index(len(prior))
        weights = self.weights * prior[self.truth] / known
        return kernels.patterns.PatternArrays(
            self.votes, self.truth, self.counts, weights, starts, rows
        )

    def _index(self, classes: int) -> tuple[Rows, Rows]:
        """The rows of each vote of each model, one after the other."""
        models = self.votes.shape[1]
        cells = np.arange(models) * classes + self.votes
        ends = np.cumsum(np.bincount(cells.ravel(), minlength=models * classes))
        return np.concatenate([[0], ends]).astype(np.int64), self._by_vote

    @cached_property
    def _by_vote(self) -> Rows:
        order = [np.argsort(own, kind="stable") for own in self.votes.T]
        return np.concatenate(order) if order else np.zeros(0, dtype=np.int64)

    def places(self, votes: Codes, truth: Codes) -> Rows:
        """(n,) where labelled items stand among them; −1 for those that are not there.

        >>> seen = Patterns.of(np.array([[0, 1], [0, 1], [1, 1]]), np.array([1, 0, 1]))
        >>> seen.places(np.array([[1, 1], [0, 1], [0, 0]]), np.array([1, 1, 1])).tolist()
        [2, 1, -1]
        """
        each = [np.column_stack([self.votes, self.truth]), np.column_stack([votes, truth])]
        _, same = np.unique(np.concatenate(each), axis=0, return_inverse=True)
        place = np.full(len(same), -1, dtype=np.int64)
        place[same[: len(self.truth)]] = np.arange(len(self.truth))
        found: Rows = place[same[len(self.truth) :]]
        return found

    def alike(self, votes: Codes, who: Rows) -> dict[int, int]:
        """Of how many labelled items with these votes of these models each class is the truth.

        >>> seen = Patterns.of(np.array([[0, 1], [0, 1], [0, 1], [1, 1]]), np.array([1, 1, 0, 1]))
        >>> seen.alike(np.array([0]), np.array([0]))
        {0: 1, 1: 2}
        """
        same = (self.votes[:, who] == votes).all(axis=1)
        counts = np.bincount(self.truth[same], self.counts[same])
        return {int(code): round(counts[code]) for code in np.flatnonzero(counts)}
