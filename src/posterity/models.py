"""Models: a name, votes on labelled data, and a way to obtain votes on items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._arrays import Codes
from posterity.classes import Classes
from posterity.errors import InvalidData, InvalidParameter
from posterity.votes import check_codes

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
    predict: Predict | None = None
    cost: float | None = None
    """The price of one evaluation, in whatever unit; None: unknown, which is not zero."""
    truth: str = "truth"
    vote: str = "vote"
    key: str = "id"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidParameter.of("name", "a text that is not empty", self.name)
        if self.predict is not None and not callable(self.predict):
            raise InvalidParameter.of("predict", "a callable", self.predict)
        if self.cost is not None and not (np.isfinite(self.cost) and self.cost >= 0):
            raise InvalidParameter.of("cost", "a finite number ≥ 0", self.cost)


def read_votes(given: Any, classes: Classes, items: int) -> Codes:
    """A model's answer as codes: names, codes, or None for an item it has no vote on."""
    listed = given.to_pylist() if isinstance(given, (pa.Array, pa.ChunkedArray)) else given
    values = listed.tolist() if isinstance(listed, np.ndarray) else list(listed)
    if len(values) != items:
        raise InvalidData(f"The model gave {len(values)} votes for {items} items.")
    if classes.kind is str and all(type(value) is int for value in values):
        return check_codes(values, len(classes), "votes", allow_missing=False)
    return classes.encode(values)
