"""The queue of a review: items a person should look at, with all that helps to answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from posterity import worth
from posterity.engine import reading
from posterity.engine.context import Context
from posterity.engine.queues import Queue, queue
from posterity.report.payloads import payloads_of

CHOICES = 5
"""Classes that a key answers with."""


def review_view(
    context: Context, count: int, order: str = worth.WORTH, pictures: Path | None = None
) -> dict[str, Any]:
    """The next items to ask a person about, each with its payload and its likely classes."""
    asked = queue(context, count=count, order=order, where=None)
    items = asked.items.to_pylist()
    rows = np.array([item["row"] for item in items], dtype=np.int64)
    payloads = payloads_of(context, rows, pictures)
    choices = _choices(context, asked)
    for item in items:
        item["payload"] = payloads.get(item["row"], [])
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
    for row in reading.beliefs(context, asked.items.column("id"), top=CHOICES).to_pylist():
        believed = dict(zip(row["classes"], row["beliefs"], strict=True))
        label = labels[row["row"]]
        names = list(dict.fromkeys([label, *believed]))[:CHOICES]
        found[row["row"]] = [{"class": str(name), "belief": believed.get(name)} for name in names]
    return found
