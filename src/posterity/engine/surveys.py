"""Surveys: the items of each shard a model may look at, and how much they are worth looking at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from posterity._arrays import Mask
from posterity.beliefs import ENTROPY_BITS, kept
from posterity.choosing import Block
from posterity.engine.context import Context
from posterity.engine.derived import state_of
from posterity.engine.rowsets import RowSet
from posterity.selectors import Candidates, Selector

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
    ) -> None:
        self._context, self._model, self._selector = context, model, selector
        self._seed, self._where, self._since = seed, where, since
        self._without = np.asarray(without, dtype=np.int64)
        self._only = None if only is None else np.asarray(only, dtype=np.int64)
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
            eligible &= ~state.voted_by(self._model)
            for low in range(0, items, BLOCK):
                part = slice(low, low + BLOCK)
                rows = np.arange(start + low, start + min(low + BLOCK, items))
                candidates = Candidates(
                    entropy=now.entropy[part], rows=rows, step=context.head + 1, seed=self._seed
                )
                yield Block.of(
                    self._selector.score(candidates),
                    rows=rows,
                    eligible=eligible[part],
                    first=~now.voted[part],
                    codes=now.label[part],
                )

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

    @cached_property
    def _satisfied(self) -> RowSet | None:
        """The rows a filter lets through; it is asked once."""
        context = self._context
        if self._where is None or context.items is None:
            return None
        satisfied = RowSet(context.rows)
        for part in context.items.selected(["row"], self._where):
            satisfied.mark(part.column("row").to_numpy())
        return satisfied
