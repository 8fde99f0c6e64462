"""What a check finds, and that it holds one shard at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.engine.ledger import history
from posterity.engine.ledger.context import Context
from posterity.storage.delta.schema import LEDGER
from posterity.storage.delta.table import Snapshot
from posterity.storage.files import open_files
from tests.stores import World, small_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three shards, two updates, one of them reverted, and an update after that."""
    world = World()
    held = small_store(tmp_path / "store", world)
    held.update(world.model("mid"), budget="50%")
    held.update(world.model("new"), budget="50%")
    held.revert(1)
    held.update(world.model("best"), budget="30%")
    assert held.check() == []
    return held


def context_of(store: Store) -> Context:
    return Context(open_files(store.path))


def forge(table: Snapshot, rows: pa.Table, shard: int) -> None:
    """Make rows part of a table, whatever they say."""
    table.commit([table.table.write(rows, label="forged", partition=shard)])


def ledger_rows(step: int, rows: Sequence[int], **columns: Any) -> pa.Table:
    count = len(rows)
    told: dict[str, Any] = {
        "row": list(rows),
        "step": [step] * count,
        "vote": [0] * count,
        "label": [0] * count,
        "belief": [0.5] * count,
        "entropy": [0.5] * count,
    } | {name: [value] * count for name, value in columns.items()}
    whole = {name: told.get(name, [None] * count) for name in LEDGER.names}
    return pa.table(whole, schema=LEDGER)


@pytest.mark.parametrize(
    ("shard", "rows", "message"),
    [
        (1, ledger_rows(1, [26, 26]), "Step 1 writes an item of shard 1 twice."),
        (1, ledger_rows(0, [99]), "Step 0 writes an item that does not exist in shard 1."),
        (0, ledger_rows(0, [-1]), "Step 0 writes an item that does not exist in shard 0."),
        (2, ledger_rows(7, [51]), "The ledger has rows of step 7, which has no header."),
        (9, ledger_rows(0, [230]), "The ledger has rows of shard 9, which does not exist."),
        (9, ledger_rows(8, [230]), "The ledger has rows of step 8, which has no header."),
    ],
)
def test_ledger_rows_that_cannot_be(store: Store, shard: int, rows: pa.Table, message: str) -> None:
    forge(context_of(store).ledger, rows, shard)
    assert message in store.check()


def test_votes_for_no_class_and_none_at_all(store: Store) -> None:
    context = context_of(store)
    free = sorted(set(range(25)) - set(history_rows(context, 0, 4)))
    forge(context.ledger, ledger_rows(4, free[:1], vote=17), 0)
    assert "Step 4 has votes for classes that do not exist." in store.check()


def history_rows(context: Context, shard: int, step: int) -> list[int]:
    table = context.ledger.read(["row", "step"], shard).to_pylist()
    return [row["row"] for row in table if row["step"] == step]


def test_two_votes_that_count(store: Store) -> None:
    """Those of a reverted step do not: only what counts is counted."""
    context = context_of(store)
    header = context.headers[0]
    again = type(header)(**(vars(header) | {"step": 5, "run": "forged"}))
    forge(context.ledger, again.to_row(), -1)
    rows = history_rows(context_of(store), 1, 0)[:1]
    forge(context_of(store).ledger, ledger_rows(5, rows), 1)
    told = store.check()
    assert "The model 'old' has two votes that count on an item of shard 1." in told
    assert not any("'mid' has two votes" in line for line in told)


def change_items(store: Store, change: Callable[[pa.Table], pa.Table], shard: int) -> None:
    items = context_of(store).items
    assert items is not None
    own = [file for file in items.data_files() if file.partition["shard"] == str(shard)]
    rows = change(items.read(partition=shard))
    items.commit([items.table.write(rows, label="forged", partition=shard)], removes=own)


def test_rows_without_items_and_with_two(store: Store) -> None:
    change_items(store, lambda rows: rows.slice(3), 1)
    change_items(store, lambda rows: pa.concat_tables([rows, rows.slice(4, 2)]), 2)
    told = store.check()
    assert "Row 25 has no item (3 such rows)." in told
    assert "Row 54 is given to more than one item." in told


def test_rows_of_another_shard(store: Store) -> None:
    shifted = lambda rows: rows.set_column(  # noqa: E731
        rows.column_names.index("row"), "row", pa.array(np.arange(25, 50))
    )
    change_items(store, shifted, 0)
    told = store.check()
    assert "Shard 0 holds rows of another shard." in told
    assert "Row 0 has no item (25 such rows)." in told


def test_published_labels_of_another_shard_or_none(store: Store) -> None:
    labels = context_of(store).layout.labels().head()
    schema = labels.schema
    table = type(labels.table)(labels.table.files, "labels", schema, "shard").head()
    forge(table, table.read(partition=1).slice(0, 2), 7)
    assert store.check() == ["The published labels are not those of the ledger."]


def test_a_check_reads_one_shard_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a whole table of items, votes or labels; the labels before a step are computed once."""
    read, each = Snapshot.read, Snapshot.each
    whole: list[str] = []

    def watched_read(self: Snapshot, columns: Any = None, partition: int | None = None) -> pa.Table:
        if partition is None and self.table.partition:
            whole.append(self.table.name)
        return read(self, columns, partition)

    def watched_each(self: Snapshot, columns: Any, partition: int | None = None) -> Any:
        if partition is None and self.table.partition:
            whole.append(self.table.name)
        return each(self, columns, partition)

    def never(*_: Any) -> None:
        raise AssertionError("recomputed from the first step on")

    monkeypatch.setattr(Snapshot, "read", watched_read)
    monkeypatch.setattr(Snapshot, "each", watched_each)
    monkeypatch.setattr(history.ShardHistory, "before", never)
    assert store.check() == []
    assert whole == []


def test_a_model_that_no_longer_waits_for_labelled_votes(tmp_path: Path) -> None:
    """Its accuracy was stated before it voted on the labelled items."""
    store = Store.create(tmp_path / "store", classes=["cat", "dog"])
    store.add(pa.table({"id": ["a", "b", "c"]}))
    store.register(Model("new", labelled=pa.table({"id": ["a", "b"], "truth": ["cat", "dog"]})))
    store.register(Model("new", accuracy=0.9))
    assert not store.check()
