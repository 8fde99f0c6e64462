"""What every executor must do, ours or a user's: subclass ``ExecutorSuite`` and give one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import cloudpickle

from posterity import Store
from posterity.engine.executors import LOCAL, Executor, Pool, Replicas
from posterity.errors import InvalidData, PosterityError
from tests.stores import NAMES, World, contents, update


def square(number: int) -> int:
    return number * number


def refuse_three(number: int) -> int:
    if number == 3:
        raise InvalidData("Three is too many.", hint="Take two.")
    return number


def ramp(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32)


def total(number: int, values: np.ndarray | None) -> float:
    return number + (0.0 if values is None else float(values.sum()))


class Counting:
    """Work that knows how often it was made, and was called."""

    def __init__(self, log: str) -> None:
        self.calls = 0
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()}\n")

    def __call__(self, unit: int) -> tuple[int, int]:
        self.calls += 1
        return unit * 10, self.calls


@dataclass(frozen=True)
class Make:
    log: str

    def __call__(self) -> Counting:
        return Counting(self.log)


class ExecutorSuite:
    """The behaviour the engine relies on."""

    @pytest.fixture
    def executor(self) -> Executor:
        raise NotImplementedError

    def test_map_is_ordered(self, executor: Executor) -> None:
        assert list(executor.map(square, range(40))) == [n * n for n in range(40)]
        assert list(executor.map(square, [])) == []

    def test_map_takes_parts_one_by_one_and_only_a_few_ahead(self, executor: Executor) -> None:
        taken = []

        def parts() -> Iterator[int]:
            for number in range(10_000):
                taken.append(number)
                yield number

        results = executor.map(square, parts())
        assert next(results) == 0
        assert next(results) == 1
        assert len(taken) < 200

    def test_errors_arrive_as_they_were_raised(self, executor: Executor) -> None:
        results = executor.map(refuse_three, range(6))
        with pytest.raises(InvalidData, match="Three is too many") as caught:
            list(results)
        assert caught.value.hint == "Take two."
        assert caught.value.to_dict()["kind"] == "invalid-data"

    def test_held_arrays_are_handed_to_tasks(self, executor: Executor) -> None:
        held = executor.hold(ramp, [3, 0, 5])
        assert list(executor.map(total, [1, 2, 3], held)) == [4.0, 2.0, 13.0]
        assert list(executor.map(total, [1, 2, 3], held)) == [4.0, 2.0, 13.0]  # as often as asked
        assert list(executor.map(total, [1, 2], [None, None])) == [1.0, 2.0]

    def test_replicas_are_made_once_and_do_every_unit(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        log = tmp_path / "made"
        with executor.pool(Make(str(log)), Replicas()) as pool:
            done = dict(pool.run(range(30)))
            assert {unit: made[0] for unit, made in done.items()} == {n: n * 10 for n in range(30)}
            assert list(pool.run([])) == []
            again = dict(pool.run([7]))
            assert again[7][0] == 70
        made = log.read_text().split()
        assert len(made) == len(set(made)) >= 1
        assert sum(1 for _, calls in [*done.values(), *again.values()] if calls == 1) <= len(made)

    def test_errors_of_replicas_arrive(self, executor: Executor) -> None:
        with (
            executor.pool(lambda: refuse_three, Replicas()) as pool,
            pytest.raises(InvalidData, match="Three is too many"),
        ):
            list(pool.run(range(6)))

    def test_a_store_is_the_same_to_the_last_bit(self, executor: Executor, tmp_path: Path) -> None:
        assert contents(story(tmp_path / "there", executor)) == reference(tmp_path / "here")


def story(path: Path, executor: Executor | str) -> Store:
    """Everything that can happen to a store."""
    world = World(220, 120)
    store = Store.create(path, classes=NAMES, shard_rows=40, executor=executor)
    store.add(world.table(0, 150))
    for name in ("old", "mid"):
        store.update(world.model(name), rule="max-belief+confirm")
    store.add(world.table(150, 220))
    update(store, world, "new", rule="cost-ratio:2+confirm", budget="40%")
    store.review({"id": ["item-3", "item-99"], "answer": ["cat", "owl"]})
    store.remove(["item-5", "item-160"])
    store.update(world.model("best"), budget="20%", where="lang = 'de'", rule="cost-ratio:2")
    store.revert(2)
    store.settle()
    store.redecide("cost-ratio:2")
    store.compact()
    assert store.check() == []
    assert len(store.review_queue(5)) == 5
    return store


_REFERENCE: list[dict[str, Any]] = []


def reference(path: Path) -> dict[str, Any]:
    """What the story leaves where everything is done in one process."""
    if not _REFERENCE:
        _REFERENCE.append(contents(story(path, LOCAL)))
    return _REFERENCE[0]


class Travelling:
    """Runs everything here, but hands it over as to another process, some tasks ahead."""

    def __init__(self, ahead: int = 3) -> None:
        self.ahead = ahead
        self.tasks: list[tuple[str, int]] = []
        """What was called, and how many bytes it returned."""

    def map(self, task: Callable[..., Any], *parts: Iterable[Any]) -> Iterator[Any]:
        sent, waiting = _sent(task), deque[bytes]()
        for given in zip(*parts, strict=True):
            if len(waiting) >= self.ahead:
                yield _received(waiting.popleft())
            waiting.append(self._call(sent, _sent(given)))
        while waiting:
            yield _received(waiting.popleft())

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        return list(self.map(task, parts))

    def pool(
        self, make: Callable[[], Callable[[Any], Any]], replicas: Replicas
    ) -> AbstractContextManager[Pool]:
        def there() -> Callable[[Any], Any]:
            work = _received(_sent(make))()  # which stays: a replica has a state
            return lambda unit: _received(_sent(work(_received(_sent(unit)))))

        return LOCAL.pool(there, replicas)

    def _call(self, task: bytes, given: bytes) -> bytes:
        called = cloudpickle.loads(task)
        try:
            made = called(*cloudpickle.loads(given))
        except PosterityError as error:
            made = error
        sent = _sent(made)
        kind = getattr(called, "func", called)  # of a partial one
        self.tasks.append((getattr(kind, "__name__", type(kind).__name__), len(sent)))
        return sent


def _sent(made: Any) -> bytes:
    dumps: Any = cloudpickle.dumps  # without types
    sent: bytes = dumps(made)
    return sent


def _received(sent: bytes) -> Any:
    made = cloudpickle.loads(sent)
    if isinstance(made, PosterityError):
        raise made
    return made
