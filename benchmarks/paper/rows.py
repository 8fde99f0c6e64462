"""Reading result rows back, and asking them questions."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from posterity.replay.table import Row, mean

__all__ = ["PUBLISHED", "SHORT", "Row", "cumulated", "curve", "mean", "published", "read", "where"]

PUBLISHED = Path(__file__).with_name("published.csv")

SHORT = {
    "replace": "Replace",
    "majority-vote": "Majority",
    "max-belief": "MB",
    "max-belief-min-entropy": "MBME",
    "cost-ratio:2": "CR 2",
    "cost-ratio:5": "CR 5",
    "cost-ratio:10": "CR 10",
    "oracle": "Oracle",
}
"""The paper's names."""


def read(path: Path, kind: str) -> list[Row]:
    """The rows of one kind (``run`` or ``step``) in a results file."""
    return [row for row in pq.read_table(path).to_pylist() if row["kind"] == kind]


def published() -> list[Row]:
    """The paper's own numbers."""
    lines = [line for line in PUBLISHED.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    text = ("target", "confusion", "votes", "selector", "rule")
    return [
        {
            key: value if key in text else float(value) if value else None
            for key, value in row.items()
        }
        for row in csv.DictReader(lines)
    ]


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows in which every named column holds one of the wanted values."""
    return [
        row
        for row in rows
        if all(
            row[key] in value if isinstance(value, (list, tuple)) else row[key] == value
            for key, value in wanted.items()
        )
    ]


def cumulated(steps: Sequence[Row], key: str) -> list[float]:
    """A running sum over steps, averaged over seeds."""
    numbers = sorted({row["step"] for row in steps})
    each = [mean(where(steps, step=number), key) or 0.0 for number in numbers]
    return [sum(each[: at + 1]) for at in range(len(each))]


def curve(steps: Sequence[Row], key: str) -> list[float | None]:
    """A measure at each step, averaged over seeds."""
    numbers = sorted({row["step"] for row in steps})
    return [mean(where(steps, step=number), key) for number in numbers]
