"""Budgets: how many evaluations a step may spend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real

from posterity.errors import InvalidParameter
from posterity.specs import plain_share, read_share

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
        counted = isinstance(self.count, int) and self.count >= 0 and self.fraction is None
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
        if isinstance(amount, Integral) and not isinstance(amount, bool) and amount >= 0:
            return cls(count=int(amount))
        is_fraction = isinstance(amount, Real) and not isinstance(amount, (Integral, bool))
        if is_fraction and 0 <= float(amount) <= 1:
            return cls(fraction=float(amount))
        raise InvalidParameter.of("budget", _ALLOWED, given)

    def evaluations(self, eligible: int) -> int:
        """B = floor(f·N + ½) for a fraction f of N eligible items; never more than N.

        >>> Budget.of("29%").evaluations(50)    # 14.5 rounds up, although 0.29 * 50 < 14.5
        15
        """
        if self.fraction is not None:
            # f as the decimal its user wrote, not as the nearest binary number.
            written = Fraction(repr(self.fraction))
            return min(eligible, math.floor(written * eligible + Fraction(1, 2)))
        return min(eligible, self.count or 0)

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
    stripped = text.strip()
    try:
        return int(stripped) if stripped.lstrip("+-").isdigit() else read_share(stripped)
    except ValueError:
        return text
