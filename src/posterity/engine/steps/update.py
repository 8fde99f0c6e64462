"""Update: plan, evaluate, fold, decide, commit, publish. The story of one step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posterity._text import Progress, counted
from posterity.engine.evaluation.durable_votes import Run, all_runs, tidy
from posterity.engine.evaluation.evaluate import Evaluation, ask_model
from posterity.engine.evaluation.plans import Plan, Request, is_labelled, load_plan, save_plan
from posterity.engine.evaluation.vote_file import Evaluate, FromFile, VoteFile, take_votes
from posterity.engine.labelled.register import registered
from posterity.engine.ledger.commit import attempts, retried
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import publish_labels
from posterity.engine.ledger.reports import Report
from posterity.engine.ledger.steps import failed_rows, without_policies
from posterity.engine.ledger.totals import total_of
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

DONE = "Nothing to do: this was carried out already (see --more)."


def find_plan(
    context: Context,
    request: Request,
    *,
    more: bool = False,
    retry: bool = False,
    elsewhere: bool = False,
) -> Plan | None:
    """The plan to carry out: an unfinished one of the same request, else a new one.

    None if the request was carried out already. Then ``more`` goes on, ``retry`` tries the items
    its model failed on; items added since, and all without a label, are new work by themselves.
    ``elsewhere``: votes are made from a plan that was kept, though items may have come since.
    """
    digest = request.digest
    for run in all_runs(context):
        kept = load_plan(context, run) if run.startswith(digest) else None
        if kept is not None:
            cost = context.model(request.model).settings.cost_of(kept.evaluations)
            as_planned = kept.head == context.head and kept.cost == cost
            if kept.items != context.rows and not Run(context, run).is_begun:
                as_planned &= elsewhere and kept.evaluations > 0
            if as_planned or Run(context, run).is_spent:
                return kept
    done = [
        header
        for header in context.headers
        if header.request == digest and header.step not in context.undone
    ]
    if not done or more:
        return make_plan(context, request)
    failed = failed_rows(context.headers, request.model)
    if retry and failed:
        return make_plan(context, request, only=failed)
    added = done[-1].items < context.rows
    if not added and not total_of(context).unlabelled(context):
        return None
    plan = make_plan(context, request, since=done[-1].items)
    return plan if added or plan.eligible else None


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
    progress: Progress | None = None

    def __call__(self, run: Run, plan: Plan) -> FromFile | None:
        """Fill a run with votes on the plan's items."""
        if self.how.retry_errors:
            run.forget_errors()
        reuse_labelled(run, plan)
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
) -> Report:
    """Carry out a request, or the plan of this id: once, however often it is asked for."""
    learnt = Learnt()
    if context.model(request.model).pending:
        learnt = learn(context, request, votes)
        if not learnt.goes_on or is_labelled(plan_id):
            done = Report.nothing(request.model, "Now plan which items it looks at next.")
            return _after(learnt, done)
        context = context.again()

    def attempt(now: Context) -> Report:
        if plan_id is not None:
            return _carry_out_kept(now, request, plan_id, votes, rebase=rebase)
        retry, elsewhere = votes.how.retry_errors, votes.file is not None
        plan = find_plan(now, request, more=more, retry=retry, elsewhere=elsewhere)
        if plan is None:
            _finish(now)
            return Report.nothing(request.model, DONE)
        report = carry_out(now, plan, votes, rebase=rebase)
        if report.step is None or plan.items == now.rows:
            return report
        # Planned before, perhaps cut short: items that came since are not in it.
        return _take_up_added(now.again(), request, votes, report, rebase=rebase)

    return _after(learnt, retried(context, attempt, lost=Superseded))


def _take_up_added(
    context: Context, request: Request, votes: Votes, done: Report, *, rebase: bool
) -> Report:
    """What came since a plan was made, when it has been carried out."""
    plan = find_plan(context, request, elsewhere=votes.file is not None)
    if plan is None:
        return done
    report = carry_out(context, plan, votes, rebase=rebase)
    if report.step is None:
        return done
    before = f"step {done.step} carried out a plan from before these items came, with "
    return report.with_notes(before + counted(done.evaluations, "vote"))


def _after(learnt: Learnt, report: Report) -> Report:
    """The same, when votes on labelled items had to be asked for first."""
    return replace(report.with_notes(*learnt.notes), labelled_evaluations=learnt.votes)


def _carry_out_kept(
    context: Context, request: Request, plan_id: str, votes: Votes, *, rebase: bool
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
    return carry_out(context, kept, votes, rebase=rebase)


def carry_out(context: Context, plan: Plan, evaluate: Evaluate, *, rebase: bool = False) -> Report:
    """Evaluate a plan, fold its votes, decide, and commit one step."""
    made = step_of(context, plan.id)
    if made is not None:
        return made
    if not plan.evaluations:
        return Report.nothing(plan.request.model, _why_nothing(plan))
    _refuse_moved(context, plan, rebase)
    run = Run(context, plan.id)
    run.begin()
    _keep_plan(context, plan)
    try:
        file = evaluate(run, plan)
    except PosterityError:
        run.give_up()
        raise
    if plan.again and file is not None and not run.is_spent:
        run.drop()
        return Report.nothing(plan.request.model, DONE, str(file))
    # Evaluation may take days: items may have been removed, tables compacted, steps made.
    for now in attempts(context.again()):
        made = step_of(now, plan.id)
        if made is not None:
            return made
        _keep_plan(now, plan)
        _refuse_moved(now, plan, rebase)
        try:
            report = commit_votes(now, plan, Run(now, plan.id), file)
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
    waiting = ""
    if plan.unlabelled:
        waiting = (
            f" {counted(plan.unlabelled, 'item', 'have')} no label yet; a budget of 0% gives them "
            "one, and looks at no other item."
        )
    if plan.spending is None or not plan.eligible:
        return f"Nothing to do: no item is eligible within the budget.{waiting}"
    left, unit = plan.spending["left"], plan.spending["unit"]
    if left is not None and left < unit:
        told = f"only {left:,.10g} is left, and one costs {unit:g}" if left else "nothing is left"
        return f"Nothing to do: of the budget {plan.request.budget} {told}.{waiting}"
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
            hint="Its votes are kept; fold them at the new head with --rebase.",
        )
