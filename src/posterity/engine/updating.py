"""Update: plan, evaluate, fold, decide, commit, publish. The story of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from posterity._version import __version__
from posterity._wording import counted
from posterity.engine.accounts import overspent
from posterity.engine.context import HEAD, Context
from posterity.engine.deciding import Part
from posterity.engine.fits import DEPENDENT, Fit
from posterity.engine.folding import Fold, Folded, settle_shard
from posterity.engine.pending import pending_parts
from posterity.engine.planfiles import load_plan, save_plan
from posterity.engine.planning import (
    Plan,
    Request,
    failed_rows,
    make_plan,
)
from posterity.engine.publishing import publish_labels
from posterity.engine.rehearsing import Prepared, keep_fit
from posterity.engine.reports import Expected, Report
from posterity.engine.runs import KeptVotes, Run, all_runs, tidy
from posterity.engine.steps import UPDATE, Header, live_reviews, live_updates, masked
from posterity.engine.totals import total_of
from posterity.errors import CommitConflict, StoreError
from posterity.likeness import Difference, Seen, warning
from posterity.rehearsed import Adaptation
from posterity.rules import AtMost, Rule
from posterity.selectors import parse as parse_selector
from posterity.tables.delta import DataFile
from posterity.tables.layout import HEADER_SHARD
from posterity.trust import Trust

TRIES = 20

Evaluate = Callable[[Run, Plan], Any]
"""Fills a run with votes on the plan's items; may return what is worth telling about them."""


def find_plan(
    context: Context, request: Request, *, more: bool = False, retry: bool = False
) -> Plan | None:
    """The plan to carry out: an unfinished one of the same request, else a new one.

    None if the request was carried out already. Then ``more`` goes on, ``retry`` tries the items
    its model failed on, and items added since are new work by themselves.
    """
    digest = request.digest
    for run in all_runs(context):
        if run.startswith(digest):
            kept = load_plan(context, run)
            spent = bool(Run(context, run).batches("votes") or Run(context, run).batches("errors"))
            as_planned = kept is not None and kept.cost == _cost(context, kept)
            if kept is not None and (spent or (kept.head == context.head and as_planned)):
                return kept
    undone = masked(context.headers)
    done = [step for step in context.headers if step.request == digest and step.step not in undone]
    if not done or more:
        return make_plan(context, request)
    failed = failed_rows(context, request.model)
    if retry and failed:
        return make_plan(context, request, only=failed)
    if done[-1].items < context.rows:
        return make_plan(context, request, since=done[-1].items)
    return None


def update(
    context: Context,
    request: Request,
    evaluate: Evaluate,
    *,
    more: bool = False,
    retry: bool = False,
    rebase: bool = False,
) -> Report:
    """Carry out a request: once, however often it is asked for."""
    plan = find_plan(context, request, more=more, retry=retry)
    if plan is None:
        publish_labels(context)
        tidy(context)
        return nothing(request, "Nothing to do: this was carried out already (see --more).")
    return carry_out(context, plan, evaluate, rebase=rebase)


def carry_out(context: Context, plan: Plan, evaluate: Evaluate, *, rebase: bool = False) -> Report:
    """Evaluate a plan, fold its votes, decide, and commit one step."""
    made = step_of(context, plan.id)
    if made is not None:
        return made
    if not plan.evaluations:
        return nothing(plan.request, _why_nothing(plan))
    if load_plan(context, plan.id) is None:
        save_plan(context, plan)
    _refuse_moved(context, plan, rebase)
    told = evaluate(Run(context, plan.id), plan)
    for _ in range(TRIES):
        # Evaluation may take days: items may have been removed, tables compacted, steps made.
        context = context.again()
        made = step_of(context, plan.id)
        if made is not None:
            return made
        _refuse_moved(context, plan, rebase)
        try:
            report = commit_votes(context, plan, Run(context, plan.id), note=str(told or ""))
        except CommitConflict:
            continue  # by a compaction, which moves no head, or by a step, which is seen above
        if report.step is not None:
            now = context.again()
            publish_labels(now)
            tidy(now)
        return report
    raise CommitConflict("The ledger changes too often; the votes are kept, try again later.")


def _cost(context: Context, plan: Plan) -> float | None:
    """What a plan would cost now: what an evaluation costs may have changed."""
    unit = context.model(plan.request.model).settings["cost"]
    return None if unit is None else unit * plan.evaluations


def _why_nothing(plan: Plan) -> str:
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
            publish_labels(context)
            tidy(context)
            return Report(**header.report)
    return None


def _refuse_moved(context: Context, plan: Plan, rebase: bool) -> None:
    if plan.head != context.head and not rebase:
        raise CommitConflict(
            f"Step {context.head} was made after this plan, which has read step {plan.head}.",
            hint="Its votes are kept; fold them at the new head with --rebase.",
        )


