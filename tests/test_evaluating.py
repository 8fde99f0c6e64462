"""Units of a plan handed out to replicas that die: nothing is lost, and nobody blamed in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity import Evaluation, Model, Store
from posterity.engine.executors import LOCAL, Lost, Pool, Replicas
from posterity.errors import Unavailable
from tests.stores import NAMES, World


class Mortal(BaseException):
    """What a replica dies of here."""


class Dying:
    """One process that pretends: a replica that meets a deadly item is gone, a new one comes."""

    batches = 4

    def __init__(self, losses: Sequence[bool] = ()) -> None:
        self._losses = iter(losses)
        """Whether the next unit is lost with its node, before anything is asked."""

    def map(self, task: Callable[..., Any], *parts: Iterable[Any]) -> Iterator[Any]:
        return LOCAL.map(task, *parts)

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        return LOCAL.hold(task, parts)

    def pool(
        self, make: Callable[[], Callable[[Any], Any]], replicas: Replicas
    ) -> AbstractContextManager[Pool]:
        assert replicas == Replicas()
        self._work = make()
        return nullcontext(self)

    def run(self, units: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for unit in units:
            if next(self._losses, False):
                yield unit, Lost("its node is gone")
                continue
            try:
                made = self._work(unit)
            except Mortal:
                made = Lost("it died")
            yield unit, made


def store_of(path: Path, executor: Any, items: int) -> tuple[Store, World]:
    world = World(items)
    store = Store.create(path, classes=NAMES, shard_rows=16, executor=executor)
    store.add(world.table())
    return store, world


def model(world: World, deadly: set[int], asked: list[int]) -> Model:
    def predict(batch: pa.Table) -> np.ndarray:
        numbers = batch.column("number").to_numpy()
        if deadly & set(numbers.tolist()):
            raise Mortal
        asked.extend(numbers.tolist())
        found: np.ndarray = world.votes["old"][numbers]
        return found

    return Model("old", accuracy=0.6, predict=predict)


@settings(max_examples=12)
@given(
    deadly=st.sets(st.integers(0, 49), max_size=3),
    losses=st.lists(st.booleans(), max_size=3),  # else an item could be unlucky twice
    batch=st.integers(1, 20),
)
def test_every_item_is_asked_about_once_but_those_that_kill(
    deadly: set[int], losses: list[bool], batch: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked: list[int] = []
    store, world = store_of(tmp_path_factory.mktemp("dying") / "store", Dying(losses), 50)
    report = store.update(model(world, deadly, asked), evaluation=Evaluation(batch=batch))
    assert report.errors == len(deadly)
    assert report.evaluations == 50 - len(deadly)
    assert sorted(asked) == sorted(set(range(50)) - deadly)
    assert store.steps[-1].failed == sorted(deadly)
    assert store.check() == []


@pytest.mark.parametrize("items", [4, 50])
def test_a_model_that_always_dies_is_not_blamed_on_items(items: int, tmp_path: Path) -> None:
    store, world = store_of(tmp_path / "store", Dying(), items)
    with pytest.raises(Unavailable, match="died one after the other"):
        store.update(model(world, set(range(items)), []))
    assert not store.steps
    assert store.check() == []


def test_a_node_with_many_replicas_may_be_lost(tmp_path: Path) -> None:
    store, world = store_of(tmp_path / "store", Dying([True] * 40), 200)
    assert store.update(model(world, set(), []), evaluation=Evaluation(batch=1)).evaluations == 200
