"""Read a store: what a step flipped, what happened to an item, what is believed of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from posterity.engine.evaluation.durable_votes import unfinished
from posterity.engine.items.lookup import find_rows, id_array, id_of
from posterity.engine.ledger import decide, publish
from posterity.engine.ledger import history as ledger_history
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.proposals import count_pending
from posterity.engine.ledger.publish import Sharded
from posterity.engine.ledger.reports import accuracy_now
from posterity.engine.ledger.steps import Header, reason
from posterity.engine.ledger.totals import total_of
from posterity.errors import InvalidParameter
from posterity.method.data.arrays import Codes, Mask, Rows
from posterity.method.data.spec import is_whole, whole_number
from posterity.method.data.votes import MISSING


def flips_by_shard(context: Context, step: int | None = None) -> Sharded:
    """The labels a step changed, as changes; an item's first label is not a flip."""
    number = context.head if step is None else step
    context.check_step(number)
    return Sharded(context, changes_schema(context), partial(_flips, context, number))


def _flips(context: Context, number: int, part: RowRange) -> pa.Table:
    shard, start, items = part
    history = ShardHistory.read(context.ledger, shard, start, items)
    written = history.steps.get(number)
    if written is None:
        return changes_schema(context).empty_table()
    before = history.before(number).current([], 0.0).label[written.rows]
    at = np.flatnonzero((before != MISSING) & (before != written.label))
    return _changes(
        context,
        shard,
        start + written.rows[at],
        before[at],
        written.label[at],
        written.belief[at],
        np.full(len(at), number, dtype=np.int32),
        written.vote[at] != MISSING,
    )


def changes_by_shard(context: Context, since: int) -> Sharded:
    """Items whose label is not what it was after a step, by row: what downstream has to apply.

    A label that was changed and changed back in between is not among them; a first label is.
    """
    if not is_whole(since) or not -1 <= since <= context.head:
        allowed = f"a step of the store, up to {context.head} (-1: before the first)"
        raise InvalidParameter.of("since", allowed, since)
    return Sharded(context, changes_schema(context), partial(_changes_since, context, since))


def _changes_since(context: Context, since: int, part: RowRange) -> pa.Table:
    shard, start, items = part
    history = ShardHistory.read(context.ledger, shard, start, items)
    before = history.before(since + 1).current([], 0.0).label
    now = history.current([], 0.0)
    at = np.flatnonzero(before != now.label)
    voted = np.zeros(items, dtype=np.bool_)
    for number in np.unique(now.changed[at]).tolist():
        voters = history.voters(number)
        voted[voters[now.changed[voters] == number]] = True
    return _changes(
        context,
        shard,
        start + at,
        before[at],
        now.label[at],
        now.belief[at],
        now.changed[at],
        voted[at],
    )


def changes_schema(context: Context) -> pa.Schema:
    """The columns of a change, the same for flips and for labels since a step."""
    name = publish.labels_schema(context).field("label").type
    return pa.schema(
        [
            ("id", publish.labels_schema(context).field("id").type),
            ("row", pa.int64()),
            ("old", name),
            ("new", name),
            ("belief", pa.float32()),
            ("step", pa.int32()),
            ("reason", pa.string()),
        ]
    )


def _changes(
    context: Context,
    shard: int,
    rows: Rows,
    old: Codes,
    new: Codes,
    belief: Any,
    step: Codes,
    voted: Mask,
) -> pa.Table:
    keep = ~context.removed[rows]
    if not keep.any():
        return changes_schema(context).empty_table()
    names = pa.array(context.classes.names)
    # Steps are numbered from 0 without gaps, so that a step is the place of its reason; those of
    # changes without a vote follow.
    told = [reason(header, voted=voted) for voted in (True, False) for header in context.headers]
    reasons = pa.array(told, pa.string())
    places = step + np.where(voted, 0, len(context.headers))
    given = pa.array(rows[keep])
    return pa.table(
        {
            "id": id_of(context, given, shard),
            "row": given,
            "old": names.take(pa.array(old[keep], mask=old[keep] < 0)),
            "new": names.take(pa.array(new[keep], mask=new[keep] < 0)),
            "belief": pa.array(belief[keep], pa.float32(), mask=new[keep] < 0),
            "step": pa.array(step[keep]),
            "reason": reasons.take(pa.array(places[keep])),
        },
        schema=changes_schema(context),
    )


