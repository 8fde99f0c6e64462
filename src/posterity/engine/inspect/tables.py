"""What a store holds, as Python shows it: its models, its steps, an item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from posterity import _text
from posterity._text import percent
from posterity.engine.inspect import queries
from posterity.engine.inspect.explain import explain
from posterity.engine.inspect.explanation import Explanation, in_share
from posterity.engine.items.lookup import find_rows, id_array
from posterity.engine.items.payload import Payload
from posterity.engine.labelled.register import Registration, registered
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import Current, ShardHistory
from posterity.engine.ledger.reports import expected_accuracy
from posterity.engine.ledger.steps import Header

LONGEST = 80
"""Characters of a payload value that are shown."""
MOST = 4
"""Classes whose belief is looked at."""
LEAST = 0.005
"""Others that are believed less are not shown."""


@dataclass(frozen=True, repr=False)
class Steps(Sequence[Header]):
    """The steps of a store, in order."""

    headers: tuple[Header, ...]

    @overload
    def __getitem__(self, at: int) -> Header: ...
    @overload
    def __getitem__(self, at: slice) -> Steps: ...
    def __getitem__(self, at: int | slice) -> Header | Steps:
        return Steps(self.headers[at]) if isinstance(at, slice) else self.headers[at]

    def __len__(self) -> int:
        return len(self.headers)

    def rows(self) -> list[dict[str, Any]]:
        """What was asked for, what it spent, what it changed: a row for each step."""
        return [
            {
                "step": header.step,
                "kind": header.kind,
                "model": header.what,
                "budget": header.budget,
                "rule": header.rule,
                "evaluations": header.report.get("evaluations"),
                "flips": header.flips,
                "pending": header.report.get("pending"),
                "accuracy": _accuracy(header),
                "time": header.time,
            }
            for header in self.headers
        ]

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {"steps": [asdict(header) for header in self.headers]}

    def __repr__(self) -> str:
        return _text.text_table(self.rows()) or "no steps yet"

    def _repr_html_(self) -> str:
        return _text.html_table(self.rows()) or "no steps yet"


def _accuracy(header: Header) -> str | None:
    """As expected after a step; ``?``: not checked on labelled items, ``!``: they look unlike."""
    found = expected_accuracy(header)
    if found is None or found.low is None:
        return None if found is None else f"{percent(**found.to_dict())} ?"
    return percent(**found.to_dict()) + (" !" if header.unlike else "")


class Models(Mapping[str, Registration]):
    """The models of a store by name, in their order of arrival, and how well each is known."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __getitem__(self, name: str) -> Registration:
        return registered(self._context, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._context.models)

    def __len__(self) -> int:
        return len(self._context.models)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each model."""
        votes = dict.fromkeys(self, 0)
        for header in self._context.live_updates:
            votes[header.voter] += header.evaluations
        return [
            {
                "model": name,
                "arrival": found.arrival,
                "accuracy": found.shown_accuracy,
                "labelled": found.labelled,
                "votes": votes[name],
                "cost": found.cost,
                "source": found.source,
            }
            for name, found in self.items()
        ]

    def __repr__(self) -> str:
        return _text.text_table(self.rows()) or "no models yet"

    def _repr_html_(self) -> str:
        return _text.html_table(self.rows()) or "no models yet"


class Item:
    """An item of a store, as it was when it was looked up; each part is read when asked for."""

    def __init__(self, context: Context, id: str | int) -> None:  # noqa: A002 the user's word
        self._context, self.id = context, id
        (self.row,) = find_rows(context, id_array([id])).tolist()

    @cached_property
    def _now(self) -> Current:
        shard = self.row // self._context.description.shard_rows
        return ShardHistory.of_row(self._context.ledger, shard, self.row).current([], 0.0)

    @property
    def label(self) -> Any:
        """Its stored label; None while there is none."""
        (name,) = self._context.classes.decode([int(self._now.label[0])])
        return name

    @property
    def belief(self) -> float | None:
        """In its label."""
        return None if self.label is None else float(self._now.belief[0])

    @property
    def proposed(self) -> Any:
        """The class of a pending flip; None where none is pending."""
        (name,) = self._context.classes.decode([int(self._now.proposed[0])])
        return name

    @cached_property
    def beliefs(self) -> dict[Any, float]:
        """The most believed classes, as the votes have it."""
        (found,) = queries.beliefs(self._context, [self.id], top=MOST).to_pylist()
        return dict(zip(found["classes"], found["beliefs"], strict=True))

    @cached_property
    def payload(self) -> dict[str, Any]:
        """What the store was given with it."""
        _, table = Payload(self._context).of(np.array([self.row]))
        (held,) = table.drop_columns(["id"]).to_pylist() or [{}]
        return dict(held)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """What happened to it: a row for each step that touched it."""
        return queries.history(self._context, self.id, self.row)

    @cached_property
    def explanation(self) -> Explanation:
        """Why its label moved or did not, and what would change it; print it."""
        return explain(self._context, self.id, self.row)

    def _rows(self) -> list[dict[str, Any]]:
        names = ("step", "kind", "model", "vote", "label", "belief")
        rows = [{name: row[name] for name in names} for row in self.history]
        return [row | {"belief": in_share(row["belief"])} for row in rows]

    def _told(self) -> list[str]:
        if self.label is None:
            told = [f"{self.id} has no label yet"]
        else:
            others = [
                f"{name} {in_share(belief)}"
                for name, belief in self.beliefs.items()
                if name != self.label and belief >= LEAST
            ]
            beside = f" ({', '.join(others)})" if others else ""
            belief = in_share(self.belief or 0.0)
            told = [f"{self.id} is labelled {self.label}, believed {belief}{beside}"]
        if self.proposed is not None:
            told.append(f"a flip to {self.proposed} is pending")
        return told

    def __repr__(self) -> str:
        told = [
            *self._told(),
            *(f"  {name}: {_cut(value)}" for name, value in self.payload.items()),
        ]
        return _text.lines([*told, _text.text_table(self._rows())]).translate(_text.SHOWN_IN_TEXTS)

    def _repr_html_(self) -> str:
        payload = {name: _cut(value) for name, value in self.payload.items()}
        told = _text.html_lines(self._told()[1:])
        return _text.html_page(self._told()[0], payload, told, _text.html_table(self._rows()))


def _cut(value: Any) -> str:
    """A value of a payload on one line, and not longer than a line."""
    text = f"{len(value):,} bytes" if isinstance(value, bytes) else " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
