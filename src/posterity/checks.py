"""Check a store: every invariant, and what is broken by name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from posterity.beliefs import BELIEF_BITS, ENTROPY_BITS
from posterity.engine.context import Context
from posterity.engine.deciding import Decided, decide_all, decide_last
from posterity.engine.history import COLUMNS, ShardHistory, StepRows
from posterity.engine.publishing import PUBLISHED, all_labels, labels_schema
from posterity.engine.steps import UPDATE, Header, live_updates
from posterity.engine.updating import parts_of
from posterity.errors import PosterityError
from posterity.tables.delta import Table
from posterity.tables.layout import HEADER_SHARD
from posterity.votes import MISSING

LEAST = 1e-37
"""Smaller than single precision can tell from zero."""


def check(context: Context) -> list[str]:
    """What is wrong with a store; an empty list if nothing is."""
    try:
        return [
            *_files(context),
            *_headers(context),
            *_items(context),
            *_steps(context),
            *_labels(context),
        ]
    except (PosterityError, OSError, ValueError, KeyError, IndexError) as error:
        return [f"The store cannot be read to its end: {error}"]


def _files(context: Context) -> Iterator[str]:
    """Every file a table names is there, with the size it was committed with."""
    snapshots = [table.head() for table in context.layout.fixed]
    if context.files.list("labels/_delta_log"):
        snapshots.append(context.layout.labels.head())
    if context.items is not None:
        snapshots.append(context.items)
    for snapshot in snapshots:
        for file in snapshot.data_files():
            size = context.files.size(f"{snapshot.table.name}/{file.path}")
            if size != file.size:
                found = "is missing" if size is None else f"has {size} bytes instead of {file.size}"
                yield f"The file '{snapshot.table.name}/{file.path}' {found}."


def _headers(context: Context) -> Iterator[str]:
    """Steps are numbered 0, 1, 2, …, each by a run of its own."""
    numbers = [header.step for header in context.headers]
    if numbers != list(range(len(numbers))):
        yield f"The steps are numbered {numbers}, not 0 to {len(numbers) - 1}."
    runs = [header.run for header in context.headers]
    for run in sorted({run for run in runs if runs.count(run) > 1}):
        yield f"The run '{run}' made more than one step."
    for header in context.headers:
        if header.kind == UPDATE and header.model not in context.models:
            yield f"Step {header.step} is by the model '{header.model}', which is not registered."


def _items(context: Context) -> Iterator[str]:
    """Rows are dense, unique, and in the shard they belong to."""
    if context.items is None:
        return
    seen = np.zeros(context.rows, dtype=np.int64)
    for shard, start, items in context.shards:
        rows = context.items.read(["row"], shard).column("row").to_numpy()
        if len(rows) and (rows.min() < start or rows.max() >= start + items):
            yield f"Shard {shard} holds rows of another shard."
            continue
        np.add.at(seen, rows, 1)
    if (seen > 1).any():
        yield f"Row {int(np.flatnonzero(seen > 1)[0])} is given to more than one item."
    lost = (seen == 0) & ~context.removed.among(0, context.rows)
    if lost.any():
        yield f"Row {int(np.flatnonzero(lost)[0])} has no item ({int(lost.sum())} such rows)."


def _steps(context: Context) -> Iterator[str]:
    """Every step, decided again from the votes and its recorded rule, gives the labels it wrote."""
    for shard, start, items in context.shards:
        written = ShardHistory.read(context.ledger, shard, start, items)
        for at, header in enumerate(context.headers):
            rows = written.steps.get(header.step)
            if rows is None:
                continue
            if header.kind == UPDATE and (rows.vote >= len(context.classes)).any():
                yield f"Step {header.step} has votes for classes that do not exist."
                continue
            if len(np.unique(rows.rows)) < len(rows.rows):
                yield f"Step {header.step} writes an item of shard {shard} twice."
                continue
            if len(rows.rows) and (rows.rows[0] < 0 or rows.rows[-1] >= items):
                yield f"Step {header.step} writes an item that does not exist in shard {shard}."
                continue
            before = {step: written.steps[step] for step in written.steps if step < header.step}
            history = ShardHistory(start, items, before)
            again = _again(context, history, context.headers[: at + 1], rows)
            yield from _compare(header, shard, start, rows, again)
        live = live_updates(context.headers)
        for model in {header.model for header in live}:
            own = [written.voters(header.step) for header in live if header.model == model]
            joined = np.concatenate(own)
            if len(np.unique(joined)) < len(joined):
                yield f"The model '{model}' has two votes that count on an item of shard {shard}."
    ledger = context.ledger
    strange = set(ledger.partitions()) - {HEADER_SHARD} - {shard for shard, _, _ in context.shards}
    for shard in sorted(strange):
        yield f"The ledger has rows of shard {shard}, which does not exist."
    numbers = set(ledger.read([COLUMNS[1]]).column("step").to_pylist())
    for step in sorted(numbers - {header.step for header in context.headers}):
        yield f"The ledger has rows of step {step}, which has no header."


def _again(
    context: Context, history: ShardHistory, headers: list[Header], rows: StepRows
) -> Decided:
    if headers[-1].kind != UPDATE:
        live = live_updates(headers)
        votes = history.votes_of(rows.rows, live)
        now = context.fit_of(headers[-1])
        return decide_all(now, parts_of(context, live), votes, len(rows.rows))
    earlier = live_updates(headers[:-1])
    stored = history.current(earlier, 0.0).label[rows.rows]
    steps = parts_of(context, [*earlier, headers[-1]])
    return decide_last(steps, [*history.votes_of(rows.rows, earlier), rows.cast], stored)


def _compare(
    header: Header, shard: int, start: int, rows: StepRows, again: Decided
) -> Iterator[str]:
    # Another kind of CPU may round the last bit of what was kept the other way.
    for what, stored, computed, bits in (
        ("label", rows.label, again.after, None),
        ("entropy", rows.entropy, again.entropy, ENTROPY_BITS),
        ("belief", rows.belief, again.belief, BELIEF_BITS),
    ):
        far = 0.0 if bits is None else np.abs(computed) * 2.0**-bits + LEAST
        differ = np.flatnonzero(np.abs(stored - computed) > far)
        if len(differ):
            yield (
                f"Step {header.step} wrote another {what} than its votes give for row "
                f"{start + int(rows.rows[differ[0]])} of shard {shard} ({len(differ)} such rows)."
            )
    if header.kind == UPDATE and (rows.vote == MISSING).any():
        yield f"Step {header.step} has items without a vote in shard {shard}."


def _labels(context: Context) -> Iterator[str]:
    """The derived table is that of the step it names; behind it may be, after a kill."""
    if not context.files.list("labels/_delta_log"):
        return
    table = Table(context.files, "labels", labels_schema(context), "shard").head()
    published = table.fence(PUBLISHED)
    if published is not None and published > context.head:
        yield f"The published labels are of step {published}, the ledger ends at {context.head}."
    if published == context.head:
        stored = table.read().drop_columns(["shard"]).sort_by("row")
        current = all_labels(context)
        # Items added since have no label to publish yet.
        current = current.filter(pc.is_in(current.column("row"), value_set=stored.column("row")))
        if not stored.equals(current):
            yield "The published labels are not those of the ledger."
