"""Cells and tables of the page: numbers as text, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.paper.experiments import RULES
from benchmarks.paper.rows import SHORT, Row, mean, where


def settings_table(runs: Sequence[Row], keys: tuple[str, str]) -> str:
    """Accuracy / ΣNF (expected) by two settings and the budget, a column a rule."""
    lines = [f"| {keys[0]} | {keys[1]} | budget | " + " | ".join(SHORT[r] for r in RULES) + " |"]
    lines.append("|---|---|---:|" + "---:|" * len(RULES))
    settings = dict.fromkeys((row[keys[0]], row[keys[1]]) for row in runs)
    for first, second in settings:
        same = where(runs, **{keys[0]: first, keys[1]: second})
        for budget in budgets(same):
            cells = [cell(where(same, budget=budget, rule=rule)) for rule in RULES]
            lines.append(f"| {first} | {second} | {budget:.0%} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(runs: Sequence[Row]) -> str:
    """Accuracy / ΣNF (expected accuracy)."""
    accuracy = shown(mean(runs, "accuracy"), "{:.1f}")
    flips = shown(mean(runs, "negative_flips"), "{:,.0f}")
    return f"{accuracy} / {flips} ({shown(mean(runs, 'expected_accuracy'), '{:.0f}')})"


def pair(ours: Sequence[Row], theirs: Sequence[Row], key: str, shape: str) -> str:
    """Ours, and the paper's where it has one."""
    own = shown(mean(ours, key), shape)
    return f"{own} \\| {shown(theirs[0][key], shape)}" if theirs else own


def shown(value: float | None, shape: str) -> str:
    """A number as text; a dash where it is not defined."""
    return "–" if value is None else shape.format(value)


def budgets(runs: Sequence[Row]) -> list[float]:
    """The budgets that occur, ascending."""
    return sorted({row["budget"] for row in runs})
