"""Plan: which items the arriving model should look at, before anything is spent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from posterity import _markup
from posterity._arrays import Rows
from posterity.budget import FULL, Budget
from posterity.choosing import CAP, chosen, find_cut
from posterity.engine.accounts import Allotment, allot
from posterity.engine.accounts import shown as shown_account
from posterity.engine.context import Context
from posterity.engine.fits import DEPENDENT, PLAIN
from posterity.engine.pending import count_pending
from posterity.engine.rehearsing import Prepared, labelled_of
from posterity.engine.reports import shown
from posterity.engine.rowsets import RowSet
from posterity.engine.steps import live_updates
from posterity.engine.surveys import Survey, Taken, Worth
from posterity.engine.totals import total_of
from posterity.errors import InvalidParameter
from posterity.executors import LOCAL
from posterity.expectations import Estimate
from posterity.plain_rehearsal import Part, rehearse
from posterity.rehearsed import Rehearsed
from posterity.rules import AtMost, Oracle, Rule, cost_of, refuse_ratio
from posterity.rules import parse as parse_rule
from posterity.selectors import Entropy, Selector, Value
from posterity.selectors import parse as parse_selector
from posterity.specs import read_seed
from posterity.spending import Spending, read_budget

NO_REHEARSAL = (
    "its models have too few labelled items in common, labelled votes without ids, or a stated "
    "confusion"
)

DRIVEN = 2**17
"""Candidates held by the driver of a cluster, to choose among them exactly."""
SHOWN = 5
"""Labels that are told of, if a plan affects more."""
DEFAULT_BUDGET = "10%"
DEFAULT_SELECTOR = {DEPENDENT: "value", PLAIN: "entropy"}
"""By the beliefs of the store."""
DEFAULT_RULE = "cost-ratio:10"


@dataclass(frozen=True)
class Request:
    """What is asked of an update; two equal requests are the same work."""

    model: str
    budget: str | None = None
    """None: everything while nobody has voted, else ``DEFAULT_BUDGET``."""
    selector: str = DEFAULT_SELECTOR[PLAIN]
    rule: str = DEFAULT_RULE
    where: str | None = None
    seed: int = 0

    @classmethod
    def of(
        cls,
        model: str,
        budget: Budget | Spending | float | str | None,
        selector: Selector | str,
        rule: Rule | str,
        where: str | None,
        seed: int,
    ) -> Request:
        """What was asked for in one spelling: cost-ratio:10.0 is the same work as cost-ratio:10."""
        parsed = parse_rule(rule)
        if isinstance(parsed, Oracle):
            raise InvalidParameter("The rule 'oracle' knows the truth; it is for replay only.")
        refuse_ratio(parsed)
        if isinstance(parsed, AtMost) and where is not None:
            raise InvalidParameter(
                f"The rule '{parsed}' takes no filter: labelled items cannot be filtered with it.",
                hint="Leave out 'where', or choose a cost ratio yourself.",
            )
        spending = None if budget is None else str(read_budget(budget))
        picked = parse_selector(selector)
        # Kept by name, because every step is decided again from what the store says of it.
        for what, member, read in (
            ("rule", parsed, parse_rule),
            ("selector", picked, parse_selector),
        ):
            if read(str(member)) != member:
                raise InvalidParameter.of(what, "one a store can keep by its name", member)
        return cls(model, spending, str(picked), str(parsed), where, read_seed(seed, "seed"))

    @property
    def digest(self) -> str:
        """Names the work."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]

    def resolved(self, context: Context) -> Budget | Spending:
        """The budget of this request now; the first labels are outside of one over time."""
        begun = bool(live_updates(context.headers))
        if self.budget is None:
            return Budget.of(DEFAULT_BUDGET) if begun else FULL
        given = read_budget(self.budget)
        return FULL if isinstance(given, Spending) and not begun else given


