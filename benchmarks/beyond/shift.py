"""Natural shift: what each adaptation brings where the target is unlike the labelled set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.experiments import PAPER_MODELS
from posterity.replay import Recording, Results, run

BUDGETS = ["10%", "30%", "100%"]
RULES = ["max-belief", "cost-ratio:10"]
SEEDS = 5
PAIRS = {
    "imagenetv2_matchedfreq": ("imagenet_val", PAPER_MODELS),
    "cifar10_1_v6": ("cifar10_test", None),
    "model_vs_human": (None, None),
}
"""The target, where its labelled set is drawn from, and models."""
KINDS: dict[str, dict[str, Any]] = {
    "none": {"adapt": "none", "prior": "uniform"},
    "difficulty (default)": {"adapt": "difficulty", "prior": "uniform"},
    "class shares": {"adapt": "none", "prior": "estimated"},
    "confusions": {"adapt": "confusions", "prior": "uniform"},
    "all": {"adapt": "difficulty,confusions", "prior": "estimated"},
}


def kinds_of_items(recordings: Path) -> Recording:
    """Distorted photos, each with its kind of distortion."""
    path = recordings / "model_vs_human.npz"
    with np.load(path) as held:
        names = np.array([str(name) for name in held["domain_names"]])[held["domain"]]
    return replace(Recording.load(path), groups=names)


def parts(recordings: Path, name: str, seed: int) -> tuple[Recording, Recording]:
    """A labelled set, drawn with the seed, and a target."""
    rng = np.random.default_rng(seed)
    source, models = PAIRS[name]
    if source is None:
        # Half of the kinds of distortion are labelled, the others are the target.
        every = kinds_of_items(recordings)
        assert every.groups is not None
        known = rng.permutation(np.unique(every.groups))[: len(np.unique(every.groups)) // 2]
        own = np.isin(every.groups, known)
        return tuple(  # type: ignore[return-value]
            every.take(rng.permutation(np.flatnonzero(mask))) for mask in (own, ~own)
        )
    labelled = Recording.load(recordings / f"{source}.npz")
    rows = rng.permutation(len(labelled))[: len(labelled) // 2]
    target = Recording.load(recordings / f"{name}.npz")
    return labelled.take(rows), target if models is None else target.pick(models)


def rows_of(name: str, budget: str, kind: int) -> str:
    """What the rows of a kind, by its place, are kept as."""
    return f"shift-{name}-{budget.rstrip('%')}-{kind}"


def measure(recordings: Path, name: str, kind: str, budget: str) -> Results:
    """Of random halves of the source as labelled sets."""
    found = Results()
    for seed in range(1, SEEDS + 1):
        labelled, target = parts(recordings, name, seed)
        found.extend(
            run(target, source=labelled, budgets=budget, rules=RULES, seed=seed, **KINDS[kind])
        )
    return found
