"""Compiled kernels: Numba lives only here.

Kernels get bare arrays and fill others; they never validate and never raise. All are compiled by
the two policies of ``kernels.compiler``, and have a slow twin in ``tests/naive.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

_MODULES = (
    *("adapt", "compiler", "dependent", "fit", "fold", "hashes"),
    *("patterns", "plain_entropy", "sets", "soft_votes", "vote_value"),
)


def __getattr__(name: str) -> Any:
    """Numba takes half a second to import: not before a kernel is needed."""
    if name not in _MODULES:
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")


log = logging.getLogger(__name__)

_tell: list[Callable[[], None]] = [
    lambda: log.info("Compiling kernels, once on this machine; this takes up to a minute")
]


def when_compiling(tell: Callable[[], None]) -> None:
    """Have this called, too, when there is something to compile; once."""
    _tell.append(tell)


def compiling() -> None:
    """Said by whatever is about to compile."""
    while _tell:
        _tell.pop()()
