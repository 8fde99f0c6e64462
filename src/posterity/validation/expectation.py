"""Expectations: what can be said of accuracy and flips without truth, and how far it holds.

The mean belief in the stored labels is as good as the beliefs are. Labelled items that went through
the same steps have the same faults, and their truth is known: what beliefs miss there is added here
(an estimate by difference). What an item was believed when it had its last vote may be out of date:
beliefs are those of the last fit, as a sample has it (*drift*). The intervals are 90 % intervals
if the target is like the labelled set; that cannot be told from inside, see ``shift``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from posterity._text import Result
from posterity.method.data.arrays import ArrayLike, Floats

NORMAL = 1.6448536
"""Between minus this and this lie 90 % of a normal distribution."""
PULL = 10.0
"""So many flips, just as many as believed, the ratio of true to believed flips is drawn by."""
LEAST_APART = 0.05**2
"""Steps differ at least by so much in that ratio, squared; few of them cannot show how much."""
FEW = 1.0
"""Added to counts that stand for a variance: having seen none does not make it none."""


RARE = 30
"""Labels of a class with fewer labelled items are believed by what few others taught: they are all
right, or all wrong, more often than if each was on its own."""

MOST_MOVED, HALVINGS = 40.0, 60
"""How far log-odds are moved at most, and how often that is halved to find out how far."""
FEWEST = 1e-9
"""Flips believed to be of a kind, below which there are none."""


@dataclass(frozen=True)
class Estimate(Result):
    """A figure with its 90 % interval; None where there is no estimate."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> Estimate:
        """In another unit."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return Estimate(factor * self.value, low, high)


@dataclass(frozen=True)
class _Summed:
    """Beliefs in some labels, summed up."""

    items: int = 0
    belief: float = 0.0
    squares: float = 0.0

    def __add__(self, other: Self) -> Self:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(one + more for one, more in pairs))

    def drifted(self, by: float) -> Self:
        """When each is believed so much more by now, in the mean."""
        return replace(self, belief=self.belief + by * self.items)


@dataclass(frozen=True)
class Sums(_Summed):
    """Beliefs in some labels; nobody knows which are right."""

    @classmethod
    def of(cls, beliefs: ArrayLike) -> Sums:
        """From one belief a label."""
        each = np.asarray(beliefs, dtype=np.float64)
        return cls(len(each), float(each.sum()), float((each**2).sum()))

    @property
    def variance(self) -> float:
        """Of how many are right, if the beliefs are."""
        return max(0.0, self.belief - self.squares)


@dataclass(frozen=True)
class Checked(_Summed):
    """Beliefs in labels whose truth is known, beside how often they came true.

    The squares are those of what beliefs missed, item by item: 1 − p where right, −p where wrong.
    """

    right: int = 0
    together: float = 0.0
    """The squares where what rare classes missed is summed up first; see ``RARE``."""

    @classmethod
    def of(
        cls, right: ArrayLike, beliefs: ArrayLike, labels: NDArray[np.int32] | None = None
    ) -> Checked:
        """From one belief a label, and whether it is right."""
        hit = np.asarray(right, dtype=np.float64)
        each = np.asarray(beliefs, dtype=np.float64)
        missed = hit - each
        squares = together = float((missed**2).sum())
        if labels is not None and len(labels):
            _, own, items = np.unique(labels, return_inverse=True, return_counts=True)
            rare = items < RARE
            together = float((missed[~rare[own]] ** 2).sum())
            together += float((np.bincount(own, missed)[rare] ** 2).sum())
        return cls(len(each), float(each.sum()), squares, int(hit.sum()), together)

    @property
    def missed(self) -> float:
        """By how much an item was right more often than believed, in the mean."""
        return (self.right - self.belief) / max(self.items, 1)


def accuracy(sums: Sums, checked: Checked | None = None) -> Estimate | None:
    """The share of labels that are right: mean belief, and what beliefs miss on labelled items.

    None where there is no label. Without labelled items it is unchecked, and has no interval.

    >>> accuracy(Sums.of([0.9] * 100), Checked.of([True] * 80 + [False] * 20, [0.9] * 100)).value
    0.8
    """
    if not sums.items:
        return None
    believed = sums.belief / sums.items
    if checked is None or checked.items < 2:
        return Estimate(believed)
    squares = max(checked.squares, checked.together)
    spread = max(0.0, squares / checked.items - checked.missed**2)
    # The labelled items are a sample; and so is the target, of items like it.
    variance = (spread + FEW / checked.items) / (checked.items - 1)
    # Rare classes of the target miss together too, as the fit of all labelled items has them.
    variance += max(0.0, checked.together - checked.squares) / checked.items**2
    variance += sums.variance / sums.items**2
    value = _share(believed + checked.missed)
    reach = _quantile(checked.items - 1) * sqrt(variance)
    return Estimate(value, _share(value - reach), _share(value + reach))


def flips(sums: Sums, steps: Sequence[tuple[Checked, Checked]] = ()) -> Estimate:
    """How many flips of a step are of a kind: as many as believed, times what was true of such.

    ``sums``: beliefs that each is; ``steps``: the same of flips of labelled items in two halves,
    step by step up to this one. The share of believed ones that came true is not the same in all
    steps: that of this one is shrunk towards that of all the more, the fewer flips it had and
    the less steps differ. What halves differ by, beyond chance, labelled set and target will
    differ by too.

    >>> half = Checked.of([True] * 15 + [False] * 35, [0.5] * 50)
    >>> round(flips(Sums.of([0.5] * 40), [(half, half)]).value, 1)
    13.1
    """
    if not steps:
        return Estimate(sums.belief)
    told = [one + other for one, other in steps]
    total = sum(told, Checked())
    rate = total.belief + PULL
    ratio = (total.right + PULL) / rate
    apart = sum((step.right - ratio * step.belief) ** 2 - step.squares for step in told)
    between = max(LEAST_APART, apart / (sum(step.belief**2 for step in told) + FEW))
    own, weight = told[-1], 0.0
    if own.belief > FEWEST:
        weight = between / (between + (own.squares + FEW) / own.belief**2)
        ratio += weight * (own.right / own.belief - ratio)
    unsure = (1 - weight) ** 2 * (total.squares + PULL) / rate**2 + (1 - weight) * between
    variance = sums.belief**2 * unsure + ratio * sums.variance
    halves = [
        (one.right - one.belief - other.right + other.belief, one.squares + other.squares)
        for one, other in steps
        if one.items and other.items
    ]
    return _positive(ratio * sums.belief, variance * dispersion(halves), most=sums.items)


def forecast(
    fixed: int, broken: int, *, labelled: int, items: int, dispersion: float = 1.0
) -> Estimate:
    """Net corrections that so many items can expect of a step that was tried on labelled ones.

    ``dispersion``: how much more such counts vary than if each item was on its own.

    >>> forecast(40, 10, labelled=1000, items=5000).value
    150.0
    """
    scale, net = items / max(labelled, 1), fixed - broken
    moved = fixed + broken - net**2 / max(labelled, 1) + FEW
    reach = NORMAL * sqrt(dispersion * moved * (scale**2 + scale))
    return Estimate(net * scale, net * scale - reach, net * scale + reach)


def expect(count: int, *, labelled: int, items: int, dispersion: float = 1.0) -> Estimate:
    """How many flips of a kind so many items can expect, of a step that was tried on labelled ones.

    >>> expect(40, labelled=1000, items=5000).value
    200.0
    """
    scale = items / max(labelled, 1)
    variance = dispersion * (count + FEW) * (scale**2 + scale)
    if not count:  # having seen none does not make it none
        return Estimate(0.0, 0.0, min(float(items), NORMAL * sqrt(variance)))
    return _positive(count * scale, variance, most=items)


def corrected(beliefs: ArrayLike, total: float) -> Floats:
    """Beliefs moved by one factor of their odds, so that they sum up to a total.

    What is nearly certain stays so: as chances of single flips they never leave 0 to 1.

    >>> corrected([0.5, 0.9], 1.0).round(2)
    array([0.25, 0.75])
    """
    each = np.clip(np.asarray(beliefs, dtype=np.float64), FEWEST, 1 - FEWEST)
    if not len(each):
        return each
    odds = np.log(each / (1 - each))
    low, high = -MOST_MOVED, MOST_MOVED
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        more = (1 / (1 + np.exp(-odds - middle))).sum() < total
        low, high = (middle, high) if more else (low, middle)
    moved: Floats = 1 / (1 + np.exp(-odds - (low + high) / 2))
    return moved


def among(whole: Estimate, every: Sums, own: Sums) -> Estimate:
    """How many of some of a step's flips are of a kind, as the estimate of the whole step has it.

    ``every``, ``own``: corrected chances that each is, of all flips there are and of these. What is
    not known of the whole, beyond chance, is not known of a part either.

    >>> step = Sums.of([0.25] * 40)
    >>> round(among(Estimate(10.0, 6.0, 15.0), step, Sums.of([0.25] * 4)).value, 1)
    1.0
    """
    if whole.low is None or whole.high is None:
        return Estimate(own.belief)
    if every.belief <= FEWEST or whole.value <= FEWEST:
        return Estimate(own.belief, own.belief, own.belief)
    variance = ((whole.high - whole.low) / (2 * NORMAL)) ** 2
    by_chance = every.variance * whole.value / every.belief
    unsure = max(0.0, variance - by_chance) / whole.value**2
    return _positive(own.belief, own.belief**2 * unsure + own.variance, most=own.items)


def dispersion(differences: Sequence[tuple[float, float]]) -> float:
    """How much more counts vary than if each item was on its own, as two halves have it.

    ``differences``: by how much a count differs between both halves of the labelled items, and the
    variance of that if each item was on its own, step by step. What is learnt on one half decides
    about the other, so that they differ as labelled set and target do. At least 1, and shrunk
    towards it where steps are few.

    >>> round(dispersion([(30 - 10, 40), (25 - 5, 40)]), 1)
    6.8
    """
    apart = sum(value**2 / (variance + FEW) for value, variance in differences)
    return max(1.0, (apart + FEW) / (len(differences) + FEW))


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share: never outside 0 to 1, and sound for a few items too."""
    share, square = right / total, z * z
    centre = (share + square / (2 * total)) / (1 + square / total)
    half = z * np.sqrt(share * (1 - share) / total + square / (4 * total * total))
    half /= 1 + square / total
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def _positive(value: float, variance: float, *, most: int) -> Estimate:
    """An interval of what lies between nothing and ``most``, as a gamma distribution has it.

    Its quantiles by the cube root, which is close to normal (Wilson and Hilferty).
    """
    value = min(value, float(most))
    if value <= FEWEST or variance <= 0:
        return Estimate(value, value, value)
    shape = value**2 / variance
    centre, reach = 1 - 1 / (9 * shape), NORMAL / (3 * sqrt(shape))
    low, high = (max(0.0, centre + side * reach) ** 3 * value for side in (-1, 1))
    return Estimate(value, min(low, value), min(max(high, value), float(most)))


def _quantile(freedom: int) -> float:
    """Student's, which for few items is wider than the normal one."""
    return NORMAL + (NORMAL**3 + NORMAL) / (4 * freedom)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


LEAST = 20
"""Fewer labelled items than this say nothing."""
