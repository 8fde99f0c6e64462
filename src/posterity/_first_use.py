"""Kernels are compiled when a machine first uses them, and kept: who waits may want to know why.

Apart from the kernels, because to ask for it must not load what compiles them.
"""

from __future__ import annotations

from collections.abc import Callable

_tell: list[Callable[[], None]] = []


def when_compiling(tell: Callable[[], None]) -> None:
    """Have this called once, when there is something to compile."""
    _tell[:] = [tell]


def compiling() -> None:
    """Said by whatever is about to compile."""
    while _tell:
        _tell.pop()()
