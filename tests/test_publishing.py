"""Publishing: only what changed is written, and what is there is always that of the ledger."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity import Store
from posterity.engine.ledger import publish
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.publish import PUBLISHED, labels_schema, publish_labels
from posterity.errors import InvalidParameter
from posterity.storage.delta.table import Snapshot, Table
from posterity.storage.files import open_files
from tests.stores import World, contents, small_store


@pytest.fixture
def world() -> World:
    return World(items=90)


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    """Shards 0, 1 and 2, the last with room; items 60 to 89 come later."""
    held = Store.create(tmp_path / "store", classes=["cat", "dog", "fox", "owl"], shard_rows=25)
    held.add(world.table(0, 60))
    held.update(world.model("old"))
    return held


def context_of(store: Store) -> Context:
    return Context(open_files(store.path))


def table_of(store: Store) -> Snapshot:
    context = context_of(store)
    return Table(context.files, "labels", labels_schema(context), "shard").head()


def files_of(store: Store) -> dict[int, list[str]]:
    table = table_of(store)
    return {shard: [file.path for file in table.files_of(shard)] for shard in table.partitions()}


def written(store: Store, before: dict[int, list[str]]) -> set[int]:
    """The shards whose files are others than before; the labels are those of the ledger."""
    after = files_of(store)
    published = table_of(store).read().drop_columns(["shard"]).sort_by("row")
    assert published.equals(store.labels())
    assert store.check() == []
    return {shard for shard in {*before, *after} if before.get(shard) != after.get(shard)}


def test_a_step_writes_the_shards_it_touched(store: Store, world: World) -> None:
    before = files_of(store)
    store.update(world.model("best"), budget=1.0, where="number >= 25 and number < 50")
    assert written(store, before) == {1}
    assert table_of(store).fence(PUBLISHED) == 1
    before = files_of(store)
    store.revert(1)
    assert written(store, before) == {1}
    assert table_of(store).fence(PUBLISHED) == 2


def test_a_compaction_does_not_hide_what_changed(store: Store, world: World) -> None:
    """Compacted files have no step in their names; their statistics tell."""
    store.update(world.model("mid"), budget=1.0, where="number < 25")
    store.compact()
    before = files_of(store)
    store.update(world.model("best"), budget=1.0, where="number >= 50")
    assert written(store, before) == {2}


def test_a_step_compacted_before_it_was_published(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(store)
    with monkeypatch.context() as patched:
        patched.setattr("posterity.engine.steps.update.publish_labels", lambda *_: False)
        store.update(world.model("best"), budget=1.0, where="number < 25")
    store.compact()
    assert files_of(store) == before
    assert publish_labels(context_of(store))
    assert written(store, before) == {0}
    assert not publish_labels(context_of(store))


def test_items_added_since_come_with_the_next_step(store: Store, world: World) -> None:
    store.add(world.table(60, 90))
    before = files_of(store)
    assert not publish_labels(context_of(store))
    store.update(world.model("best"), budget=1.0, where="number < 25")
    assert written(store, before) == {0, 2, 3}


def test_as_many_added_as_removed(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of items is the same, and still they are others."""
    before = files_of(store)
    store.add(world.table(60, 63))
    with monkeypatch.context() as patched:  # killed in between
        patched.setattr(publish, "publish_labels", lambda *_, **__: False)
        store.remove(["item-51", "item-55", "item-59"])
    store.update(world.model("best"), budget=1.0, where="number < 25")
    assert written(store, before) == {0, 2}


@pytest.mark.parametrize("last", [False, True])
def test_removed_items_leave_their_shard(store: Store, world: World, last: bool) -> None:
    gone = ["item-49", "item-48"] if last else ["item-30"]
    before = files_of(store)
    store.remove(gone)
    assert written(store, before) == {1}
    assert table_of(store).fence(PUBLISHED) == 0
    before = files_of(store)
    store.compact()
    assert written(store, before) == set()
    assert not publish_labels(context_of(store), anew=True)
    store.update(world.model("best"), budget=1.0, where="number < 25")
    assert written(store, before) == {0}


def test_a_shard_without_items(store: Store, world: World) -> None:
    store.remove([f"item-{number}" for number in range(25, 50)])
    store.compact()
    before = files_of(store)
    store.update(world.model("best"), budget=1.0, where="number < 25")
    assert written(store, before) - {1} == {0}


def test_damaged_files_are_made_anew(store: Store) -> None:
    before = files_of(store)
    Path(store.path, "labels", before[2][0]).write_bytes(b"PAR1")
    assert publish_labels(context_of(store))
    assert written(store, before) == {2}


def test_what_is_of_a_step_that_is_not_there_is_written_whole(store: Store) -> None:
    """As of a store whose ledger was restored from an older copy."""
    before = files_of(store)
    table_of(store).commit([], fences=[(PUBLISHED, 7)])
    assert publish_labels(context_of(store), anew=True)
    assert written(store, before) == {0, 1, 2}


def test_of_two_that_publish_at_once_one_begins_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one writes, somebody removes an item, makes a step and publishes it."""
    labels_of = publish.labels_of
    others: list[Any] = [lambda: store.remove(["item-7"])]
    others.append(
        lambda: store.update(world.model("best"), budget=1.0, where="number >= 25 and number < 50")
    )

    def interrupted(context: Context, shard: RowRange) -> pa.Table:
        rows = labels_of(context, shard)
        if others:
            others.pop()()
        return rows

    before = files_of(store)
    monkeypatch.setattr(publish, "labels_of", interrupted)
    store.update(world.model("mid"), budget=1.0, where="number >= 50")
    monkeypatch.undo()
    assert not others
    assert written(store, before) == {0, 1, 2}
    assert table_of(store).fence(PUBLISHED) == 2


OPERATIONS = ["first", "second", "third", "add", "remove", "revert", "compact", "kill"]


@settings(max_examples=8)
@given(st.lists(st.sampled_from(OPERATIONS), min_size=2, max_size=7), st.randoms())
def test_whatever_happens_the_labels_are_those_of_the_ledger(
    operations: list[str], random: Any
) -> None:
    """Any operations, each of them perhaps killed before it could publish."""
    world = World(items=90)
    everything = publish.publish_labels
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        store = small_store(Path(folder, "store"), World(items=60))
        for operation in operations:
            killed = random.random() < 0.4
            for module in ("steps.update", "steps.revert", "maintenance.compact", "ledger.publish"):
                patch.setattr(
                    f"posterity.engine.{module}.publish_labels",
                    (lambda *_, **__: False) if killed else everything,
                )
            rows = store.labels().column("row").to_pylist()
            if operation in ("first", "second", "third"):
                shard = ("first", "second", "third").index(operation)
                where = f"number >= {25 * shard} and number < {25 * shard + 25}"
                name = random.choice(["mid", "new", "best"])
                store.update(world.model(name), budget=4, where=where, more=True)
            elif operation == "add" and context_of(store).rows < 88:
                start = context_of(store).rows
                store.add(world.table(start, start + 2))
            elif operation == "remove" and len(rows) > 2:
                store.remove([f"item-{row}" for row in random.sample(rows, 2)])
            elif operation == "revert" and len(store.steps) > 1:
                with suppress(InvalidParameter):  # a model would have two votes on an item
                    store.revert(random.choice(range(1, len(store.steps))))
            elif operation == "compact":
                store.compact()
        patch.undo()
        everything(context_of(store), anew=True)
        told = contents(store)
        published = [
            {name: row[name] for name in ("id", "row", "label", "belief", "step")}
            for row in told["published"]
        ]
        assert published == told["labels"]
        assert store.check() == []
