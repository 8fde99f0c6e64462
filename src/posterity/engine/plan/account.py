"""Account: what a budget over time has left, and what the next step should spend of it.

Steps with the same budget, as it is written, spend from the same account. What they have spent is
in their headers; what was spent on a step that is undone is spent all the same.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np

from posterity.engine.labelled.rehearse import WHY_PLAIN, Prepared
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.steps import Header
from posterity.errors import InvalidParameter
from posterity.method.decide.budget import SLACK, Account, Outlook, Spending, read_budget
from posterity.method.decide.rules import Rule
from posterity.method.decide.selectors import Selector


def allot(
    context: Context,
    spending: Spending,
    prepared: Prepared,
    selector: Selector,
    rule: Rule,
    *,
    again: bool = False,
) -> Account:
    """The account of a budget before the step of a model that arrives.

    ``again``: to try what it has failed on.
    """
    if not prepared.dependent:
        raise InvalidParameter(
            f"The budget '{spending}' needs the labelled set to tell what a step would bring; the "
            f"store has {WHY_PLAIN}.",
            hint="Register such votes, or give the step a budget of its own (10%, 500).",
        )
    name = prepared.arriving
    cost = context.model(name).settings.cost
    if spending.share is not None and cost is not None:
        raise InvalidParameter(
            f"The budget '{spending}' is in evaluations, but one of '{name}' costs {cost:g}.",
            hint=f"Give what may be spent in all: total:{spending.share * context.there:g}, say.",
        )
    unit = 1.0 if cost is None else float(cost)
    undone, told = context.undone, _told(context, spending)
    others = {header.model for header, _ in told} - {name}
    left = left_of(context, spending)
    past = [
        Outlook(np.array(before["outlook"]))
        for header, before in told
        if header.step not in undone and before["outlook"] is not None
    ]
    return Account(
        left=None if left is None else max(0.0, left),
        steps=spending.steps_left(len(others)),
        now=None if again else prepared.outlook(selector, rule),
        past=past,
        price=spending.price,
        unit=unit,
        later=fmean([*(before["unit"] for _, before in told), unit]),
    )


def left_of(context: Context, spending: Spending) -> float | None:
    """What is left of a total; None without one, and below 0 where more was spent."""
    total = spending.total(context.there)
    if total is None:
        return None
    spent = 0.0
    for header, before in _told(context, spending):
        spent += header.asked * before["unit"]  # failures cost as well
    return total - spent


def _told(context: Context, spending: Spending) -> list[tuple[Header, dict[str, Any]]]:
    """The steps of this budget, and where it stood before each."""
    return [
        (header, header.report["spending"])
        for header in context.headers
        if header.budget == str(spending) and header.report.get("spending") is not None
    ]


def overspent(context: Context, budget: str | None, told: dict[str, Any], asked: int) -> str:
    """What a report says where a step has spent more than there was: votes nobody had planned, or
    a plan from before other steps.
    """
    spending = None if budget is None else read_budget(budget)
    left = left_of(context, spending) if isinstance(spending, Spending) else None
    if left is None or asked * told["unit"] <= max(0.0, left) + SLACK:
        return ""
    return f"{asked * told['unit'] - max(0.0, left):,.10g} more than was left of {budget}"
