"""Likeness: whether a target looks like the labelled set, as far as votes can tell.

The labelled items went through the same steps. If the target is like them, beliefs in its labels
are as high; new votes agree with a label believed as much just as often; and a model that looks at
everything names the same classes. Where they do not, what was learnt on the labelled set says less
about the target than the intervals have it.

Which items a step chooses depends on what was learnt, and that is not quite the same for both. So
agreement is compared between items that were believed equally, classes only where all items were
looked at, and how much two like sets differ is measured on the two halves of the labelled set, each
of which goes by what was learnt on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np

from posterity._arrays import Codes, Counts, Floats
from posterity.expectations import Sums
from posterity.votes import MISSING

EDGES = np.array([0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 0.99])
"""Between these, beliefs count as equal."""
CLEAR = 5.0
"""Standard errors beyond which a difference is no accident, however many steps are looked at."""
AGREEMENT, BELIEF, CLASSES = "agreement", "belief", "classes"
MATTERS = {AGREEMENT: 0.03, BELIEF: 0.02, CLASSES: 0.1}
"""Smaller differences do little harm, however sure one is of them."""


ALL = 0.99
"""The share of items that passes for all of them."""
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Seen:
    """What a step's votes look like."""

    compared: Counts = field(default_factory=lambda: np.zeros(len(EDGES) + 1, dtype=np.int64))
    """Items that had a label before, by the belief in it."""
    agreed: Counts = field(default_factory=lambda: np.zeros(len(EDGES) + 1, dtype=np.int64))
    """Votes for that label."""
    classes: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """How many votes each class has."""
    held: Sums = field(default_factory=Sums)
    """The beliefs in the labels of all items after the step."""

    @classmethod
    def of(cls, before: Codes, belief: Floats, votes: Codes, classes: int) -> Seen:
        """From the labels before and the beliefs in them then, and the votes on these items."""
        had = before != MISSING
        stratum = np.searchsorted(EDGES, belief[had])
        size = len(EDGES) + 1
        return cls(
            np.bincount(stratum, minlength=size),
            np.bincount(stratum[(before == votes)[had]], minlength=size),
            np.bincount(votes, minlength=classes),
        )

    def __add__(self, other: Seen) -> Seen:
        size = max(len(self.classes), len(other.classes))
        wide = [np.pad(each.classes, (0, size - len(each.classes))) for each in (self, other)]
        return Seen(
            self.compared + other.compared,
            self.agreed + other.agreed,
            wide[0] + wide[1],
            self.held + other.held,
        )

    def with_held(self, held: Sums) -> Seen:
        """The same, when beliefs in all labels are known."""
        return replace(self, held=held)

    @property
    def everything(self) -> bool:
        """Whether there is a vote on all items, or nearly."""
        return int(self.classes.sum()) >= ALL * self.held.items


@dataclass(frozen=True)
class Unlike:
    """A figure in which the target differs clearly from the labelled set."""

    figure: str
    target: float
    labelled: float
    errors: float
    """The difference in standard errors."""

    @classmethod
    def of(cls, figure: str, target: float, labelled: float, error: float) -> Unlike:
        """From both, and the standard error of their difference."""
        return cls(figure, float(target), float(labelled), float((target - labelled) / error))

    def matters(self, dispersion: float = 1.0) -> bool:
        """Whether it is both clear and large."""
        large = abs(self.target - self.labelled) > MATTERS[self.figure]
        return large and abs(self.errors) > CLEAR * sqrt(dispersion)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)


def differences(target: Seen, labelled: Seen) -> list[Unlike]:
    """In each figure that can be compared, whether it means anything or not."""
    found = [_agreement(target, labelled), _belief(target.held, labelled.held)]
    if target.everything and labelled.everything:
        found.append(_classes(target, labelled))
    return [one for one in found if one is not None]


def dispersions(halves: Sequence[Sequence[Unlike]]) -> dict[str, float]:
    """How much more figures of like sets differ than if each item was on its own.

    ``halves``: the differences between the two halves of the labelled set, step by step. At least
    1, and drawn to it where steps are few.
    """
    errors: dict[str, list[float]] = {figure: [1.0] for figure in MATTERS}
    for step in halves:
        for one in step:
            errors[one.figure].append(one.errors)
    return {figure: max(1.0, float(np.mean(np.square(each)))) for figure, each in errors.items()}


def compare(target: Seen, labelled: Seen, dispersion: Mapping[str, float]) -> list[Unlike]:
    """In what a step's target differs from the labelled set, clearly and by enough to matter."""
    return [one for one in differences(target, labelled) if one.matters(dispersion[one.figure])]


def _agreement(target: Seen, labelled: Seen) -> Unlike | None:
    """How often votes agree with the label: of the same mix of beliefs on both sides."""
    ours, theirs = target.compared, labelled.compared
    both = (ours > 1) & (theirs > 1)
    if not both.any():
        return None
    ours, theirs = ours[both].astype(np.float64), theirs[both].astype(np.float64)
    share, other = target.agreed[both] / ours, labelled.agreed[both] / theirs
    weight = ours * theirs / (ours + theirs)  # where one side has few, little can be told
    weight /= weight.sum()
    # As if one more had agreed and one not: shares of 0 and 1 are not certain.
    variance = sum(
        (part * count + 1) * ((1 - part) * count + 1) / (count + 2) ** 2 / count
        for part, count in ((share, ours), (other, theirs))
    )
    return Unlike.of(
        AGREEMENT, weight @ share, weight @ other, sqrt(float(weight**2 @ np.asarray(variance)))
    )


def _belief(target: Sums, labelled: Sums) -> Unlike | None:
    """The mean belief in labels."""
    if min(target.items, labelled.items) < 2:
        return None
    means = [one.belief / one.items for one in (target, labelled)]
    spreads = [
        max(0.0, one.squares / one.items - mean**2) / one.items
        for one, mean in zip((target, labelled), means, strict=True)
    ]
    return Unlike.of(BELIEF, means[0], means[1], sqrt(sum(spreads) + TINY))


def _classes(target: Seen, labelled: Seen) -> Unlike | None:
    """The share of votes that would have to name another class; told as that share and none.

    Chance alone makes shares differ, the more so the more classes there are: what it is expected to
    is taken off.
    """
    size = max(len(target.classes), len(labelled.classes))
    ours, theirs = (
        np.pad(each.classes, (0, size - len(each.classes))).astype(np.float64)
        for each in (target, labelled)
    )
    named = ours + theirs > 0
    count, other, freedom = ours.sum(), theirs.sum(), int(named.sum()) - 1
    if min(count, other) < 2 or freedom < 1:
        return None
    apart = sqrt(other / count) * ours[named] - sqrt(count / other) * theirs[named]
    excess = float((apart**2 / (ours + theirs)[named]).sum()) - freedom
    moved = sqrt(max(0.0, excess) * (count + other) / (count * other)) / 2
    errors = excess / sqrt(2 * freedom)
    return Unlike(CLASSES, moved, 0.0, errors)
