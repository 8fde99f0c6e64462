"""The small language in which families are named: ``name[:value][,key=value…][+modifier…]``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from posterity.errors import InvalidParameter


@dataclass(frozen=True)
class Spec:
    """A parsed name such as ``cost-ratio:10,neutral=1``.

    >>> Spec.parse("cost-ratio:10,neutral=1", "rule")
    Spec(name='cost-ratio', value='10', options={'neutral': '1'}, modifiers=())
    >>> Spec.parse("replace", "rule")
    Spec(name='replace', value=None, options={}, modifiers=())
    """

    name: str
    value: str | None
    options: dict[str, str]
    modifiers: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, family: str) -> Spec:
        """Read a member of a family as a user writes it."""
        # A modifier begins with a letter, so that 1e+06 stays a number.
        head, *modifiers = re.split(r"\+(?=[A-Za-z])", text.strip())
        name, colon, rest = head.partition(":")
        value: str | None = None
        options: dict[str, str] = {}
        for part in rest.split(",") if colon else []:
            key, equals, given = part.partition("=")
            if equals and key.strip() in options:
                raise InvalidParameter(f"The {family} {text!r} gives '{key.strip()}' twice.")
            if equals:
                options[key.strip()] = given.strip()
            elif value is None:
                value = part.strip()
            else:
                raise InvalidParameter(f"The {family} {text!r} has two values.")
        return cls(name.strip(), value, options, tuple(modifiers))

    def number(self, family: str, text: str, allowed: str) -> float:
        """``text`` as a number, or the error that names the family and what it allows."""
        try:
            return read_number(text)
        except ValueError:
            raise InvalidParameter.of(f"{family} {self.name}", allowed, text) from None

    def refuse_extras(
        self,
        family: str,
        *,
        value: bool = False,
        options: tuple[str, ...] = (),
        modifiers: bool = False,
    ) -> None:
        """Refuse whatever the named member does not take, so that no option is ignored quietly."""
        if self.modifiers and not modifiers:
            raise InvalidParameter(
                f"The {family} {self.name!r} takes no modifier; got '+{self.modifiers[0]}'."
            )
        if self.value is not None and not value:
            raise InvalidParameter(
                f"The {family} {self.name!r} takes no value; got {self.value!r}."
            )
        for key in self.options:
            if key not in options:
                takes = f"takes only {', '.join(options)}" if options else "takes no options"
                raise InvalidParameter(f"The {family} {self.name!r} {takes}; got {key!r}.")


MOST_SEED = 2**32 - 1
"""The largest seed every generator in use accepts."""
LARGEST = 10**18
"""No count and no amount of money is larger; sums and products of them stay finite."""
LONGEST = 64
"""Characters of a number."""
_NUMBER = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?|nan|inf(inity)?)", re.IGNORECASE
)
_WHOLE = re.compile(r"[+-]?[0-9]+")


def read_number(text: str) -> float:
    """A number; a ``ValueError`` if it is none, or too long to be one.

    Checked before it is parsed: the exact value of ``1e30000000`` takes minutes and gigabytes.
    """
    stripped = text.strip()
    if len(stripped) > LONGEST or not _NUMBER.fullmatch(stripped):
        raise ValueError(f"{text[:LONGEST]!r} is not a number")
    return float(stripped)


def read_whole(text: str) -> int:
    """A whole number; a ``ValueError`` if it is none, or too long to be one."""
    stripped = text.strip()
    if len(stripped) > LONGEST or not _WHOLE.fullmatch(stripped):
        raise ValueError(f"{text[:LONGEST]!r} is not a whole number")
    return int(stripped)


def read_seed(given: object, name: str) -> int:
    """A seed: a whole number from 0 to 2³² − 1, as a number or as text."""
    seed: object = given
    if isinstance(given, str) and len(given) <= LONGEST and given.isascii() and given.isdecimal():
        seed = int(given)
    if isinstance(seed, str):
        raise InvalidParameter.of(name, f"a whole number from 0 to {MOST_SEED}", given)
    return whole_number(seed, name, most=MOST_SEED)


def is_whole(given: object) -> bool:
    """Whether something is a whole number, of Python or NumPy; True is none."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def whole_number(given: object, name: str, *, least: int = 0, most: int = LARGEST) -> int:
    """A parameter that counts something, as Python or NumPy has whole numbers; True is none.

    >>> whole_number(7, "batch", least=1)
    7
    """
    number = None
    if isinstance(given, Integral) and is_whole(given):
        number = int(given)
        if least <= number <= most:
            return number
    bounded = most < LARGEST or (number is not None and number > most)
    upto = f"from {least} to {most}" if bounded else f"of at least {least}"
    raise InvalidParameter.of(name, f"a whole number {upto}", given)


def real_number(
    given: Any, name: str, *, least: float = 0, above: bool = False, most: float = LARGEST
) -> float:
    """A parameter that measures something: finite, and neither too small nor too large.

    ``above``: more than ``least``.

    >>> real_number(0.5, "cost")
    0.5
    """
    number = math.nan
    if isinstance(given, Real) and not isinstance(given, bool):
        try:
            number = float(given)
        except OverflowError:  # a whole number beyond what a float holds
            number = math.inf if given > 0 else -math.inf  # type: ignore[operator]
        if least <= number <= most and not (above and number == least):
            return number
    allowed = f"a finite number {'above' if above else '≥'} {least:g}"
    if most < LARGEST or number > most:
        allowed += f" and at most {most:g}"
    raise InvalidParameter.of(name, allowed, given)


def plain_number(value: float) -> str:
    """A number as short as it can be written without changing it.

    >>> plain_number(10.0), plain_number(1234.5678)
    ('10', '1234.5678')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def plain_share(value: float) -> str:
    """A share as a percentage, unless that would change it.

    >>> plain_share(0.15), plain_share(0.002)
    ('15%', '0.2%')
    """
    percentage = f"{value * 100:g}%"
    return percentage if read_share(percentage) == value else repr(value)


def read_share(text: str) -> float:
    """A share as a number or as a percentage; a ``ValueError`` if it is neither."""
    stripped = text.strip()
    number = read_number(stripped.removesuffix("%"))
    if not stripped.endswith("%") or not math.isfinite(number):
        return number
    # As the decimal it is: 0.7% is 0.007, and not the nearest to 0.7 divided by 100.
    return float(Fraction(stripped[:-1].strip()) / 100)


def split_list(text: str) -> list[str]:
    """Split a comma-separated list of specs, keeping ``key=value`` with the spec before it.

    >>> split_list("max-belief,cost-ratio:10,neutral=1,replace")
    ['max-belief', 'cost-ratio:10,neutral=1', 'replace']
    """
    items: list[str] = []
    for part in text.split(","):
        own = part.strip().startswith("of.") or ":" not in part  # a name may hold a colon
        if "=" in part and own and items:
            items[-1] += "," + part.strip()
        elif part.strip():
            items.append(part.strip())
    return items
