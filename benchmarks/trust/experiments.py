"""The replays: the product's defaults and the paper's method on every recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paper.experiments import PAPER_MODELS
from posterity.replay import Recording, Results, run

BUDGETS = ["5%", "10%", "30%", "100%"]
RATIOS = [2, 5, 10]


@dataclass(frozen=True)
class Setting:
    """A recording, and where its labelled set comes from."""

    name: str
    source: str | None = None
    models: tuple[str, ...] = ()
    drawn: bool = True
    """Whether seeds draw different splits."""


SETTINGS = [
    Setting("imagenet_val", models=tuple(PAPER_MODELS)),
    Setting("cifar10_test"),
    Setting("langid", drawn=False),
    Setting("emotion_llm"),
    Setting("model_vs_human"),
    Setting(
        "imagenetv2_matchedfreq", source="imagenet_val", models=tuple(PAPER_MODELS), drawn=False
    ),
    Setting("cifar10_1_v6", source="cifar10_test", drawn=False),
]


def replays(folder: Path, setting: Setting, seeds: int) -> Iterator[Results]:
    """Ours with and without patience and value; the paper's with both estimators."""
    recording = Recording.load(folder / f"{setting.name}.npz")
    source = None if setting.source is None else Recording.load(folder / f"{setting.source}.npz")
    common: dict[str, Any] = {
        "models": list(setting.models) or None,
        "source": source,
        "seed": 1,
        "seeds": seeds if setting.drawn else 1,
    }
    hasty = ["max-belief", *(f"cost-ratio:{ratio}" for ratio in RATIOS)]
    patient = [f"cost-ratio:{ratio}+confirm" for ratio in RATIOS]
    yield run(recording, budgets=BUDGETS, rules=["max-belief", *patient], **common)
    yield run(recording, budgets=["10%"], rules=hasty[1:], **common)
    yield run(
        recording, budgets=["10%"], selector="entropy", rules=["max-belief", *patient], **common
    )
    yield run(
        recording,
        beliefs="plain",
        selector="entropy",
        confusion=["full", "diagonal"],
        budgets=BUDGETS,
        rules=[*hasty, "majority-vote", "replace"],
        **common,
    )
    yield run(
        recording,
        beliefs="plain",
        selector="entropy",
        confusion=["full", "diagonal"],
        budgets=["10%"],
        rules=patient,
        **common,
    )
