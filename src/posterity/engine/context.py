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
from posterity.errors import InvalidData, StoreError, UnknownName
from posterity.models import Model, encode_column
from posterity.tables.delta import Snapshot
from posterity.tables.files import Files
from posterity.tables.layout import LABELLED, MODELS, Description, Layout
from posterity.tables.sources import column, ids_of, read_rows
from posterity.votes import MISSING

NEXT_ROW = "posterity.rows"
HEAD = "posterity.head"
ARRIVALS = "posterity.models"

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
        bare = self.layout.items().head()
        schema = pa.schema(bare._handle.schema().to_arrow())
        return self.layout.items(schema).head()

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
    def models(self) -> dict[str, Registered]:
        """The registered models, in their order of arrival."""
        rows = self.layout.models.head().read().to_pylist()
        known = len(self.classes)
        listed = {}
        for row in sorted(rows, key=lambda row: row["arrival"]):
            counts = np.zeros((known, known), dtype=np.int64)
            counts[row["vote"], row["truth"]] = row["count"]
            settings = json.loads(row["settings"])
            listed[row["name"]] = Registered(row["name"], row["arrival"], settings, counts)
        return listed

    @cached_property
    def confusions(self) -> dict[str, Confusion]:
        """Each model's confusion, by the store's estimator."""
        estimator = self.description.confusion
        return {name: model.confusion(estimator) for name, model in self.models.items()}

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
    """Make a model known: its labelled votes first, then the row that makes them visible."""
    if model.labelled is None:
        raise InvalidData(
            f"The model '{model.name}' has no labelled votes, so nobody knows how it errs.",
            hint="Give a table with the truth and its vote on a few labelled items.",
        )
    rows = read_rows(model.labelled, "labelled")
    classes = context.classes
    truth, votes = (
        encode_column(column(rows, name, "labelled data"), classes, f"labelled column '{name}'")
        for name in (model.truth, model.vote)
    )
    if (truth == MISSING).any():
        raise InvalidData(f"The labelled data of '{model.name}' has rows without a truth.")
    keyed = model.key in rows.column_names
    keys = (
        [str(key) for key in ids_of(rows, model.key, "labelled data").to_pylist()]
        if keyed
        else [None] * len(truth)
    )
    counts = confusion.count(truth, votes, classes=classes)
    if not counts.sum():
        raise InvalidData(f"The labelled data of '{model.name}' holds no vote.")
    labelled = pa.table(
        {"model": [model.name] * len(truth), "key": keys, "truth": truth, "vote": votes},
        schema=LABELLED,
    )
    digest = hashlib.sha256(repr(labelled.drop_columns(["model"]).to_pydict()).encode()).hexdigest()
    known = context.models.get(model.name)
    if known is not None:
        if known.settings["digest"] == digest:
            return
        raise InvalidData(
            f"A model '{model.name}' is registered with other labelled votes.",
            hint="Give the new one another name; the votes it cast stay explained by its own.",
        )
    layout = context.layout
    arrivals = layout.models.head()
    layout.labelled.head().commit([layout.labelled.write(labelled, label=f"labelled-{digest[:8]}")])
    cells = np.argwhere(counts)
    settings = {
        "digest": digest,
        "keyed": keyed,
        "cost": model.cost,
        "labelled": len(truth),
        "predict": model.predict if isinstance(model.predict, str) else None,
    }
    row = {
        "name": [model.name],
        "arrival": [len(context.models)],
        "settings": [json.dumps(settings)],
        "vote": [cells[:, 0].tolist()],
        "truth": [cells[:, 1].tolist()],
        "count": [counts[cells[:, 0], cells[:, 1]].tolist()],
    }
    arrivals.commit(
        [layout.models.write(pa.table(row, schema=MODELS), label="model")],
        fence=(ARRIVALS, len(context.models) + 1),
    )
    context.__dict__.pop("models", None)
    context.__dict__.pop("confusions", None)
