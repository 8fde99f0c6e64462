"""Compare: which model to spend the same money on, as rehearsed on the labelled set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from posterity._text import shown
from posterity.engine.evaluation.plans import NO_REHEARSAL, Request
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.state import state_of
from posterity.engine.ledger.totals import undecided
from posterity.engine.plan.policy import policy_for
from posterity.engine.plan.score import open_failures
from posterity.errors import InvalidData
from posterity.method.data.spec import real_number
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
        items, evaluations = undecided(context), eligible_items(context, name)
        if unit:  # as the decimals that were written
            evaluations = min(
                evaluations, math.floor(Fraction(repr(float(money))) / Fraction(repr(float(unit))))
            )
        share = evaluations / max(1, context.there)
        request = Request.of(name, None, selector, rule, policy=policy_for(context, name))
        told = Prepared(context, name).outcome(
            parse_selector(request.selector),
            context.rule(request.rule),
            evaluations / max(1, items),
        )
        if told is None:
            raise InvalidData(f"'{name}' cannot be rehearsed: {NO_REHEARSAL}.")
        found.append(
            Choice(name, unit, evaluations, share, evaluations * unit, told, told.net(items))
        )
    return sorted(found, key=lambda choice: -choice.net.value)


def eligible_items(context: Context, model: str) -> int:
    """Items it has neither voted nor failed on, and nobody has answered for."""
    left = sum(context.executor.map(partial(_left, context, model), context.shards))
    return left - len(open_failures(context, model))


def _left(context: Context, model: str, shard: RowRange) -> int:
    """Of one shard, whether the model failed on them or not."""
    _, start, items = shard
    state = state_of(context, *shard)
    done = state.voted_by(model) | state.pinned
    return int((~done & ~context.removed.among(start, items)).sum())
