"""Payloads: the items of given rows, read from the few parts of files that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from posterity._arrays import Rows, distinct
from posterity.engine.context import Context
from posterity.engine.rowsets import RowSet
from posterity.tables.delta import DataFile, Snapshot


@dataclass(frozen=True)
class _Span:
    """A part of a file, and the rows it may hold."""

    file: DataFile
    group: int
    first: int
    last: int


class Payload:
    """The payload of a store's items. What was read last is kept: the next rows are often near."""

    def __init__(self, context: Context) -> None:
        self._items = context.items
        self._size = context.description.shard_rows
        self._shard: tuple[int, list[_Span]] | None = None
        self._read: tuple[_Span, Rows, pa.Table] | None = None

    def of(self, rows: Rows) -> tuple[Rows, pa.Table]:
        """The items of some rows, given ascending: the rows there are, and id and payload."""
        if self._items is None:
            return rows[:0], pa.table({})
        names = [name for name in self._items.table.schema.names if name != "shard"]
        parts = [self._items.table.schema.empty_table().select(names)]
        for shard in distinct(rows // self._size).tolist():
            own = rows[
                slice(*np.searchsorted(rows, [shard * self._size, (shard + 1) * self._size]))
            ]
            for span in self._spans(self._items, shard):
                near = own[slice(*np.searchsorted(own, [span.first, span.last + 1]))]
                if len(near):
                    held, table = self._part(self._items, span, names)
                    parts.append(_taken(held, table, near))
        found = pa.concat_tables(parts)
        number = found.column("row").to_numpy()
        if not (number[1:] > number[:-1]).all():
            found = found.sort_by("row")
        return found.column("row").to_numpy(), found.drop_columns(["row"])

    def _spans(self, items: Snapshot, shard: int) -> list[_Span]:
        if self._shard is None or self._shard[0] != shard:
            spans = [
                _Span(file, group, low, high)
                for file in items.files_of(shard)
                for group, (low, high) in enumerate(items.spans(file))
            ]
            self._shard = shard, sorted(spans, key=lambda span: span.first)
        return self._shard[1]

    def _part(self, items: Snapshot, span: _Span, names: list[str]) -> tuple[Rows, pa.Table]:
        if self._read is None or self._read[0] != span:
            self._read = None  # before the next, so that there are never two
            table = items.read_group(span.file, span.group, names)
            held = table.column("row").to_numpy()
            if not (held[1:] > held[:-1]).all():
                table = table.sort_by("row")
                held = table.column("row").to_numpy()
            self._read = span, held, table
        return self._read[1], self._read[2]


def _taken(held: Rows, table: pa.Table, wanted: Rows) -> pa.Table:
    at = np.searchsorted(held, wanted)
    at = at[(at < len(held)) & (held[at.clip(max=len(held) - 1)] == wanted)]
    if len(at) and at[-1] - at[0] + 1 == len(at):
        return table.slice(int(at[0]), len(at))  # without a copy
    return table.take(pa.array(at))


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
    """Items of the given rows in batches."""
    payload = Payload(context)
    for part in batches_of(rows.stretches(), batch):
        found = payload.of(part)
        if len(found[0]):
            yield found
