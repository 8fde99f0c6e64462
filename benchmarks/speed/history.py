"""History: the votes of a sequence of models on many items, and how those models err."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posterity import Confusion, priors
from posterity.method.beliefs.product import Folded, Product
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import VoteTable

LOWEST, HIGHEST = 0.65, 0.85
"""Accuracies of the first and of the last model."""
LABELLED = 25
"""Labelled items a class."""


@dataclass(frozen=True)
class Setting:
    """What a history looks like."""

    classes: int
    models: int
    share: float
    """Of the items, those each model after the first votes on."""
    estimator: str

    def __str__(self) -> str:
        return f"{self.classes:,} classes, {self.models} models, {self.share:.0%}, {self.estimator}"


@dataclass(frozen=True, eq=False)
class History:
    """The first model votes on everything, each later one on a random share."""

    setting: Setting
    confusions: list[Confusion]
    hard: Codes
    """(n, T) −1 where there is none."""
    stored: Codes
    """The label each item has: the first model's vote."""

    @classmethod
    def draw(cls, setting: Setting, items: int, *, seed: int = 0) -> History:
        """Votes of models that err evenly over all classes: the most that votes can scatter."""
        rng = np.random.default_rng(seed)
        truth = rng.integers(0, setting.classes, items, dtype=np.int32)
        known = np.repeat(np.arange(setting.classes, dtype=np.int32), LABELLED)
        hard = np.empty((items, setting.models), dtype=np.int32)
        confusions = []
        for model, accuracy in enumerate(np.linspace(LOWEST, HIGHEST, setting.models)):
            cast = _vote(rng, truth, accuracy, setting.classes)
            if model and setting.share < 1:
                cast[rng.random(items, dtype=np.float32) >= setting.share] = -1
            hard[:, model] = cast
            labelled = _vote(rng, known, accuracy, setting.classes)
            confusions.append(
                Confusion.from_pairs(
                    known, labelled, classes=setting.classes, estimator=setting.estimator
                )
            )
        return cls(setting, confusions, hard, hard[:, 0].copy())

    @property
    def prior(self) -> Floats:
        """Uniform."""
        return priors.uniform(self.setting.classes)

    def product(self) -> Product:
        """A new one: its tables are part of the cost."""
        return Product(self.prior, self.confusions)

    def fold(self) -> Folded:
        """Entropy, most believed class and its belief, from the votes."""
        folded = self.product().fold(VoteTable.only(self.hard))
        _ = folded.belief_best
        return folded

    def step(self) -> Floats:
        """All that a step needs: the same, and the belief of the stored label."""
        return believe(self.product(), self.hard, self.stored)

    @property
    def traffic(self) -> int:
        """Bytes a step cannot do without: votes and labels read, results written."""
        results = 8 + 4 + 1 + 8 + 8 + 8
        return self.hard.nbytes + self.stored.nbytes + results * len(self.hard)


def believe(product: Product, hard: Codes, stored: Codes) -> Floats:
    """Fold the votes; the belief of the stored labels."""
    folded = product.fold(VoteTable.only(hard), stored)
    _ = folded.belief_best
    return folded.belief_stored


def _vote(rng: np.random.Generator, truth: Codes, accuracy: float, classes: int) -> Codes:
    right = rng.random(len(truth), dtype=np.float32) < accuracy
    return np.where(right, truth, rng.integers(0, classes, len(truth), dtype=np.int32))
