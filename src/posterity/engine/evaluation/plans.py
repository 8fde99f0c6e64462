"""Plans: what is asked of an update, which items that means, and plans kept under their id."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from posterity import _text
from posterity._text import counted, shown
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter, Missing, StoreError
from posterity.method.data.arrays import Rows
from posterity.method.data.row_sets import STRETCH, RowSet
from posterity.method.data.spec import read_seed
from posterity.method.decide import balance
from posterity.method.decide.budget import FULL, Budget, Spending, read_budget
from posterity.method.decide.defaults import DEFAULT_BUDGET, DEFAULT_RULE, DEFAULT_SELECTOR, PLAIN
from posterity.method.decide.policy import Policy
from posterity.method.decide.rules import CAUTIOUS, Balanced, Rule, refuse_ratio, traits
from posterity.method.decide.rules import parse as parse_rule
from posterity.method.decide.selectors import Selector, without_value
from posterity.method.decide.selectors import parse as parse_selector
from posterity.validation.outcome import Rehearsed

PLAN_FILE = "plan.parquet"
"""A plan's rows, and all else of it in the file's metadata: one file is there as a whole."""
PLAN_KEY = b"posterity.plan"


def save_plan(context: Context, plan: Plan) -> None:
    """Keep a plan under its id."""
    plain = ["id", "head", "items", "eligible", "affected", "cost", "rehearsed", "forecast"]
    plain += ["beliefs", "pending", "reconsidered", "spending", "reach", "unlabelled", "again"]
    told = {key: getattr(plan, key) for key in plain} | {"request": asdict(plan.request)}
    context.files.write(
        f"runs/{plan.id}/{PLAN_FILE}", _packed(plan.chosen, json.dumps(told).encode())
    )


def load_plan(context: Context, plan_id: str) -> Plan | None:
    """A kept plan; None if there is none of that id."""
    path = f"runs/{plan_id}/{PLAN_FILE}"
    if context.files.size(path) is None:
        return None
    try:
        kept = pq.ParquetFile(pa.BufferReader(context.files.read(path)))
        told = json.loads((kept.schema_arrow.metadata or {})[PLAN_KEY])
        rows = RowSet(told["items"])
        for part in kept.iter_batches(STRETCH, columns=["row"]):
            rows.mark(part.column("row").to_numpy())
        request = Request(**told.pop("request"))
        return Plan(request=request, chosen=rows, **told)
    except Missing:
        return None  # dropped in between
    except (ValueError, KeyError, IndexError, TypeError, OSError, pa.ArrowException) as error:
        raise StoreError(
            f"The plan '{plan_id}' is damaged: {error}.",
            hint=f"Drop it with `posterity runs STORE --drop {plan_id}`.",
        ) from None


def _packed(rows: RowSet, told: bytes) -> pa.Buffer:
    """Rows as Parquet, of which no more than a part is held in any other form."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("row", pa.int64())], metadata={PLAN_KEY: told})
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"row": "DELTA_BINARY_PACKED"},
    ) as writer:
        for part in rows.stretches():
            if len(part):
                writer.write_table(pa.table({"row": part}, schema))
    return sink.getvalue()


SHOWN = 5
"""Labels that are told of, if a plan affects more."""


@dataclass(frozen=True)
class Request:
    """What is asked of an update; two equal requests are the same work."""

    model: str
    budget: str | None = None
    """None: everything while nobody has voted, else ``DEFAULT_BUDGET``."""
    selector: str = DEFAULT_SELECTOR[PLAIN]
    rule: str = DEFAULT_RULE[PLAIN]
    where: str | None = None
    seed: int = 0
    digest: str = ""
    """Names the work as it was asked for: asked again under another policy, it is the same."""

    @classmethod
    def of(
        cls,
        model: str,
        budget: Budget | Spending | float | str | None,
        selector: Selector | str | None,
        rule: Rule | str | None,
        where: str | None = None,
        seed: int = 0,
        *,
        policy: Policy,
    ) -> Request:
        """What was asked for in one spelling: cost-ratio:10.0 is the same work as cost-ratio:10.

        What was not said is as the store's policy has it.
        """
        parsed = parse_rule(policy.rule if rule is None else rule)
        if "truth" in traits(parsed).uses:
            raise InvalidParameter("The rule 'oracle' knows the truth; it is for replay only.")
        refuse_ratio(parsed)
        if traits(parsed).promises and where is not None:
            raise InvalidParameter(
                f"The rule '{parsed}' takes no filter: labelled items cannot be filtered with it.",
                hint="Leave out 'where', or choose a cost ratio yourself.",
            )
        spending = None if budget is None else str(read_budget(budget))
        picked = parse_selector(policy.selector if selector is None else selector)
        # Kept by name, because every step is decided again from what the store says of it.
        for what, member, read in (
            ("rule", parsed, parse_rule),
            ("selector", picked, parse_selector),
        ):
            if read(str(member)) != member:
                raise InvalidParameter.of(what, "one a store can keep by its name", member)
        request = cls(model, spending, str(picked), str(parsed), where, read_seed(seed, "seed"))
        asked = request.to_dict()
        asked |= {"selector": None} if selector is None else {}
        asked |= {"rule": None} if rule is None else {}
        digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
        return replace(request, digest=digest)

    def to_dict(self) -> dict[str, Any]:
        """What is asked."""
        return {name: value for name, value in asdict(self).items() if name != "digest"}

    def resolved(self, context: Context) -> Budget | Spending:
        """The budget of this request now; the first labels are outside of one over time."""
        begun = bool(context.live_updates)
        if self.budget is None:
            return Budget.of(DEFAULT_BUDGET) if begun else FULL
        given = read_budget(self.budget)
        return FULL if isinstance(given, Spending) and not begun else given


