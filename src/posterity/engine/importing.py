"""Import: items and their first steps from predictions that exist, without running anything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._arrays import Codes
from posterity.answers import Answers
from posterity.engine.context import Context
from posterity.engine.evidence import UNKNOWN_ITEM, StoredVotes
from posterity.engine.items import (
    commit_items,
    prepared,
    refuse_known,
    refuse_repeated,
    refuse_reserved,
)
from posterity.engine.planning import Plan, Request
from posterity.engine.publishing import publish_labels
from posterity.engine.registering import Registration, check_evidence, register
from posterity.engine.runs import Progress, Run, tidy
from posterity.engine.updating import Report, commit_votes, step_of
from posterity.errors import InvalidData, InvalidParameter
from posterity.models import Model, answers_of
from posterity.softcolumns import TOP, SoftColumns
from posterity.tables.sources import Types, as_numbers, ids_of, truth_types
from posterity.tables.streams import Stream
from posterity.votes import MISSING, Cast


@dataclass(frozen=True, eq=False)
class Source:
    """One model of an import: which column holds its votes, and where soft ones are."""

    model: Model
    column: str
    soft: SoftColumns | None = None


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    items: int
    files: int
    steps: list[dict[str, Any]]
    """The report of each model's step."""
    registrations: list[dict[str, Any]]
    dry_run: bool = False
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        if self.note:
            return self.note
        would = "would be imported" if self.dry_run else "imported"
        told = [f"{self.items:,} items {would} from {self.files:,} files"]
        told += [str(Registration(**row)) for row in self.registrations]
        told += [str(Report(**row)) for row in self.steps]
        return "\n".join(told)


