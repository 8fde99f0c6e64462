"""Publish: the derived table of current labels, for readers that know nothing of us."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._progress import Progress
from posterity._version import __version__
from posterity.engine.ledger.commit import attempts, commit_step, discarded
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.steps import Header, last_step
from posterity.errors import CommitConflict, InvalidParameter, PosterityError
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.table import Snapshot, Table
from posterity.storage.files import TEMPORARY, Files
from posterity.storage.output import parquet_of

PUBLISHED = "posterity.published"
GONE = "posterity.gone"
"""How many items were removed by then."""


def labels_of(context: Context, shard: RowRange, *, at: int | None = None) -> pa.Table:
    """Labels of one shard: id, row, label name, belief, step of the last change.

    ``at``: as they were after this step, of the items there were then; by default as they are now.
    """
    if context.items is None:
        return own_schema(context).empty_table()
    start, history = shard.start, ShardHistory.read(context.ledger, *shard)
    now = (history if at is None else history.before(at + 1)).current([], 0.0)
    known = by_row(context.items.read(["row", "id"], shard.number))
    local = known.column("row").to_numpy() - start
    there = context.rows if at is None else context.header(at).items
    keep = np.flatnonzero(~context.removed[local + start] & (local + start < there))
    at = local[keep]
    names = pa.array(context.classes.names)
    codes = pa.array(now.label[at], mask=now.label[at] < 0)
    changed = now.changed[at]
    return pa.table(
        {
            "id": known.column("id").take(pa.array(keep)),
            "row": pa.array(at + start),
            "label": names.take(codes),
            "belief": pa.array(now.belief[at], mask=now.label[at] < 0),
            "step": pa.array(changed, mask=changed < 0),
        }
    )


def by_row(rows: pa.Table) -> pa.Table:
    """In the order of their rows; what was written shard by shard mostly is already."""
    given = rows.column("row").to_numpy()
    return rows if (given[1:] >= given[:-1]).all() else rows.sort_by("row")


def labels_by_shard(context: Context, at: int | None = None) -> Sharded:
    """Labels as they are, or were after a step, as what each shard has of them."""
    if at is not None:
        context.check_step(at, "at")
    return Sharded(context, own_schema(context), partial(labels_of, context, at=at))


def own_schema(context: Context) -> pa.Schema:
    """The columns of current labels: those of the derived table without its partition."""
    schema = labels_schema(context)
    return schema.remove(schema.get_field_index("shard"))


def labels_schema(context: Context) -> pa.Schema:
    """The columns of the derived table; ids and labels have the types of the store's own."""
    kind = context.id_kind or pa.string()
    return pa.schema(
        [
            ("shard", pa.int32()),
            ("id", kind),
            ("row", pa.int64()),
            ("label", pa.array(context.classes.names).type),
            ("belief", pa.float32()),
            ("step", pa.int32()),
        ]
    )


def publish_labels(context: Context, *, anew: bool = False) -> bool:
    """Bring the derived table up to date; False if it was.

    ``anew``: look at it even if it is of the last step, because items were removed since. Only the
    shards where something changed are written, and one commit puts them in the place of the old.
    """
    if context.items is None:
        return False
    table = context.layout.labels(labels_schema(context))
    table.create()
    for now in attempts(context):
        with suppress(CommitConflict):  # somebody else published; perhaps something newer
            return _publish(now, table, anew)
    return False


def make_step(
    context: Context, kind: str, files: Sequence[DataFile], report: dict[str, Any], **others: Any
) -> None:
    """Commit a step that is not an update; the table of current labels follows."""
    header = Header(
        context.head + 1,
        kind,
        uuid.uuid4().hex[:12],
        items=context.rows,
        report=report,
        software=__version__,
        **others,
    )
    commit_step(context, header, files)
    publish_labels(context.again())


def _publish(context: Context, table: Table, anew: bool) -> bool:
    snapshot = table.head()
    published = snapshot.fence(PUBLISHED)
    damaged = {file.path for file in snapshot.data_files() if not _is_whole(snapshot, file)}
    if published is not None and published >= context.head and not damaged and not anew:
        return False
    # Read after the table: it knows of every step and removal that is published already.
    context = context.again()
    afresh = published is None or published > context.head or snapshot.schema != table.schema
    stale = context.shards
    if not afresh:
        known = partial(_is_published, context, snapshot, published, damaged)
        told = context.executor.map(known, context.shards)
        stale = [shard for shard, is_ in zip(stale, told, strict=True) if not is_]
    fresh = {str(shard) for shard, _, _ in context.shards} - {str(shard[0]) for shard in stale}
    retired = [file for file in snapshot.data_files() if file.partition["shard"] not in fresh]
    gone = len(context.removed)
    current = published == context.head and (snapshot.fence(GONE) or 0) == gone
    if not stale and not retired and current:
        return False
    name = f"labels-{context.head:06}"
    files = list(context.executor.map(partial(_write, context, table, name), stale))
    with discarded(table, files):
        snapshot.commit(
            files,
            removes=[] if afresh else retired,
            replace=afresh,
            fences=[(PUBLISHED, context.head), (GONE, gone)],
        )
    return True


