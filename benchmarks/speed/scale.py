"""Scale: the same step on ever more items, streamed in blocks; time and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.speed.history import History, Setting, believe
from benchmarks.speed.timing import Timing, peak_memory, table, timed

SETTING = Setting(1000, 16, 0.1, "diagonal")
SIZES = (10**5, 10**6, 10**7, 10**8)
BLOCK = 2**20
DISTINCT = 3
"""Blocks that are drawn; a longer stream goes through them again and again."""


def stream(items: int) -> dict[str, Any]:
    """What a stream of so many items takes; run in a process of its own."""
    number = min(DISTINCT, -(-items // BLOCK))
    blocks = [History.draw(SETTING, min(BLOCK, items), seed=seed) for seed in range(number)]
    for block in blocks[1:]:
        # One set of models, whichever block is looked at.
        block.confusions[:] = blocks[0].confusions
    blocks[0].step()
    held = peak_memory()

    def work() -> None:
        product, left, at = blocks[0].product(), items, 0
        while left > 0:
            block = blocks[at % number]
            believe(product, block.hard[:left], block.stored[:left])
            left, at = left - BLOCK, at + 1

    repeats = 5 if items <= 10**7 else 3
    timing = timed(work, items, repeats=repeats, warm=items < 10**7)
    votes = sum(block.hard.nbytes + block.stored.nbytes for block in blocks) / 2**30
    peak = peak_memory()
    return {"seconds": timing.seconds, "peak": peak, "grown": peak - held, "votes": votes}


def measure() -> list[tuple[int, dict[str, Any]]]:
    """Each size in a process of its own, so that its peak memory is its own."""
    told = []
    for items in SIZES:
        command = [sys.executable, "-m", "benchmarks.speed", "--stream", str(items)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        told.append((items, json.loads(done.stdout)))
    return told


def report(told: list[tuple[int, dict[str, Any]]]) -> str:
    """The measurements as Markdown."""
    return table(
        ["items", "a step, an item", "in all", "peak memory", "of it votes", "after a block"],
        (
            [
                f"{items:,}",
                Timing(one["seconds"]),
                f"{Timing(one['seconds']).median * items:.2f} s",
                f"{one['peak']:.2f} GiB",
                f"{one['votes']:.2f} GiB",
                f"+{one['grown']:.2f} GiB",
            ]
            for items, one in told
        ),
    )
