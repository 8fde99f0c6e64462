"""Look-ups: rows of ids and ids of rows, row group by row group, never with all at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._text import counted
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, StoreError, UnknownItem
from posterity.method.data.arrays import Mask, Rows, among, distinct
from posterity.storage.delta.table import RowGroup, Snapshot
from posterity.storage.input import ids_of

SLICE = 2**20
"""Ids that are followed through the store at once: as many as a row group may hold."""

MANY = 2**12
"""So many ids may well be a file in the order of the store; fewer are not worth a look."""

FEW = 2**16
"""So many ids are sorted to see which row groups can hold any."""

WORTH = 16
"""A row group with less than this part of a slice is not where the ids go on."""

BATCH = 2**22
"""Ids that are looked up at once."""

HELD = 2
"""Row groups kept in memory: where ids were found last, and the next one."""


def groups_of(items: Snapshot, shards: Collection[int] | None = None) -> list[RowGroup]:
    """The row groups of all items, or of some shards, in the order of their rows."""
    found = [
        (int(file.partition["shard"] or 0), group)
        for file in items.data_files()
        if shards is None or int(file.partition["shard"] or 0) in shards
        for group in items.groups(file, "row", "id")
    ]
    found.sort(key=lambda one: (one[0], one[1].rows[0]))
    return [group for _, group in found]


def ids_in(group: RowGroup) -> pa.Array:
    """The ids of a row group."""
    return _joined(group.read(["id"]).column("id"))


def _rows_and_ids(group: RowGroup) -> tuple[Rows, pa.Array]:
    held = group.read(["row", "id"])
    rows: Rows = held.column("row").to_numpy()
    return rows, _joined(held.column("id"))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def id_of(context: Context, rows: pa.Array, shard: int | None = None) -> pa.Array:
    """The ids of rows, in their order; of one shard, if that is known."""
    if context.items is None:
        raise StoreError("The store has no items.")
    asked = np.asarray(rows)
    wanted = distinct(asked)
    size = context.description.shard_rows
    shards = {shard} if shard is not None else set(distinct(wanted // size).tolist())
    parts, ids = [np.zeros(0, dtype=np.int64)], [pa.array([], context.id_kind)]
    for group in groups_of(context.items, shards):
        low, high = group.rows
        if np.searchsorted(wanted, low) == np.searchsorted(wanted, high, side="right"):
            continue
        here, own = _rows_and_ids(group)
        kept = among(here, wanted)
        parts.append(here[kept])
        ids.append(own.filter(pa.array(kept)))
    stored = np.concatenate(parts)
    if not (stored[1:] > stored[:-1]).all():
        at = pc.index_in(pa.array(asked), value_set=pa.array(stored))
    else:
        at = pa.array(np.searchsorted(stored, asked), mask=~among(asked, stored))
    return pa.chunked_array(ids).take(at)


class Lookup:
    """Finds rows of ids, batch after batch.

    Ids in the order of the store are followed from where the batch before ended, so that a whole
    file of them reads the store once; the others are looked for in one pass over all of it.
    """

    def __init__(self, context: Context, *, removed: bool = False) -> None:
        """``removed``: find removed items too, as long as they are not purged."""
        self._context, self._removed = context, removed
        self._at = 0
        self._held: dict[int, tuple[Rows, pa.Array]] = {}

    @cached_property
    def _groups(self) -> list[RowGroup]:
        return [] if self._context.items is None else groups_of(self._context.items)

    def rows(self, ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """The row of each id; null where there is no such item, or it was removed."""
        found = np.full(len(ids), -1, dtype=np.int64)
        kind = self._context.id_kind
        if kind is not None:
            if ids.type != kind:
                raise InvalidData(f"The store's ids are of type {kind}; got {ids.type}.")
            left = self._follow_all(ids, found, self._align(ids, found))
            if len(left):
                found[left] = self._sweep(ids.take(pa.array(left)))
            if not self._removed:
                found[self._context.removed[found]] = -1
        return pa.chunked_array([pa.array(found, mask=found < 0)])

    def has(self, ids: pa.ChunkedArray) -> Mask:
        """Whether there is an item of each id."""
        if ids.type != self._context.id_kind:
            return np.zeros(len(ids), dtype=np.bool_)
        return np.asarray(self.rows(ids).is_valid())

    def _align(self, ids: pa.ChunkedArray, found: Rows) -> int:
        """Fill in ids that are, one by one, the next of the store; returns how many.

        A whole file in the order of the store is compared, and no table of ids is made.
        """
        done = offset = 0
        if len(ids) < MANY:
            return 0
        while done < len(ids) and self._at < len(self._groups):
            rows, held = self._read(self._at)
            if not done:
                offset = held.index(ids[0]).as_py()
                if offset < 0 and self._at + 1 < len(self._groups):
                    # The batch before may have ended with its row group.
                    rows, held = self._read(self._at + 1)
                    offset = held.index(ids[0]).as_py()
                    self._at += offset >= 0
            count = min(len(ids) - done, len(held) - offset)
            same = offset >= 0 and ids.slice(done, count).equals(
                pa.chunked_array([held.slice(offset, count)])
            )
            if not same:
                break
            found[done : done + count] = rows[offset : offset + count]
            done, offset = done + count, 0
            if done < len(ids):
                if self._at + 1 == len(self._groups):
                    break
                self._at += 1
        return done

    def _follow_all(self, ids: pa.ChunkedArray, found: Rows, begin: int) -> Rows:
        """Fill in what goes on in the order of the store; the positions of the rest."""
        for start in range(begin, len(ids), SLICE):
            part = found[start : start + SLICE]
            part[:] = self._follow(ids.slice(start, SLICE))
            if np.count_nonzero(part < 0) > len(part) // 2:
                break  # these ids are in some other order
        return np.flatnonzero(found < 0)

    def _follow(self, ids: pa.ChunkedArray) -> Rows:
        needles, at = _Needles(ids), self._at
        begin = at  # a few may be left there, and the others in the next
        while needles.left and at < len(self._groups):
            near = needles.may_be_in(self._groups[at])
            hits = len(needles.seek(*self._read(at))) if near else 0
            if hits:
                self._at = at
            if hits * WORTH < len(ids) and at > begin:
                break
            at += 1
        return needles.found

    def _sweep(self, ids: pa.ChunkedArray) -> Rows:
        needles, last, begin = _Needles(ids), -1, self._at
        for step in range(len(self._groups)):
            at = (begin + step) % len(self._groups)
            if not needles.left:
                break
            if not needles.may_be_in(self._groups[at]):
                continue
            hits = needles.seek(*self._read(at))
            if len(hits) and int(hits.max()) > last:
                last, self._at = int(hits.max()), at  # the next batch begins where this one ends
        return needles.found

    def _read(self, at: int) -> tuple[Rows, pa.Array]:
        held = self._held.pop(at, None) or _rows_and_ids(self._groups[at])
        self._held[at] = held
        while len(self._held) > HELD:
            del self._held[next(iter(self._held))]
        return held


class _Needles:
    """Ids that are looked for, each once, and the rows found so far."""

    def __init__(self, ids: pa.ChunkedArray) -> None:
        encoded = _joined(ids).dictionary_encode()
        self._places = encoded.indices.to_numpy()
        self._values = self._wanted = encoded.dictionary
        self._rows = np.full(len(self._values), -1, dtype=np.int64)
        self._left = np.arange(len(self._values))

    @property
    def left(self) -> int:
        """How many are not found yet."""
        return len(self._left)

    @property
    def found(self) -> Rows:
        """The row of each id; −1 where it is not found."""
        rows: Rows = self._rows[self._places]
        return rows

    def seek(self, rows: Rows, ids: pa.Array) -> Rows:
        """Look among these; the positions of those found."""
        # Arrow makes a table of one side and asks it about the other: the smaller makes the table.
        if len(self._wanted) <= len(ids):
            at = pc.index_in(ids, value_set=self._wanted)
            here = np.flatnonzero(at.is_valid())
            place = np.asarray(at.drop_null()).astype(np.int64)
        else:
            at = pc.index_in(self._wanted, value_set=ids)
            place = np.flatnonzero(at.is_valid())
            here = np.asarray(at.drop_null()).astype(np.int64)
        hits: Rows = self._left[place]
        if len(hits):
            self._rows[hits] = rows[here]
            self._left = np.delete(self._left, place)
            self._wanted = self._values.take(pa.array(self._left))
            self.__dict__.pop("_ends", None)
        return hits

    def may_be_in(self, group: RowGroup) -> bool:
        """Whether one that is left can be in a row group."""
        if "id" not in group.ranges:
            return True
        low, high = group.ranges["id"]
        if len(self._values) > FEW:
            first, last = self._ends
            return not (last < low or first > high)
        return bisect_left(self._sorted, low) < bisect_right(self._sorted, high)

    @cached_property
    def _sorted(self) -> list[str] | list[int]:
        return sorted(self._values.to_pylist())

    @cached_property
    def _ends(self) -> tuple[str, str] | tuple[int, int]:
        ends = pc.min_max(self._wanted).as_py()
        return ends["min"], ends["max"]


def find_rows(
    context: Context, ids: pa.ChunkedArray, what: str = "id", *, removed: bool = False
) -> Rows:
    """The row of each id; an id that does not exist, or was removed, is named."""
    found = rows_or_none(context, ids, removed=removed)
    if found.null_count:
        missing = ids.filter(found.is_null())
        shown = ", ".join(repr(value) for value in missing[:5].to_pylist())
        raise UnknownItem(f"{counted(len(missing), what, 'are')} not in the store: {shown}.")
    rows: Rows = found.to_numpy()
    return rows


def rows_or_none(
    context: Context, ids: pa.ChunkedArray, *, removed: bool = False
) -> pa.ChunkedArray:
    """The row of each id; null where there is no such item. ``removed``: those that were, too."""
    lookup = Lookup(context, removed=removed)
    parts = [lookup.rows(ids.slice(at, BATCH)) for at in range(0, len(ids), BATCH)]
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.int64())


def id_array(ids: Any) -> pa.ChunkedArray:
    """One id or many as a column."""
    listed = [ids] if isinstance(ids, (str, int)) else ids
    try:
        column = listed if isinstance(listed, pa.ChunkedArray) else pa.array(listed)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InvalidData(f"These are no ids: {error}.") from None
    return ids_of(pa.table({"id": column}), "id", "list of items")