def _write(context: Context, table: Table, name: str, shard: RowRange) -> DataFile:
    return table.write(labels_of(context, shard), label=name, partition=shard.number)


def _is_whole(snapshot: Snapshot, file: DataFile) -> bool:
    path = f"{snapshot.table.name}/{file.path}"
    return snapshot.table.files.size(path) == file.size


def _is_published(
    context: Context,
    snapshot: Snapshot,
    published: int | None,
    damaged: Collection[str],
    shard: RowRange,
) -> bool:
    """Whether the files of a shard say what the ledger, the items and the tombstones say now."""
    number, start, items = shard
    own = snapshot.files_of(number)
    if published is None or any(file.path in damaged for file in own):
        return False
    gone = context.removed.among(start, items)
    left = items - int(gone.sum())
    if sum(file.rows for file in own) != left:
        return False
    # Rows are given in ascending order and never twice. So if the last one is the same, none was
    # added that is still there; and if as many are left, none was removed either.
    if left and snapshot.highest(own, "row") != start + int(np.flatnonzero(~gone)[-1]):
        return False
    return all(
        (step := last_step(context.ledger, file)) is not None and step <= published
        for file in context.ledger.files_of(number)
    )


DONE = "_SUCCESS"
"""The file that says that all others are there, as many tools write and look for it."""
OWN = re.compile(r"part-\d{6,}\.parquet")


@dataclass(frozen=True, eq=False)
class Sharded:
    """A table of a store as what each of its shards has to say."""

    context: Context
    schema: pa.Schema
    of: Callable[[RowRange], pa.Table]
    """The rows of one shard, by row; made where the executor works."""

    def table(self) -> pa.Table:
        """All of it."""
        return pa.concat_tables([self.schema.empty_table(), *self.each()])

    def each(self, progress: Progress | None = None) -> Iterator[pa.Table]:
        """Shard by shard, telling how far that is."""
        made = self.context.executor.map(self.of, self.context.shards)
        for _, start, items in self.context.shards:
            yield next(made)
            if progress is not None:
                progress(start + items, self.context.rows)

    def write(
        self, files: Files, *, first: int = 0, progress: Progress | None = None
    ) -> tuple[list[dict[str, Any]], int]:
        """One Parquet file per shard, each written where it is made; the first rows, and how many.

        A last file says that all are there. If one cannot be written, none is left.
        """
        refuse_used(files)
        _clear(files)
        context, write = self.context, partial(_write_file, self.of, files, self.schema, first)
        shown: list[dict[str, Any]] = []
        written: list[dict[str, Any]] = []
        try:
            made = context.executor.map(write, context.shards)
            for shard, (count, rows) in zip(context.shards, made, strict=True):
                written.append({"file": _name(shard), "rows": count})
                shown += rows[: first - len(shown)]
                if progress is not None:
                    progress(shard.start + shard.items, context.rows)
            if not written:  # whoever reads the folder is told the columns all the same
                none, shard = self.schema.empty_table(), RowRange(0, 0, 0)
                _write_file(lambda _: none, files, self.schema, 0, shard)
                written.append({"file": _name(shard), "rows": 0})
        except PosterityError:
            for shard in context.shards:
                files.delete(_name(shard))
            raise
        total = sum(one["rows"] for one in written)
        content = json.dumps({"rows": total, "files": written}, indent=1)
        files.write(DONE, content.encode())
        return shown, total


MANY = 10_000
"""Files that are looked at to see whether they are those of an export."""


def refuse_used(files: Files) -> None:
    """A folder with other files would hold more than what is exported; an export is replaced."""
    foreign = [name for name in files.some(MANY) if name != DONE and not OWN.fullmatch(name)]
    if foreign:
        raise InvalidParameter.of(
            *("out", "an empty folder, one to be made, or one of an earlier export", files.root),
            hint=f"It holds '{foreign[0]}'.",
        )


def _clear(files: Files) -> None:
    """First what says that all are there: nobody takes what is left of an export for one."""
    files.delete(DONE)
    for name in files.times(""):
        if OWN.match(name.removeprefix(TEMPORARY)):
            files.delete(name)


def _name(shard: RowRange) -> str:
    return f"part-{shard.number:06}.parquet"


def _write_file(
    of: Callable[[RowRange], pa.Table], files: Files, schema: pa.Schema, first: int, shard: RowRange
) -> tuple[int, list[dict[str, Any]]]:
    """Returns how many rows there are, and the first of them."""
    table = of(shard)
    files.write(_name(shard), parquet_of(table.cast(schema)))
    return table.num_rows, table.slice(0, first).to_pylist()
