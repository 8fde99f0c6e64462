"""The suite on a cluster of three nodes; and what only a cluster has."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from posterity import Evaluation, Model, Store
from posterity.cli.demo.detectors import LOADERS, UNKNOWN, Detector, to_class
from posterity.cli.demo.texts import CLASSES, OTHER, read_texts
from posterity.engine.executors import Executor, open_executor
from posterity.errors import InvalidParameter, Unavailable
from tests.executor_suite import ExecutorSuite
from tests.stores import NAMES, World, contents

pytestmark = pytest.mark.usefixtures("nodes")


class TestThreeNodes(ExecutorSuite):
    @pytest.fixture
    def executor(self) -> Executor:
        return open_executor("ray")


def test_tasks_run_on_several_nodes() -> None:
    assert len(set(open_executor("ray").map(_node, range(12)))) > 1


def _node(_: int) -> str:
    import ray

    time.sleep(0.5)
    return str(ray.get_runtime_context().get_node_id())


@dataclass(frozen=True)
class OnCard:
    """A class of models that need a graphics card and a while to load."""

    votes: np.ndarray
    log: str

    def loaded(self) -> type:
        """What is made once by each replica."""
        votes, log = self.votes, self.log

        class Loaded:
            def __init__(self) -> None:
                import ray

                assert ray.get_gpu_ids(), "no card was given to this replica"
                with Path(log).open("a") as file:
                    file.write(f"{os.getpid()}\n")

            def __call__(self, batch: pa.Table) -> np.ndarray:
                time.sleep(0.02)
                found: np.ndarray = votes[batch.column("number").to_numpy()]
                return found

        return Loaded


def test_a_model_on_cards_is_loaded_once_by_each_replica(tmp_path: Path) -> None:
    world, log = World(300), tmp_path / "loaded"
    plain = world.model("old")
    model = Model(
        "old", labelled=plain.labelled, predict=OnCard(world.votes["old"], str(log)).loaded()
    )
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=64, executor="ray")
    store.add(world.table())
    seen: list[tuple[int, int]] = []
    report = store.update(
        model,
        progress=lambda *told: seen.append(told),
        evaluation=Evaluation(batch=3, replicas="2,cpus=0,gpus=1"),
    )
    assert report.evaluations == 300
    made = log.read_text().split()
    assert len(made) == len(set(made)) == 2  # not once a batch, of which there were a hundred
    assert seen[-1] == (300, 300)
    assert len(seen) >= 6
    assert store.check() == []


def test_needs_no_node_has_are_told(tmp_path: Path) -> None:
    world = World(30)
    store = Store.create(tmp_path / "store", classes=NAMES, executor="ray")
    store.add(world.table())
    with pytest.raises(InvalidParameter, match=r"needs 1 CPU, 4 GPU, and no node .* has so much"):
        store.update(world.model("old"), evaluation=Evaluation(replicas="1,gpus=4"))


@pytest.mark.long
def test_a_real_detector_votes_the_same_on_a_cluster(tmp_path: Path) -> None:
    found = read_texts()
    at = np.random.default_rng(1).permutation(len(found.text))[:400]
    texts = [found.text[one] for one in at]
    items = pa.table({"id": [str(one) for one in at], "text": texts})
    stores = []
    for executor in ("local", "ray"):
        store = Store.create(
            tmp_path / executor, classes=CLASSES, shard_rows=128, executor=executor
        )
        store.add(items)
        model = Model(
            "py3langid",
            accuracy=0.8,
            predict=cast(Any, Py3langid),
            class_map=to_class("py3langid"),
            other=OTHER,
        )
        assert store.update(model, evaluation=Evaluation(batch=32)).evaluations == 400
        assert store.check() == []
        stores.append(contents(store))
    assert stores[0] == stores[1]
    truth = {str(one): found.truth[one] for one in at}
    right = sum(row["label"] == truth[row["id"]] for row in stores[1]["labels"])
    assert right > 200


class Py3langid:
    """The demo's detector, loaded when it is made."""

    def __init__(self) -> None:
        guess, codes = LOADERS["py3langid"]()
        self._detector = Detector("py3langid", tuple(sorted({*codes, UNKNOWN})), guess)

    def __call__(self, batch: pa.Table) -> list[str]:
        return list(self._detector(batch.column("text").to_pylist()))


def test_errors_of_items_are_records_as_on_one_machine(tmp_path: Path) -> None:
    world = World(90)
    votes = world.votes["old"]

    def fussy(batch: pa.Table) -> np.ndarray:
        numbers = batch.column("number").to_numpy()
        if 17 in numbers or 64 in numbers:
            raise ValueError("unreadable")
        found: np.ndarray = votes[numbers]
        return found

    model = Model("old", labelled=world.labelled_table("old"), predict=fussy)
    stores = []
    for executor in ("local", "ray"):
        store = Store.create(tmp_path / executor, classes=NAMES, shard_rows=25, executor=executor)
        store.add(world.table())
        report = store.update(model, evaluation=Evaluation(batch=7))
        assert (report.evaluations, report.errors) == (88, 2)
        stores.append(contents(store))
    assert stores[0] == stores[1]


def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    world = World(30)
    store = Store.create(tmp_path / "store", classes=NAMES, executor="ray")
    store.add(world.table())
    model = Model("old", labelled=world.labelled_table("old"), predict=cast(Any, Unloadable))
    with pytest.raises(Unavailable, match="no weights"):
        store.update(model)
    assert store.check() == []


class Unloadable:
    def __init__(self) -> None:
        raise OSError("no weights")


def test_a_cluster_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", _nobody)
    with pytest.raises(Unavailable, match="There is no Ray cluster at 'ray'") as caught:
        open_executor("ray")
    assert "ray://local" in str(caught.value)


def _nobody(**_: object) -> None:
    raise ConnectionError("Could not find any running Ray instance.")
