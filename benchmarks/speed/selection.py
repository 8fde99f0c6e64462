"""Selection: a tenth of many scores chosen, beside a partition and a sort."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.speed.timing import free_memory, table, timed
from posterity.method.beliefs.plain import ENTROPY_BITS, kept
from posterity.method.decide.selectors import choose

SIZES = (10**6, 10**7, 10**8)
SHARE = 0.1
BYTES = 90
"""An item needs about so many while it is chosen or sorted, all copies counted."""


def measure() -> Iterator[list[object]]:
    """One row a size."""
    for items in SIZES:
        if items * BYTES / 2**30 > free_memory():
            yield [f"{items:,}", *["not measured: too little memory"] * 3, "", ""]
        else:
            yield [f"{items:,}", *_compare(items)]


def _compare(items: int) -> list[object]:
    # As a store keeps entropies: rounded, so that some are equal.
    score = kept(np.random.default_rng(0).exponential(0.5, items), ENTROPY_BITS)
    rows, everyone = np.arange(items), np.ones(items, dtype=np.bool_)
    nobody, wanted = ~everyone, int(items * SHARE)
    rest = items - wanted
    repeats = {10**6: 5, 10**7: 3}.get(items, 1)
    ours, partition, full = (
        timed(work, items, repeats=repeats, warm=items < 10**8)
        for work in (
            lambda: choose(score, rows=rows, eligible=everyone, first=nobody, evaluations=wanted),
            lambda: np.argpartition(score, rest)[rest:],
            lambda: np.argsort(score)[rest:],
        )
    )
    return [ours, partition, full, partition / ours, full / ours]


def report(rows: list[list[object]]) -> str:
    """The measurements as Markdown."""
    heads = ["items", "`choose`", "`argpartition`", "`argsort`", "partition/ours", "sort/ours"]
    return table(heads, rows)
