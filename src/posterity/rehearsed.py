"""Rehearsed: what a step did on the labelled set, for which target, and adapted to it how far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from posterity.dependence import Dependence
from posterity.expectations import Estimate, forecast
from posterity.trust import Trust

LITTLE = 0.1
"""A tilt below this is not worth a word; of shares and accuracies a tenth of it is."""


@dataclass(frozen=True)
class Adaptation:
    """By how much beliefs about a target were adapted to it."""

    tilt: float = 0.0
    """How much harder it looks than the labelled set; see ``difficulty``."""
    shares: float = 0.0
    """The share of items whose class is another one than the labelled set has it."""
    accuracies: float = 0.0
    """By how much the accuracy of the model that was moved most was moved; see ``accuracies``."""
    labelled: float = 1.0
    """The share of labelled items that weights leave; see ``weighing``."""

    def to_dict(self) -> dict[str, float]:
        """As ``--json`` prints it."""
        return dict(vars(self))

    def __str__(self) -> str:
        told = []
        if abs(self.tilt) >= LITTLE:
            than = "harder" if self.tilt > 0 else "easier"
            told.append(f"items that look {than} than the labelled set (tilt {self.tilt:+.2f})")
        if self.shares >= LITTLE / 10:
            told.append(f"class shares as votes tell, {100 * self.shares:.0f} % of items apart")
        if self.accuracies >= LITTLE / 10:
            points = 100 * self.accuracies
            told.append(f"models' accuracies as votes tell, moved by at most {points:.0f} points")
        if self.labelled < 1:
            told.append(f"weights, which leave {100 * self.labelled:.0f} % of labelled items")
        first = ", ".join(told[:-1]) + " and " if told[1:] else ""
        return f"adapted to {first}{told[-1]}" if told else ""


@dataclass(frozen=True)
class Rehearsed:
    """The last step on the labelled set, both halves together."""

    items: int
    evaluations: int
    accuracy_before: float
    accuracy_after: float
    fixed: int
    broken: int
    dispersion: float = 1.0
    """How much more these vary than if each item was on its own."""
    trust: Trust | None = None
    """What all steps so far say of beliefs, where these are dependent."""
    ratio: float | None = None
    """The cost ratio that keeps what the rule promises."""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {name: value for name, value in vars(self).items() if name != "trust"}

    def net(self, items: int) -> Estimate:
        """Corrections less new errors that so many items can expect."""
        return forecast(
            self.fixed,
            self.broken,
            labelled=self.items,
            items=items,
            dispersion=self.dispersion,
        )

    def __str__(self) -> str:
        return (
            f"on {self.items:,} labelled items the same would fix {self.fixed} and break "
            f"{self.broken}: accuracy {100 * self.accuracy_before:.1f} % → "
            f"{100 * self.accuracy_after:.1f} %"
            + (f"; a cost ratio of {self.ratio:g} keeps the promise" if self.ratio else "")
        )


@dataclass(frozen=True)
class Target:
    """The items a step is about to be made on."""

    items: int
    chosen_by: Callable[[], Dependence]
    """What they are believed by when they are chosen."""
    believed_by: Callable[[], Dependence]
    """What they will be believed by when it is decided, with the calibrator of the step."""
