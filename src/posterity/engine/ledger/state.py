"""Derived state: where the items of a shard stand, kept outside the store between calls.

It is a function of the shard's ledger files and of the steps that count. What is kept says of which
files and steps it was made; it is used only where the pinned ledger has the same, brought forward
where the ledger has only later steps besides, and made anew otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import LABELS, PROPOSALS, Current, ShardHistory
from posterity.method.data.arrays import Codes, Mask
from posterity.method.data.row_sets import packed, unpacked
from posterity.method.data.votes import MISSING
from posterity.storage.cache import Cached, cache_folder, read_cache, write_cache
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.table import Snapshot

FORMAT = 1
Live = dict[int, str | None]
"""The models of the updates that count; None: a review that counts."""
STEP = re.compile(r"/step-(\d+)-")


@dataclass(frozen=True, eq=False)
class State:
    """Where the items of a shard stand after the last step."""

    items: int
    arrays: dict[str, NDArray[Any]]
    models: list[str]

    def current(self, prior_entropy: float) -> Current:
        """As ``ShardHistory.current`` has it."""
        written = self._mask("written")
        return Current(
            self.arrays["label"],
            self.arrays["belief"],
            np.where(written, self.arrays["entropy"], prior_entropy),
            self._mask("voted"),
            self.arrays["changed"],
            *_spread(self.arrays, self.items),
        )

    def voted_by(self, model: str) -> Mask:
        """Which items have a vote of a model that counts."""
        if model not in self.models:
            return np.zeros(self.items, dtype=np.bool_)
        return self._mask(f"voted-{self.models.index(model)}")

    @property
    def pinned(self) -> Mask:
        """Which items have a label a person decided."""
        return self._mask("pinned")

    def _mask(self, name: str) -> Mask:
        return unpacked(self.arrays[name], self.items)


def state_of(context: Context, shard: int, start: int, items: int) -> State:
    """Where the items of a shard stand: from the cache as far as it goes, else from the ledger."""
    ledger, live = context.ledger, _live(context)
    files = ledger.files_of(shard)
    folder = cache_folder(context.description.store)
    path = None if folder is None else folder / f"shard-{shard:06}.cache"
    kept = None if path is None else read_cache(path)
    whose = {"format": FORMAT, "store": context.description.store, "shard": shard, "start": start}
    making = None
    if kept is not None and _fits(kept, whose, items, files, live):
        have = {name for name, _ in kept.about["files"]}
        missing = [file for file in files if file.path not in have]
        if not missing and kept.about["items"] == items:
            return State(items, kept.arrays, kept.about["models"])
        making = _Making.of(kept, items)
        if not making.follow(ledger, start, missing, live):
            making = None
    if making is None:
        making = _Making(items)
        if not making.follow(ledger, start, files, live):
            making = _Making(items)
            making.apply(ledger.read_files(files, LABELS), start, live)
    arrays = making.packed()
    # Whoever reads an older head leaves the cache to those who read a newer one.
    newer = kept is not None and _about(kept, whose) and kept.about["head"] > context.head
    if path is not None and not newer:
        told = {
            **whose,
            "items": items,
            "head": context.head,
            "files": [[file.path, file.size] for file in files],
            "live": [[step, model] for step, model in live.items()],
            "models": list(making.by_model),
        }
        write_cache(path, told, arrays)
    return State(items, arrays, list(making.by_model))


def _live(context: Context) -> Live:
    updates: Live = {header.step: header.voter for header in context.live_updates}
    return updates | dict.fromkeys(header.step for header in context.live_reviews)


def _fits(
    kept: Cached, whose: dict[str, Any], items: int, files: Sequence[DataFile], live: Live
) -> bool:
    """Whether the ledger is what the cache was made of, perhaps with more after it."""
    about = kept.about
    if not _about(kept, whose) or about["items"] > items:
        return False
    now = {file.path: file.size for file in files}
    counting = [[step, model] for step, model in live.items() if step <= about["head"]]
    same = all(now.get(path) == size for path, size in about["files"])
    return same and about["live"] == counting


def _about(kept: Cached, whose: dict[str, Any]) -> bool:
    return all(kept.about.get(name) == value for name, value in whose.items())


class _Making:
    """State that later steps are still written into."""

    def __init__(self, items: int) -> None:
        """Before the first step."""
        self.items = items
        self.now = Current.nothing(items, 0.0)
        self.written = np.zeros(items, dtype=np.bool_)
        self.pinned = np.zeros(items, dtype=np.bool_)
        self.by_model: dict[str, Mask] = {}
        self._last = 0
        """No step before it may follow."""

    @classmethod
    def of(cls, kept: Cached, items: int) -> _Making:
        """After the steps a cache knows; items that came since have none."""
        making, old = cls(items), kept.about["items"]
        for name, array in making._arrays.items():
            if name not in PROPOSALS:
                held = kept.arrays[name]
                array[:old] = unpacked(held, old) if array.dtype == np.bool_ else held
        for name, spread in zip(PROPOSALS, _spread(kept.arrays, items), strict=True):
            making._arrays[name][:] = spread
        for at, model in enumerate(kept.about["models"]):
            making._voters(model)[:old] = unpacked(kept.arrays[f"voted-{at}"], old)
        making._last = kept.about["head"] + 1
        return making

    @property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {**vars(self.now), "written": self.written, "pinned": self.pinned}

    def _voters(self, model: str) -> Mask:
        return self.by_model.setdefault(model, np.zeros(self.items, dtype=np.bool_))

    def follow(self, ledger: Snapshot, start: int, files: Iterable[DataFile], live: Live) -> bool:
        """Write files into the state one by one; False if their steps are not in order."""
        tables = (ledger.read_files([file], LABELS) for file in sorted(files, key=_order))
        return all(self.apply(table, start, live) for table in tables)

    def apply(self, table: pa.Table, start: int, live: Live) -> bool:
        """Write what steps have written; False, and nothing done, if they come too late."""
        steps = ShardHistory.of(table, start, self.items).steps
        if not steps:
            return True
        if min(steps) < self._last:
            return False
        self._last = max(steps)
        for number, rows in steps.items():
            self.now.follow(number, rows)
            self.written[rows.rows] = True
            model = live.get(number, "")
            if model is None:
                self.pinned[rows.rows] = True
            elif model:
                self.now.voted[rows.voters] = True
                self._voters(model)[rows.voters] = True
        return True

    def packed(self) -> dict[str, NDArray[Any]]:
        """The arrays as they are kept: a mask is one bit an item, and of pending flips, which are
        few, only those there are.
        """
        pending = np.flatnonzero(self.now.proposed != MISSING)
        few = {"pending": pending} | {name: self._arrays[name][pending] for name in PROPOSALS}
        masks = {f"voted-{at}": mask for at, mask in enumerate(self.by_model.values())}
        return {
            name: packed(array) if array.dtype == np.bool_ else array
            for name, array in (self._arrays | masks | few).items()
        }


def _order(file: DataFile) -> tuple[int, str]:
    """The likely order of steps: compacted files first. Who reads them sees whether it is so."""
    named = STEP.search(f"/{file.path}")
    return (-1 if named is None else int(named[1]), file.path)


def _spread(arrays: dict[str, NDArray[Any]], items: int) -> tuple[Codes, NDArray[np.float32]]:
    """The pending flips among all items."""
    proposed = np.full(items, MISSING, dtype=np.int32)
    believed = np.zeros(items, dtype=np.float32)
    at = arrays["pending"]
    proposed[at], believed[at] = arrays["proposed"], arrays["belief_proposed"]
    return proposed, believed
