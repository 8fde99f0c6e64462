"""Evaluate: obtain the votes of a plan's items from a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from posterity._text import Progress, counted
from posterity.engine.evaluation.durable_votes import KeptVotes, Run
from posterity.engine.evaluation.plans import Plan
from posterity.engine.executors import Lost, Pool, Replicas
from posterity.engine.items.payload import Payload, batches_of, payload_of
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.steps import failed_rows
from posterity.errors import MissingExtra, PosterityError, StoreError, Superseded, Unavailable
from posterity.method.data.arrays import Mask, Rows
from posterity.method.data.row_sets import Bits, RowSet, Tombstones, packed, unpacked
from posterity.method.data.spec import whole_number
from posterity.method.data.votes import ModelVotes
from posterity.models.model import Loaded, Predict, load_predict
from posterity.storage.row_groups import WRITTEN

BATCH = 1024
MAX_ERRORS = 100
WINDOW = 2**18
"""Rows that are made numbers together."""
DEATHS = 20
"""Replicas that may die one after the other without a vote: more than it takes to find an item
that kills whoever looks at it, fewer than it takes to wear out a cluster."""


@dataclass(frozen=True)
class Evaluation:
    """How a model is asked for its votes."""

    batch: int = BATCH
    """Items per call."""
    max_errors: int = MAX_ERRORS
    """Items it may fail on before the update stops."""
    retry_errors: bool = False
    """Ask again about items it failed on."""
    replicas: Replicas | int | str | None = None
    """How many work side by side, and what each needs; None: as many as there is room for."""

    def __post_init__(self) -> None:
        # A slip is told before anything is done.
        object.__setattr__(self, "batch", whole_number(self.batch, "batch", least=1))
        object.__setattr__(self, "max_errors", whole_number(self.max_errors, "max_errors"))
        object.__setattr__(self, "replicas", Replicas.read(self.replicas))


@dataclass(frozen=True, eq=False)
class Unit:
    """Some items to be asked about, in batches."""

    rows: Rows
    batch: int
    most: int
    """Items the model may fail on before the rest is not worth asking for."""
    tries: int = 0
    """Replicas that died over it without a vote."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What a replica made of a unit."""

    done: int
    """Items it voted or failed on."""
    errors: dict[int, str] = field(default_factory=dict)


def ask_model(
    run: Run,
    plan: Plan,
    predict: Predict | str,
    how: Evaluation,
    progress: Progress | None = None,
) -> None:
    """Let the model vote on what is left of the plan; each batch is durable before the next.

    The model is asked where the executor has replicas of it. Each reads its items and writes its
    votes by itself; what comes back is how many.
    """
    context, failed = run.context, run.errors()
    # What it failed on in earlier steps is asked for last, and alone: it makes no batch fail.
    before = np.zeros(0, np.int64)
    if not how.retry_errors:
        before = np.array(failed_rows(context.headers, plan.request.model), np.int64)
        before = before[plan.chosen[before]]
    most = how.max_errors + len(before)
    if len(failed) > most:  # which stopped the run then; the model may be well by now
        run.forget_errors()
        failed = {}
    left = _Left(run.kept(), np.array(sorted(failed), np.int64), context.removed)
    waiting = sum(context.executor.map(left.count_left, context.shards, _chosen(context, plan)))
    done = plan.evaluations - waiting
    if not waiting:
        return
    others = replace(left, failed=np.union1d(left.failed, before))
    alone = left.among(before) if len(before) else before
    voter = partial(Voter, run, plan.request.model, predict)
    with context.executor.pool(voter, Replicas.read(how.replicas)) as pool:
        rows = others.rows(context.shards, _chosen(context, plan))
        for asked in _Asking(run, failed, how.batch, most).of(pool, rows, alone):
            done += asked.done
            if progress:
                progress(done, plan.evaluations)


def _chosen(context: Context, plan: Plan) -> Iterator[Bits]:
    """A plan's rows, shard by shard."""
    return (packed(plan.chosen.among(start, items)) for _, start, items in context.shards)


