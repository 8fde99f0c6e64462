"""Result rows as a table for people: a pure function of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

IDENTITY = (
    "recording",
    "source",
    "order",
    "prior",
    "votes",
    "confusion",
    "selector",
    "budget",
    "rule",
)
ALWAYS = ("budget", "rule")
MEASURES = {
    "accuracy": ("accuracy", "{:.1f}"),
    "Δ": ("delta_accuracy", "{:+.1f}"),
    "ΣNF": ("negative_flips", "{:,.0f}"),
    "ΣPF": ("positive_flips", "{:,.0f}"),
    "PF/NF": ("pf_nf", "{:.1f}"),
    "BTC": ("btc", "{:.2f}"),
    "BEC": ("bec", "{:.2f}"),
    "expected": ("expected_accuracy", "{:.1f}"),
    "evaluations": ("evaluations", "{:,.0f}"),
}

SHED_FIRST = ("expected", "ΣPF", "BEC", "BTC", "PF/NF")
"""Columns to leave out where there is no room, least important first."""


def table(rows: Sequence[dict[str, Any]], *, without: Sequence[str] = ()) -> Table:
    """Means over seeds; columns that say the same everywhere go into the caption."""
    measures = {heading: how for heading, how in MEASURES.items() if heading not in without}
    varying = [key for key in IDENTITY if key in ALWAYS or len({row[key] for row in rows}) > 1]
    shown = Table(
        title=_title(rows), caption=_caption(rows, varying), box=SIMPLE_HEAD, header_style="bold"
    )
    for key in varying:
        shown.add_column(key, justify="right" if key == "budget" else "left")
    for heading in measures:
        shown.add_column(heading, justify="right")
    previous = None
    for identity, group in grouped(rows, IDENTITY):
        run = dict(zip(IDENTITY, identity, strict=True))
        if previous is not None and run["budget"] != previous["budget"]:
            shown.add_section()
        previous = run
        cells = [_named(key, run[key]) for key in varying]
        shown.add_row(*cells, *(mean(group, *measure) for measure in measures.values()))
    return shown


def grouped(
    rows: Iterable[dict[str, Any]], keys: Sequence[str]
) -> Iterable[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Rows that agree in ``keys``, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups.items()


def mean(rows: Iterable[dict[str, Any]], key: str, shape: str) -> str:
    """The mean of a measure over rows as text; a dash where it is not defined."""
    known = [row[key] for row in rows if row[key] is not None]
    return shape.format(fmean(known)) if known else "–"


def _named(key: str, value: Any) -> str:
    if key == "budget":
        return f"{100 * value:g}%"
    return "–" if value is None else str(value)


def _title(rows: Sequence[dict[str, Any]]) -> str:
    first = rows[0]
    return (
        f"{first['recording']}: {first['n']:,} items, {len(first['models'])} models"
        f" ({first['models'][0]} … {first['models'][-1]})"
    )


def _caption(rows: Sequence[dict[str, Any]], varying: Sequence[str]) -> str:
    first = rows[0]
    seeds = sorted({row["seed"] for row in rows})
    same = [
        f"{key} {_named(key, first[key])}"
        for key in IDENTITY
        if key not in varying and key != "recording" and first[key] is not None
    ]
    repeated = f"mean of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    split = [] if first["split"] is None else [f"split {first['split']}"]
    return ", ".join([*split, repeated, *same])
