"""Review queue: the items whose label a person should look at, by what an answer is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.engine.items import payload as items_payload
from posterity.engine.items.lookup import id_of
from posterity.engine.items.payload import items_schema, payload_of
from posterity.engine.ledger import decide
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.history import Current, ShardHistory, newest_fit, parts_of
from posterity.engine.ledger.state import state_of
from posterity.engine.plan.score import BLOCK, satisfying
from posterity.engine.steps import ANSWER, WORTH
from posterity.errors import UnknownName
from posterity.method.data.arrays import Codes, Floats, Rows, distinct
from posterity.method.data.row_sets import Bits, RowSet, unpacked
from posterity.method.data.spec import Spec, whole_number
from posterity.method.data.votes import MISSING
from posterity.method.decide.budget import Budget
from posterity.method.decide.selectors import Candidates, Random, row_hash
from posterity.method.decide.selectors import parse as parse_selector
from posterity.method.decide.top_k import Block, Part, chosen, find_cut
from posterity.storage.row_groups import WRITTEN

PENDING, HELD_BACK, DOUBTFUL, DRAWN = "pending flip", "flip held back", "low belief", "drawn"
UNLABELLED = "no label"


@dataclass(frozen=True, eq=False)
class Queue:
    """Items to ask a person about, the one to ask about first in front."""

    order: str
    eligible: int
    """Items that could be asked about: those whose label no person has decided."""
    items: pa.Table
    """id, row, label, belief, rival, belief_rival, why, worth; without a label only the first two,
    and why."""

    @property
    def worth(self) -> float:
        """Labels that answers to all of them correct, estimated from the beliefs."""
        return float(pc.sum(self.items.column("worth"), min_count=0).as_py())

    @property
    def unlabelled(self) -> int:
        """How many of them have no label yet."""
        return int(self.items.column("label").null_count)

    def __len__(self) -> int:
        return int(self.items.num_rows)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "order": self.order,
            "eligible": self.eligible,
            "unlabelled": self.unlabelled,
            "worth": self.worth,
            "items": self.items.to_pylist(),
        }

    def __str__(self) -> str:
        if not len(self):
            return "Nothing to review: no item is left whose label a person has not decided."
        told = f"{len(self):,} of {self.eligible:,} items that could be reviewed, by {self.order}"
        if self.unlabelled:
            told += f"; {self.unlabelled:,} without a label"
        if self.unlabelled < len(self):
            told += f"; as the beliefs have it, answers correct {self.worth:.1f} labels"
        return told


def queue(context: Context, *, count: int, order: str, where: str | None) -> Queue:
    """The next items to ask a person about.

    Items without a label come first; in a fair draw they have the same chance as all others.
    """
    count = whole_number(count, "count", least=1)
    name = check_order(order)
    satisfied = satisfying(context, where)

    def look(see: Callable[[Iterable[Block]], Part]) -> Iterator[Part]:
        task = partial(_see, context, order, see)
        return context.executor.map(task, context.shards, satisfied)

    cut = find_cut(look, Budget(count=count).evaluations)
    taken = chosen(look, cut, lambda rows, _: rows)
    rows = np.sort(np.concatenate([np.zeros(0, np.int64), *taken]))
    drawn = name == RANDOM
    parts = list(_each_described(context, order, rows, drawn=drawn))
    found = pa.concat_tables([_schema(context).empty_table(), *(table for table, _ in parts)])
    scores = np.concatenate([np.zeros(0), *(score for _, score in parts)])
    labelled = found.column("label").is_valid().to_numpy() | drawn
    by_worth = np.lexsort((row_hash(rows), -scores, labelled))
    return Queue(order, cut.available, found.take(pa.array(by_worth)))


def _see(
    context: Context,
    order: str,
    see: Callable[[Iterable[Block]], Part],
    shard: RowRange,
    satisfied: Bits | None,
) -> Part:
    return see(_blocks(context, order, shard, satisfied))


def _blocks(
    context: Context, order: str, shard: RowRange, satisfied: Bits | None
) -> Iterator[Block]:
    """Items of a shard that nobody has answered for."""
    _, start, items = shard
    state = state_of(context, *shard)
    now = state.current(0.0)
    eligible = ~(state.pinned | context.removed.among(start, items))
    first = (now.label == MISSING) & (check_order(order) != RANDOM)
    if satisfied is not None:
        eligible &= unpacked(satisfied, items)
    for low in range(0, items, BLOCK):
        part = slice(low, low + BLOCK)
        rows = np.arange(start + low, start + min(low + BLOCK, items))
        believed, entropy = _next_belief(now, part), now.entropy[part]
        yield Block.of(
            answer_scores(order, belief=believed, entropy=entropy, rows=rows),
            rows=rows,
            eligible=eligible[part],
            first=first[part],
            codes=now.label[part],
        )


def _each_described(
    context: Context, order: str, rows: Rows, *, drawn: bool
) -> Iterator[tuple[pa.Table, Floats]]:
    """What is known of the chosen items of each shard, and their scores, by row."""
    asked = [(shard, own) for shard in context.shards if len(own := rows[shard.within(rows)])]
    steps = parts_of(context, context.live_updates)
    return context.executor.map(partial(_described, context, order, steps, drawn), asked)


def _described(
    context: Context,
    order: str,
    steps: Sequence[decide.StepPolicy],
    drawn: bool,
    asked: tuple[RowRange, Rows],
) -> tuple[pa.Table, Floats]:
    shard, rows = asked
    local = rows - shard.start
    fit, names = newest_fit(context, steps), pa.array(context.classes.names)
    now = state_of(context, *shard).current(0.0)
    history = ShardHistory.read(context.ledger, *shard)
    votes = history.votes_of(local, context.live_updates)
    codes, believed = decide.most_believed(fit, steps, votes, len(local), 2)
    label, belief = now.label[local], now.belief[local].astype(np.float64)
    becomes = _next_belief(now, local)
    rival, rivals = _rival(label, codes, believed)
    why = np.where(rivals > belief, HELD_BACK, DOUBTFUL).astype(object)
    why[now.proposed[local] != MISSING] = PENDING
    none = label == MISSING
    why[none], rival[none] = UNLABELLED, MISSING
    if drawn:
        why[:] = DRAWN
    given = pa.array(rows)
    columns = {
        "id": id_of(context, given, shard.number),
        "row": given,
        "label": names.take(pa.array(label, mask=none)),
        "belief": pa.array(belief, mask=none),
        "rival": names.take(pa.array(rival, mask=rival == MISSING)),
        "belief_rival": pa.array(rivals, mask=rival == MISSING),
        "why": pa.array(why, pa.string()),
        "worth": pa.array(of_answers(becomes), mask=none),
    }
    scores = answer_scores(order, belief=becomes, entropy=now.entropy[local], rows=rows)
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


FILES = 200
"""Temporary files that are open at once, at most."""
PLACE = "place in the queue"


def items_of(context: Context, asked: Queue) -> pa.Table:
    """A queue's items with their payload, what is known of them, and room for answers."""
    return pa.concat_tables(item_batches(context, asked))


