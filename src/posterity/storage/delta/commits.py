"""Commit a change to a Delta Lake table: once, on what it was made for, or not at all.

A change states what must still hold when it becomes visible: the *fences* it names have the
numbers its author read, the files it retires are still part of the table, and none of its own
files may have been vacuumed. Another commit in between that leaves all of that as it was is no
conflict: the same change is committed on top of it.

Every commit carries a token. An object store may lose the answer to a request it has carried out;
the commit then looks like a conflict, and the token tells that it is our own.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from posterity.errors import CommitConflict, StoreError
from posterity.storage.failpoints import reach
from posterity.storage.files import Files

OWN = "posterity.commit"
VACUUMED = "posterity.vacuumed"
"""Files that were begun before this time (in milliseconds) and are not committed may be gone."""
TRIES = 100


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that is written but not yet, or already, part of a table."""

    path: str
    """Relative to the table."""
    size: int
    rows: int
    partition: dict[str, str | None]
    begun: float = field(default=float("inf"), compare=False)
    """When it was begun to be written, where that is known."""


@dataclass(frozen=True)
class Change:
    """What a commit does to a table."""

    adds: Sequence[DataFile] = ()
    removes: Sequence[DataFile] = ()
    fences: Sequence[tuple[str, int]] = ()
    replace: bool = False
    """Retire every file the table has."""
    data_change: bool = True

    def actions(self) -> list[AddAction | RemoveAction]:
        """As the table format takes it."""
        now, changed = int(time.time() * 1000), self.data_change
        adds = [
            AddAction(
                *(file.path, file.size, file.partition, now, changed),
                json.dumps({"numRecords": file.rows}),
            )
            for file in self.adds
        ]
        return adds + [
            RemoveAction(file.path, changed, now, file.size, file.partition)
            for file in self.removes
        ]

    def properties(self, token: str) -> CommitProperties:
        """Never retried by the library: it would commit on top of what this has not read."""
        return CommitProperties(
            custom_metadata={OWN: token},
            max_commit_retries=0,
            app_transactions=[Transaction(*fence) for fence in self.fences] or None,
        )

    @property
    def begun(self) -> float:
        """When the first of its files was begun, in milliseconds."""
        return min((file.begun for file in self.adds), default=float("inf")) * 1000


@dataclass(frozen=True)
class Place:
    """A table to commit to."""

    files: Files
    name: str
    schema: pa.Schema
    partition: str | None = None

    @property
    def uri(self) -> str:
        """Where the table lives."""
        return f"{self.files.url}/{self.name}"

    @property
    def by(self) -> list[str] | None:
        """The columns it is partitioned by."""
        return [self.partition] if self.partition else None

    def log_entry(self, version: int) -> str:
        """Where its log has a version."""
        return f"{self.name}/_delta_log/{version:020}.json"

    def exists(self) -> bool:
        """Whether anybody has made it."""
        # Of an old log only what follows the last checkpoint may be left.
        signs = (self.log_entry(0), f"{self.name}/_delta_log/_last_checkpoint")
        return any(self.files.size(sign) is not None for sign in signs)

    def sync(self, version: int) -> None:
        """delta-rs does not sync its log; without this a commit could outlive its own files."""
        self.files.sync(self.log_entry(version))


