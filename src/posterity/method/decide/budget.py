"""Budgets: how many evaluations a step may spend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from posterity.errors import InvalidParameter
from posterity.method.data.arrays import Floats
from posterity.method.data.spec import (
    LARGEST,
    Spec,
    plain_number,
    plain_share,
    read_number,
    read_share,
    read_whole,
)

_ALLOWED = (
    "a count ≥ 0 (100), a fraction from 0 to 1 (0.1) or a percentage from 0% to 100% ('10%'); or "
    "one over time, total:AMOUNT[,horizon=STEPS][,price=P] or price:P"
)


@dataclass(frozen=True)
class Budget:
    """How many evaluations a step may spend: a count, or a fraction of the eligible items.

    Integers are counts, floats up to 1 are fractions, ``"10%"`` is a percentage; the same in
    Python and on the command line (there ``1`` is one evaluation and ``1.0`` is everything).

    >>> Budget.of("10%").evaluations(25_000)
    2500
    >>> Budget.of(100).evaluations(60)
    60
    >>> print(Budget.of(0.15))
    15%
    """

    count: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        counted = type(self.count) is int and 0 <= self.count <= LARGEST and self.fraction is None
        shared = isinstance(self.fraction, float) and 0 <= self.fraction <= 1 and self.count is None
        if not (counted or shared):
            given = self.count if self.fraction is None else self.fraction
            raise InvalidParameter.of("budget", _ALLOWED, given, hint="Read it with Budget.of.")

    @classmethod
    def of(cls, given: Budget | float | str) -> Budget:
        """Read a budget as a user writes it."""
        if isinstance(given, Budget):
            return given
        amount: float | int | str = given
        if isinstance(given, str):
            amount = _read(given)
        is_count = isinstance(amount, Integral) and not isinstance(amount, bool)
        if is_count and 0 <= amount <= LARGEST:  # type: ignore[operator]  # it is a number
            return cls(count=int(amount))
        is_fraction = isinstance(amount, Real) and not isinstance(amount, (Integral, bool))
        if is_fraction and 0 <= float(amount) <= 1:
            return cls(fraction=float(amount))
        raise InvalidParameter.of("budget", _ALLOWED, given)

    def evaluations(self, eligible: int, unlabelled: int = 0) -> int:
        """B = floor(f·N + ½) for a fraction f of N eligible items; never more than N.

        ``unlabelled``: items without a label, which come first. All of them come on top of a
        fraction, which is one of the other items; a count limits both together.

        >>> Budget.of("29%").evaluations(50)    # 14.5 rounds up, although 0.29 * 50 < 14.5
        15
        >>> Budget.of("10%").evaluations(50, 20), Budget.of(15).evaluations(50, 20)
        (25, 15)
        """
        if self.fraction is not None:
            # f as the decimal its user wrote, not as the nearest binary number.
            written = Fraction(repr(self.fraction))
            share = math.floor(written * eligible + Fraction(1, 2))
            return unlabelled + min(eligible, share)
        return min(unlabelled + eligible, self.count or 0)

    def share(self, items: int) -> float:
        """The budget as a fraction of ``items``."""
        if self.fraction is not None:
            return self.fraction
        return (self.count or 0) / items

    def __str__(self) -> str:
        if self.fraction is None:
            return str(self.count)
        return plain_share(self.fraction)


FULL = Budget(fraction=1.0)
"""Every eligible item."""


def _read(text: str) -> float | int | str:
    try:
        return read_whole(text)
    except ValueError:
        pass
    try:
        return read_share(text)
    except ValueError:
        return text


SHARES: Floats = np.array(
    [
        *(0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3),
        *(0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    ]
)
"""The shares of the eligible items an outlook is told for: closer where less is looked at."""
OPEN = 16
"""Steps that are reckoned with where nobody knows how many will come."""
MOST, LEAST = 3.0, 2 / 3
"""How much of its even part a step may have at most, and has at least."""
SLACK = 1e-6
"""Of an evaluation: what is left is a sum of decimals that no binary number is equal to."""
_ALLOWED_OVER_TIME = "total:AMOUNT or total:SHARE%, with horizon=STEPS and price=P; or price:P"


@dataclass(frozen=True)
class Spending:
    """What steps may spend together (``amount`` or ``share``), or at what ``price``.

    ``amount`` is in what evaluations cost: money where models say what one costs, else
    evaluations. ``share`` is that of the items, and may be more than all of them. ``horizon``: how
    many steps it is for. ``price``: what a net correction is worth; nothing is evaluated that
    brings less than it costs.

    >>> print(Spending.of("total:1.6e5, horizon=16"), Spending.of("price:20"))
    total:160000,horizon=16 price:20
    >>> print(Spending.of("total:160%,price=20"))
    total:160%,price=20
    """

    amount: float | None = None
    share: float | None = None
    horizon: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.amount, self.share) if limit is not None]
        numbers = [*limits, *([] if self.price is None else [self.price])]
        if (
            len(limits) > 1
            or not numbers
            or not all(type(number) in (int, float) and 0 < number <= LARGEST for number in numbers)
            or (self.horizon is not None and (type(self.horizon) is not int or not limits))
            or (self.horizon is not None and not 1 <= self.horizon <= LARGEST)
        ):
            raise InvalidParameter.of("budget over time", _ALLOWED_OVER_TIME, dict(vars(self)))

    @classmethod
    def of(cls, text: str) -> Spending:
        """Read one as a user writes it."""
        spec = Spec.parse(text, "budget")
        spec.refuse_extras(
            "budget", value=True, options=("horizon", "price") if spec.name == "total" else ()
        )
        given: dict[str, float | int] = {}
        try:
            if spec.name == "price":
                given["price"] = read_number(spec.value or "")
            elif (spec.value or "").endswith("%"):
                given["share"] = read_share(spec.value or "")
            else:
                given["amount"] = read_number(spec.value or "")
            if "horizon" in spec.options:
                given["horizon"] = read_whole(spec.options["horizon"])
            if "price" in spec.options:
                given["price"] = read_number(spec.options["price"])
            return cls(**given)  # type: ignore[arg-type]  # each is of its own kind
        except (ValueError, InvalidParameter):
            raise InvalidParameter.of("budget", _ALLOWED_OVER_TIME, text) from None

    def total(self, items: int) -> float | None:
        """What all steps may spend, with so many items; None: no limit."""
        return self.amount if self.share is None else self.share * items

    def steps_left(self, made: int) -> int:
        """The next step and those after it, when so many were made."""
        return max(1, OPEN if self.horizon is None else self.horizon - made)

    def __str__(self) -> str:
        price = None if self.price is None else plain_number(self.price)
        if self.amount is None and self.share is None:
            return f"price:{price}"
        limit = plain_number(self.amount or 0)
        if self.share is not None:
            # As the decimal it is: without its sign it would be read as an amount.
            limit = f"{Decimal(repr(self.share)) * 100:f}%"
            limit = f"{limit[:-1].rstrip('0').rstrip('.')}%" if "." in limit else limit
        horizon = "" if self.horizon is None else f",horizon={self.horizon}"
        return f"total:{limit}{horizon}" + ("" if price is None else f",price={price}")


def read_budget(given: Budget | Spending | float | str) -> Budget | Spending:
    """A budget as a user writes it: of a step, or over time."""
    if isinstance(given, Spending):
        return given
    if isinstance(given, str) and given.strip().startswith(("total:", "price:")):
        return Spending.of(given)
    return Budget.of(given)


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a step would bring, by the share of the eligible items it looks at."""

    gains: Floats
    """Net corrections for each eligible item, at ``SHARES``."""

    @classmethod
    def of(cls, places: Floats, gains: Floats) -> Outlook:
        """From labelled items: where each comes in the order of choice (0 to 1), and its gain."""
        order = np.argsort(places, kind="stable")
        reached = np.searchsorted(places[order], SHARES, side="right")
        sums = np.concatenate([[0.0], np.cumsum(gains[order])])
        return cls(sums[reached] / max(1, len(gains)))

    @property
    def slopes(self) -> Floats:
        """Of the least concave curve above the gains: what one more evaluation brings.

        Gains on a labelled set go up and down by chance; that the best come first is what a
        selector is for.
        """
        hull = [0]
        for at in range(1, len(SHARES)):
            while len(hull) > 1 and self._slope(hull[-2], hull[-1]) <= self._slope(hull[-2], at):
                hull.pop()
            hull.append(at)
        curve = np.interp(SHARES, SHARES[hull], self.gains[hull])
        return np.diff(curve) / np.diff(SHARES)

    def _slope(self, left: int, right: int) -> float:
        return float((self.gains[right] - self.gains[left]) / (SHARES[right] - SHARES[left]))

    @staticmethod
    def mean(outlooks: Sequence[Outlook]) -> Outlook:
        """What steps bring in the mean."""
        return Outlook(np.mean([outlook.gains for outlook in outlooks], axis=0))


