"""Small stores for tests: items, two or more models with labelled votes, and a counting model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from posterity import Model, Store
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.reports import Report
from posterity.storage.files import open_files
from posterity.storage.output import write_stream

NAMES = np.array(["cat", "dog", "fox", "owl"])

RULE = "cost-ratio:2"


class World:
    """Items with a truth that only the test knows, and models of given accuracies."""

    def __init__(self, items: int = 60, labelled: int = 80, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.items = items
        self.truth = NAMES[self.rng.integers(0, 4, items)]
        self.labelled_truth = NAMES[self.rng.integers(0, 4, labelled)]
        self.accuracies = {"old": 0.55, "mid": 0.7, "new": 0.85, "best": 0.95}
        self.votes = {name: self._guess(self.truth, a) for name, a in self.accuracies.items()}
        self.labelled = {
            name: self._guess(self.labelled_truth, a) for name, a in self.accuracies.items()
        }

    def _guess(self, truth: np.ndarray, accuracy: float) -> np.ndarray:
        right = self.rng.random(len(truth)) < accuracy
        return np.where(right, truth, NAMES[self.rng.integers(0, 4, len(truth))])

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        numbers = np.arange(start, self.items if stop is None else stop)
        return pa.table(
            {
                "id": [f"item-{number}" for number in numbers],
                "number": numbers,
                "lang": ["de" if number % 3 else "en" for number in numbers],
            }
        )

    def labelled_table(self, name: str) -> pa.Table:
        return pa.table(
            {
                "id": [f"labelled-{at}" for at in range(len(self.labelled_truth))],
                "truth": self.labelled_truth,
                "vote": self.labelled[name],
            }
        )

    def votes_table(self, name: str) -> pa.Table:
        return pa.table(
            {"id": [f"item-{at}" for at in range(self.items)], "vote": self.votes[name]}
        )

    def model(self, name: str, seen: Callable[[list[int]], Any] | None = None) -> Model:
        """A model that votes from memory, and tells which items it was asked about."""

        def predict(batch: pa.Table) -> np.ndarray:
            numbers = batch.column("number").to_numpy()
            if seen is not None:
                seen(numbers.tolist())
            votes: np.ndarray = self.votes[name][numbers]
            return votes

        return Model(name, labelled=self.labelled_table(name), predict=predict, cost=0.5)


def small_store(path: str | Path, world: World, **options: Any) -> Store:
    """A store with all items and the first model's labels."""
    store = Store.create(path, classes=NAMES, shard_rows=25, **options)
    store.add(world.table())
    store.update(world.model("old"))
    return store


def make(path: Path, world: World, *names: str, shard_rows: int = 64, **options: Any) -> Store:
    """A store after an update of each model from files of votes, with the default beliefs."""
    store = Store.create(path, classes=NAMES, shard_rows=shard_rows, **options)
    store.add(world.table())
    for name in names:
        update(store, world, name)
    return store


def update(store: Store, world: World, name: str, rule: str = RULE, budget: str = "30%") -> Report:
    """The first model votes on everything, a later one within the budget."""
    store.register(Model(name, labelled=world.labelled_table(name)))
    spending = None if name == "old" else budget
    return store.update(name, votes=world.votes_table(name), budget=spending, rule=rule)


def contents(store: Store) -> dict[str, Any]:
    """Everything a store says, without what differs between two runs of the same: ids and times."""
    context = Context(open_files(store.path, store.options))
    ledger = context.ledger.read().sort_by([("step", "ascending"), ("row", "ascending")])
    rows = [row for row in ledger.to_pylist() if row["header"] is None]
    headers = []
    for header in context.headers:
        told = json.loads(header.to_row().column("header")[0].as_py())
        for volatile in ("time", "run", "request"):
            told.pop(volatile)
        told["report"].pop("run", None)
        headers.append(told)
    return {
        "rows": rows,
        "headers": headers,
        "labels": store.labels().to_pylist(),
        "published": _published(context),
    }


def _published(context: Context) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    table = DeltaTable(f"{context.files.url}/labels", storage_options=context.files.options)
    rows: list[dict[str, Any]] = pa.table(table.to_pyarrow_table()).sort_by("row").to_pylist()
    return rows


def registered(store: Store, model: Model) -> str:
    """The name of a model the store knows by now."""
    store.register(model)
    return model.name


def write_table(table: pa.Table, path: Path) -> None:
    """A table as the file its name asks for."""
    write_stream(path, table.schema, [table])