def commit(
    handle: DeltaTable,
    place: Place,
    change: Change,
    version: int,
    numbers: dict[str, int | None],
) -> None:
    """Make a change visible, or raise ``CommitConflict``.

    It was made for the ``version`` its author read, where the fences it names had ``numbers``;
    ``handle`` is the table as it is now, and is moved on.
    """
    token = uuid.uuid4().hex
    for attempt in range(TRIES):
        read = int(handle.version())
        _refuse_outdated(handle, place, change, numbers, again=read != version)
        check_files(place, change.adds)
        reach("commit.before")
        try:
            handle.create_write_transaction(
                list(change.actions()),
                "overwrite" if change.replace else "append",
                place.schema,
                place.by,
                commit_properties=change.properties(token),
            )
        except (DeltaError, OSError) as error:
            if not is_own(place, token, after=read):
                if not isinstance(error, CommitFailedError):
                    message = f"The table '{place.name}' cannot be changed: {error}."
                    raise StoreError(message) from None
                _refresh(handle, place)
                time.sleep(min(0.2, 0.002 * attempt))  # others are at it: not in step with them
                continue
        reach("commit.made")
        _refresh(handle, place)
        # Ours is one of these; others may have committed after it.
        for version in range(read + 1, int(handle.version()) + 1):
            place.sync(version)
        reach("commit.synced")
        return
    raise _conflict(place)


def _refresh(handle: DeltaTable, place: Place) -> None:
    try:
        handle.update_incremental()
    except (DeltaError, OSError) as error:
        raise StoreError(
            f"The table '{place.name}' cannot be read again: {error}.",
            hint="Nothing is lost; run the same command again.",
        ) from None


def create(place: Place, change: Change, description: str | None = None) -> bool:
    """Make a table with its first files, in one commit; False if there is one already.

    Not by the library's ``DeltaTable.create``: two at once both succeed, and the second commits
    its own columns on top of the first.
    """
    token = uuid.uuid4().hex
    check_files(place, change.adds)
    reach("commit.before")
    try:
        create_table_with_add_actions(
            place.uri,
            Schema.from_arrow(place.schema),
            list(change.actions()),  # type: ignore[arg-type]
            "error",
            place.by,
            description=description,
            storage_options=place.files.options,
            commit_properties=change.properties(token),
        )
    except (DeltaError, OSError) as error:
        if not is_own(place, token, after=-1):
            if place.exists():
                return False
            raise StoreError(f"The table '{place.name}' cannot be made: {error}.") from None
    reach("commit.made")
    place.sync(0)
    reach("commit.synced")
    return True


def _refuse_outdated(
    handle: DeltaTable,
    place: Place,
    change: Change,
    numbers: dict[str, int | None],
    *,
    again: bool,
) -> None:
    """Refuse a change that no longer is what its author meant."""
    vacuumed = handle.transaction_version(VACUUMED)
    if vacuumed is not None and change.begun <= vacuumed:
        raise _conflict(place)
    if not again:
        return
    # Others have committed. A change that replaces everything is about what they did too.
    if change.replace or any(handle.transaction_version(name) != numbers[name] for name in numbers):
        raise _conflict(place)
    if change.removes:
        there = set(pa.table(handle.get_add_actions(flatten=True)).column("path").to_pylist())
        if not {file.path for file in change.removes} <= there:
            raise _conflict(place)


def _conflict(place: Place) -> CommitConflict:
    return CommitConflict(
        f"Another process changed the table '{place.name}' in the meantime.",
        hint="Nothing was changed by this call; run it again.",
    )


def is_own(place: Place, token: str, *, after: int) -> bool:
    """Whether a commit after some version carries this token."""
    return any(told.get(OWN) == token for told in commits_after(place, after))


def commits_after(place: Place, version: int) -> Iterator[dict[str, Any]]:
    """What later commits say of themselves, as far as the log has them one by one."""
    while place.files.size(path := place.log_entry(version + 1)) is not None:
        for line in place.files.read(path).to_pybytes().splitlines():
            yield json.loads(line).get("commitInfo", {})
        version += 1


def check_files(place: Place, adds: Sequence[DataFile]) -> None:
    """Delta takes our word for it; a missing file would only show when somebody reads it."""
    for file in adds:
        size = place.files.size(f"{place.name}/{file.path}")
        if size is None:
            raise _conflict(place)  # it was vacuumed before it was committed
        if size != file.size:
            raise StoreError(f"'{file.path}' has {size} bytes where {file.size} were written.")
