"""Repair: rows that a table holds twice, as two compactions at once could leave them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from posterity._text import counted
from posterity.engine.ledger.commit import discarded, retried
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import publish_labels
from posterity.errors import StoreError
from posterity.method.data.arrays import Mask
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.table import Snapshot

KEYS = {"classes": ("code",), "ledger": ("shard", "step", "row"), "items": ("row",)}
"""What names a row of a table that has each of them once."""


def repair(context: Context) -> list[str]:
    """Drop rows that are there twice with the same content; says what was done.

    Rows that have the same name and another content are not changed, but refused.
    """
    done = []
    for name in KEYS:
        dropped = retried(context, partial(_repair, name))
        if dropped:
            rows = counted(dropped, "row")
            done.append(f"The table '{name}' held {rows} twice; each is there once now.")
    if done:
        publish_labels(context.again(), anew=True)
    return done


@dataclass(frozen=True, eq=False)
class Doubled:
    """A file with rows that an earlier file of the table, or the file itself, has too."""

    file: DataFile
    keys: NDArray[np.int64]
    """One row for each of the file's."""
    again: Mask


def doubled(snapshot: Snapshot) -> Iterator[Doubled]:
    """The files of a table that hold a row again."""
    names = KEYS[snapshot.table.name]
    for partition in snapshot.partitions() if snapshot.table.partition else [None]:
        files, parts = list[DataFile](), [np.zeros((0, len(names)), dtype=np.int64)]
        for file, rows in snapshot.each(names, partition):
            files.append(file)
            parts.append(_keys(rows, names))
        keys = np.concatenate(parts)
        order = np.lexsort(keys.T[::-1])  # stable: what comes first in the table comes first here
        again = np.zeros(len(keys), dtype=np.bool_)
        again[order[1:]] = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
        ends = np.cumsum([len(part) for part in parts])
        for file, low, high in zip(files, ends[:-1], ends[1:], strict=True):
            if again[low:high].any():
                yield Doubled(file, keys[low:high], again[low:high])


def _keys(rows: pa.Table, names: Sequence[str]) -> NDArray[np.int64]:
    # A header has no row.
    columns = [rows.column(name).fill_null(-1).to_numpy() for name in names]
    return np.stack(columns, axis=1).astype(np.int64)


def _repair(name: str, context: Context) -> int:
    found = context.items if name == "items" else getattr(context.layout, name).head()
    if found is None:
        return 0
    snapshot: Snapshot = found
    broken = list(doubled(snapshot))
    if not broken:
        return 0
    _refuse_different(snapshot, broken)
    written: list[DataFile] = []
    for one in broken:
        if not one.again.all():
            rows = snapshot.read_file(one.file, snapshot.table.schema.names)
            partition = one.file.partition.get(snapshot.table.partition or "")
            shard = None if partition is None else int(partition)
            once = rows.filter(pa.array(~one.again))
            written.append(snapshot.table.write(once, label="repaired", partition=shard))
    with discarded(snapshot.table, written):
        snapshot.commit(written, removes=[one.file for one in broken], data_change=False)
    return sum(int(one.again.sum()) for one in broken)


def _refuse_different(snapshot: Snapshot, broken: Sequence[Doubled]) -> None:
    """Every row that is there twice says the same both times."""
    names, table = KEYS[snapshot.table.name], snapshot.table
    wanted = {tuple(key) for one in broken for key in one.keys[one.again].tolist()}
    first: dict[tuple[int, ...], str] = {}
    for file in snapshot.data_files():
        for rows in snapshot.row_groups(file, table.schema.names):
            for key, row in zip(_keys(rows, names).tolist(), rows.to_pylist(), strict=True):
                # As text: a number that is none equals nothing, not even itself.
                if tuple(key) in wanted and first.setdefault(tuple(key), repr(row)) != repr(row):
                    raise StoreError(
                        f"The table '{table.name}' has two different rows for {key}; which one is "
                        "right is not known.",
                        hint="Restore the store from a copy.",
                    )
