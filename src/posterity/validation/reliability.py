"""Reliability: of labels believed so much, how many are right."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import pi, sqrt
from typing import Any

import numpy as np

from posterity.method.data.arrays import ArrayLike, Counts, Floats

BINS = 10


@dataclass(frozen=True, eq=False)
class Reliability:
    """Labelled items by how much a label of theirs is believed: bins of equal width from 0 to 1."""

    items: Counts = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))
    right: Counts = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))
    belief: Floats = field(default_factory=lambda: np.zeros(BINS))
    """Summed up in each bin."""
    variance: Floats = field(default_factory=lambda: np.zeros(BINS))
    """Of how many are right in each, if the beliefs are."""

    @classmethod
    def of(cls, right: ArrayLike, beliefs: ArrayLike) -> Reliability:
        """From one belief an item, and whether what is believed is right.

        >>> told = Reliability.of([True, True, False, False], [0.95, 0.95, 0.95, 0.15])
        >>> told.items[[1, 9]], round(told.error, 4)
        (array([1, 3]), 0.25)
        """
        hit = np.asarray(right, dtype=np.int64)
        each = np.asarray(beliefs, dtype=np.float64)
        at = np.minimum((each * BINS).astype(np.int64), BINS - 1)

        def added(values: Any) -> Any:
            return np.bincount(at, weights=values, minlength=BINS)

        return cls(
            np.bincount(at, minlength=BINS),
            added(hit).astype(np.int64),
            added(each),
            added(each * (1 - each)),
        )

    def __add__(self, other: Reliability) -> Reliability:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Reliability(*(one + more for one, more in pairs))

    @property
    def error(self) -> float:
        """The expected calibration error: |share right − mean belief|, in the mean over items."""
        return float(np.abs(self.right - self.belief).sum() / max(int(self.items.sum()), 1))

    @property
    def chance(self) -> float:
        """What that error would be of beliefs that are right, of so few items."""
        return float(sqrt(2 / pi) * np.sqrt(self.variance).sum() / max(int(self.items.sum()), 1))

    @property
    def bins(self) -> list[dict[str, Any]]:
        """Those that have items, as ``--json`` prints them."""
        return [
            {
                "from": at / BINS,
                "to": (at + 1) / BINS,
                "items": int(self.items[at]),
                "belief": float(self.belief[at] / self.items[at]),
                "right": float(self.right[at] / self.items[at]),
            }
            for at in np.flatnonzero(self.items).tolist()
        ]

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "items": int(self.items.sum()),
            "error": self.error,
            "chance": self.chance,
            "bins": self.bins,
        }
