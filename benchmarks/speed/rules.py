"""Rules: one pass for all of them, and the ImageNet table with today's beliefs and with dense."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tests.problems import synthetic_recording

from benchmarks.paper.experiments import ESTIMATORS, PAPER_MODELS, RULES
from benchmarks.speed.timing import peak_memory
from posterity import Confusion, Recording, replay, shards
from posterity._arrays import Codes, Floats, Rows
from posterity.dense import DenseBeliefs
from posterity.votes import MISSING, SoftVotes

TABLE_BUDGETS = ["10%", "20%", "30%", "50%", "100%"]
KINDS = ("sparse", "dense")
BEFORE = "32 s and 1.07 GiB"
"""docs/performance.md at commit 22350a9, before beliefs came from the votes alone."""


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


class Before(DenseBeliefs):
    """The beliefs that earlier versions had, with today's way to fold some rows."""

    def fold(
        self, votes: Codes | SoftVotes, confusion: Confusion, *, rows: Rows | None = None
    ) -> None:
        """Absorb one model's hard votes on these rows."""
        if rows is not None and not isinstance(votes, SoftVotes):
            every: Codes = np.full(self.items, MISSING, dtype=np.int32)
            every[rows] = votes
            votes = every
        super().fold(votes, confusion)

    def of_each(self, labels: Codes, rows: Rows) -> Floats:
        """(n, m): beliefs in several labels of each item."""
        return np.stack([self.of(own, rows) for own in labels.T], axis=1)

    @property
    def votes(self) -> Codes:
        """(T, n)."""
        return np.array(self._votes)


def imagenet_table(path: Path, kind: str) -> dict[str, Any]:
    """Both estimators, entropy and random, five budgets, all rules, one seed."""
    if kind == "dense":
        vars(shards)["Beliefs"] = Before
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
    accuracies: Floats = np.array([row["accuracy"] for row in results.rows])
    return {
        "seconds": seconds,
        "peak": peak_memory(),
        "rows": len(results.rows),
        "votes": sum(
            row["evaluations"] + row["n"] for row in results.rows if row["rule"] == RULES[0]
        ),
        "items": first["n"],
        "models": len(first["models"]),
        "accuracies": accuracies.tolist(),
    }


def table_cost(path: Path) -> str:
    """The ImageNet table in processes of their own, so that each peak memory is its own."""
    if not path.exists():
        return f"Not measured: no recording at `{path.name}` in the recordings folder."
    told = {}
    for kind in KINDS:
        command = [sys.executable, "-m", "benchmarks.speed", "--table", str(path), "--kind", kind]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        told[kind] = json.loads(done.stdout)
    now, before = told["sparse"], told["dense"]
    apart = np.abs(np.array(now["accuracies"]) - np.array(before["accuracies"])).max()
    return (
        f"{now['models']} models, {now['items']:,} items, 1000 classes, {now['rows']} result rows "
        f"from {now['votes']:,} folded\nvotes: **{now['seconds']:.1f} s** and "
        f"**{now['peak']:.2f} GiB** of peak memory, loading, fitting and compiled code included;\n"
        f"{now['seconds'] / now['votes'] * 1e6:.2g} µs a vote with all rules decided and scored. "
        f"With the dense beliefs that earlier versions had\n(`posterity.dense`, kept for their "
        f"stores) the same table takes {before['seconds']:.1f} s and {before['peak']:.2f} GiB in "
        f"this run,\n{before['seconds'] / now['seconds']:.2g} times as long; accuracies differ by "
        f"at most {apart:.2g} points. That version's own page\n(commit 22350a9, quoted) said "
        f"{BEFORE} on this kind of machine."
    )
