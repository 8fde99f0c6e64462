"""A labelled set with another mix of items than the target, with and without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.beyond.shift import kinds_of_items
from posterity.replay import Recording, Results, run

BUDGETS = ["10%", "30%", "100%"]
RULES = ["max-belief", "cost-ratio:10"]
SEEDS = 5
LABELLED = 5000
RARE = 0.1
"""Of half of the kinds of distortion so small a part is labelled, of the others all; and the
other way round in the target."""
KINDS: dict[str, dict[str, Any]] = {
    "none": {"adapt": "none", "prior": "uniform"},
    "difficulty (default)": {"prior": "uniform"},
    "weights": {"adapt": "none", "prior": "uniform", "weigh": "groups"},
    "weights and difficulty": {"prior": "uniform", "weigh": "groups"},
}


def parts(recordings: Path, seed: int) -> tuple[Recording, Recording]:
    """A labelled set and a target of all kinds, each with other shares of them."""
    every = kinds_of_items(recordings)
    assert every.groups is not None
    rng = np.random.default_rng(seed)
    names = np.unique(every.groups)
    common = np.isin(every.groups, rng.permutation(names)[: len(names) // 2])
    # An item is in one of the two, and in which depends on its kind alone.
    labelled = rng.random(len(every)) < np.where(common, 1 - RARE, RARE)
    own = rng.permutation(np.flatnonzero(labelled))[:LABELLED]
    return every.take(own), every.take(rng.permutation(np.flatnonzero(~labelled)))


def rows_of(budget: str, kind: int) -> str:
    """What the rows of a kind, by its place, are kept as."""
    return f"weights-{budget.rstrip('%')}-{kind}"


def measure(recordings: Path, kind: str, budget: str) -> Results:
    """Several draws of both."""
    found = Results()
    for seed in range(1, SEEDS + 1):
        labelled, target = parts(recordings, seed)
        found.extend(
            run(target, source=labelled, budgets=budget, rules=RULES, seed=seed, **KINDS[kind])
        )
    return found
