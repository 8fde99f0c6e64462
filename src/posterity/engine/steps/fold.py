"""Fold: what a step makes of one shard, done where the shard is; what comes back is small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from posterity.engine.evaluation.durable_votes import KeptVotes
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import Decided, StepPolicy, decide_last
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.proposals import Pending, pending_of
from posterity.engine.ledger.reports import Tally
from posterity.engine.ledger.steps import Header
from posterity.engine.ledger.totals import Total
from posterity.method.beliefs.plain import BELIEF_BITS, ENTROPY_BITS, kept
from posterity.method.data.arrays import Codes, Rows
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.storage import parquet
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.schema import LEDGER
from posterity.validation.shift import Seen


@dataclass(frozen=True, eq=False)
class FoldedShards:
    """What became of some shards: files written, and what there is to count."""

    files: list[DataFile] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    moved: Total = field(default_factory=Total)
    """What the beliefs in all labels gain or lose."""
    seen: Seen = field(default_factory=Seen)
    obtained: int = 0
    """Votes there were."""
    folded: int = 0
    """Those on items that are there, and that the model had not seen otherwise."""
    pinned: int = 0
    """Those of them on items with a label that no vote decides."""
    soft: int = 0
    """Those of them with probabilities."""
    recovered: list[int] = field(default_factory=list)
    """Rows the model had failed on, and that have a vote all the same."""
    done: list[int] = field(default_factory=list)
    """Shards that have a folded vote; their pending flips are decided with it."""
    waiting: list[int] = field(default_factory=list)
    """Shards that have pending flips now."""

    def __add__(self, other: FoldedShards) -> FoldedShards:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return FoldedShards(*(own + more for own, more in pairs))

    @staticmethod
    def joined(parts: Iterable[FoldedShards]) -> FoldedShards:
        """Of all shards, in their order."""
        return sum(parts, FoldedShards())


@dataclass(frozen=True, eq=False)
class Fold:
    """The votes of a step, to be folded shard by shard."""

    context: Context
    kept: KeptVotes
    failing: Sequence[int]
    live: Sequence[Header]
    reviews: Sequence[Header]
    steps: Sequence[StepPolicy]
    """The updates that count, and the step itself."""
    step: int

    def __call__(self, part: RowRange) -> FoldedShards:
        """Fold and decide the items of a shard that have a vote; make its other pending flips."""
        shard, start, items = part
        context, model = self.context, self.steps[-1].model
        rows, votes = self.kept.of(shard)
        if not len(rows):
            return FoldedShards()
        again = rows[np.isin(rows, self.failing)].tolist()
        history = ShardHistory.read(context.ledger, shard, start, items)
        here = ~context.removed[rows]
        local = rows[here] - start
        unseen = ~history.voted_by(self.live, model)[local]
        local, cast = local[unseen], votes[here][unseen]
        if not len(local):
            return FoldedShards(obtained=len(rows), recovered=again)
        now = history.current(self.live, 0.0)
        pending, pins = now.proposed[local], history.pins(self.reviews)[local]
        earlier = history.votes_of(local, self.live)
        decided = decide_last(self.steps, [*earlier, cast], now.label[local], pending).pinned(pins)
        tally = Tally()
        tally.count_voted(decided, pending)
        believed = now.belief[local].astype(np.float64)
        free = pins == MISSING  # how a vote meets an answer says nothing of beliefs
        classes = self.steps[-1].fit.classes
        seen = Seen.of(now.label[local][free], believed[free], cast.hard[free], classes)
        moved, folded = Total().moved(now.label[local], believed, decided), len(local)
        soft = 0 if cast.soft is None else int((cast.soft.hard != MISSING).sum())
        waits = (decided.proposed != MISSING).any()
        idle = now.proposed != MISSING
        idle[local] = False
        idle &= ~context.removed.among(start, items)
        left = Pending.among(now, np.flatnonzero(idle))
        if len(left):
            local, cast, decided = _with_settled(local, cast, decided, left)
            tally.count_settled(left.made)
            moved = moved.moved(left.made.before, left.made.belief_before, left.made)
        file = write_rows(context, self.step, shard, start + local, cast, decided)
        waiting = [shard] if waits else []
        return FoldedShards(
            *([file], tally, moved, seen, len(rows), folded, int((~free).sum()), soft, again),
            done=[shard],
            waiting=waiting,
        )


def settle_shard(context: Context, step: int, shard: RowRange) -> FoldedShards:
    """Make the pending flips of a shard."""
    left = pending_of(context, shard)
    if not len(left):
        return FoldedShards()
    made, tally = left.made, Tally()
    tally.count_settled(made)
    file = write_rows(context, step, shard.number, shard.start + left.rows, None, made)
    return FoldedShards([file], tally, Total().moved(made.before, made.belief_before, made))


def _with_settled(
    rows: Rows, cast: ModelVotes, decided: Decided, left: Pending
) -> tuple[Rows, ModelVotes, Decided]:
    """Rows with a vote and rows whose pending flip is made without one, by row."""
    joined = np.concatenate([rows, left.rows])
    order = np.argsort(joined, kind="stable")
    nobody = ModelVotes(np.full(len(left), MISSING, dtype=np.int32))
    votes = ModelVotes.joined([cast, nobody])[order]
    return joined[order], votes, Decided.joined([decided, left.made])[order]


def write_rows(
    context: Context, step: int, shard: int, rows: Rows, votes: ModelVotes | None, decided: Decided
) -> DataFile:
    """One step's rows of one shard."""

    def nullable(codes: Codes) -> pa.Array:
        return pa.array(codes, pa.int32(), mask=codes == MISSING)

    count = len(rows)
    cast = ModelVotes(np.full(count, MISSING, dtype=np.int32)) if votes is None else votes
    table = pa.table(
        {
            "shard": pa.array(np.full(count, shard, dtype=np.int32)),
            "row": pa.array(rows),
            "step": pa.array(np.full(count, step, dtype=np.int32)),
            "vote": nullable(cast.hard),
            **parquet.to_columns(cast),
            "label": nullable(decided.after),
            "belief": pa.array(kept(decided.belief, BELIEF_BITS).astype(np.float32)),
            "entropy": pa.array(kept(decided.entropy, ENTROPY_BITS)),
            "proposed": nullable(decided.proposed),
            "belief_proposed": pa.array(
                kept(decided.belief_proposed, BELIEF_BITS).astype(np.float32),
                mask=decided.proposed == MISSING,
            ),
            "header": pa.nulls(count, pa.string()),
        },
        schema=LEDGER,
    )
    return context.layout.ledger.write(table, label=f"step-{step:06}", partition=shard)
