"""Import: items and their first steps from predictions that exist, without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from posterity._text import Progress, Result, counted
from posterity.engine.evaluation.consent import allow_own
from posterity.engine.evaluation.durable_votes import Run, tidy
from posterity.engine.evaluation.plans import Plan, Request
from posterity.engine.items.add import commit_items
from posterity.engine.items.item_files import items_table, write_all
from posterity.engine.items.unique_ids import Distinct
from posterity.engine.labelled.register import Registration, check_evidence, register
from posterity.engine.ledger.commit import attempts
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import labels_schema, publish_labels
from posterity.engine.ledger.reports import Report
from posterity.engine.steps.commit_votes import commit_votes
from posterity.engine.steps.import_file import Predictions, Source
from posterity.engine.steps.review import Reviewed, give_truths
from posterity.engine.steps.update import step_of
from posterity.errors import CommitConflict, InvalidData, InvalidParameter, Missing
from posterity.method.data.arrays import Rows
from posterity.method.data.row_sets import RowSet
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.method.decide import rules
from posterity.method.decide.defaults import DEFAULT_RULE
from posterity.method.decide.rules import Rule, traits
from posterity.models.model import Model
from posterity.storage.input import Types
from posterity.storage.spool import VoteSpool
from posterity.storage.stream import Stream

KEPT = "kept.json"
"""The file that says that all votes of an imported model are there."""
ALREADY = "Nothing to do: this was imported already."


@dataclass(frozen=True)
class ImportReport(Result):
    """What an import did."""

    items: int
    files: int
    steps: list[dict[str, Any]]
    """The report of each model's step."""
    registrations: list[dict[str, Any]]
    truths: list[dict[str, Any]] = field(default_factory=list)
    """What became of labels whose truth was given with a model."""
    dry_run: bool = False
    note: str = ""

    def __str__(self) -> str:
        if self.note:
            return self.note
        would = "would be imported" if self.dry_run else "imported"
        told = [f"{counted(self.items, 'item')} {would} from {counted(self.files, 'file')}"]
        known = [str(Registration(**row)) for row in self.registrations]
        if self.dry_run:
            known = [text.replace("is registered", "would be registered", 1) for text in known]
        told += known
        told += [str(Report(**row)) for row in self.steps]
        told += [str(Reviewed(**row)) for row in self.truths]
        return "\n".join(told)


