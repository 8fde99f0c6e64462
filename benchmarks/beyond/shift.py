"""Natural shift: what each adaptation brings where the target is harder than the labelled set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.paper.experiments import PAPER_MODELS
from posterity.replay import Recording, Results, run

BUDGETS = ["10%", "30%", "100%"]
RULES = ["max-belief", "cost-ratio:10"]
PAIRS = {
    "imagenetv2_matchedfreq": ("imagenet_val", PAPER_MODELS),
    "cifar10_1_v6": ("cifar10_test", None),
}
KINDS: dict[str, dict[str, Any]] = {
    "as the labelled set": {"adapt": False},
    "difficulty (default)": {},
    "difficulty and class shares": {"prior": "estimated"},
}


def measure(recordings: Path, name: str, kind: str) -> Results:
    """The labelled set is all of the source: nothing is drawn."""
    source, models = PAIRS[name]
    return run(
        Recording.load(recordings / f"{name}.npz"),
        source=Recording.load(recordings / f"{source}.npz"),
        models=models,
        budgets=BUDGETS,
        rules=RULES,
        **KINDS[kind],
    )