@dataclass(frozen=True, eq=False)
class _Left:
    """Which of a plan's items are there, and have neither a vote nor an error."""

    kept: KeptVotes
    failed: Rows
    removed: Tombstones

    def of(self, shard: RowRange, chosen: Bits) -> Mask:
        """Of one shard."""
        number, start, items = shard
        left = unpacked(chosen, items) & ~self.removed.among(start, items)
        left[self.kept.rows_of(number) - start] = False
        left[self.failed[(self.failed >= start) & (self.failed < start + items)] - start] = False
        return left

    def among(self, rows: Rows) -> Rows:
        """Those of some planned rows."""
        kept = [self.kept.rows_of(shard) for shard in self.kept.of_shards]
        done = np.concatenate([self.failed, self.removed.rows, *kept])
        return np.setdiff1d(rows, done)

    def count_left(self, shard: RowRange, chosen: Bits) -> int:
        """How many of one shard."""
        return int(self.of(shard, chosen).sum())

    def rows(self, shards: Sequence[RowRange], chosen: Iterator[Bits]) -> Iterator[Rows]:
        """All of them, ascending, some at a time: replicas may take days to ask for the last."""
        for shard, bits in zip(shards, chosen, strict=True):
            left = self.of(shard, bits)
            for low in range(0, len(left), WINDOW):
                yield np.flatnonzero(left[low : low + WINDOW]) + shard[1] + low


