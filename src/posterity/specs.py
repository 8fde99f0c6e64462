"""The small language in which families are named: ``name[:value][,key=value…][+modifier…]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

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
            return float(text)
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


def read_seed(given: object, name: str) -> int:
    """A seed: a whole number from 0 to 2³² − 1, as a number or as text."""
    text = str(given) if isinstance(given, str) or type(given) is int else ""
    if not (text.isascii() and text.isdecimal() and int(text) <= MOST_SEED):
        raise InvalidParameter.of(name, f"a whole number from 0 to {MOST_SEED}", given)
    return int(text)


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
    # As the decimal it is: 0.7% is 0.007, and not the nearest to 0.7 divided by 100.
    return float(Fraction(stripped[:-1]) / 100) if stripped.endswith("%") else float(stripped)


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
