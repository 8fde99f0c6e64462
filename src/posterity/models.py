"""Models: a name, votes on labelled data, and a way to obtain votes on items."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._arrays import Codes
from posterity.classes import Classes
from posterity.errors import InvalidData, InvalidParameter
from posterity.votes import MISSING, check_codes

Predict = Callable[[pa.Table], Any]
"""From a batch of items (id and payload columns) to one vote an item: names, or codes."""


@dataclass(frozen=True, eq=False)
class Model:
    """A classifier that arrives.

    ``labelled`` is a table (or a file) with the truth and this model's vote on labelled items; a
    key column lets the votes of several models on the same items be compared. ``predict`` may be
    left out where votes come from a file.
    """

    name: str
    labelled: Any = None
    predict: Predict | str | None = None
    """A callable, or its name as ``package.module:name``, which the store remembers."""
    cost: float | None = None
    """The price of one evaluation, in whatever unit; None: unknown, which is not zero."""
    truth: str = "truth"
    vote: str = "vote"
    key: str = "id"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidParameter.of("name", "a text that is not empty", self.name)
        if not (self.predict is None or callable(self.predict) or isinstance(self.predict, str)):
            raise InvalidParameter.of("predict", "a callable or its name", self.predict)
        if self.cost is not None and not (np.isfinite(self.cost) and self.cost >= 0):
            raise InvalidParameter.of("cost", "a finite number ≥ 0", self.cost)


def load_predict(spec: str) -> Predict:
    """A callable by name, ``package.module:name``; the current folder is searched too."""
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise InvalidParameter.of("predict", "package.module:name", spec)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidParameter(f"'{spec}' cannot be imported: {error}.") from None
    if not callable(found):
        raise InvalidParameter.of("predict", "a callable", spec)
    predict: Predict = found
    return predict


def encode_column(column: pa.ChunkedArray | pa.Array, classes: Classes, what: str) -> Codes:
    """Names in a column as codes, by one look-up for all; None becomes −1."""
    values = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if values.type in (pa.large_string(), pa.string_view()):
        values = values.cast(pa.string())
    fitting = {str: pa.types.is_string, int: pa.types.is_integer, bool: pa.types.is_boolean}
    if not fitting[classes.kind](values.type):
        if values.null_count == len(values):
            return np.full(len(values), MISSING, dtype=np.int32)
        raise InvalidData(
            f"The {what} must hold classes of type {classes.kind.__name__}; got {values.type}."
        )
    if classes.kind is int:
        values = values.cast(pa.int64())
    known = pa.array(classes.names, values.type)
    codes = pc.index_in(values, value_set=known)
    strange = pc.and_(codes.is_null(), values.is_valid())
    if pc.any(strange).as_py():
        named = values.filter(strange).unique()[:5].to_pylist()
        count = pc.sum(strange).as_py()
        raise InvalidData(f"The {what} names unknown classes in {count} rows: {named}.")
    return np.asarray(codes.fill_null(MISSING), dtype=np.int32)


def read_votes(given: Any, classes: Classes, items: int) -> Codes:
    """A model's answer as codes: names or codes, one for every item."""
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        given = given.to_pylist()
    values = given.tolist() if isinstance(given, np.ndarray) else list(given)
    if len(values) != items:
        raise InvalidData(f"The model gave {len(values)} votes for {items} items.")
    if classes.kind is str and all(type(value) is int for value in values):
        return check_codes(values, len(classes), "votes", allow_missing=False)
    return classes.encode(values)
