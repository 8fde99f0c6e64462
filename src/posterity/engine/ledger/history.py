"""The ledger of one shard as arrays: who voted what on which item, and where its label stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from posterity.engine.ledger.context import Context
from posterity.engine.ledger.decide import StepPolicy
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.steps import SETTLE, Header, live_updates, live_voteless
from posterity.method.data.arrays import Codes, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.method.decide.defaults import DEPENDENT
from posterity.method.decide.selectors import row_hash
from posterity.storage import parquet
from posterity.storage.delta.table import Snapshot

PROPOSALS = ("proposed", "belief_proposed")
LABELS = ["row", "step", "vote", "label", "belief", "entropy", *PROPOSALS]
"""What tells where labels stand; soft votes, which may be large, are not among it."""
COLUMNS = [*LABELS, *parquet.NAMES]


@dataclass(frozen=True, eq=False)
class StepRows:
    """What one step wrote about the items of a shard, by row."""

    rows: Rows
    """Positions within the shard, ascending."""
    cast: ModelVotes
    label: Codes
    belief: Floats
    entropy: Floats
    proposed: Codes
    """The class a pending flip would make the label; −1 where none is pending."""
    belief_proposed: NDArray[np.float32]

    @property
    def vote(self) -> Codes:
        """The votes; −1 where the step only moved a label."""
        return self.cast.hard

    @property
    def voters(self) -> Rows:
        """The items that got a vote."""
        voters: Rows = self.rows[self.vote != MISSING]
        return voters

    def where(self, kept: Mask) -> StepRows:
        """Some of the rows."""
        return StepRows(*(getattr(self, field.name)[kept] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Current:
    """Where the items of a shard stand."""

    label: Codes
    belief: NDArray[np.float32]
    entropy: Floats
    voted: Mask
    changed: Codes
    """The step of the last change of the label; −1 if there is none."""
    proposed: Codes
    """The class a pending flip would make the label; −1 where none is pending."""
    belief_proposed: NDArray[np.float32]
    """The belief in it when it was proposed; then ``belief`` is that in the stored label."""

    @classmethod
    def nothing(cls, items: int, prior_entropy: float) -> Current:
        """Before the first step."""
        return cls(
            label=np.full(items, MISSING, dtype=np.int32),
            belief=np.zeros(items, dtype=np.float32),
            entropy=np.full(items, prior_entropy),
            voted=np.zeros(items, dtype=np.bool_),
            changed=np.full(items, MISSING, dtype=np.int32),
            proposed=np.full(items, MISSING, dtype=np.int32),
            belief_proposed=np.zeros(items, dtype=np.float32),
        )

    def follow(self, step: int, written: StepRows) -> None:
        """Write down what the next step has written, all but who voted."""
        rows = written.rows
        self.changed[rows[self.label[rows] != written.label]] = step
        self.label[rows], self.belief[rows] = written.label, written.belief
        self.entropy[rows], self.proposed[rows] = written.entropy, written.proposed
        self.belief_proposed[rows] = written.belief_proposed


class ShardHistory:
    """All steps of one shard."""

    def __init__(self, start: int, items: int, steps: dict[int, StepRows]) -> None:
        self.start = start
        self.items = items
        self.steps = steps

    @classmethod
    def read(cls, ledger: Snapshot, shard: int, start: int, items: int) -> ShardHistory:
        """From the ledger's files."""
        return cls.of(ledger.read(COLUMNS, shard), start, items)

    @classmethod
    def of_row(cls, ledger: Snapshot, shard: int, row: int) -> ShardHistory:
        """Of one row, from the few parts of files that may hold it."""
        parts = [
            part.filter(pc.equal(part.column("row"), row))
            for file in ledger.files_of(shard)
            for part in ledger.row_groups(file, COLUMNS, row=row)
        ]
        empty = ledger.table.schema.empty_table().select(COLUMNS)
        return cls.of(pa.concat_tables([empty, *parts]).sort_by("step"), row, 1)

    @classmethod
    def of(cls, table: pa.Table, start: int, items: int) -> ShardHistory:
        """From rows of the ledger; without its columns of soft votes, all votes are hard."""
        step = table.column("step").to_numpy()
        vote, label = (
            table.column(name).fill_null(MISSING).to_numpy() for name in ("vote", "label")
        )
        row = table.column("row").to_numpy() - start
        belief, entropy = (table.column(name).to_numpy() for name in ("belief", "entropy"))
        proposed, believed = _proposals_of(table)
        soft_columns = set(parquet.NAMES) & set(table.column_names)
        softly = any(table.column(name).null_count < table.num_rows for name in soft_columns)
        steps = {}
        for number, at in _runs(step, row):
            soft = None
            if softly:
                own = table.slice(at.start, at.stop - at.start) if isinstance(at, slice) else None
                soft = parquet.from_columns(table.take(at) if own is None else own, vote[at])
            cast = ModelVotes(vote[at], soft)
            steps[number] = StepRows(
                row[at], cast, label[at], belief[at], entropy[at], proposed[at], believed[at]
            )
        return cls(start, items, steps)

    def before(self, step: int) -> ShardHistory:
        """As it was before a step."""
        earlier = {number: rows for number, rows in self.steps.items() if number < step}
        return ShardHistory(self.start, self.items, earlier)

    def current(self, headers: Sequence[Header], prior_entropy: float) -> Current:
        """Labels, beliefs and entropies after the last step; votes of the given updates count."""
        now = Current.nothing(self.items, prior_entropy)
        for number in sorted(self.steps):
            now.follow(number, self.steps[number])
        for header in headers:
            now.voted[self.voters(header.step)] = True
        return now

    def pins(self, reviews: Sequence[Header]) -> Codes:
        """What people answered in the given reviews, the last of them on an item; −1: nothing."""
        pins = np.full(self.items, MISSING, dtype=np.int32)
        for header in reviews:
            if (written := self.steps.get(header.step)) is not None:
                pins[written.rows] = written.label
        return pins

    def voters(self, step: int) -> Rows:
        """The items that got a vote in a step."""
        written = self.steps.get(step)
        return np.zeros(0, dtype=np.int64) if written is None else written.voters

    def voted_by(self, headers: Sequence[Header], model: str) -> Mask:
        """Which items have a vote of a model among the given updates."""
        mask = np.zeros(self.items, dtype=np.bool_)
        for header in headers:
            if header.model == model:
                mask[self.voters(header.step)] = True
        return mask

    def votes_of(self, rows: Rows, headers: Sequence[Header]) -> list[ModelVotes]:
        """The votes of each of the given updates on some items; −1 where there is none."""
        return [self._votes_of(rows, header.step) for header in headers]

    def _votes_of(self, rows: Rows, step: int) -> ModelVotes:
        written = self.steps.get(step)
        if written is None or not len(written.rows):
            return ModelVotes(np.full(len(rows), MISSING, dtype=np.int32))
        at = np.searchsorted(written.rows, rows).clip(max=len(written.rows) - 1)
        return written.cast[at].where(written.rows[at] == rows)


