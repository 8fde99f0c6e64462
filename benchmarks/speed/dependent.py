"""Dependent beliefs beside plain ones: the same votes, and how long the fit takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.speed.history import HIGHEST, LABELLED, LOWEST, History, Setting
from benchmarks.speed.timing import Timing, on_threads, table, timed
from posterity import priors
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import Codes
from posterity.validation.cross_fits import Fits

SETTING = Setting(classes=1000, models=16, share=0.1, estimator="diagonal")
ITEMS = 1_000_000
MODELS = 17
"""Of the fit that is timed."""


@dataclass(frozen=True)
class Measured:
    """Two threads, and one."""

    plain: tuple[Timing, Timing]
    dependent: tuple[Timing, Timing]
    value: tuple[Timing, Timing]
    fit: Timing


def labelled(models: int, seed: int = 1) -> tuple[Codes, Codes]:
    """Votes of models that err on the same items, now and then with the same label."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(SETTING.classes, dtype=np.int32), LABELLED)
    hardness, tempting = rng.random(len(truth)), rng.integers(0, SETTING.classes, len(truth))
    votes = np.empty((len(truth), models), dtype=np.int32)
    for model, accuracy in enumerate(np.linspace(LOWEST, HIGHEST, models)):
        right = hardness + 0.3 * (rng.random(len(truth)) - 0.5) < accuracy
        other = rng.integers(0, SETTING.classes, len(truth))
        wrong = np.where(rng.random(len(truth)) < 0.4, tempting, other)
        votes[:, model] = np.where(right, truth, wrong)
    return votes, truth


def measure() -> Measured:
    """Beliefs of one history both ways, what votes could change, and the fit."""
    history = History.draw(SETTING, ITEMS)
    prior = priors.uniform(SETTING.classes)
    votes, truth = labelled(SETTING.models)
    fit = beliefs_fit.fit(votes, truth, prior)
    who, stored = range(SETTING.models - 1), history.stored
    earlier = np.ascontiguousarray(history.hard[:, :-1])

    def believe(fit: Dependence = fit) -> object:
        return fit.believe(history.hard, range(SETTING.models), stored, stored[:, None])

    def value(fit: Dependence = fit) -> object:
        return fit.value(earlier, who, stored, model=SETTING.models - 1, ratio=10)

    both = []
    for work in (history.step, believe, value):
        timings = []
        for threads in (2, 1):
            with on_threads(threads):
                timings.append(timed(work, ITEMS))
        both.append((timings[0], timings[1]))
    more, truth = labelled(MODELS)
    fitted = timed(lambda: Fits.of(more, truth, prior), 1, repeats=3)
    return Measured(both[0], both[1], both[2], fitted)


def report(met: Measured) -> str:
    """As Markdown."""
    rows = [
        (name, two, one, two / met.plain[0], one / met.plain[1])
        for name, (two, one) in (
            ("plain, diagonal", met.plain),
            ("dependent", met.dependent),
            ("what a vote could change", met.value),
        )
    ]
    return (
        table(["", "2 threads", "1 thread", "times plain, 2", "times plain, 1"], rows, left=1)
        + f"\n\nThe fit on {LABELLED * SETTING.classes:,} labelled items, {MODELS} models and "
        f"{SETTING.classes:,} classes, on all of them and on both halves: {met.fit}.\n"
    )
