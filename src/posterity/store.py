"""The store: what users hold. A folder or object-store prefix that remembers every vote.

Each verb imports its operation when it is called: an update loads nothing of a compaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from posterity._text import Progress, lines
from posterity.engine.evaluation.plans import Plan, Request
from posterity.engine.executors import Executor
from posterity.engine.ledger.context import Context
from posterity.engine.maintenance import RETENTION_HOURS
from posterity.engine.steps import ANSWER
from posterity.errors import InvalidParameter
from posterity.method.adapt.adapt import Adapt
from posterity.method.data.arrays import ArrayLike
from posterity.method.data.classes import Classes
from posterity.method.decide.budget import Budget, Spending
from posterity.method.decide.defaults import (
    DEFAULT_CONFUSION,
    DEPENDENT,
)
from posterity.method.decide.rules import Rule
from posterity.method.decide.selectors import Selector
from posterity.models.model import Model
from posterity.reader import StoreReader
from posterity.storage.delta.schema import SHARD_ROWS
from posterity.storage.files import open_files

if TYPE_CHECKING:
    from posterity.engine.evaluation.durable_votes import OpenRun
    from posterity.engine.evaluation.evaluate import Evaluation
    from posterity.engine.evaluation.vote_file import VoteFile
    from posterity.engine.labelled.register import Registration
    from posterity.engine.ledger.reports import Report
    from posterity.engine.maintenance.compact import Compacted
    from posterity.engine.plan.compare import Choice
    from posterity.engine.steps.import_predictions import ImportReport
    from posterity.engine.steps.redecide import Redecided
    from posterity.engine.steps.revert import Reverted
    from posterity.engine.steps.review import Reviewed
    from posterity.engine.steps.settle import Settled
    from posterity.validation.tune import Tuned


class Store(StoreReader):
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
        confusion: str = DEFAULT_CONFUSION,
        prior: ArrayLike | str | Path | None = None,
        adapt: Adapt = True,
        shard_rows: int = SHARD_ROWS,
        options: dict[str, str] | None = None,
        executor: Executor | str | None = None,
    ) -> Store:
        """Make an empty store at a folder or an object-store URI.

        Where there is one already that was made with the same settings, that one is opened.
        ``beliefs``: ``"dependent"`` or ``"plain"``, which estimates confusions as ``confusion``
        says; ``prior``: ``"estimated"`` (class frequencies of the labelled set and of the items'
        votes; the default of dependent beliefs), ``"labelled"``, ``"uniform"``, one weight a class,
        or a file; ``adapt``: see ``adapt``.
        """
        from posterity.engine.maintenance.create import create
        from posterity.method.adapt.adapt import to_keep
        from posterity.method.beliefs import priors
        from posterity.method.beliefs.confusion import estimate
        from posterity.method.data.spec import whole_number
        from posterity.method.decide.defaults import DEFAULT_PRIOR, check_beliefs
        from posterity.storage.delta.schema import MOST_SHARD_ROWS, Description

        known = classes if isinstance(classes, Classes) else Classes(classes)
        estimate(confusion)
        kind = check_beliefs(beliefs, prior)
        prior = DEFAULT_PRIOR[kind] if prior is None else prior
        weights = priors.weights_of(prior, known.names)
        description = Description(
            shard_rows=whole_number(shard_rows, "shard_rows", least=1, most=MOST_SHARD_ROWS),
            beliefs=kind,
            confusion=confusion,
            prior=priors.kind_of(prior, weights),
            adapt=to_keep(adapt, dependent=kind == DEPENDENT),
            classes=len(known),
        )
        create(open_files(path, options), known, weights, description)
        return cls(path, options, executor)

    def add(self, items: Any, *, id: str = "id") -> int:  # noqa: A002 the user's word
        """Add items: a table, file, folder, glob or object-store URI, or several; says how many."""
        from posterity.engine.items.add import add_items

        return add_items(self._context(), items, id_column=id, options=self.options)

    def import_predictions(
        self,
        source: Any,
        votes: Mapping[str, Model | str],
        *,
        id: str = "id",  # noqa: A002 the user's word
        soft: Mapping[str, str] | None = None,
        payload: Sequence[str] | None = None,
        rule: Rule | str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Items and their first steps from predictions that exist, without running anything.

        ``source``: a table, a file, a folder, a glob, an object-store URI, or several. ``votes``
        maps columns to models, in their order of arrival; ``soft`` maps models to their soft votes
        (see ``SoftColumns``). Other columns become payload, or only those in ``payload``.
        """
        from posterity.engine.steps.import_file import sources_of
        from posterity.engine.steps.import_predictions import import_predictions

        return import_predictions(
            self._context(),
            source,
            sources_of(votes, soft),
            id_column=id,
            payload=payload,
            rule=rule,
            options=self.options,
            dry_run=dry_run,
            progress=progress,
        )

    def append_classes(
        self, names: Iterable[Any], *, weights: Mapping[Any, float] | None = None
    ) -> Classes:
        """Append classes; ``weights`` only where the store's prior has weights."""
        from posterity.engine.maintenance.create import append_classes

        return append_classes(self._context(), list(names), weights)

    def remove(self, ids: Any) -> int:
        """Remove items: gone at once, purged at the next compaction."""
        from posterity.engine.items.add import remove_items
        from posterity.engine.ledger.publish import publish_labels

        count = remove_items(self._context(), ids)
        publish_labels(self._context(), anew=True)
        return count

    def register(self, model: Model) -> Registration:
        """Make a model known by how it errs on labelled data; says how well that is founded.

        The truth of stored items becomes their label, by a step of its own, and no vote is bought
        for them any more; ``keep_labels`` of the model declines that.
        """
        from posterity.engine.evaluation import consent
        from posterity.engine.labelled.register import register, registered
        from posterity.engine.steps.review import give_truths

        context = self._context()
        found = register(context, model)
        consent.allow_own(context, model)
        known = registered(context, model.name) if found is None else found
        return replace(known, labels=str(give_truths(context, model) or ""))

    def plan(
        self,
        model: Model | str,
        *,
        budget: Budget | Spending | float | str | None = None,
        selector: Selector | str | None = None,
        rule: Rule | str | None = None,
        where: str | None = None,
        seed: int = 0,
        more: bool = False,
    ) -> Plan:
        """Which items the model would look at; nothing is spent.

        The model is registered already, and is taken as it was registered. By default the first
        model looks at everything, a later one at ten per cent. The plan is kept, so that
        ``update(plan=plan.id)`` carries out exactly this one.
        """
        from posterity.engine.steps.update import plan_update

        context = self._context()
        request = self._request(context, model, budget, selector, rule, where, seed)
        if isinstance(model, Model) and model.name not in context.models:
            raise InvalidParameter(
                f"The model '{model.name}' is not registered yet, and a plan changes nothing.",
                hint="Call store.register(model) first.",
            )
        return plan_update(context, request, more=more)

    def compare(
        self,
        models: Sequence[str],
        money: float,
        *,
        selector: Selector | str | None = None,
        rule: Rule | str | None = None,
    ) -> list[Choice]:
        """What the same money would bring with each of some models, the best first."""
        from posterity.engine.plan.compare import compare

        return compare(self._context(), models, money, selector=selector, rule=rule)

    def planned_items(self, plan: Plan) -> pa.Table:
        """The items of a plan with their payload, for evaluation elsewhere."""
        from posterity.engine.evaluation.evaluate import planned_items

        return planned_items(self._context(), plan)

    def planned_batches(self, plan: Plan) -> Iterator[pa.Table]:
        """By batches."""
        from posterity.engine.evaluation.evaluate import planned_batches

        return planned_batches(self._context(), plan)

    def update(
        self,
        model: Model | str,
        *,
        budget: Budget | Spending | float | str | None = None,
        selector: Selector | str | None = None,
        rule: Rule | str | None = None,
        where: str | None = None,
        seed: int = 0,
        more: bool = False,
        rebase: bool = False,
        plan: str | None = None,
        votes: VoteFile | Any = None,
        evaluation: Evaluation | None = None,
        trust: bool = False,
        progress: Progress | None = None,
    ) -> Report:
        """Evaluate, fold, decide and commit one step; the same call twice does it once.

        ``votes`` is a table or file of votes made elsewhere (``VoteFile`` says how to read it); all
        of them are folded unless ``budget`` or ``plan`` says which items. Else the model's
        ``predict`` is asked, as ``evaluation`` says. One that the store names, and nobody on this
        machine registered, needs ``trust``, once. With ``plan`` the plan's own budget, selector,
        rule and filter hold.
        """
        from posterity.engine.evaluation import consent
        from posterity.engine.evaluation.evaluate import Evaluation
        from posterity.engine.evaluation.vote_file import VoteFile
        from posterity.engine.steps.update import Votes, update

        context = self._context()
        request = self._request(context, model, budget, selector, rule, where, seed)
        note = ""
        if isinstance(model, Model):
            if model.describes or model.name not in context.models:
                from posterity.engine.labelled.register import register
                from posterity.engine.steps.review import give_truths

                registration = register(context, model)
                warning = registration.warning if registration is not None else ""
                truths = str(give_truths(context, model) or "")
                note = lines((truths, f"warning: {warning}" if warning else ""))
                context = context.again() if truths else context
            consent.allow_own(context, model)
        context.model(request.model)
        asked = Votes(
            None if votes is None else VoteFile.of(votes),
            consent.source_of(context, model, trust=trust) if votes is None else None,
            evaluation or Evaluation(),
            progress,
        )
        done = update(context, request, asked, plan_id=plan, more=more, rebase=rebase)
        return done.with_notes(note)

    def _request(
        self,
        context: Context,
        model: Model | str,
        budget: Budget | Spending | float | str | None,
        selector: Selector | str | None,
        rule: Rule | str | None,
        where: str | None,
        seed: int,
    ) -> Request:
        name = model if isinstance(model, str) else model.name
        from posterity.engine.plan.policy import policy_for

        policy = policy_for(context, name)
        request = Request.of(name, budget, selector, rule, where, seed, policy=policy)
        if where is not None:
            from posterity.storage.delta.filters import refuse_wrong

            refuse_wrong(context.items, where)  # before all else
        return request

    def settle(self) -> Settled:
        """Make all flips a rule with ``+confirm`` has left pending, by a step of its own."""
        from posterity.engine.steps.settle import settle

        return settle(self._context())

    def redecide(self, rule: Rule | str | None = None, *, dry_run: bool = False) -> Redecided:
        """Decide every label again from the votes there are, by another rule; no model is asked."""
        from posterity.engine.steps.redecide import redecide

        return redecide(self._context(), rule, dry_run=dry_run)

    def tune(
        self,
        model: str | None = None,
        *,
        goal: str | None = None,
        budget: Budget | float | str | None = None,
        apply: bool = False,
        progress: Progress | None = None,
    ) -> Tuned:
        """Which selector and rule serve a goal best, on the labelled items; nothing is spent.

        They go through the steps so far and the next one, of ``model``, under many policies.
        ``goal``: ``"balance:90%"`` (the default), ``"soon:90%"``, ``"final:90%"``, ``"ratio:5"`` or
        ``"at-most:1%"``. ``apply``: later plans and updates follow the choice.
        """
        from posterity.engine.plan.tune import apply as apply_choice
        from posterity.engine.plan.tune import tune

        found = tune(self._context(), model, goal=goal, budget=budget, progress=progress)
        return apply_choice(self._context(), found) if apply else found

    def review(
        self,
        answers: Any,
        *,
        id: str = "id",  # noqa: A002 the user's word
        answer: str = ANSWER,
        learn: bool = False,
        dry_run: bool = False,
    ) -> Reviewed:
        """Make what people answered the labels of items, by one step; later votes do not move them.

        ``answers`` is a table or file of ids and answers; rows that cannot be used are told of and
        left out. ``learn``: they are also labelled items of the models that voted on them.
        """
        from posterity.engine.steps.review import review

        return review(
            self._context(),
            answers,
            id_column=id,
            answer_column=answer,
            learn=learn,
            dry_run=dry_run,
        )

    def compact(self) -> Compacted:
        """Fewer, larger files; removed items are purged from every table."""
        from posterity.engine.maintenance.compact import compact

        return compact(self._context())

    def vacuum(self, *, hours: float = RETENTION_HOURS, dry_run: bool = False) -> int:
        """Delete files nothing refers to that are older than the retention; returns how many."""
        from posterity.engine.maintenance.vacuum import vacuum

        return vacuum(self._context(), hours=hours, dry_run=dry_run)

    def drop_run(self, run: str) -> OpenRun:
        """Delete a plan or an unfinished run with its votes (see ``runs``)."""
        from posterity.engine.evaluation.durable_votes import drop_run

        return drop_run(self._context(), run)

    def repair(self) -> list[str]:
        """Drop rows that tables hold twice."""
        from posterity.engine.maintenance.repair import repair

        return repair(self._context())

    def revert(self, step: int) -> Reverted:
        """Undo a step by a new one."""
        from posterity.engine.steps.revert import revert

        return revert(self._context(), step)
