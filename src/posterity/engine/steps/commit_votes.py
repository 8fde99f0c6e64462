"""Votes become a step: folded shard by shard, decided, and committed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from posterity._text import counted, lines
from posterity._version import __version__
from posterity.engine.evaluation.durable_votes import KeptVotes, Run
from posterity.engine.evaluation.plans import Plan
from posterity.engine.evaluation.vote_file import FromFile
from posterity.engine.items.lookup import id_of
from posterity.engine.labelled.register import not_calibrated
from posterity.engine.labelled.rehearse import Prepared, keep_fit
from posterity.engine.labelled.sample import Sample
from posterity.engine.ledger.commit import commit_step
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import StepPolicy
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.history import parts_of
from posterity.engine.ledger.proposals import pending_parts
from posterity.engine.ledger.reports import Expected, Report
from posterity.engine.ledger.state import state_of
from posterity.engine.ledger.steps import UPDATE, Header, failed_rows
from posterity.engine.ledger.totals import total_of
from posterity.engine.plan.account import overspent
from posterity.engine.steps.fold import Fold, FoldedShards, settle_shard
from posterity.errors import StoreError
from posterity.method.adapt import class_shares
from posterity.method.adapt.adapt import Adaptation
from posterity.method.beliefs.priors import ESTIMATED, UNIFORM
from posterity.method.decide.defaults import DEPENDENT
from posterity.method.decide.rules import CAUTIOUS, AtMost, Balanced, Rule
from posterity.method.decide.selectors import parse as parse_selector
from posterity.validation.outcome import Trust
from posterity.validation.shift import Difference, Seen, warning

FOLLOWED, CONTRADICTED = 0.01, 0.05
"""The share of items that must have another class: what moved less is not listed."""
TRIED_AGAIN = "The same update tries them again when there are no new items."
SHOWN = 3
"""Classes that are listed, those that moved most."""


def commit_votes(context: Context, plan: Plan, run: Run, file: FromFile | None = None) -> Report:
    """Fold a run's votes shard by shard and make them a step with one commit.

    Flips that were pending on items without a vote are made. The header keeps what the report says,
    but for the item that failed first and why: an item that is removed has to be forgotten.
    """
    kept, errors = run.kept(), run.errors()
    step, live, reviews = context.head + 1, context.live_updates, context.live_reviews
    basis = _basis(context, plan, kept)
    fit = basis.fit
    steps = [*parts_of(context, live), StepPolicy(plan.request.model, basis.rule, fit)]
    fold = Fold(context, kept, list(errors), live, reviews, steps, step)
    found = FoldedShards.joined(context.executor.map(fold, context.shards))
    folded, failing = found.folded, set(errors).difference(found.recovered)
    failed = sorted(failing)
    if not folded and failed:
        run.drop()  # nothing is lost with it: the same command tries again
        model, first = plan.request.model, _first_failure(context, failed, errors)
        if failing.issubset(failed_rows(context.headers, model)):
            again = f"{model} failed again on {counted(len(failed), 'item')}; {first}"
            return Report.nothing(model, "Nothing to do: this was carried out already.", again)
        raise StoreError(
            f"The model '{model}' failed on all {len(failed):,} items it was asked about; on "
            f"{first}",
            hint="Nothing was changed. Fix the model and run the same again.",
        )
    if not folded:
        if found.obtained:
            run.drop()  # its items are gone, or have votes by now
        return Report.nothing(plan.request.model, "Nothing to do: no vote was obtained.")
    # Shards without a vote are read only where flips are pending, and only their last steps.
    others = pending_parts(context, without=found.done)
    found += FoldedShards.joined(context.executor.map(partial(settle_shard, context, step), others))
    tally, total = found.tally, total_of(context) + found.moved
    failure = f"{counted(len(failed), 'item')} failed" if failed else ""
    differences = _differences(live, basis.trust, found.seen.with_held(total.sums))
    over = ""
    if plan.spending is not None:
        over = overspent(context, plan.request.budget, plan.spending, folded + len(failed))
    unread = found.soft and fit.beliefs == DEPENDENT and not fit.reads_soft(plan.request.model)
    after = (
        over,
        f"warning: {not_calibrated(plan.request.model)}." if unread else "",
        warning(differences),
    )
    report = Report(
        step,
        plan.id,
        plan.request.model,
        folded,
        len(failed),
        note=lines((file.kept if file else "", *basis.notes, failure, *after)),
        **tally.told(),
        expected=Expected.by(
            basis.trust, total.sums.drifted(basis.drift), tally, pinned=total.pinned
        ).to_dict(),
        differences=[one.to_dict() for one in differences],
        held=total.to_dict(),
        adapted=basis.adapted.to_dict(),
        spending=plan.spending,
        pinned=found.pinned,
    )
    header = Header(
        step=step,
        kind=UPDATE,
        run=plan.id,
        request=plan.request.digest,
        items=plan.items,
        fit=fit.to_dict([*(header.voter for header in live), plan.request.model]),
        report=report.to_dict(),
        failed=failed,
        pending=found.waiting,
        software=__version__,
        **(plan.request.to_dict() | {"rule": str(basis.rule)}),
    )
    keep_fit(context, fit)
    commit_step(context, header, found.files)
    if failed:
        failure += f"; {_first_failure(context, failed, errors)} {TRIED_AGAIN}"
    return replace(report, note=lines((str(file or ""), *basis.notes, failure, *after)))


@dataclass(frozen=True, eq=False)
class _Basis:
    """What a step is decided with, and how far that can be trusted."""

    fit: Fit
    rule: Rule
    trust: Trust | None = None
    drift: float = 0.0
    """How much more labels are believed by the fit than when they were last looked at."""
    notes: tuple[str, ...] = ()
    adapted: Adaptation = field(default_factory=Adaptation)


def _basis(context: Context, plan: Plan, kept: KeptVotes) -> _Basis:
    prepared, rule = Prepared(context, plan.request.model), context.rule(plan.request.rule)
    if not prepared.dependent:
        prepared.refuse_promise(rule)
        if isinstance(rule, Balanced):
            rule = replace(rule, ratio=CAUTIOUS)
        notes = [prepared.why_plain]
        if context.policy != context.untuned and plan.request.rule == str(context.untuned.rule):
            notes.append(f"The tuned policy needs dependent beliefs; this step follows {rule}.")
        return _Basis(prepared.fit(), rule, notes=tuple(notes))
    # Of the votes there are, as the header will count them, not of those planned.
    cast = sum(context.executor.map(partial(_count_undecided, context, kept), context.shards))
    there = plan.items - len(context.removed) - total_of(context).pinned
    share, sample = cast / max(1, there), prepared.sample(kept.of)
    selector = parse_selector(plan.request.selector)
    rehearsed = prepared.rehearse(selector, rule, share, sample=sample)
    fit, adapted = prepared.adapted(sample)
    notes = [str(adapted), _frequencies(context, prepared, fit, sample)]
    if isinstance(rule, AtMost):
        notes.append(
            f"A cost ratio of {rehearsed.ratio:g} keeps the promise '{rule}' for items like the "
            "labelled ones."
        )
    if isinstance(rule, Balanced) and context.live_updates:  # a first label breaks nothing
        notes.append(f"Cost ratio {rehearsed.ratio:g}, chosen on the labelled set ({rule}).")
    if isinstance(rule, (AtMost, Balanced)):
        rule = replace(rule, ratio=rehearsed.ratio)
    return _Basis(fit, rule, rehearsed.trust, sample.drift(fit), tuple(notes), adapted)


def _count_undecided(context: Context, kept: KeptVotes, shard: RowRange) -> int:
    """How many votes of a shard are on items whose label votes decide."""
    rows = kept.rows_of(shard.number)
    if not len(rows) or not context.live_reviews:
        return len(rows)
    return int((~state_of(context, *shard).pinned[rows - shard.start]).sum())


def _frequencies(context: Context, prepared: Prepared, fit: Fit, sample: Sample) -> str:
    """Which class frequencies are assumed, or should be, where votes show others."""
    usual, prior = prepared.base.prior, context.description.prior
    follow = prior == ESTIMATED
    found = fit.dependence.prior if follow else prepared.frequencies(sample)
    if class_shares.apart(found, usual) < (FOLLOWED if follow else CONTRADICTED):
        return ""
    moved = np.argsort(-np.abs(found - usual), kind="stable")[:SHOWN].tolist()
    told = ", ".join(
        f"{context.classes.names[code]} {100 * usual[code]:.1f} → {100 * found[code]:.1f} %"
        for code in moved
    )
    if follow:
        return f"Class frequencies follow the votes: {told}."
    return (
        f"warning: the votes show other class frequencies than the prior '{prior or UNIFORM}': "
        f"{told}. A store made with --prior estimated follows them."
    )


def _differences(live: Sequence[Header], trust: Trust | None, seen: Seen) -> list[Difference]:
    """Between the step's items and the labelled set, beside what earlier steps have recorded."""
    if trust is None:
        return []
    return trust.compare(seen, [header.differences for header in live])


def _first_failure(context: Context, failed: Sequence[int], errors: dict[int, str]) -> str:
    (item,) = id_of(context, pa.array(failed[:1])).to_pylist()
    return f"{item!r}: {errors[failed[0]].rstrip('.')}."
