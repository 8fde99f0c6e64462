"""Progress of calls that take long: one line on stderr, where somebody is looking."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from posterity.errors import InvalidParameter

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""
ShowProgress = Progress | bool | None
"""None: a line where somebody is looking (a terminal, a notebook); True: a line; False: none."""

PATIENCE = 1.0
"""Seconds before a line is shown."""
EVERY = 0.1
"""Seconds between two of them."""
WIDTH = 30


@contextmanager
def progress_line(progress: ShowProgress, what: str, unit: str) -> Iterator[Progress | None]:
    """What a long call reports to; the line is gone when it ends."""
    if callable(progress):
        yield progress
    elif progress is True or (progress is None and _somebody_looks()):
        line = ProgressLine(what, unit, sys.stderr)
        try:
            yield line
        finally:
            line.clear()
    elif progress is None or progress is False:
        yield None
    else:
        raise InvalidParameter.of("progress", "None, True, False or a callable", progress)


def _somebody_looks() -> bool:
    """In a terminal, or in a notebook, which is known by its kernel."""
    interactive = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = interactive() if interactive is not None else None
    return hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty())


class ProgressLine:
    """A bar with counts, written over itself."""

    def __init__(self, what: str, unit: str, stream: TextIO) -> None:
        self._what, self._unit, self._stream = what, unit, stream
        self._next = time.monotonic() + PATIENCE
        self._first: tuple[float, int] | None = None
        """When something was first done, and how much."""
        self._shown = 0
        """How long the line is that is there now."""
        utf = "utf" in (getattr(stream, "encoding", None) or "").lower()
        self._full, self._rest = ("━", "─") if utf else ("#", "-")

    def __call__(self, done: int, total: int) -> None:
        """Show it, unless it was shown just now."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        if now < self._next:
            return
        self._next = now + EVERY
        filled = WIDTH * done // max(1, total)
        bar = self._full * filled + self._rest * (WIDTH - filled)
        told = f"{self._what} {bar}  {done:,}/{total:,} {self._unit}{self._speed(now, done, total)}"
        self._write(told[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        """Leave nothing behind."""
        if self._shown:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _speed(self, now: float, done: int, total: int) -> str:
        """How many a second, and how long the rest takes, since it was first called."""
        begun, before = self._first or (now, done)
        if done <= before or now <= begun:
            return ""
        speed = (done - before) / (now - begun)
        return f"  {speed:,.0f}/s  {_duration((total - done) / speed)} left"

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._shown))
        self._stream.flush()
        self._shown = len(text)


def _duration(seconds: float) -> str:
    """How long something takes, in one unit.

    >>> _duration(41.2), _duration(160), _duration(9000)
    ('41 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
