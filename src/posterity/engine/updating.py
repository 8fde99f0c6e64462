"""Update: plan, evaluate, fold, decide, commit, publish. The story of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from posterity import metrics
from posterity._arrays import Codes, Rows
from posterity._version import __version__
from posterity.engine.context import HEAD, Context
from posterity.engine.deciding import Decided, Vote, decide_last
from posterity.engine.history import ShardHistory
from posterity.engine.planning import Plan, Request, load_plan, make_plan, save_plan
from posterity.engine.publishing import publish_labels
from posterity.engine.runs import Run, unfinished
from posterity.engine.steps import UPDATE, Header, live_updates
from posterity.errors import CommitConflict
from posterity.rules import parse as parse_rule
from posterity.tables.delta import DataFile
from posterity.tables.layout import HEADER_SHARD, LEDGER
from posterity.votes import MISSING

TRIES = 20

Evaluate = Callable[[Run, Plan], Any]
"""Fills a run with votes on the plan's items; may return what is worth telling about them."""


@dataclass(frozen=True)
class Report:
    """What a step did."""

    step: int | None
    """None: there was nothing to do."""
    run: str
    model: str
    evaluations: int
    errors: int
    first_labels: int
    flips: int
    expected_negative_flips: float
    expected_positive_flips: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        if self.step is None:
            return self.note
        failed = f", {self.errors:,} errors" if self.errors else ""
        return (
            f"step {self.step}: {self.model} voted on {self.evaluations:,} items{failed}\n"
            f"{self.first_labels:,} first labels, {self.flips:,} flips; as the beliefs have it "
            f"{self.expected_positive_flips:.1f} fixed and "
            f"{self.expected_negative_flips:.1f} broken" + (f"\n{self.note}" if self.note else "")
        )


def find_plan(context: Context, request: Request, *, more: bool = False) -> Plan | None:
    """The plan to carry out: an unfinished one of the same request, else a new one.

    None if the request was carried out already, unless ``more`` asks to go on.
    """
    digest = request.digest(context)
    done = [header for header in context.headers if header.request == digest]
    for run in unfinished(context):
        if run.startswith(digest):
            kept = load_plan(context, run)
            if kept is None:
                continue
            if kept.head == context.head or Run(context, run).batches("votes"):
                return kept
            Run(context, run).drop()  # nothing was spent on it, and the store has moved on
    if done and not more:
        return None
    return make_plan(context, request, repeat=len(done))


def update(
    context: Context,
    request: Request,
    evaluate: Evaluate,
    *,
    more: bool = False,
    rebase: bool = False,
) -> Report:
    """Carry out a request: once, however often it is asked for."""
    plan = find_plan(context, request, more=more)
    if plan is None:
        publish_labels(context)
        return _nothing(request, "Nothing to do: this was carried out already (see --more).")
    return carry_out(context, plan, evaluate, rebase=rebase)


def carry_out(context: Context, plan: Plan, evaluate: Evaluate, *, rebase: bool = False) -> Report:
    """Evaluate a plan, fold its votes, decide, and commit one step."""
    for header in context.headers:
        if header.run == plan.id:
            # Killed after its commit: the step is there, what follows it may not be.
            publish_labels(context)
            Run(context, plan.id).drop()
            return Report(**header.report)
    if not len(plan.rows):
        return _nothing(plan.request, "Nothing to do: no item is eligible within the budget.")
    if load_plan(context, plan.id) is None:
        save_plan(context, plan)
    if plan.head != context.head and not rebase:
        raise CommitConflict(
            f"Step {context.head} was made after this plan, which has read step {plan.head}.",
            hint="Its votes are kept; fold them at the new head with --rebase.",
        )
    run = Run(context, plan.id)
    told = evaluate(run, plan)
    report = commit_votes(context, plan, run, note=str(told or ""))
    if report.step is not None:
        publish_labels(Context(context.files))
        run.drop()
    return report


