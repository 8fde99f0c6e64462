"""Commit a step; what lost against another process is done again, on what there is by then."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from posterity.engine.ledger.context import HEAD, PURGED, Context
from posterity.engine.ledger.steps import Header
from posterity.errors import CommitConflict, Unlike
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.schema import HEADER_SHARD
from posterity.storage.delta.table import Table
from posterity.storage.files import LocalFiles

log = logging.getLogger(__name__)

TRIES = 20
LONGEST = 0.5
"""Seconds between two tries, at most."""

T = TypeVar("T")


def attempts(context: Context) -> Iterator[Context]:
    """The store to try a commit on, first as given, then as it is after each conflict.

    A caller that lost has to check whether the same work was committed by another process.
    """
    for tried in range(TRIES):
        yield context
        log.info("%s was changed by another process", context.files.root)
        # Out of step with whoever was in the way.
        time.sleep(random.uniform(0, min(LONGEST, 0.01 * 2**tried)))  # noqa: S311 no secret
        context = context.again()


def retried(
    context: Context,
    attempt: Callable[[Context], T],
    *,
    lost: type[CommitConflict] = CommitConflict,
) -> T:
    """Try until no other process is in the way, each time with the store as it is by then.

    ``lost``: what is tried again; ``Superseded``: only what could not be read any more.
    """
    for now in attempts(context):
        with suppress(lost):
            return attempt(now)
    raise CommitConflict(
        "Other processes change the store too often; this call changed nothing.",
        hint="Run it again.",
    )


@contextmanager
def discarded(table: Table, files: Sequence[DataFile]) -> Iterator[None]:
    """Delete files that were written in vain: another process was first, or the step is refused.

    What else can go wrong may go wrong after a commit.

    Not on an object store, where a request that is given up may be carried out later: its orphans
    are left to a vacuum.
    """
    try:
        yield
    except (CommitConflict, Unlike):
        for file in files if isinstance(table.files, LocalFiles) else ():
            table.files.delete(f"{table.name}/{file.path}")
        raise


def commit_step(context: Context, header: Header, files: Sequence[DataFile]) -> None:
    """Header and all shards, visible together or not at all.

    Not after a purge that it has not read: rows of purged items would be back, without the votes
    they were decided with.
    """
    label = f"step-{header.step:06}"
    own = context.layout.ledger.write(header.to_row(), label=label, partition=HEADER_SHARD)
    context.ledger.commit([own, *files], fences=[(HEAD, header.step)], unmoved=[PURGED])
    log.info("%s: %s", context.files.root, header)
    for warning in header.warnings:
        log.warning("%s: step %d: %s", context.files.root, header.step, warning)
