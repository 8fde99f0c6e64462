"""Whatever dies, an update completes or goes on, and leaves what an undisturbed one leaves.

A few faults in the tests, all of them in `make torture`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from posterity import Evaluation, Model, Store
from posterity.engine.executors import LOCAL, Executor, open_executor
from posterity.errors import Unavailable
from tests.on_ray.conftest import Nodes
from tests.on_ray.mischief import AFTER, NODE, POOL, STALL, WORKER, WRITING, Fault, Mischief
from tests.stores import NAMES, World, contents, registered

pytestmark = pytest.mark.usefixtures("nodes")

TORTURE = "POSTERITY_KILLS" in os.environ
ITEMS = 160

RULE = "cost-ratio:2+confirm"


def prepared(path: Path) -> Store:
    """A store that is to be updated, with flips pending."""
    world = World(ITEMS, 120)
    store = Store.create(path, classes=NAMES, shard_rows=32)
    store.add(world.table())
    store.update(world.model("old"))
    store.update(world.model("mid"), budget="50%", rule="max-belief+confirm")
    return store


def updated(path: Path, executor: Executor | str, model: Model | None = None) -> Store:
    store = Store(path, executor=executor)
    arriving = World(ITEMS, 120).model("new") if model is None else model
    store.update(arriving, budget="60%", rule=RULE, evaluation=Evaluation(batch=4))
    return store


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("undisturbed") / "store"
    prepared(path)
    return contents(updated(path, LOCAL))


# What an update asks an executor for, in turn.
STAGES = (
    "drawn",
    "values_of",
    "count_digits",
    "before",
    "count_of_shard",
    "count_left",
    "count_undecided",
    "Fold",
    "write",
)
FAULTS = [
    *((stage, WORKER) for stage in STAGES),
    ("values_of", NODE),
    ("values_of", AFTER),
    ("count_digits", STALL),
    ("before", NODE),
    ("Fold", WRITING),
    ("Fold", NODE),
    ("Fold", AFTER),
    ("write", WRITING),
    *((POOL, how) for how in (WORKER, AFTER, WRITING, NODE, STALL)),
]
FEW = [("Fold", WRITING), pytest.param(POOL, NODE, marks=pytest.mark.long)]


@pytest.mark.parametrize(("stage", "how"), FAULTS if TORTURE else FEW)
def test_whatever_dies(stage: str, how: str, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    import ray

    prepared(tmp_path / "store")
    mark = tmp_path / "mark"
    fault = Fault(how, str(mark), ray.get_runtime_context().get_node_id())
    store = updated(tmp_path / "store", Mischief(open_executor("ray"), fault, stage))
    assert mark.exists()
    assert store.check() == []
    assert contents(store) == undisturbed


def test_arrays_held_by_a_lost_node_are_made_again(nodes: Nodes) -> None:
    """Of a size that is kept where it is made, and not sent to the driver."""
    executor = open_executor("ray")
    held = executor.hold(_ramp, range(9))
    assert list(executor.map(_sum, held)) == [_sum(_ramp(at)) for at in range(9)]
    nodes.lose_one()
    assert list(executor.map(_sum, held)) == [_sum(_ramp(at)) for at in range(9)]


def _ramp(start: int) -> np.ndarray:
    return np.arange(start, start + 2**19, dtype=np.float64)


def _sum(values: np.ndarray) -> float:
    return float(values.sum())


def _deadly(number: int, die: Callable[[], None]) -> Model:
    """A model that takes its process with it when it looks at one item."""
    world = World(ITEMS, 120)
    votes = world.votes["new"]

    def predict(batch: pa.Table) -> np.ndarray:
        numbers = batch.column("number").to_numpy()
        if number in numbers:
            die()
        found: np.ndarray = votes[numbers]
        return found

    return Model("new", labelled=world.labelled_table("new"), predict=predict)


def _leave() -> None:
    os._exit(1)


def _segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.long
@pytest.mark.parametrize("die", [_leave, _segfault] if TORTURE else [_segfault])
def test_an_item_that_kills_whoever_looks_at_it_costs_itself(
    die: Callable[[], None], tmp_path: Path
) -> None:
    store = prepared(tmp_path / "store")
    plan = store.plan(registered(store, World(ITEMS, 120).model("new")), budget="60%", rule=RULE)
    poisoned = int(plan.rows[len(plan.rows) // 2])
    store = Store(tmp_path / "store", executor="ray")
    asked: dict[str, Any] = {"budget": "60%", "rule": RULE, "evaluation": Evaluation(batch=4)}
    report = store.update(_deadly(poisoned, die), **asked)
    assert "replicas of the model die over it" in report.note
    last = store.log()[-1]
    assert last.failed == [poisoned]
    assert last.report["evaluations"] == len(plan.rows) - 1
    assert last.report["note"] == "1 item failed"  # messages may hold what must be forgotten
    assert store.check() == []


@pytest.mark.skipif(not TORTURE, reason="in `make torture`")
def test_a_model_that_leaves_by_itself_is_given_up(tmp_path: Path) -> None:
    prepared(tmp_path / "store")
    world = World(ITEMS, 120)
    model = Model("new", labelled=world.labelled_table("new"), predict=lambda _: sys.exit(0))
    with pytest.raises(Unavailable, match="died one after the other"):
        updated(tmp_path / "store", "ray", model)
    assert Store(tmp_path / "store").check() == []


@pytest.mark.skipif(not TORTURE, reason="in `make torture`: twenty processes have to die")
def test_a_model_that_always_dies_is_given_up(tmp_path: Path) -> None:
    prepared(tmp_path / "store")
    world = World(ITEMS, 120)
    model = Model("new", labelled=world.labelled_table("new"), predict=lambda _: os._exit(1))
    with pytest.raises(Unavailable, match="died one after the other"):
        updated(tmp_path / "store", "ray", model)
    store = Store(tmp_path / "store")
    assert store.check() == []
    assert store.status()["step"] == 1


@pytest.mark.long
def test_a_replica_that_leaks_is_replaced(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    world, log = World(ITEMS, 120), tmp_path / "made"
    votes = world.votes["new"]

    class Leaking:
        def __init__(self) -> None:
            self.held: list[np.ndarray] = []
            with log.open("a") as file:
                file.write("made\n")

        def __call__(self, batch: pa.Table) -> np.ndarray:
            self.held.append(np.ones(40 * 2**17))  # 40 MiB a batch
            found: np.ndarray = votes[batch.column("number").to_numpy()]
            return found

    prepared(tmp_path / "store")
    store = Store(tmp_path / "store", executor="ray")
    model = Model("new", labelled=world.labelled_table("new"), predict=cast(Any, Leaking))
    store.update(
        model, budget="60%", rule=RULE, evaluation=Evaluation(batch=1, replicas="1,memory=900MiB")
    )
    assert len(log.read_text().split()) > 2
    assert contents(store) == undisturbed


# Where a driver is killed: after its plan, among its votes, before and after its commit.
DRIVER = ["file.synced:2", "commit.before:1", "commit.made:1", "commit.synced:1"]


@pytest.mark.long
@pytest.mark.parametrize("failpoint", DRIVER if TORTURE else DRIVER[1:2])
def test_a_driver_that_dies(
    failpoint: str, nodes: Nodes, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    prepared(tmp_path / "store")
    dead = drive(nodes, tmp_path, POSTERITY_FAILPOINT=failpoint)
    assert dead.wait(600) == 137
    alive = drive(nodes, tmp_path)
    assert alive.wait(600) == 0
    store = Store(tmp_path / "store")
    assert store.check() == []
    assert contents(store) == undisturbed


@pytest.mark.skipif(not TORTURE, reason="in `make torture`")
def test_a_driver_killed_among_votes_asks_for_none_again(
    nodes: Nodes, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    prepared(tmp_path / "store")
    log = tmp_path / "asked"
    driver = drive(nodes, tmp_path, PAUSE="0.3")
    while not list((tmp_path / "store" / "runs").glob("*/votes-*")) and driver.poll() is None:
        time.sleep(0.01)
    driver.kill()
    driver.wait(60)
    time.sleep(4)  # what its replicas were at may still come, and dies with them
    durable = sum(1 for _ in (tmp_path / "store" / "runs").glob("*/votes-*"))
    assert durable
    before = log.read_text().split()
    log.unlink()
    assert drive(nodes, tmp_path).wait(600) == 0
    again = set(before) & set(log.read_text().split())
    assert len(again) <= 4 * 3  # one batch of each replica was not durable yet
    assert contents(Store(tmp_path / "store")) == undisturbed


def drive(nodes: Nodes, folder: Path, **settings: str) -> subprocess.Popen[bytes]:
    """The update in a process of its own, which is a driver of the cluster."""
    given = [sys.executable, "-m", "tests.on_ray.driver", str(folder), nodes.address]
    return subprocess.Popen(given, env=os.environ | settings, stdout=subprocess.DEVNULL)


@pytest.mark.skipif(not TORTURE, reason="in `make torture`")
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers(workers: int, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """In a process of its own, since this one has a cluster."""
    prepared(tmp_path / "store")
    given = [sys.executable, "-m", "tests.on_ray.driver", str(tmp_path), f"local:{workers}"]
    assert subprocess.run(given, check=False, timeout=300).returncode == 0
    store = Store(tmp_path / "store")
    assert store.check() == []
    assert contents(store) == undisturbed