def item_batches(context: Context, asked: Queue) -> Iterator[pa.Table]:
    """The same a batch at a time; at least one, if only an empty one."""
    rows = asked.items.column("row").to_numpy()
    known = asked.items.append_column(
        ANSWER, pa.nulls(len(asked), asked.items.schema.field("label").type)
    )
    there = np.flatnonzero(~context.removed[rows])
    known, rows = known.take(pa.array(there)), rows[there]
    # What we have to say goes before a column of the payload that is called the same.
    schema = items_schema(context.items)
    beside = [name for name in schema.names if name not in known.column_names]
    said = [name for name in known.column_names if name not in ("id", "row")]
    start = 0
    for payload in _in_order(context, rows) if len(rows) else [schema.empty_table()]:
        own = known.slice(start, payload.num_rows)
        start += payload.num_rows
        columns = [own.column("id"), *payload.select(beside).columns, *own.select(said).columns]
        del payload  # so that there are never two
        yield pa.table(columns, names=["id", *beside, *said])
        del columns


def _in_order(context: Context, rows: Rows) -> Iterator[pa.Table]:
    """The payload of items in the given order."""
    places = np.argsort(rows)
    ascending, wanted = rows[places], RowSet(context.rows)
    wanted.mark(ascending)
    parts = (
        payload.append_column(PLACE, pa.array(places[np.searchsorted(ascending, own)]))
        for own, payload in payload_of(context, wanted, WRITTEN)
    )
    first = next(parts)
    if first.num_rows == len(rows):
        yield _sorted(first)
        return
    fitting = int(items_payload.BATCH_BYTES * first.num_rows / first.nbytes)
    size = max(math.ceil(len(rows) / FILES), fitting, 1)
    with TemporaryDirectory(prefix="posterity-") as folder:
        files = [Path(folder) / str(at) for at in range(math.ceil(len(rows) / size))]
        _sort_into(files, size, first.schema, chain([first], parts))
        del first  # else it would be held until the end
        for file in files:
            with pa.OSFile(str(file)) as content:
                yield _sorted(pa.ipc.open_stream(content).read_all())
            file.unlink()


