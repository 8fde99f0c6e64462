"""Steps: their headers in the ledger, and which of them count."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from posterity.errors import StoreError
from posterity.storage.delta.commits import DataFile
from posterity.storage.delta.schema import HEADER_SHARD, LEDGER
from posterity.storage.delta.table import Snapshot
from posterity.validation.shift import Difference

UPDATE, REVERT, SETTLE, REVIEW = "update", "revert", "settle", "review"
REDECIDE, TUNE = "redecide", "tune"
DECISIVE = (UPDATE, SETTLE, REDECIDE)
"""The kinds of steps after which no flip that was pending before is pending any more."""


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
    """Whose votes an update has, or with which model the truths of a review were given."""
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
    pending: list[int] = field(default_factory=list)
    """The shards where the step has left flips pending."""
    learn: bool = False
    """Whether the answers of a review are in the labelled set."""
    software: str = ""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def voter(self) -> str:
        """The model whose votes an update has; empty for other steps, which have none."""
        return self.model or "" if self.kind == UPDATE else ""

    @property
    def gives_truth(self) -> bool:
        """Whether it is a review whose answers are the truth a model was given with."""
        return self.kind == REVIEW and self.model is not None

    @property
    def evaluations(self) -> int:
        """How many votes it has."""
        return int(self.report.get("evaluations", 0))

    @property
    def asked(self) -> int:
        """How many items its model was asked about, failures included."""
        return self.evaluations + int(self.report.get("errors", 0))

    @property
    def flips(self) -> int:
        """How many labels it changed, without first ones."""
        return int(self.report.get("flips", self.report.get("changed", 0)))

    @property
    def answers(self) -> int:
        """How many items a review has decided."""
        return int(self.report["items"])

    @property
    def removed(self) -> int:
        """How many items had been removed by then."""
        return int(self.report["held"]["removed"])

    @property
    def share(self) -> float:
        """The share of the items there were that it has votes on, but for those with a label that
        no vote decides.
        """
        decided = int(self.report["held"]["pinned"])
        free = self.evaluations - int(self.report.get("pinned", 0))
        return float(min(1.0, free / max(1, self.items - self.removed - decided)))

    @property
    def differences(self) -> list[Difference]:
        """Between the items it looked at and the labelled set."""
        return [Difference(**one) for one in self.report.get("differences", ())]

    @property
    def unlike(self) -> list[Difference]:
        """Those that mean that its items are unlike the labelled set."""
        return [one for one in self.differences if one.unlike]

    def to_row(self) -> pa.Table:
        """The header as a row of the ledger."""
        columns: dict[str, list[Any]] = {name: [None] for name in LEDGER.names}
        columns |= {"shard": [HEADER_SHARD], "step": [self.step]}
        columns["header"] = [json.dumps(asdict(self), ensure_ascii=False)]
        return pa.table(columns, schema=LEDGER)


def read_headers(ledger: Snapshot) -> list[Header]:
    """All headers, by step."""
    rows = ledger.read(["header"], HEADER_SHARD).column("header").to_pylist()
    try:
        found = [Header(**json.loads(text)) for text in rows]
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"A header of the ledger is damaged: {error}.", hint="Restore the store from a copy."
        ) from None
    return sorted(found, key=lambda header: header.step)


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


def _live(headers: Sequence[Header], kind: str) -> list[Header]:
    """The steps of a kind that no revert has undone, in order."""
    undone = masked(headers)
    return [header for header in headers if header.kind == kind and header.step not in undone]


def live_updates(headers: Sequence[Header]) -> list[Header]:
    """The updates whose votes count, in order."""
    return _live(headers, UPDATE)


def failed_rows(headers: Sequence[Header], model: str) -> list[int]:
    """The items a model has failed on in the steps that count.

    >>> failed_rows([Header(0, UPDATE, "a", model="vit", failed=[7, 3])], "vit")
    [3, 7]
    """
    live = live_updates(headers)
    return sorted({row for step in live if step.model == model for row in step.failed})


def live_reviews(headers: Sequence[Header]) -> list[Header]:
    """The reviews whose answers count, in order.

    >>> steps = [Header(0, REVIEW, "a"), Header(1, REVIEW, "b"), Header(2, REVERT, "c", reverts=0)]
    >>> [header.step for header in live_reviews(steps)]
    [1]
    """
    return _live(headers, REVIEW)


def live_tunes(headers: Sequence[Header]) -> list[Header]:
    """The steps that made a policy the store's own, in order; the last one is in force."""
    return _live(headers, TUNE)


def without_policies(headers: Sequence[Header]) -> list[Header]:
    """Steps but for policies and their reverts, which change nothing of what was done.

    >>> headers = [Header(0, UPDATE, "a"), Header(1, TUNE, "b"), Header(2, REVERT, "c", reverts=1)]
    >>> [header.step for header in without_policies(headers)]
    [0]
    """
    policies = {header.step for header in headers if header.kind == TUNE}
    return [one for one in headers if one.step not in policies and one.reverts not in policies]


def live_voteless(headers: Sequence[Header]) -> list[tuple[int, Header]]:
    """The settles and redecides that count, each after how many updates whose votes count.

    >>> steps = [Header(0, UPDATE, "a"), Header(1, SETTLE, "b"), Header(2, UPDATE, "c")]
    >>> [place for place, _ in live_voteless(steps)]
    [1]
    >>> live_voteless([*steps, Header(3, REVERT, "d", reverts=1)])
    []
    """
    live = [header.step for header in live_updates(headers)]
    found = [*_live(headers, SETTLE), *_live(headers, REDECIDE)]
    return [
        (sum(step < header.step for step in live), header)
        for header in sorted(found, key=lambda header: header.step)
    ]


def origin(headers: Sequence[Header], step: int) -> int:
    """The step that is undone, or counts again, when a step, perhaps a revert, is reverted.

    >>> origin([Header(0, UPDATE, "a"), Header(1, REVERT, "b", reverts=0)], 1)
    0
    """
    reverts = {header.step: header.reverts for header in headers if header.kind == REVERT}
    while (target := reverts.get(step)) is not None:
        step = target
    return step


def last_step(ledger: Snapshot, file: DataFile) -> int | None:
    """The last step a file of the ledger has rows of: its name says so, or its statistics."""
    named = re.search(r"(?:^|/)step-([0-9]+)-[0-9a-f]+\.parquet$", file.path)
    return int(named[1]) if named else ledger.highest([file], "step")


def reason(header: Header, *, voted: bool) -> str:
    """Why a step changes labels, with a vote or without, in a form that does not change."""
    if header.kind == REVERT:
        return f"revert of step {header.reverts}"
    if header.kind == SETTLE:
        return "pending flip, settled"
    if header.kind == REVIEW:
        return f"truth given with {header.model}" if header.gives_truth else "answer of a person"
    if header.kind == REDECIDE:
        return f"decided again under {header.rule}"
    if header.kind == TUNE:
        return f"policy {header.selector}, {header.rule}"
    if not voted:
        return f"pending flip, no vote of {header.model}"
    return f"vote of {header.model} under {header.rule}"