@dataclass(frozen=True, eq=False)
class Plan:
    """A step before it is spent."""

    id: str
    request: Request
    head: int
    """The last step the plan has read."""
    items: int
    """Rows in the store when the plan was made."""
    chosen: RowSet
    """The items to evaluate."""
    eligible: int
    affected: dict[str, int]
    """The stored labels of the chosen items, most frequent first."""
    cost: float | None
    """Of all evaluations; None: unknown."""
    rehearsed: dict[str, Any] | None = None
    """What the same selection and rule did on the labelled set; None where it is too small."""
    forecast: dict[str, Any] | None = None
    """Net corrections that all items can expect of it, and where they lie 90 times in 100."""
    beliefs: str = PLAIN
    """What the items are chosen by, and will be decided by."""
    note: str = ""
    pending: int = 0
    """Flips that were pending when the plan was made."""
    reconsidered: int = 0
    """Those of them on chosen items: a new vote decides; the step makes the others."""
    spending: dict[str, Any] | None = None
    """Where a budget over time stood, and what the step could bring; see ``accounts``."""

    @property
    def rows(self) -> Rows:
        """The items to evaluate, ascending: all in one array."""
        return self.chosen.all()

    @property
    def evaluations(self) -> int:
        """How many items the model will look at."""
        return len(self.chosen)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "plan": self.id,
            **asdict(self.request),
            "head": self.head,
            "eligible": self.eligible,
            "evaluations": self.evaluations,
            "cost": self.cost,
            "affected": self.affected,
            "rehearsed": self.rehearsed,
            "forecast": self.forecast,
            "beliefs": self.beliefs,
            "pending": self.pending,
            "reconsidered": self.reconsidered,
            "spending": self.spending,
            "note": self.note,
        }

    def __str__(self) -> str:
        if self.note:
            return self.note
        cost = "unknown" if self.cost is None else f"{self.cost:g}"
        used = parse_selector(self.request.selector)
        used = used if self.beliefs != PLAIN else _without_value(used)
        shown = ", ".join(
            f"{name} ({count})" for name, count in list(self.affected.items())[:SHOWN]
        )
        return (
            f"plan {self.id}: {self.request.model} on {self.evaluations:,} of {self.eligible:,} "
            f"eligible items ({used}, {self.request.budget or 'default budget'})\n"
            f"rule {self.request.rule}; cost {cost}\n{self._account}"
            f"labels most affected: {shown or 'none'}\n"
            + (
                f"of {self.pending:,} pending flips {self.reconsidered:,} are looked at again, the "
                "others will be made\n"
                if self.pending
                else ""
            )
            + (
                str(Rehearsed(**self.rehearsed))
                if self.rehearsed
                else "no rehearsal: " + NO_REHEARSAL
            )
            + self._forecast
        )

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        if self.note:
            return _markup.lines([self.note])
        told = {
            "items looked at": f"{self.evaluations:,} of {self.eligible:,} eligible",
            "cost": "unknown" if self.cost is None else f"{self.cost:g}",
            "rule": self.request.rule,
        }
        if self.rehearsed:
            told |= {
                "fixed on the labelled set": f"{self.rehearsed['fixed']:,}",
                "broken there": f"{self.rehearsed['broken']:,}",
            }
        if self.forecast is not None:
            told["net corrections expected"] = shown(Estimate(**self.forecast))
        most = [{"label": name, "items": count} for name, count in self.affected.items()][:SHOWN]
        return _markup.page(
            f"Plan {self.id}: {self.request.model}, {self.request.budget or 'default budget'}",
            told,
            _markup.table(most),
            _markup.lines(
                [self._account, "" if self.rehearsed else f"no rehearsal: {NO_REHEARSAL}"]
            ),
        )

    @property
    def _account(self) -> str:
        """What is left of a budget over time."""
        if self.request.budget is None or not self.request.budget.startswith(("total:", "price:")):
            return ""
        if self.spending is None:
            return f"these are the first labels, which are outside of {self.request.budget}\n"
        return shown_account(self.request.budget, self.spending, self.evaluations) + "\n"

    @property
    def _forecast(self) -> str:
        """What all items can expect of it."""
        if self.forecast is None:
            return ""
        told = f"\nof all items that makes about {shown(Estimate(**self.forecast))} net corrections"
        where = ", though of labelled items that no filter was applied to"
        return told + (where if self.request.where else "")


