"""One item: its votes over time, the belief after each, and why its label moved or did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from posterity.engine.inspect import explain, queries
from posterity.engine.items.lookup import find_rows, id_array
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.decide import all_beliefs
from posterity.engine.ledger.history import ShardHistory, votes_until
from posterity.engine.ledger.steps import UPDATE
from posterity.engine.steps import WORTH
from posterity.engine.steps.review_queue import Queue, queue
from posterity.method.data.arrays import Floats
from posterity.method.data.votes import MISSING
from posterity.web.report.payloads import payloads_of, with_payloads

CLASSES = 6
"""Classes whose belief is followed; the others are summed up."""
LITTLE = 0.02
"""Believed less than this all the time, a class nobody voted for is one of the others."""


def item_view(context: Context, item: str | int, pictures: Path | None = None) -> dict[str, Any]:
    """The story of an item."""
    (row,) = find_rows(context, id_array([item])).tolist()
    told = explain.explain(context, item, row)
    return {
        "id": item,
        "row": row,
        "payload": payloads_of(context, np.array([row]), pictures).get(row, []),
        "explanation": told.to_dict(),
        "told": str(told),
        "history": queries.history(context, item, row),
        "beliefs": _over_time(context, row),
    }


def _over_time(context: Context, row: int) -> dict[str, Any]:
    """The belief in some classes after each vote, as each step's own fit had it."""
    shard = row // context.description.shard_rows
    history = ShardHistory.of_row(context.ledger, shard, row)
    steps, each, voted = [], [], []
    for header in context.headers:
        written = history.steps.get(header.step)
        if header.kind != UPDATE or written is None or written.vote[0] == MISSING:
            continue
        believed = _believed_after(context, history, header.step)
        steps.append(header.step)
        each.append(believed)
        voted.append(int(written.vote[0]))
    if not each:
        return {"steps": [], "classes": [], "beliefs": [], "rest": [], "entropy": []}
    table = np.array(each)
    last, most = table[-1], table.max(axis=0)
    # Those voted for, and those believed most at any time; in the order of what is believed now.
    often = np.argsort(-most, kind="stable")
    often = often[most[often] >= LITTLE].tolist()
    first = np.array(list(dict.fromkeys([*voted[::-1], *often]))[:CLASSES])
    codes = first[np.argsort(-last[first], kind="stable")]
    safe = np.where(table > 0, table, 1.0)
    return {
        "steps": steps,
        "classes": [str(context.classes.names[code]) for code in codes.tolist()],
        "beliefs": table[:, codes].T.tolist(),
        "rest": (1 - table[:, codes].sum(axis=1)).clip(0).tolist(),
        "entropy": (-(table * np.log(safe)).sum(axis=1)).tolist(),
    }


def _believed_after(context: Context, history: ShardHistory, step: int) -> Floats:
    steps, votes = votes_until(context, history, step)
    believed: Floats = all_beliefs(steps[-1].fit, steps, votes, 1)[0]
    # Classes that were appended since were not believed then.
    return np.pad(believed, (0, len(context.classes) - len(believed)))


CHOICES = 5
"""Classes that a key answers with."""


def review_view(
    context: Context, count: int, order: str = WORTH, pictures: Path | None = None
) -> dict[str, Any]:
    """The next items to ask a person about, each with its payload and its likely classes."""
    asked = queue(context, count=count, order=order, where=None)
    items = with_payloads(context, asked.items.to_pylist(), pictures)
    choices = _choices(context, asked)
    for item in items:
        item["choices"] = choices.get(item["row"], [])
    return {
        "store": context.description.store,
        "order": asked.order,
        "eligible": asked.eligible,
        "worth": asked.worth,
        "classes": [str(name) for name in context.classes.names],
        "items": items,
    }


def _choices(context: Context, asked: Queue) -> dict[int, list[dict[str, Any]]]:
    """The label, and the classes believed most besides."""
    if not len(asked):
        return {}
    found = {}
    labels = dict(
        zip(*(asked.items.column(name).to_pylist() for name in ("row", "label")), strict=True)
    )
    for row in queries.beliefs(context, asked.items.column("id"), top=CHOICES).to_pylist():
        believed = dict(zip(row["classes"], row["beliefs"], strict=True))
        label = labels[row["row"]]
        names = list(dict.fromkeys([*([] if label is None else [label]), *believed]))[:CHOICES]
        found[row["row"]] = [{"class": str(name), "belief": believed.get(name)} for name in names]
    return found
