"""Result rows as a table for people: a pure function of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

Row = dict[str, Any]

IDENTITY = (
    *("recording", "source", "split", "order", "prior", "votes"),
    *("adapt", "weigh"),
    *("confusion", "selector", "budget", "spending", "rule"),
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
    "checked": ("checked_accuracy", "{:.1f}"),
    "evaluations": ("evaluations", "{:,.0f}"),
}
SHED_FIRST = ("expected", "checked", "ΣPF", "BEC", "BTC", "PF/NF", "Δ", "evaluations")
"""Columns to leave out where there is no room, least important first."""
LEGEND = (
    "accuracy in percent; Δ: gained since the first model; ΣNF, ΣPF: negative and positive flips; "
    "BTC, BEC: backward trust and error compatibility; expected: accuracy by the beliefs; "
    "checked: with what they miss on the labelled set"
)


def table(rows: Sequence[Row], *, without: Sequence[str] = ()) -> Table:
    """Means over seeds; columns that say the same everywhere go into the caption."""
    measures = {heading: how for heading, how in MEASURES.items() if heading not in without}
    if mean(rows, "checked_accuracy") is None:
        measures.pop("checked", None)
    varying = [key for key in IDENTITY if key in ALWAYS or len({row.get(key) for row in rows}) > 1]
    # Text, not markup: a model may be called [v2].
    shown = Table(
        title=Text(_title(rows)),
        caption=Text(_caption(rows, varying)),
        box=SIMPLE_HEAD,
        header_style="bold",
    )
    for key in varying:
        shown.add_column(key, justify="right" if key == "budget" else "left", no_wrap=True)
    for heading in measures:
        shown.add_column(heading, justify="right", no_wrap=True)
    previous = None
    for identity, group in grouped(rows, IDENTITY):
        run = dict(zip(IDENTITY, identity, strict=True))
        if previous is not None and run["budget"] != previous["budget"]:
            shown.add_section()
        previous = run
        cells = [Text(_named(key, run[key])) for key in varying]
        shown.add_row(*cells, *(_shown(group, *measure) for measure in measures.values()))
    return shown


def grouped(
    rows: Iterable[Row], keys: Sequence[str]
) -> Iterable[tuple[tuple[Any, ...], list[Row]]]:
    """Rows that agree in ``keys``, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups.items()


def mean(rows: Sequence[Row], key: str) -> float | None:
    """The mean of a measure over rows; None where it is nowhere defined.

    PF/NF is the ratio of the sums: a mean of ratios would leave out the best rows, those without
    a negative flip.
    """
    if key == "pf_nf":
        negative = sum(row["negative_flips"] for row in rows)
        return sum(row["positive_flips"] for row in rows) / negative if negative else None
    known = [row[key] for row in rows if row.get(key) is not None]
    return fmean(known) if known else None


def _shown(rows: Sequence[Row], key: str, shape: str) -> str:
    value = mean(rows, key)
    if value is None:
        return "–"
    low, high = (mean(rows, f"{key}_{end}") for end in ("low", "high"))
    reach = "" if low is None or high is None else f" ± {(high - low) / 2:.1f}"
    return shape.format(value) + reach


def _named(key: str, value: Any) -> str:
    if key == "budget" and value is not None:
        return f"{100 * value:.4g}%"
    return "–" if value is None else str(value)


def _title(rows: Sequence[Row]) -> str:
    first = rows[0]
    return (
        f"{first['recording']}: {first['n']:,} items, {len(first['models'])} models"
        f" ({first['models'][0]} … {first['models'][-1]})"
    )


def _caption(rows: Sequence[Row], varying: Sequence[str]) -> str:
    seeds = sorted({row["seed"] for row in rows})
    same = [
        f"{key} {_named(key, rows[0][key])}"
        for key in IDENTITY
        if key not in varying and key != "recording" and rows[0].get(key) is not None
    ]
    repeated = f"mean of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    unlike = sorted({figure for row in rows for figure in row.get("unlike") or ()})
    told = f"\nthe target looks unlike the labelled set in: {', '.join(unlike)}" if unlike else ""
    return f"{', '.join([repeated, *same])}\n{LEGEND}{told}"
