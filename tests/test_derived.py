"""Derived state from the cache, against the ledger read anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity import Store
from posterity.engine.ledger import state as ledger_state
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.state import state_of
from posterity.storage import cache as storage_cache
from posterity.storage.files import LocalFiles, open_files
from tests.stores import World, small_store

SHARD = 25


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(storage_cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path, cache: Path, world: World) -> Store:
    held = small_store(tmp_path / "store", world)
    for name in ("mid", "new", "best"):
        held.register(world.model(name))
    shutil.rmtree(cache, ignore_errors=True)
    return held


def opened(store: Store) -> Context:
    return Context(open_files(store.path))


def assert_same(context: Context) -> None:
    """What the cache says of each shard is what its ledger says, bit for bit."""
    live = context.live_updates
    for shard, start, items in context.shards:
        history = ShardHistory.read(context.ledger, shard, start, items)
        state = state_of(context, shard, start, items)
        wanted, found = history.current(live, 1.25), state.current(1.25)
        for name in vars(wanted):
            one, other = getattr(wanted, name), getattr(found, name)
            assert one.dtype == other.dtype
            assert one.tobytes() == np.ascontiguousarray(other).tobytes(), name
        for model in ("old", "mid", "new", "best", "nobody"):
            mask = history.voted_by(live, model)
            assert mask.tolist() == state.voted_by(model).tolist()
        pins = history.pins(context.live_reviews)
        assert (pins >= 0).tolist() == state.pinned.tolist()


class Reads:
    """The ledger's data files that were read."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def taken(self) -> list[str]:
        paths, self.paths = self.paths, []
        return paths


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted, plain = Reads(), LocalFiles.read

    def read(self: LocalFiles, path: str) -> pa.Buffer:
        if path.startswith("ledger/shard=") and "shard=-1/" not in path:
            counted.paths.append(path)
        return plain(self, path)

    monkeypatch.setattr(LocalFiles, "read", read)
    return counted


