"""Confusion: how a model errs, π(i, k) = p(vote = i given truth = k)."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from functools import cached_property
from math import lgamma
from typing import Literal

import numpy as np

from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.method.data.arrays import ArrayLike, Codes, Counts, Floats
from posterity.method.data.votes import (
    MISSING,
    as_array,
    check_classes,
    check_codes,
    check_same_length,
)

FLOOR = 1e-9
"""The least probability a stated confusion may hold.

A matrix or an accuracy given by hand may say "never". Taken literally, two such models that
disagree leave no possible truth; so nothing is certain beyond one in a billion.
"""

TruthAxis = Literal["columns", "rows"]


@dataclass(frozen=True, eq=False)
class Cells:
    """How often vote i met truth k: the cells that occurred, each once, by vote and then truth."""

    votes: Codes
    truths: Codes
    counts: Counts
    classes: int

    @classmethod
    def of(cls, votes: ArrayLike, truths: ArrayLike, counts: ArrayLike, classes: int) -> Cells:
        """Any cells; those that are named twice are added up, empty ones left out."""
        flat = np.asarray(votes, np.int64) * classes + np.asarray(truths, np.int64)
        cell, at = np.unique(flat, return_inverse=True)
        added = np.zeros(len(cell), dtype=np.int64)
        np.add.at(added, at, np.asarray(counts, np.int64))
        cell, added = cell[added > 0], added[added > 0]
        rows, columns = (cell // classes).astype(np.int32), (cell % classes).astype(np.int32)
        return cls(rows, columns, added, classes)

    @classmethod
    def of_pairs(cls, truth: ArrayLike, votes: ArrayLike, *, classes: int | Sized) -> Cells:
        """Of a labelled set: the truth and the model's vote of each item that has one."""
        number = check_classes(classes)
        known = check_codes(truth, number, "truth", allow_missing=False)
        cast = check_codes(votes, number, "votes")
        check_same_length(truth=len(known), votes=len(cast))
        present = cast != MISSING
        return cls.of(cast[present], known[present], np.ones(int(present.sum())), number)

    @property
    def table(self) -> Counts:
        """c(i, k) as a table of classes × classes."""
        table = np.zeros((self.classes, self.classes), dtype=np.int64)
        table[self.votes, self.truths] = self.counts
        return table

    @property
    def right(self) -> Counts:
        """c(k, k)."""
        own = self.votes == self.truths
        return np.bincount(self.votes[own], self.counts[own], self.classes).astype(np.int64)

    @property
    def truth_counts(self) -> Counts:
        """n_k."""
        return np.bincount(self.truths, self.counts, self.classes).astype(np.int64)