def _sort_into(
    files: Sequence[Path], size: int, schema: pa.Schema, parts: Iterable[pa.Table]
) -> None:
    """Items into files of the next so many places each."""
    with ExitStack() as stack:
        sinks = [stack.enter_context(pa.OSFile(str(file), "wb")) for file in files]
        writers = [stack.enter_context(pa.ipc.new_stream(sink, schema)) for sink in sinks]
        for part in parts:
            at = part.column(PLACE).to_numpy() // size
            for number in distinct(at).tolist():
                writers[number].write_table(part.take(pa.array(np.flatnonzero(at == number))))


def _sorted(items: pa.Table) -> pa.Table:
    order = np.argsort(items.column(PLACE).to_numpy())
    return items.take(pa.array(order)).drop_columns([PLACE])


ENTROPY, RANDOM = "entropy", "random"
ORDERS = (WORTH, ENTROPY, RANDOM)


def of_answers(belief: Floats) -> Floats:
    """Labels an answer corrects, in the mean, where the label is believed so much.

    >>> of_answers(np.array([0.25, 1.0]))
    array([0.75, 0.  ])
    """
    return np.asarray(1.0 - np.asarray(belief, dtype=np.float64))


def answer_scores(order: str, *, belief: Floats, entropy: Floats, rows: Rows) -> Floats:
    """Who is asked about first: the highest score.

    ``worth`` (the default everywhere), ``entropy``, or ``random[:SEED]``, which depends on the row
    alone, so that items asked about so are a fair sample of all.

    >>> answer_scores("worth", belief=np.array([0.9, 0.4]), entropy=np.zeros(2), rows=np.arange(2))
    array([0.1, 0.6])
    """
    name = check_order(order)
    if name == WORTH:
        return of_answers(belief)
    chosen = parse_selector(order)
    if isinstance(chosen, Random) and chosen.seed is None:
        chosen = Random(0)
    return chosen.score(Candidates(entropy=entropy, rows=rows))


def check_order(order: str) -> str:
    """The name of an order; refuses one that does not exist."""
    spec = Spec.parse(order, "order")
    if spec.name not in ORDERS:
        raise UnknownName.among("order", spec.name, ORDERS)
    spec.refuse_extras("order", value=spec.name == RANDOM)
    if spec.name == RANDOM:
        parse_selector(order)
    return spec.name