def files_of(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def test_a_second_plan_reads_no_ledger(store: Store, reads: Reads, cache: Path) -> None:
    first = store.plan("new", budget="20%", selector="entropy")
    assert len(reads.taken()) == 3  # one step, three shards, once for all passes
    assert [path.name for path in files_of(cache)] == [f"shard-00000{at}.cache" for at in range(3)]
    again = store.plan("mid", budget="20%", selector="random")
    assert reads.taken() == []
    assert len(again.rows) == len(first.rows) == 12


def test_after_an_update_only_its_files_are_read(
    store: Store, world: World, reads: Reads, cache: Path
) -> None:
    store.plan("new", budget="20%", selector="entropy")
    store.update("mid", budget="50%", votes=world.votes_table("mid"))
    reads.taken()
    store.plan("new", budget="20%", selector="entropy")
    assert {Path(path).name.split("-")[1] for path in reads.taken()} == {"000001"}
    assert len(files_of(cache)) == 3
    assert_same(opened(store))


def test_a_step_elsewhere_leaves_a_shard_as_it_was(
    store: Store, world: World, reads: Reads
) -> None:
    store.plan("new", budget="20%", selector="entropy")
    store.update("mid", budget="100%", where="number < 20", votes=world.votes_table("mid"))
    reads.taken()
    store.plan("new", budget="20%", selector="entropy")
    assert [path.split("/")[1] for path in reads.taken()] == ["shard=0"]


def test_plans_are_the_same_without_a_cache(
    store: Store, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    kept = [store.plan(name, budget=0.3, selector="entropy") for name in ("new", "new", "mid")]
    assert kept[0].id == kept[1].id
    shutil.rmtree(cache)
    monkeypatch.setenv(storage_cache.VARIABLE, "off")
    anew = [store.plan(name, budget=0.3, selector="entropy") for name in ("new", "new", "mid")]
    assert [plan.to_dict() for plan in anew] == [plan.to_dict() for plan in kept]
    assert not cache.exists()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "short": lambda held: held[:-1],
    "long": lambda held: held + b"\0",
    "head only": lambda held: held[:40],
    "no magic": lambda held: b"X" + held[1:],
    "no description": lambda held: held[:60] + b"\xff\xfe" + held[62:],
    "another version": lambda held: held.replace(b'"format": 1', b'"format": 9'),
    "nonsense": lambda _: bytes(range(256)) * 50,
    "huge description": lambda held: held[:16] + b"\xff" * 8 + held[24:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_anew(store: Store, cache: Path, reads: Reads, damage: str) -> None:
    assert_same(opened(store))
    for path in files_of(cache):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert_same(opened(store))
    reads.taken()
    store.plan("new", budget="20%", selector="entropy")
    assert reads.taken() == []  # whole again


def test_what_a_cache_says_of_itself_must_be_true(
    store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of another store, another shard or another format are not believed."""
    assert_same(opened(store))
    first, second, _ = files_of(cache)
    first.write_bytes(second.read_bytes())
    assert_same(opened(store))
    monkeypatch.setattr(ledger_state, "FORMAT", 9)
    assert_same(opened(store))


def test_a_folder_that_cannot_be_written_is_no_cache(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(storage_cache.VARIABLE, str(tmp_path / "file"))
    assert_same(opened(store))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv(storage_cache.VARIABLE, str(tmp_path / "other"))
    monkeypatch.setattr("posterity.storage.cache.os.fsync", full)
    assert_same(opened(store))
    assert files_of(tmp_path / "other") == []


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(storage_cache.VARIABLE, str(tmp_path))
    assert storage_cache.cache_folder("abc") == tmp_path / "abc"
    assert storage_cache.cache_folder("../abc") is None
    monkeypatch.delenv(storage_cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/users/cache")
    assert storage_cache.cache_folder("abc") == Path("/users/cache/posterity/abc")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/users/me")
    assert storage_cache.cache_folder("abc") == Path("/users/me/.cache/posterity/abc")
    monkeypatch.setenv(storage_cache.VARIABLE, "off")
    assert storage_cache.cache_folder("abc") is None


def test_a_reader_of_the_past_leaves_the_present_alone(
    store: Store, world: World, cache: Path, reads: Reads
) -> None:
    """It is pinned to an older head; the cache is of a newer one by now."""
    past = opened(store)
    store.update("mid", budget="50%", votes=world.votes_table("mid"))
    assert_same(opened(store))
    kept = [path.read_bytes() for path in files_of(cache)]
    assert_same(past)
    assert [path.read_bytes() for path in files_of(cache)] == kept
    reads.taken()
    store.plan("new", budget="20%", selector="entropy")
    assert reads.taken() == []


def test_a_mapped_file_may_be_replaced(store: Store, world: World, cache: Path) -> None:
    past = opened(store)
    shard, start, items = past.shards[0]
    state_of(past, shard, start, items)
    held = state_of(past, shard, start, items)
    before = held.current(0.5).entropy.copy()
    store.update("mid", budget="100%", votes=world.votes_table("mid"))
    assert_same(opened(store))
    shutil.rmtree(cache)
    assert held.current(0.5).entropy.tolist() == before.tolist()


def test_leftovers_of_processes_that_died_are_swept(
    store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same(opened(store))
    path = files_of(cache)[0]
    beside = path.with_name(f".{path.name}.123")
    beside.write_bytes(b"half")
    path.unlink()
    assert_same(opened(store))
    assert beside.exists()  # somebody may be at work
    monkeypatch.setattr(storage_cache, "FORGOTTEN", -1.0)
    path.unlink()
    assert_same(opened(store))
    assert not beside.exists()


def test_steps_out_of_order_are_read_together(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.update("mid", budget="50%", votes=world.votes_table("mid"))
    monkeypatch.setattr(
        ledger_state, "_order", lambda file: tuple(-ord(sign) for sign in file.path)
    )
    assert_same(opened(store))


def rows_of(store: Store) -> int:
    return Context(open_files(store.path)).rows


def review(store: Store, world: World) -> Any:
    """A few answers, others each time."""
    ids = store.review_queue(4).items["id"].to_pylist()
    truth = [world.truth[int(one.split("-")[1])] for one in ids]
    return store.review({"id": ids, "answer": truth}) if ids else None


def operations(world: World) -> Iterator[tuple[str, Callable[[Store], Any]]]:
    for name in ("mid", "new", "best"):
        for share in ("20%", "100%"):

            def update(store: Store, name: str = name, share: str = share) -> Any:
                votes = world.votes_table(name)
                # A fifth of the votes leaves flips pending, and makes those that were.
                rule = "replace" if share == "100%" else "replace+confirm"
                return store.update(name, budget=share, votes=votes, more=True, rule=rule)

            yield f"{name} {share}", update
    yield "settle", lambda store: store.settle()
    yield "review", lambda store: review(store, world)
    yield "revert", lambda store: store.revert(len(store.steps) - 1)
    yield "revert the first", lambda store: store.revert(0)
    yield "compact", lambda store: store.compact()
    yield "add", lambda store: store.add(world.table(rows_of(store), rows_of(store) + 7))
    yield "remove", lambda store: store.remove(store.labels()["id"][3].as_py())


@settings(max_examples=12)
@given(data=st.data())
def test_the_cache_is_the_ledger_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    world, folder = World(items=200), tmp_path_factory.mktemp("derived")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(storage_cache.VARIABLE, str(folder / "cache"))
        store = Store.create(
            folder / "store", classes=["cat", "dog", "fox", "owl"], shard_rows=SHARD
        )
        store.add(world.table(0, 60))
        for name in ("old", "mid", "new", "best"):
            store.register(world.model(name))
        store.update("old", votes=world.votes_table("old"))
        named = dict(operations(world))
        for _ in range(data.draw(st.integers(1, 6))):
            named[data.draw(st.sampled_from(sorted(named)))](store)
            if data.draw(st.booleans()):  # else it lags behind
                assert_same(opened(store))
        assert_same(opened(store))
        assert_same(opened(store))
