"""Shift: whether a target looks like the labelled set, as far as votes can tell.

The labelled items went through the same steps. If the target is like them, beliefs in its labels
are as high; new votes agree with a label believed as much just as often; and a model that looks at
everything names the same classes. Where they do not, what was learnt on the labelled set says less
about the target than the intervals have it.

Which items a step chooses depends on what was learnt, and that is not quite the same for both. So
agreement is compared as if items had been believed equally, classes only where all items were
looked at, and how much two like sets differ is measured on the two halves of the labelled set, each
of which goes by what was learnt on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np

from posterity._text import Result
from posterity.errors import InvalidData
from posterity.method.adapt.class_shares import drawn
from posterity.method.data.arrays import ArrayLike, Codes, Counts, Floats, Rows
from posterity.method.data.votes import MISSING
from posterity.validation.expectation import Sums

CLEAR, LEANS = 4.0, 2.0
"""Standard errors beyond which the difference of a step is no accident, if that of all steps so far
is in the mean beyond the second. Like sets differ to either side, by what they learn and choose."""
ALONE, MORE = 6.0, 2.0
"""Standard errors beyond which a step is no accident whatever was before, if no step before was
half as far apart: many good steps must not hide a bad one."""
AGREEMENT, BELIEF, CLASSES = "agreement", "belief", "classes"
MATTERS = {AGREEMENT: 0.03, BELIEF: 0.02, CLASSES: 0.1}
"""Smaller differences do little harm, however sure one is of them."""


ALL = 0.99
"""The share of items that passes for all of them."""
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Seen:
    """What a step's votes look like."""

    compared: Floats = field(default_factory=lambda: np.zeros(5))
    """Of items that had a label before, with b the belief in it then and a whether the vote is for
    it: how many, and the sums of b, b², a and a·b."""
    classes: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """How many votes each class has."""
    held: Sums = field(default_factory=Sums)
    """The beliefs in the labels of all items after the step."""

    @classmethod
    def of(cls, before: Codes, belief: Floats, votes: Codes, classes: int) -> Seen:
        """From the labels before and the beliefs in them then, and the votes on these items."""
        had = before != MISSING
        held, agrees = belief[had], (before == votes)[had]
        compared = [len(held), held.sum(), (held**2).sum(), agrees.sum(), held[agrees].sum()]
        return cls(np.array(compared, dtype=np.float64), np.bincount(votes, minlength=classes))

    def __add__(self, other: Seen) -> Seen:
        size = max(len(self.classes), len(other.classes))
        wide = [np.pad(each.classes, (0, size - len(each.classes))) for each in (self, other)]
        return Seen(
            self.compared + other.compared,
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
class Difference(Result):
    """A figure of the target beside that of the labelled set."""

    figure: str
    target: float
    labelled: float
    errors: float
    """How far they are apart, in standard errors."""
    unlike: bool = False
    """Whether that is both clear and large enough to matter."""

    @classmethod
    def of(cls, figure: str, target: float, labelled: float, error: float) -> Difference:
        """From both, and the standard error of their difference."""
        return cls(figure, float(target), float(labelled), float((target - labelled) / error))

    @property
    def apart(self) -> float:
        """By how much."""
        return self.target - self.labelled

    def judged(self, dispersion: float, earlier: Sequence[float]) -> Difference:
        """The same, when it is known how much like sets differ, and what earlier steps said."""
        errors = self.errors / sqrt(dispersion)
        mean = (sum(earlier) + errors) / (len(earlier) + 1)
        leaning = abs(errors) > CLEAR and abs(mean) > LEANS and mean * errors > 0
        usual = max(map(abs, earlier), default=0.0)
        clear = leaning or (abs(errors) > ALONE and abs(errors) > MORE * usual)
        large = abs(self.apart) > MATTERS[self.figure]
        return replace(self, errors=errors, unlike=clear and large)

    def __str__(self) -> str:
        target, labelled = (f"{100 * share:.1f} %" for share in (self.target, self.labelled))
        if self.figure == AGREEMENT:
            return f"votes agree with labels believed as much in {target} of cases, not {labelled}"
        if self.figure == BELIEF:
            return f"the mean belief in labels is {target}, not {labelled}"
        return f"{target} of the votes are for other classes"


def differences(target: Seen, labelled: Seen) -> list[Difference]:
    """In each figure that can be compared, whether it means anything or not."""
    found = [_agreement(target, labelled), _belief(target.held, labelled.held)]
    if target.everything and labelled.everything:
        found.append(_classes(target, labelled))
    return [one for one in found if one is not None]


def dispersions(halves: Sequence[Sequence[Difference]]) -> dict[str, float]:
    """How much more figures of like sets differ than if each item was on its own.

    ``halves``: the differences between the two halves of the labelled set, step by step. At least
    1, and shrunk towards it where steps are few.
    """
    errors: dict[str, list[float]] = {figure: [1.0] for figure in MATTERS}
    for step in halves:
        for one in step:
            errors[one.figure].append(one.errors)
    return {figure: max(1.0, float(np.mean(np.square(each)))) for figure, each in errors.items()}


def compare(
    target: Seen,
    labelled: Seen,
    dispersion: Mapping[str, float],
    earlier: Sequence[Sequence[Difference]] = (),
) -> list[Difference]:
    """How a step's target differs from the labelled set; ``earlier``: how it did before."""
    return [
        one.judged(
            dispersion[one.figure],
            [past.errors for step in earlier for past in step if past.figure == one.figure],
        )
        for one in differences(target, labelled)
    ]


def told(found: Sequence[Difference]) -> str:
    """In what the target is unlike the labelled set."""
    return (
        "the items look unlike the labelled set: "
        f"{'; '.join(str(one) for one in found if one.unlike)}"
    )


def warning(found: Sequence[Difference]) -> str:
    """What is worth telling of them: nothing where the target is like the labelled set."""
    unlike = [one for one in found if one.unlike]
    if not unlike:
        return ""
    sides = {one.apart > 0 for one in unlike if one.figure != CLASSES}
    expected = "off" if len(sides) != 1 else "too low" if sides.pop() else "too high"
    return (
        f"warning: {told(unlike)}. "
        f"Expected figures may be {expected}; label some items like these, and give them with the "
        "next model."
    )


def _agreement(target: Seen, labelled: Seen) -> Difference | None:
    """How often votes agree with the label; the labelled items as if believed like the target's.

    Agreement rises with the belief in the label, by the same slope on both sides.
    """
    spread = along = residual = 0.0
    counts, means, shares = [], [], []
    for side in (target, labelled):
        count, belief, squares, agreed, both = side.compared.tolist()
        if count < 2:
            return None
        spread += squares - belief**2 / count
        along += both - belief * agreed / count
        residual += agreed - agreed**2 / count
        counts.append(count)
        means.append(belief / count)
        shares.append(agreed / count)
    slope = along / spread if spread > TINY else 0.0
    # As if one more had agreed and one not: shares of 0 and 1 are not certain.
    variance = (max(0.0, residual - slope * along) + 1) / (sum(counts) - 2 + 1)
    apart = means[0] - means[1]
    error = variance * (1 / counts[0] + 1 / counts[1] + apart**2 / max(spread, TINY))
    return Difference.of(AGREEMENT, shares[0], shares[1] + slope * apart, sqrt(error))


def _belief(target: Sums, labelled: Sums) -> Difference | None:
    """The mean belief in labels."""
    if min(target.items, labelled.items) < 2:
        return None
    means = [one.belief / one.items for one in (target, labelled)]
    spreads = [
        max(0.0, one.squares / one.items - mean**2) / one.items
        for one, mean in zip((target, labelled), means, strict=True)
    ]
    return Difference.of(BELIEF, means[0], means[1], sqrt(sum(spreads) + TINY))


def _classes(target: Seen, labelled: Seen) -> Difference | None:
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
    return Difference(CLASSES, moved, 0.0, errors)


def weights_of_groups(labelled: Codes | Rows, target: Floats, groups: int) -> Floats:
    """The weight of each labelled item, from its group and how many items of each the target has.

    Shares of groups are shrunk towards those of the labelled set as far as they could be chance. Of
    a group without any labelled item nothing can be said.
    """
    own = np.bincount(labelled, minlength=groups).astype(np.float64)
    usual = own / own.sum()
    counts = np.where(own > 0, target, 0.0)
    shares = drawn(counts, usual)
    weights: Floats = (shares / np.maximum(usual, LEAST_FREQUENT))[labelled]
    return weights


LEAST_FREQUENT = 1e-12
MOST = 10.0
"""No weight counts for more than so many times the mean of all."""


def checked(weights: ArrayLike, name: str = "weights") -> Floats:
    """Weights as numbers; refuses what cannot be weighed by."""
    given = np.asarray(weights)
    if given.ndim != 1 or given.dtype.kind not in "fiu":
        raise InvalidData(f"'{name}' must hold one number an item; got {given.dtype}.")
    each = given.astype(np.float64)
    if not np.isfinite(each).all() or (each < 0).any() or not (each > 0).any():
        wrong = np.flatnonzero(~np.isfinite(each) | (each < 0))
        told = f"{given[wrong[0]]} at item {wrong[0]}" if len(wrong) else "no weight above 0"
        raise InvalidData(
            f"'{name}' must be finite numbers of at least 0, some of them above; got {told}.",
            hint="Give each labelled item how much more frequent such items are in the target.",
        )
    return each


def kept(weights: Floats) -> Rows:
    """The items that are kept, in order: each with a chance in proportion to its weight.

    The highest weight, or what it is clipped to, has chance one. Which ones is settled by adding up
    chances in the order of items, so that items beside each other are thinned evenly. With equal
    weights all are kept.

    >>> kept(np.array([1.0, 1.0, 2.0, 2.0])).tolist()
    [0, 2, 3]
    >>> kept(np.full(4, 0.5)).tolist()
    [0, 1, 2, 3]
    """
    clipped = np.minimum(weights, MOST * weights.mean())
    passed = np.floor(np.cumsum(clipped / clipped.max()) + 0.5)
    return np.flatnonzero(np.diff(passed, prepend=0.0) > 0)
