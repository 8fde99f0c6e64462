"""Update: plan, evaluate, fold, decide, commit, publish. The story of one step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posterity._progress import ShowProgress
from posterity.engine.evaluation.durable_votes import Run, all_runs, tidy
from posterity.engine.evaluation.evaluate import Evaluation, ask_model
from posterity.engine.evaluation.plans import Plan, Request, is_labelled, load_plan, save_plan
from posterity.engine.evaluation.vote_file import Evaluate, FromFile, VoteFile, take_votes
from posterity.engine.labelled.register import registered
from posterity.engine.ledger.commit import attempts, retried
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import publish_labels
from posterity.engine.ledger.reports import Report
from posterity.engine.ledger.steps import without_policies
from posterity.engine.plan.file_plan import plan_of_file
from posterity.engine.plan.score import open_failures
from posterity.engine.plan.selection import make_plan
from posterity.engine.steps.commit_votes import commit_votes
from posterity.engine.steps.first_votes import Learnt, labelled_plan, learn, reuse_labelled
from posterity.errors import (
    CommitConflict,
    InvalidParameter,
    Missing,
    PosterityError,
    Superseded,
    UnknownName,
)
from posterity.models.model import Predict

DONE = "Nothing to do: this was carried out already; `more=True` goes on with other items."


def find_plan(
    context: Context, request: Request, *, more: bool = False, retry: bool = True
) -> Plan | None:
    """The plan to carry out: an unfinished one of the same request, else a new one.

    None if the request was carried out already. Then ``more`` goes on, and items added since are
    new work by themselves. Without any, ``retry`` tries the items its model failed on again.
    """
    digest = request.digest
    for run in all_runs(context):
        kept = load_plan(context, run) if run.startswith(digest) else None
        if kept is not None:
            cost = context.model(request.model).settings.cost_of(kept.evaluations)
            as_planned = kept.head == context.head and kept.cost == cost
            if as_planned or Run(context, run).is_spent:
                return kept
    done = [
        header
        for header in context.headers
        if header.request == digest and header.step not in context.undone
    ]
    if not done or more:
        return make_plan(context, request)
    plan = None
    if done[-1].items < context.rows:
        plan = make_plan(context, request, since=done[-1].items)
    if (plan is None or not plan.evaluations) and retry:
        failed = open_failures(context, request.model)
        again = make_plan(context, request, only=failed) if failed else None
        plan = again if again is not None and again.evaluations else plan
    return plan


def plan_update(context: Context, request: Request, *, more: bool = False) -> Plan:
    """The plan an update would carry out, kept under its id; nothing is spent."""

    def attempt(now: Context) -> Plan:
        if now.model(request.model).pending:
            return labelled_plan(now, request)
        plan = find_plan(now, request, more=more)
        if plan is None:
            return Plan.nothing(now, request, DONE)
        save_plan(now, plan)
        return plan

    return retried(context, attempt, lost=Superseded)


@dataclass(frozen=True, eq=False)
class Votes:
    """Where an update's votes come from: a file, or a model that is asked."""

    file: VoteFile | None
    predict: Predict | str | None
    how: Evaluation
    progress: ShowProgress = None

    def __call__(self, run: Run, plan: Plan) -> FromFile | None:
        """Fill a run with votes on the plan's items."""
        if self.file is not None:
            # Votes on labelled items come first; the rest of the file has its turn later.
            others = self.file.keep_unplanned and not is_labelled(plan.id)
            return take_votes(run, plan, replace(self.file, keep_unplanned=others))
        if self.predict is not None:
            ask_model(run, plan, self.predict, self.how, self.progress)
        return None


def update(
    context: Context,
    request: Request,
    votes: Votes,
    *,
    plan_id: str | None = None,
    more: bool = False,
    rebase: bool = False,
    refuse_unlike: bool = False,
) -> Report:
    """Carry out a request, or the plan of this id: once, however often it is asked for.

    ``refuse_unlike``: make no step whose items look unlike the labelled set.
    """
    how = {"rebase": rebase, "refuse_unlike": refuse_unlike}
    learnt = Learnt()
    if context.model(request.model).pending:
        learnt = learn(context, request, votes)
        if not learnt.goes_on or is_labelled(plan_id):
            done = Report.nothing(request.model, "Now plan which items it looks at next.")
            return _after(learnt, done)
        context = context.again()

    def attempt(now: Context) -> Report:
        if plan_id is not None:
            return _carry_out_kept(now, request, plan_id, votes, **how)
        if votes.file is not None and request.budget is None:
            with plan_of_file(now, request, votes.file) as (whole, fill):
                # Its votes are paid for, whatever step was made meanwhile.
                return carry_out(now, whole, fill, rebase=True, refuse_unlike=refuse_unlike)
        # A file has no votes on these, or it would not be what the model failed on.
        plan = find_plan(now, request, more=more, retry=votes.predict is not None)
        if plan is None:
            _finish(now)
            return Report.nothing(request.model, DONE)
        return carry_out(now, plan, votes, **how)

    return _after(learnt, retried(context, attempt, lost=Superseded))


