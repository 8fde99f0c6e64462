"""Tune: which policy serves a goal best on a store's labelled items, and making it the store's."""

from __future__ import annotations

from dataclasses import replace

from posterity._text import Progress
from posterity.engine.evaluation.plans import NO_REHEARSAL
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.commit import retried
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import make_step
from posterity.engine.ledger.steps import TUNE
from posterity.engine.ledger.totals import total_of
from posterity.engine.plan.prospects import arriving as still_arriving
from posterity.engine.plan.tracks import Tracks
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.decide.budget import Budget
from posterity.method.decide.defaults import DEFAULT_BUDGET
from posterity.method.decide.policy import Goal
from posterity.validation.tune import Tuned, chosen, compared
from posterity.validation.tune import tune as tune_history


def tune(
    context: Context,
    model: str | None = None,
    *,
    goal: Goal | str | None = None,
    budget: Budget | float | str | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """The steps so far and the next one on the labelled items, under many policies.

    ``model``: whose step is next, by default the newest that could look at items; ``budget``: of
    that step.
    """
    live, wanted = context.live_updates, Goal.parse("balance" if goal is None else goal)
    if not live:
        raise InvalidData(
            "There is no label yet, so there is no policy to compare.",
            hint="Give the items their first labels with `posterity update` or `import`.",
        )
    if model is None:
        known = (name for name in still_arriving(context) if not context.models[name].pending)
        model = next(known, None)
    elif context.model(model).pending:
        raise InvalidData(
            f"'{model}' has not voted on its labelled items yet, so how it errs is not known.",
            hint=f"Let it: posterity update STORE {model}.",
        )
    share = None
    if model is not None:
        spent = Budget.of(DEFAULT_BUDGET if budget is None else budget)
        share = spent.evaluations(context.there) / max(1, context.there)
    elif budget is not None:
        raise InvalidParameter(
            "Every model has voted on every item: there is no next step with a budget.",
            hint="Leave out the budget, or register another model.",
        )
    arriving, current = live[-1].voter if model is None else model, context.policy
    tracks = Tracks(context, arriving, share)
    if all(str(policy) in tracks.known for policy in compared(wanted, current)):
        found = chosen(wanted, current, tracks.known)
    else:
        prepared = Prepared(context, arriving)
        if not prepared.dependent:
            raise InvalidData(f"Policies cannot be compared: {NO_REHEARSAL}.")
        truth, prior, history = prepared.history(share)
        found = tune_history(
            truth,
            prior,
            history,
            goal=wanted,
            current=current,
            items=context.there,
            known=tracks.known,
            progress=progress,
        )
        tracks.keep()
    return replace(found, note="`--apply` makes it the store's policy for later plans and updates")


def apply(context: Context, found: Tuned) -> Tuned:
    """Make the choice the store's policy, by a step of its own; nothing else changes."""
    return retried(context, lambda now: _apply(now, found))


def _apply(context: Context, found: Tuned) -> Tuned:
    chosen, policy = found.chosen, context.policy
    if (chosen.selector, chosen.rule) == (str(policy.selector), str(policy.rule)):
        return replace(found, note="Nothing to do: it is the store's policy.")
    last = context.headers[-1].report
    told = found.to_dict()
    report = {name: told[name] for name in ("goal", "steps", "chosen", "current", "crossed")}
    # What is known of the labels stays as it is.
    report |= {name: last[name] for name in ("expected",) if name in last}
    report["held"] = total_of(context).to_dict()
    step = context.head + 1
    make_step(context, TUNE, [], report, selector=chosen.selector, rule=chosen.rule)
    note = (
        f"step {step}: plans and updates now follow it; `posterity revert STORE {step}` undoes it"
    )
    return replace(found, step=step, note=note)
