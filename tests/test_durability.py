"""A store can be killed at any moment: it opens, checks clean, and the same command goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterity import Evaluation, Store
from posterity.errors import StoreError
from posterity.storage import failpoints
from posterity.storage.delta.schema import FORMAT
from posterity.storage.delta.table import to_parquet
from tests.killing import (
    OPERATIONS,
    asked,
    durable_votes,
    prepared,
    run_and_kill,
    run_until,
)
from tests.stores import World, contents, small_store

KILLS = int(os.environ.get("POSTERITY_KILLS", "10"))
TORTURE = "POSTERITY_KILLS" in os.environ


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """For each operation a store just before it, and what it holds after it, undisturbed."""
    made: dict[str, tuple[Path, Any]] = {}

    def place(operation: str) -> tuple[Path, Any]:
        if operation not in made:
            before = tmp_path_factory.mktemp(operation) / "before"
            prepared(before, operation)
            after = before.with_name("after")
            shutil.copytree(before, after)
            assert run_until("", after, operation, before.with_name("log")) == 0
            made[operation] = before, contents(Store(after))
        return made[operation]

    return place


def boundaries() -> Iterator[Any]:
    """In `make test` only the commit of an update."""
    for operation in OPERATIONS:
        for name in failpoints.NAMES:
            long = operation != "update" or not name.startswith("commit")
            yield pytest.param(operation, name, marks=[pytest.mark.long] * long)


@pytest.mark.parametrize(("operation", "name"), list(boundaries()))
def test_every_durable_boundary(
    operation: str,
    name: str,
    places: Callable[[str], tuple[Path, Any]],
    tmp_path: Path,
) -> None:
    """Die at the first, second, third … time the boundary is reached, until it is not.

    What comes before a rename leaves the same folder behind each time; in the suite the first two
    of each have to do, and of the others fewer the more there are. `make torture` walks them all.
    """
    before, expected = places(operation)
    short = name in ("file.before", "file.written", "file.synced") and not TORTURE
    few = (2**power for power in count())
    for nth in (1, 2) if short else count(1) if TORTURE else few:
        path, log = tmp_path / f"{nth}", tmp_path / f"{nth}.log"
        shutil.copytree(before, path)
        code = run_until(f"{name}:{nth}", path, operation, log)
        if code == 0:
            assert nth > 1, f"{operation} never reaches {name}"
            break
        assert code == failpoints.EXIT_CODE
        store = Store(path)
        assert store.check() == []  # whatever happened, it opens and is sound
        kept = durable_votes(path)
        log.unlink(missing_ok=True)
        assert run_until("", path, operation, log) == 0
        assert kept & set(asked(log)) == set()  # no finished batch is evaluated again
        assert store.check() == []
        assert contents(store) == expected
        assert not any(path.joinpath("runs").rglob("*.parquet"))  # nothing is left behind
        shutil.rmtree(path)


@pytest.mark.long
def test_kill_at_random_moments(places: Callable[[str], tuple[Path, Any]], tmp_path: Path) -> None:
    before, expected = places("update")
    killed = 0
    for seed in count():
        path, log = tmp_path / f"{seed}", tmp_path / f"{seed}.log"
        shutil.copytree(before, path)
        killed += run_and_kill(path, log, seed)
        store = Store(path)
        assert store.check() == []
        kept = durable_votes(path)
        log.unlink(missing_ok=True)
        assert run_until("", path, "update", log) == 0
        assert kept & set(asked(log)) == set()
        assert contents(store) == expected
        shutil.rmtree(path)
        if killed >= KILLS:
            break
        assert seed < 20 * KILLS, "the process ends before it can be killed"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    world = World()
    held = small_store(tmp_path / "store", world)
    held.update(world.model("mid"), budget="30%")
    return held


def files(store: Store, table: str) -> list[Path]:
    return sorted(Path(store.path, table).rglob("*.parquet"))


@pytest.mark.parametrize("table", ["ledger", "items", "labelled"])
def test_missing_and_truncated_files_are_named(store: Store, table: str) -> None:
    victim = files(store, table)[-1]
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    (told, *_) = store.check()
    assert victim.name in told
    assert "bytes instead of" in told or "damaged" in told
    victim.unlink()
    told = " ".join(store.check())
    assert victim.name in told
    victim.write_bytes(whole)
    assert store.check() == []


def test_a_damaged_ledger_is_an_error_that_names_the_file(store: Store) -> None:
    victim = next(path for path in files(store, "ledger") if "shard=0" in str(path))
    victim.write_bytes(b"PAR1 nonsense")
    with pytest.raises(StoreError, match=victim.name):
        store.labels()


def test_a_changed_label_is_found(store: Store) -> None:
    """Somebody rewrote history: what the votes give is not what the ledger says."""
    victim = next(path for path in files(store, "ledger") if "shard=1" in str(path))
    rows = pq.ParquetFile(victim).read()
    forged = pa.array([(code + 1) % 4 for code in rows.column("label").to_pylist()], pa.int32())
    at = rows.column_names.index("label")
    victim.write_bytes(to_parquet(rows.set_column(at, "label", forged)))
    assert any("another label than its votes give" in line for line in store.check())


def test_another_format_is_refused(store: Store) -> None:
    description = Path(store.path, "posterity.json")
    told = json.loads(description.read_text())
    for other in (FORMAT - 1, FORMAT + 1):
        description.write_text(json.dumps({"format": other, "what": "nobody knows"}))
        with pytest.raises(StoreError) as refused:
            Store(store.path)
        said = f"The store at '{store.path}' has format {other}; this version reads only {FORMAT}."
        assert str(refused.value) == f"{said} Use the version that made it."
    description.write_text(json.dumps(told))
    assert store.check() == []
    description.write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        Store(store.path)


@pytest.mark.parametrize(
    ("error", "message"), [(28, "No space left on device"), (30, "Read-only file system")]
)
def test_a_full_disk_and_a_read_only_folder(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: int, message: str
) -> None:
    """The store still opens at its last step; with room again the same command goes on."""
    world = World()
    asked: list[int] = []
    before = contents(store)
    calls = count(1)
    fsync = os.fsync

    def failing(handle: int) -> None:
        if next(calls) > 8:
            raise OSError(error, os.strerror(error))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreError, match=f"cannot be written: {message}"):
        store.update(world.model("new", asked.extend), budget="50%", evaluation=Evaluation(batch=6))
    monkeypatch.undo()
    assert contents(store) == before
    assert store.check() == []
    report = store.update(
        world.model("new", asked.extend), budget="50%", evaluation=Evaluation(batch=6)
    )
    assert report.step == 2
    assert len(asked) <= 30 + 6  # at most the batch that could not be kept is asked again
    assert store.check() == []
