"""Dense: the same beliefs in plain NumPy, a float32 logarithm for every item and class.

As fast as it could be made: blocks that stay in the cache, buffers that are made once, and only
the rows of a confusion that some vote needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.history import History
from posterity import Confusion, priors
from posterity.method.data.arrays import Codes

Singles = NDArray[np.float32]
BLOCK_CELLS = (2**16, 2**18, 2**20, 2**22)
"""Log-beliefs in a block, of which the fastest is taken: 256 KiB to 16 MiB."""


class Buffers:
    """Room for a block, made once for each thread."""

    def __init__(self, items: int, classes: int) -> None:
        self.logs, self.some, self.rows, self.weights = (
            np.empty((items, classes), dtype=np.float32) for _ in range(4)
        )
        self.within = np.arange(items)


@dataclass(frozen=True, eq=False)
class Summary:
    """What is written for each item."""

    entropy: Singles
    best: Codes
    belief_best: Singles
    belief_stored: Singles

    @classmethod
    def room(cls, items: int) -> Summary:
        """To be filled."""
        best = np.empty(items, dtype=np.int32)
        entropy, belief_best, stored = (np.empty(items, dtype=np.float32) for _ in range(3))
        return cls(entropy, best, belief_best, stored)


class Dense:
    """A history's first items, ready to be folded."""

    def __init__(self, history: History, items: int) -> None:
        self.items, self.classes = items, history.setting.classes
        self.stored = history.stored[:items]
        self.prior = priors.log(history.prior).astype(np.float32)
        self.out = Summary.room(items)
        self.tables: list[Singles] = []
        self.codes: list[NDArray[np.int64]] = []
        """By model: the row of its table for each item's vote, −1 where there is none."""
        for cast, confusion in zip(history.hard[:items].T, history.confusions, strict=True):
            occurring, place = np.unique(cast, return_inverse=True)
            missing = int(occurring[0] < 0)
            self.tables.append(_log_rows(confusion, occurring[missing:]))
            self.codes.append(place - missing)
        self.beliefs: Singles = np.empty((0, 0), dtype=np.float32)

    def as_votes_arrive(self, start: int, stop: int, buffers: Buffers) -> None:
        """Vote after vote, everything known after each; the block stays in the cache."""
        logs = buffers.logs[: stop - start]
        logs[:] = self.prior
        for table, codes in zip(self.tables, self.codes, strict=True):
            here = codes[start:stop]
            voted = np.flatnonzero(here >= 0)
            if len(voted) == len(here):
                self._add(logs, table, here, buffers)
                self._summarise(logs, np.arange(start, stop), buffers)
            elif len(voted):
                some = buffers.some[: len(voted)]
                # Clipped, or NumPy would check the places first and copy the result once more.
                np.take(logs, voted, axis=0, out=some, mode="clip")
                self._add(some, table, here[voted], buffers)
                self._summarise(some, start + voted, buffers)
                logs[voted] = some

    def at_once(self, start: int, stop: int, buffers: Buffers) -> None:
        """All votes added up, and looked at once."""
        logs = buffers.logs[: stop - start]
        logs[:] = self.prior
        for table, codes in zip(self.tables, self.codes, strict=True):
            here = codes[start:stop]
            voted = np.flatnonzero(here >= 0)
            if len(voted) == len(here):
                self._add(logs, table, here, buffers)
            elif len(voted):
                rows = buffers.rows[: len(voted)]
                np.take(table, here[voted], axis=0, out=rows, mode="clip")
                logs[voted] += rows
        self._summarise(logs, np.arange(start, stop), buffers)

    def keep_beliefs(self) -> None:
        """Log-beliefs of all items, as a store of them would hold: items × classes."""
        self.beliefs = np.tile(self.prior, (self.items, 1))

    def one_vote(self, start: int, stop: int, buffers: Buffers) -> None:
        """One more vote on every item, into the log-beliefs that are kept."""
        logs = self.beliefs[start:stop]
        self._add(logs, self.tables[0], self.codes[0][start:stop], buffers)
        self._summarise(logs, np.arange(start, stop), buffers)

    def _add(self, logs: Singles, table: Singles, codes: Any, buffers: Buffers) -> None:
        rows = buffers.rows[: len(logs)]
        np.take(table, codes, axis=0, out=rows, mode="clip")
        np.add(logs, rows, out=logs)

    def _summarise(self, logs: Singles, items: Any, buffers: Buffers) -> None:
        within, weights = buffers.within[: len(logs)], buffers.weights[: len(logs)]
        best = logs.argmax(axis=1)
        # Relative to the highest from here on, which is also what keeps single precision enough.
        logs -= logs[within, best][:, None]
        np.exp(logs, out=weights)
        total = weights.sum(axis=1)
        self.out.entropy[items] = np.log(total) - np.einsum("nk,nk->n", weights, logs) / total
        self.out.best[items] = best
        self.out.belief_best[items] = 1 / total
        self.out.belief_stored[items] = weights[within, self.stored[items]] / total


Fold = Callable[[int, int, Buffers], None]


def spread(fold: Fold, dense: Dense, cells: int, *, threads: int = 1) -> Callable[[], None]:
    """The work of folding all items, a block at a time, ready to be called."""
    size = max(1, min(cells // dense.classes, -(-dense.items // threads)))
    buffers = [Buffers(size, dense.classes) for _ in range(threads)]

    def some(thread: int) -> None:
        for start in range(thread * size, dense.items, threads * size):
            fold(start, min(start + size, dense.items), buffers[thread])

    def work() -> None:
        if threads == 1:
            some(0)
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(some, range(threads)))

    return work


def _log_rows(confusion: Confusion, votes: Iterable[int]) -> Singles:
    """Log π(i, ·) for these votes: with many classes the whole table would not fit."""
    listed = list(votes)
    rows = np.tile(np.log(confusion.common).astype(np.float32), (len(listed), 1))
    for at, vote in enumerate(listed):
        cells = slice(confusion.starts[vote], confusion.starts[vote + 1])
        rows[at, confusion.truths[cells]] = np.log(confusion.values[cells])
    return rows
