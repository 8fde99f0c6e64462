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
HASTY = [f"cost-ratio:{ratio}" for ratio in RATIOS]
PATIENT = [f"{rule}+confirm" for rule in HASTY]


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


@dataclass(frozen=True)
class Given:
    """A recording as it is replayed."""

    recording: Recording
    common: dict[str, Any]


def given(folder: Path, setting: Setting, seeds: int) -> Given:
    """With the models and splits of a setting."""
    recording = Recording.load(folder / f"{setting.name}.npz")
    source = None if setting.source is None else Recording.load(folder / f"{setting.source}.npz")
    common: dict[str, Any] = {
        "models": list(setting.models) or None,
        "source": source,
        "prior": "uniform",
        "seed": 1,
        "seeds": seeds if setting.drawn else 1,
    }
    return Given(recording, common)


def ours(to: Given) -> Iterator[Results]:
    """The product's defaults, with and without patience and value."""
    recording, common = to.recording, to.common
    yield run(recording, budgets=BUDGETS, rules=["max-belief", *PATIENT], **common)
    yield run(recording, budgets=["100%"], rules=["max-belief+confirm"], **common)
    yield run(recording, budgets=["10%"], rules=HASTY, **common)
    yield run(recording, budgets=["10%"], selector="entropy", rules=PATIENT, **common)


def papers(to: Given) -> Iterator[Results]:
    """The paper's method with both estimators."""
    plain = to.common | {
        "beliefs": "plain",
        "selector": "entropy",
        "confusion": ["full", "diagonal"],
    }
    rules = ["max-belief", *HASTY, "majority-vote", "replace"]
    yield run(to.recording, budgets=BUDGETS, rules=rules, **plain)
    yield run(to.recording, budgets=["10%"], rules=PATIENT, **plain)


METHODS = {"ours": ours, "paper": papers}
