"""What is held between requests: the store as it was last read, and views made of it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from posterity.engine.evaluation.plans import Plan, Request
from posterity.engine.inspect import queries, step_views
from posterity.engine.inspect import reliability as inspect_reliability
from posterity.engine.ledger.context import Context
from posterity.engine.plan import prospects
from posterity.engine.plan.policy import policy_for
from posterity.engine.plan.prospects import Prospects
from posterity.engine.plan.selection import make_plan
from posterity.engine.steps.update import plan_update
from posterity.errors import InvalidData, PosterityError, StoreError
from posterity.method.decide.defaults import DEFAULT_BUDGET
from posterity.reader import StoreReader
from posterity.storage.files import Files, open_files
from posterity.web.report import entropies, flips, models
from posterity.web.report import item as report_item

T = TypeVar("T")
FRESH = 1.0
"""Seconds for which a store is not looked at again."""
MOST = 256
"""Views that are kept, most of them answers of a planner."""
HEAVY = 2**28
"""Bytes of tables of flips that are kept."""
QUEUE = 100
"""Items of a review that are made ready at once."""
SLOW = "slow"
"""What walks the labelled items through all steps, which is done by one at a time."""
TABLES = ("ledger", "items", "models", "labelled", "classes", "removed")
"""Those that views are made of."""
COMMIT = re.compile(r"/[0-9]{20}\.json$")
"""A commit in the log of a table; checkpoints are there besides."""
AHEAD = 3
"""Models whose first answer is made ready before anybody asks."""


class Held:
    """A store to be looked at often; somebody else may change it at any time."""

    def __init__(self, store: StoreReader) -> None:
        self.store = store
        self._opening, self._keeping = threading.Lock(), threading.Lock()
        self._locks: dict[Hashable, threading.RLock] = {}
        """One for each view: what takes long must not stop those who ask for something else."""
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._now: tuple[Context, Hashable] | None = None
        self._looked = 0.0
        self._planning = threading.Lock()
        """Whoever wants many plans waits for one after the other."""

    @property
    def context(self) -> Context:
        """The store as it is now, as of a moment ago."""
        return self._opened()[0]

    def _opened(self) -> tuple[Context, Hashable]:
        """The store, and what names it as it is; looked at again after a moment."""
        with self._opening:
            if self._now is None or time.monotonic() - self._looked > FRESH:
                stamp = _stamp(open_files(self.store.path, self.store.options))
                if self._now is None or stamp != self._now[1]:
                    again = self._now is not None
                    self._now = self.store._context(), stamp
                    with self._keeping:
                        self._kept.clear()
                        self._locks.clear()
                    if again:
                        threading.Thread(target=self.warm, daemon=True).start()
                self._looked = time.monotonic()
            return self._now

    def forget(self) -> None:
        """Something was changed: look again at once."""
        with self._opening:
            self._looked = float("-inf")

    def _view(self, key: Hashable, make: Callable[[Context], T], *, lock: Hashable = None) -> T:
        """A view, made once for a store as it is; ``lock``: not beside others that have it too."""
        context, stamp = self._opened()
        named = (stamp, key)
        with self._keeping:
            if named in self._kept:
                self._kept.move_to_end(named)
                kept: T = self._kept[named]
                return kept
            own = self._locks.setdefault((stamp, lock or key), threading.RLock())
        with own:
            with self._keeping:
                if named in self._kept:
                    found: T = self._kept[named]
                    return found
            try:
                made = make(context)
            except StoreError:  # files may be gone since somebody has compacted and vacuumed
                self.forget()
                context, now = self._opened()
                if now == stamp:
                    raise
                named, made = (now, key), make(context)
            with self._keeping:
                self._kept[named] = made
                while len(self._kept) > 1 and (len(self._kept) > MOST or self._held() > HEAVY):
                    self._kept.popitem(last=False)
            return made

    def _held(self) -> int:
        """Bytes of the tables among what is kept."""
        return sum(view.nbytes for view in self._kept.values() if isinstance(view, pa.Table))

    def overview(self) -> dict[str, Any]:
        """The history of steps."""
        return self._view(
            "overview",
            lambda context: step_views.overview_view(
                context, queries.status(context, self.store.path)
            ),
        )

    def entropies(self) -> dict[str, Any]:
        """How sure beliefs are after each step."""
        return self._view("entropies", entropies.entropies_view, lock=SLOW)

    def reliability(self) -> dict[str, Any]:
        """How far beliefs can be trusted."""
        return self._view(
            "reliability", lambda c: inspect_reliability.trusted(c).to_dict(), lock=SLOW
        )

    def models(self) -> dict[str, Any]:
        """All models."""
        return self._view("models", models.models_view)

    def model(self, name: str) -> dict[str, Any]:
        """One model."""
        return self._view(("model", name), lambda c: models.model_view(c, name))

    def flips(self, step: int) -> pa.Table:
        """All flips of a step."""
        return self._view(("flips", step), lambda c: flips.flips_of(c, step))

    def queue(
        self, count: int, order: str, pictures: Path, columns: Sequence[str] | None
    ) -> dict[str, Any]:
        """The queue of a review, so many of its items or as many as are made ready."""
        told = self._view(
            ("queue", order, None if columns is None else tuple(columns)),
            lambda context: report_item.review_view(context, QUEUE, order, pictures, columns),
            lock="queue",
        )
        items = told["items"][:count]
        return told | {"items": items, "worth": sum(item["worth"] for item in items)}

    def arriving(self) -> list[str]:
        """Models that could look at more items."""
        return self._view("arriving", prospects.arriving)

    def answer(self, model: str, budget: str, rule: str) -> dict[str, Any]:
        """What a step would bring."""
        key = ("answer", model, budget, rule)
        return self._view(key, lambda _: self._prospects(model).answer(budget, rule), lock=SLOW)

    @property
    def usual_rule(self) -> str:
        """What labels are decided by where nobody says otherwise."""
        return str(self.context.policy.rule)

    def curve(self, model: str, rule: str) -> dict[str, Any]:
        """What it would bring by budget; see ``Prospects.curve``."""
        found = self._prospects(model)
        key = ("curve", model, rule, *found.known(rule))
        return self._view(key, lambda _: found.curve(rule), lock=SLOW)

    def plan(self, model: str, budget: str, rule: str, *, keep: bool) -> Plan:
        """The plan itself: which items; kept in the store only if asked."""
        request = Request.of(model, budget, None, rule, policy=policy_for(self.context, model))
        if keep:
            return plan_update(self.store._context(), request)
        if self.context.model(model).pending:
            raise InvalidData(f"'{model}' votes on its labelled items first; plan that instead.")
        with self._planning:
            return make_plan(self.context, request)

    def _prospects(self, model: str) -> Prospects:
        return self._view(("prospects", model), lambda c: Prospects(c, model), lock=SLOW)

    def warm(self) -> None:
        """Make what the first visitor would wait for."""
        for make in (
            self.entropies,
            self._warm_flips,
            self._warm_answer,
            self.reliability,
            self.models,
        ):
            try:
                make()
            except PosterityError:
                continue  # told to whoever asks for it

    def _warm_flips(self) -> None:
        told = [step["step"] for step in self.overview()["steps"] if step["flips"]]
        if told:
            self.flips(told[-1])

    def _warm_answer(self) -> None:
        for name in self.arriving()[:AHEAD]:
            self.answer(name, DEFAULT_BUDGET, self.usual_rule)


def _stamp(files: Files) -> Hashable:
    """Names what a store is now, by what is listed: no table is opened to see that none changed."""
    commits = [
        [path for path in files.list(f"{table}/_delta_log") if COMMIT.search(path)]
        for table in TABLES
    ]
    # Runs by what `status` tells of them: that they are there, and that something was spent.
    runs = {tuple(re.split("[/-]", path)[1:4]) for path in files.list("runs")}
    return tuple(max(listed, default="") for listed in commits), frozenset(runs)


R = TypeVar("R")
AT_ONCE = 4
"""Calculations side by side; most of them have a lock in common."""
MOST_WORKERS = 16
"""Calculations that run or wait, those included that nobody waits for any more."""
PATIENCE = 60.0
"""Seconds until whoever waits is asked to come again."""


class Busy(Exception):
    """No answer now: too much is under way, or this takes too long."""


class Workers:
    """Runs calculations in threads of its own. A thread cannot be stopped, so they are counted."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="posterity-slow")
        self._under_way, self._counting = 0, threading.Lock()

    async def run(self, make: Callable[[], R], *, patience: float | None = None) -> R:
        """What ``make`` returns; ``Busy`` at once where no room is left, or after ``patience``.

        What takes longer goes on, and is kept for whoever asks again.
        """
        with self._counting:
            if self._under_way >= MOST_WORKERS:
                raise Busy("Too many calculations are under way.")
            self._under_way += 1
        work = self._threads.submit(make)
        work.add_done_callback(self._done)
        try:
            # Shielded, or what waits its turn would be dropped, and never be there to ask for.
            waiting = asyncio.shield(asyncio.wrap_future(work))
            return await asyncio.wait_for(waiting, patience or PATIENCE)
        except TimeoutError:
            raise Busy("This is still being calculated.") from None

    def _done(self, _: Future[R]) -> None:
        with self._counting:
            self._under_way -= 1
