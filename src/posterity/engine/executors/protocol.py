"""What an executor is: an ordered map over shards, arrays that stay put, and model replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from posterity.errors import InvalidParameter
from posterity.method.data.spec import Spec, read_number, read_whole, real_number, whole_number

Result = TypeVar("Result")
Unit = TypeVar("Unit")

BYTES = {"GiB": 2**30, "MiB": 2**20}
MOST = 10**6
"""Replicas, and CPUs or GPUs of one of them; no cluster has more."""


@dataclass(frozen=True)
class Lost:
    """What became of a unit of work whose replica died over it, or with it."""

    reason: str


class Pool(Protocol):
    """Replicas of a model that wait for work."""

    batches: int
    """How many batches make a good unit of work: what is asked for again when a replica dies."""

    def run(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, Any]]:
        """Each unit with what a replica made of it, or ``Lost``, as they are done.

        Units are taken from the iterator one by one, when a replica is free.
        """


class Executor(Protocol):
    """Where the work on shards is done."""

    def map(self, task: Callable[..., Result], *parts: Iterable[Any]) -> Iterator[Result]:
        """What the task makes of each part, in the order of the parts, a few ahead at most.

        As the builtin ``map``; arrays made by ``hold`` are handed over as the arrays they are.
        """

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Arrays that stay where they are made, for ``map`` to hand them to tasks."""

    def pool(
        self, make: Callable[[], Callable[[Any], Any]], replicas: Replicas
    ) -> AbstractContextManager[Pool]:
        """Replicas, each of which calls ``make`` once and what it returned for every unit."""


@dataclass(frozen=True)
class Replicas:
    """How many copies of a model vote side by side, and what each of them needs.

    >>> print(Replicas.read("4,gpus=0.5,memory=8GiB"))
    4,gpus=0.5,memory=8GiB
    >>> Replicas.read("2,cpus=4")
    Replicas(count=2, cpus=4.0, gpus=0.0, memory=None)
    """

    count: int | None = None
    """None: as many as there is room for."""
    cpus: float = 1.0
    gpus: float = 0.0
    memory: int | None = None
    """Bytes it may hold; one that holds more is replaced after the unit it is at."""

    def __post_init__(self) -> None:
        if self.count is not None:
            whole_number(self.count, "replicas", least=1, most=MOST)
        for name in ("cpus", "gpus"):
            real_number(getattr(self, name), f"replicas {name}", most=MOST)
        if self.memory is not None:
            whole_number(self.memory, "replicas memory", least=1)

    @classmethod
    def read(cls, given: Replicas | int | str | None) -> Replicas:
        """A number of replicas, or that with what each needs: ``4,cpus=2,gpus=1,memory=8GiB``."""
        if given is None:
            return cls()
        if isinstance(given, Replicas):
            return given
        allowed = "a number, or that with needs: 4,cpus=2,gpus=1,memory=8GiB"
        spec = Spec.parse(f"replicas:{given}", "replicas")
        spec.refuse_extras("replicas", value=True, options=("cpus", "gpus", "memory"))
        try:
            needs = {
                name: read_number(spec.options[name])
                for name in ("cpus", "gpus") & spec.options.keys()
            }
            memory = _bytes(spec.options["memory"]) if "memory" in spec.options else None
            count = None if spec.value is None else read_whole(spec.value)
        except (ValueError, OverflowError):
            raise InvalidParameter.of("replicas", allowed, given) from None
        return cls(count, memory=memory, **needs)

    def __str__(self) -> str:
        told = [] if self.count is None else [str(self.count)]
        told += [f"cpus={self.cpus:g}"] if self.cpus != 1 else []
        told += [f"gpus={self.gpus:g}"] if self.gpus else []
        if self.memory is not None:
            unit, size = next(
                ((unit, size) for unit, size in BYTES.items() if self.memory % size == 0), ("", 1)
            )
            told.append(f"memory={self.memory // size}{unit}")
        return ",".join(told)


def _bytes(text: str) -> int:
    for unit, size in BYTES.items():
        if text.endswith(unit):
            return int(read_number(text.removesuffix(unit)) * size)
    return read_whole(text)
