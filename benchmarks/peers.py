"""Peers: the same votes given to crowd-kit and cleanlab, in an environment that has them.

    python peers.py FOLDER    reads problem.npz there, writes told.json and posterior.npy

Stands alone: that environment has no Posterity.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

LONGEST = 20.0
"""Seconds after which nothing is repeated."""
REPEATS = 3


def crowd_kit(problem: Any, folder: Path) -> list[float]:
    """The E-step of Dawid and Skene, given the confusions: every item's belief in every class."""
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    hard, errors, prior = problem["hard"], problem["errors"], problem["prior"]
    models, classes = len(errors), len(prior)
    item, model = np.nonzero(hard >= 0)
    data = pd.DataFrame({"task": item, "worker": model, "label": hard[item, model]})
    index = pd.MultiIndex.from_product([range(models), range(classes)], names=["worker", "label"])
    told = pd.DataFrame(errors.reshape(models * classes, classes), index=index)
    found: list[Any] = []

    def work() -> None:
        found[:] = [DawidSkene._e_step(data, pd.Series(prior), told)]

    seconds = repeated(work)
    np.save(folder / "posterior.npy", found[0].sort_index().to_numpy())
    return seconds


def majority_vote(problem: Any, _: Path) -> list[float]:
    """The most frequent vote of cleanlab; ties by its own rules."""
    from cleanlab.multiannotator import get_majority_vote_label

    labels, _shares = as_cleanlab(problem)
    return repeated(lambda: get_majority_vote_label(labels, verbose=False))


def crowdlab(problem: Any, _: Path) -> list[float]:
    """The consensus of cleanlab with its quality, from votes and a classifier's probabilities."""
    from cleanlab.multiannotator import get_label_quality_multiannotator

    labels, shares = as_cleanlab(problem)
    return repeated(
        lambda: get_label_quality_multiannotator(
            labels,
            shares,
            return_detailed_quality=False,
            return_annotator_stats=False,
            verbose=False,
        )
    )


def as_cleanlab(problem: Any) -> tuple[Any, Any]:
    """Votes with NaN where there is none, and as probabilities the share of votes."""
    hard, classes = problem["hard"], len(problem["prior"])
    labels = np.where(hard >= 0, hard, np.nan)
    # We have no classifier of features; computing its probabilities is not measured.
    shares = np.full((len(hard), classes), 1.0 / classes)
    item, model = np.nonzero(hard >= 0)
    np.add.at(shares, (item, hard[item, model]), 1.0)
    return labels, shares / shares.sum(axis=1, keepdims=True)


def repeated(work: Callable[[], object]) -> list[float]:
    """Seconds of each repetition after an unmeasured one; the first alone where it takes long."""
    seconds: list[float] = []
    while len(seconds) < 1 + REPEATS and sum(seconds) < LONGEST:
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return seconds[1:] or seconds


MEASURES: dict[str, tuple[str, Callable[[Any, Path], list[float]]]] = {
    "crowd-kit, Dawid-Skene E-step": ("crowd-kit", crowd_kit),
    "cleanlab, majority vote": ("cleanlab", majority_vote),
    "cleanlab, CROWDLAB consensus": ("cleanlab", crowdlab),
}


def main(folder: Path) -> None:
    """Whatever cannot be measured is told with the reason."""
    with np.load(folder / "problem.npz") as file:
        problem = dict(file)
    told: dict[str, dict[str, Any]] = {}
    for name, (package, measure) in MEASURES.items():
        try:
            # They may print; what is told must stay readable.
            with contextlib.redirect_stdout(io.StringIO()):
                told[name] = {"version": version(package), "seconds": measure(problem, folder)}
        except Exception as error:
            told[name] = {"error": f"{type(error).__name__}: {error}"}
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
