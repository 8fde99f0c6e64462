"""Payloads: the items of given rows, read from the few parts of files that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from posterity.engine.items.lookup import groups_of
from posterity.engine.ledger.context import Context
from posterity.errors import UnknownName
from posterity.method.data.arrays import Rows, distinct
from posterity.method.data.row_sets import RowSet
from posterity.storage.delta.table import RowGroup, Snapshot
from posterity.storage.input import expanded
from posterity.storage.row_groups import cut

BATCH_BYTES = 2**26
"""Payload that is held at once, whatever number of items was asked for."""


class Payload:
    """The payload of a store's items. What was read last is kept: the next rows are often near."""

    def __init__(self, context: Context, columns: Sequence[str] | None = None) -> None:
        """``columns``: those of the payload that are read; None: all."""
        self._items = context.items
        self._schema = items_schema(self._items, columns)
        self._size = context.description.shard_rows
        self._shard: tuple[int, list[RowGroup]] | None = None
        self._read: tuple[RowGroup, Rows, pa.Table] | None = None

    def of(self, rows: Rows) -> tuple[Rows, pa.Table]:
        """The items of a few rows, given ascending: the rows there are, and id and payload."""
        parts = list(self.parts(rows))
        empty = self._schema.empty_table()
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
        names = ["row", *self._schema.names]
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


def payload_of(
    context: Context, rows: RowSet, batch: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[Rows, pa.Table]]:
    """Items of the given rows in batches, smaller ones where items are large."""
    payload = Payload(context, columns)
    for part in batches_of(rows.stretches(), batch):
        yield from payload.parts(part)


def items_schema(items: Snapshot | None, columns: Sequence[str] | None = None) -> pa.Schema:
    """The columns of items: their ids and payload, or those columns of it."""
    held = pa.schema([]) if items is None else items.table.schema
    own = [name for name in held.names if name not in ("shard", "row", "id")]
    names = own if columns is None else list(columns)
    return pa.schema([held.field(name) for name in ("id", *names) if items is not None])


MOST_SHOWN = 8
"""Columns of a payload that a person is shown, if nobody has chosen any."""


def shown_columns(items: Snapshot | None, chosen: Sequence[str] | None = None) -> list[str]:
    """The columns of a payload that a person is shown.

    Those that were chosen, with wildcards; else all, or of more than ``MOST_SHOWN`` so many: what
    can be read or looked at (texts and bytes) before numbers.
    """
    payload = [field for field in items_schema(items) if field.name != "id"]
    names = [field.name for field in payload]
    if chosen is None and len(names) <= MOST_SHOWN:
        return names
    if chosen is None:
        legible = [field.name for field in payload if _is_legible(field.type)]
        return list(dict.fromkeys([*legible, *names]))[:MOST_SHOWN]
    wanted = expanded(chosen, names)
    for name in wanted:
        if name not in names:
            raise UnknownName.among("payload column", name, names)
    return wanted


def _is_legible(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(test(kind) for test in (*tests, pa.types.is_large_binary))
