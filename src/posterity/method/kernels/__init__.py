"""Compiled kernels: Numba lives only here.

Kernels get bare arrays and fill others; they never validate and never raise. All are compiled by
the two policies of ``kernels.compiler``, and have a slow twin in ``tests/naive.py``.
"""

from __future__ import annotations

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


_tell: list[Callable[[], None]] = []


def when_compiling(tell: Callable[[], None]) -> None:
    """Have this called once, when there is something to compile."""
    _tell[:] = [tell]


def compiling() -> None:
    """Said by whatever is about to compile."""
    while _tell:
        _tell.pop()()