def commit_votes(context: Context, plan: Plan, run: Run, *, note: str = "") -> Report:
    """Fold a run's votes shard by shard and make them a step with one commit."""
    rows, votes = run.votes()
    if not len(rows):
        return _nothing(plan.request, "Nothing to do: no vote was obtained.")
    step, live = context.head + 1, live_updates(context.headers)
    vote_of = {header.step: _vote(context, header) for header in live}
    ours = Vote(context.confusions[plan.request.model], parse_rule(plan.request.rule))
    files: list[DataFile] = []
    totals = np.zeros(4)
    folded = 0
    for shard, start, items in context.shards:
        part = (rows >= start) & (rows < start + items)
        history = ShardHistory.read(context.ledger, shard, start, items)
        fresh = part & ~context.removed[rows]
        local = rows[fresh] - start
        unseen = ~history.voted_by(live, plan.request.model)[local]
        local, cast = local[unseen], votes[fresh][unseen]
        if not len(local):
            continue
        stored = history.current(live, 0.0).label[local]
        matrix = np.vstack([history.votes_of(local, live), cast[None]])
        decided = decide_last(
            context.prior, [*(vote_of[header.step] for header in live), ours], matrix, stored
        )
        files.append(write_rows(context, step, shard, start + local, cast, decided))
        totals += _totals(decided)
        folded += len(local)
    errors = len(run.errors())
    report = Report(
        step,
        plan.id,
        plan.request.model,
        folded,
        errors,
        first_labels=int(totals[0]),
        flips=int(totals[1]),
        expected_negative_flips=float(totals[2]),
        expected_positive_flips=float(totals[3]),
        note=note,
    )
    header = Header(
        step=step,
        kind=UPDATE,
        run=plan.id,
        request=plan.digest,
        items=context.rows,
        fit={"beliefs": context.description.beliefs, "confusion": context.description.confusion},
        report=report.to_dict(),
        software=__version__,
        **asdict(plan.request),
    )
    commit_step(context, header, files)
    return report


def commit_step(context: Context, header: Header, files: Sequence[DataFile]) -> None:
    """Header and all shards, visible together or not at all."""
    ledger = context.layout.ledger
    label = f"step-{header.step:06}"
    own = ledger.write(header.to_row(), label=label, partition=HEADER_SHARD)
    snapshot = context.ledger
    for _ in range(TRIES):
        try:
            return snapshot.commit([own, *files], fence=(HEAD, header.step))
        except CommitConflict:
            # Compaction changes the table too, but only another step moves the head.
            snapshot = ledger.head()
            if (snapshot.fence(HEAD) if snapshot.fence(HEAD) is not None else -1) != context.head:
                break
    raise CommitConflict(
        f"Somebody else made step {header.step} in the meantime.",
        hint="What was evaluated is kept; run the same again, with --rebase.",
    )


def write_rows(
    context: Context, step: int, shard: int, rows: Rows, votes: Codes | None, decided: Decided
) -> DataFile:
    """One step's rows of one shard."""

    def nullable(codes: Codes) -> pa.Array:
        return pa.array(codes, pa.int32(), mask=codes == MISSING)

    count = len(rows)
    table = pa.table(
        {
            "shard": pa.array(np.full(count, shard, dtype=np.int32)),
            "row": pa.array(rows),
            "step": pa.array(np.full(count, step, dtype=np.int32)),
            "vote": pa.nulls(count, pa.int32()) if votes is None else nullable(votes),
            "label": nullable(decided.after),
            "belief": pa.array(decided.belief.astype(np.float32)),
            "entropy": pa.array(decided.entropy),
            "header": pa.nulls(count, pa.string()),
        },
        schema=LEDGER,
    )
    return context.layout.ledger.write(table, label=f"step-{step:06}", partition=shard)


def _vote(context: Context, header: Header) -> Vote:
    return Vote(context.confusions[header.model or ""], parse_rule(header.rule or ""))


def votes_of_steps(context: Context, headers: Sequence[Header]) -> list[Vote]:
    """How each of these updates folds and decides."""
    return [_vote(context, header) for header in headers]


def _totals(decided: Decided) -> Any:
    flipped = metrics.flipped(decided.before, decided.after)
    expected = metrics.expected_flips(decided.belief_before[flipped], decided.belief[flipped])
    first = (decided.before == MISSING).sum()
    return np.array([first, flipped.sum(), expected.negative, expected.positive])


def _nothing(request: Request, note: str) -> Report:
    return Report(None, "", request.model, 0, 0, 0, 0, 0.0, 0.0, note)
