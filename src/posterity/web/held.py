"""What is held between requests: the store as it was last read, and views made of it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from posterity.engine import reading, trusting
from posterity.engine.context import Context
from posterity.engine.planning import (
    DEFAULT_BUDGET,
    DEFAULT_RULE,
    DEFAULT_SELECTOR,
    Plan,
    Request,
    make_plan,
)
from posterity.errors import InvalidData, PosterityError
from posterity.report import entropies, flips, models, prospects, reviewing, steps
from posterity.report.prospects import Prospects
from posterity.store import Store

T = TypeVar("T")
FRESH = 1.0
"""Seconds for which a store is not looked at again."""
MOST = 48
"""Views that are kept; some of them are tables of a step's flips."""


class Held:
    """A store to be looked at often; somebody else may change it at any time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._quick, self._slow = threading.RLock(), threading.RLock()
        """What takes long must not stop the pages that do not ask for it."""
        self._opening, self._keeping = threading.Lock(), threading.Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._stamp: Hashable = None
        self._looked = 0.0
        self._context: Context | None = None

    @property
    def context(self) -> Context:
        """The store as it is now, as of a moment ago."""
        with self._opening:
            if self._context is None or time.monotonic() - self._looked > FRESH:
                now = self.store._context()
                stamp = _stamp(now)
                if self._context is None or stamp != self._stamp:
                    self._context, self._stamp = now, stamp
                    self._kept.clear()
                self._looked = time.monotonic()
            return self._context

    def forget(self) -> None:
        """Something was changed: look again at once."""
        with self._opening:
            self._looked = float("-inf")

    def _view(self, key: Hashable, make: Callable[[Context], T], *, slow: bool = False) -> T:
        """A view, made once for a store as it is."""
        context = self.context
        named = (self._stamp, key)
        with self._slow if slow else self._quick:
            if named not in self._kept:
                self._keep(named, make(context))
            found: T = self._kept[named]
            return found

    def _keep(self, named: Hashable, made: Any) -> None:
        with self._keeping:
            self._kept[named] = made
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)

    def overview(self) -> dict[str, Any]:
        """The history of steps."""
        return self._view(
            "overview",
            lambda context: steps.overview_view(context, reading.status(context, self.store.path)),
        )

    def entropies(self) -> dict[str, Any]:
        """How sure beliefs are after each step."""
        return self._view("entropies", entropies.entropies_view, slow=True)

    def reliability(self) -> dict[str, Any]:
        """How far beliefs can be trusted."""
        return self._view("reliability", lambda c: trusting.trusted(c).to_dict(), slow=True)

    def models(self) -> dict[str, Any]:
        """All models."""
        return self._view("models", models.models_view)

    def model(self, name: str) -> dict[str, Any]:
        """One model."""
        return self._view(("model", name), lambda c: models.model_view(c, name))

    def flips(self, step: int) -> pa.Table:
        """All flips of a step."""
        return self._view(("flips", step), lambda c: flips.flips_of(c, step))

    def queue(self, count: int, order: str, pictures: Path) -> dict[str, Any]:
        """The queue of a review."""
        return self._view(
            ("queue", count, order),
            lambda context: reviewing.review_view(context, count, order, pictures),
        )

    def arriving(self) -> list[str]:
        """Models that could look at more items."""
        return self._view("arriving", prospects.arriving)

    def answer(self, model: str, budget: str, rule: str) -> dict[str, Any]:
        """What a step would bring."""
        found = self._prospects(model)
        with self._slow:
            return found.answer(budget, rule)

    def curve(self, model: str, rule: str) -> dict[str, Any]:
        """What it would bring by budget: what is known of that, and one point more each time."""
        found = self._prospects(model)
        known = [budget for budget in prospects.BUDGETS if found.knows(budget, rule)]
        left = [budget for budget in prospects.BUDGETS if budget not in known]
        if left:
            self.answer(model, left[0], rule)
            known.append(left[0])
        points = [found.answer(budget, rule) for budget in known]
        return {"model": model, "rule": rule, "points": points, "done": len(left) <= 1}

    def plan(self, model: str, budget: str, rule: str, *, keep: bool) -> Plan:
        """The plan itself: which items; kept in the store only if asked."""
        if keep:
            return self.store.plan(model, budget=budget, rule=rule)
        chosen = DEFAULT_SELECTOR[self.context.description.beliefs]
        request = Request.of(model, budget, chosen, rule, None, 0)
        if self.context.model(model).pending:
            raise InvalidData(f"'{model}' votes on its labelled items first; plan that instead.")
        with self._slow:
            return make_plan(self.context, request)

    def _prospects(self, model: str) -> Prospects:
        return self._view(("prospects", model), lambda c: Prospects(c, model), slow=True)

    def warm(self) -> None:
        """Make what the first visitor would wait for."""
        for make in (self.entropies, self._warm_flips, self._warm_answer, self.reliability):
            try:
                make()
            except PosterityError:
                continue  # told to whoever asks for it

    def _warm_flips(self) -> None:
        told = [step["step"] for step in self.overview()["steps"] if step["flips"]]
        if told:
            self.flips(told[-1])

    def _warm_answer(self) -> None:
        names = self.arriving()
        if names:
            self.answer(names[0], DEFAULT_BUDGET, DEFAULT_RULE)


def _stamp(context: Context) -> Hashable:
    """Names what a store is now: every table that views are made of, by its version."""
    layout = context.layout
    items = None if context.items is None else context.items.version
    tables = (layout.removed, layout.labelled, layout.classes)
    return (
        context.ledger.version,
        items,
        context.arrivals.version,
        *(table.head().version for table in tables),
    )
