"""Pictures, with the ``plots`` extra: the one module that knows Matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posterity._whole import written_whole
from posterity.errors import InvalidParameter, MissingExtra
from posterity.reliability import Reliability

SUFFIXES = (".png", ".svg", ".pdf")
FEW = 10
"""Of fewer items a share says nothing that could be drawn."""
BLUE, ORANGE, GREY = "#2166ac", "#e08214", "#8c8c8c"
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "svg.hashsalt": "p",
}


def check_picture(path: Path) -> None:
    """Refuse a file whose name does not say how to draw it."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter.of("plot", "a .png, .svg or .pdf file", str(path))


def reliability(labels: Reliability, best: Reliability, path: Path) -> None:
    """Share right against belief, of stored labels and of most believed classes; how many below."""
    check_picture(path)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra.of("A picture", "plots") from None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5, 6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
        _draw(upper, best, ORANGE, "most believed class", "s--", 3)
        _draw(upper, labels, BLUE, "stored label", "o-", 5)
        upper.set(ylabel="share that is right", xlim=(0, 1), ylim=(0, 1.02))
        upper.legend(loc="upper left", frameon=False)
        rows = labels.bins
        middles = [(row["from"] + row["to"]) / 2 for row in rows]
        lower.bar(middles, [row["items"] for row in rows], width=0.09, color=BLUE, alpha=0.6)
        lower.set(xlabel="belief", ylabel="labelled items")
        with written_whole(path) as beside:
            figure.savefig(beside, format=path.suffix.lower()[1:], dpi=150)


def _draw(axes: Any, found: Reliability, colour: str, name: str, style: str, size: int) -> None:
    rows = [row for row in found.bins if row["items"] >= FEW]
    axes.errorbar(
        [row["belief"] for row in rows],
        [row["right"] for row in rows],
        yerr=[1.64 * (row["right"] * (1 - row["right"]) / row["items"]) ** 0.5 for row in rows],
        fmt=style,
        color=colour,
        markersize=size,
        linewidth=1.2,
        elinewidth=0.8,
        label=f"{name}: off by {100 * found.error:.1f} points",
    )
