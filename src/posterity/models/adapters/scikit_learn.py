"""Votes of a scikit-learn classifier, or of anything with the same methods."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from posterity.errors import MissingExtra, Unavailable
from posterity.method.data.classes import Name
from posterity.models.adapters.outputs import (
    asking,
    check_count,
    loading,
    own_classes,
    probabilities,
)
from posterity.models.adapters.payload import chosen, column_of, columns_of, inputs

FEW = 20
"""Columns that a message lists."""


class ScikitLearn:
    """A fitted classifier or pipeline, of any library whose objects have ``predict`` or
    ``predict_proba``; or the path of a joblib file that holds one.

    ``columns`` may hold wildcards; without any it reads the columns it was fitted on, or the only
    one there is. Fitted on a frame, it is given a frame (pandas); else a column of texts reaches it
    as a list, numbers as an array (items, features). A file is loaded at the first batch. Loading a
    joblib file runs whatever code it holds: open only files you made or trust. ``classes`` names
    the classes of a classifier that was fitted on codes, or has no ``classes_``, in its order.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        column: str | None = None,
        columns: Sequence[str] | None = None,
        probabilities: bool = True,
        classes: Sequence[Name] | None = None,
    ) -> None:
        self._columns = () if column is None and columns is None else chosen(column, columns)
        self._probabilities = probabilities
        self._names = None if classes is None else own_classes(classes, "The estimator")
        self._path: Path | None = None
        self.classes: tuple[Name, ...] | None = None
        if isinstance(estimator, (str, Path)):
            self._path = Path(estimator)
        else:
            self._take(estimator)

    def __call__(self, batch: pa.Table) -> Any:
        """Class probabilities where the estimator gives them, otherwise names."""
        if self._path is not None:
            self._take(_load(self._path))
            self._path = None
        given = self._read(batch)
        with asking("The estimator"), warnings.catch_warnings():
            # What it was fitted on was compared with the columns.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            if self._probabilities and hasattr(self._estimator, "predict_proba"):
                answer = self._estimator.predict_proba(given)
                known = None if self.classes is None else len(self.classes)
                return probabilities(answer, known, len(batch), "The estimator")[:, self._order]
            answer = np.asarray(self._estimator.predict(given))
            if answer.ndim == 2 and answer.shape[1] > 1:  # a network gives probabilities here
                known = None if self.classes is None else len(self.classes)
                return probabilities(answer, known, len(batch), "The estimator")[:, self._order]
            labels = answer.reshape(-1).tolist()
            check_count(len(labels), len(batch), "The estimator")
            return [self._name_of[label] for label in labels] if self._name_of else labels

    def _read(self, batch: pa.Table) -> Any:
        """The columns it reads, in the form it was fitted on."""
        fitted_on = tuple(map(str, getattr(self._estimator, "feature_names_in_", ())))
        columns = tuple(columns_of(batch, self._columns))
        if not columns:
            payload = [name for name in batch.column_names if name != "id"]
            if not fitted_on and len(payload) != 1:
                raise Unavailable(
                    f"Which columns does the estimator read? The items have: {_few(payload)}.",
                    hint="Name them with columns=, also by a wildcard such as px*.",
                )
            columns = fitted_on or tuple(payload)
        if set(columns) == set(fitted_on):
            for name in fitted_on:
                column_of(batch, name)
            if find_spec("pandas") is not None:
                return batch.select(list(fitted_on)).to_pandas()
            columns = fitted_on
        elif set(columns) & set(fitted_on):
            raise Unavailable(
                f"The estimator was fitted on the columns {_few(fitted_on)}; it is to be asked "
                f"about {_few(columns)}.",
                hint="Name the same columns, or none: then it reads those it was fitted on.",
            )
        return inputs(batch, columns, np.float64)

    def _take(self, estimator: Any) -> None:
        own = getattr(estimator, "classes_", None)
        votes = hasattr(estimator, "predict") or hasattr(estimator, "predict_proba")
        # Estimators name their classes once they are fitted; objects of other libraries need not.
        if not votes or (own is None and hasattr(estimator, "get_params")):
            lacks = "classes_" if votes else "predict"
            raise Unavailable(
                f"{type(estimator).__name__} is no fitted classifier: it has no {lacks}.",
                hint="Call its fit before, and give the whole pipeline.",
            )
        theirs = None if own is None else own_classes(own, "The estimator")
        names = self._names
        if names is not None and theirs is not None and len(names) != len(theirs):
            raise Unavailable(
                f"The estimator has {len(theirs)} classes; {len(names)} names were given."
            )
        self._estimator = estimator
        self.classes = names or theirs
        self._name_of: dict[Name, Name] = {}
        self._order: Any = slice(None)
        """Which of its probabilities belongs to which of the classes."""
        if theirs is not None and names is not None and _same(names, theirs):
            self._order = [theirs.index(name) for name in names]
            theirs = names
        if theirs is not None:
            self._name_of = dict(zip(theirs, names or theirs, strict=True))


def _same(names: Sequence[Name], others: Sequence[Name]) -> bool:
    return type(names[0]) is type(others[0]) and set(names) == set(others)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + (f", … ({len(names)} in all)" if len(names) > FEW else "")


def _load(path: Path) -> Any:
    try:
        import joblib
        import sklearn  # noqa: F401  # what the file holds needs it
    except ImportError:
        raise MissingExtra.of("A scikit-learn model", "scikit-learn") from None
    with loading(f"'{path}'"):
        return joblib.load(path)
