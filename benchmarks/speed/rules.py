"""Rules: one pass for all of them, and the ImageNet table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.problems import synthetic_recording

from benchmarks.paper.experiments import ESTIMATORS, PAPER_MODELS, RULES
from benchmarks.speed.timing import peak_memory
from posterity import Recording, replay

TABLE_BUDGETS = ["10%", "20%", "30%", "50%", "100%"]


def shared_pass() -> str:
    """How much longer it takes to walk once per rule than once for all rules."""
    recording = synthetic_recording(items=8000, classes=200, models=8, missing=0.0, seed=1)
    replay.run(recording, budgets="30%", rules=RULES)
    ratios = []
    for _ in range(3):
        started = time.perf_counter()
        replay.run(recording, budgets="30%", rules=RULES)
        together = time.perf_counter() - started
        started = time.perf_counter()
        for rule in RULES:
            replay.run(recording, budgets="30%", rules=rule)
        ratios.append((time.perf_counter() - started) / together)
    return (
        f"Walking once per rule instead takes {median(ratios):.2g} times as long for {len(RULES)} "
        "rules\n(8,000 items, 200 classes, 8 models, 30 % budget; median of 3)."
    )


def imagenet_table(path: Path) -> dict[str, Any]:
    """Both estimators, entropy and random, five budgets, all rules, one seed."""
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
    first = results.rows[0]
    return {
        "seconds": seconds,
        "peak": peak_memory(),
        "rows": len(results.rows),
        "votes": sum(
            row["evaluations"] + row["n"] for row in results.rows if row["rule"] == RULES[0]
        ),
        "items": first["n"],
        "models": len(first["models"]),
    }


def table_cost(path: Path) -> str:
    """The ImageNet table in a process of its own, so that the peak memory is its own."""
    if not path.exists():
        return f"Not measured: no recording at `{path.name}` in the recordings folder."
    command = [sys.executable, "-m", "benchmarks.speed", "--table", str(path)]
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return (
        f"{told['models']} models, {told['items']:,} items, 1000 classes, {told['rows']} result "
        f"rows from {told['votes']:,} folded\nvotes: **{told['seconds']:.1f} s** and "
        f"**{told['peak']:.2f} GiB** of peak memory, loading, fitting and compiled code "
        f"included;\n{told['seconds'] / told['votes'] * 1e6:.2g} µs a vote with all rules decided "
        "and scored."
    )
