"""What every operation on a store needs to know, read once and pinned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity import confusion, priors
from posterity._arrays import Counts, Floats, Mask
from posterity.classes import Classes
from posterity.confusion import Confusion
from posterity.engine.steps import Header, read_headers
from posterity.errors import (
    CommitConflict,
    InvalidData,
    InvalidParameter,
    StoreError,
    UnknownName,
)
from posterity.models import Model, encode_column
from posterity.tables.delta import Snapshot
from posterity.tables.files import Files
from posterity.tables.layout import LABELLED, MODELS, Description, Layout
from posterity.tables.sources import column, ids_of, read_rows
from posterity.votes import MISSING

NEXT_ROW = "posterity.rows"
HEAD = "posterity.head"
ARRIVALS = "posterity.models"
TRIES = 20

_KINDS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": lambda text: text == "True",
}


@dataclass(frozen=True)
class Registered:
    """A model the store knows: its counts on labelled data, and its settings."""

    name: str
    arrival: int
    settings: dict[str, Any]
    counts: Counts

    def confusion(self, estimator: str) -> Confusion:
        """How it errs."""
        return Confusion.from_counts(self.counts, estimator=estimator)


class Context:
    """A store as it was when it was opened."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.layout = Layout(files)
        self.description = Description.read(files)
        self.ledger: Snapshot = self.layout.ledger.head()
        self.headers: list[Header] = read_headers(self.ledger)

    @property
    def head(self) -> int:
        """The last step; −1 before the first."""
        return self.headers[-1].step if self.headers else -1

    @cached_property
    def classes(self) -> Classes:
        """The classes, in the order of their codes."""
        rows = sorted(self.layout.classes.head().read().to_pylist(), key=lambda row: row["code"])
        return Classes([_KINDS[row["kind"]](row["name"]) for row in rows])

    @cached_property
    def prior(self) -> Floats:
        """The prior over classes."""
        given = self.description.prior
        if given is None:
            return priors.uniform(len(self.classes))
        return priors.given(given, classes=self.classes)

    @cached_property
    def items(self) -> Snapshot | None:
        """The items; None while there are none."""
        if not self.files.list("items/_delta_log"):
            return None
        snapshot = self.layout.items(self.layout.items().head().schema).head()
        return None if snapshot.fence(NEXT_ROW) is None else snapshot

    @cached_property
    def rows(self) -> int:
        """How many rows were ever given; rows are dense and never used twice."""
        return 0 if self.items is None else self.items.fence(NEXT_ROW) or 0

    @cached_property
    def removed(self) -> Mask:
        """Which rows are tombstones."""
        mask = np.zeros(self.rows, dtype=np.bool_)
        mask[self.layout.removed.head().read().column("row").to_numpy()] = True
        return mask

    @cached_property
    def shards(self) -> list[tuple[int, int, int]]:
        """(shard, first row, number of rows) of each shard."""
        size = self.description.shard_rows
        return [
            (start // size, start, min(size, self.rows - start))
            for start in range(0, self.rows, size)
        ]

    @cached_property
    def arrivals(self) -> Snapshot:
        """The table of models as it was read."""
        return self.layout.models.head()

    @cached_property
    def models(self) -> dict[str, Registered]:
        """The registered models, in their order of arrival, each with its latest settings."""
        known = len(self.classes)
        listed = []
        for row in self.arrivals.read().to_pylist():
            counts = np.zeros((known, known), dtype=np.int64)
            counts[row["vote"], row["truth"]] = row["count"]
            settings = json.loads(row["settings"])
            listed.append(Registered(row["name"], row["arrival"], settings, counts))
        listed.sort(key=lambda model: (model.arrival, model.settings["revision"]))
        return {model.name: model for model in listed}

    @cached_property
    def confusions(self) -> dict[str, Confusion]:
        """Each model's confusion, by the store's estimator."""
        estimator = self.description.confusion
        return {name: model.confusion(estimator) for name, model in self.models.items()}

    def check_step(self, step: int) -> None:
        """Refuse a step the store does not have."""
        if not self.headers:
            raise InvalidParameter.of("step", "a step of the store, which has none yet", step)
        if step not in {header.step for header in self.headers}:
            raise InvalidParameter.of("step", f"a step of the store, 0 to {self.head}", step)

    def forget_models(self) -> None:
        """One was registered: read them again when they are next asked for."""
        for name in ("arrivals", "models", "confusions"):
            self.__dict__.pop(name, None)

    def model(self, name: str) -> Registered:
        """A registered model by name."""
        if name not in self.models:
            raise UnknownName.among("model", name, self.models)
        return self.models[name]

    def id_of(self, rows: pa.Array) -> pa.Array:
        """The ids of rows, in their order."""
        if self.items is None:
            raise StoreError("The store has no items.")
        table = self.items.read(["row", "id"])
        return table.column("id").take(pc.index_in(rows, value_set=table.column("row")))


def register(context: Context, model: Model) -> None:
    """Make a model known, however many others are registering at the same time."""
    for _ in range(TRIES):
        try:
            return _register(context, model)
        except CommitConflict:
            context.forget_models()
    raise CommitConflict("Too many others are registering models; nothing was registered.")


def _register(context: Context, model: Model) -> None:
    """Its labelled votes first, then the row that makes them visible."""
    if model.labelled is None:
        raise InvalidData(
            f"The model '{model.name}' has no labelled votes, so nobody knows how it errs.",
            hint="Give a table with the truth and its vote on a few labelled items.",
        )
    rows = read_rows(model.labelled, "labelled", ids=model.key)
    classes = context.classes
    truth, votes = (
        encode_column(column(rows, name, "labelled data"), classes, f"labelled column '{name}'")
        for name in (model.truth, model.vote)
    )
    if (truth == MISSING).any():
        raise InvalidData(f"The labelled data of '{model.name}' has rows without a truth.")
    keyed = model.key in rows.column_names
    keys: list[str | None] = [None] * len(truth)
    if keyed:
        keys = [str(key) for key in ids_of(rows, model.key, "labelled data").to_pylist()]
        if len(set(keys)) < len(keys):
            raise InvalidData(f"The labelled data of '{model.name}' has an item more than once.")
    counts = confusion.count(truth, votes, classes=classes)
    if not counts.sum():
        raise InvalidData(f"The labelled data of '{model.name}' holds no vote.")
    told = repr([keys, truth.tolist(), votes.tolist()]).encode()
    settings: dict[str, Any] = {
        "digest": hashlib.sha256(told).hexdigest()[:16],
        "keyed": keyed,
        "labelled": len(truth),
        "cost": model.cost,
        "predict": model.predict if isinstance(model.predict, str) else None,
        "revision": 0,
    }
    known = context.models.get(model.name)
    if known is not None:
        if known.settings["digest"] != settings["digest"]:
            raise InvalidData(
                f"A model '{model.name}' is registered with other labelled votes.",
                hint="Give the new one another name; the votes it cast stay explained by its own.",
            )
        settings["revision"] = known.settings["revision"]
        if settings == known.settings:
            return
        settings["revision"] += 1
    else:
        count = len(truth)
        labelled = pa.table(
            {
                "model": [model.name] * count,
                "digest": [settings["digest"]] * count,
                "key": keys,
                "truth": truth,
                "vote": votes,
            },
            schema=LABELLED,
        )
        table = context.layout.labelled
        table.head().commit([table.write(labelled, label="labelled")])
    cells = np.argwhere(counts)
    row = {
        "name": [model.name],
        "arrival": [known.arrival if known else len(context.models)],
        "settings": [json.dumps(settings)],
        "vote": [cells[:, 0].tolist()],
        "truth": [cells[:, 1].tolist()],
        "count": [counts[cells[:, 0], cells[:, 1]].tolist()],
    }
    file = context.layout.models.write(pa.table(row, schema=MODELS), label="model")
    number = (context.arrivals.fence(ARRIVALS) or 0) + 1
    context.arrivals.commit([file], fence=(ARRIVALS, number))
    context.forget_models()
