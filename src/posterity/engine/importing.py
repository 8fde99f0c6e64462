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
from posterity.engine.evidence import StoredVotes
from posterity.engine.items import (
    commit_items,
    fitted,
    prepared,
    refuse_known,
    refuse_repeated,
    refuse_reserved,
)
from posterity.engine.planning import Plan, Request
from posterity.engine.publishing import labels_schema, publish_labels
from posterity.engine.registering import (
    Registration,
    check_evidence,
    register,
    stored_votes,
)
from posterity.engine.runs import Progress, Run, tidy
from posterity.engine.updating import TRIES, Report, commit_votes, nothing, step_of
from posterity.errors import CommitConflict, InvalidData, InvalidParameter
from posterity.models import Model, answers_of, settings_of
from posterity.softcolumns import TOP, SoftColumns
from posterity.tables.delta import Table
from posterity.tables.sources import Types, as_numbers, ids_of, truth_types
from posterity.tables.streams import Piece, Stream
from posterity.votes import MISSING, Cast

ALREADY = "Nothing to do: this was imported already."
STRANGE = 0.5
"""The share of rows whose label is not their most probable class that means another order."""


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
        known = [str(Registration(**row)) for row in self.registrations]
        if self.dry_run:
            known = [text.replace("is registered", "would be registered", 1) for text in known]
        told += known
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
    digest = read.digest(rule)
    mark = f"posterity.import.{digest}"
    again = context.items is not None and context.items.fence(mark) is not None
    refuse_repeated(read.ids, read.where)
    if context.items is not None and not again:
        try:
            refuse_known(context.items, read.ids)
        except InvalidData as error:
            hint = (
                "Votes of another model on items that are there are not imported: register it and "
                "give them to an update."
            )
            raise InvalidData(error.message, hint=hint) from None
    requests = [Request.of(s.model.name, "100%", "everything", rule, None, 0) for s in sources]
    checked = [_checked(context, source.model, read, at) for at, source in enumerate(sources)]
    registrations = [asdict(found) for found in checked if found is not None]
    if not any(found["labelled"] for found in registrations):
        context.fit(sources[0].model.name)  # a prior that cannot be had is told now

    def batches() -> Iterator[pa.Table]:
        return read.items(columns, progress)  # asked for again after a conflict

    if dry_run:
        for items in batches():
            if context.items is not None:
                fitted(items, context.items.table.schema)
        note = ALREADY if again and not registrations else ""
        return Imported(
            len(read.ids), len(stream.pieces), [], registrations, dry_run=True, note=note
        )

    def ready() -> None:
        for at, source in enumerate(sources):
            register(context, source.model, stored=read.stored(at))

    start = commit_items(context, read.ids, batches, mark=mark, ready=ready)
    if again:
        ready()
    context = Context(context.files)
    made = len(context.headers)
    # There before the first step is: a store without it looks as if somebody had lost it.
    Table(context.files, "labels", labels_schema(context), "shard").create()
    steps = [
        asdict(_step(context.files, f"{digest}-{at}", request, read.casts[at], start))
        for at, request in enumerate(requests)
    ]
    context = Context(context.files)
    publish_labels(context)
    tidy(context)
    done = again and not registrations and made == len(context.headers)
    note = ALREADY if done else ""
    return Imported(len(read.ids), len(stream.pieces), steps, registrations, note=note)


def _checked(context: Context, model: Model, read: _Votes, at: int) -> Registration | None:
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


def _step(files: Any, run_id: str, request: Request, cast: Cast, start: int) -> Report:
    """One model's votes as a step, whatever else happens to the store at the same time."""
    present = np.flatnonzero(cast.hard != MISSING)
    if not len(present):
        return nothing(request, f"{request.model} has no vote on any item.")
    rows = present + start
    for _ in range(TRIES):
        context = Context(files)
        made = step_of(context, run_id)
        if made is not None:
            return made
        plan = Plan(run_id, request, context.head, context.rows, rows, len(rows), {}, None)
        run = Run(context, run_id)
        run.drop()
        run.keep_votes(rows, cast[present])
        try:
            return commit_votes(context, plan, run)
        except CommitConflict:
            continue
    raise CommitConflict("The ledger changes too often; the same import goes on where it stopped.")


