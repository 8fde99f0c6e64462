"""Reading one item, and what is believed of many, without reading everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterity import Store
from posterity.engine.inspect import queries
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import ShardHistory
from posterity.storage import row_groups
from posterity.storage.files import open_files
from tests.stores import World, small_store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Files of several row groups."""
    monkeypatch.setattr(row_groups, "ROW_GROUP", 4)
    world = World()
    held = small_store(tmp_path / "store", world)
    held.update(world.model("mid"), budget="50%")
    held.update(world.model("new"), budget="50%")
    held.revert(1)
    return held


def told(store: Store, row: int) -> list[dict[str, Any]]:
    """The history of an item from the whole ledger."""
    context = Context(open_files(store.path))
    rows = [one for one in context.ledger.read().to_pylist() if one["row"] == row]
    names = [*context.classes.names, None]
    return [
        {
            "step": one["step"],
            "vote": names[-1 if one["vote"] is None else one["vote"]],
            "label": names[-1 if one["label"] is None else one["label"]],
            "belief": one["belief"],
            "entropy": one["entropy"],
        }
        for one in sorted(rows, key=lambda one: one["step"])
    ]


@pytest.mark.parametrize("compacted", [False, True])
def test_the_history_of_an_item_is_what_the_ledger_says(store: Store, compacted: bool) -> None:
    if compacted:
        store.compact()
    for row in range(0, 60, 7):
        found = store.history(f"item-{row}")
        expected = told(store, row)
        assert [{name: one[name] for name in expected[0]} for one in found] == expected
        assert [one["counts"] for one in found] == [one["step"] != 1 for one in found]


def test_a_history_reads_the_row_groups_that_may_hold_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = pq.ParquetFile.read_row_group

    def watched(self: pq.ParquetFile, group: int, *given: Any, **named: Any) -> pa.Table:
        rows = real(self, group, *given, **named)
        read.append(rows.num_rows)
        return rows

    def never(*_: Any) -> ShardHistory:
        raise AssertionError("the whole shard was read")

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", watched)
    monkeypatch.setattr(ShardHistory, "read", never)
    assert store.history("item-33")
    assert 0 < len(read) <= 6  # one a step, and to find the item
    assert sum(read) <= 24


def test_beliefs_come_shard_by_shard(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    whole = ShardHistory.read

    def watched(ledger: Any, shard: int, start: int, items: int) -> ShardHistory:
        seen.append(shard)
        return whole(ledger, shard, start, items)

    store.remove(["item-30"])
    expected = store.beliefs(top=2)
    monkeypatch.setattr(ShardHistory, "read", watched)
    context = Context(open_files(store.path))
    parts = []
    for at, part in enumerate(queries.each_belief(context, top=2)):
        assert seen == list(range(at + 1))
        parts.append(part)
    assert pa.concat_tables(parts).equals(expected)
    assert expected.column("row").to_pylist() == [row for row in range(60) if row != 30]
    some = store.beliefs(["item-58", "item-2", "item-1"], top=2)
    rows = {one["row"]: one for one in expected.to_pylist()}
    assert some.to_pylist() == [rows[2], rows[1], rows[58]]