class _Asking:
    """The items that are left, handed out in units until all have a vote or an error."""

    def __init__(self, run: Run, failed: dict[int, str], batch: int, max_errors: int) -> None:
        self._run, self._failed = run, dict(failed)
        self._batch, self._max_errors = batch, max_errors
        self._deaths = self._handed = 0
        """Since a replica last came back with something; and items handed out."""
        self._works = False
        """Whether any replica came back with something."""

    def of(self, pool: Pool, rows: Iterator[Rows], alone: Rows) -> Iterator[Asked]:
        """What is done, as it is done; ``alone``: rows that are asked for last, one by one."""
        size = self._batch * pool.batches
        rounds: Iterator[Unit] = chain(
            self._units(batches_of(rows, size), self._batch),
            self._units(batches_of([alone], size), batch=1),
        )
        while True:
            again: list[Unit] = []
            for unit, made in pool.run(rounds):
                asked = self._lost(unit, made, again) if isinstance(made, Lost) else made
                if asked is made:
                    self._deaths, self._works = 0, True
                self._failed |= asked.errors
                _refuse_errors(self._failed, self._max_errors)
                yield asked
            if not again:
                return
            rounds = (replace(unit, most=self._most) for unit in again)

    @property
    def _most(self) -> int:
        return self._max_errors - len(self._failed)

    def _units(self, parts: Iterator[Rows], batch: int) -> Iterator[Unit]:
        for rows in parts:
            self._handed += len(rows)
            yield Unit(rows, batch, self._most)

    def _lost(self, unit: Unit, lost: Lost, again: list[Unit]) -> Asked:
        """A replica died. What it made durable is not asked again; the rest is, and an item that
        kills one replica after the other is found by halves.
        """
        self._deaths += unit.tries > 0  # a node that is lost takes many at once, each once
        kept, errors = self._run.kept(), self._run.errors()
        size = self._run.context.description.shard_rows
        shards = np.unique(unit.rows // size).tolist()
        have = np.concatenate([unit.rows[:0], *(kept.rows_of(shard) for shard in shards)])
        left = unit.rows[~np.isin(unit.rows, have) & ~np.isin(unit.rows, list(errors))]
        if len(left) < len(unit.rows):
            self._deaths, self._works = 0, True
            if len(left):
                again.append(replace(unit, rows=left, tries=0))
            own = {row: errors[row] for row in unit.rows.tolist() if row in errors}
            return Asked(len(unit.rows) - len(left), own)
        # An item is to blame only where others are not: the only one there is, or where votes came.
        sure = self._works or self._handed == 1
        if self._deaths > DEATHS or (len(left) == 1 and unit.tries and not sure):
            raise Unavailable(
                "Replicas of the model died one after the other without a vote; the last said: "
                f"{lost.reason}.",
                hint="All votes are kept. Mend the model, or give its replicas more memory "
                "(--replicas COUNT,memory=…), and run the same again.",
            )
        if not unit.tries:  # its node may have been lost, which is no item's fault
            again.append(replace(unit, tries=1))
            return Asked(0)
        if len(left) == 1:
            reason = {int(left[0]): f"replicas of the model die over it: {lost.reason}"}
            self._run.keep_errors(reason)
            return Asked(1, reason)
        # Batches are asked about in order: it was the first that killed it.
        suspects, rest = left[: unit.batch], left[unit.batch :]
        again += [
            Unit(half, len(half), self._most, tries=int(len(half) > 1))
            for half in np.array_split(suspects, 2)
            if len(half)
        ]
        if len(rest):
            again.append(replace(unit, rows=rest, tries=0))
        return Asked(0)


def _refuse_errors(failed: dict[int, str], most: int) -> None:
    if len(failed) > most:
        raise StoreError(
            f"The model failed on {counted(len(failed), 'item')}, more than {most}; the last said: "
            f"{list(failed.values())[-1].rstrip('.')}.",
            hint="All votes are kept. Mend the model and run the same again.",
        )


class Voter:
    """A replica of a model: its state is made once, when the first batch comes."""

    def __init__(self, run: Run, model: str, predict: Predict | str) -> None:
        context = run.context
        self._run, self._payload = run, Payload(context)
        # Given by its name, it is looked for where it is asked.
        found = load_predict(predict) if isinstance(predict, str) else predict
        self._predict = found if isinstance(found, Loaded) else Loaded(found)
        self._answers = context.model(model).settings.answers(context.classes)
        self._own_named = self._answers.own is None
        """Nobody said what its classes are, so that it may name them itself."""

    def __call__(self, unit: Unit) -> Asked:
        """Vote on a unit's items; each batch is durable before the next."""
        done, errors = 0, dict[int, str]()
        for rows, items in self._batches(unit):
            voted, votes, reasons = self._vote(rows, items, unit.most - len(errors))
            if len(voted):
                self._run.keep_votes(voted, votes)
            if reasons:
                self._run.keep_errors(reasons)
            errors |= reasons
            done += len(rows)
            if len(errors) > unit.most:
                break
        return Asked(done, errors)

    def _batches(self, unit: Unit) -> Iterator[tuple[Rows, pa.Table]]:
        """As many items as a batch should have, or fewer where they are large."""
        for low in range(0, len(unit.rows), unit.batch):
            left = unit.rows[low : low + unit.batch]
            try:
                for part in self._payload.parts(left):
                    yield part
                    left = left[left > part[0][-1]]
            except Superseded:
                # Evaluation may take days: files are replaced by a compaction, and vacuumed.
                self._payload = Payload(self._run.context.again())
                yield from self._payload.parts(left)

    def _vote(
        self, rows: Rows, items: pa.Table, most: int
    ) -> tuple[Rows, ModelVotes, dict[int, str]]:
        """Votes of a batch; if the model fails on it, of each item alone, so that one costs one."""
        try:
            return rows, self._ask(items), {}
        except (Unavailable, MissingExtra):
            raise  # no item is to blame
        except Exception as error:
            if len(rows) == 1:
                told = error.message if isinstance(error, PosterityError) else repr(error)
                return rows[:0], ModelVotes.joined([]), {int(rows[0]): told}
        voted, votes, reasons = [rows[:0]], list[ModelVotes](), dict[int, str]()
        for at in range(len(rows)):
            one, vote, reason = self._vote(rows[at : at + 1], items.slice(at, 1), most)
            voted.append(one)
            votes.append(vote)
            reasons |= reason
            if len(reasons) > most:
                break  # the rest of the batch is not worth asking for
        return np.concatenate(voted), ModelVotes.joined(votes), reasons

    def _ask(self, items: pa.Table) -> ModelVotes:
        """One vote an item."""
        given = self._predict(items)
        own = self._predict.classes
        if self._own_named and own != self._answers.own:
            self._answers = replace(self._answers, own=own)  # once, since it maps all classes
        return self._answers.votes(given, items.num_rows)


def planned_batches(context: Context, plan: Plan) -> Iterator[pa.Table]:
    """A plan's items with their payload, a batch at a time."""
    rows = RowSet(context.rows)
    for _, start, items in context.shards:
        own = plan.chosen.between(start, items)
        rows.mark(own[~context.removed[own]])
    for _, items_of in payload_of(context, rows, WRITTEN):
        yield items_of


def planned_items(context: Context, plan: Plan) -> pa.Table:
    """A plan's items with their payload, all at once."""
    parts = list(planned_batches(context, plan))
    return pa.concat_tables(parts) if parts else pa.table({})
