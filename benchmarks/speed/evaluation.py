"""Evaluation: what a model's look at an item costs, beside all of the bookkeeping."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.speed.timing import Timing, figure, table, timed
from benchmarks.store import CLASSES, write_inputs
from posterity.cli.demo.detectors import available
from posterity.cli.demo.texts import read_texts
from posterity.errors import MissingExtra

TEXTS = 3000
REPEATS = 3
ITEMS = 10**6
BILLION = 1e9
PAPER = """The paper's own table (Träuble et al., 2021, appendix; quoted) has its models from
23.1 ms (MobileNet) to 223.0 ms (VGG-19) an image on one processor, 267 to 2582 days for a billion
images, and 57 to 550 times its posterior update of 0.406 ms."""


@dataclass(frozen=True)
class Bookkeeping:
    """Plan and update of a store, votes from a file, a tenth evaluated."""

    seconds: list[float]
    """Of plan and update together, one number a repetition."""
    items: int
    evaluations: int

    @property
    def stored(self) -> Timing:
        """Per item of the store."""
        return Timing([seconds / self.items for seconds in self.seconds])

    @property
    def evaluated(self) -> Timing:
        """Per item evaluated."""
        return Timing([seconds / self.evaluations for seconds in self.seconds])


def bookkeeping() -> Bookkeeping:
    """A store's second model: every repetition in a process and a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="posterity-bench-"))
    told: list[dict[str, Any]] = []
    try:
        write_inputs(folder, ITEMS)
        for _ in range(REPEATS):
            command = [sys.executable, "-m", "benchmarks.store", "--measure", "updates"]
            command += ["--folder", str(folder)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            told.append(json.loads(done.stdout))
            shutil.rmtree(folder / "store")
    finally:
        shutil.rmtree(folder)
    seconds = [one["stages"]["plan 10 %"] + one["stages"]["update 10 %"] for one in told]
    return Bookkeeping(seconds, told[0]["items"], told[0]["evaluations"])


def detectors() -> Iterator[tuple[str, Timing]]:
    """The demo's detectors on its texts, one call for all of them."""
    try:
        texts = read_texts()
    except MissingExtra:
        return
    rows = np.random.default_rng(0).permutation(len(texts))[:TEXTS]
    chosen = [texts.text[row] for row in rows]
    for detector in available()[0]:
        yield (
            detector.name,
            timed(lambda detector=detector: detector(chosen), len(chosen), repeats=REPEATS),  # type: ignore[misc]
        )


def report(kept: Bookkeeping, measured: list[tuple[str, Timing]]) -> str:
    """The measurements as Markdown."""
    ours = kept.evaluated
    rows = table(
        [
            *("model", "evaluation, an item", "times ours, evaluated", "times ours, stored"),
            "a billion items, days",
        ],
        (
            [
                name,
                timing,
                timing / ours,
                timing / kept.stored,
                figure(timing.median * BILLION / 86400),
            ]
            for name, timing in measured
        ),
        left=1,
    )
    hours = kept.stored.median * BILLION / 3600
    none = "The demo's detectors are not installed here; their times were not measured."
    return f"""Bookkeeping is all of plan and update of a store of {kept.items:,} items and
{CLASSES} classes, votes of {kept.evaluations:,} items read from a file: score, choose, fold,
decide, commit and publish all labels. It takes {figure(median(kept.seconds))} s:
**{kept.stored} for each stored item**, {ours} for each evaluated one (median of {REPEATS}).
At that rate the bookkeeping of a billion items would take {figure(hours)} hours (extrapolated).
The detectors are the demo's, on {TEXTS:,} of its texts.

{rows if measured else none}

*Times ours*: one evaluation against the bookkeeping of one evaluated item, and of one stored item.
The last column is what evaluating everything would take, extrapolated as the paper does it. These
detectors are small and quick.

{PAPER}"""
