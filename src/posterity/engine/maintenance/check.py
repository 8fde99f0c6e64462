"""Check a store: every invariant, and what is broken by name."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._text import counted
from posterity.engine.labelled.labelled_votes import checksum, labelled_rows
from posterity.engine.ledger.commit import retried
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import Decided, decide_again, decide_all, decide_last
from posterity.engine.ledger.history import (
    Current,
    ShardHistory,
    StepRows,
    fingerprint,
    parts_of,
    voteless_parts,
)
from posterity.engine.ledger.proposals import Pending, pending_shards
from posterity.engine.ledger.publish import GONE, PUBLISHED, by_row, labels_of, labels_schema
from posterity.engine.ledger.steps import (
    DECISIVE,
    REDECIDE,
    REVIEW,
    SETTLE,
    UPDATE,
    Header,
    live_reviews,
    live_updates,
)
from posterity.engine.maintenance.create import NUMBER
from posterity.engine.maintenance.repair import doubled
from posterity.errors import PosterityError, Superseded
from posterity.method.beliefs.plain import BELIEF_BITS, ENTROPY_BITS
from posterity.method.data.arrays import Rows
from posterity.method.data.votes import MISSING
from posterity.storage.delta.schema import HEADER_SHARD
from posterity.storage.delta.table import Snapshot

LEAST = 1e-37
"""Smaller than single precision can tell from zero."""


def check(context: Context) -> list[str]:
    """What is wrong with a store; an empty list if nothing is."""
    return retried(context, _check)


def _check(context: Context) -> list[str]:
    found: list[str] = []
    try:
        parts = (_files, _classes, _doubled, _headers, _labelled, _items, _steps, _labels)
        for part in parts:
            for line in part(context):
                found.append(line)  # one by one: what was found before an error is told
    except Superseded:
        raise  # no damage: compacted and vacuumed meanwhile
    except (PosterityError, OSError, ValueError, KeyError, IndexError) as error:
        found.append(f"The store cannot be read to its end: {error}")
    return found


def _files(context: Context) -> Iterator[str]:
    """Every file a table names is there, with the size it was committed with."""
    for snapshot in context.snapshots():
        for file in snapshot.data_files():
            size = context.files.size(f"{snapshot.table.name}/{file.path}")
            if size != file.size:
                found = "is missing" if size is None else f"has {size} bytes instead of {file.size}"
                yield f"The file '{snapshot.table.name}/{file.path}' {found}."


def _classes(context: Context) -> Iterator[str]:
    """Codes are 0, 1, 2, … in the order classes came, and each name has one."""
    rows = context.class_rows
    codes, names = [row["code"] for row in rows], [row["name"] for row in rows]
    if codes != list(range(len(codes))):
        yield f"The classes do not have the codes 0 to {len(codes) - 1}, each once."
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        yield f"The class '{twice}' is there more than once."
    if len({row["kind"] for row in rows}) > 1:
        yield "The names of classes are not all of one type."
    recorded = max(context.description.classes, context.class_table.fence(NUMBER) or 0)
    if recorded != len(rows):
        yield f"There are {len(rows)} classes; {recorded} were recorded."


def _doubled(context: Context) -> Iterator[str]:
    """No table has a row twice."""
    tables = [context.layout.classes.head(), context.ledger, context.items]
    for snapshot in tables:
        found = () if snapshot is None else doubled(snapshot)
        rows = sum(int(one.again.sum()) for one in found)
        if snapshot is not None and rows:
            yield (
                f"The table '{snapshot.table.name}' has {counted(rows, 'row')} twice; "
                "`store.repair()` drops the copies."
            )


def _labelled(context: Context) -> Iterator[str]:
    """The labelled votes of each model are those it was registered with."""
    for model in context.models.values():
        rows, settings = labelled_rows(context, model), model.settings
        # Those on stored items that were removed are gone with them.
        purged = settings.stored and len(context.removed) and rows.num_rows < settings.labelled
        if rows.num_rows != settings.labelled and not purged:
            yield (
                f"The model '{model.name}' has {rows.num_rows:,} of its {settings.labelled:,} "
                "labelled votes; register it again with the same labelled data."
            )
        elif settings.checksum is not None and not purged and checksum(rows) != settings.checksum:
            yield f"The labelled votes of '{model.name}' are not those it was registered with."


def _headers(context: Context) -> Iterator[str]:
    """Steps are numbered 0, 1, 2, …, each by a run of its own."""
    numbers = [header.step for header in context.headers]
    if numbers != list(range(len(numbers))):
        yield f"The steps are numbered {numbers}, not 0 to {len(numbers) - 1}."
    runs = [header.run for header in context.headers]
    for run in sorted({run for run in runs if runs.count(run) > 1}):
        yield f"The run '{run}' made more than one step."
    for header in context.headers:
        path = header.fit.get("parameters")
        if path is not None and context.files.size(path) is None:
            yield f"What step {header.step} decided with, '{path}', is missing."
        if header.kind == UPDATE and header.model not in context.models:
            yield f"Step {header.step} is by the model '{header.model}', which is not registered."


def _items(context: Context) -> Iterator[str]:
    """Rows are dense, unique, and in the shard they belong to."""
    if context.items is None:
        return
    twice: int | None = None
    first: int | None = None
    lost = 0
    given = context.executor.map(partial(_given, context), context.shards)
    for (shard, _, _), (strange, again, none, count) in zip(context.shards, given, strict=True):
        if strange:
            yield f"Shard {shard} holds rows of another shard."
        twice = again if twice is None else twice
        first = none if first is None else first
        lost += count
    if twice is not None:
        yield f"Row {twice} is given to more than one item."
    if first is not None:
        yield f"Row {first} has no item ({lost} such rows)."


def _given(context: Context, part: RowRange) -> tuple[bool, int | None, int | None, int]:
    """Whether a shard has rows of another; a row given twice; one without item; how many such."""
    shard, start, items = part
    if context.items is None:
        return False, None, None, 0
    given = np.zeros(items, dtype=np.int64)
    rows = context.items.read(["row"], shard).column("row").to_numpy()
    strange = bool(len(rows)) and bool(rows.min() < start or rows.max() >= start + items)
    if not strange:
        given = np.bincount(rows - start, minlength=items)
    again = np.flatnonzero(given > 1)
    none = np.flatnonzero((given == 0) & ~context.removed.among(start, items))
    twice, first = (start + int(rows[0]) if len(rows) else None for rows in (again, none))
    return strange, twice, first, len(none)


def _steps(context: Context) -> Iterator[str]:
    """Every step, decided again from the votes and its recorded rule, gives the labels it wrote."""
    numbers = set[int]()
    answers, fingerprints = Counter[int](), Counter[int]()
    for part in context.executor.map(partial(_steps_of_shard, context), context.shards):
        numbers |= part.steps
        answers += part.answers
        fingerprints += part.fingerprints
        yield from part.broken
    known = {shard for shard, _, _ in context.shards}
    for shard in context.ledger.partitions():
        if shard not in known:
            if shard != HEADER_SHARD:
                yield f"The ledger has rows of shard {shard}, which does not exist."
            for _, rows in context.ledger.each(["step"], shard):
                numbers |= set(rows.column("step").unique().to_pylist())
    for header in context.headers:
        if header.kind == REVIEW:
            count, written = answers[header.step], fingerprints[header.step] % 2**64
            other = f"{written:016x}" != header.report["answers"]
            # With fewer items, the others were removed and purged.
            if count > header.answers or (count == header.answers and other):
                yield f"Step {header.step} has other answers than were given."
    for step in sorted(numbers - {header.step for header in context.headers}):
        yield f"The ledger has rows of step {step}, which has no header."


@dataclass(frozen=True)
class _ShardSteps:
    """What there is to say of the steps of one shard."""

    steps: set[int]
    answers: Counter[int]
    """How many items each review has written."""
    fingerprints: Counter[int]
    """Of what reviews have written."""
    broken: list[str]


def _steps_of_shard(context: Context, part: RowRange) -> _ShardSteps:
    history = ShardHistory.read(context.ledger, *part)
    found = _ShardSteps(set(history.steps), Counter(), Counter(), [])
    for header in context.headers:
        rows = history.steps.get(header.step)
        if header.kind == REVIEW and rows is not None:
            found.answers[header.step] = len(rows.rows)
            found.fingerprints[header.step] = fingerprint(part.start + rows.rows, rows.label)
    found.broken.extend(_shard(context, part.number, history))
    found.broken.extend(_votes(context.live_updates, part.number, history))
    return found


def _shard(context: Context, shard: int, history: ShardHistory) -> Iterator[str]:
    """Walk the steps of a shard in order, with the items as they stood before each."""
    before = Current.nothing(history.items, 0.0)
    present = ~context.removed.among(history.start, history.items)
    waiting = deque(sorted(history.steps))
    for at, header in enumerate(context.headers):
        while waiting and waiting[0] < header.step:
            number = waiting.popleft()
            before.follow(number, _inside(history.steps[number], history.items))
        rows = history.steps.get(header.step)
        settles = header.kind in DECISIVE
        if settles:
            left = np.flatnonzero(before.proposed != MISSING)
            left = left[present[left]]
            if len(left) and rows is not None:
                left = np.setdiff1d(left, rows.rows)
            if len(left):
                yield (
                    f"Step {header.step} has neither made nor dropped the pending flip of row "
                    f"{history.start + int(left[0])} of shard {shard} ({len(left)} such rows)."
                )
        if rows is None:
            continue
        if header.kind == UPDATE and (rows.vote >= len(context.classes)).any():
            yield f"Step {header.step} has votes for classes that do not exist."
        elif header.kind == REVIEW and not _are_answers(rows, len(context.classes)):
            yield f"Step {header.step} is a review and has more than answers in shard {shard}."
        elif _repeated(rows.rows):
            yield f"Step {header.step} writes an item of shard {shard} twice."
        elif len(rows.rows) and (rows.rows[0] < 0 or rows.rows[-1] >= history.items):
            yield f"Step {header.step} writes an item that does not exist in shard {shard}."
        else:
            idle = rows.rows[rows.vote == MISSING]
            if header.kind in (SETTLE, REDECIDE) and len(idle) < len(rows.rows):
                yield f"Step {header.step} is a {header.kind} and has votes in shard {shard}."
            elif header.kind in (UPDATE, SETTLE) and (before.proposed[idle] == MISSING).any():
                yield (
                    f"Step {header.step} has items without a vote and without a pending flip in "
                    f"shard {shard}."
                )
            else:
                again = _again(context, history, before, context.headers[: at + 1], rows)
                yield from _compare(header, shard, history.start, rows, again)
    for number in waiting:
        before.follow(number, _inside(history.steps[number], history.items))
    pending = present & (before.proposed != MISSING)
    if pending.any() and shard not in pending_shards(context.headers):
        yield f"Shard {shard} has pending flips, and the header of the step does not say so."


def _are_answers(rows: StepRows, classes: int) -> bool:
    known = (rows.label >= 0) & (rows.label < classes)
    return bool(known.all() and (rows.vote == MISSING).all())


def _inside(rows: StepRows, items: int) -> StepRows:
    """Without rows that do not exist, which are told of elsewhere."""
    inside = (rows.rows >= 0) & (rows.rows < items)
    return rows if inside.all() else rows.where(inside)


def _votes(live: Sequence[Header], shard: int, history: ShardHistory) -> Iterator[str]:
    """An item has at most one vote of a model that counts."""
    for model in dict.fromkeys(header.model for header in live):
        voted = np.zeros(history.items, dtype=np.bool_)
        for step in [header.step for header in live if header.model == model]:
            voters = history.voters(step)
            inside = voters[(voters >= 0) & (voters < history.items)]
            if voted[inside].any() or _repeated(voters):
                yield f"The model '{model}' has two votes that count on an item of shard {shard}."
                break
            voted[inside] = True


def _repeated(ascending: Rows) -> bool:
    return bool((ascending[1:] == ascending[:-1]).any())


def _again(
    context: Context, history: ShardHistory, before: Current, headers: list[Header], rows: StepRows
) -> Decided:
    pins = history.pins(live_reviews(headers))
    if headers[-1].kind == REVIEW:
        belief = before.belief[rows.rows].astype(np.float64)
        return Decided.answered(before.label[rows.rows], belief, rows.label)
    if headers[-1].kind == REDECIDE:
        live, (policy,) = live_updates(headers), parts_of(context, headers[-1:])
        votes = history.votes_of(rows.rows, live)
        label, belief = before.label[rows.rows], before.belief[rows.rows].astype(np.float64)
        decided = decide_again(policy, parts_of(context, live), votes, label, belief)
        return decided.pinned(pins[rows.rows])
    if headers[-1].kind not in DECISIVE:
        live = live_updates(headers)
        votes = history.votes_of(rows.rows, live)
        now = context.fits.of(headers[-1].fit)
        steps = parts_of(context, live)
        voteless = voteless_parts(context, headers)
        decided = decide_all(now, steps, votes, len(rows.rows), voteless)
        return decided.pinned(pins[rows.rows])
    pending = Pending.among(before, rows.rows[rows.vote == MISSING])
    if headers[-1].kind == SETTLE:
        return pending.made
    earlier = live_updates(headers[:-1])
    steps = parts_of(context, [*earlier, headers[-1]])
    at = np.flatnonzero(rows.vote != MISSING) if len(pending) else slice(None)
    voted = rows.rows[at]
    votes = [*history.votes_of(voted, earlier), rows.cast[at]]
    decided = decide_last(steps, votes, before.label[voted], before.proposed[voted])
    decided = decided.pinned(pins[voted])
    if not len(pending):
        return decided
    order = np.argsort(np.concatenate([voted, pending.rows]), kind="stable")
    return Decided.joined([decided, pending.made])[order]


def _compare(
    header: Header, shard: int, start: int, rows: StepRows, again: Decided
) -> Iterator[str]:
    # Another kind of CPU may round the last bit of what was kept the other way.
    for what, stored, computed, bits in (
        ("label", rows.label, again.after, None),
        ("entropy", rows.entropy, again.entropy, ENTROPY_BITS),
        ("belief", rows.belief, again.belief, BELIEF_BITS),
        ("pending flip", rows.proposed, again.proposed, None),
        ("belief in a pending flip", rows.belief_proposed, again.belief_proposed, BELIEF_BITS),
    ):
        far = 0.0 if bits is None else np.abs(computed) * 2.0**-bits + LEAST
        differ = np.flatnonzero(np.abs(stored - computed) > far)
        if len(differ):
            yield (
                f"Step {header.step} wrote another {what} than its votes give for row "
                f"{start + int(rows.rows[differ[0]])} of shard {shard} ({len(differ)} such rows)."
            )


def _labels(context: Context) -> Iterator[str]:
    """The derived table is that of the step it names; behind it may be, after a kill."""
    if not context.layout.labels().exists():
        return
    table = context.layout.labels(labels_schema(context)).head()
    # Read after it: steps and removals that are published by now are in the ledger by now.
    context = context.again()
    published = table.fence(PUBLISHED)
    lost = (table.fence(GONE) or 0) - len(context.removed)
    if lost > 0:
        yield (
            f"{counted(lost, 'removal')} that the published labels reflect "
            f"{'are' if lost > 1 else 'is'} missing: removed items are back."
        )
    if published is not None and published > context.head:
        yield f"The published labels are of step {published}, the ledger ends at {context.head}."
    if published != context.head:
        return
    known = {shard[0]: shard for shard in context.shards}
    shards = sorted({*table.partitions(), *known})
    whole = partial(_as_in_ledger, context, table)
    if not all(context.executor.map(whole, shards, [known.get(shard) for shard in shards])):
        yield "The published labels are not those of the ledger."


def _as_in_ledger(context: Context, table: Snapshot, number: int, shard: RowRange | None) -> bool:
    stored = by_row(table.read(partition=number).drop_columns(["shard"]))
    # After a kill it may be behind by removals, too.
    stored = stored.filter(pa.array(~context.removed[stored.column("row").to_numpy()]))
    current = stored.slice(0, 0) if shard is None else labels_of(context, shard)
    # Items added since have no label to publish yet.
    current = current.filter(pc.is_in(current.column("row"), value_set=stored.column("row")))
    return bool(stored.equals(current))
