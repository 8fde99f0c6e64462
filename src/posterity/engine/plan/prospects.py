"""Prospects: what a step of a model would bring, for any budget and cost ratio, nothing spent.

The labelled items go through the steps so far once; then each question is one more step on them.
"""

from __future__ import annotations

from functools import cached_property
from math import hypot
from typing import Any

from posterity.engine.evaluation.plans import NO_REHEARSAL, Request
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.reports import accuracy_now
from posterity.engine.ledger.totals import correctable, total_of
from posterity.engine.plan.compare import eligible_items
from posterity.engine.plan.policy import policy_for
from posterity.method.decide.budget import Budget
from posterity.method.decide.defaults import DEFAULT_BUDGET
from posterity.method.decide.selectors import parse as parse_selector
from posterity.validation.expectation import Estimate, expect
from posterity.validation.outcome import Rehearsed

BUDGETS = ("1%", "2%", "5%", "10%", "15%", "20%", "30%", "40%", "50%", "70%", "100%")
RATIOS = (1, 2, 3, 5, 10, 20, 50, 100, 200)
"""What can be chosen from without typing."""
MOST = 1000
"""Answers that are kept; beyond that they are calculated again."""
FIRST = (
    "Nothing is labelled yet: the first vote on an item is its label, so look at everything once."
)


class Prospects:
    """What a step of one model would bring."""

    def __init__(self, context: Context, model: str) -> None:
        self._context = context
        self.model = context.model(model)
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}

    @cached_property
    def eligible(self) -> int:
        """Items it could look at."""
        return eligible_items(self._context, self.model.name)

    @cached_property
    def _prepared(self) -> Prepared:
        return Prepared(self._context, self.model.name)

    @property
    def note(self) -> str:
        """Why no more can be told than numbers of items; nothing where more can be."""
        if not self._context.live_updates:
            return FIRST
        if self.model.pending:
            asked = self.model.settings.labelled
            return f"It votes on {asked:,} labelled items first; how it errs is not known yet."
        return ""

    def answer(self, budget: str = DEFAULT_BUDGET, rule: str | None = None) -> dict[str, Any]:
        """What a budget and a rule would bring; the same figures ``plan`` tells."""
        rule = str(policy_for(self._context, self.model.name).rule) if rule is None else rule
        if (budget, rule) not in self._answers:
            if len(self._answers) >= MOST:
                self._answers.clear()
            self._answers[budget, rule] = self._answer(budget, rule)
        return self._answers[budget, rule]

    def curve(self, rule: str) -> dict[str, Any]:
        """What it would bring by budget: the points that are known, and one more each time."""
        known = self.known(rule)
        left = [budget for budget in BUDGETS if budget not in known]
        points = [self.answer(budget, rule) for budget in [*known, *left[:1]]]
        return {"model": self.model.name, "rule": rule, "points": points, "done": len(left) <= 1}

    def known(self, rule: str) -> list[str]:
        """The budgets of the curve that were asked about before."""
        return [budget for budget in BUDGETS if (budget, rule) in self._answers]

    def _answer(self, budget: str, rule: str) -> dict[str, Any]:
        context, name = self._context, self.model.name
        request = Request.of(name, Budget.of(budget), None, rule, policy=policy_for(context, name))
        evaluations = Budget.of(budget).evaluations(self.eligible)
        share = evaluations / max(1, context.there)
        note, told = self.note, None
        first = min(evaluations, self._unlabelled)
        on_labels, labels = correctable(context, evaluations, first)
        if not note:
            told = self._prepared.again().outcome(
                parse_selector(request.selector), context.rule(request.rule), on_labels
            )
            note = "" if told is not None else f"No rehearsal: {NO_REHEARSAL}."
        now = accuracy_now(context)
        if not note and self._unlabelled:
            now = None
            note = (
                f"{self._unlabelled:,} items have no label yet, and come first; what their first "
                "labels do to the accuracy is not told."
            )
        return {
            "model": name,
            "budget": request.budget,
            "rule": request.rule,
            "selector": request.selector,
            "eligible": self.eligible,
            "evaluations": evaluations,
            "share": share,
            "cost": self.model.settings.cost_of(evaluations),
            "note": note,
            "accuracy_now": None if now is None else now.to_dict(),
            **self._expected(told, now, labels),
        }

    def _expected(self, told: Rehearsed | None, now: Estimate | None, there: int) -> dict[str, Any]:
        if told is None:
            names = ("rehearsed", "accuracy", "fixed", "broke", "net")
            return dict.fromkeys(names)
        of_kind = {
            name: expect(count, labelled=told.items, items=there, dispersion=told.dispersion)
            for name, count in (("fixed", told.fixed), ("broke", told.broken))
        }
        net = told.net(there)
        # Of all labels, those that no vote decides among them.
        every = max(1, self._context.there)
        accuracy = None if now is None else _after(now, net.times(1 / every))
        return {
            "rehearsed": told.to_dict(),
            "accuracy": None if accuracy is None else accuracy.to_dict(),
            **{name: found.to_dict() for name, found in of_kind.items()},
            "net": net.to_dict(),
        }

    @cached_property
    def _unlabelled(self) -> int:
        """Items without a label."""
        return max(0, self._context.there - total_of(self._context).labels)


def _after(now: Estimate, gain: Estimate) -> Estimate:
    """What is expected after a gain; what is not known of both adds up as squares do."""
    value = min(1.0, max(0.0, now.value + gain.value))
    if now.low is None or now.high is None or gain.low is None or gain.high is None:
        return Estimate(value)
    below = hypot(now.value - now.low, gain.value - gain.low)
    above = hypot(now.high - now.value, gain.high - gain.value)
    return Estimate(value, max(0.0, value - below), min(1.0, value + above))


def arriving(context: Context) -> list[str]:
    """Models that could still look at items, the newest first."""
    listed = sorted(context.models.values(), key=lambda model: -model.arrival)
    return [model.name for model in listed if eligible_items(context, model.name)]