def commit_votes(context: Context, plan: Plan, run: Run, *, note: str = "") -> Report:
    """Fold a run's votes shard by shard and make them a step with one commit.

    Flips that were pending on items without a vote are made.
    """
    kept, errors = run.kept(), run.errors()
    step, live, reviews = (
        context.head + 1,
        live_updates(context.headers),
        live_reviews(context.headers),
    )
    basis = _basis(context, plan, kept)
    note, fit = "\n".join(part for part in (note, basis.note) if part), basis.fit
    steps = [*parts_of(context, live), Part(plan.request.model, basis.rule, fit)]
    fold = Fold(context, kept, frozenset(errors), live, reviews, steps, step)
    found = Folded.joined(context.executor.map(fold, context.shards))
    folded, failing = found.folded, set(errors) - found.recovered
    failed = sorted(failing)
    if not folded and failed:
        run.drop()  # nothing is lost with it: the same command tries again
        raise StoreError(
            f"The model '{plan.request.model}' failed on all {len(failed):,} items it was asked "
            f"about; on {_first_failure(context, failed, errors)}",
            hint="Nothing was changed. Mend the model and run the same again.",
        )
    if not folded:
        if found.obtained:
            run.drop()  # its items are gone, or have votes by now
        return nothing(plan.request, "Nothing to do: no vote was obtained.")
    # Shards without a vote are read only where flips are pending, and only their last steps.
    others = pending_parts(context, without=found.done)
    found += Folded.joined(context.executor.map(partial(settle_shard, context, step), others))
    tally, total = found.tally, total_of(context) + found.moved
    if failed:
        told = f"{counted(len(failed), 'item')} failed; {_first_failure(context, failed, errors)}"
        note = "\n".join(part for part in (note, told) if part)
    differences = _differences(live, basis.trust, found.seen.with_held(total.sums))
    over = overspent(context, plan.request.budget, plan.spending, folded + len(failed))
    note = "\n".join(part for part in (note, over, warning(differences)) if part)
    report = Report(
        step,
        plan.id,
        plan.request.model,
        folded,
        len(failed),
        note=note,
        **tally.told(),
        expected=Expected.by(
            basis.trust, total.sums.drifted(basis.drift), tally, pinned=total.pinned
        ).to_dict(),
        differences=[one.to_dict() for one in differences],
        held=total.to_dict(),
        adapted=basis.adapted.to_dict(),
        spending=plan.spending,
    )
    header = Header(
        step=step,
        kind=UPDATE,
        run=plan.id,
        request=plan.request.digest,
        items=plan.items,
        fit=fit.to_dict([*(header.model or "" for header in live), plan.request.model]),
        report=report.to_dict(),
        failed=failed,
        pending=found.waiting,
        software=__version__,
        **(asdict(plan.request) | {"rule": str(basis.rule)}),
    )
    keep_fit(context, fit)
    commit_step(context, header, found.files)
    return report


@dataclass(frozen=True, eq=False)
class _Basis:
    """What a step is decided with, and how far that can be trusted."""

    fit: Fit
    rule: Rule
    trust: Trust | None = None
    drift: float = 0.0
    """How much more labels are believed by the fit than when they were last looked at."""
    note: str = ""
    adapted: Adaptation = field(default_factory=Adaptation)


def _basis(context: Context, plan: Plan, kept: KeptVotes) -> _Basis:
    prepared, rule = Prepared(context, plan.request.model), context.rule(plan.request.rule)
    if not prepared.dependent:
        prepared.refuse_promise(rule)
        return _Basis(prepared.fit(), rule, note=prepared.why_plain)
    # Of the votes there are, as the header will count them, not of those planned.
    cast = sum(context.executor.map(kept.count_of, [shard for shard, _, _ in context.shards]))
    there = plan.items - len(context.removed)
    share, sample = cast / max(1, there), prepared.sample(kept.of)
    selector = parse_selector(plan.request.selector)
    rehearsed = prepared.rehearse(selector, rule, share, sample=sample)
    fit, adapted = prepared.adapted(sample)
    told = [str(adapted)]
    if isinstance(rule, AtMost):
        told.append(
            f"A cost ratio of {rehearsed.ratio:g} keeps the promise '{rule}' for items like the "
            "labelled ones."
        )
        rule = replace(rule, ratio=rehearsed.ratio)
    note = "\n".join(part for part in told if part)
    return _Basis(fit, rule, rehearsed.trust, sample.drift(fit), note, adapted)


def _differences(live: Sequence[Header], trust: Trust | None, seen: Seen) -> list[Difference]:
    """Between the step's items and the labelled set, beside what earlier steps have recorded."""
    if trust is None:
        return []
    told = [header.report.get("differences", []) for header in live]
    return trust.compare(seen, [[Difference(**one) for one in step] for step in told])


def _first_failure(context: Context, failed: Sequence[int], errors: dict[int, str]) -> str:
    (item,) = context.id_of(pa.array(failed[:1])).to_pylist()
    return f"{item!r}: {errors[failed[0]].rstrip('.')}."


def commit_step(context: Context, header: Header, files: Sequence[DataFile]) -> None:
    """Header and all shards, visible together or not at all."""
    label = f"step-{header.step:06}"
    own = context.layout.ledger.write(header.to_row(), label=label, partition=HEADER_SHARD)
    context.ledger.commit([own, *files], fences=[(HEAD, header.step)])


def parts_of(context: Context, headers: Sequence[Header]) -> list[Part]:
    """How each of these updates folds and decides, with the fit it recorded."""
    return [
        Part(header.model or "", context.rule(header.rule or ""), context.fit_of(header))
        for header in headers
    ]


def newest_fit(context: Context, steps: Sequence[Part]) -> Fit:
    """What items are believed by now: as it was learnt when the last model arrived."""
    fit = context.fit()
    if not steps:
        return fit
    last = steps[-1].fit
    return last if last.beliefs == DEPENDENT else fit.tempered(last.temperatures)


def nothing(request: Request, note: str) -> Report:
    """The report of a call that found its work done."""
    return Report(None, "", request.model, 0, 0, 0, 0, 0.0, 0.0, note)