class Confusion:
    """A model's confusion as probabilities: row = vote, column = truth, columns sum to one.

    Kept as what it is in nearly every cell of a column, and the cells that differ: a table of
    classes × classes is made only when somebody asks for it.

    >>> Confusion.from_pairs([0, 0, 1, 1], [0, 1, 1, 1], classes=2, estimator="diagonal")
    Confusion(2 classes, mean accuracy 0.625)
    """

    def __init__(self, probabilities: ArrayLike) -> None:
        table = _square(probabilities, "probabilities", "columns")
        if not np.isfinite(table).all() or (table <= 0).any():
            raise InvalidData(
                "'probabilities' must be above 0 everywhere.",
                hint="Confusion.from_matrix takes matrices with zeros.",
            )
        _check_columns(table, "probabilities")
        common = _most_common(table)
        votes, truths = np.nonzero(table != common)
        self._keep(common, votes, truths, table[votes, truths])

    @classmethod
    def sparse(
        cls,
        common: Floats,
        votes: Codes,
        truths: Codes,
        values: Floats,
        ratios: Floats | None = None,
    ) -> Confusion:
        """Π(i, k) = ``common[k]`` but for the given cells, by vote and then truth.

        ``ratios``: the cells' values divided by the common one, where that is known exactly.
        """
        made = cls.__new__(cls)
        made._keep(common, votes, truths, values, ratios)
        return made

    def _keep(
        self,
        common: Floats,
        votes: ArrayLike,
        truths: ArrayLike,
        values: Floats,
        ratios: Floats | None = None,
    ) -> None:
        self.common = common
        """(K,) the probability of any vote that has no cell of its own, given the truth."""
        self.truths: Codes = np.asarray(truths).astype(np.int32)
        """The truths of the cells, vote by vote."""
        self.values = values
        """The probabilities of the cells."""
        self.starts: Counts = np.searchsorted(np.asarray(votes), np.arange(len(common) + 1))
        """(K+1,) where the cells of each vote begin."""
        self._ratios = values / common[self.truths] if ratios is None else ratios

    @cached_property
    def probabilities(self) -> Floats:
        """π(i, k), as a whole table."""
        table = np.tile(self.common, (self.classes, 1))
        table[np.repeat(np.arange(self.classes), np.diff(self.starts)), self.truths] = self.values
        return table

    @cached_property
    def kinds(self) -> tuple[Codes, Floats]:
        """Which ratio each cell has to the common value, and the ratios that occur."""
        ratios, kinds = np.unique(self._ratios, return_inverse=True)
        return kinds.astype(np.int32), ratios

    @cached_property
    def log(self) -> Floats:
        """Log π(i, k), finite everywhere."""
        return np.log(self.probabilities)

    @property
    def classes(self) -> int:
        """K."""
        return len(self.common)

    @property
    def accuracies(self) -> Floats:
        """π(k, k) for each class k."""
        votes = np.repeat(np.arange(self.classes), np.diff(self.starts))
        found, own = self.common.copy(), votes == self.truths
        found[votes[own]] = self.values[own]
        return found

    def unknown_from(self, code: int) -> Confusion:
        """The same where of this truth and later ones nothing is known: every vote as likely."""
        classes, common = self.classes, self.common.copy()
        common[code:] = 1 / classes
        votes = np.repeat(np.arange(classes, dtype=np.int32), np.diff(self.starts))
        own = self.truths < code
        votes, truths, values = votes[own], self.truths[own], self.values[own]
        # Where half of a column are cells of their own, one of their values may be the common one.
        crowded = np.flatnonzero(2 * np.bincount(truths, minlength=classes) >= classes)
        columns = np.tile(common[crowded], (classes, 1))
        at = np.searchsorted(crowded, truths).clip(max=max(0, len(crowded) - 1))
        dense = np.isin(truths, crowded)
        columns[votes[dense], at[dense]] = values[dense]
        common[crowded] = _most_common(columns)
        more, where = np.nonzero(columns != common[crowded])
        kept = ~dense & (values != common[truths])
        votes = np.concatenate([votes[kept], more])
        truths = np.concatenate([truths[kept], crowded[where]])
        values = np.concatenate([values[kept], columns[more, where]])
        order = np.lexsort((truths, votes))
        return Confusion.sparse(common, votes[order], truths[order], values[order])

    def __repr__(self) -> str:
        return f"Confusion({self.classes} classes, mean accuracy {self.accuracies.mean():.3g})"

    @classmethod
    def from_pairs(
        cls, truth: ArrayLike, votes: ArrayLike, *, classes: int | Sized, estimator: str = "full"
    ) -> Confusion:
        """Estimated from a labelled set: the truth and the model's vote of each labelled item."""
        cells = Cells.of_pairs(truth, votes, classes=classes)
        return cls.from_cells(cells, estimator=estimator)

    @classmethod
    def from_cells(cls, cells: Cells, *, estimator: str = "full") -> Confusion:
        """Estimated from the cells that occurred."""
        if not len(cells.counts):
            raise InvalidData(
                "The labelled set is empty: no item has both a truth and a vote.",
                hint="Give labelled items, a confusion matrix, or one accuracy.",
            )
        return estimate(estimator)(cells)

    @classmethod
    def from_counts(
        cls, counts: ArrayLike, *, estimator: str = "full", truth: TruthAxis = "columns"
    ) -> Confusion:
        """Estimated from counts c(i, k) of vote i under truth k (``truth="rows"``: transposed)."""
        table = _square(counts, "counts", truth)
        if not are_counts(table):
            raise InvalidData(f"'counts' must be {COUNTS_ALLOWED}.")
        votes, truths = np.nonzero(table)
        found = Cells.of(votes, truths, table[votes, truths], len(table))
        return cls.from_cells(found, estimator=estimator)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike, *, truth: TruthAxis = "columns") -> Confusion:
        """A known confusion matrix; for scikit-learn's, normalised over truth, ``truth="rows"``."""
        table = _square(matrix, "matrix", truth)
        if not np.isfinite(table).all() or (table < 0).any():
            raise InvalidData("'matrix' must hold finite probabilities ≥ 0.")
        _check_columns(table, "matrix")
        raised = np.maximum(table, FLOOR)
        return cls(raised / raised.sum(axis=0))

    @classmethod
    def from_accuracy(cls, accuracy: float | ArrayLike, *, classes: int | Sized) -> Confusion:
        """One accuracy for all classes (or one per class), errors spread evenly.

        >>> Confusion.from_accuracy(0.7, classes=4).probabilities[:, 0].round(2)
        array([0.7, 0.1, 0.1, 0.1])
        """
        number = check_classes(classes)
        given = as_array(np.asarray(accuracy), "accuracy")
        numeric = given.dtype.kind in "fiu" and given.shape in ((), (number,))
        if not (numeric and ((given >= 0) & (given <= 1)).all()):
            raise InvalidParameter.of(
                "accuracy", f"from 0 to 1, one number or {number} of them", accuracy
            )
        right = np.broadcast_to(given.astype(np.float64), number)
        wrong = np.maximum((1 - right) / (number - 1), FLOOR)
        right = np.maximum(right, FLOOR)
        total = right + (number - 1) * wrong
        return _spread(right / total, wrong / total)