def history(context: Context, item: str | int, row: int | None = None) -> list[dict[str, Any]]:
    """What happened to one item: a row per step that touched it.

    ``row``: its row, where that is known; else it is looked up.
    """
    if row is None:
        (row,) = find_rows(context, id_array([item])).tolist()
    shard = row // context.description.shard_rows
    written = ShardHistory.of_row(context.ledger, shard, row).steps
    told = []
    for header in context.headers:
        if (found := written.get(header.step)) is None:
            continue
        vote, label, proposed = context.classes.decode(
            [codes[0] for codes in (found.vote, found.label, found.proposed)]
        )
        told.append(
            {
                "step": header.step,
                "kind": header.kind,
                "model": header.model,
                "vote": vote,
                "label": label,
                "proposed": proposed,
                "belief": float(found.belief[0]),
                "entropy": float(found.entropy[0]),
                "counts": header.step not in context.undone,
                "reason": reason(header, voted=bool(found.vote[0] != MISSING)),
            }
        )
    return told


def beliefs(context: Context, ids: Any = None, *, top: int = 3) -> pa.Table:
    """The most believed classes of items (all by default) and the beliefs in them, as votes have
    it: what a person answered is in the labels.
    """
    nobody = np.zeros((0, 1))
    names = pa.array(context.classes.names)
    empty = _beliefs_table(pa.array([], pa.int64()), names, nobody, nobody)
    if context.id_kind is not None:
        empty = empty.add_column(0, "id", pa.array([], context.id_kind))
    return pa.concat_tables([empty, *each_belief(context, ids, top=top)])


def each_belief(context: Context, ids: Any = None, *, top: int = 3) -> Iterator[pa.Table]:
    """The most believed classes of items (all by default), shard by shard."""
    top = whole_number(top, "top", least=1)
    rows = None if ids is None else find_rows(context, id_array(ids))
    live = context.live_updates
    steps = ledger_history.parts_of(context, live)
    believed = _Believed(context, live, steps, ledger_history.newest_fit(context, steps), top)
    # Rows are dealt out here, so that no shard is told of those of all others.
    wanted = [_among(context, shard, rows) for shard in context.shards]
    some = [at for at, local in enumerate(wanted) if local is None or len(local)]
    shards, locals_ = [context.shards[at] for at in some], [wanted[at] for at in some]
    return context.executor.map(believed, shards, locals_)


def _among(context: Context, shard: RowRange, rows: Rows | None) -> Rows | None:
    """Those of some rows that are in a shard, counted from its first; None: all that are there."""
    _, start, items = shard
    if rows is None:
        all_gone = context.removed.among(start, items).all()
        return np.zeros(0, dtype=np.int64) if all_gone else None
    return rows[(rows >= start) & (rows < start + items)] - start


@dataclass(frozen=True, eq=False)
class _Believed:
    """What is believed of the items of a shard."""

    context: Context
    live: Sequence[Header]
    steps: Sequence[decide.StepPolicy]
    fit: Fit
    top: int

    def __call__(self, part: RowRange, local: Rows | None) -> pa.Table:
        shard, start, items = part
        if local is None:
            local = np.flatnonzero(~self.context.removed.among(start, items))
        history = ShardHistory.read(self.context.ledger, shard, start, items)
        votes = history.votes_of(local, self.live)
        codes, believed = decide.most_believed(self.fit, self.steps, votes, len(local), self.top)
        given = pa.array(local + start)
        names = pa.array(self.context.classes.names)
        table = _beliefs_table(given, names, codes, believed)
        return table.add_column(0, "id", id_of(self.context, given, shard))


def _beliefs_table(rows: pa.Array, names: pa.Array, codes: Any, believed: Any) -> pa.Table:
    width = codes.shape[1]
    flat = names.take(pa.array(codes.ravel().astype(np.int64)))
    offsets = pa.array(np.arange(0, codes.size + 1, width), pa.int32())
    return pa.table(
        {
            "row": rows,
            "classes": pa.ListArray.from_arrays(offsets, flat),
            "beliefs": pa.ListArray.from_arrays(offsets, pa.array(believed.ravel())),
        }
    )


def status(context: Context, path: str) -> dict[str, Any]:
    """The store at a glance."""
    expected = accuracy_now(context)
    return {
        "path": path,
        "items": context.there,
        "unlabelled": total_of(context).unlabelled(context),
        "classes": len(context.classes),
        "models": list(context.models),
        "step": context.head,
        "policy": str(context.policy),
        "pending": count_pending(context)[0],
        "reviewed": total_of(context).pinned if context.live_reviews else 0,
        "expected_accuracy": None if expected is None else expected.to_dict(),
        "unfinished": unfinished(context),
        "format": context.description.format,
    }
