"""Timing: seconds per item over several repetitions, and where they were measured."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numba
import numpy as np

REPEATS = 5
UNITS = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))


@dataclass(frozen=True)
class Timing:
    """Seconds per item, one number a repetition."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The middle repetition."""
        return median(self.seconds)

    def __str__(self) -> str:
        scale, unit = next(
            ((scale, unit) for below, scale, unit in UNITS if self.median < below), (1.0, "s")
        )
        low, high = min(self.seconds) * scale, max(self.seconds) * scale
        middle = f"{figure(self.median * scale)} {unit}"
        return middle if len(self.seconds) == 1 else f"{middle} ({figure(low)}–{figure(high)})"

    def __truediv__(self, other: Timing) -> str:
        """How many times as long as another, median against median."""
        return figure(self.median / other.median)


def figure(number: float) -> str:
    """Three digits, and none of them an exponent.

    >>> [figure(number) for number in (0.01234, 12.34, 1234.5)]
    ['0.0123', '12.3', '1,234']
    """
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def timed(
    work: Callable[[], object],
    items: int,
    *,
    repeats: int = REPEATS,
    before: Callable[[], object] = lambda: None,
    warm: bool = True,
) -> Timing:
    """Seconds per item, after one unmeasured round; ``before`` is never measured."""
    seconds = []
    for repeat in range(-1 if warm else 0, repeats):
        before()
        started = time.perf_counter()
        work()
        if repeat >= 0:
            seconds.append((time.perf_counter() - started) / items)
    return Timing(seconds)


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Kernels use so many threads meanwhile."""
    kept = os.environ.get("POSTERITY_THREADS")
    os.environ["POSTERITY_THREADS"] = str(number)
    try:
        yield
    finally:
        if kept is None:
            del os.environ["POSTERITY_THREADS"]
        else:
            os.environ["POSTERITY_THREADS"] = kept


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 0) -> str:
    """A Markdown table; the first ``left`` columns hold words, the others figures."""
    rule = ["---" if at < left else "---:" for at in range(len(heads))]
    lines = [heads, rule, *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def machine() -> str:
    """What this ran on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    name = model.group(1) if model else platform.processor()
    cores, memory = len(os.sched_getaffinity(0)), _kibibytes("/proc/meminfo", "MemTotal") / 2**20
    return (
        f"{name}, {cores} cores, {memory:.0f} GiB; Python {platform.python_version()}, "
        f"NumPy {np.__version__}, Numba {numba.__version__}"
    )


def peak_memory() -> float:
    """GiB this process has held at most."""
    # Not getrusage: a process started by a large one inherits the large one's peak there.
    return _kibibytes("/proc/self/status", "VmHWM") / 2**20


def free_memory() -> float:
    """GiB that could be had."""
    return _kibibytes("/proc/meminfo", "MemAvailable") / 2**20


def _kibibytes(file: str, name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", Path(file).read_text(encoding="utf-8"))
    return int(found.group(1)) if found else 0
