"""Accounts: what a budget over time has left, and what the next step should spend of it.

Steps with the same budget, as it is written, spend from the same account. What they have spent is
in their headers; what was spent on a step that is undone is spent all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from posterity.engine.context import Context
from posterity.engine.rehearsing import WHY_PLAIN, Prepared
from posterity.engine.steps import masked
from posterity.errors import InvalidParameter
from posterity.rules import Rule
from posterity.selectors import Selector
from posterity.spending import OPEN, Account, Outlook, Spending


@dataclass(frozen=True, eq=False)
class Allotment:
    """What a step may spend of a budget over time."""

    spending: Spending
    account: Account
    now: Outlook
    past: Sequence[Outlook]

    def evaluations(self, eligible: int) -> int:
        """How many of the eligible items the step should look at."""
        return self.account.evaluations(self.spending.price, self.now, self.past, eligible)

    def to_dict(self) -> dict[str, Any]:
        """As plans and headers keep it."""
        return dict(vars(self.account)) | {"outlook": self.now.gains.tolist()}


def allot(
    context: Context, spending: Spending, prepared: Prepared, selector: Selector, rule: Rule
) -> Allotment:
    """The account of a budget before the step of a model that arrives."""
    if not prepared.dependent:
        raise InvalidParameter(
            f"The budget '{spending}' needs the labelled set to tell what a step would bring; the "
            f"store has {WHY_PLAIN}.",
            hint="Register such votes, or give the step a budget of its own (10%, 500).",
        )
    name = prepared.models[prepared.model]
    cost = context.model(name).settings["cost"]
    if spending.share is not None and cost is not None:
        raise InvalidParameter(
            f"The budget '{spending}' is in evaluations, but one of '{name}' costs {cost:g}.",
            hint=f"Give what may be spent in all: total:{spending.share * context.there:g}, say.",
        )
    unit = 1.0 if cost is None else float(cost)
    undone, text = masked(context.headers), str(spending)
    told = [
        (header, header.report["spending"])
        for header in context.headers
        if header.budget == text and header.report.get("spending") is not None
    ]
    spent = sum(header.report["evaluations"] * before["unit"] for header, before in told)
    total = spending.total(context.there)
    account = Account(
        left=None if total is None else max(0.0, total - spent),
        steps=max(1, OPEN if spending.horizon is None else spending.horizon - len(told)),
        unit=unit,
        later=fmean([*(before["unit"] for _, before in told), unit]),
    )
    past = [
        Outlook(np.array(before["outlook"])) for header, before in told if header.step not in undone
    ]
    return Allotment(spending, account, prepared.outlook(selector, rule), past)


def shown(spending: str, told: dict[str, Any], evaluations: int) -> str:
    """What a plan says of it."""
    if told["left"] is None:
        return f"as many as are worth their price ({spending})"
    share = evaluations * told["unit"] / told["left"] if told["left"] else 0.0
    return (
        f"of {spending} {told['left']:,.10g} is left for {told['steps']:,} steps; this one is "
        f"given {100 * share:.3g} % of it"
    )