def make_plan(
    context: Context, request: Request, *, since: int = 0, only: Sequence[int] | None = None
) -> Plan:
    """Score every shard, and choose the highest of all.

    ``since``: only rows from this one on, for items added after the same request was carried out;
    ``only``: these rows, to try them again.
    """
    model = context.model(request.model)
    prepared, selector = Prepared(context, request.model), parse_selector(request.selector)
    # Only what a vote could change depends on what is believed: entropies are kept.
    valued = prepared.dependent and isinstance(selector, Value)
    known, ratio = prepared.fit(), cost_of(context.rule(request.rule))
    if valued:
        known, _ = prepared.adapted(prepared.sample())

    survey = Survey(
        context,
        request.model,
        selector if prepared.dependent else _without_value(selector),
        seed=request.seed,
        where=request.where,
        # What the model failed on is tried again when asked for, not again and again.
        without=failed_rows(context, request.model) if only is None else (),
        since=since,
        only=only,
        value=Worth(known, prepared.model, ratio) if valued else None,
    )
    budget, rule = request.resolved(context), context.rule(request.rule)
    spent: Budget | Allotment = FULL
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
    unit = model.settings["cost"]
    pending, reconsidered = count_pending(context, rows)
    names = ["no label yet", *(str(name) for name in context.classes)]
    share, labels = correctable(context, len(rows), int(counts[0]))
    told_by = rehearsed(context, request, prepared, share)
    # While nothing is labelled there is nothing to correct.
    net = told_by.net(labels) if told_by is not None and live_updates(context.headers) else None
    return Plan(
        id=f"{request.digest}-{told.hexdigest()[:8]}",
        request=request,
        head=context.head,
        items=context.rows,
        chosen=rows,
        eligible=cut.available,
        affected={
            names[at]: int(counts[at])
            for at in np.argsort(-counts, kind="stable").tolist()
            if counts[at]
        },
        cost=None if unit is None else unit * len(rows),
        rehearsed=None if told_by is None else told_by.to_dict(),
        forecast=None if net is None else net.to_dict(),
        beliefs=known.beliefs,
        pending=pending,
        reconsidered=reconsidered,
        spending=spent.to_dict() if isinstance(spent, Allotment) else None,
    )


def correctable(context: Context, evaluations: int, first: int) -> tuple[float, int]:
    """Which share of the items with a label a step looks at, and how many items those are.

    ``first`` of its items have none yet: they come first, and nothing about them can be corrected.
    """
    if not first or not live_updates(context.headers):
        return evaluations / max(1, context.there), context.there
    labels = min(context.there, total_of(context).labels)
    return (evaluations - first) / max(1, labels), labels


def failed_rows(context: Context, model: str) -> list[int]:
    """The items a model has failed on in the steps that count."""
    live = live_updates(context.headers)
    return sorted({row for step in live if step.model == model for row in step.failed})


def rehearsed(
    context: Context, request: Request, prepared: Prepared, share: float
) -> Rehearsed | None:
    """What the step did on the labelled set, with the beliefs it will decide with."""
    rule = context.rule(request.rule)
    if not prepared.dependent:
        prepared.refuse_promise(rule)
        return _rehearse(context, request, share)
    selector = parse_selector(request.selector)
    return prepared.rehearse(selector, rule, share, last=True)


def _rehearse(context: Context, request: Request, share: float) -> Rehearsed | None:
    """The steps so far and the one planned, on what all their models have labelled votes on."""
    live = live_updates(context.headers)
    names = list(dict.fromkeys([*(header.model or "" for header in live), request.model]))
    labelled = labelled_of(context, names, weighed=False)
    if labelled is None:
        return None
    parts = [
        Part(
            names.index(header.model or ""),
            header.share,
            _without_value(parse_selector(header.selector or "")),
            context.rule(header.rule or ""),
        )
        for header in live
    ]
    planned = _without_value(parse_selector(request.selector)), context.rule(request.rule)
    parts.append(Part(names.index(request.model), share, *planned))
    return rehearse(
        labelled.truth,
        labelled.votes.T,
        parts,
        prior=context.fit(request.model).prior,
        estimator=context.description.confusion,
    )


def _without_value(selector: Selector) -> Selector:
    """What stands in for the selector ``value`` where beliefs are plain."""
    return Entropy() if isinstance(selector, Value) else selector
