"""Numbers of things in sentences for people."""

from __future__ import annotations

_OF_ONE = {"are": "is", "were": "was", "have": "has", "occur": "occurs"}


def counted(number: int, noun: str, verb: str = "") -> str:
    """How many of something, and the verb that goes with so many.

    >>> counted(1, "file"), counted(2500, "file"), counted(0, "class")
    ('1 file', '2,500 files', '0 classes')
    >>> counted(1, "flip", "are"), counted(2, "row", "have")
    ('1 flip is', '2 rows have')
    """
    if number != 1:
        noun += "es" if noun.endswith("s") else "s"
    told = f"{number:,} {noun}"
    return f"{told} {_OF_ONE[verb] if number == 1 else verb}" if verb else told
