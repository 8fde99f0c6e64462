"""Queues: the items whose label a person should look at, by what an answer is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from posterity import worth
from posterity._arrays import Codes, Floats, Rows
from posterity.choosing import Block, Part, chosen, find_cut
from posterity.engine import deciding
from posterity.engine.context import Context, Shard
from posterity.engine.derived import state_of
from posterity.engine.evaluating import WRITTEN
from posterity.engine.history import Current, ShardHistory
from posterity.engine.payloads import payload_of
from posterity.engine.rowsets import Bits, RowSet, unpacked
from posterity.engine.steps import live_updates
from posterity.engine.surveys import BLOCK, satisfying
from posterity.engine.updating import newest_fit, parts_of
from posterity.errors import InvalidParameter
from posterity.selectors import row_hash
from posterity.votes import MISSING

NEXT = 50
ANSWER = "answer"
"""The column a person fills in."""
PENDING, HELD_BACK, DOUBTFUL, DRAWN = "pending flip", "flip held back", "low belief", "drawn"


@dataclass(frozen=True, eq=False)
class Queue:
    """Items to ask a person about, the one to ask about first in front."""

    order: str
    eligible: int
    """Items that could be asked about: labelled, and not by a person."""
    items: pa.Table
    """id, row, label, belief, rival, belief_rival, why, worth."""

    @property
    def worth(self) -> float:
        """Labels that answers to all of them correct, as the beliefs have it."""
        return float(np.sum(self.items.column("worth").to_numpy()))

    def __len__(self) -> int:
        return int(self.items.num_rows)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "order": self.order,
            "eligible": self.eligible,
            "worth": self.worth,
            "items": self.items.to_pylist(),
        }

    def __str__(self) -> str:
        if not len(self):
            return "Nothing to review: no item has a label that a person has not decided."
        return (
            f"{len(self):,} of {self.eligible:,} items that could be reviewed, by {self.order}; "
            f"as the beliefs have it, answers correct {self.worth:.1f} labels"
        )


def queue(context: Context, *, count: int, order: str, where: str | None) -> Queue:
    """The next items to ask a person about.

    Items without a label are left out: any model labels them for less than a person does.
    """
    if type(count) is not int or count < 1:
        raise InvalidParameter.of("count", "a whole number of at least 1", count)
    name = worth.check_order(order)
    asking = _Asking(context, order, where)
    cut = find_cut(asking.look, lambda available: min(count, available))
    taken = chosen(asking.look, cut, lambda rows, _: rows)
    rows = np.sort(np.concatenate([np.zeros(0, np.int64), *taken]))
    parts = list(asking.described(rows, drawn=name == worth.RANDOM))
    found = pa.concat_tables([_schema(context).empty_table(), *(table for table, _ in parts)])
    scores = np.concatenate([np.zeros(0), *(score for _, score in parts)])
    first = np.lexsort((row_hash(rows), -scores))
    return Queue(order, cut.available, found.take(pa.array(first)))


def items_of(context: Context, asked: Queue) -> pa.Table:
    """A queue's items with their payload, what is known of them, and room for answers."""
    rows = asked.items.column("row").to_numpy()
    known = asked.items.append_column(
        ANSWER, pa.nulls(len(asked), _schema(context).field("label").type)
    )
    wanted = RowSet(context.rows)
    wanted.mark(np.sort(rows[~context.removed[rows]]))
    order, parts = [np.zeros(0, np.int64)], []
    for own, payload in payload_of(context, wanted, WRITTEN):
        # What we have to say goes before a column of the payload that is called the same.
        parts.append(
            payload.select([n for n in payload.column_names if n not in known.column_names])
        )
        order.append(own)
    held = np.concatenate(order)
    if not parts:
        return known
    at = np.flatnonzero(~context.removed[rows])
    place = np.argsort(held)[np.searchsorted(np.sort(held), rows[at])]
    beside = pa.concat_tables(parts).take(pa.array(place))
    known = known.take(pa.array(at))
    columns = {"id": known.column("id")} | dict(
        zip(beside.column_names, beside.columns, strict=True)
    )
    columns |= {
        name: known.column(name) for name in known.column_names if name not in ("id", "row")
    }
    return pa.table(columns)


def _see(
    context: Context,
    order: str,
    see: Callable[[Iterable[Block]], Part],
    shard: Shard,
    satisfied: Bits | None,
) -> Part:
    return see(_blocks(context, order, shard, satisfied))