def count(truth: ArrayLike, votes: ArrayLike, *, classes: int | Sized) -> Counts:
    """c(i, k): how often the model voted i where the truth was k; missing votes are left out.

    >>> count([0, 0, 1], [0, 1, -1], classes=2)
    array([[1, 0],
           [1, 0]])
    """
    return Cells.of_pairs(truth, votes, classes=classes).table


def diagonal(cells: Cells) -> Confusion:
    """π(k,k) = (c(k,k)+1)/(n_k+2), errors spread evenly: (1−π(k,k))/(K−1).

    The paper's estimator for many classes, smoothed so that 0 and 1 cannot occur; a class never
    seen in the labelled set gets one half.
    """
    return _spread_evenly((cells.right + 1) / (cells.truth_counts + 2))


def full(cells: Cells) -> Confusion:
    """Laplace: π(i,k) = (c(i,k)+1)/(n_k+K); a class never seen gets an uninformative column."""
    total = cells.truth_counts + cells.classes
    more = (cells.counts + 1).astype(np.float64)
    values = more / total[cells.truths]
    return Confusion.sparse(1 / total, cells.votes, cells.truths, values, more)


STRENGTHS = tuple(2.0**power for power in range(13))
"""Labelled items the model's mean may count for in every class; the largest is as good as all."""


def shrunk(cells: Cells) -> Confusion:
    """Class-wise accuracies shrunk to the model's mean; errors spread evenly (empirical Bayes).

    π(k,k) = (c(k,k) + s·m)/(n_k + s), with m the mean over all labelled items, and s the strength
    under which the counts of all classes are most likely (a beta-binomial).
    """
    right, seen = cells.right, cells.truth_counts
    mean = (right.sum() + 1) / (seen.sum() + 2)
    known = seen > 0
    likely = [_beta_binomial(right[known], seen[known], mean, one) for one in STRENGTHS]
    # Of equally likely ones the strongest: where counts say nothing, classes do not differ.
    strength = STRENGTHS[max(at for at, one in enumerate(likely) if one > max(likely) - 1e-9)]
    return _spread_evenly((right + strength * mean) / (seen + strength))


