"""Views: what each page shows, and its JSON twin; what the page can change, and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from posterity.engine.evaluation.plans import Plan
from posterity.engine.plan import prospects
from posterity.engine.steps.revert import revert
from posterity.engine.steps.review import review
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.method.data.spec import read_number
from posterity.method.decide.budget import Budget
from posterity.method.decide.defaults import DEFAULT_BUDGET, DEFAULT_RULE, DEPENDENT, PLAIN
from posterity.method.decide.rules import parse as parse_rule
from posterity.web.report import flips, item, payloads
from posterity.web.report.flips import Wanted
from posterity.web.report.payloads import Picture
from posterity.web.server.cache import Held
from posterity.web.server.guard import TOKEN

QUEUE = 25
"""Items of a review at a time."""
BALANCED = "balanced"
"""What the planner offers beside cost ratios: the store's policy, or a ratio chosen for it."""

Query = dict[str, str]
View = dict[str, Any]


def _slides(rule: str) -> bool:
    """Whether the slider has a place for it: a cost ratio, with ``+confirm`` or without."""
    name, _, number = rule.removesuffix("+confirm").partition(":")
    try:
        return name == "cost-ratio" and 0 < read_number(number) < float("inf")
    except ValueError:
        return False


class Views:
    """What can be asked about one store; knows nothing of how it is asked."""

    def __init__(
        self, held: Held, pictures: Path, path: str, columns: Sequence[str] | None = None
    ) -> None:
        """``path``: where the store is, as visitors are told; ``columns``: of payloads."""
        self._held, self._pictures, self.path = held, pictures, path
        self._usual = columns

    @property
    def pages(self) -> dict[str, Callable[[Query], View]]:
        """Those that have a page."""
        return {
            "overview": self.overview,
            "planner": self.planner,
            "flips": self.flips,
            "item": self.item,
            "models": self.models,
            "review": self.review,
        }

    @property
    def parts(self) -> dict[str, Callable[[Query], View]]:
        """What a page asks for by itself, because it takes longer."""
        return {
            "entropies": lambda _: self._held.entropies(),
            "reliability": lambda _: self._held.reliability(),
            "outlook": self.outlook,
            "curve": self.curve,
        }

    @property
    def changes(self) -> dict[str, Callable[[Any], View]]:
        """What can be changed, where that was allowed when the server was started."""
        return {"plans": self.keep_plan, "reverts": self.revert, "answers": self.answer}

    def overview(self, _: Query) -> View:
        """The history of steps."""
        told = self._held.overview()
        return told | {"status": told["status"] | {"path": self.path}}

    def outlook(self, _: Query) -> View:
        """What the next step would bring."""
        names = self._held.arriving()
        rule = self._held.usual_rule
        found = self._held.answer(names[0], DEFAULT_BUDGET, rule) if names else None
        return {"outlook": found}

    def planner(self, query: Query) -> View:
        """What a step would bring."""
        told = self.choices(query)
        answer = self._held.answer(*self.choice(query)) if told["models"] else None
        return told | {"answer": answer}

    def choices(self, query: Query) -> View:
        """What a planner offers, and what of it is chosen; nothing is calculated yet."""
        names = self._held.arriving()
        told: View = {"models": names, "budgets": list(prospects.BUDGETS)}
        usual = self._held.usual_rule
        told["balanced"] = DEFAULT_RULE[DEPENDENT] if _slides(usual) else usual
        plain = self._held.context.description.beliefs == PLAIN
        told["ratios"] = [*([] if plain else [BALANCED]), *map(str, prospects.RATIOS)]
        if not names:
            return told
        model, budget, rule = self.choice(query)
        asked_for, _ = str(Budget.of(budget)), parse_rule(rule)
        if asked_for not in told["budgets"]:
            there = self._held.context.there
            told["budgets"].append(asked_for)
            told["budgets"].sort(key=lambda one: Budget.of(one).share(max(1, there)))
        ratio = rule.removesuffix("+confirm").removeprefix("cost-ratio:")
        if not _slides(rule):
            ratio = "10" if plain else BALANCED
        if ratio not in told["ratios"]:
            told["ratios"].append(ratio)
            told["ratios"].sort(key=lambda one: 0.0 if one == BALANCED else float(one))
        return told | {
            "model": model,
            "budget": asked_for,
            "ratio": ratio,
            "confirm": _slides(rule) and rule.endswith("+confirm"),
        }

    def curve(self, query: Query) -> View:
        """What a step would bring by its budget, a point more each time."""
        model, _, rule = self.choice(query)
        return self._held.curve(model, rule)

    def flips(self, query: Query) -> View:
        """The labels a step changed."""
        told = self.steps_with_flips()
        number = whole(query, "step", told[-1]["step"] if told else None)
        if number is None:
            return {}
        context = self._held.context
        context.check_step(number)
        found = self._held.flips(number)
        page = whole(query, "page", 1) or 1
        view = flips.flips_view(context, found, number, wanted(query), page=page)
        columns = self.columns(query)
        return view | {
            "flips": payloads.with_payloads(context, view["flips"], self._pictures, columns),
            "left_out": payloads.left_out(context, columns),
        }

    def item(self, query: Query) -> View:
        """The story of an item."""
        if not query.get("id"):
            return {}
        context = self._held.context
        name, columns = context.read_id(query["id"]), self.columns(query)
        return item.item_view(context, name, self._pictures, columns)

    def models(self, query: Query) -> View:
        """How models err, and agree."""
        told, name = self._held.models(), query.get("model")
        if not name and told["models"]:
            name = told["models"][-1]["model"]
        if name and name not in self._held.context.models:
            raise UnknownName.among("model", name, self._held.context.models)
        return told | {"model": self._held.model(name) if name else None}

    def review(self, query: Query) -> View:
        """The queue of a review."""
        count = whole(query, "next", QUEUE) or QUEUE
        order = query.get("order") or "worth"
        return self._held.queue(count, order, self._pictures, self.columns(query))

    def columns(self, query: Query) -> Sequence[str] | None:
        """The columns of payloads that are shown: those an address names, or the usual ones."""
        named = [name.strip() for name in query.get("columns", "").split(",") if name.strip()]
        return named or self._usual

    def choice(self, query: Query) -> tuple[str, str, str]:
        """A model, a budget and a rule."""
        names = self._held.arriving()
        model = query.get("model") or (names[0] if names else "")
        if not model:
            raise InvalidData("No model is left that could look at items.")
        if model not in self._held.context.models:
            raise UnknownName.among("model", model, self._held.context.models)
        rule = query.get("rule") or self._held.usual_rule
        return model, query.get("budget") or DEFAULT_BUDGET, rule

    def keep_plan(self, given: Any) -> View:
        """Keep a plan, so that an update can carry out exactly this one."""
        if not isinstance(given, dict) or not set(given) <= {"model", "budget", "rule"}:
            raise InvalidParameter.of("plan", "a model, a budget and a rule", given)
        return self.plan({str(k): str(v) for k, v in given.items()}, keep=True).to_dict()

    def revert(self, given: Any) -> View:
        """Undo a step, by a step."""
        done = revert(self._held.store._context(), step_to_revert(given))
        return {"told": str(done), **done.to_dict()}

    def answer(self, given: Any) -> View:
        """Make what people answered the labels of items, by one step."""
        done = review(self._held.store._context(), answers(given))
        return {"told": str(done), **done.to_dict()}

    def plan(self, query: Query, *, keep: bool) -> Plan:
        """The plan of a choice; kept in the store only if asked."""
        model, budget, rule = self.choice(query)
        return self._held.plan(model, budget, rule, keep=keep)

    def picture(self, query: Query) -> Picture:
        """A picture of an item, from where its payload says."""
        row, column = whole(query, "row", 0) or 0, query.get("column", "")
        return payloads.picture_of(self._held.context, row, column, self._pictures)

    def steps_with_flips(self) -> list[View]:
        """Those that flips can be looked at of."""
        return [step for step in self._held.overview()["steps"] if step["flips"]]

    def some_items(self) -> list[Any]:
        """Items worth a look: flips of the last step."""
        told = self.steps_with_flips()
        return self._held.flips(told[-1]["step"]).column("id")[:5].to_pylist() if told else []


