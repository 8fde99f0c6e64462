"""What every operation on a store needs to know, read once and pinned."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from posterity.engine.executors import LOCAL, Executor
from posterity.engine.ledger import steps
from posterity.engine.ledger.fits import Registered, StoreFits
from posterity.engine.ledger.steps import Header, read_headers
from posterity.errors import InvalidData, InvalidParameter, StoreError, UnknownName
from posterity.method.data.arrays import Rows
from posterity.method.data.classes import Classes
from posterity.method.data.row_sets import Tombstones
from posterity.method.data.spec import is_whole
from posterity.method.decide import rules, selectors
from posterity.method.decide.defaults import DEFAULT_RULE, DEFAULT_SELECTOR
from posterity.method.decide.policy import Policy
from posterity.models.class_map import ModelSettings
from posterity.storage.delta.schema import Description, Layout
from posterity.storage.delta.table import Snapshot, Table
from posterity.storage.files import Files

NEXT_ROW = "posterity.rows"
HEAD = "posterity.head"
PURGED = "posterity.purged"
"""Of the ledger: how often rows of removed items were purged from it."""

_KINDS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": lambda text: text == "True",
}


class RowRange(NamedTuple):
    """A shard: its number, its first row, and how many rows it has."""

    number: int
    start: int
    items: int

    def within(self, rows: Rows) -> slice:
        """Where its rows are among ascending ones."""
        return slice(*np.searchsorted(rows, [self.start, self.start + self.items]))


class Context:
    """A store as it was when it was opened."""

    def __init__(
        self, files: Files, executor: Executor = LOCAL, earlier: Context | None = None
    ) -> None:
        """``earlier``: the same store as it was before; what nobody has changed is not read."""
        self.files = files
        self.executor = executor
        self.layout = Layout(files)
        self._tables: dict[str, Snapshot] = {} if earlier is None else dict(earlier._tables)
        self.description: Description = (
            Description.read(files) if earlier is None else earlier.description
        )
        self.ledger: Snapshot = self._head(self.layout.ledger)
        self.headers: list[Header]
        if earlier is not None and earlier.ledger is self.ledger:
            self.headers = earlier.headers
        else:
            self.headers = read_headers(self.ledger)

    def again(self) -> Context:
        """The store as it is now."""
        return Context(self.files, self.executor, self)

    def __getstate__(self) -> dict[str, Any]:
        # What shards are worked on with is read once, here: elsewhere only a filter opens a log.
        _ = self.classes, self.rows, self.removed, self.models
        kept = {name: value for name, value in self.__dict__.items() if name != "labelled"}
        return kept | {"executor": LOCAL, "_tables": {}}

    def _head(self, table: Table) -> Snapshot:
        """A table as it is now."""
        known = self._tables.get(table.name)
        self._tables[table.name] = table.head() if known is None else known.again()
        return self._tables[table.name]

    # Steps

    @property
    def head(self) -> int:
        """The last step; −1 before the first."""
        return self.headers[-1].step if self.headers else -1

    @cached_property
    def undone(self) -> set[int]:
        """Steps that a revert has undone."""
        return steps.masked(self.headers)

    @cached_property
    def live_updates(self) -> list[Header]:
        """The updates whose votes count, in order."""
        return steps.live_updates(self.headers)

    @cached_property
    def live_reviews(self) -> list[Header]:
        """The reviews whose answers count, in order."""
        return steps.live_reviews(self.headers)

    @property
    def untuned(self) -> Policy:
        """What every store begins with."""
        beliefs = self.description.beliefs
        selector, rule = DEFAULT_SELECTOR[beliefs], DEFAULT_RULE[beliefs]
        return Policy(selectors.parse(selector), rules.parse(rule))

    @cached_property
    def policy(self) -> Policy:
        """What the store selects and decides by, where nothing else is asked for."""
        for header in steps.live_tunes(self.headers)[-1:]:
            return Policy(selectors.parse(header.selector or ""), rules.parse(header.rule or ""))
        return self.untuned

    def check_step(self, step: object, parameter: str = "step", *, other: str = "") -> None:
        """Refuse a step the store does not have; ``other``: what is allowed besides."""
        if not self.headers:
            raise InvalidParameter.of(parameter, "a step of the store, which has none yet", step)
        if not is_whole(step) or step not in {header.step for header in self.headers}:
            allowed = f"a step of the store, 0 to {self.head}{other}"
            raise InvalidParameter.of(parameter, allowed, step)

    def header(self, step: int) -> Header:
        """Of a step."""
        return next(header for header in self.headers if header.step == step)

    # Classes

    @cached_property
    def classes(self) -> Classes:
        """The classes, in the order of their codes."""
        return Classes([_KINDS[row["kind"]](row["name"]) for row in self.class_rows])

    @cached_property
    def class_rows(self) -> list[dict[str, Any]]:
        """The table of classes, in the order of their codes."""
        rows = self.class_table.content.to_pylist()
        return sorted(rows, key=lambda row: row["code"])

    @cached_property
    def class_table(self) -> Snapshot:
        """The table of classes as it was read."""
        return self._head(self.layout.classes)

    def rule(self, text: str) -> rules.Rule:
        """A rule by its name, where these are the classes."""
        return rules.among(rules.parse(text), self.classes.names)

    # Items

    @cached_property
    def items(self) -> Snapshot | None:
        """The items; None while there are none."""
        if not self.layout.items().exists():
            return None
        snapshot = self._head(self.layout.items()).self_described()
        return None if snapshot.fence(NEXT_ROW) is None else snapshot

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
        return Tombstones(self._head(self.layout.removed).content.column("row").to_numpy())

    @cached_property
    def shards(self) -> list[RowRange]:
        """All shards, in the order of their rows."""
        size = self.description.shard_rows
        return [
            RowRange(start // size, start, min(size, self.rows - start))
            for start in range(0, self.rows, size)
        ]

    # Models

    @cached_property
    def arrivals(self) -> Snapshot:
        """The table of models as it was read."""
        return self._head(self.layout.models)

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
                for row in self.arrivals.content.to_pylist()
            ]
            listed.sort(key=lambda model: (model.arrival, model.settings.revision))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(
                f"The table 'models' is damaged: {error}.", hint="Restore the store from a copy."
            ) from None
        return {model.name: model for model in listed}

    def model(self, name: str) -> Registered:
        """A registered model by name."""
        if name not in self.models:
            raise UnknownName.among("model", name, self.models)
        return self.models[name]

    @cached_property
    def labelled(self) -> pa.Table:
        """The labelled votes of all models, those of registrations that were cut short included."""
        return self.labelled_table.read()

    @property
    def labelled_table(self) -> Snapshot:
        """The table of labelled votes as it is now."""
        return self._head(self.layout.labelled)

    @cached_property
    def fits(self) -> StoreFits:
        """What beliefs are formed with."""
        weights = [row["weight"] for row in self.class_rows]
        return StoreFits(self.models, self.description, self.classes, weights, self.files.read)

    def forget_models(self) -> None:
        """One was registered: read them again when they are next asked for."""
        for name in ("arrivals", "models", "labelled", "fits"):
            self.__dict__.pop(name, None)

    # All tables

    def snapshots(self) -> list[Snapshot]:
        """Every table of the store as it is now."""
        derived = [table for table in (self.layout.items(), self.layout.labels()) if table.exists()]
        return [table.head() for table in (*self.layout.fixed, *derived)]
