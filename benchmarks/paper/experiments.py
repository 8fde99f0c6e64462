"""The experiments: each replays recordings and returns self-describing rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from posterity import priors, replay, rules
from posterity.method.decide.budget import Budget
from posterity.method.decide.selectors import Entropy
from posterity.replay import Recording, Results, fit, take_apart, walk

PAPER_MODELS = [
    *("alexnet", "squeezenet1_0", "vgg11", "inception_v1_tf", "resnet18", "vgg13"),
    *("mobilenet_v1_tf", "vgg16", "vgg19", "resnet34", "densenet121", "densenet169"),
    *("resnet50", "inception_v3", "resnet101", "resnet152", "resnext101_64x4d"),
]
"""The paper's 17; inception_v1_tf, mobilenet_v1_tf and resnext101_64x4d are stand-ins."""
VALIDATION = ("imagenet_val", "imagenet-validation-original")
MATCHED_FREQUENCY = ("imagenetv2_matchedfreq", "imagenetv2-b-33")
"""Each recording by our name for it and by the one `replay --import` gives it."""
WEAKEST = PAPER_MODELS[:2]
"""Left out of the random order, as in the paper."""

RULES = [
    *("replace", "majority-vote", "max-belief", "max-belief-min-entropy"),
    *("cost-ratio:2", "cost-ratio:5", "cost-ratio:10", "oracle"),
]
BUDGETS = ["10%", "15%", "20%", "30%", "50%", "100%"]
FEW_BUDGETS = ["10%", "30%", "100%"]
ESTIMATORS = ["diagonal", "full"]
RANDOM_ORDERS = 3
PARTIAL_CLASSES = 113
"""How many of ImageNet's classes ObjectNet shares in the paper."""
ENTROPY_BINS = 40

Experiment = Callable[[Path, int], Results]

run = functools.partial(replay.run, beliefs="plain")


def imagenet(folder: Path, seeds: int) -> Results:
    """The main table: every estimator, selector, budget and rule."""
    return run(
        _imagenet(folder),
        split=0.5,
        seeds=seeds,
        confusion=ESTIMATORS,
        selector=["entropy", "random"],
        budgets=BUDGETS,
        rules=RULES,
    )


def orders(folder: Path, seeds: int) -> Results:
    """Models that do not improve: shuffled, and from best to worst."""
    recording, results = _imagenet(folder), Results()
    without_weakest = recording.pick([m for m in PAPER_MODELS if m not in WEAKEST])
    shuffled = [(without_weakest, f"random:{draw}") for draw in range(RANDOM_ORDERS)]
    for models, order in [(recording, "adversarial"), *shuffled]:
        results.extend(
            run(
                models,
                split=0.5,
                seeds=seeds,
                order=order,
                confusion=ESTIMATORS,
                budgets=FEW_BUDGETS,
                rules=RULES,
            )
        )
    return results


def peaking(folder: Path, seeds: int) -> Results:  # noqa: ARG001 nothing is drawn here
    """Confusions estimated on the very items that are updated."""
    return run(_imagenet(folder), split=1, confusion="full", budgets=BUDGETS, rules=RULES)


def transfer(folder: Path, seeds: int) -> Results:
    """Labelled set from ImageNet, target from ImageNetV2: a natural shift."""
    return run(
        find(folder, *MATCHED_FREQUENCY).pick(PAPER_MODELS),
        source=_imagenet(folder),
        seeds=seeds,
        confusion=ESTIMATORS,
        selector=["entropy", "random"],
        budgets=FEW_BUDGETS,
        rules=RULES,
    )


def partial(folder: Path, seeds: int) -> Results:
    """A target that holds only some of the classes, its prior unknown and known."""
    recording, results = _imagenet(folder), Results()
    classes = len(recording.classes)
    for seed in range(seeds):
        parts = take_apart(recording, 0.5, seed=seed)
        held = np.random.default_rng(seed).permutation(classes)[:PARTIAL_CLASSES]
        target = parts.target.take(np.flatnonzero(np.isin(parts.target.truth, held)))
        restricted = np.isin(np.arange(classes), held).astype(float)
        for prior in ("uniform", restricted):
            results.extend(
                run(
                    target,
                    source=parts.labelled,
                    prior=prior,
                    seed=seed,
                    confusion=ESTIMATORS,
                    budgets=FEW_BUDGETS,
                    rules=RULES,
                )
            )
    return results


def soft(folder: Path, seeds: int) -> Results:
    """Class probabilities of language models, used and ignored."""
    recording, results = find(folder, "emotion_llm"), Results()
    for votes in ("hard", "soft"):
        results.extend(
            run(
                recording,
                split=0.5,
                seeds=seeds,
                votes=votes,
                confusion=ESTIMATORS,
                budgets=BUDGETS,
                rules=RULES,
            )
        )
    return results


def others(folder: Path, seeds: int) -> Results:
    """The same grid on every other recording found; CIFAR-10.1 with CIFAR-10 as labelled set."""
    results = Results()
    for path in sorted(folder.glob("*.npz")):
        if path.stem in (*VALIDATION, *MATCHED_FREQUENCY):
            continue
        recording = Recording.load(path)
        source = find(folder, "cifar10_test") if path.stem == "cifar10_1_v6" else None
        # Nothing is drawn where the labelled set is given: one seed says all.
        given = source is not None or recording.is_source is not None
        results.extend(
            run(
                recording,
                source=source,
                order="improving",
                seeds=1 if given else seeds,
                confusion=ESTIMATORS,
                budgets=FEW_BUDGETS,
                rules=RULES,
            )
        )
    if not results.rows:
        raise AbsentError("any further recording")
    return results


EXPERIMENTS: dict[str, Experiment] = {
    "imagenet": imagenet,
    "orders": orders,
    "peaking": peaking,
    "transfer": transfer,
    "partial": partial,
    "soft": soft,
    "others": others,
}


def entropies(folder: Path) -> Iterator[dict[str, float]]:
    """How many right and wrong labels lie at each entropy after every second step (MB, 10 %)."""
    parts = take_apart(_imagenet(folder), 0.5, seed=0)
    classes = len(parts.target.classes)
    edges = np.linspace(0, np.log(classes), ENTROPY_BINS + 1)
    for step in walk(
        parts.target,
        fit(parts.labelled, "diagonal"),
        prior=priors.uniform(classes),
        selector=Entropy(),
        budget=Budget.of("10%"),
        rules=[rules.MaxBelief()],
    ):
        if step.number % 2:
            continue
        right = step.shard.labels[0].label == parts.target.truth
        entropy = step.shard.beliefs.entropy()
        counted = [np.histogram(entropy[which], edges)[0] for which in (right, ~right)]
        for low, is_right, is_wrong in zip(edges[:-1], *counted, strict=True):
            yield {
                "step": step.number,
                "entropy": float(low),
                "right": int(is_right),
                "wrong": int(is_wrong),
            }


class AbsentError(Exception):
    """A recording that an experiment needs and the folder does not have."""


def find(folder: Path, *names: str) -> Recording:
    """The recording under the first of these names that exists."""
    for name in names:
        path = folder / f"{name}.npz"
        if path.exists():
            return replace(Recording.load(path), name=names[0])
    raise AbsentError(" or ".join(f"{name}.npz" for name in names))


def _imagenet(folder: Path) -> Recording:
    return replace(find(folder, *VALIDATION).pick(PAPER_MODELS), name="imagenet")
