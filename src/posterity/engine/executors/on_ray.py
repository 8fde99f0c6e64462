"""The executor of a Ray cluster; the only module that talks to ``ray``.

Tasks read shards and write Parquet where they run. What comes back is small: counts, histograms,
names of files. Whatever dies on the way is Ray's to start again: tasks and held arrays are made
anew from what they were made of, replicas are restarted and their unit is reported as lost.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posterity.engine.executors.protocol import Lost, Pool, Replicas, Result, Unit
from posterity.errors import InvalidParameter, MissingExtra, StoreError, Unavailable

try:
    import ray
    from ray.exceptions import ActorDiedError, RayError, RayTaskError
except ImportError:
    raise MissingExtra.of("Running on a Ray cluster", "ray") from None

AHEAD = 2
"""Tasks in flight for each CPU, so that none waits for the driver."""
RETRIES = 5
"""How often a task is started again when its worker or node dies."""
ENDING = 60.0
"""Seconds a task that nobody waits for may take to end."""
REFUSED = 10
"""Times a replica may die before it has begun."""
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
        if given.startswith("ray://") and not address:
            raise InvalidParameter.of("executor", "ray, ray://local or ray://HOST:PORT", given)
        if ray.is_initialized():
            if given not in ("ray", *_CONNECTED):
                raise InvalidParameter(
                    f"This process is connected to a Ray cluster already, not by {given!r}.",
                    hint="Give `executor='ray'` for that one, or call ray.shutdown() before.",
                )
            return cls(given)
        _CONNECTED.clear()
        try:
            # Not by Ray's client, though written so: a driver is on a node of its cluster.
            own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
            ray.init(address=address or "auto", **own, **_QUIET)
        # A ValueError is a package that Ray lacks, or an address it cannot read.
        except (ConnectionError, RayError, RuntimeError, OSError, ValueError) as error:
            raise Unavailable(
                f"There is no Ray cluster at {given!r}: {str(error).splitlines()[0]}",
                hint="Start one with `ray start --head`, join one with `ray start --address=…`, or "
                "let one of this machine be started for this run alone (ray://local).",
            ) from None
        _CONNECTED.add(given)
        return cls(given)

    def map(self, task: Callable[..., Result], *parts: Iterable[Any]) -> Iterator[Result]:
        """In tasks of one CPU, as many in flight as keep the cluster busy."""
        shared, run, ahead = _Shared.of(task), _task(), _ahead()
        waiting: deque[Any] = deque()
        try:
            for given in zip(*parts, strict=True):
                if len(waiting) >= ahead:
                    yield _got(waiting.popleft())
                waiting.append(run.remote(shared, *given))
            while waiting:
                yield _got(waiting.popleft())
        finally:
            _forget(waiting)

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """In the memory of the nodes that made them; Ray moves to disk what is too much."""
        shared, run, ahead = _Shared.of(task), _task(), _ahead()
        held: list[Any] = []
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


_CONNECTED: set[str] = set()
"""By which name this process was connected, if by us."""


def _forget(tasks: Sequence[Any]) -> None:
    """Nobody will ask for what these return; none of them writes anything after this."""
    if not tasks or not ray.is_initialized():  # Ray would start a cluster to cancel them on
        return
    for left in tasks:
        ray.cancel(left)
    ray.wait(list(tasks), num_returns=len(tasks), timeout=ENDING, fetch_local=False)


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


def _alone(threads: int = 1) -> None:
    """A process of a cluster is one of many on its machine: few threads for kernels and Arrow."""
    import pyarrow as pa

    os.environ["POSTERITY_THREADS"] = str(threads)
    pa.set_cpu_count(threads)
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

    def begin(self, make: list[Any], path: str, threads: int) -> bool:
        """Answered when it is there; asked again after a restart, which forgets everything.

        ``make`` is in a list, so that it is unpacked here, after the path is known.
        """
        _alone(threads)
        # Where the driver finds modules; on other machines there may be nothing of the name.
        if Path(path).is_dir() and path not in sys.path:
            sys.path.insert(0, path)
        if self._work is None:
            self._work = ray.get(make[0])()
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
        self._kind = kind.options(max_restarts=-1, max_task_retries=0, **needs)
        self._threads = max(1, int(replicas.cpus))
        try:
            self._make = ray.put(make)
        except TypeError as error:
            raise InvalidParameter(
                f"The model cannot be sent to a cluster: {_first(error)}.",
                hint="Give a class, which each replica makes for itself, or MODULE:NAME of one.",
            ) from None
        self._actors: set[Any] = set()
        self._refused = 0
        """Replicas that did not even begin, since one last did."""
        self._count = _room(replicas)

    def _begin(self, actor: Any | None = None) -> tuple[Any, Any]:
        """A replica, and the promise that it is there."""
        if actor is None:
            actor = self._kind.remote()
            self._actors.add(actor)
        return self._begun(actor), actor

    def _begun(self, actor: Any) -> Any:
        return actor.begin.remote([self._make], str(Path.cwd()), self._threads)

    def run(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, Any]]:
        """One unit a replica at a time: what dies with it is one unit."""
        left, busy = iter(units), dict[Any, tuple[Any, Any]]()
        had = [*self._actors, *[None] * (self._count - len(self._actors))]
        coming = dict(self._begin(actor) for actor in had)
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
                    hint="All votes are kept. Look at `ray status`; ask for less with "
                    "`Evaluation(replicas=...)`, or add nodes, and run the same again.",
                )
            for reference in done:
                if reference in coming:
                    actor = coming.pop(reference)
                    there = self._has_begun(reference)
                else:
                    actor, unit = busy.pop(reference)
                    made, there = self._made_of(reference, actor)
                    yield unit, made
                if not there:
                    # One that has left by itself, instead of dying, is not restarted by Ray.
                    coming.update([self._begin(None if self._is_gone(actor) else actor)])
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

    def _has_begun(self, reference: Any) -> bool:
        """Whether a replica is there; an error where one after the other is not."""
        try:
            ray.get(reference)
        except RayTaskError as error:
            raise _cause(error) from None
        except RayError as error:
            self._refused += 1
            if self._refused > REFUSED * self._count:
                raise Unavailable(
                    f"Replicas of the model die before they are asked anything; the last said: "
                    f"{_first(error)}.",
                    hint="All votes are kept. Try to import and load the model on a node.",
                ) from None
            time.sleep(min(1.0, 0.1 * self._refused))  # it may be on its way
            return False
        self._refused = 0
        return True

    def _is_gone(self, actor: Any) -> bool:
        """Whether Ray will not restart it."""
        try:
            ray.get(self._begun(actor), timeout=0.5)
        except ActorDiedError:
            self._actors.discard(actor)
            return True
        except RayError:
            pass
        return False

    def close(self) -> None:
        """Let the processes go."""
        for actor in self._actors if ray.is_initialized() else ():
            ray.kill(actor)


def _room(replicas: Replicas) -> int:
    """How many replicas there are to be; an error where not even one can be."""
    needs = {"CPU": replicas.cpus, "GPU": replicas.gpus, "memory": float(replicas.memory or 0)}
    needs = {name: need for name, need in needs.items() if need}
    room = 0
    for node in _nodes():
        has = {name: float(node["Resources"].get(name, 0)) for name in needs}
        if node["Alive"]:
            room += min((int(has[name] // need) for name, need in needs.items()), default=1)
    if not room:
        told = ", ".join(f"{need:g} {name}" for name, need in needs.items())
        raise InvalidParameter(
            f"A replica needs {told}, and no node of the cluster has so much.",
            hint="Ask for less (`Evaluation(replicas='1,cpus=1')`), or add such a node.",
        )
    return room if replicas.count is None else replicas.count


def _ahead() -> int:
    """How many tasks are in flight."""
    resources: Any = ray.cluster_resources  # without types in Ray
    return AHEAD * max(1, int(resources().get("CPU", 1)))


def _nodes() -> list[dict[str, Any]]:
    nodes: Any = ray.nodes
    return list(nodes())
