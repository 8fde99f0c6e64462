"""Votes of a scikit-learn classifier, or of anything with the same methods."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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
from posterity.models.adapters.payload import chosen, columns_of, inputs


class ScikitLearn:
    """A fitted estimator or pipeline, or the path of a joblib file that holds one.

    A column of texts reaches the estimator as a list, numbers as an array (items, features).
    A file is loaded at the first batch. Loading a joblib file runs whatever code it holds: open
    only files you made or trust. ``classes`` renames the estimator's classes in their order,
    for one that was fitted on codes.
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
        self._columns = chosen(column, columns)
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
        if self.classes is None and self._path is not None:
            self._take(_load(self._path))
        given = inputs(batch, self._read(batch), np.float64)
        with asking("The estimator"), warnings.catch_warnings():
            # The order of the columns was compared with the one it was fitted on.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            if self._probabilities and hasattr(self._estimator, "predict_proba"):
                answer = self._estimator.predict_proba(given)
                return probabilities(answer, len(self._name_of), len(given), "The estimator")
            labels = np.asarray(self._estimator.predict(given)).tolist()
            check_count(len(labels), len(given), "The estimator")
            return [self._name_of[label] for label in labels]

    def _read(self, batch: pa.Table) -> Sequence[str]:
        """The columns it is asked about; a wildcard leaves their order to the estimator."""
        names = columns_of(batch, self._columns)
        if names == list(self._columns):
            return names
        fitted_on = [str(name) for name in getattr(self._estimator, "feature_names_in_", names)]
        if set(fitted_on) == set(names):
            return fitted_on
        self._refuse_others(self._estimator, names)
        return names

    def _refuse_others(self, estimator: Any, names: Sequence[str]) -> None:
        """Other columns, or another order, than those it was fitted on."""
        fitted_on = [str(name) for name in getattr(estimator, "feature_names_in_", names)]
        if len(names) > 1 and fitted_on != list(names):
            raise Unavailable(
                f"The estimator was fitted on the columns {', '.join(fitted_on)}; it is to be "
                f"asked about {', '.join(names)}.",
                hint="Name the same columns in the same order.",
            )

    def _take(self, estimator: Any) -> None:
        own = getattr(estimator, "classes_", None)
        if own is None or not hasattr(estimator, "predict"):
            raise Unavailable(
                f"{type(estimator).__name__} is no fitted classifier: it has no classes_.",
                hint="Call its fit before, and save the whole pipeline.",
            )
        theirs = own_classes(own, "The estimator")
        if self._names is not None and len(self._names) != len(theirs):
            raise Unavailable(
                f"The estimator has {len(theirs)} classes; {len(self._names)} names were given."
            )
        if not any("*" in name for name in self._columns):
            self._refuse_others(estimator, self._columns)
        self._estimator = estimator
        self.classes = self._names or theirs
        self._name_of = dict(zip(theirs, self.classes, strict=True))


def _load(path: Path) -> Any:
    try:
        import joblib
        import sklearn  # noqa: F401  # what the file holds needs it
    except ImportError:
        raise MissingExtra.of("A scikit-learn model", "scikit-learn") from None
    with loading(f"'{path}'"):
        return joblib.load(path)
