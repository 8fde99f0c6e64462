"""Vacuum: delete files that nothing refers to, beside whoever is writing others."""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import PurePosixPath

import pyarrow as pa

from posterity._text import counted
from posterity.engine.evaluation.durable_votes import Run, all_runs, tidy, unfinished
from posterity.engine.evaluation.plans import load_plan
from posterity.engine.ledger.commit import retried
from posterity.engine.ledger.context import Context
from posterity.method.data.spec import real_number
from posterity.storage.delta.commits import VACUUMED
from posterity.storage.delta.schema import RETENTION_HOURS
from posterity.storage.files import TEMPORARY

log = logging.getLogger(__name__)

MOST_HOURS = 10**6
NO_ITEMS = pa.schema([("shard", pa.int32()), ("row", pa.int64())])
LOG_HOURS = 1
"""A log's temporary files are older than that: the library that writes them does not look whether
they are still there, and they hold nothing but names."""


def vacuum(context: Context, *, hours: float = RETENTION_HOURS, dry_run: bool = False) -> int:
    """Delete files that nothing refers to and that are older than the retention.

    Safe at any retention: before a file is deleted that was never committed, its table is told, and
    whoever wrote it can no longer commit it, but writes it again. Readers are not protected: what
    was replaced longer ago than the retention may be deleted while they read it.
    """
    hours = real_number(hours, "hours", most=MOST_HOURS)
    if not dry_run:
        tidy(context)
        _drop_stale_plans(context, max(hours, RETENTION_HOURS))
    return retried(context, partial(_vacuum, hours=hours, dry_run=dry_run))


def _vacuum(context: Context, *, hours: float, dry_run: bool) -> int:
    now = time.time()
    times = context.files.times("")  # listed once, before any table is told
    found = [
        path
        for path, changed in times.items()
        if _is_temporary(path) and changed <= now - 3600 * _hours_of(path, hours)
    ]
    if not dry_run and not context.layout.items().exists() and context.files.list("items"):
        # Left by the first items somebody tried to add: without a table nobody can be told.
        context.layout.items(NO_ITEMS).create()
    for snapshot in context.snapshots():
        left = snapshot.leftovers(hours, times, now)
        orphans = set(left.orphans)
        if orphans and not dry_run:
            # From here on nobody commits them; who did before is seen by reading the table again.
            earlier = snapshot.fence(VACUUMED) or 0
            snapshot.commit(fences=[(VACUUMED, max(earlier, left.barrier))])
            orphans -= {file.path for file in snapshot.table.head().data_files()}
        found += [f"{snapshot.table.name}/{path}" for path in (*left.retired, *sorted(orphans))]
    gone = list(dict.fromkeys(found))
    for path in [] if dry_run else gone:
        context.files.delete(path)
    if not dry_run:
        log.info("%s: %s deleted", context.files.root, counted(len(gone), "file"))
    return len(gone)


def _is_temporary(path: str) -> bool:
    """Of a writer that has not finished, or died: our own, or one of the table's log."""
    name = PurePosixPath(path).name
    return name.startswith(TEMPORARY) or ("/_delta_log/" in path and ("#" in name or "tmp" in name))


def _hours_of(path: str, hours: float) -> float:
    return max(hours, LOG_HOURS) if "/_delta_log/" in path else hours


def _drop_stale_plans(context: Context, hours: float) -> None:
    """Plans of a head that has moved, of which no vote has come for so long.

    Their items may be evaluated elsewhere, so that a short retention does not count here.
    """
    busy, before = set(unfinished(context)), time.time() - 3600 * hours
    newest: dict[str, float] = {}
    for path, changed in context.files.times("runs").items():
        run = path.split("/")[1]
        newest[run] = max(changed, newest.get(run, 0.0))
    for run in all_runs(context):
        if run in busy or newest.get(run, 0.0) > before:
            continue
        kept = load_plan(context, run)
        if kept is not None and kept.head < context.head:
            Run(context, run).drop()
