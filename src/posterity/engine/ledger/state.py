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
from posterity.engine.ledger.history import PROPOSALS, Current, proposals_of
from posterity.engine.ledger.steps import Header, live_reviews, live_updates
from posterity.method.data.arrays import Codes, Mask
from posterity.method.data.row_sets import packed, unpacked
from posterity.method.data.votes import MISSING
from posterity.storage.cache import Cached, cache_folder, read_cache, write_cache
from posterity.storage.delta.commits import DataFile

FORMAT = 1
COLUMNS = ["row", "step", "vote", "label", "belief", "entropy", *PROPOSALS]
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
    files = [
        file for file in context.ledger.data_files() if file.partition == {"shard": str(shard)}
    ]
    live = _live(context.headers)
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
        if not making.follow(context, shard, start, missing, live):
            making = None
    if making is None:
        making = _Making.empty(items)
        if not making.follow(context, shard, start, files, live):
            making = _Making.empty(items)
            table = context.ledger.read(COLUMNS, shard)
            making.apply(table, start, live)
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


def _live(headers: Sequence[Header]) -> Live:
    updates: Live = {header.step: header.model or "" for header in live_updates(headers)}
    return updates | dict.fromkeys(header.step for header in live_reviews(headers))


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

    def __init__(
        self, items: int, arrays: dict[str, NDArray[Any]], by_model: dict[str, Mask], last: int
    ) -> None:
        self.items, self.arrays, self.by_model = items, arrays, by_model
        self._last = last
        """No step before it may follow."""

    @classmethod
    def empty(cls, items: int) -> _Making:
        """Before the first step."""
        arrays: dict[str, NDArray[Any]] = {
            "label": np.full(items, MISSING, dtype=np.int32),
            "changed": np.full(items, MISSING, dtype=np.int32),
            "belief": np.zeros(items, dtype=np.float32),
            "entropy": np.zeros(items),
            "written": np.zeros(items, dtype=np.bool_),
            "voted": np.zeros(items, dtype=np.bool_),
            "pinned": np.zeros(items, dtype=np.bool_),
            "proposed": np.full(items, MISSING, dtype=np.int32),
            "belief_proposed": np.zeros(items, dtype=np.float32),
        }
        return cls(items, arrays, {}, 0)

    @classmethod
    def of(cls, kept: Cached, items: int) -> _Making:
        """After the steps a cache knows; items that came since have none."""
        making, old = cls.empty(items), kept.about["items"]
        for name, array in making.arrays.items():
            if name in PROPOSALS:
                continue
            held = kept.arrays[name]
            array[:old] = unpacked(held, old) if array.dtype == np.bool_ else held
        making.arrays |= dict(zip(PROPOSALS, _spread(kept.arrays, items), strict=True))
        for at, model in enumerate(kept.about["models"]):
            making.by_model[model] = np.zeros(items, dtype=np.bool_)
            making.by_model[model][:old] = unpacked(kept.arrays[f"voted-{at}"], old)
        making._last = kept.about["head"] + 1
        return making

    def follow(
        self,
        context: Context,
        shard: int,
        start: int,
        files: Iterable[DataFile],
        live: Live,
    ) -> bool:
        """Write files into the state one by one; False if their steps are not in order."""
        for file in sorted(files, key=_order):
            table = context.ledger.limited([file]).read(COLUMNS, shard)
            if not self.apply(table, start, live):
                return False
        return True

    def apply(self, table: pa.Table, start: int, live: Live) -> bool:
        """Write what steps have written; False, and nothing done, if they come too late."""
        step, row = (table.column(name).to_numpy() for name in ("step", "row"))
        numbers = np.flatnonzero(np.bincount(step)).tolist()
        if not numbers:
            return True
        if numbers[0] < self._last:
            return False
        self._last = numbers[-1]
        vote, label = (
            table.column(name).fill_null(MISSING).to_numpy() for name in ("vote", "label")
        )
        belief, entropy = (table.column(name).to_numpy() for name in ("belief", "entropy"))
        proposed, believed = proposals_of(table)
        held = self.arrays
        for number in numbers:
            at = np.flatnonzero(step == number)
            rows = row[at] - start
            moved = held["label"][rows] != label[at]
            held["changed"][rows[moved]] = number
            held["label"][rows], held["belief"][rows] = label[at], belief[at]
            held["entropy"][rows], held["written"][rows] = entropy[at], True
            held["proposed"][rows], held["belief_proposed"][rows] = proposed[at], believed[at]
            model = live.get(number, "")
            if model is None:
                held["pinned"][rows] = True
            elif model:
                voters = rows[vote[at] != MISSING]
                held["voted"][voters] = True
                own = self.by_model.setdefault(model, np.zeros(self.items, dtype=np.bool_))
                own[voters] = True
        return True

    def packed(self) -> dict[str, NDArray[Any]]:
        """The arrays as they are kept: a mask is one bit an item, and of pending flips, which are
        few, only those there are.
        """
        pending = np.flatnonzero(self.arrays["proposed"] != MISSING)
        few = {"pending": pending} | {name: self.arrays[name][pending] for name in PROPOSALS}
        masks = {f"voted-{at}": mask for at, mask in enumerate(self.by_model.values())}
        return {
            name: packed(array) if array.dtype == np.bool_ else array
            for name, array in (self.arrays | masks | few).items()
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
