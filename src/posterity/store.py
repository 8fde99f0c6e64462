"""The store: what users hold. A folder or object-store prefix that remembers every vote."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity import checks, priors
from posterity._arrays import ArrayLike
from posterity.budget import Budget
from posterity.classes import Classes
from posterity.confusion import estimate
from posterity.engine import (
    compacting,
    evaluating,
    planning,
    publishing,
    reading,
    reverting,
    updating,
)
from posterity.engine.context import Context, register
from posterity.engine.items import add_items, remove_items
from posterity.engine.planning import Plan, Request
from posterity.engine.runs import Progress, Run, all_runs, unfinished
from posterity.engine.steps import Header
from posterity.errors import InvalidParameter, StoreError, UnknownName
from posterity.models import Model, Predict, load_predict
from posterity.rules import Rule
from posterity.selectors import Selector
from posterity.tables.files import open_files
from posterity.tables.layout import CLASSES, DESCRIPTION, SHARD_ROWS, Description, Layout


class Store:
    """A dataset's items, every vote cast on them, and their labels.

    Methods read the store as it is at the call, so several processes can hold it.
    """

    def __init__(self, path: str | os.PathLike[str], options: dict[str, str] | None = None) -> None:
        self.path = os.fspath(path)
        self.options = options
        self._context()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        classes: Classes | Iterable[Any],
        confusion: str = "full",
        prior: ArrayLike | None = None,
        shard_rows: int = SHARD_ROWS,
        options: dict[str, str] | None = None,
    ) -> Store:
        """Make an empty store at a folder or an object-store URI."""
        known = classes if isinstance(classes, Classes) else Classes(classes)
        estimate(confusion)
        weights = None if prior is None else priors.given(prior, classes=known).tolist()
        if shard_rows < 1:
            raise InvalidParameter.of("shard_rows", "at least 1", shard_rows)
        files = open_files(path, options)
        if files.list(""):
            raise StoreError(f"'{files.root}' is not empty; a store needs a place of its own.")
        layout = Layout(files)
        for table in layout.fixed:
            table.create()
        rows = pa.table(
            {
                "code": list(range(len(known))),
                "name": [str(name) for name in known],
                "kind": [known.kind.__name__] * len(known),
            },
            schema=CLASSES,
        )
        layout.classes.head().commit([layout.classes.write(rows, label="classes")])
        described = Description(shard_rows=shard_rows, confusion=confusion, prior=weights)
        # Last, so that a store whose creation was interrupted is not taken for one.
        files.write(DESCRIPTION, described.to_json())
        return cls(path, options)

    def _context(self) -> Context:
        return Context(open_files(self.path, self.options))

    @property
    def classes(self) -> Classes:
        """The classes."""
        return self._context().classes

    @property
    def id_type(self) -> type | None:
        """``str`` or ``int``; None while there are no items."""
        items = self._context().items
        if items is None:
            return None
        return int if pa.types.is_integer(items.table.schema.field("id").type) else str

    def __len__(self) -> int:
        context = self._context()
        return context.rows - int(context.removed.sum())

    def add(self, items: Any, *, id: str = "id") -> int:  # noqa: A002 the user's word
        """Add items: Arrow, pandas, Polars, a dict of columns or a file; returns how many."""
        return add_items(self._context(), items, id_column=id)

    def remove(self, ids: Any) -> int:
        """Remove items: gone at once, purged at the next compaction."""
        count = remove_items(self._context(), ids)
        publishing.publish_labels(self._context(), anew=True)
        return count

    def register(self, model: Model) -> None:
        """Make a model known by its votes on labelled data."""
        register(self._context(), model)

    def plan(
        self,
        model: Model | str,
        *,
        budget: Budget | float | str | None = None,
        selector: Selector | str = planning.DEFAULT_SELECTOR,
        rule: Rule | str = planning.DEFAULT_RULE,
        where: str | None = None,
        seed: int = 0,
        more: bool = False,
    ) -> Plan:
        """Which items the model would look at; nothing is spent.

        By default the first model looks at everything, a later one at ten per cent. The plan is
        kept, so that ``update(plan=plan.id)`` carries out exactly this one.
        """
        context, request = self._request(model, budget, selector, rule, where, seed)
        plan = updating.find_plan(context, request, more=more)
        if plan is None:
            note = "Nothing to do: this was carried out already (see --more)."
            nobody = np.zeros(0, dtype=np.int64)
            return Plan("", request, context.head, context.rows, nobody, 0, {}, None, note=note)
        planning.save_plan(context, plan)
        return plan

    def planned_items(self, plan: Plan) -> pa.Table:
        """The items of a plan with their payload, for evaluation elsewhere."""
        return evaluating.planned_items(self._context(), plan)

    def update(
        self,
        model: Model | str,
        *,
        budget: Budget | float | str | None = None,
        selector: Selector | str = planning.DEFAULT_SELECTOR,
        rule: Rule | str = planning.DEFAULT_RULE,
        where: str | None = None,
        seed: int = 0,
        more: bool = False,
        rebase: bool = False,
        votes: Any = None,
        plan: str | None = None,
        id: str = "id",  # noqa: A002 the user's word
        vote: str = "vote",
        strict: bool = False,
        keep_unplanned: bool = False,
        batch: int = evaluating.BATCH,
        max_errors: int = evaluating.MAX_ERRORS,
        retry_errors: bool = False,
        progress: Progress | None = None,
    ) -> updating.Report:
        """Evaluate, fold, decide and commit one step; the same call twice does it once.

        ``votes`` is a table or file of votes made elsewhere; else the model's ``predict`` is asked.
        With ``plan`` the plan's own budget, selector, rule and filter hold.
        """
        context, request = self._request(model, budget, selector, rule, where, seed)
        predict = None if votes is not None else self._predict(model, context)

        def evaluate(run: Run, chosen: Plan) -> evaluating.FromFile | None:
            if retry_errors:
                run.forget_errors()
            if votes is not None:
                return evaluating.take_votes(
                    run,
                    chosen,
                    votes,
                    id_column=id,
                    vote_column=vote,
                    strict=strict,
                    keep_unplanned=keep_unplanned,
                )
            if predict is not None:
                evaluating.ask_model(
                    run, chosen, predict, batch=batch, max_errors=max_errors, progress=progress
                )
            return None

        if plan is None:
            return updating.update(
                context, request, evaluate, more=more, retry=retry_errors, rebase=rebase
            )
        made = updating.step_of(context, plan)
        if made is not None:
            return made
        kept = planning.load_plan(context, plan)
        if kept is None:
            raise UnknownName.among("plan", plan, all_runs(context))
        if kept.request.model != request.model:
            raise InvalidParameter(
                f"The plan '{plan}' is for the model '{kept.request.model}', not for "
                f"'{request.model}'."
            )
        return updating.carry_out(context, kept, evaluate, rebase=rebase)

    @staticmethod
    def _predict(model: Model | str, context: Context) -> Predict:
        """The model's own callable, or the one the store remembers the name of."""
        known = model.predict if isinstance(model, Model) else None
        if known is None:
            name = model if isinstance(model, str) else model.name
            known = context.model(name).settings.get("predict")
        if known is None:
            raise InvalidParameter("An update needs a model with predict=, or a file of votes=.")
        return load_predict(known) if isinstance(known, str) else known

    def _request(
        self,
        model: Model | str,
        budget: Budget | float | str | None,
        selector: Selector | str,
        rule: Rule | str,
        where: str | None,
        seed: int,
    ) -> tuple[Context, Request]:
        context = self._context()
        name = model if isinstance(model, str) else model.name
        request = Request.of(name, budget, selector, rule, where, seed)
        if where is not None and context.items is not None:
            context.items.select(["row"], where)  # refused before anything is registered
        if isinstance(model, Model) and model.labelled is not None:
            register(context, model)
        context.model(name)
        return context, request

    def labels(self, *, since: int | None = None) -> pa.Table:
        """Current labels: id, row, label, belief, step of the last change.

        ``since``: only items whose label changed after that step, reverts included.
        """
        context = self._context()
        table = publishing.all_labels(context)
        if since is None:
            return table
        if since > context.head:
            raise InvalidParameter.of("since", f"a step of the store, up to {context.head}", since)
        return table.filter(pc.greater(table.column("step"), since))

    def beliefs(self, ids: Any = None, *, top: int = 3) -> pa.Table:
        """The most believed classes of items (all by default) and the beliefs in them."""
        return reading.beliefs(self._context(), ids, top=top)

    def flips(self, step: int | None = None) -> pa.Table:
        """The labels a step (by default the last) changed: id, old and new label, belief."""
        return reading.flips(self._context(), step)

    def history(self, id: str | int) -> list[dict[str, Any]]:  # noqa: A002 the user's word
        """What happened to one item: a row per step that touched it."""
        return reading.history(self._context(), id)

    def log(self) -> list[Header]:
        """The steps, in order."""
        return self._context().headers

    def status(self) -> dict[str, Any]:
        """The store at a glance."""
        context = self._context()
        return {
            "path": self.path,
            "items": context.rows - int(context.removed.sum()),
            "classes": len(context.classes),
            "models": list(context.models),
            "step": context.head,
            "unfinished": unfinished(context),
            "format": context.description.format,
        }

    def settle(self) -> int:
        """Make outstanding proposed flips; returns how many. No rule proposes any yet."""
        self._context()
        return 0

    def compact(self) -> compacting.Compacted:
        """Fewer, larger files; removed items are purged from every table."""
        return compacting.compact(self._context())

    def vacuum(self, *, hours: float = compacting.RETENTION_HOURS, dry_run: bool = False) -> int:
        """Delete files nothing refers to that are older than the retention; returns how many."""
        return compacting.vacuum(self._context(), hours=hours, dry_run=dry_run)

    def revert(self, step: int) -> reverting.Reverted:
        """Undo a step by a new one."""
        return reverting.revert(self._context(), step)

    def check(self) -> list[str]:
        """What is wrong with the store; an empty list if nothing is."""
        return checks.check(self._context())

    def __repr__(self) -> str:
        told = self.status()
        where = Path(self.path).name if "://" not in self.path else self.path
        return f"Store({where}: {told['items']:,} items, step {told['step']})"