def _after(learnt: Learnt, report: Report) -> Report:
    """The same, when votes on labelled items had to be asked for first."""
    return replace(report.with_notes(*learnt.notes), labelled_evaluations=learnt.votes)


def _carry_out_kept(
    context: Context, request: Request, plan_id: str, votes: Votes, **how: bool
) -> Report:
    if is_labelled(plan_id):  # asked twice
        return Report.nothing(request.model, str(registered(context, request.model)))
    if (made := step_of(context, plan_id)) is not None:
        return made
    kept = load_plan(context, plan_id)
    if kept is None:
        raise UnknownName.among("plan", plan_id, all_runs(context))
    if kept.request.model != request.model:
        raise InvalidParameter(
            f"The plan '{plan_id}' is for the model '{kept.request.model}', not for "
            f"'{request.model}'."
        )
    return carry_out(context, kept, votes, **how)


def carry_out(
    context: Context,
    plan: Plan,
    evaluate: Evaluate,
    *,
    rebase: bool = False,
    refuse_unlike: bool = False,
) -> Report:
    """Evaluate a plan, fold its votes, decide, and commit one step."""
    made = step_of(context, plan.id)
    if made is not None:
        return made
    if not plan.evaluations:
        _finish(context)
        return Report.nothing(plan.request.model, _why_nothing(plan))
    _refuse_moved(context, plan, rebase)
    run = Run(context, plan.id)
    run.begin()
    _keep_plan(context, plan)
    try:
        reuse_labelled(run, plan)
        file = evaluate(run, plan)
    except PosterityError:
        run.give_up()
        raise
    # Evaluation may take days: items may have been removed, tables compacted, steps made.
    for now in attempts(context.again()):
        made = step_of(now, plan.id)
        if made is not None:
            return made
        _keep_plan(now, plan)
        _refuse_moved(now, plan, rebase)
        try:
            run = Run(now, plan.id)
            report = commit_votes(now, plan, run, file, refuse_unlike=refuse_unlike)
        except (CommitConflict, Missing):
            # By a compaction, which moves no head; or by a step, which is seen above: if it is this
            # run's own, made by another process, the votes are gone by now.
            continue
        if report.step is not None:
            _finish(now.again())
        return report
    raise CommitConflict("The ledger changes too often; the votes are kept, try again later.")


def _keep_plan(context: Context, plan: Plan) -> None:
    """Under its id: what is evaluated can only be folded as long as the plan is there."""
    if load_plan(context, plan.id) is None:
        save_plan(context, plan)


def _why_nothing(plan: Plan) -> str:
    if plan.note:
        return plan.note
    if plan.spending is None or not plan.eligible:
        return "Nothing to do: no item is eligible within the budget."
    left, unit = plan.spending["left"], plan.spending["unit"]
    if left is not None and left < unit:
        told = f"only {left:,.10g} is left, and one costs {unit:g}" if left else "nothing is left"
        return f"Nothing to do: of the budget {plan.request.budget} {told}."
    return (
        f"Nothing to do: no evaluation of {plan.request.model} is worth its price now "
        f"({plan.request.budget})."
    )


def step_of(context: Context, run: str) -> Report | None:
    """The report of a run that is a step already; what follows a step is made good."""
    for header in context.headers:
        if header.run == run:
            _finish(context)
            return Report(**header.report)
    return None


def _finish(context: Context) -> None:
    """What follows a step, also where whoever made it was cut short."""
    publish_labels(context)
    tidy(context)


def _refuse_moved(context: Context, plan: Plan, rebase: bool) -> None:
    later = [one.step for one in without_policies(context.headers) if one.step > plan.head]
    if later and not rebase:
        raise CommitConflict(
            f"Step {later[-1]} was made after this plan, which has read step {plan.head}.",
            hint="Its votes are kept; fold them at the new head with `rebase=True`.",
        )