def _proposals_of(table: pa.Table) -> tuple[Codes, NDArray[np.float32]]:
    """Which class each row proposes (−1: none), and the belief in it."""
    column, rows = table.column("proposed"), table.num_rows
    if column.null_count == rows:  # as mostly; then they need no room
        none, nothing = np.int32(MISSING), np.float32(0)
        return np.broadcast_to(none, rows), np.broadcast_to(nothing, rows)
    believed = table.column("belief_proposed").fill_null(0.0).to_numpy()
    return column.fill_null(MISSING).to_numpy(), believed


def _runs(step: Codes, row: Rows) -> Iterator[tuple[int, Rows | slice]]:
    """Where each step's rows are, by row: a slice, which copies nothing, where they lie so."""
    bounds = [0, *(np.flatnonzero(step[1:] != step[:-1]) + 1).tolist(), len(step)]
    found: dict[int, list[slice]] = {}
    for begin, end in pairwise(bounds):
        if begin < end:
            found.setdefault(int(step[begin]), []).append(slice(begin, end))
    for number in sorted(found):
        if len(found[number]) == 1 and (np.diff(row[found[number][0]]) > 0).all():
            yield number, found[number][0]
            continue
        at = np.flatnonzero(step == number)
        yield number, at[np.argsort(row[at], kind="stable")]


def parts_of(context: Context, headers: Sequence[Header]) -> list[StepPolicy]:
    """How each of these updates folds and decides, with the fit it recorded."""
    return [
        StepPolicy(header.voter, context.rule(header.rule or ""), context.fits.of(header.fit))
        for header in headers
    ]


def votes_until(
    context: Context, history: ShardHistory, step: int
) -> tuple[list[StepPolicy], list[ModelVotes]]:
    """The votes on an item that counted after a step, and what each was decided by."""
    live = live_updates([one for one in context.headers if one.step <= step])
    cast = history.votes_of(np.zeros(1, np.int64), live)
    own = [at for at, votes in enumerate(cast) if votes.hard[0] != MISSING]
    return parts_of(context, [live[at] for at in own]), [cast[at] for at in own]


def voteless_parts(
    context: Context, headers: Sequence[Header]
) -> list[tuple[int, StepPolicy | None]]:
    """What steps without votes decide by, and after how many updates; None: a settle."""
    return [
        (place, None if header.kind == SETTLE else parts_of(context, [header])[0])
        for place, header in live_voteless(headers)
    ]


def newest_fit(context: Context, steps: Sequence[StepPolicy]) -> Fit:
    """What items are believed by now: as it was learnt when the last model arrived."""
    fit = context.fits.now()
    if not steps:
        return fit
    last = steps[-1].fit
    return last if last.beliefs == DEPENDENT else fit.tempered(last.temperatures)


def fingerprint(rows: Rows, answers: Codes) -> int:
    """A number that answers on different rows add up to, in whatever order and parts.

    >>> first, second = np.array([3]), np.array([9])
    >>> whole = fingerprint(np.array([9, 3]), np.array([1, 0]))
    >>> parts = fingerprint(first, np.array([0])) + fingerprint(second, np.array([1]))
    >>> whole == parts % 2**64, whole == fingerprint(np.array([9, 3]), np.array([0, 1]))
    (True, False)
    """
    # Two rounds, so that a row and an answer cannot make up for one another.
    mixed = row_hash(row_hash(np.asarray(rows)) ^ np.asarray(answers).astype(np.uint64))
    return int(mixed.sum(dtype=np.uint64))
