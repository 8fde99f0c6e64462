"""Places where a process may die, named, so that tests can make it die there.

Every durable boundary calls ``reach``. With ``POSTERITY_FAILPOINT=name`` in the environment (or
``name:3`` for the third time) the process stops there as if its machine had lost power: no
clean-up, no ``finally``. Without it, ``reach`` does nothing.
"""

from __future__ import annotations

import os
from collections import Counter

VARIABLE = "POSTERITY_FAILPOINT"
EXIT_CODE = 137
"""What ``kill -9`` looks like to a parent process."""

NAMES = (
    "file.before",
    "file.written",
    "file.synced",
    "file.renamed",
    "commit.before",
    "commit.made",
    "commit.synced",
)

_reached: Counter[str] = Counter()


def reach(name: str) -> None:
    """Say that a durable boundary was reached."""
    wanted, _, nth = os.environ.get(VARIABLE, "").partition(":")
    if wanted != name:
        return
    _reached[name] += 1
    if _reached[name] == int(nth or 1):
        os._exit(EXIT_CODE)
