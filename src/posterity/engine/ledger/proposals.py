"""Pending flips: those a rule with ``+confirm`` has proposed, and no step has made or dropped yet.

Every update and every settle decides, makes or drops all that were pending before it. So they are
found in the rows of the last of these and of the reverts that followed, in the shards that their
headers name, and nothing else has to be read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from posterity.engine.ledger.context import Context
from posterity.engine.ledger.decide import Decided
from posterity.engine.ledger.history import Current, proposals_of
from posterity.engine.ledger.steps import SETTLE, UPDATE, Header, last_step
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.row_sets import Bits, RowSet, packed, unpacked
from posterity.method.data.votes import MISSING

COLUMNS = ["row", "step", "label", "belief", "entropy", "proposed", "belief_proposed"]


@dataclass(frozen=True, eq=False)
class Pending:
    """The pending flips of a shard, by row."""

    rows: Rows
    """Positions within the shard, ascending."""
    label: Codes
    belief: Floats
    entropy: Floats
    proposed: Codes
    belief_proposed: Floats

    @classmethod
    def among(cls, now: Current, rows: Rows) -> Pending:
        """Those of some items, where it is known how all of them stand."""
        at = rows[now.proposed[rows] != MISSING]
        return cls(
            at,
            now.label[at],
            now.belief[at].astype(np.float64),
            now.entropy[at],
            now.proposed[at],
            now.belief_proposed[at].astype(np.float64),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def made(self) -> Decided:
        """The flips, made."""
        return Decided.settled(
            self.label, self.belief, self.entropy, self.proposed, self.belief_proposed
        )


def pending_shards(headers: Sequence[Header]) -> set[int]:
    """The shards that may have pending flips; there are none in the others."""
    return {shard for header in _recent(headers) for shard in header.pending}


def pending_of(context: Context, shard: int, start: int) -> Pending:
    """The pending flips of a shard, read from the few files that can tell; not those of removed
    items, about which nothing is decided any more.
    """
    first = min((header.step for header in _recent(context.headers)), default=0)
    files = [
        file
        for file in context.ledger.files_of(shard)
        if (last := last_step(context.ledger, file)) is None or last >= first
    ]
    table = context.ledger.limited(files).read(COLUMNS, shard)
    step, row = (table.column(name).to_numpy() for name in ("step", "row"))
    proposed, believed = proposals_of(table)
    order = np.lexsort((step, row))
    latest = order[np.append(row[order][1:] != row[order][:-1], True)] if len(order) else order
    at = latest[(proposed[latest] != MISSING) & (step[latest] >= first)]
    at = at[~context.removed[row[at]]]
    label, belief, entropy = (
        table.column(name).take(at).to_numpy() for name in ("label", "belief", "entropy")
    )
    return Pending(
        row[at] - start,
        label,
        belief.astype(np.float64),
        entropy,
        proposed[at],
        believed[at].astype(np.float64),
    )


def pending_parts(context: Context, *, without: Collection[int] = ()) -> list[tuple[int, int]]:
    """The shards that may have pending flips, and their first rows."""
    shards = pending_shards(context.headers) - set(without)
    return [(shard, start) for shard, start, _ in context.shards if shard in shards]


def count_pending(context: Context, chosen: RowSet | None = None) -> tuple[int, int]:
    """How many flips are pending, and how many of them on chosen items."""
    parts, size = pending_parts(context), context.description.shard_rows
    bits = [None if chosen is None else packed(chosen.among(start, size)) for _, start in parts]
    counted = list(context.executor.map(partial(_count_of_shard, context), parts, bits))
    return sum(every for every, _ in counted), sum(own for _, own in counted)


def _count_of_shard(
    context: Context, part: tuple[int, int], chosen: Bits | None
) -> tuple[int, int]:
    found = pending_of(context, *part)
    if chosen is None:
        return len(found), 0
    again = unpacked(chosen, 8 * len(chosen))[found.rows]
    return len(found), int(again.sum())


def _recent(headers: Sequence[Header]) -> list[Header]:
    """The steps since all that was pending before was made or dropped."""
    recent: list[Header] = []
    for header in reversed(headers):
        recent.append(header)
        if header.kind in (UPDATE, SETTLE):
            break
    return recent
