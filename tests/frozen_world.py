"""Made-up items and models for what is frozen: models err on the same items, and alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from posterity import Model, Recording

CLASSES = ("ant", "bee", "cat", "dog", "elk", "fox")
SHARES = np.array([0.3, 0.25, 0.15, 0.12, 0.1, 0.08])
"""Classes are not equally frequent, so that priors matter."""
MODELS = {"m0": 0.3, "m1": 0.9, "m2": 1.2, "m3": 1.8, "m4": 2.6}
"""By how much, in logits, each is right about an item that is neither hard nor easy."""
SHARPNESS = {"m0": 1.0, "m1": 2.5, "m2": 0.6, "m3": 1.6, "m4": 3.0}
"""How sure of themselves they are: some too much, some too little."""


class World:
    """Items with their truth, votes and probabilities; some of them are a labelled set."""

    def __init__(self, items: int, labelled: int, seed: int = 0, harder: float = 0.3) -> None:
        rng = np.random.default_rng(seed)
        count = items + labelled
        self.items, self.count = items, count
        self.is_labelled = np.arange(count) >= items
        self.truth = rng.choice(len(CLASSES), count, p=SHARES).astype(np.int32)
        night = rng.random(count) < np.where(self.is_labelled, 0.25, 0.5)
        self.groups = np.where(night, "night", "day")
        self.weights = np.where(night, 2.0, 0.75)
        hard = rng.normal(0, 1.2, count) + 0.5 * night + harder * ~self.is_labelled
        alike = (self.truth + rng.integers(1, len(CLASSES), count)) % len(CLASSES)
        self.votes, self.probabilities = {}, {}
        for name, skill in MODELS.items():
            right = rng.random(count) < 1 / (1 + np.exp(hard - skill))
            own = (self.truth + rng.integers(1, len(CLASSES), count)) % len(CLASSES)
            wrong = np.where(rng.random(count) < 0.6, alike, own)
            vote = np.where(right, self.truth, wrong).astype(np.int32)
            logits = rng.normal(0, 1, (count, len(CLASSES)))
            best = logits.max(axis=1) + rng.exponential(1.0, count) + 0.8 * right
            logits[np.arange(count), vote] = best
            raised = np.exp(SHARPNESS[name] * (logits - best[:, None]))
            self.votes[name] = vote
            self.probabilities[name] = raised / raised.sum(axis=1, keepdims=True)
        self.missing = rng.random((len(MODELS), count)) < 0.04
        self.missing[0] = False

    def recording(self, name: str = "made-up") -> Recording:
        """All of it, for replay; a few votes are missing."""
        cast = np.array([self.votes[model] for model in MODELS])
        return Recording(
            classes=CLASSES,
            models=tuple(MODELS),
            truth=self.truth,
            votes=np.where(self.missing, -1, cast),
            probabilities=np.array([self.probabilities[model] for model in MODELS]),
            is_source=self.is_labelled,
            groups=self.groups,
            weights=self.weights,
            name=name,
        )

    def ids(self, *, labelled: bool = False) -> list[str]:
        numbers = np.flatnonzero(self.is_labelled == labelled)
        return [f"{'known' if labelled else 'item'}-{number:05d}" for number in numbers]

    def item_table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """Items with their payload."""
        numbers = np.arange(start, self.items if stop is None else stop)
        return pa.table(
            {
                "id": [self.ids()[number] for number in numbers],
                "number": numbers,
                "light": self.groups[numbers],
            }
        )

    def cast(self, name: str, *, labelled: bool = False) -> pa.Table:
        """A model's votes and probabilities by id; on labelled items the truth beside them."""
        rows = np.flatnonzero(self.is_labelled == labelled)
        names = np.array(CLASSES)
        columns: dict[str, Any] = {
            "id": self.ids(labelled=labelled),
            "vote": names[self.votes[name][rows]],
            "probs": self.probabilities[name][rows].tolist(),
        }
        for code, each in enumerate(CLASSES):
            columns[f"p_{each}"] = self.probabilities[name][rows, code]
        if labelled:
            columns["truth"] = names[self.truth[rows]]
            columns["light"], columns["weight"] = self.groups[rows], self.weights[rows]
        return pa.table(columns)

    def truths(self, count: int) -> pa.Table:
        """The truth of the first stored items, by id."""
        names = np.array(CLASSES)
        return pa.table({"id": self.ids()[:count], "truth": names[self.truth[:count]]})

    def model(self, name: str, **settings: Any) -> Model:
        """A model that votes from memory and comes with its labelled votes."""
        given: dict[str, Any] = {"predict": Memory(self, name), "cost": 0.5, **settings}
        if not settings.keys() & {"labelled", "accuracy", "confusion"}:
            given["labelled"] = self.cast(name, labelled=True)
        return Model(name, **given)

    def write(self, folder: Path) -> None:
        """The same as files, for the command line."""
        folder.mkdir(parents=True, exist_ok=True)
        pa_csv.write_csv(self.item_table(), folder / "items.csv")
        pq.write_table(self.item_table(), folder / "items.parquet")
        for name in MODELS:
            flat = self.cast(name, labelled=True).drop_columns(["probs"])
            pa_csv.write_csv(flat, folder / f"labelled-{name}.csv")
            pq.write_table(self.cast(name, labelled=True), folder / f"labelled-{name}.parquet")
            pa_csv.write_csv(self.cast(name).drop_columns(["probs"]), folder / f"{name}.csv")
            pq.write_table(self.cast(name), folder / f"{name}.parquet")


class Memory:
    """A source of votes that looks them up; fails on items it is told to fail on."""

    def __init__(
        self, world: World, name: str, soft: bool = False, fails: tuple[int, ...] = ()
    ) -> None:
        self.votes, self.probabilities = world.votes[name], world.probabilities[name]
        self.soft, self.fails = soft, fails

    def __call__(self, batch: pa.Table) -> Any:
        numbers = batch.column("number").to_numpy()
        if set(numbers.tolist()) & set(self.fails):
            raise ValueError("one of these is beyond it")
        if self.soft:
            return self.probabilities[numbers]
        return np.array(CLASSES)[self.votes[numbers]]