@dataclass(frozen=True, eq=False)
class Account:
    """Where spending over time stands before a step, and what the step would bring."""

    left: float | None
    """What is left for this step and all later ones; None: no limit."""
    steps: int
    """This step and those to come."""
    now: Outlook | None
    """None: it tries again what has failed, and is given what that takes."""
    past: Sequence[Outlook] = ()
    price: float | None = None
    """What a net correction is worth."""
    unit: float = 1.0
    """What an evaluation costs."""
    later: float = 1.0
    """What one is expected to cost in later steps."""

    def to_dict(self) -> dict[str, Any]:
        """As plans and headers keep it."""
        kept = {name: getattr(self, name) for name in ("left", "steps", "unit", "later")}
        return kept | {"outlook": None if self.now is None else self.now.gains.tolist()}

    def evaluations(self, eligible: int, unlabelled: int = 0) -> int:
        """How many of the eligible items the step should look at.

        Those without a label come first, as far as what is left pays for them; what they leave is
        for the others.

        What is left is given to the best evaluations first, in this step and in those to come,
        which are expected to be like this one and like those so far, in equal parts; but every
        step has at least ``LEAST`` of its even part, and at most ``MOST`` times that: outlooks are
        about one step, and rehearsed on few items.
        """
        if self.now is None:
            return eligible + unlabelled
        if unlabelled:
            first = min(unlabelled, self._affordable)
            left = None if self.left is None else max(0.0, self.left - first * self.unit)
            return int(first) + replace(self, left=left).evaluations(eligible)
        widths = np.diff(SHARES) * eligible
        brings = self.now.slopes
        worth = brings > 0 if self.price is None else brings * self.price >= self.unit
        if self.left is None or not self.unit:
            return round(float(widths[worth].sum()))
        expected = Outlook.mean([Outlook.mean([*self.past, self.now]), self.now])
        own, coming = brings / self.unit, expected.slopes / (self.later or self.unit)
        later = widths * self.later * (self.steps - 1)
        spent = 0.0
        for value in np.unique(own[worth])[::-1]:
            ours = float(widths[worth & (own == value)].sum()) * self.unit
            equal = float(later[coming == value].sum())
            room = self.left - spent - float(later[coming > value].sum())
            if room <= 0:
                break
            spent += min(ours, room * ours / (ours + equal))  # of equal ones each has its part
        even = self.left / self.steps
        spent = min(max(spent, even * LEAST), even * MOST)
        if self.price is not None:
            spent = min(spent, float(widths[worth].sum()) * self.unit)
        # One at least, or a small budget for many steps would never begin.
        wanted = max(round(spent / self.unit), spent > 0)
        return max(0, int(min(eligible, self._affordable, wanted)))

    @property
    def _affordable(self) -> float:
        """How many evaluations what is left pays for."""
        if self.left is None or not self.unit:
            return math.inf
        return math.floor(min(LARGEST, self.left / self.unit + SLACK))
