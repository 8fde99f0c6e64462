"""Figures like the paper's: each a pure function of result rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.paper.rows import SHORT, Row, cumulated, curve, mean, where

mpl.use("Agg")

COLOURS = {
    "replace": "#8c8c8c",
    "majority-vote": "#e08214",
    "max-belief": "#2166ac",
    "max-belief-min-entropy": "#67a9cf",
    "cost-ratio:2": "#a6dba0",
    "cost-ratio:5": "#5aae61",
    "cost-ratio:10": "#1b7837",
    "oracle": "#000000",
}
DRAWN = [rule for rule in COLOURS if rule != "oracle"]
WIDTHS = {"replace": 3.2, "max-belief": 3.2}
"""Drawn first and wide, so that they show where Majority or MBME lies on top of them."""
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 9,
    "legend.frameon": False,
    "figure.dpi": 110,
}
EVOLUTION = {
    "Δ accuracy (points)": "delta_accuracy",
    "Σ negative flips": "negative_flips",
    "BTC (%)": "btc",
    "BEC (%)": "bec",
}


def evolution(steps: Sequence[Row], path: Path) -> None:
    """Temporal evolution of Δaccuracy, ΣNF, BTC and BEC at a small and a full budget."""
    budgets = (0.1, 1.0)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(2, 4, figsize=(12, 5.2), sharex=True, layout="constrained")
        for line, budget in zip(axes, budgets, strict=True):
            chosen = where(steps, budget=budget, selector="entropy", confusion="full")
            for axis, (title, key) in zip(line, EVOLUTION.items(), strict=True):
                for rule in DRAWN:
                    _evolve(axis, where(chosen, rule=rule), key, rule)
                axis.set_title(f"{title}, {budget:.0%}")
        for axis in axes[-1]:
            axis.set_xlabel("step")
        _save(figure, path, DRAWN)


Panels = dict[str, tuple[dict[str, str], dict[str, str]]]
"""Title → the settings drawn solid and dashed."""


def frontier(
    rows: Sequence[Row],
    path: Path,
    panels: Panels,
    *,
    scale: dict[str, float] | None = None,
) -> None:
    """Final Δaccuracy against ΣNF over budgets; a panel compares two settings, solid and dashed.

    ``scale`` multiplies the negative flips of a split, to compare targets of different size.
    """
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(panels), figsize=(5.2 * len(panels), 4.2), layout="constrained", squeeze=False
        )
        for axis, (title, (solid, dashed)) in zip(axes[0], panels.items(), strict=True):
            for rule in DRAWN:
                for setting, style in ((solid, "-"), (dashed, "--")):
                    _frontier(axis, where(rows, rule=rule, **setting), rule, style, scale or {})
            axis.set_xscale("log")
            axis.set_xlabel("Σ negative flips")
            axis.set_title(title)
        axes[0][0].set_ylabel("Δ accuracy (points)")
        _save(figure, path, DRAWN)


def arrivals(steps: Sequence[Row], path: Path, panels: dict[str, list[str]], budget: float) -> None:
    """Δaccuracy and ΣNF over time where models do not improve."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            2, len(panels), figsize=(4.6 * len(panels), 5.2), sharex=True, layout="constrained"
        )
        for column, (title, orders) in enumerate(panels.items()):
            chosen = where(steps, order=orders, budget=budget, confusion="full")
            for rule in DRAWN:
                of_rule = where(chosen, rule=rule)
                _evolve(axes[0][column], of_rule, "delta_accuracy", rule)
                _evolve(axes[1][column], of_rule, "negative_flips", rule)
            axes[0][column].set_title(f"{title}, {budget:.0%}")
            axes[1][column].set_xlabel("step")
        axes[0][0].set_ylabel("Δ accuracy (points)")
        axes[1][0].set_ylabel("Σ negative flips")
        _save(figure, path, DRAWN)


def entropies(histogram: Sequence[Row], path: Path) -> None:
    """Right and wrong labels by the entropy of their belief, after every second step."""
    numbers = sorted({row["step"] for row in histogram})
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            3, 3, figsize=(9, 6.5), sharex=True, sharey=True, layout="constrained"
        )
        for axis, number in zip(axes.flat, numbers, strict=True):
            bins = where(histogram, step=number)
            low = [row["entropy"] for row in bins]
            width = low[1] - low[0]
            right = [row["right"] for row in bins]
            axis.bar(low, right, width, align="edge", color="#e08214", label="right")
            axis.bar(
                low,
                [row["wrong"] for row in bins],
                width,
                bottom=right,
                align="edge",
                color="#2166ac",
                label="wrong",
            )
            axis.set_yscale("symlog", linthresh=10)
            axis.set_title(f"t = {number}")
        for axis in axes[-1]:
            axis.set_xlabel("entropy (nats)")
        axes[1][0].set_ylabel("items")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figure.savefig(path)
        plt.close(figure)


def _evolve(axis: Axes, steps: Sequence[Row], key: str, rule: str) -> None:
    if key == "negative_flips":
        axis.set_yscale("log")
        # No flips yet has no place on a logarithmic axis.
        values: Any = [flips or None for flips in cumulated(steps, key)[1:]]
    else:
        values = curve(steps, key)[1:]
    axis.plot(range(1, len(values) + 1), values, color=COLOURS[rule], lw=WIDTHS.get(rule, 1.3))


def _frontier(
    axis: Axes, rows: Sequence[Row], rule: str, style: str, scale: dict[str, float]
) -> None:
    budgets = sorted({row["budget"] for row in rows})
    each = [where(rows, budget=budget) for budget in budgets]
    factor = scale.get(rows[0]["split"], 1.0) if rows else 1.0
    flips = [factor * (mean(same, "negative_flips") or 0) for same in each]
    gains: Any = [mean(same, "delta_accuracy") for same in each]
    # A larger marker is a larger budget.
    axis.plot(flips, gains, style, color=COLOURS[rule], lw=1.2)
    axis.scatter(flips, gains, s=[8 + 40 * budget for budget in budgets], color=COLOURS[rule])


def _save(figure: Figure, path: Path, rules: Sequence[str]) -> None:
    handles = [Line2D([], [], color=COLOURS[rule], label=SHORT[rule]) for rule in rules]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(rules))
    figure.savefig(path)
    plt.close(figure)
