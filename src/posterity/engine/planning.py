"""Plan: which items the arriving model should look at, before anything is spent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity._arrays import Floats, Mask, Rows
from posterity.budget import FULL, Budget
from posterity.engine.context import Context
from posterity.engine.history import ShardHistory
from posterity.engine.registering import labelled_rows
from posterity.engine.steps import live_updates
from posterity.errors import InvalidParameter, StoreError
from posterity.rehearsal import LEAST, Part, Rehearsed, rehearse
from posterity.rules import Oracle, Rule
from posterity.rules import parse as parse_rule
from posterity.selectors import Candidates, Selector, choose
from posterity.selectors import parse as parse_selector
from posterity.specs import read_seed
from posterity.tables.delta import to_parquet
from posterity.votes import MISSING

NO_REHEARSAL = (
    "its models have too few labelled items in common, labelled votes without ids, or a stated "
    "confusion"
)

DEFAULT_BUDGET = "10%"
DEFAULT_SELECTOR = "entropy"
DEFAULT_RULE = "cost-ratio:10"


@dataclass(frozen=True)
class Request:
    """What is asked of an update; two equal requests are the same work."""

    model: str
    budget: str | None = None
    """None: everything while nobody has voted, else ``DEFAULT_BUDGET``."""
    selector: str = DEFAULT_SELECTOR
    rule: str = DEFAULT_RULE
    where: str | None = None
    seed: int = 0

    @classmethod
    def of(
        cls,
        model: str,
        budget: Budget | float | str | None,
        selector: Selector | str,
        rule: Rule | str,
        where: str | None,
        seed: int,
    ) -> Request:
        """What was asked for in one spelling: cost-ratio:10.0 is the same work as cost-ratio:10."""
        parsed = parse_rule(rule)
        if isinstance(parsed, Oracle):
            raise InvalidParameter("The rule 'oracle' knows the truth; it is for replay only.")
        spending = None if budget is None else str(Budget.of(budget))
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

    def resolved(self, context: Context) -> Budget:
        """The budget of this request now."""
        if self.budget is not None:
            return Budget.of(self.budget)
        return Budget.of(DEFAULT_BUDGET) if live_updates(context.headers) else FULL


@dataclass(frozen=True, eq=False)
class Plan:
    """A step before it is spent."""

    id: str
    request: Request
    head: int
    """The last step the plan has read."""
    items: int
    """Rows in the store when the plan was made."""
    rows: Rows
    """The items to evaluate, ascending."""
    eligible: int
    affected: dict[str, int]
    """The stored labels of the chosen items, most frequent first."""
    cost: float | None
    """Of all evaluations; None: unknown."""
    rehearsed: dict[str, Any] | None = None
    """What the same selection and rule did on the labelled set; None where it is too small."""
    note: str = ""

    @property
    def evaluations(self) -> int:
        """How many items the model will look at."""
        return len(self.rows)

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
            "note": self.note,
        }

    def __str__(self) -> str:
        if self.note:
            return self.note
        cost = "unknown" if self.cost is None else f"{self.cost:g}"
        shown = ", ".join(f"{name} ({count})" for name, count in list(self.affected.items())[:5])
        return (
            f"plan {self.id}: {self.request.model} on {self.evaluations:,} of {self.eligible:,} "
            f"eligible items ({self.request.selector}, {self.request.budget or 'default budget'})\n"
            f"rule {self.request.rule}; cost {cost}\n"
            f"labels most affected: {shown or 'none'}\n"
            + (
                str(Rehearsed(**self.rehearsed))
                if self.rehearsed
                else "no rehearsal: " + NO_REHEARSAL
            )
        )


def make_plan(
    context: Context, request: Request, *, since: int = 0, only: Sequence[int] | None = None
) -> Plan:
    """Score every shard, and choose the highest of all.

    ``since``: only rows from this one on, for items added after the same request was carried out;
    ``only``: these rows, to try them again.
    """
    model = context.model(request.model)
    entropy, eligible, voted, label = _survey(context, request)
    eligible[:since] = False
    if only is not None:
        eligible &= np.isin(np.arange(context.rows), only)
    else:
        # What the model failed on is tried again when asked for, not again and again.
        eligible[failed_rows(context, request.model)] = False
    rows = np.arange(context.rows)
    selector, step = parse_selector(request.selector), context.head + 1
    candidates = Candidates(entropy=entropy, rows=rows, step=step, seed=request.seed)
    available = int(eligible.sum())
    budget = FULL if only is not None else request.resolved(context)
    chosen = choose(
        selector.score(candidates),
        rows=rows,
        eligible=eligible,
        first=~voted,
        evaluations=budget.evaluations(available),
    )
    told = hashlib.sha256(np.concatenate([[context.head], chosen]).tobytes()).hexdigest()
    unit = model.settings["cost"]
    codes, counts = np.unique(label[chosen], return_counts=True)
    names = [
        "no label yet" if code == MISSING else str(name)
        for code, name in zip(codes, context.classes.decode(codes), strict=True)
    ]
    return Plan(
        id=f"{request.digest}-{told[:8]}",
        request=request,
        head=context.head,
        items=context.rows,
        rows=chosen,
        eligible=available,
        affected={names[at]: int(counts[at]) for at in np.argsort(-counts, kind="stable")},
        cost=None if unit is None else unit * len(chosen),
        rehearsed=_rehearse(context, request, len(chosen) / max(1, available)),
    )


def failed_rows(context: Context, model: str) -> list[int]:
    """The items a model has failed on in the steps that count."""
    live = live_updates(context.headers)
    return sorted({row for step in live if step.model == model for row in step.failed})


def _rehearse(context: Context, request: Request, share: float) -> dict[str, Any] | None:
    """The steps so far and the one planned, on what all their models have labelled votes on."""
    live = live_updates(context.headers)
    names = list(dict.fromkeys([*(header.model or "" for header in live), request.model]))
    if not all(context.models[name].settings["keyed"] for name in names):
        return None  # also where a confusion was stated: nobody knows on which items
    by_model = {}
    for name in names:
        own = labelled_rows(context, context.models[name])
        columns = (own.column(column).to_pylist() for column in ("key", "truth", "vote"))
        rows = zip(*columns, strict=True)
        by_model[name] = {key: (truth, vote) for key, truth, vote in rows if vote != MISSING}
    common = sorted(set.intersection(*(set(rows) for rows in by_model.values())))
    # Models that disagree about the truth of an item cannot be compared on it.
    keys = [key for key in common if len({rows[key][0] for rows in by_model.values()}) == 1]
    if len(keys) < LEAST:
        return None
    truth = np.array([by_model[names[0]][key][0] for key in keys], dtype=np.int32)
    votes = np.array([[by_model[name][key][1] for key in keys] for name in names], dtype=np.int32)
    parts = [
        Part(
            names.index(header.model or ""),
            header.report["evaluations"] / max(1, header.items),
            parse_selector(header.selector or ""),
            parse_rule(header.rule or ""),
        )
        for header in live
    ]
    planned = parse_selector(request.selector), parse_rule(request.rule)
    parts.append(Part(names.index(request.model), share, *planned))
    estimator = context.description.confusion
    prior = context.fit(request.model).prior
    return rehearse(truth, votes, parts, prior=prior, estimator=estimator).to_dict()


def _survey(context: Context, request: Request) -> tuple[Floats, Mask, Mask, Any]:
    """Entropy, eligibility, votes and label of every row, gathered shard by shard."""
    live = live_updates(context.headers)
    prior_entropy = context.fit(request.model).prior_entropy
    entropy, eligible = np.zeros(context.rows), ~context.removed.among(0, context.rows)
    voted = np.zeros(context.rows, dtype=np.bool_)
    label = np.zeros(context.rows, dtype=np.int32)
    for shard, start, items in context.shards:
        history = ShardHistory.read(context.ledger, shard, start, items)
        now = history.current(live, prior_entropy)
        part = slice(start, start + items)
        entropy[part], voted[part], label[part] = now.entropy, now.voted, now.label
        eligible[part] &= ~history.voted_by(live, request.model)
    if request.where is not None and context.items is not None:
        satisfied = np.zeros(context.rows, dtype=np.bool_)
        found = context.items.select(["row"], request.where)
        satisfied[found.column("row").to_numpy()] = True
        eligible &= satisfied
    return entropy, eligible, voted, label


def save_plan(context: Context, plan: Plan) -> None:
    """Keep a plan under its id: first its rows, then the small file that makes it count."""
    rows = pa.table({"row": plan.rows})
    context.files.write(f"runs/{plan.id}/rows.parquet", to_parquet(rows))
    plain = ("id", "head", "items", "eligible", "affected", "cost", "rehearsed")
    told = {key: getattr(plan, key) for key in plain} | {"request": asdict(plan.request)}
    context.files.write(f"runs/{plan.id}/plan.json", json.dumps(told).encode())


def load_plan(context: Context, plan_id: str) -> Plan | None:
    """A kept plan; None if there is none of that id."""
    path = f"runs/{plan_id}/plan.json"
    if context.files.size(path) is None:
        return None
    try:
        told = json.loads(context.files.read(path).to_pybytes())
        kept = pa.BufferReader(context.files.read(f"runs/{plan_id}/rows.parquet"))
        rows = pq.read_table(kept).column("row").to_numpy()
    except (ValueError, OSError) as error:
        raise StoreError(f"The plan '{plan_id}' is damaged: {error}.") from None
    request = Request(**told.pop("request"))
    return Plan(request=request, rows=rows, **told)
