"""Compaction: the same rows in fewer files, a bounded part of them held at a time."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity import Store
from posterity.engine.ledger.context import Context
from posterity.engine.maintenance import compact
from posterity.method.data.row_sets import Tombstones
from posterity.storage.delta.table import Snapshot, Table
from posterity.storage.files import open_files
from tests.stores import World, contents, small_store

SCHEMA = pa.schema([("shard", pa.int32()), ("step", pa.int32()), ("row", pa.int64())])

FILES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30)
@given(FILES, st.booleans(), st.integers(1, 9), st.lists(st.integers(0, 20), max_size=5), st.data())
def test_any_files_become_sorted_parts(
    files: list[list[tuple[int, int]]], tidy: bool, most: int, gone: list[int], data: Any
) -> None:
    """Sorted or not, overlapping or not: what comes out is what sorting everything gives."""
    if tidy:  # as steps write them
        files = [sorted((at, row) for _, row in rows) for at, rows in enumerate(files)]
        files = data.draw(st.permutations(files))
    with TemporaryDirectory() as folder:
        table = Table(open_files(folder), "ledger", SCHEMA, "shard")
        table.create()
        written = [
            table.write(
                pa.table({"step": [s for s, _ in rows], "row": [r for _, r in rows]}).cast(
                    pa.schema([SCHEMA.field("step"), SCHEMA.field("row")])
                ),
                label="x",
                partition=0,
            )
            for rows in files
        ]
        table.head().commit(written)
        snapshot = table.head()
        rows = compact.ordered_rows(snapshot, snapshot.files_of(0))
        removed = Tombstones(np.array(gone, dtype=np.int64))
        parts = [pa.concat_tables(groups) for groups in compact.parts_of(rows, most, removed)]
    expected = sorted(pair for rows in files for pair in rows if pair[1] not in gone)
    found = [(row["step"], row["row"]) for part in parts for row in part.to_pylist()]
    assert found == expected
    assert all(part.num_rows == most for part in parts[:-1])
    assert all(0 < part.num_rows <= most for part in parts)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    world = World()
    held = small_store(tmp_path / "store", world)
    for name in ("mid", "new", "best"):
        held.update(world.model(name), budget="50%", selector="entropy")
    held.revert(2)
    return held


def test_large_shards_become_several_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "FILE_ROWS", 25)
    before = contents(store)
    store.compact()
    assert contents(store) == before
    context = Context(open_files(store.path))
    for shard, _, _ in context.shards:
        files = context.ledger.files_of(shard)
        rows = sum(file.rows for file in files)
        assert rows > 25
        assert len(files) == -(-rows // 25)
        assert max(file.rows for file in files) <= 25
    again = store.compact()
    assert again.files_after == again.files_before
    assert store.check() == []


def test_wide_items_become_several_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payload may be large: what a file holds is bounded in bytes as well as in rows."""
    items = Context(open_files(store.path)).items
    assert items is not None
    (file,) = items.files_of(1)
    monkeypatch.setattr(compact, "FILE_BYTES", file.size // 2)
    store.add(World(items=61).table(60))
    before = contents(store)
    store.compact()
    assert contents(store) == before
    items = Context(open_files(store.path)).items
    assert items is not None
    assert len(items.files_of(1)) == 1  # one file is not split for its own sake
    assert len(items.files_of(2)) > 1
    assert store.check() == []


def test_nothing_is_sorted_or_read_whole_that_need_not_be(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps follow one another, so their files are copied row group by row group."""
    read_file, read = Snapshot.read_file, Snapshot.read
    whole: list[Any] = []

    def watched(self: Snapshot, file: Any, columns: Any) -> pa.Table:
        if self.table.name in ("ledger", "items") and not set(columns) <= {"row", "step", "id"}:
            whole.append((self.table.name, file.path))
        return read_file(self, file, columns)

    def by_partition(self: Snapshot, columns: Any = None, partition: Any = None) -> pa.Table:
        assert partition is not None or self.table.partition is None
        return read(self, columns, partition)

    store.remove(["item-30"])
    before = contents(store)
    context = Context(open_files(store.path))
    monkeypatch.setattr(Snapshot, "read_file", watched)
    monkeypatch.setattr(Snapshot, "read", by_partition)
    done = compact._compact_shards(context, context.removed, context.ledger)
    assert context.items is not None
    compact._compact_shards(context, context.removed, context.items)
    assert done == (20, 4)  # headers and three shards
    assert whole == []
    monkeypatch.undo()
    after = contents(store)
    assert [row for row in before["rows"] if row["row"] != 30] == after["rows"]
    assert after["labels"] == before["labels"]
    assert list(compact._lost_ids(Context(open_files(store.path)))) == []


def _make_step(kind: str, store: Store, world: World) -> None:
    if kind == "update":
        store.update(world.model("best"), budget=1.0)
    elif kind == "revert":
        store.revert(1)
    elif kind == "redecide":
        store.redecide("max-belief")
    elif kind == "review":
        store.review(pa.table({"id": ["item-1", "item-30"], "answer": ["cat", "dog"]}))
    else:
        store.settle()


@pytest.mark.parametrize("kind", ["update", "revert", "review", "settle", "redecide"])
def test_a_step_under_way_brings_back_nothing_of_a_purged_item(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read votes that are purged before it commits: it has to be made without them."""
    world = World()
    store = small_store(tmp_path / "store", world)
    for name in ("mid", "new"):
        store.update(world.model(name), budget="50%", rule="max-belief+confirm")
    last = {row["row"]: row for row in contents(store)["rows"]}
    pending = [row for row in last if last[row]["proposed"] is not None]
    gone = ["item-1", f"item-{pending[0]}"]
    commit = Snapshot.commit
    purged: list[int] = []

    def after_a_purge(self: Snapshot, *args: Any, **kwargs: Any) -> None:
        if self.table.name == "ledger" and not purged:
            purged.append(-1)  # the compaction commits too
            other = Store(store.path)
            other.remove(gone)
            purged[:] = [other.compact().purged]
        commit(self, *args, **kwargs)

    monkeypatch.setattr(Snapshot, "commit", after_a_purge)
    _make_step(kind, store, world)
    assert purged == [len(gone)]
    rows = set(Context(open_files(store.path)).removed.rows.tolist())
    assert store.check() == []
    assert not rows & {row["row"] for row in contents(store)["rows"]}


@pytest.mark.parametrize("kind", ["update", "revert", "review", "redecide"])
def test_a_step_made_during_a_purge_leaves_nothing_of_the_items(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the store before an item was removed, and commits before the purge does."""
    world = World()
    store = small_store(tmp_path / "store", world)
    for name in ("mid", "new"):
        store.update(world.model(name), budget="50%", rule="cost-ratio:1000")
    commit, waiting = Snapshot.commit, list[str]()

    def meanwhile(self: Snapshot, *args: Any, **kwargs: Any) -> None:
        if self.table.name == "ledger" and kwargs.get("removes") and waiting:
            step = waiting.pop()
            with monkeypatch.context() as then:
                none = Tombstones(np.zeros(0, dtype=np.int64))
                then.setattr(Context, "removed", none)
                _make_step(step, Store(store.path), world)
        commit(self, *args, **kwargs)

    monkeypatch.setattr(Snapshot, "commit", meanwhile)
    gone = [f"item-{number}" for number in range(20)]
    store.remove(gone)
    waiting.append(kind)
    assert store.compact().purged == 20
    assert not waiting
    monkeypatch.undo()
    assert store.check() == []
    assert not {row["row"] for row in contents(store)["rows"]} & set(range(20))


def test_items_removed_during_a_compaction_are_left_to_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it purges from the items it has purged from every other table before."""
    store.remove(["item-3"])
    other = Context(open_files(store.path))
    assert other.items is not None
    assert len(other.removed) == 1

    def meanwhile(_: Context) -> None:
        Store(store.path).remove(["item-30"])
        # Another compaction, that began earlier, replaces the files this one has read.
        compact._compact_shards(other, other.removed, other.items)

    monkeypatch.setattr(compact, "_purge_runs", meanwhile)
    assert store.compact().purged == 1
    monkeypatch.undo()
    assert list(compact._lost_ids(Context(open_files(store.path)))) == ["item-30"]
    assert store.compact().purged == 1
    assert store.check() == []
