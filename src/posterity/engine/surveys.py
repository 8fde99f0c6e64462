"""Surveys: the items of each shard a model may look at, and how much they are worth looking at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from posterity._arrays import Codes, Floats, Mask
from posterity.beliefs import ENTROPY_BITS, kept
from posterity.choosing import Block
from posterity.engine.context import Context
from posterity.engine.deciding import BLOCK_ITEMS, side_by_side
from posterity.engine.derived import state_of
from posterity.engine.history import ShardHistory
from posterity.engine.rowsets import RowSet
from posterity.engine.steps import Header, live_updates
from posterity.products import Votes
from posterity.selectors import Candidates, Selector

ValueOf = Callable[[Votes, Sequence[str], Codes], Floats]
"""What a vote could change: from votes (n, T), whose they are, and stored labels."""

BLOCK = 2**20
"""Items scored together: scores, keys and digits take several times what a shard does."""


class Survey:
    """The candidates for a step of a model, one shard in memory at a time."""

    def __init__(
        self,
        context: Context,
        model: str,
        selector: Selector,
        *,
        seed: int,
        where: str | None,
        without: Sequence[int] = (),
        since: int = 0,
        only: Sequence[int] | None = None,
        value: ValueOf | None = None,
    ) -> None:
        self._context, self._model, self._selector = context, model, selector
        self._seed, self._since = seed, since
        self._satisfied = satisfying(context, where)
        self._without = np.asarray(without, dtype=np.int64)
        self._only = None if only is None else np.asarray(only, dtype=np.int64)
        self._value = value
        self._values: dict[int, NDArray[np.float32]] = {}
        # As it is kept of items whose votes were reverted, with which these compete.
        prior = np.array([context.fit(model).prior_entropy])
        self._prior_entropy = float(kept(prior, ENTROPY_BITS)[0])

    def blocks(self) -> Iterator[Block]:
        """The eligible items, shard by shard."""
        context = self._context
        for shard, start, items in context.shards:
            state = state_of(context, shard, start, items)
            now = state.current(self._prior_entropy)
            eligible = self._allowed(start, items)
            eligible &= ~(state.voted_by(self._model) | state.pinned)
            for low in range(0, items, BLOCK):
                part = slice(low, low + BLOCK)
                rows = np.arange(start + low, start + min(low + BLOCK, items))
                candidates = Candidates(
                    entropy=now.entropy[part],
                    rows=rows,
                    step=context.head + 1,
                    seed=self._seed,
                    value=None
                    if self._value is None
                    else partial(self._values_of, shard, start, items, now.label, part),
                )
                yield Block.of(
                    self._selector.score(candidates),
                    rows=rows,
                    eligible=eligible[part],
                    first=~now.voted[part],
                    codes=now.label[part],
                )

    def _values_of(self, shard: int, start: int, items: int, label: Codes, part: slice) -> Floats:
        """What votes could change, computed once a shard: a selection looks at scores thrice."""
        value = self._value
        if shard not in self._values and value is not None:
            self._values[shard] = self._scratch(items)
            history = ShardHistory.read(self._context.ledger, shard, start, items)
            for low in range(0, items, BLOCK_ITEMS):
                rows = np.arange(low, min(low + BLOCK_ITEMS, items))
                votes = side_by_side(history.votes_of(rows, self._live), len(rows))
                models = [header.model or "" for header in self._live]
                worth = value(votes, models, label[rows])
                self._values[shard][rows] = worth
        return self._values[shard][part].astype(np.float64)

    def _scratch(self, items: int) -> NDArray[np.float32]:
        """Room on disk that is given back when nobody holds it: memory does not grow with items."""
        with TemporaryFile() as file:
            # Taken now, so that a full disk is an error here and not a crash at the first write.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(items, 1) * 4)
            else:
                file.truncate(max(items, 1) * 4)
            return np.memmap(file, dtype=np.float32, mode="r+", shape=(items,))

    @cached_property
    def _live(self) -> list[Header]:
        return live_updates(self._context.headers)

    def _allowed(self, start: int, items: int) -> Mask:
        """What may be looked at, whatever its votes."""
        allowed = ~self._context.removed.among(start, items)
        allowed[: max(0, self._since - start)] = False
        if self._only is not None:
            allowed &= np.isin(np.arange(start, start + items), self._only)
        own = (self._without >= start) & (self._without < start + items)
        allowed[self._without[own] - start] = False
        if self._satisfied is not None:
            allowed &= self._satisfied.among(start, items)
        return allowed


def satisfying(context: Context, where: str | None) -> RowSet | None:
    """The rows a filter lets through; None where there is no filter."""
    if where is None or context.items is None:
        return None
    satisfied = RowSet(context.rows)
    for part in context.items.selected(["row"], where):
        satisfied.mark(part.column("row").to_numpy())
    return satisfied