def _blocks(context: Context, order: str, shard: Shard, satisfied: Bits | None) -> Iterator[Block]:
    """Labelled items of a shard that nobody has answered for."""
    _, start, items = shard
    state = state_of(context, *shard)
    now = state.current(0.0)
    eligible = (now.label != MISSING) & ~state.pinned
    eligible &= ~context.removed.among(start, items)
    if satisfied is not None:
        eligible &= unpacked(satisfied, items)
    for low in range(0, items, BLOCK):
        part = slice(low, low + BLOCK)
        rows = np.arange(start + low, start + min(low + BLOCK, items))
        believed, entropy = _next_belief(now, part), now.entropy[part]
        yield Block.of(
            worth.scores(order, belief=believed, entropy=entropy, rows=rows),
            rows=rows,
            eligible=eligible[part],
            first=np.zeros(len(rows), dtype=np.bool_),
            codes=now.label[part],
        )


class _Asking:
    """The items a person could be asked about, looked at shard by shard."""

    def __init__(self, context: Context, order: str, where: str | None) -> None:
        self._context, self._order = context, order
        self._satisfied = satisfying(context, where)

    def look(self, see: Callable[[Iterable[Block]], Part]) -> Iterator[Part]:
        """What is seen of the items of each shard."""
        context = self._context
        task = partial(_see, context, self._order, see)
        return context.executor.map(task, context.shards, self._satisfied)

    def described(self, rows: Rows, *, drawn: bool) -> Iterator[tuple[pa.Table, Floats]]:
        """What is known of the chosen items, and their scores, by row."""
        context = self._context
        asked = [
            (shard, local)
            for shard in context.shards
            if len(local := rows[slice(*np.searchsorted(rows, [shard[1], shard[1] + shard[2]]))])
        ]
        steps = parts_of(context, live_updates(context.headers))
        task = partial(_described, context, self._order, steps, drawn)
        return context.executor.map(task, asked)


def _described(
    context: Context,
    order: str,
    steps: Sequence[deciding.Part],
    drawn: bool,
    asked: tuple[Shard, Rows],
) -> tuple[pa.Table, Floats]:
    shard, rows = asked
    local = rows - shard[1]
    fit, names = newest_fit(context, steps), pa.array(context.classes.names)
    now = state_of(context, *shard).current(0.0)
    history = ShardHistory.read(context.ledger, *shard)
    votes = history.votes_of(local, live_updates(context.headers))
    codes, believed = deciding.most_believed(fit, steps, votes, len(local), 2)
    label, belief = now.label[local], now.belief[local].astype(np.float64)
    becomes = _next_belief(now, local)
    rival, rivals = _rival(label, codes, believed)
    why = np.where(rivals > belief, HELD_BACK, DOUBTFUL).astype(object)
    why[now.proposed[local] != MISSING] = PENDING
    if drawn:
        why[:] = DRAWN
    given = pa.array(rows)
    columns = {
        "id": context.id_of(given, shard[0]),
        "row": given,
        "label": names.take(pa.array(label)),
        "belief": pa.array(belief),
        "rival": names.take(pa.array(rival, mask=rival == MISSING)),
        "belief_rival": pa.array(rivals, mask=rival == MISSING),
        "why": pa.array(why, pa.string()),
        "worth": pa.array(worth.of_answers(becomes)),
    }
    scores = worth.scores(order, belief=becomes, entropy=now.entropy[local], rows=rows)
    return pa.table(columns, schema=_schema(context)), scores


def _next_belief(now: Current, at: Rows | slice) -> Floats:
    """In the label items will have without an answer: pending flips are made for nothing."""
    waits = now.proposed[at] != MISSING
    return np.where(waits, now.belief_proposed[at], now.belief[at]).astype(np.float64)


def _rival(label: Codes, codes: Codes, believed: Floats) -> tuple[Codes, Floats]:
    """The most believed class but for the label, of the two most believed."""
    if codes.shape[1] < 2:
        return np.full(len(label), MISSING, dtype=np.int32), np.zeros(len(label))
    at = (codes[:, 0] == label).astype(np.int64)
    every = np.arange(len(label))
    return codes[every, at], believed[every, at]


def _schema(context: Context) -> pa.Schema:
    name = pa.array(context.classes.names).type
    return pa.schema(
        [
            ("id", context.id_kind or pa.string()),
            ("row", pa.int64()),
            ("label", name),
            ("belief", pa.float64()),
            ("rival", name),
            ("belief_rival", pa.float64()),
            ("why", pa.string()),
            ("worth", pa.float64()),
        ]
    )