def import_predictions(
    context: Context,
    given: Any,
    sources: Sequence[Source],
    *,
    id_column: str,
    rule: str,
    payload: Sequence[str] | None = None,
    options: dict[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Read everything once and refuse what is wrong before anything is written.

    Then the items become visible with one commit, and each model's votes with one step. Killed in
    between, the same import goes on: its content names it.
    """
    _refuse_twice(sources)
    stream = Stream(given, options)
    read = _Votes(context, stream, sources, id_column)
    columns = read.payload(payload)
    mark = f"posterity.import.{read.digest}"
    again = context.items is not None and context.items.fence(mark) is not None
    refuse_repeated(read.ids)
    if context.items is not None and not again:
        refuse_known(context.items, read.ids)
    requests = [Request.of(s.model.name, "100%", "everything", rule, None, 0) for s in sources]
    checked = [_checked(context, source.model, read, at) for at, source in enumerate(sources)]
    registrations = [asdict(found) for found in checked if found is not None]
    if dry_run:
        return Imported(len(read.ids), len(stream.pieces), [], registrations, dry_run=True)
    for at, source in enumerate(sources):
        register(context, source.model, stored=read.stored(at))
    for source in sources:
        context.fit(source.model.name)  # a prior that cannot be had is told before items are there
    batches = lambda: read.items(columns, progress)  # noqa: E731 asked for again after a conflict
    start = commit_items(context, read.ids, batches, mark=mark)
    context = Context(context.files)
    steps = [
        asdict(_step(context.files, f"{read.digest}-{at}", request, read.casts[at], start))
        for at, request in enumerate(requests)
    ]
    context = Context(context.files)
    publish_labels(context)
    tidy(context)
    note = "Nothing to do: this was imported already." if again and not registrations else ""
    return Imported(len(read.ids), len(stream.pieces), steps, registrations, note=note)


def _checked(context: Context, model: Model, read: _Votes, at: int) -> Registration | None:
    found = check_evidence(context, model, stored=read.stored(at))
    if found is not None and found.pending:
        raise InvalidData(
            f"The truth of {found.pending:,} items is known, but '{model.name}' has no vote on any "
            "of them.",
            hint="Give the truth of items it has voted on, or its own labelled votes.",
        )
    return found


def _step(files: Any, run_id: str, request: Request, cast: Cast, start: int) -> Report:
    """One model's votes as a step."""
    context = Context(files)
    made = step_of(context, run_id)
    if made is not None:
        return made
    present = np.flatnonzero(cast.hard != MISSING)
    rows = present + start
    plan = Plan(run_id, request, context.head, context.rows, rows, len(rows), {}, None)
    run = Run(context, run_id)
    run.drop()
    run.keep_votes(rows, cast[present])
    return commit_votes(context, plan, run)


def _refuse_twice(sources: Sequence[Source]) -> None:
    names = [source.model.name for source in sources]
    if not names:
        raise InvalidParameter("An import needs at least one model and its column of votes.")
    for name in names:
        if names.count(name) > 1:
            raise InvalidParameter(f"The model '{name}' is given twice.")


class _Votes:
    """Ids and votes of all rows, checked; the payload stays where it is."""

    def __init__(
        self, context: Context, stream: Stream, sources: Sequence[Source], id_column: str
    ) -> None:
        self._context, self._stream, self._id = context, stream, id_column
        self._sources = sources
        self._answers = [self._answers_of(source) for source in sources]
        self._used = [id_column]
        for source, answers in zip(sources, self._answers, strict=True):
            soft = source.soft.columns(answers) if source.soft else []
            self._used += [name for name in (source.column, *soft) if name not in self._used]
        self._types: Types = {}
        for source, answers in zip(sources, self._answers, strict=True):
            self._types |= truth_types(answers.kind, source.column)
        self.ids, self.casts = self._read()

    def _answers_of(self, source: Source) -> Answers:
        """As registered, unless the model says it anew."""
        known = self._context.models.get(source.model.name)
        if known is not None and not source.model.describes:
            answers = answers_of(known.settings, self._context.classes)
        else:
            answers = source.model.answers(self._context.classes)
        if source.soft is not None and answers.soft is None:
            return replace(answers, soft=min(TOP, len(answers.classes)))
        return answers

    def _read(self) -> tuple[pa.ChunkedArray, list[Cast]]:
        ids: list[Any] = []
        casts: list[list[Cast]] = [[] for _ in self._sources]
        place: dict[str, int] = {}
        for piece, batch in self._stream.batches(self._used, ids=self._id, types=self._types):
            first = place.get(piece.name, 0)
            place[piece.name] = first + batch.num_rows
            where = f"'{piece.name}' (rows from {first})"
            ids.append(ids_of(batch, self._id, f"file {where}"))
            for at, source in enumerate(self._sources):
                casts[at].append(self._cast(batch, source, self._answers[at], where))
        if not sum(map(len, ids)):
            raise InvalidData("The files hold no rows.")
        kinds = {column.type for column in ids}
        if len(kinds) > 1:
            odd = next(at for at, column in enumerate(ids) if column.type != ids[0].type)
            raise InvalidData(
                f"Ids must be of one type in all files; they begin as {ids[0].type} and are "
                f"{ids[odd].type} later."
            )
        joined = pa.chunked_array([chunk for column in ids for chunk in column.chunks])
        if self._stream.from_text:
            joined = as_numbers(joined)
        return joined, [Cast.joined(parts) for parts in casts]

    @staticmethod
    def _cast(batch: pa.Table, source: Source, answers: Answers, where: str) -> Cast:
        what = f"column '{source.column}' of {where}"
        hard = answers.column(batch.column(source.column), what)
        if source.soft is None:
            return Cast(hard)
        return source.soft.read(batch, answers, hard, f"soft votes of {where}")

    @property
    def digest(self) -> str:
        """Names the import by what it holds."""
        told = hashlib.sha256()
        for piece in _bytes_of(self.ids):
            told.update(piece)
        for source, cast in zip(self._sources, self.casts, strict=True):
            told.update(source.model.name.encode())
            told.update(np.ascontiguousarray(cast.hard).tobytes())
            if cast.soft is not None:
                told.update(cast.soft.weights.tobytes())
        return told.hexdigest()[:16]

    def payload(self, wanted: Sequence[str] | None) -> list[str]:
        """The columns to keep with the items: those asked for, or all that mean nothing to us."""
        held = self._stream.names(ids=self._id) if wanted is None else list(wanted)
        columns = [name for name in held if name not in self._used or name in (wanted or ())]
        refuse_reserved(columns)
        return columns

    def items(self, payload: Sequence[str], progress: Progress | None) -> Iterator[pa.Table]:
        """Items with their payload, read a second time."""
        columns = [self._id, *payload]
        done, schema = 0, None
        for piece, batch in self._stream.batches(columns, ids=self._id):
            known = self.ids.slice(done, batch.num_rows)
            read = batch.column(self._id).cast(pa.string())
            if not read.equals(known.cast(pa.string())):
                raise InvalidData(
                    f"'{piece.name}' changed while it was read; nothing was imported."
                )
            kept = {name: batch.column(name) for name in payload}
            items = prepared(pa.table({"id": known, **kept}))
            schema = schema or items.schema
            try:
                yield items.cast(schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
                raise InvalidData(
                    f"The payload in '{piece.name}' is not of the types it begins with: "
                    f"{str(error).splitlines()[0]}."
                ) from None
            done += batch.num_rows
            if progress:
                progress(done, len(self.ids))

    def stored(self, at: int) -> StoredVotes:
        """A model's votes by id, as an import finds them before they are in the ledger."""

        def look_up(ids: pa.ChunkedArray) -> Codes:
            if ids.type != self.ids.type:
                raise InvalidData(f"The ids are of type {self.ids.type}; got {ids.type}.")
            found = pc.index_in(ids, value_set=self.ids)
            where = np.asarray(found.fill_null(-1))
            votes: Codes = self.casts[at].hard[where]
            return np.where(where < 0, np.int32(UNKNOWN_ITEM), votes)

        return look_up


def sources_of(
    votes: Mapping[str, Model | str], soft: Mapping[str, str] | None = None
) -> list[Source]:
    """Columns and models as a user gives them, in the models' order of arrival."""
    softly = dict(soft or {})
    sources = []
    for column, given in votes.items():
        model = Model(given) if isinstance(given, str) else given
        text = softly.pop(model.name, None)
        sources.append(Source(model, column, None if text is None else SoftColumns.parse(text)))
    if softly:
        raise InvalidParameter.of("soft", "columns by the name of a model given", min(softly))
    return sources


def _bytes_of(ids: pa.ChunkedArray) -> Iterator[bytes | memoryview]:
    """What ids consist of, however they are cut into chunks."""
    if pa.types.is_integer(ids.type):
        yield from (chunk.to_numpy().tobytes() for chunk in ids.chunks)
        return
    yield from (pc.binary_length(chunk).to_numpy().tobytes() for chunk in ids.chunks)
    for chunk in ids.chunks:
        _, offsets, texts = chunk.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        if texts is not None and len(chunk):
            yield memoryview(texts)[ends[0] : ends[-1]]
