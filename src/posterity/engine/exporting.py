"""Export: a table that is made shard by shard, to go through here or to be written over there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from posterity.engine.context import Context, Shard
from posterity.engine.runs import Progress
from posterity.errors import InvalidParameter, PosterityError
from posterity.tables.exports import parquet_of
from posterity.tables.files import Files

DONE = "_SUCCESS"
"""The file that says that all others are there, as many tools write and look for it."""


@dataclass(frozen=True)
class Part:
    """One file of an export."""

    file: str
    rows: int


@dataclass(frozen=True, eq=False)
class Sharded:
    """A table of a store as what each of its shards has to say."""

    context: Context
    schema: pa.Schema
    of: Callable[[Shard], pa.Table]
    """The rows of one shard, by row; made where the executor works."""

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
        """One Parquet file a shard, each written where it is made; the first rows, and how many.

        A last file says that all are there. If one cannot be written, none is left.
        """
        refuse_used(files)
        context, write = self.context, partial(_write, self.of, files, self.schema, first)
        shown: list[dict[str, Any]] = []
        parts: list[Part] = []
        try:
            made = context.executor.map(write, context.shards)
            for (_, start, items), (part, rows) in zip(context.shards, made, strict=True):
                parts.append(part)
                shown += rows[: first - len(shown)]
                if progress is not None:
                    progress(start + items, context.rows)
            if not parts:  # whoever reads the folder is told the columns all the same
                none = self.schema.empty_table()
                parts.append(_write(lambda _: none, files, self.schema, 0, (0, 0, 0))[0])
        except PosterityError:
            for shard in context.shards:
                files.delete(_name(shard))
            raise
        count = sum(part.rows for part in parts)
        told = {"rows": count, "files": [asdict(part) for part in parts]}
        files.write(DONE, json.dumps(told, indent=1).encode())
        return shown, count


def refuse_used(files: Files) -> None:
    """A folder with other files would hold more than what is exported."""
    held = files.list("")
    if held:
        cut_short = DONE not in held and all(name.startswith("part-") for name in held)
        raise InvalidParameter.of(
            "out",
            "an empty folder, or one to be made",
            files.root,
            hint=f"An export into it was cut short (there is no {DONE}): delete its files first."
            if cut_short
            else None,
        )


def _name(shard: Shard) -> str:
    return f"part-{shard[0]:06}.parquet"


def _write(
    of: Callable[[Shard], pa.Table], files: Files, schema: pa.Schema, first: int, shard: Shard
) -> tuple[Part, list[dict[str, Any]]]:
    table = of(shard)
    files.write(_name(shard), parquet_of(table.cast(schema)))
    return Part(_name(shard), table.num_rows), table.slice(0, first).to_pylist()
