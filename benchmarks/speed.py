"""Speed and memory: ratios measured within one run; writes docs/performance.md (`make bench`)."""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from tests import naive
from tests.problems import synthetic_recording

from benchmarks.paper.experiments import ESTIMATORS, PAPER_MODELS, RULES
from posterity import Beliefs, Confusion, Recording, priors, replay
from posterity._arrays import Codes, Floats

REPEATS = 7
TABLE_BUDGETS = ["10%", "20%", "30%", "50%", "100%"]


@dataclass(frozen=True)
class Timing:
    """Seconds per item over several repetitions."""

    seconds: list[float]

    @property
    def median(self) -> float:
        """The middle repetition."""
        return median(self.seconds)

    def __str__(self) -> str:
        scale, unit = (1e6, "µs") if self.median < 1e-3 else (1e3, "ms")
        low, high = min(self.seconds) * scale, max(self.seconds) * scale
        return f"{self.median * scale:.3g} {unit} ({low:.3g}–{high:.3g})"


def timed(work: Callable[[], object], items: int, repeats: int = REPEATS) -> Timing:
    """Seconds per item, after one unmeasured round."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append((time.perf_counter() - started) / items)
    return Timing(seconds)


def whole_arrays(log_joint: Floats, votes: Codes, log_confusion: Floats) -> Floats:
    """The same update in the most direct NumPy: whole arrays, no blocks."""
    log_joint += log_confusion[votes]
    highest = log_joint.max(axis=1, keepdims=True)
    weights = np.exp(log_joint - highest)
    beliefs = weights / weights.sum(axis=1, keepdims=True)
    beliefs.argmax(axis=1)
    entropy: Floats = -(beliefs * np.log(np.maximum(beliefs, 1e-300))).sum(axis=1)
    return entropy


def folding() -> Iterable[str]:
    """One model's votes folded into the beliefs of many items."""
    yield "| classes | items | Posterity | whole arrays | plain loops | whole/ours | loops/ours |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    rng = np.random.default_rng(0)
    for classes, items in ((10, 200_000), (100, 100_000), (1000, 20_000)):
        confusion = Confusion.from_accuracy(rng.uniform(0.5, 0.9, classes), classes=classes)
        votes = rng.integers(0, classes, items).astype(np.int32)
        ours = Beliefs(priors.uniform(classes), items)
        dense = np.zeros((items, classes))
        table = confusion.probabilities.tolist()
        prior = [1 / classes] * classes

        def fold(ours: Beliefs = ours, votes: Codes = votes, how: Confusion = confusion) -> None:
            ours.fold(votes, how)

        def whole(dense: Floats = dense, votes: Codes = votes, how: Confusion = confusion) -> None:
            whole_arrays(dense, votes, how.log)

        def loop(table: list[list[float]] = table, prior: list[float] = prior) -> None:
            joint = naive.log_joint(prior, [0], [table])
            naive.entropy(naive.belief(joint))
            naive.most_believed(joint, [0])

        fast, direct, slow = timed(fold, items), timed(whole, items), timed(loop, 1)
        yield (
            f"| {classes} | {items:,} | {fast} | {direct} | {slow} "
            f"| {direct.median / fast.median:.2g} | {slow.median / fast.median:.2g} |"
        )


def shared_pass() -> tuple[float, int]:
    """How much longer it takes to walk once per rule than once for all rules."""
    recording = synthetic_recording(items=8000, classes=200, models=8, missing=0.0, seed=1)
    ratios = []
    for _ in range(3):
        started = time.perf_counter()
        replay.run(recording, budgets="30%", rules=RULES)
        together = time.perf_counter() - started
        started = time.perf_counter()
        for rule in RULES:
            replay.run(recording, budgets="30%", rules=rule)
        ratios.append((time.perf_counter() - started) / together)
    return median(ratios), len(RULES)


def imagenet_table(path: Path) -> None:
    """Both estimators, entropy and random, five budgets, all rules, one seed; prints the cost."""
    started = time.perf_counter()
    results = replay.run(
        Recording.load(path).pick(PAPER_MODELS),
        split=0.5,
        confusion=ESTIMATORS,
        selector=["entropy", "random"],
        budgets=TABLE_BUDGETS,
        rules=RULES,
    )
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    folded = sum(row["evaluations"] + row["n"] for row in results.rows if row["rule"] == RULES[0])
    first = results.rows[0]
    print(
        f"{seconds:.0f} {peak:.2f} {len(results.rows)} {folded} {first['n']} {len(first['models'])}"
    )


def table_cost(path: Path) -> str:
    """The ImageNet table in a process of its own, so that its peak memory is its own."""
    if not path.exists():
        return f"Not measured: no recording at `{path.name}` in the recordings folder."
    command = [sys.executable, "-m", "benchmarks.speed", "--table", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    seconds, memory, rows, votes, items, models = told.split()
    per_vote = float(seconds) / int(votes) * 1e6
    return (
        f"{models} models, {int(items):,} items, 1000 classes, {rows} result rows from "
        f"{int(votes):,} folded votes: **{seconds} s** and **{memory} GiB** of peak memory, "
        f"loading and fitting included; {per_vote:.2g} µs a vote with all rules decided and scored."
    )


def machine() -> str:
    """What this ran on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    name = model.group(1) if model else platform.processor()
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} cores; Python {platform.python_version()}, NumPy {np.__version__}"


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, default=Path("recordings"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--table", type=Path, help="only replay the ImageNet table")
    options = parser.parse_args()
    if options.table:
        imagenet_table(options.table)
        return
    ratio, rules = shared_pass()
    page = f"""# Speed and memory

Generated by `make bench` (`python -m benchmarks.speed`); do not edit.
Machine: {machine()}. Medians of {REPEATS} repetitions unless said, lowest and highest in brackets.

## Folding one vote

Time per item to absorb one model's vote and bring entropy, normaliser and most believed class up
to date. *Whole arrays* is the same in the most direct NumPy, on all items at once; *plain loops*
is the tests' naive twin, one item at a time.

{chr(10).join(folding())}

## One pass for all rules

Rules never touch beliefs, so a replay folds votes once however many rules it compares. Walking
once per rule instead takes {ratio:.2g} times as long for {rules} rules (8,000 items, 200 classes,
8 models, 30 % budget; median of 3).

## The ImageNet table

Both estimators, entropy and random selection, budgets {", ".join(TABLE_BUDGETS)}, all rules,
one seed.

{table_cost(options.recordings / "imagenet_val.npz")}
"""
    options.docs.mkdir(exist_ok=True)
    (options.docs / "performance.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
