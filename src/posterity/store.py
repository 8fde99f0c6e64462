"""The store: what users hold. A folder or object-store prefix that remembers every vote."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from posterity import priors, rules
from posterity._arrays import ArrayLike
from posterity.adapting import Adapt, to_keep
from posterity.budget import Budget
from posterity.classes import Classes
from posterity.confusion import estimate
from posterity.engine import (
    compacting,
    comparing,
    evaluating,
    extending,
    importing,
    learning,
    planfiles,
    planning,
    predictions,
    publishing,
    queues,
    reverting,
    reviewing,
    settling,
    updating,
    votefiles,
)
from posterity.engine.context import Context
from posterity.engine.fits import DEPENDENT, check_beliefs
from posterity.engine.items import add_items, remove_items
from posterity.engine.planning import Plan, Request
from posterity.engine.registering import Registration, register, registered
from posterity.engine.reports import Report
from posterity.engine.rowsets import RowSet
from posterity.engine.runs import Progress, Run, all_runs
from posterity.errors import InvalidParameter, StoreError, UnknownName
from posterity.executors import LOCAL, Executor, Replicas
from posterity.models import Loaded, Model, Predict, load_predict
from posterity.rules import Rule
from posterity.selectors import Selector
from posterity.spending import Spending
from posterity.stored import Stored
from posterity.tables.files import open_files
from posterity.tables.layout import DESCRIPTION, SHARD_ROWS, Description


class Store(Stored):
    """A dataset's items, every vote cast on them, and their labels.

    Methods read the store as it is at the call, so several processes can hold it.
    """

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        classes: Classes | Iterable[Any],
        beliefs: str = DEPENDENT,
        confusion: str = "full",
        prior: ArrayLike | str | Path | None = None,
        adapt: Adapt = True,
        shard_rows: int = SHARD_ROWS,
        options: dict[str, str] | None = None,
        executor: Executor | str | None = None,
    ) -> Store:
        """Make an empty store at a folder or an object-store URI.

        ``beliefs``: ``"dependent"`` or ``"plain"``, which estimates confusions as ``confusion``
        says; ``prior``: ``"uniform"``, ``"labelled"``, ``"estimated"`` (from the items' votes,
        where beliefs are dependent), one weight a class, or a file; ``adapt``: see ``adapting``.
        """
        known = classes if isinstance(classes, Classes) else Classes(classes)
        estimate(confusion)
        kind, weights = check_beliefs(beliefs, prior), priors.weights_of(prior, known.names)
        followed = to_keep(adapt, dependent=kind == DEPENDENT)
        if shard_rows < 1:
            raise InvalidParameter.of("shard_rows", "at least 1", shard_rows)
        files = open_files(path, options)
        if files.list(""):
            raise StoreError(f"'{files.root}' is not empty; a store needs a place of its own.")
        extending.make_tables(files, known, weights)
        described = Description(
            shard_rows=shard_rows,
            beliefs=kind,
            confusion=confusion,
            prior=priors.kind_of(prior, weights),
            adapt=followed,
            classes=len(known),
        )
        # Last, so that a store whose creation was interrupted is not taken for one.
        files.write(DESCRIPTION, described.to_json())
        return cls(path, options, executor)

    def add(self, items: Any, *, id: str = "id") -> int:  # noqa: A002 the user's word
        """Add items: a table, file, folder, glob or object-store URI, or several; says how many."""
        return add_items(self._context(writing=True), items, id_column=id, options=self.options)

    def import_predictions(
        self,
        source: Any,
        votes: Mapping[str, Model | str],
        *,
        id: str = "id",  # noqa: A002 the user's word
        soft: Mapping[str, str] | None = None,
        payload: Sequence[str] | None = None,
        rule: Rule | str = planning.DEFAULT_RULE,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> importing.Imported:
        """Items and their first steps from predictions that exist, without running anything.

        ``source``: a table, a file, a folder, a glob, an object-store URI, or several. ``votes``
        maps columns to models, in their order of arrival; ``soft`` maps models to their soft votes
        (see ``SoftColumns``). Other columns become payload, or only those in ``payload``.
        """
        return importing.import_predictions(
            self._context(writing=not dry_run),
            source,
            predictions.sources_of(votes, soft),
            id_column=id,
            payload=payload,
            rule=str(rules.parse(rule)),
            options=self.options,
            dry_run=dry_run,
            progress=progress,
        )

    def append_classes(
        self, names: Iterable[Any], *, weights: Mapping[Any, float] | None = None
    ) -> Classes:
        """Append classes; ``weights`` only where the store's prior has weights."""
        return extending.append_classes(self._context(writing=True), list(names), weights)

    def remove(self, ids: Any) -> int:
        """Remove items: gone at once, purged at the next compaction."""
        count = remove_items(self._context(writing=True), ids)
        publishing.publish_labels(self._context(), anew=True)
        return count

    def register(self, model: Model) -> Registration:
        """Make a model known by how it errs on labelled data; says how well that is founded."""
        context = self._context(writing=True)
        found = register(context, model)
        return registered(context, model.name) if found is None else found

    def plan(
        self,
        model: Model | str,
        *,
        budget: Budget | Spending | float | str | None = None,
        selector: Selector | str | None = None,
        rule: Rule | str = planning.DEFAULT_RULE,
        where: str | None = None,
        seed: int = 0,
        more: bool = False,
    ) -> Plan:
        """Which items the model would look at; nothing is spent.

        By default the first model looks at everything, a later one at ten per cent. The plan is
        kept, so that ``update(plan=plan.id)`` carries out exactly this one.
        """
        context, request, _ = self._request(model, budget, selector, rule, where, seed)
        if context.model(request.model).pending:
            return learning.labelled_plan(context, request)
        plan = updating.find_plan(context, request, more=more)
        if plan is None:
            note = "Nothing to do: this was carried out already (see --more)."
            return Plan("", request, context.head, context.rows, RowSet(0), 0, {}, None, note=note)
        planfiles.save_plan(context, plan)
        return plan

    def compare(
        self,
        models: Sequence[str],
        money: float,
        *,
        selector: Selector | str | None = None,
        rule: Rule | str = planning.DEFAULT_RULE,
    ) -> list[comparing.Choice]:
        """What the same money would bring with each of some models, the best first."""
        return comparing.compare(self._context(), models, money, selector=selector, rule=rule)

    def planned_items(self, plan: Plan) -> pa.Table:
        """The items of a plan with their payload, for evaluation elsewhere."""
        return evaluating.planned_items(self._context(), plan)

    def planned_batches(self, plan: Plan) -> Iterator[pa.Table]:
        """By batches."""
        return evaluating.planned_batches(self._context(), plan)

    def update(
        self,
        model: Model | str,
        *,
        budget: Budget | Spending | float | str | None = None,
        selector: Selector | str | None = None,
        rule: Rule | str = planning.DEFAULT_RULE,
        where: str | None = None,
        seed: int = 0,
        more: bool = False,
        rebase: bool = False,
        votes: Any = None,
        plan: str | None = None,
        id: str = "id",  # noqa: A002 the user's word
        vote: str = "vote",
        soft: str | None = None,
        strict: bool = False,
        keep_unplanned: bool = False,
        batch: int = evaluating.BATCH,
        max_errors: int = evaluating.MAX_ERRORS,
        retry_errors: bool = False,
        replicas: Replicas | int | str | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Evaluate, fold, decide and commit one step; the same call twice does it once.

        ``votes`` is a table or file of votes made elsewhere; else the model's ``predict`` is asked,
        by as many ``replicas`` as the executor has room for, or as told (see ``Replicas``).
        With ``plan`` the plan's own budget, selector, rule and filter hold.
        """
        side_by_side = Replicas.read(replicas)  # a slip is told before anything is done
        context, request, note = self._request(
            model, budget, selector, rule, where, seed, writing=True
        )
        predict = None if votes is not None else self._predict(model, context)

        def evaluate(run: Run, chosen: Plan) -> votefiles.FromFile | None:
            if retry_errors:
                run.forget_errors()
            learning.reuse_labelled(run, chosen)
            if votes is not None:
                return votefiles.take_votes(
                    run,
                    chosen,
                    votes,
                    id_column=id,
                    vote_column=vote,
                    soft=soft,
                    strict=strict,
                    # Those on labelled items come first; the rest of the file has its turn later.
                    keep_unplanned=keep_unplanned and not learning.is_labelled(chosen.id),
                )
            if predict is not None:
                evaluating.ask_model(
                    run,
                    chosen,
                    predict,
                    batch=batch,
                    max_errors=max_errors,
                    replicas=side_by_side,
                    progress=progress,
                )
            return None

        asked = 0
        if context.model(request.model).pending:
            told, asked, more_votes = learning.learn(context, request, evaluate)
            note = "\n".join(part for part in (note, told) if part)
            if not more_votes or learning.is_labelled(plan):
                done = updating.nothing(request, f"{note}\nNow plan which items it looks at next.")
                return done.after_learning(asked)
            context = self._context()
        if plan is None:
            done = updating.update(
                context, request, evaluate, more=more, retry=retry_errors, rebase=rebase
            )
            return done.with_note(note).after_learning(asked)
        if learning.is_labelled(plan):  # asked twice
            return updating.nothing(request, str(registered(context, request.model)))
        if (made := updating.step_of(context, plan)) is not None:
            return made
        kept = planfiles.load_plan(context, plan)
        if kept is None:
            raise UnknownName.among("plan", plan, all_runs(context))
        if kept.request.model != request.model:
            raise InvalidParameter(
                f"The plan '{plan}' is for the model '{kept.request.model}', not for "
                f"'{request.model}'."
            )
        return updating.carry_out(context, kept, evaluate, rebase=rebase)

    @staticmethod
    def _predict(model: Model | str, context: Context) -> Predict | str:
        """The model's own callable, or the one the store remembers the name of."""
        known = model.predict if isinstance(model, Model) else None
        if known is None:
            name = model if isinstance(model, str) else model.name
            known = context.model(name).settings.get("predict")
        if known is None:
            raise InvalidParameter("An update needs a model with predict=, or a file of votes=.")
        if context.executor != LOCAL:
            return known
        return Loaded(load_predict(known) if isinstance(known, str) else known)

    def _request(
        self,
        model: Model | str,
        budget: Budget | Spending | float | str | None,
        selector: Selector | str | None,
        rule: Rule | str,
        where: str | None,
        seed: int,
        *,
        writing: bool = False,
    ) -> tuple[Context, Request, str]:
        name, context = model if isinstance(model, str) else model.name, self._context()
        chosen = selector or planning.DEFAULT_SELECTOR[context.description.beliefs]
        request = Request.of(name, budget, chosen, rule, where, seed)
        if where is not None and context.items is not None:
            next(context.items.selected(["row"], where), None)  # refused before all else
        note = ""
        if isinstance(model, Model) and (model.describes or name not in context.models):
            context.raise_format()
            found = register(context, model)
            note = f"warning: {found.warning}" if found is not None and found.warning else ""
        context.model(name)
        if writing:
            context.raise_format()
        return context, request, note

    def settle(self) -> settling.Settled:
        """Make all flips a rule with ``+confirm`` has left pending, by a step of its own."""
        return settling.settle(self._context())

    def review(
        self,
        answers: Any,
        *,
        id: str = "id",  # noqa: A002 the user's word
        answer: str = queues.ANSWER,
        learn: bool = False,
        dry_run: bool = False,
    ) -> reviewing.Reviewed:
        """Make what people answered the labels of items, by one step; later votes do not move them.

        ``answers`` is a table or file of ids and answers; rows that cannot be used are told of and
        left out. ``learn``: they are also labelled items of the models that voted on them.
        """
        return reviewing.review(
            self._context(),
            answers,
            id_column=id,
            answer_column=answer,
            learn=learn,
            dry_run=dry_run,
        )

    def compact(self) -> compacting.Compacted:
        """Fewer, larger files; removed items are purged from every table."""
        return compacting.compact(self._context(writing=True))

    def vacuum(self, *, hours: float = compacting.RETENTION_HOURS, dry_run: bool = False) -> int:
        """Delete files nothing refers to that are older than the retention; returns how many."""
        return compacting.vacuum(self._context(), hours=hours, dry_run=dry_run)

    def revert(self, step: int) -> reverting.Reverted:
        """Undo a step by a new one."""
        return reverting.revert(self._context(writing=True), step)
