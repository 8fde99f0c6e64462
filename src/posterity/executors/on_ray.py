"""The executor of a Ray cluster; the only module that talks to ``ray``.

Tasks read shards and write Parquet where they run. What comes back is small: counts, histograms,
names of files. Whatever dies on the way is Ray's to start again: tasks and held arrays are made
anew from what they were made of, replicas are restarted and their unit is reported as lost.
"""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posterity.errors import InvalidParameter, MissingExtra, StoreError, Unavailable
from posterity.executors.protocol import Lost, Pool, Replicas, Result, Unit

try:
    import ray
    from ray.exceptions import RayActorError, RayError, RayTaskError
except ImportError:
    raise MissingExtra.of("Running on a Ray cluster", "ray") from None

AHEAD = 2
"""Tasks in flight for each CPU, so that none waits for the driver."""
RETRIES = 5
"""How often a task is started again when its worker or node dies."""
PATIENCE = 900.0
"""Seconds without any replica before that is an error: a cluster may be getting more nodes."""
STARTING = 5.0
"""Seconds between two looks at whether replicas that were not there are there now."""


@dataclass(frozen=True)
class OnRay:
    """A Ray cluster that somebody has started."""

    address: str

    @classmethod
    def connect(cls, given: str) -> OnRay:
        """To the cluster an executor's name means."""
        address = given.removeprefix("ray").removeprefix("://")
        if ray.is_initialized():
            return cls(given)
        if given.startswith("ray://") and not address:
            raise InvalidParameter.of("executor", "ray, ray://local or ray://HOST:PORT", given)
        try:
            if address == "local":
                ray.init(address="local", include_dashboard=False, **_QUIET)
            elif address:
                ray.init(address=given, **_QUIET)
            else:
                ray.init(address="auto", **_QUIET)
        except (ConnectionError, RayError, RuntimeError, OSError) as error:
            raise Unavailable(
                f"There is no Ray cluster at {given!r}: {str(error).splitlines()[0]}",
                hint="Start one with `ray start --head`, name one (ray://HOST:10001), or let one "
                "of this machine be started for this run alone (ray://local).",
            ) from None
        return cls(given)

    def map(self, task: Callable[..., Result], *parts: Iterable[Any]) -> Iterator[Result]:
        """In tasks of one CPU, as many in flight as keep the cluster busy."""
        shared, run = _Shared.of(task), _task()
        ahead = AHEAD * max(1, int(_resources().get("CPU", 1)))
        waiting: deque[Any] = deque()
        try:
            for given in zip(*parts, strict=True):
                if len(waiting) >= ahead:
                    yield _got(waiting.popleft())
                waiting.append(run.remote(shared, *given))
            while waiting:
                yield _got(waiting.popleft())
        finally:
            for left in waiting:  # nobody will ask for them
                ray.cancel(left)

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """In the memory of the nodes that made them; Ray moves to disk what is too much."""
        shared, run = _Shared.of(task), _task()
        held: list[Any] = []
        ahead = AHEAD * max(1, int(_resources().get("CPU", 1)))
        for at, part in enumerate(parts):
            if at >= ahead:
                ray.wait([held[at - ahead]], fetch_local=False)
            held.append(run.remote(shared, part))
        return held

    @contextmanager
    def pool(self, make: Callable[[], Callable[[Any], Any]], replicas: Replicas) -> Iterator[Pool]:
        """Actors, each with its own state."""
        pool = _Replicas(make, replicas)
        try:
            yield pool
        finally:
            pool.close()


_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@dataclass(frozen=True)
class _Shared:
    """A task that is sent to a cluster once, and unpacked once by each of its processes."""

    key: str
    held: list[Any]
    """In a list, so that Ray hands over the reference and not what it refers to."""

    @classmethod
    def of(cls, task: Callable[..., Any]) -> _Shared:
        return cls(uuid.uuid4().hex, [ray.put(task)])

    def open(self) -> Callable[..., Any]:
        """The task, in a process of the cluster."""
        if self.key not in _OPENED:
            _OPENED.clear()  # what went before is done
            _OPENED[self.key] = ray.get(self.held[0])
        return _OPENED[self.key]


_OPENED: dict[str, Callable[..., Any]] = {}


def _alone() -> None:
    """A process of a cluster is one of many on its machine: one thread for kernels and Arrow."""
    import pyarrow as pa

    os.environ["POSTERITY_THREADS"] = "1"
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2)


def _call(shared: _Shared, *given: Any) -> Any:
    _alone()
    return shared.open()(*given)


def _task() -> Any:
    return ray.remote(_call).options(num_cpus=1, max_retries=RETRIES)