def import_predictions(
    context: Context,
    given: Any,
    sources: Sequence[Source],
    *,
    id_column: str,
    rule: Rule | str | None,
    payload: Sequence[str] | None = None,
    options: dict[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Read everything once and refuse what is wrong before anything is written.

    Then the items become visible with one commit, and each model's votes with one step. Killed in
    between, the same import goes on: its content names it.
    """
    _refuse_twice(sources)
    stream = Stream(given, options, spread=context.executor.map)
    with TemporaryDirectory(prefix="posterity-") as folder:
        read = Predictions(context, stream, sources, id_column, Path(folder))
        distinct = Distinct(read.ids, Path(folder))
        columns = read.payload(payload)
        usual = DEFAULT_RULE[context.description.beliefs]
        told = str(rules.parse(usual if rule is None else rule))
        return _import(context, read, distinct, sources, columns, told, dry_run, progress)


def _import(
    context: Context,
    read: Predictions,
    distinct: Distinct,
    sources: Sequence[Source],
    columns: Types,
    rule: str,
    dry_run: bool,
    progress: Progress | None,
) -> ImportReport:
    digest = read.digest(rule)
    mark = f"posterity.import.{digest}"
    again = context.items is not None and context.items.fence(mark) is not None
    distinct.refuse_repeated()
    if context.items is not None and not again:
        try:
            distinct.refuse_known(context.items)
        except InvalidData as error:
            hint = (
                "Votes of another model on items that are there are not imported: register it and "
                "give them to an update."
            )
            raise InvalidData(error.message, hint=hint) from None
    if traits(context.rule(rule)).promises:
        raise InvalidParameter(
            f"The rule '{rule}' is for updates: labels that are imported are not rehearsed.",
            hint="Import with another rule.",
        )
    requests = [
        Request.of(source.model.name, "100%", "everything", rule, policy=context.policy)
        for source in sources
    ]
    checked = [_checked(context, source.model, read, at) for at, source in enumerate(sources)]
    registrations = [asdict(found) for found in checked if found is not None]
    if not any(found["labelled"] for found in registrations):
        context.fits.now(sources[0].model.name)  # a prior that cannot be had is told now
    incoming = read.items(columns)
    if dry_run:
        checked_items = 0
        table = items_table(context, incoming)
        for part in write_all(context, table, incoming, context.rows, dry_run=True):
            checked_items += part.rows
            if progress is not None:
                progress(checked_items, len(read.ids))
        note = ALREADY if again and not registrations else ""
        return ImportReport(len(read.ids), read.files, [], registrations, dry_run=True, note=note)

    def ready() -> None:
        for at, source in enumerate(sources):
            register(context, source.model, stored=read.stored(at))
            allow_own(context, source.model)

    start = commit_items(context, distinct, incoming, mark=mark, ready=ready, progress=progress)
    if again:
        ready()
    context = context.again()
    made = len(context.headers)
    # There before the first step is: a store without it looks as if somebody had lost it.
    context.layout.labels(labels_schema(context)).create()
    steps = [
        asdict(_step(context, f"{digest}-{at}", request, read.votes[at], start))
        for at, request in enumerate(requests)
    ]
    given = [give_truths(context, source.model) for source in sources]
    truths = [one.to_dict() for one in given if one is not None]
    context = context.again()
    publish_labels(context)
    tidy(context)
    done = again and not registrations and made == len(context.headers)
    note = ALREADY if done else ""
    return ImportReport(len(read.ids), read.files, steps, registrations, truths, note=note)


def _checked(context: Context, model: Model, read: Predictions, at: int) -> Registration | None:
    found = check_evidence(context, model, stored=read.stored(at))
    known = context.models.get(model.name)
    if found is None and known is not None and known.pending:
        raise InvalidData(
            f"'{model.name}' must vote on its labelled items first, so that it is known how it "
            "errs.",
            hint="Update the store with it, or give its labelled votes here.",
        )
    if found is not None and found.pending:
        raise InvalidData(
            f"The truth of {found.pending:,} items is known, but '{model.name}' has no vote on any "
            "of them.",
            hint="Give the truth of items it has voted on, or its own labelled votes.",
        )
    return found


def _step(context: Context, run_id: str, request: Request, votes: VoteSpool, start: int) -> Report:
    """One model's votes as a step, whatever else happens to the store at the same time."""
    if not votes.cast:
        return Report.nothing(request.model, f"{request.model} has no vote on any item.")
    for now in attempts(context.again()):
        made = step_of(now, run_id)
        if made is not None:
            return made
        run = Run(now, run_id)
        _keep_votes(run, votes, start)
        try:
            report = commit_votes(now, _plan(now, run_id, request, votes, start), run)
        except (CommitConflict, Missing):  # another process made the step, and tidied votes away
            continue
        if report.step is not None:
            return report
        # No vote was left to fold: this import is a step by now, or the model has voted otherwise.
        return step_of(now.again(), run_id) or Report.nothing(
            request.model, f"{request.model} has voted on all these items already."
        )
    raise CommitConflict("The ledger changes too often; the same import goes on where it stopped.")


def _plan(context: Context, run_id: str, request: Request, votes: VoteSpool, start: int) -> Plan:
    """All items that have a vote."""
    chosen = RowSet(context.rows)
    for rows, _ in _present(context, votes, start):
        chosen.mark(rows)
    return Plan(run_id, request, context.head, context.rows, chosen, len(chosen), {}, None)


def _keep_votes(run: Run, votes: VoteSpool, start: int) -> None:
    """Shard by shard, so that no more than one is in memory, and all of them or not yet.

    Here and not by an executor: votes are in a folder of this machine, and are read and written
    once, a few bytes each.
    """
    files, done = run.context.files, f"{run.folder}/{KEPT}"
    if files.size(done) is not None:
        return  # named by what it holds: votes another process has left there are these votes
    for rows, cast in _present(run.context, votes, start):
        run.keep_votes(rows, cast)
    files.write(done, b"{}")


def _present(context: Context, votes: VoteSpool, start: int) -> Iterator[tuple[Rows, ModelVotes]]:
    """The rows that have a vote, ascending, and their votes; each shard's on their own."""
    for _, first, items in context.shards:
        low, high = max(first, start), min(first + items, start + votes.count)
        if low < high:
            cast = votes.read(slice(low - start, high - start))
            present = np.flatnonzero(cast.hard != MISSING)
            if len(present):
                yield present + low, cast[present]


def _refuse_twice(sources: Sequence[Source]) -> None:
    names = [source.model.name for source in sources]
    if not names:
        raise InvalidParameter("An import needs at least one model and its column of votes.")
    for name in names:
        if names.count(name) > 1:
            raise InvalidParameter(f"The model '{name}' is given twice.")
