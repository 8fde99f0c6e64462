"""Payloads: the items of given rows, read from the few parts of files that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from posterity.engine.items.lookup import groups_of
from posterity.engine.ledger.context import Context
from posterity.method.data.arrays import Rows, distinct
from posterity.method.data.row_sets import RowSet
from posterity.storage.delta.table import RowGroup, Snapshot
from posterity.storage.row_groups import cut

BATCH_BYTES = 2**26
"""Payload that is held at once, whatever number of items was asked for."""


class Payload:
    """The payload of a store's items. What was read last is kept: the next rows are often near."""

    def __init__(self, context: Context) -> None:
        self._items = context.items
        self._size = context.description.shard_rows
        self._shard: tuple[int, list[RowGroup]] | None = None
        self._read: tuple[RowGroup, Rows, pa.Table] | None = None

    def of(self, rows: Rows) -> tuple[Rows, pa.Table]:
        """The items of a few rows, given ascending: the rows there are, and id and payload."""
        parts = list(self.parts(rows))
        empty = items_schema(self._items).empty_table()
        found = np.concatenate([rows[:0], *(own for own, _ in parts)])
        return found, pa.concat_tables([empty, *(items for _, items in parts)])

    def parts(self, rows: Rows) -> Iterator[tuple[Rows, pa.Table]]:
        """The same in parts of at most ``BATCH_BYTES``, or of one item."""
        waiting: list[pa.Table] = []
        size = 0
        for items in self._near(rows):
            for part in cut(items, BATCH_BYTES):
                more = part.nbytes
                if waiting and size + more > BATCH_BYTES:
                    yield _together(waiting)
                    waiting, size = [], 0
                waiting.append(part)
                size += more
        if waiting:
            yield _together(waiting)

    def _near(self, rows: Rows) -> Iterator[pa.Table]:
        """Items with their rows, ascending: of a part of a file at a time, or of several that
        overlap.
        """
        if self._items is None:
            return
        names = [name for name in self._items.table.schema.names if name != "shard"]
        for shard in distinct(rows // self._size).tolist():
            own = rows[
                slice(*np.searchsorted(rows, [shard * self._size, (shard + 1) * self._size]))
            ]
            parts, last = list[pa.Table](), -1
            for group in self._groups(self._items, shard):
                low, high = group.rows
                near = own[slice(*np.searchsorted(own, [low, high + 1]))]
                if not len(near):
                    continue
                if low > last:
                    yield from _ascending(parts)
                    parts = []
                parts.append(_taken(*self._part(group, names), near))
                last = max(last, high)
            yield from _ascending(parts)

    def _groups(self, items: Snapshot, shard: int) -> list[RowGroup]:
        if self._shard is None or self._shard[0] != shard:
            self._shard = shard, groups_of(items, {shard})
        return self._shard[1]

    def _part(self, group: RowGroup, names: list[str]) -> tuple[Rows, pa.Table]:
        if self._read is None or self._read[0] != group:
            self._read = None  # before the next, so that there are never two
            table = group.read(names)
            held = table.column("row").to_numpy()
            if not (held[1:] > held[:-1]).all():
                table = table.sort_by("row")
                held = table.column("row").to_numpy()
            self._read = group, held, table
        return self._read[1], self._read[2]


def _taken(held: Rows, table: pa.Table, wanted: Rows) -> pa.Table:
    at = np.searchsorted(held, wanted)
    at = at[(at < len(held)) & (held[at.clip(max=len(held) - 1)] == wanted)]
    if len(at) and at[-1] - at[0] + 1 == len(at):
        part = table.slice(int(at[0]), len(at))
        if 2 * part.nbytes >= table.nbytes:
            return part  # without a copy, where it is not held on to much more than that
    return table.take(pa.array(at))


def _ascending(parts: Sequence[pa.Table]) -> Iterator[pa.Table]:
    parts = [part for part in parts if part.num_rows]
    if parts:
        joined = pa.concat_tables(parts)
        yield joined if len(parts) == 1 else joined.sort_by("row")


def _together(parts: Sequence[pa.Table]) -> tuple[Rows, pa.Table]:
    items = pa.concat_tables(parts)
    return items.column("row").to_numpy(), items.drop_columns(["row"])


def batches_of(parts: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Rows that come in parts, so many at a time; no more are held than that needs."""
    waiting: list[Rows] = []
    held = 0
    for more in parts:
        if not len(more):
            continue
        waiting.append(more)
        held += len(more)
        while held >= size:
            joined = np.concatenate(waiting)
            yield joined[:size]
            waiting, held = [joined[size:]], held - size
    if held:
        yield np.concatenate(waiting)


def payload_of(context: Context, rows: RowSet, batch: int) -> Iterator[tuple[Rows, pa.Table]]:
    """Items of the given rows in batches, smaller ones where items are large."""
    payload = Payload(context)
    for part in batches_of(rows.stretches(), batch):
        yield from payload.parts(part)


def items_schema(items: Snapshot | None) -> pa.Schema:
    """The columns of items: their ids and payload."""
    kept = [] if items is None else list(items.table.schema)
    return pa.schema([column for column in kept if column.name not in ("shard", "row")])