def _got(reference: Any) -> Any:
    """What a task returned, or what it raised, as if it had been called here."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise _cause(error) from None
    except RayError as error:
        raise StoreError(
            f"The cluster could not do its part: {_first(error)}.",
            hint="Nothing was committed, and what was evaluated is kept; run the same again.",
        ) from None


def _cause(error: RayTaskError) -> BaseException:
    found: Any = error
    while isinstance(found, RayTaskError) and found.cause is not None:
        found = found.cause
    if isinstance(found, BaseException):
        return found
    return StoreError(f"The cluster could not do its part: {_first(error)}.")


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


class _Replica:
    """A model in a process of its own."""

    def __init__(self) -> None:
        self._work: Callable[[Any], Any] | None = None

    def begin(self, make: Callable[[], Callable[[Any], Any]], path: str) -> bool:
        """Answered when it is there; asked again after a restart, which forgets everything."""
        _alone()
        # Where the driver finds modules; on other machines there may be nothing of the name.
        if Path(path).is_dir() and path not in sys.path:
            sys.path.insert(0, path)
        if self._work is None:
            self._work = make()
        return True

    def work(self, unit: Any) -> tuple[Any, int]:
        """What it makes of a unit, and how many bytes it holds then."""
        if self._work is None:  # restarted behind our back
            os._exit(1)
        return self._work(unit), _resident()


def _resident() -> int:
    """The memory this process holds; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


_NONE = object()
"""Not a unit."""


class _Replicas:
    """Actors that are restarted when they die; whoever is free gets the next unit."""

    batches = 16

    def __init__(self, make: Callable[[], Callable[[Any], Any]], replicas: Replicas) -> None:
        self._memory = replicas.memory
        needs = {"num_cpus": replicas.cpus, "num_gpus": replicas.gpus}
        if replicas.memory is not None:
            needs["memory"] = replicas.memory
        kind: Any = ray.remote(_Replica)
        # A unit is not tried again by itself: whether it is to blame is for the caller to find out.
        kind = kind.options(max_restarts=-1, max_task_retries=0, **needs)
        self._make = ray.put(make)
        self._actors = [kind.remote() for _ in range(_room(replicas))]

    def _begin(self, actor: Any) -> Any:
        return actor.begin.remote(self._make, str(Path.cwd()))

    def run(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, Any]]:
        """One unit a replica at a time: what dies with it is one unit."""
        left, busy = iter(units), dict[Any, tuple[Any, Any]]()
        coming = {self._begin(actor): actor for actor in self._actors}
        following = next(left, _NONE)
        idle = 0.0
        while busy or following is not _NONE:
            watched = [*busy, *(() if following is _NONE else coming)]
            done, _ = ray.wait(watched, num_returns=1, timeout=STARTING)
            idle = 0.0 if done or busy else idle + STARTING
            if idle > PATIENCE:
                raise Unavailable(
                    f"No replica could be started for {PATIENCE / 60:g} minutes: no node has room "
                    "for one.",
                    hint="All votes are kept. Look at `ray status`; ask for less with --replicas, "
                    "or add nodes, and run the same again.",
                )
            for reference in done:
                if reference in coming:
                    actor = coming.pop(reference)
                    there = _is_there(reference)
                else:
                    actor, unit = busy.pop(reference)
                    made, there = self._made_of(reference, actor)
                    yield unit, made
                if not there:
                    coming[self._begin(actor)] = actor
                elif following is not _NONE:
                    busy[actor.work.remote(following)] = actor, following
                    following = next(left, _NONE)

    def _made_of(self, reference: Any, actor: Any) -> tuple[Any, bool]:
        """What became of a unit, and whether its replica can take the next."""
        try:
            made, held = ray.get(reference)
        except RayTaskError as error:
            raise _cause(error) from None
        except RayError as error:  # it died, or was ended for taking too much memory
            return Lost(_first(error)), False
        if self._memory is not None and held > self._memory:
            ray.kill(actor, no_restart=False)
            return made, False
        return made, True

    def close(self) -> None:
        """Let the processes go."""
        for actor in self._actors:
            ray.kill(actor)


def _is_there(reference: Any) -> bool:
    try:
        return bool(ray.get(reference, timeout=STARTING))
    except RayTaskError as error:
        raise _cause(error) from None
    except RayActorError as error:
        if getattr(error, "actor_init_failed", False):
            raise Unavailable(f"No replica can be started: {_first(error)}.") from None
        return False
    except RayError:
        return False


def _room(replicas: Replicas) -> int:
    """How many replicas there are to be; an error where not even one can be."""
    have = _resources()
    fits = []
    for name, need in (("CPU", replicas.cpus), ("GPU", replicas.gpus)):
        if not need:
            continue
        nodes = [float(node["Resources"].get(name, 0)) for node in _nodes() if node["Alive"]]
        if max(nodes, default=0) < need:
            raise InvalidParameter(
                f"A replica needs {need:g} {name}, and no node of the cluster has so much "
                f"(the cluster has {have.get(name, 0):g} in all).",
                hint="Ask for less (--replicas COUNT,cpus=…,gpus=…), or add such a node.",
            )
        fits.append(sum(int(there // need) for there in nodes))
    room = min(fits, default=1)
    return max(1, room if replicas.count is None else replicas.count)


def _resources() -> dict[str, float]:
    told: Any = ray.cluster_resources  # without types in Ray
    return dict(told())


def _nodes() -> list[dict[str, Any]]:
    told: Any = ray.nodes
    return list(told())