def single(cells: Cells) -> Confusion:
    """One accuracy for all classes: what ``shrunk`` comes to where classes do not differ."""
    mean = (cells.right.sum() + 1) / (cells.truth_counts.sum() + 2)
    return _spread_evenly(np.full(cells.classes, mean))


def _beta_binomial(right: Counts, seen: Counts, mean: float, strength: float) -> float:
    """The log-likelihood of counts, but for what does not depend on the strength."""
    hits, misses = strength * mean, strength * (1 - mean)
    fixed = lgamma(strength) - lgamma(hits) - lgamma(misses)
    return sum(
        fixed + lgamma(one + hits) + lgamma(all_ - one + misses) - lgamma(all_ + strength)
        for one, all_ in zip(right.tolist(), seen.tolist(), strict=True)
    )


Estimator = Callable[[Cells], Confusion]

ESTIMATORS: dict[str, Estimator] = {
    "diagonal": diagonal,
    "full": full,
    "shrunk": shrunk,
    "single": single,
}


def estimate(name: str) -> Estimator:
    """The estimator of that name."""
    if name not in ESTIMATORS:
        raise UnknownName.among("confusion estimator", str(name), ESTIMATORS)
    return ESTIMATORS[name]


def _check_columns(table: Floats, name: str) -> None:
    worst = float(np.abs(table.sum(axis=0) - 1).max())
    if worst > 1e-6:
        raise InvalidData(
            f"In '{name}' votes under each truth must sum to one; a sum is off by {worst:.3g}.",
            hint="Truths are columns here; for a matrix with truths in rows say truth='rows'.",
        )


def _spread_evenly(right: Floats) -> Confusion:
    """Right so often under each truth, else any wrong class."""
    return _spread(right, (1 - right) / (len(right) - 1))


def _spread(right: Floats, wrong: Floats) -> Confusion:
    """Right with one probability, wrong in every way with another."""
    each = np.arange(len(right), dtype=np.int32)
    return Confusion.sparse(np.asarray(wrong), each, each, np.asarray(right))


def _most_common(table: Floats) -> Floats:
    """Of each column the value most of its cells have."""
    ordered = np.sort(table, axis=0)
    fresh = np.ones(table.shape, dtype=np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    # The length of the run each cell ends, column by column.
    place = np.arange(len(table))[:, None]
    begins = np.maximum.accumulate(np.where(fresh, place, 0), axis=0)
    longest = (place - begins).argmax(axis=0)
    common: Floats = ordered[longest, np.arange(table.shape[1])]
    return common


MOST_COUNTED = 2**53 - 1
"""Labelled items; more are not told apart by floating-point numbers."""
COUNTS_ALLOWED = f"whole numbers ≥ 0, at most {MOST_COUNTED:,} in all"


def are_counts(table: Floats) -> bool:
    """Whether numbers can be how often votes and truths were seen together."""
    with np.errstate(over="ignore"):
        within = table.sum() <= MOST_COUNTED  # false if it is not a number
    return bool(within and (table >= 0).all() and (table == np.floor(table)).all())


def _square(given: ArrayLike, name: str, truth: TruthAxis) -> Floats:
    if truth not in ("columns", "rows"):
        raise InvalidParameter.of("truth", "'columns' or 'rows'", truth)
    table = as_array(given, name)
    if table.dtype.kind not in "fiu":
        raise InvalidData(f"'{name}' must hold numbers; got {table.dtype}.")
    table = table.astype(np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InvalidData(f"'{name}' must be square, classes × classes; got shape {table.shape}.")
    check_classes(len(table))
    return table.T if truth == "rows" else table