LABELLED = "labelled-"
"""What the ids of plans of labelled items begin with."""


def is_labelled(plan_id: str | None) -> bool:
    """Whether a plan is of labelled items, which a model votes on first."""
    return (plan_id or "").startswith(LABELLED)


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
    """Where a budget over time stood, and what the step could bring; see ``account``."""
    reach: float | None = None
    """How many times as likely as a label one vote can make another class, where that changes no
    label and no labelled items can be rehearsed; see ``reach``."""
    unlabelled: int = 0
    """Eligible items without a label; they come first."""
    again: bool = False
    """Whether the request was carried out before: this is what came since, or has no label yet."""

    @classmethod
    def nothing(cls, context: Context, request: Request, reason: str) -> Plan:
        """Of a request that leaves nothing to do; it has no id, and cannot be carried out."""
        return cls("", request, context.head, context.rows, RowSet(0), 0, {}, None, note=reason)

    @property
    def rows(self) -> Rows:
        """The items to evaluate, ascending: all in one array."""
        return self.chosen.all()

    @property
    def evaluations(self) -> int:
        """How many items the model will look at."""
        return len(self.chosen)

    @property
    def first_labels(self) -> int:
        """How many of these have no label yet."""
        return min(self.unlabelled, self.evaluations)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "plan": self.id,
            **self.request.to_dict(),
            "head": self.head,
            "eligible": self.eligible,
            "unlabelled": self.unlabelled,
            "evaluations": self.evaluations,
            "first_labels": self.first_labels,
            "cost": self.cost,
            "affected": self.affected,
            "rehearsed": self.rehearsed,
            "forecast": self.forecast,
            "beliefs": self.beliefs,
            "pending": self.pending,
            "reconsidered": self.reconsidered,
            "spending": self.spending,
            "reach": self.reach,
            "note": self.note,
        }

    def __str__(self) -> str:
        if self.note:
            return self.note
        used = parse_selector(self.request.selector)
        used = used if self.beliefs != PLAIN else without_value(used)
        most = [f"{name} ({count})" for name, count in list(self.affected.items())[:SHOWN]]
        pending = (
            f"of {self.pending:,} pending flips {self.reconsidered:,} are looked at again, the "
            "others will be made"
        )
        told = (
            self._nothing,
            f"plan {self.id}: {self.request.model} on {self._items} "
            f"({used}, {self.request.budget or 'default budget'})",
            f"rule {self.request.rule}; cost {self._cost}",
            self._account,
            f"labels most affected: {', '.join(most) or 'none'}",
            pending if self.pending else "",
            str(Rehearsed(**self.rehearsed)) if self.rehearsed else NOT_REHEARSED,
            self._forecast,
            self._choices,
        )
        return _text.lines(told)

    @property
    def _nothing(self) -> str:
        """That a plan would change nothing, where that is so, and what would."""
        told = self.rehearsed
        if self.reach is not None:
            within = [ratio for ratio in balance.SHOWN if ratio < self.reach]
            asked = self.request.rule
            if isinstance(parse_rule(asked), Balanced):
                asked += f", a ratio of {CAUTIOUS:g} where no labelled items can be looked at"
            instead = f" With --rule cost-ratio:{max(within):g} some votes would." if within else ""
            return (
                f"One vote of {self.request.model} cannot change a label: it makes another class "
                f"at most {self.reach:.1f} times as likely, which is not enough for "
                f"{asked}.{instead}"
            )
        if not told or not told["choices"] or told["fixed"] or told["broken"]:
            return ""
        if not told["evaluations"] or told["accuracy_after"] != told["accuracy_before"]:
            return ""  # first labels
        best = max(told["choices"], key=lambda one: one["fixed"] - one["broken"])
        if best["fixed"] <= best["broken"]:
            return "On the labelled items this plan would correct nothing, whatever the rule."
        return (
            "On the labelled items this plan would change nothing: no vote is enough for "
            f"{self.request.rule}. With --rule cost-ratio:{best['ratio']:g} the same votes would "
            f"fix {best['fixed']:,} and break {best['broken']:,} of {told['items']:,}."
        )

    @property
    def _choices(self) -> str:
        """What other cost ratios would make of the same votes."""
        told = self.rehearsed
        if not told or not told["choices"]:
            return ""
        if len({(one["fixed"], one["broken"]) for one in [*told["choices"], told]}) == 1:
            first, last = (format(told["choices"][at]["ratio"], "g") for at in (0, -1))
            return f"any cost ratio from {first} to {last} would do the same with these votes"
        here = {"ratio": None, **{name: told[name] for name in ("fixed", "broken")}}
        rows = [*told["choices"], here | {"accuracy_after": told["accuracy_after"]}]
        return _text.lines(
            (
                "the same votes on the labelled items, by cost ratio:",
                "  ratio        fixed   broken   accuracy",
                *(
                    f"  {'this plan' if one['ratio'] is None else format(one['ratio'], 'g'):<10}"
                    f"{one['fixed']:>8,}{one['broken']:>9,}{100 * one['accuracy_after']:>9.1f} %"
                    for one in rows
                ),
            )
        )

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        if self.note:
            return _text.html_lines([self.note])
        told = {
            "items looked at": self._items,
            "cost": self._cost,
            "rule": self.request.rule,
        }
        if self.rehearsed:
            told |= {
                "fixed on the labelled set": f"{self.rehearsed['fixed']:,}",
                "broken there": f"{self.rehearsed['broken']:,}",
            }
        if self.forecast is not None:
            told["net corrections expected"] = shown(**self.forecast)
        most = [{"label": name, "items": count} for name, count in self.affected.items()][:SHOWN]
        return _text.html_page(
            f"Plan {self.id}: {self.request.model}, {self.request.budget or 'default budget'}",
            told,
            _text.html_table(most),
            _text.html_lines([self._account, "" if self.rehearsed else NOT_REHEARSED]),
        )

    @property
    def _items(self) -> str:
        """How many items are looked at, and of how many that could be."""
        others = self.eligible - self.unlabelled
        if not self.unlabelled:
            return f"{self.evaluations:,} of {others:,} eligible items"
        if self.first_labels < self.unlabelled:
            return f"{self.first_labels:,} of {counted(self.unlabelled, 'item')} without a label"
        first = f"{counted(self.unlabelled, 'item')} without a label"
        also = self.evaluations - self.unlabelled
        return f"{first}, then {also:,} others of {others:,} eligible" if others else first

    @property
    def _cost(self) -> str:
        return "unknown" if self.cost is None else f"{self.cost:g}"

    @property
    def _account(self) -> str:
        """What is left of a budget over time."""
        if self.request.budget is None or not self.request.budget.startswith(("total:", "price:")):
            return ""
        if self.spending is None:
            return f"these are the first labels, which are outside of {self.request.budget}"
        left, unit, steps = (self.spending[name] for name in ("left", "unit", "steps"))
        if left is None:
            return f"as many as are worth their price ({self.request.budget})"
        share = self.evaluations * unit / left if left else 0.0
        return (
            f"of {self.request.budget} {left:,.10g} is left for "
            f"{f'{steps:,} steps' if steps > 1 else 'one step'}; this one is given "
            f"{100 * share:.3g} % of it"
        )

    @property
    def _forecast(self) -> str:
        """What all items can expect of it."""
        if self.forecast is None:
            return ""
        told = f"of all items that makes about {shown(**self.forecast)} net corrections"
        where = ", though of labelled items that no filter was applied to"
        return told + (where if self.request.where else "")


NO_REHEARSAL = (
    "its models have too few labelled items in common, labelled votes without ids, or a stated "
    "confusion"
)
NOT_REHEARSED = f"no rehearsal: {NO_REHEARSAL}"