def whole(given: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """A whole number of at least 0."""
    text = given.get(name, "").strip()
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidParameter.of(name, "a whole number", text)
    return int(text)


def share(given: Mapping[str, str], name: str) -> float | None:
    """A number from 0 to 1."""
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        value = read_number(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidParameter.of(name, "a number from 0 to 1", text)
    return value


def wanted(given: Mapping[str, str]) -> Wanted:
    """Which flips are looked at."""
    return Wanted(
        old=given.get("old") or None,
        new=given.get("new") or None,
        low=share(given, "low"),
        high=share(given, "high"),
        text=given.get("text") or None,
    )


def pages_of(given: Mapping[str, str]) -> str:
    """The address of a list without its page, to which one is added."""
    kept = {name: value for name, value in given.items() if name not in ("page", TOKEN) and value}
    return f"flips?{urlencode(kept | {'page': ''})}"


def step_to_revert(given: Any) -> int:
    """What is sent to have a step reverted."""
    step = given.get("step") if isinstance(given, dict) else None
    if type(step) is not int:
        raise InvalidParameter.of("step", "the number of a step", step)
    return step


def answers(given: Any) -> dict[str, list[Any]]:
    """What people answered, as the columns of a table."""
    listed = given.get("answers") if isinstance(given, dict) else None
    if not isinstance(listed, list) or not listed:
        raise InvalidParameter.of("answers", "a list of ids and answers", listed)
    for one in listed:
        known = isinstance(one, dict) and type(one.get("id")) in (str, int)
        known = known and (isinstance(one["id"], str) or -(2**63) <= one["id"] < 2**63)
        if not known or not isinstance(one.get("answer"), str):
            raise InvalidParameter.of("answers", "objects with an id and an answer", one)
    return {name: [one[name] for one in listed] for name in ("id", "answer")}
