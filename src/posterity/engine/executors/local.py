"""The executor of one machine: one shard after the other, in this process.

Kernels use all cores by themselves, so that nothing is gained by more than one shard at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.engine.executors.protocol import Pool, Replicas, Result, Unit
from posterity.errors import InvalidParameter


@dataclass(frozen=True)
class Local:
    """In the process itself."""

    def map(self, task: Callable[..., Result], *parts: Iterable[Any]) -> Iterator[Result]:
        """One after the other, when asked for."""
        return (task(*given) for given in zip(*parts, strict=True))

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """In files without a name: memory does not grow with items."""
        return [_scratch(task(part)) for part in parts]

    def pool(
        self, make: Callable[[], Callable[[Any], Any]], replicas: Replicas
    ) -> AbstractContextManager[Pool]:
        """One replica: this process."""
        if replicas not in (Replicas(), Replicas(1)):
            raise InvalidParameter(
                f"The executor 'local' has one replica, this process; got replicas {replicas}.",
                hint="Replicas are for a cluster: give `executor='ray'` too.",
            )
        return nullcontext(_Here(make()))


class _Here:
    """One replica in this process; what kills it kills us, and the same call goes on then."""

    batches = 1

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def run(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, Any]]:
        """One after the other."""
        for unit in units:
            yield unit, self._work(unit)


def _scratch(values: NDArray[Any]) -> NDArray[Any]:
    """Room on disk that is given back when nobody holds it."""
    with TemporaryFile() as file:
        # Taken now, so that a full disk is an error here and not a crash at the first write.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, max(values.nbytes, 1))
        else:
            file.truncate(max(values.nbytes, 1))
        held = np.memmap(file, dtype=values.dtype, mode="r+", shape=values.shape)
    held[:] = values
    return held


LOCAL = Local()
