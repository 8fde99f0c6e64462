"""Compare: which model to spend the same money on, as rehearsed on the labelled set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from posterity._text import shown
from posterity.engine.evaluation.plans import NO_REHEARSAL, Request
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.state import state_of
from posterity.engine.ledger.steps import failed_rows
from posterity.engine.ledger.totals import looked_at
from posterity.engine.plan.policy import policy_for
from posterity.errors import InvalidData
from posterity.method.data.arrays import Rows
from posterity.method.data.spec import real_number
from posterity.method.data.votes import MISSING
from posterity.method.decide.rules import Rule
from posterity.method.decide.selectors import Selector
from posterity.method.decide.selectors import parse as parse_selector
from posterity.validation.expectation import Estimate
from posterity.validation.outcome import Rehearsed


@dataclass(frozen=True)
class Choice:
    """What some money would bring if it were spent on one model."""

    model: str
    unit: float
    """What an evaluation costs."""
    evaluations: int
    share: float
    """Of all items."""
    cost: float
    rehearsed: Rehearsed
    net: Estimate
    """Corrections less new errors that all items can expect."""

    @property
    def each(self) -> float | None:
        """What a net correction costs; None where none is expected."""
        return self.cost / self.net.value if self.net.value > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "model": self.model,
            "evaluations": self.evaluations,
            "share": self.share,
            "cost": self.cost,
            "net_corrections": self.net.to_dict(),
            "cost_each": self.each,
            "rehearsed": self.rehearsed.to_dict(),
        }

    def to_row(self) -> dict[str, Any]:
        """As a table shows it."""
        return {
            "model": self.model,
            "evaluations": f"{self.evaluations:,}",
            "of all items": f"{100 * self.share:.3g} %",
            "cost": self.cost,
            "net corrections": shown(**self.net.to_dict()),
            "cost each": self.each,
        }


def compare(
    context: Context,
    models: Sequence[str],
    money: float,
    *,
    selector: Selector | str | None,
    rule: Rule | str | None,
) -> list[Choice]:
    """The models by what they would bring for the money, the best first.

    Nothing is spent, and no item is scored.
    """
    money = real_number(money, "money", above=True)
    if not context.live_updates:
        raise InvalidData("There is no label yet that a model could correct.")
    found = []
    for name in dict.fromkeys(models):
        unit = context.model(name).settings.cost
        if unit is None:
            raise InvalidData(
                f"Nobody has said what an evaluation of '{name}' costs.",
                hint="Say so when it is registered: posterity model … --cost C.",
            )
        eligible = eligible_items(context, name)
        evaluations = eligible.items
        if unit:  # as the decimals that were written
            evaluations = min(
                evaluations, math.floor(Fraction(repr(float(money))) / Fraction(repr(float(unit))))
            )
        first = min(evaluations, eligible.unlabelled)
        coverage, labels = looked_at(context, evaluations, first)
        request = Request.of(name, None, selector, rule, policy=policy_for(context, name))
        told = Prepared(context, name).outcome(
            parse_selector(request.selector), context.rule(request.rule), coverage
        )
        if told is None:
            raise InvalidData(f"'{name}' cannot be rehearsed: {NO_REHEARSAL}.")
        share = evaluations / max(1, context.there)
        found.append(
            Choice(name, unit, evaluations, share, evaluations * unit, told, told.net(labels))
        )
    return sorted(found, key=lambda choice: -choice.net.value)


@dataclass(frozen=True)
class Eligible:
    """How many items a model could look at."""

    labelled: int = 0
    unlabelled: int = 0
    """Without a label; these come first."""

    @property
    def items(self) -> int:
        """All of them."""
        return self.labelled + self.unlabelled

    def __add__(self, other: Eligible) -> Eligible:
        return Eligible(self.labelled + other.labelled, self.unlabelled + other.unlabelled)


def eligible_items(context: Context, model: str) -> Eligible:
    """Items it has neither voted nor failed on, and nobody has answered for.

    Without a label also those it has failed on.
    """
    failed = np.array(failed_rows(context.headers, model), dtype=np.int64)
    left = partial(_left, context, model, failed)
    return sum(context.executor.map(left, context.shards), Eligible())


def _left(context: Context, model: str, failed: Rows, shard: RowRange) -> Eligible:
    """Of one shard."""
    _, start, items = shard
    state = state_of(context, *shard)
    left = ~(state.voted_by(model) | state.pinned | context.removed.among(start, items))
    has = state.current(0.0).label != MISSING
    labelled = left & has
    labelled[failed[shard.within(failed)] - start] = False
    return Eligible(int(labelled.sum()), int((left & ~has).sum()))
