"""What every operation on a store needs to know, read once and pinned."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.engine.executors import LOCAL, Executor
from posterity.engine.ledger.fits import Fit, Registered
from posterity.engine.ledger.item_groups import groups
from posterity.engine.ledger.steps import Header, read_headers
from posterity.errors import InvalidData, InvalidParameter, StoreError, UnknownName
from posterity.method.adapt import class_shares
from posterity.method.beliefs import priors
from posterity.method.data.arrays import among, distinct
from posterity.method.data.classes import Classes
from posterity.method.data.row_sets import Tombstones
from posterity.method.data.spec import is_whole
from posterity.method.decide import rules
from posterity.models.class_map import ModelSettings
from posterity.storage.delta.schema import Description, Layout
from posterity.storage.delta.table import Snapshot
from posterity.storage.files import Files

NEXT_ROW = "posterity.rows"
HEAD = "posterity.head"

Shard = tuple[int, int, int]
"""A shard by its number, its first row, and how many rows it has."""

_KINDS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": lambda text: text == "True",
}


class Context:
    """A store as it was when it was opened."""

    def __init__(self, files: Files, executor: Executor = LOCAL) -> None:
        self.files = files
        self.executor = executor
        self.layout = Layout(files)
        self.description = Description.read(files)
        self.ledger: Snapshot = self.layout.ledger.head()
        self.headers: list[Header] = read_headers(self.ledger)
        self._fits: dict[Any, Fit] = {}

    def again(self) -> Context:
        """The store as it is now."""
        return Context(self.files, self.executor)

    def __getstate__(self) -> dict[str, Any]:
        # What shards are worked on with is read once, here: elsewhere only a filter opens a log.
        _ = self.classes, self.rows, self.removed, self.models
        kept = {name: value for name, value in self.__dict__.items() if name != "labelled"}
        return kept | {"executor": LOCAL}

    @property
    def head(self) -> int:
        """The last step; −1 before the first."""
        return self.headers[-1].step if self.headers else -1

    @cached_property
    def classes(self) -> Classes:
        """The classes, in the order of their codes."""
        return Classes([_KINDS[row["kind"]](row["name"]) for row in self.class_rows])

    @cached_property
    def class_rows(self) -> list[dict[str, Any]]:
        """The table of classes, in the order of their codes."""
        rows = self.class_table.read().to_pylist()
        return sorted(rows, key=lambda row: row["code"])

    @cached_property
    def class_table(self) -> Snapshot:
        """The table of classes as it was read."""
        return self.layout.classes.head()

    @cached_property
    def items(self) -> Snapshot | None:
        """The items; None while there are none."""
        if not self.layout.items().exists():
            return None
        snapshot = self.layout.items(self.layout.items().head().schema).head()
        return None if snapshot.fence(NEXT_ROW) is None else snapshot

    def snapshots(self) -> list[Snapshot]:
        """Every table of the store as it is now."""
        derived = [table for table in (self.layout.items(), self.layout.labels) if table.exists()]
        return [table.head() for table in (*self.layout.fixed, *derived)]

    @property
    def id_kind(self) -> pa.DataType | None:
        """The type of the ids; None while there are no items."""
        return None if self.items is None else self.items.table.schema.field("id").type

    def read_id(self, text: str) -> str | int:
        """An id as a user types it, in the type the ids have."""
        if self.id_kind is None or not pa.types.is_integer(self.id_kind):
            return text
        if not re.fullmatch(r"-?[0-9]{1,19}", text):
            raise InvalidData(f"The store's ids are integers; got {text!r}.")
        return int(text)

    @cached_property
    def rows(self) -> int:
        """How many rows were ever given; rows are dense and never used twice."""
        return 0 if self.items is None else self.items.fence(NEXT_ROW) or 0

    @property
    def there(self) -> int:
        """How many items there are."""
        return self.rows - len(self.removed)

    @cached_property
    def removed(self) -> Tombstones:
        """Which rows are tombstones."""
        return Tombstones(self.layout.removed.head().read().column("row").to_numpy())

    @cached_property
    def shards(self) -> list[Shard]:
        """All shards, in the order of their rows."""
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
    def labelled(self) -> pa.Table:
        """The labelled votes of all models, those of registrations that were cut short included."""
        return self.labelled_table.read()

    @property
    def labelled_table(self) -> Snapshot:
        """The table of labelled votes as it is now."""
        return self.layout.labelled.head()

    @cached_property
    def models(self) -> dict[str, Registered]:
        """The registered models, in their order of arrival, each with its latest settings."""
        try:
            listed = [
                Registered(
                    row["name"],
                    row["arrival"],
                    ModelSettings.from_json(row["settings"]),
                    (row["vote"], row["truth"]),
                    row["count"],
                    row["probability"],
                )
                for row in self.arrivals.read().to_pylist()
            ]
            listed.sort(key=lambda model: (model.arrival, model.settings.revision))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(
                f"The table 'models' is damaged: {error}.", hint="Restore the store from a copy."
            ) from None
        return {model.name: model for model in listed}

    def rule(self, text: str) -> rules.Rule:
        """A rule by its name, where these are the classes."""
        return rules.among(rules.parse(text), self.classes.names)

    def fit(self, arriving: str | None = None) -> Fit:
        """What plain beliefs are formed with now, when this model arrives."""
        prior = self._prior_now(arriving)
        return self._fit(self.description.confusion, len(self.classes), prior)

    def fit_of(self, header: Header) -> Fit:
        """What a step recorded that it decided with."""
        told = header.fit
        prior = None if told["prior"] is None else tuple(told["prior"])
        base = self._fit(told["confusion"], told["classes"], prior)
        if "parameters" not in told:
            return base
        key = (base, told["parameters"], *told["order"])
        if key not in self._fits:
            self._fits[key] = base.recorded(told, self.files.read)
        return self._fits[key]

    def _fit(self, confusion: str, classes: int, prior: tuple[float, ...] | None) -> Fit:
        # One object for equal parameters: steps that share it need not fold all votes anew.
        key = (confusion, classes, prior)
        if key not in self._fits:
            self._fits[key] = Fit(self.models, confusion=confusion, classes=classes, prior=prior)
        return self._fits[key]

    def _prior_now(self, arriving: str | None) -> tuple[float, ...] | None:
        kept = self.description.prior
        if kept is None:
            return None
        if kept in (priors.LABELLED, priors.ESTIMATED):
            return self._labelled_prior(arriving, kept)
        return tuple(row["weight"] for row in self.class_rows)

    def _labelled_prior(self, arriving: str | None, kind: str) -> tuple[float, ...]:
        """The class frequencies of the arriving model's labelled items, or of the last one's."""
        newest = sorted(self.models.values(), key=lambda model: -model.arrival)
        for model in sorted(newest, key=lambda model: model.name != arriving):
            truths = model.counted(len(self.classes)).truth_counts
            if truths.sum():
                if kind == priors.ESTIMATED:  # before there is a target to estimate it from
                    return tuple(class_shares.of_labelled(truths).tolist())
                truth = np.repeat(np.arange(len(truths)), truths)
                return tuple(priors.labelled(truth, classes=self.classes).tolist())
        raise InvalidData(
            "The prior is that of the labelled set, and no model has labelled items.",
            hint="Give labelled data with a model, or make the store with a uniform prior.",
        )

    def check_step(self, step: int) -> None:
        """Refuse a step the store does not have."""
        if not self.headers:
            raise InvalidParameter.of("step", "a step of the store, which has none yet", step)
        if not is_whole(step) or step not in {header.step for header in self.headers}:
            raise InvalidParameter.of("step", f"a step of the store, 0 to {self.head}", step)

    def forget_models(self) -> None:
        """One was registered: read them again when they are next asked for."""
        for name in ("arrivals", "models", "labelled"):
            self.__dict__.pop(name, None)
        self._fits.clear()

    def model(self, name: str) -> Registered:
        """A registered model by name."""
        if name not in self.models:
            raise UnknownName.among("model", name, self.models)
        return self.models[name]

    def id_of(self, rows: pa.Array, shard: int | None = None) -> pa.Array:
        """The ids of rows, in their order; of one shard, if that is known."""
        if self.items is None:
            raise StoreError("The store has no items.")
        given = np.asarray(rows)
        wanted = distinct(given)
        size = self.description.shard_rows
        shards = {shard} if shard is not None else set(distinct(wanted // size).tolist())
        numbers = [np.zeros(0, dtype=np.int64)]
        found = [pa.array([], self.id_kind)]
        for group in groups(self.items, shards):
            low, high = group.rows or (0, self.rows)
            if np.searchsorted(wanted, low) == np.searchsorted(wanted, high, side="right"):
                continue
            held, ids = group.read()
            kept = among(held, wanted)
            numbers.append(held[kept])
            found.append(ids.filter(pa.array(kept)))
        known = np.concatenate(numbers)
        if not (known[1:] > known[:-1]).all():
            at = pc.index_in(pa.array(given), value_set=pa.array(known))
        else:
            at = pa.array(np.searchsorted(known, given), mask=~among(given, known))
        return pa.chunked_array(found).take(at)
