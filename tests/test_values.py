"""Numbers no parameter takes are refused in one sentence, whatever they are made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posterity import Budget, CostRatio, Evaluation, Model, Store
from posterity.cli import run
from posterity.engine.executors import Replicas
from posterity.errors import InvalidData, InvalidParameter, StoreError
from posterity.method.decide.budget import Spending
from posterity.method.decide.rules import AtMost
from posterity.models.adapters import HttpEndpoint
from posterity.web.report.summary import summary
from tests.stores import World, small_store

HUGE = 10**400
MINUS = -1
STRANGE: list[Any] = [
    *(float("nan"), float("inf"), float("-inf"), MINUS, -(10**400), HUGE, 10**5000, True, False),
    *("3", "", "x", b"3", [], [1], {}, 1.5j, np.float64("nan"), np.bool_(True), object()),
    *(np.array([1, 2]), np.datetime64("2020-01-01"), Fraction(-1, 3), lambda: 3),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    world = World()
    made = small_store(tmp_path_factory.mktemp("values") / "store", world)
    made.register(world.model("new"))
    return made


NEW = World().model("new")
TAKERS: dict[str, Callable[[Store, Any], object]] = {
    "plan budget": lambda store, value: store.plan("new", budget=value),
    "plan seed": lambda store, value: store.plan("new", seed=value, budget=1),
    "update batch": lambda store, value: store.update(
        NEW, budget=5, evaluation=Evaluation(batch=value)
    ),
    "update max_errors": lambda store, value: store.update(
        NEW, budget=5, evaluation=Evaluation(max_errors=value)
    ),
    "compare money": lambda store, value: store.compare(["new"], value),
    "review count": lambda store, value: store.review_queue(value),
    "beliefs top": lambda store, value: store.beliefs(top=value),
    "flips step": lambda store, value: store.flips(value),
    "labels since": lambda store, value: store.labels(since=-2 if value is MINUS else value),
    "revert step": lambda store, value: store.revert(value),
    "summary step": lambda store, value: summary(store, value),
    "vacuum hours": lambda store, value: store.vacuum(hours=value, dry_run=True),
    "cost": lambda _, value: Model("m", cost=value, accuracy=0.5),
    "soft": lambda store, value: store.register(Model("m", soft=value, accuracy=0.5)),
    "accuracy": lambda store, value: store.register(Model("m", accuracy=value)),
    "budget": lambda _, value: Budget.of(value),
    "budget count": lambda _, value: Budget(count=value),
    "budget fraction": lambda _, value: Budget(fraction=value),
    "amount": lambda _, value: Spending(amount=value),
    "horizon": lambda _, value: Spending(amount=1.0, horizon=value),
    "cost ratio": lambda _, value: CostRatio(value),
    "neutral": lambda _, value: CostRatio(1, neutral=value),
    "rate": lambda _, value: AtMost(value),
    "confidence": lambda _, value: AtMost(0.1, value),
    "replicas": lambda _, value: Replicas(value),
    "cpus": lambda _, value: Replicas(cpus=value),
    "memory": lambda _, value: Replicas(memory=value),
    "timeout": lambda _, value: HttpEndpoint("http://host/", timeout=value),
    "retries": lambda _, value: HttpEndpoint("http://host/", retries=value),
    "concurrency": lambda _, value: HttpEndpoint("http://host/", concurrency=value),
}


TEXTS_TOO = ("budget", "plan budget", "plan seed")
"""What can be given as on the command line."""


@pytest.mark.parametrize("taker", TAKERS)
def test_strange_numbers_are_refused_in_a_sentence(store: Store, taker: str) -> None:
    for value in STRANGE:
        if isinstance(value, str) and value == "3" and taker in TEXTS_TOO:
            TAKERS[taker](store, value)
            continue
        with pytest.raises((InvalidParameter, InvalidData)) as told:
            TAKERS[taker](store, value)
        assert len(str(told.value)) < 1000


def test_a_store_has_whole_shards(tmp_path: Path) -> None:
    for at, value in enumerate([*STRANGE, 1.5, 0, 2**41]):
        with pytest.raises(InvalidParameter, match="'shard_rows' must be a whole number"):
            Store.create(tmp_path / str(at), classes=["a", "b"], shard_rows=value)
        assert not (tmp_path / str(at)).exists()


def test_numbers_of_numpy_are_numbers(store: Store, tmp_path: Path) -> None:
    whole: Any = np.int64
    single: Any = np.float32
    Store.create(tmp_path / "store", classes=["a", "b"], shard_rows=whole(10))
    assert Store(tmp_path / "store").status()["classes"] == 2
    Model("m", cost=single(0.5), accuracy=np.float64(0.5))
    assert store.plan("new", budget=whole(3), seed=whole(1)).evaluations == 3
    assert store.flips(whole(0)).num_rows == 0
    assert len(store.review_queue(whole(2))) == 2
    store.vacuum(hours=single(200), dry_run=True)


@pytest.mark.parametrize("clock", [-1.0, -1e9, -62e9])
def test_a_clock_before_1970_is_told_of(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    clock: float,
) -> None:
    """With such a clock the library under our tables panics, which is no Exception."""
    monkeypatch.setattr(time, "time", lambda: clock)
    with pytest.raises(StoreError, match="before 1970"):
        Store.create(tmp_path / "store", classes=["a", "b"])
    for command in (["status"], ["plan", "new"], ["check"]):
        assert run([command[0], store.path, *command[1:]]) == 1
        assert "Set the clock" in capsys.readouterr().err


def test_a_password_in_the_address_of_a_store_is_refused() -> None:
    for address in ("https://user:secret@host/store", "s3://key:secret@bucket/store"):
        with pytest.raises(InvalidParameter, match="must not hold a password") as told:
            Store(address)
        assert "secret" not in str(told.value)
