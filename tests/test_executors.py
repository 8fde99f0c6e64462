"""Executors by name, and the suite on those of one process; ``on_ray`` has the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posterity import Evaluation, Store
from posterity.engine.executors import LOCAL, Executor, Replicas, open_executor
from posterity.errors import InvalidParameter, MissingExtra, UnknownName
from tests.executor_suite import ExecutorSuite, Travelling
from tests.stores import NAMES, World, small_store


class TestLocal(ExecutorSuite):
    @pytest.fixture
    def executor(self) -> Executor:
        return LOCAL


class TestTravelling(ExecutorSuite):
    @pytest.fixture
    def executor(self) -> Executor:
        return Travelling()


def test_executors_have_names() -> None:
    assert open_executor(None) is open_executor("local") is LOCAL
    travelling = Travelling()
    assert open_executor(travelling) is travelling
    with pytest.raises(UnknownName, match="There is no executor 'rya'"):
        open_executor("rya")
    with pytest.raises(InvalidParameter, match="ray://HOST:PORT"):
        open_executor("ray://")


def test_replicas_are_for_clusters(tmp_path: Path) -> None:
    world = World()
    store = small_store(tmp_path / "store", world)
    with pytest.raises(InvalidParameter, match="has one replica") as caught:
        store.update(world.model("mid"), evaluation=Evaluation(replicas="2,gpus=1"))
    assert "executor='ray'" in str(caught.value)
    with pytest.raises(InvalidParameter, match="replicas"):  # also where no model is asked
        store.update(world.model("old"), evaluation=Evaluation(replicas="2,gpus=x"))


@pytest.mark.parametrize("given", ["0", "x", "2,gpus=-1", "2,cpus=nan", "2,memory=lots", "2,3"])
def test_replicas_that_make_no_sense(given: str) -> None:
    with pytest.raises(InvalidParameter, match="replicas"):
        Replicas.read(given)


def test_replicas_are_written_as_they_are_read() -> None:
    for text in ("", "3", "cpus=2", "4,cpus=0.5,gpus=1,memory=512MiB", "memory=1000"):
        assert str(Replicas.read(text or None)) == text
    assert Replicas.read(5) == Replicas(5)


def test_what_comes_back_is_small(tmp_path: Path) -> None:
    """Of 60,000 items no task returns more than a few bits each."""
    world = World(60_000, 200)
    travelling = Travelling()
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=20_000, executor=travelling)
    store.add(world.table())
    store.update(world.model("old"))
    store.update(world.model("mid"), budget="30%", rule="max-belief+confirm")
    store.settle()
    store.compact()
    # A histogram of few items is their digits, and a sample is a sample; all else is a bit an item,
    # counts, and the names of files.
    most: dict[str, int] = {}
    for name, size in travelling.tasks:
        most[name] = max(size, most.get(name, 0))
    del most["_values_of"]  # which are held where they are made
    assert {name for name, size in most.items() if size > 20_000} <= {"see", "_drawn", "_read"}
    assert most["see"] < 9 * 20_000
    assert most["Fold"] < 8_000


def test_without_ray_the_name_gives_the_install_line() -> None:
    told = _python("from posterity import executors; executors.open_executor('ray')", hide="ray")
    assert "posterity[ray]" in told.stderr
    assert "MissingExtra" in told.stderr
    assert issubclass(MissingExtra, ImportError)


def test_nothing_needs_ray_but_its_executor(tmp_path: Path) -> None:
    code = (
        "import sys, posterity, posterity.cli, posterity.engine.executors\n"
        f"store = posterity.Store.create({str(tmp_path / 'store')!r}, classes=['a', 'b'])\n"
        "store.add({'id': ['1', '2']})\n"
        "model = posterity.Model('m', accuracy=0.9, predict=lambda batch: ['a', 'b'])\n"
        "store.update(model)\n"
        "assert store.check() == []\n"
        "assert sys.modules['ray'] is None\n"
    )
    told = _python(code, hide="ray")
    assert told.returncode == 0, told.stderr


def _python(code: str, *, hide: str) -> Any:
    """A Python that does not have a package."""
    blocked = f"import sys; sys.modules[{hide!r}] = None\n"  # as if it were not installed
    return subprocess.run(
        [sys.executable, "-c", blocked + code],
        capture_output=True,
        text=True,
        check=False,
    )
