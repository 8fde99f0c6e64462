"""Selection: which items the arriving model should look at, before anything is spent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import numpy as np

from posterity.engine.evaluation.plans import Plan, Request
from posterity.engine.executors import LOCAL
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.proposals import count_pending
from posterity.engine.ledger.steps import failed_rows
from posterity.engine.ledger.totals import looked_at
from posterity.engine.plan.account import allot
from posterity.engine.plan.reach import best_odds
from posterity.engine.plan.score import Scoring, Survey, Taken, Worth
from posterity.method.data.row_sets import RowSet
from posterity.method.decide.budget import FULL, Account, Budget, Spending
from posterity.method.decide.rules import traits
from posterity.method.decide.selectors import ByVotes, without_value
from posterity.method.decide.selectors import parse as parse_selector
from posterity.method.decide.top_k import CAP, chosen, find_cut

DRIVEN = 2**17
"""Candidates held by the driver of a cluster, to choose among them exactly."""


def make_plan(
    context: Context,
    request: Request,
    *,
    since: int | None = None,
    only: Sequence[int] | None = None,
) -> Plan:
    """Score every shard, and choose the highest of all.

    ``since``: the same request was carried out before, when there were so many rows: of items with
    a label, only those added since are looked at. ``only``: these rows, to try them again.
    """
    model = context.model(request.model)
    prepared, selector = Prepared(context, request.model), parse_selector(request.selector)
    # Only what a vote could change depends on what is believed: entropies are kept.
    weighing = selector if prepared.dependent and isinstance(selector, ByVotes) else None
    known, ratio = prepared.fit(), traits(context.rule(request.rule)).cost
    if weighing is not None:
        known, _ = prepared.adapted(prepared.sample())

    # What the model failed on is tried again when asked for, or while it has no label.
    failed = failed_rows(context.headers, request.model) if only is None else []
    scoring = Scoring(
        context=context,
        model=request.model,
        selector=selector if prepared.dependent else without_value(selector),
        seed=request.seed,
        since=since or 0,
        without=np.array(failed, dtype=np.int64),
        only=only,
    )
    value = None if weighing is None else Worth(weighing, known, prepared.model, ratio)
    survey = Survey(scoring, where=request.where, value=value)
    budget, rule = request.resolved(context), context.rule(request.rule)
    spent: Budget | Account = FULL
    if isinstance(budget, Spending):
        again = only is not None
        spent = allot(context, budget, prepared, selector, rule, again=again)
    elif only is None:
        spent = budget
    # Fewer passes are worth some memory, but not that of whoever drives a cluster.
    cap = CAP if context.executor == LOCAL else DRIVEN
    cut = find_cut(survey.look, spent.evaluations, cap=cap)
    rows, counts = RowSet(context.rows), np.zeros(len(context.classes) + 1, dtype=np.int64)
    for taken in chosen(survey.look, cut, partial(Taken.of, classes=len(context.classes))):
        taken.mark(rows)
        counts += taken.counts
    told = hashlib.sha256(np.array([context.head], dtype=np.int64).tobytes())
    for part in rows.stretches():
        told.update(part.tobytes())
    pending, reconsidered = count_pending(context, rows)
    names = ["no label yet", *(str(name) for name in context.classes)]
    coverage, labels = looked_at(context, len(rows), int(counts[0]))
    told_by = prepared.outcome(selector, rule, coverage)
    # While nothing is labelled there is nothing to correct.
    net = told_by.net(labels) if told_by is not None and context.live_updates else None
    return Plan(
        id=f"{request.digest}-{told.hexdigest()[:8]}",
        request=request,
        head=context.head,
        items=context.rows,
        chosen=rows,
        eligible=cut.available,
        unlabelled=cut.first,
        again=since is not None,
        affected={
            names[at]: int(counts[at])
            for at in np.argsort(-counts, kind="stable").tolist()
            if counts[at]
        },
        cost=model.settings.cost_of(len(rows)),
        rehearsed=None if told_by is None else told_by.to_dict(),
        forecast=None if net is None else net.to_dict(),
        beliefs=known.beliefs,
        pending=pending,
        reconsidered=reconsidered,
        spending=spent.to_dict() if isinstance(spent, Account) else None,
        reach=_reach(context, request, prepared, rows) if told_by is None else None,
    )


def _reach(context: Context, request: Request, prepared: Prepared, rows: RowSet) -> float | None:
    """What one vote could do to labels there are, as far as the first planned items show."""
    first = next(iter(rows.stretches()), None)
    if first is None or not len(first) or not context.live_updates:
        return None
    rule = context.rule(request.rule)
    return best_odds(context, request.model, rule, prepared.fit(), first)
