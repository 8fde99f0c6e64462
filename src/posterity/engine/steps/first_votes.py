"""First votes: a model that came with the truth of stored items votes on those first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posterity.engine.evaluation.durable_votes import Run, all_runs
from posterity.engine.evaluation.plans import LABELLED, Plan, Request
from posterity.engine.evaluation.vote_file import Evaluate
from posterity.engine.labelled.labelled_votes import labelled_rows, labelled_truth
from posterity.engine.labelled.register import complete, rows_of_keys
from posterity.engine.ledger.context import Context
from posterity.errors import StoreError
from posterity.method.data.row_sets import RowSet
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.storage import parquet


@dataclass(frozen=True)
class Learnt:
    """What votes on labelled items tell of a model."""

    notes: tuple[str, ...] = ()
    votes: int = 0
    """How many were asked for."""
    goes_on: bool = True
    """Whether there are votes to go on with: a file may hold no others."""


def labelled_plan(context: Context, request: Request) -> Plan:
    """The labelled items as a plan: what the model must look at before anything else."""
    model = context.model(request.model)
    keys, _ = labelled_truth(context, model)
    found = rows_of_keys(context, keys)
    rows = np.sort(found[found >= 0])
    cost = model.settings.cost_of(len(rows))
    return Plan(
        id=f"{LABELLED}{model.settings.digest}-{model.arrival}",
        request=request,
        head=context.head,
        items=context.rows,
        chosen=RowSet.of(rows),
        eligible=len(rows),
        affected={},
        cost=cost,
        note=(
            f"{request.model} must first vote on its {len(rows):,} labelled items, which tell how "
            "it errs; an update asks for them, or takes them from its file of votes"
            + ("" if cost is None else f"; cost {cost:g}")
        ),
    )


def learn(context: Context, request: Request, evaluate: Evaluate) -> Learnt:
    """Obtain the votes on the labelled items, each batch durable, and register what they say."""
    plan = labelled_plan(context, request)
    run = Run(context, plan.id)
    file = evaluate(run, plan)
    rows, cast = run.votes()
    errors = run.errors()
    if not len(rows) and errors:
        run.drop()  # nothing is lost with it: the same command tries again
        raise StoreError(
            f"The model '{request.model}' failed on all {len(errors):,} labelled items it must "
            f"vote on first; on one of them: {next(iter(errors.values())).rstrip('.')}.",
            hint="Nothing was changed. Fix the model and run the same again.",
        )
    notes = [str(complete(context, request.model, rows, cast))]
    missing = plan.evaluations - int(plan.chosen[rows].sum())
    if missing:
        notes.append(f"{missing:,} of its {plan.evaluations:,} labelled items have no vote")
    run.drop()
    return Learnt(tuple(notes), len(rows), goes_on=file is None or file.unplanned > 0)


def reuse_labelled(run: Run, plan: Plan) -> None:
    """Votes a model has cast on its labelled items, where those are in the plan: asked for once."""
    context = run.context
    model = context.model(plan.request.model)
    if model.pending or not model.settings.stored:
        return
    for left in all_runs(context):  # by a process that was killed before it could drop it
        if left.startswith(LABELLED) and left.endswith(f"-{model.arrival}"):
            Run(context, left).drop()
    own = labelled_rows(context, model)
    keys, votes = own.column("key").to_pylist(), own.column("vote").to_numpy()
    rows = rows_of_keys(context, keys)
    kept, shards = run.kept(), rows // context.description.shard_rows
    wanted = (rows >= 0) & (votes != MISSING)
    wanted[wanted] = plan.chosen[rows[wanted]]
    for shard in np.unique(shards[wanted]).tolist():
        wanted[shards == shard] &= ~np.isin(rows[shards == shard], kept.rows_of(shard))
    if wanted.any():
        order = np.argsort(rows[wanted])
        cast = ModelVotes(votes, parquet.from_columns(own, votes))
        run.keep_votes(rows[wanted][order], cast[np.flatnonzero(wanted)[order]])
