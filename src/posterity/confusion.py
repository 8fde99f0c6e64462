"""Confusion: how a model errs, π(i, k) = p(vote = i given truth = k)."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from posterity._arrays import ArrayLike, Counts, Floats
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.votes import MISSING, as_array, check_classes, check_codes, check_same_length

FLOOR = 1e-9
"""The least probability a stated confusion may hold.

A matrix or an accuracy given by hand may say "never". Taken literally, two such models that
disagree leave no possible truth; so nothing is certain beyond one in a billion.
"""

TruthAxis = Literal["columns", "rows"]


@dataclass(frozen=True, eq=False)
class Confusion:
    """A model's confusion as probabilities: row = vote, column = truth, columns sum to one.

    >>> Confusion.from_pairs([0, 0, 1, 1], [0, 1, 1, 1], classes=2, estimator="diagonal")
    Confusion(2 classes, mean accuracy 0.625)
    """

    probabilities: Floats

    def __post_init__(self) -> None:
        table = _square(self.probabilities, "probabilities", "columns")
        if not np.isfinite(table).all() or (table <= 0).any():
            raise InvalidData(
                "'probabilities' must be above 0 everywhere.",
                hint="Confusion.from_matrix takes matrices with zeros.",
            )
        _check_columns(table, "probabilities")
        object.__setattr__(self, "probabilities", table)

    @cached_property
    def log(self) -> Floats:
        """Log π(i, k), finite everywhere."""
        return np.log(self.probabilities)

    @property
    def classes(self) -> int:
        """K."""
        return len(self.probabilities)

    @property
    def accuracies(self) -> Floats:
        """π(k, k) for each class k."""
        return np.diagonal(self.probabilities)

    def __repr__(self) -> str:
        return f"Confusion({self.classes} classes, mean accuracy {self.accuracies.mean():.3g})"

    @classmethod
    def from_pairs(
        cls, truth: ArrayLike, votes: ArrayLike, *, classes: int | Sized, estimator: str = "full"
    ) -> Confusion:
        """Estimated from a labelled set: the truth and the model's vote of each labelled item."""
        return cls.from_counts(count(truth, votes, classes=classes), estimator=estimator)

    @classmethod
    def from_counts(
        cls, counts: ArrayLike, *, estimator: str = "full", truth: TruthAxis = "columns"
    ) -> Confusion:
        """Estimated from counts c(i, k) of vote i under truth k (``truth="rows"``: transposed)."""
        table = _square(counts, "counts", truth)
        if not np.isfinite(table).all() or (table < 0).any() or (table != np.floor(table)).any():
            raise InvalidData("'counts' must be whole numbers ≥ 0.")
        if table.sum() == 0:
            raise InvalidData(
                "The labelled set is empty: no item has both a truth and a vote.",
                hint="Give labelled items, a confusion matrix, or one accuracy.",
            )
        return cls(estimate(estimator)(table.astype(np.int64)))

    @classmethod
    def from_matrix(cls, matrix: ArrayLike, *, truth: TruthAxis = "columns") -> Confusion:
        """A known confusion matrix; for scikit-learn's, normalised over truth, ``truth="rows"``."""
        table = _square(matrix, "matrix", truth)
        if not np.isfinite(table).all() or (table < 0).any():
            raise InvalidData("'matrix' must hold finite probabilities ≥ 0.")
        _check_columns(table, "matrix")
        return cls(_floored(table))

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
        return cls(_floored(_spread(np.broadcast_to(given.astype(np.float64), number))))


def count(truth: ArrayLike, votes: ArrayLike, *, classes: int | Sized) -> Counts:
    """c(i, k): how often the model voted i where the truth was k; missing votes are left out.

    >>> count([0, 0, 1], [0, 1, -1], classes=2)
    array([[1, 0],
           [1, 0]])
    """
    number = check_classes(classes)
    known = check_codes(truth, number, "truth", allow_missing=False)
    cast = check_codes(votes, number, "votes")
    check_same_length(truth=len(known), votes=len(cast))
    present = cast != MISSING
    cells = cast[present].astype(np.int64) * number + known[present]
    return np.bincount(cells, minlength=number * number).reshape(number, number)


def diagonal(counts: Counts) -> Floats:
    """π(k,k) = (c(k,k)+1)/(n_k+2), errors spread evenly: (1−π(k,k))/(K−1).

    The paper's estimator for many classes, smoothed so that 0 and 1 cannot occur; a class never
    seen in the labelled set gets one half.
    """
    return _spread((np.diagonal(counts) + 1) / (counts.sum(axis=0) + 2))


def full(counts: Counts) -> Floats:
    """Laplace: π(i,k) = (c(i,k)+1)/(n_k+K); a class never seen gets an uninformative column."""
    smoothed: Floats = (counts + 1) / (counts.sum(axis=0) + len(counts))
    return smoothed


Estimator = Callable[[Counts], Floats]

ESTIMATORS: dict[str, Estimator] = {"diagonal": diagonal, "full": full}


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


def _spread(accuracies: Floats) -> Floats:
    classes = len(accuracies)
    table = np.tile((1 - accuracies) / (classes - 1), (classes, 1))
    np.fill_diagonal(table, accuracies)
    return table


def _floored(table: Floats) -> Floats:
    raised = np.maximum(table, FLOOR)
    floored: Floats = raised / raised.sum(axis=0)
    return floored


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
