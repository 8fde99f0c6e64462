"""Pending flips: those a rule with ``+confirm`` has proposed, and no step has made or dropped yet.

Every update and every settle decides, makes or drops all that were pending before it. So they are
found in the rows of the last of these and of the reverts that followed, in the shards that their
headers name, and nothing else has to be read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import Decided
from posterity.engine.ledger.history import LABELS, Current, ShardHistory
from posterity.engine.ledger.steps import DECISIVE, Header, last_step
from posterity.method.data.arrays import Rows
from posterity.method.data.row_sets import Bits, RowSet, packed, unpacked
from posterity.method.data.votes import MISSING


@dataclass(frozen=True, eq=False)
class Pending:
    """The pending flips of a shard, by row."""

    rows: Rows
    """Positions within the shard, ascending."""
    made: Decided
    """The flips, made: before and after."""

    @classmethod
    def among(cls, now: Current, rows: Rows) -> Pending:
        """Those of some items, where it is known how all of them stand."""
        at = rows[now.proposed[rows] != MISSING]
        belief, belief_proposed = (
            values[at].astype(np.float64) for values in (now.belief, now.belief_proposed)
        )
        made = Decided.settled(
            now.label[at], belief, now.entropy[at], now.proposed[at], belief_proposed
        )
        return cls(at, made)

    def __len__(self) -> int:
        return len(self.rows)


def pending_shards(headers: Sequence[Header]) -> set[int]:
    """The shards that may have pending flips; there are none in the others."""
    return {shard for header in _recent(headers) for shard in header.pending}


def pending_of(context: Context, shard: RowRange) -> Pending:
    """The pending flips of a shard, read from the few files that can tell; not those of removed
    items, about which nothing is decided any more.
    """
    first = min((header.step for header in _recent(context.headers)), default=0)
    files = [
        file
        for file in context.ledger.files_of(shard.number)
        if (last := last_step(context.ledger, file)) is None or last >= first
    ]
    table = context.ledger.read_files(files, LABELS)
    table = table.filter(pc.greater_equal(table.column("step"), first))
    # Counted among themselves, so that the shard's other items need no room.
    rows, places = np.unique(table.column("row").to_numpy(), return_inverse=True)
    touched = table.set_column(0, "row", pa.array(places))
    now = ShardHistory.of(touched, 0, len(rows)).current([], 0.0)
    found = Pending.among(now, np.flatnonzero(~context.removed[rows]))
    return replace(found, rows=rows[found.rows] - shard.start)


def pending_parts(context: Context, *, without: Collection[int] = ()) -> list[RowRange]:
    """The shards that may have pending flips."""
    numbers = pending_shards(context.headers) - set(without)
    return [shard for shard in context.shards if shard.number in numbers]


def count_pending(context: Context, chosen: RowSet | None = None) -> tuple[int, int]:
    """How many flips are pending, and how many of them on chosen items."""
    shards, size = pending_parts(context), context.description.shard_rows
    bits = [None if chosen is None else packed(chosen.among(one.start, size)) for one in shards]
    counted = list(context.executor.map(partial(_count_of_shard, context), shards, bits))
    return sum(every for every, _ in counted), sum(own for _, own in counted)


def _count_of_shard(context: Context, shard: RowRange, chosen: Bits | None) -> tuple[int, int]:
    found = pending_of(context, shard)
    if chosen is None:
        return len(found), 0
    again = unpacked(chosen, 8 * len(chosen))[found.rows]
    return len(found), int(again.sum())


def _recent(headers: Sequence[Header]) -> list[Header]:
    """The steps since all that was pending before was made or dropped."""
    recent: list[Header] = []
    for header in reversed(headers):
        recent.append(header)
        if header.kind in DECISIVE:
            break
    return recent
