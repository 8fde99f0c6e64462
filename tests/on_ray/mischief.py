"""Faults on purpose: an executor whose tasks and replicas die, stall or lose their node once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from posterity.engine.executors import Executor, Pool, Replicas
from posterity.storage import failpoints

WORKER, AFTER, WRITING, NODE, STALL = "worker", "after", "writing", "node", "stall"
POOL = "replicas"
"""The stage in which the model votes; the others are named by what they do with a shard."""
PATIENCE = 120.0
"""Seconds the driver's node waits for a fault elsewhere; without one the test fails."""


@dataclass(frozen=True)
class Fault:
    """What happens, once, to a stage of the work."""

    how: str
    mark: str
    """A file that says that it has happened: whoever makes it is the one it happens to."""
    head: str
    """The node that must not die: the driver is there."""

    def strike(self) -> str:
        """What is to happen here and now, if anything."""
        import ray

        if self.how == NODE and ray.get_runtime_context().get_node_id() == self.head:
            # It waits for the other nodes, or would do all there is to do before they begin: on a
            # busy machine a replica takes many seconds to start.
            until = time.monotonic() + PATIENCE
            while not Path(self.mark).exists() and time.monotonic() < until:
                time.sleep(0.05)
            return ""
        try:
            Path(self.mark).touch(exist_ok=False)
        except FileExistsError:
            return ""
        return self.how

    def around(self, work: Callable[..., Any], *given: Any) -> Any:
        """Do the work, or die of it."""
        what = self.strike()
        if what == WORKER:
            os.kill(os.getpid(), signal.SIGKILL)
        if what == NODE:
            os.kill(os.getppid(), signal.SIGKILL)  # the raylet, and all it has with it
            os.kill(os.getpid(), signal.SIGKILL)
        if what == STALL:
            time.sleep(4)
        if what == WRITING:  # with a file half made
            os.environ[failpoints.VARIABLE] = "file.synced"
        made = work(*given)
        if what == WRITING:
            raise AssertionError("nothing was written that it could die of")
        if what == AFTER:  # all is done and nobody is told
            os.kill(os.getpid(), signal.SIGKILL)
        return made


@dataclass(frozen=True)
class _Task:
    fault: Fault
    task: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        return self.fault.around(self.task, *given)


@dataclass(frozen=True)
class _Make:
    fault: Fault
    make: Callable[[], Callable[[Any], Any]]

    def __call__(self) -> Callable[[Any], Any]:
        return _Task(self.fault, self.make())


class Mischief:
    """An executor that has a fault in one stage of what it is asked for."""

    def __init__(self, inner: Executor, fault: Fault, stage: str) -> None:
        self._inner, self._fault, self._stage = inner, fault, stage

    def _struck(self, task: Callable[..., Any]) -> Callable[..., Any]:
        return _Task(self._fault, task) if stage_of(task) == self._stage else task

    def map(self, task: Callable[..., Any], *parts: Iterable[Any]) -> Iterator[Any]:
        return self._inner.map(self._struck(task), *parts)

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        return self._inner.hold(self._struck(task), parts)

    def pool(
        self, make: Callable[[], Callable[[Any], Any]], replicas: Replicas
    ) -> AbstractContextManager[Pool]:
        struck = _Make(self._fault, make) if self._stage == POOL else make
        return self._inner.pool(struck, replicas)


def stage_of(task: Any) -> str:
    """What a task does with a shard, by the name of the function."""
    while isinstance(task, partial):
        sees = task.func.__name__ == "see"  # of a survey, which is told what to look for
        task = task.args[0] if sees else task.func
    return str(getattr(task, "__name__", type(task).__name__)).strip("_")
