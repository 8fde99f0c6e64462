"""Steps: their headers in the ledger, and which of them count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from posterity.tables.delta import Snapshot
from posterity.tables.layout import HEADER_SHARD, LEDGER

UPDATE, REVERT = "update", "revert"


@dataclass(frozen=True)
class Header:
    """What a step was: one row of the ledger a step, written with the step's own commit."""

    step: int
    kind: str
    run: str
    """The id of the run that made it; the same run cannot make two steps."""
    request: str = ""
    """A digest of what was asked for, so that asking twice does the work once."""
    model: str | None = None
    selector: str | None = None
    rule: str | None = None
    budget: str | None = None
    where: str | None = None
    seed: int = 0
    reverts: int | None = None
    items: int = 0
    """Rows in the store when the step was planned."""
    fit: dict[str, Any] = field(default_factory=dict)
    """The belief parameters the step decided with."""
    report: dict[str, Any] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    """Rows the model failed on; they can be tried again."""
    software: str = ""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_row(self) -> pa.Table:
        """The header as a row of the ledger."""
        columns: dict[str, list[Any]] = {name: [None] for name in LEDGER.names}
        columns |= {"shard": [HEADER_SHARD], "step": [self.step]}
        columns["header"] = [json.dumps(asdict(self), ensure_ascii=False)]
        return pa.table(columns, schema=LEDGER)


def read_headers(ledger: Snapshot) -> list[Header]:
    """All headers, by step."""
    rows = ledger.read(["header"], HEADER_SHARD).column("header").to_pylist()
    return sorted((Header(**json.loads(text)) for text in rows), key=lambda header: header.step)


def masked(headers: Sequence[Header]) -> set[int]:
    """Steps undone by a revert that still counts; a revert can be reverted.

    >>> steps = [Header(0, UPDATE, "a"), Header(1, REVERT, "b", reverts=0)]
    >>> masked(steps), masked([*steps, Header(2, REVERT, "c", reverts=1)])
    ({0}, {1})
    """
    undone: set[int] = set()
    for header in sorted(headers, key=lambda header: -header.step):
        if header.kind == REVERT and header.step not in undone and header.reverts is not None:
            undone.add(header.reverts)
    return undone


def live_updates(headers: Iterable[Header]) -> list[Header]:
    """The updates whose votes count, in order."""
    listed = list(headers)
    undone = masked(listed)
    return [header for header in listed if header.kind == UPDATE and header.step not in undone]
