"""Budgets over time: the same evaluations in all, spread evenly or given where they bring most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow.parquet as pq

from benchmarks.paper.experiments import PAPER_MODELS
from posterity.replay import Recording, Results, run

Row = dict[str, Any]

PER_STEP = ("10%", "30%")
RATIOS = (1, 5, 10)
TRIES = 5
"""Walks to find the price at which as much is spent as evenly, by halving."""


@dataclass(frozen=True)
class Sequence:
    """A recording's models, how its labelled set is taken, and how often."""

    models: list[str] | None
    split: float | str
    seeds: int


SEQUENCES = {
    "imagenet_val": Sequence(PAPER_MODELS, 0.5, 2),
    "cifar10_test": Sequence(None, 0.5, 3),
    "langid": Sequence(None, "is_source", 1),
}


def measure(recordings: Path, name: str) -> Results:
    """All ways to spend, for all cost ratios."""
    sequence, found = SEQUENCES[name], Results()
    recording = Recording.load(recordings / f"{name}.npz")
    if sequence.models is not None:
        recording = recording.pick(sequence.models)
    steps = len(recording.models) - 1

    def replayed(budgets: list[str], ratio: int, seeds: int) -> Results:
        return run(
            recording,
            split=sequence.split,
            seed=1,
            seeds=seeds,
            budgets=budgets,
            prior="uniform",
            rules=f"cost-ratio:{ratio}",
        )

    for ratio in RATIOS:
        for share in PER_STEP:
            total = f"total:{steps * int(share.rstrip('%'))}%"
            budgets = [share, f"{total},horizon={steps}", total]
            found.extend(replayed(budgets, ratio, sequence.seeds))
        even = next(row for row in found.rows if row["budget"] == 0.1 and row["spending"] is None)
        low, high, price = 1.0, 1000.0, 1000.0
        for _ in range(TRIES):
            price = float(f"{math.sqrt(low * high):.3g}")
            spent = replayed([f"price:{price:g}"], ratio, 1).rows[0]["evaluations"]
            low, high = (low, price) if spent > even["evaluations"] else (price, high)
        found.extend(replayed([f"price:{low:.3g}"], ratio, sequence.seeds))
    return found


def section(folder: Path) -> list[str]:
    """Of the page: what was measured."""
    told = [
        "## Budgets over time\n",
        "As many evaluations in all: so many at each step, or given to steps by what they are "
        "expected to bring, with the number of steps known (`horizon`) or not; and, without a "
        "limit, all that are worth a price, which was found by halving so that at most as many "
        "are spent on the first split. Rule `cost-ratio:c`; the first labels are outside of it. "
        "*Mean*: accuracy after each step but the first, in the mean; *utility*: positive flips "
        "less c times negative ones, for a hundred items. Means of so many splits: "
        + ", ".join(f"{name} {sequence.seeds}" for name, sequence in SEQUENCES.items())
        + ".\n",
        "| recording | c | budget | evaluations an item | final accuracy | mean accuracy | "
        "beside even | utility |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = False
    for name in SEQUENCES:
        path = folder / f"budgets-{name}.parquet"
        kept = pq.read_table(path).to_pylist() if path.exists() else []
        found |= bool(kept)
        for ratio in RATIOS if kept else ():
            runs = [r for r in kept if r["kind"] == "run" and r["rule"] == f"cost-ratio:{ratio}"]
            told += _rows(name, ratio, runs)
    return [*told, ""] if found else []


def _rows(name: str, ratio: int, runs: list[Row]) -> list[str]:
    told = []
    steps = len(runs[0]["models"]) - 1
    for share in PER_STEP:
        total = f"total:{steps * int(share.rstrip('%'))}%"
        even = [r for r in runs if r["budget"] == float(share.rstrip("%")) / 100]
        ways = {f"{share} a step": even}
        for budget in (f"{total},horizon={steps}", total):
            ways[f"`{budget}`"] = [r for r in runs if r["spending"] == budget]
        if share == PER_STEP[0]:
            priced = [r for r in runs if (r["spending"] or "").startswith("price")]
            ways[f"`{priced[0]['spending']}`"] = priced
        base = mean(r["mean_accuracy"] for r in even)
        for way, own in ways.items():
            gained = mean(r["mean_accuracy"] for r in own)
            spent = mean(r["evaluations"] / r["n"] for r in own)
            useful = mean(
                100 * (r["positive_flips"] - ratio * r["negative_flips"]) / r["n"] for r in own
            )
            told.append(
                f"| {name} | {ratio} | {way} | {spent:.2f} | "
                f"{mean(r['accuracy'] for r in own):.2f} | {gained:.2f} | {gained - base:+.2f} | "
                f"{useful:.1f} |"
            )
    return told