def _refuse_other_order(source: Source, cast: Cast) -> None:
    """Labels and probabilities that disagree in many rows: the columns mean other classes."""
    if source.soft is None or cast.soft is None:
        return
    both = (cast.hard != MISSING) & (cast.soft.codes[:, 0] != MISSING)
    odd = np.flatnonzero(both & (cast.hard != cast.soft.codes[:, 0]))
    if len(odd) > STRANGE * both.sum():
        raise InvalidData(
            f"In {len(odd):,} of {int(both.sum()):,} rows the most probable class of "
            f"'{source.model.name}' is not its vote in '{source.column}'; first in row {odd[0]}.",
            hint="Name the model's own classes in the order of its probabilities.",
        )


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
        for source, cast in zip(sources, self.casts, strict=True):
            _refuse_other_order(source, cast)

    def _answers_of(self, source: Source) -> Answers:
        """As registered, but for what the model says anew."""
        known = self._context.models.get(source.model.name)
        answers = source.model.answers(self._context.classes)
        if known is not None:
            said = {k: v for k, v in settings_of(answers).items() if v not in (None, [])}
            answers = answers_of(known.settings | said, self._context.classes)
        if source.soft is not None and answers.soft is None:
            return replace(answers, soft=min(TOP, len(answers.classes)))
        return answers

    def _read(self) -> tuple[pa.ChunkedArray, list[Cast]]:
        ids: list[tuple[Piece, pa.ChunkedArray]] = []
        casts: list[list[Cast]] = [[] for _ in self._sources]
        place: dict[str, int] = {}
        self._pieces: list[tuple[Piece, int, int]] = []
        for piece, batch in self._stream.batches(self._used, ids=self._id, types=self._types):
            first = place.get(piece.name, 0)
            place[piece.name] = first + batch.num_rows
            self._pieces.append((piece, first, batch.num_rows))
            where = f"'{piece.name}' (rows from {first})"
            ids.append((piece, ids_of(batch, self._id, f"file {where}")))
            for at, source in enumerate(self._sources):
                casts[at].append(self._cast(batch, source, self._answers[at], where))
        return self._joined(ids), [Cast.joined(parts) for parts in casts]

    def _joined(self, ids: list[tuple[Piece, pa.ChunkedArray]]) -> pa.ChunkedArray:
        """All ids, of one type; in text without types they take that of the others."""
        typed = {column.type for piece, column in ids if not piece.from_text}
        if self._context.items is not None:
            typed = {self._context.items.table.schema.field("id").type}
        texts = [column for piece, column in ids if piece.from_text]
        if texts and typed <= {pa.int64()}:
            kind = as_numbers(_chunked(texts)).type
            ids = [
                (piece, column.cast(kind) if piece.from_text else column) for piece, column in ids
            ]
        begin, first = ids[0]
        for piece, column in ids:
            if column.type != first.type:
                raise InvalidData(
                    f"Ids must be of one type; those in '{begin.name}' are {first.type}, those in "
                    f"'{piece.name}' {column.type}."
                )
        return _chunked([column for _, column in ids])

    @staticmethod
    def _cast(batch: pa.Table, source: Source, answers: Answers, where: str) -> Cast:
        what = f"column '{source.column}' of {where}"
        hard = answers.column(batch.column(source.column), what)
        if source.soft is None:
            return Cast(hard)
        return source.soft.read(batch, answers, hard, f"soft votes of {where}")

    def where(self, row: int) -> str:
        """The place of a row among the files."""
        for piece, first, count in self._pieces:
            if row < count:
                return f"row {first + row} of '{piece.name}'"
            row -= count
        return f"row {row}"

    def digest(self, rule: str) -> str:
        """Names the import by what it holds."""
        # One model's votes become first labels under every rule.
        told = hashlib.sha256(rule.encode() if len(self._sources) > 1 else b"")
        for piece in _bytes_of(self.ids):
            told.update(piece)
        for source, cast in zip(self._sources, self.casts, strict=True):
            told.update(source.model.name.encode())
            told.update(np.ascontiguousarray(cast.hard).tobytes())
            if cast.soft is not None:
                told.update(np.ascontiguousarray(cast.soft.codes).tobytes())
                told.update(np.ascontiguousarray(cast.soft.weights).tobytes())
        return told.hexdigest()[:16]

    def payload(self, wanted: Sequence[str] | None) -> Types:
        """The columns to keep with the items: those asked for, or all that mean nothing to us."""
        if wanted is None:
            held = self._stream.names(ids=self._id)
            columns = [name for name in held if name not in self._used]
        else:
            columns = list(dict.fromkeys(wanted))
        refuse_reserved(columns)
        return self._stream.types(columns, ids=self._id)

    def items(self, payload: Types, progress: Progress | None) -> Iterator[pa.Table]:
        """Items with their payload, read a second time."""
        columns = list(dict.fromkeys([self._id, *payload]))
        schema = pa.schema([("id", self.ids.type), *payload.items()])
        done = 0
        for piece, batch in self._stream.batches(columns, ids=self._id, types=payload):
            known = self.ids.slice(done, batch.num_rows)
            read = batch.column(self._id).cast(pa.string())
            changed = InvalidData(
                f"'{piece.name}' changed while it was read; nothing was imported."
            )
            if not read.equals(known.cast(pa.string())):
                raise changed
            kept = {name: batch.column(name) for name in payload}
            try:
                items = prepared(pa.table({"id": known, **kept})).cast(schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise changed from None
            yield items
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
            return np.where(where < 0, earlier(ids), votes)

        # Items that were there before may be among them.
        earlier = stored_votes(self._context, self._sources[at].model.name)
        return StoredVotes(self.ids.type, look_up)


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


def _chunked(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks])


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
