"""The index of the measurements: five figures, read from the generated pages beside it.

    python -m benchmarks.figures     writes docs/measurements/index.md

A test compares the page with what this prints, so that no figure can drift from its page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks import PAGES
from benchmarks.earlier import sections

Cells = dict[str, str]

OTHERS = {
    "beliefs": ("`make trust`", "the paper's beliefs and ours: accuracy, flips, calibration"),
    "patterns": ("`make patterns`", "calibration per pair of votes, and what more budget brings"),
    "policy": ("`make policy`", "the defaults and `tune` compared with fixed policies"),
    "learnt": ("`make learnt`", "learnt class frequencies, and how often promises hold"),
    "beyond": ("`make beyond`", "shifted data, budgets for several steps, review"),
    "paper": ("`make paper`", "the paper's experiments, our numbers beside the published ones"),
    "performance": ("`make bench`", "speed and memory of the kernels, and of other packages"),
    "store-performance": ("`make bench-store`", "whole updates of up to 100 million items"),
    "billion": ("`make bench-billion`", "a plan for 10⁹ items"),
    "scale": ("`make bench-scale`", "a step on Ray, and a cost model for 10⁹ and 10¹⁰ items"),
}
"""The generated pages: the command that makes each, and what it holds."""


@dataclass(frozen=True)
class Figure:
    """An answer to a question of somebody who decides whether to use Posterity."""

    question: str
    answer: str
    page: str

    def __str__(self) -> str:
        where = f"[{self.page}]({self.page}.md), {OTHERS[self.page][0]}"
        return f"| {self.question} | {self.answer} | {where} |"


def rows(lines: list[str], column: str) -> Iterator[Cells]:
    """The rows of the tables that have this column, by the names of their columns."""
    names: list[str] = []
    for line in lines:
        if not line.startswith("|"):
            names = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not names:
            names = cells
        elif column in names and not set(line) <= set("|-: "):
            yield dict(zip(names, cells, strict=True))


def number(text: str) -> float:
    """The first number in a cell."""
    found = re.search(r"[-+]?[\d,]*\.?\d+", text)
    if found is None:
        raise ValueError(f"{text!r} holds no number.")
    return float(found[0].replace(",", ""))


def fewer_broken(pages: Path, budget: str = "30 %") -> Figure:
    """What the defaults bring and break, over the recordings of the page."""
    gain, broken = "share of its gain", "broken ÷ replace's"
    found = [
        row
        for lines in sections(pages / "policy.md").values()
        for row in rows(lines, gain)
        if row["budget"] == budget
    ]
    gains = [number(row[gain]) for row in found]
    ratios = [number(row[broken]) for row in found]
    return Figure(
        "Do the defaults fix as much and break less?",
        f"{median(gains):.0f} % ({min(gains):.0f}–{max(gains):.0f}) of the accuracy gain of the "
        f"best fixed policy, which is known only afterwards; {median(ratios):.2f} "
        f"({min(ratios):.2f}–{max(ratios):.2f}) times the broken labels of always replacing: "
        f"median and range over {len(found)} recordings, at a budget of {budget}",
        "policy",
    )


def honest_accuracy(pages: Path) -> Figure:
    """How far expected accuracy is off, over recordings and budgets."""
    off, inside, splits = [], 0, 0
    for row in rows(sections(pages / "patterns.md")["Expected accuracy"], "splits"):
        for cell in list(row.values())[2:]:
            if cell == "–":
                continue
            off.append(abs(number(cell)))
            counts = re.search(r"(\d+) of (\d+)", cell)
            assert counts is not None, cell
            inside, splits = inside + int(counts[1]), splits + int(counts[2])
    return Figure(
        "Is the expected accuracy right?",
        f"Off by {fmean(off):.1f} points on average, {max(off):.1f} at most ({len(off)} means over "
        f"splits). The true accuracy was inside the 90 % interval in {inside} of {splits} splits "
        f"({100 * inside / splits:.0f} %)",
        "patterns",
    )


def honest_plans(pages: Path) -> Figure:
    """How far the forecast of a plan is off, over recordings and budgets."""
    table = list(rows(sections(pages / "patterns.md")["More budget"], "splits"))
    off: dict[tuple[str, str], float] = {}
    for net, forecast in zip(table[::2], table[1::2], strict=True):
        for budget in [name for name in net if name.endswith("%")]:
            error = abs(number(forecast[budget]) / number(net[budget]) - 1)
            off[net["recording"], budget] = 100 * error
    recording, worst = max(off, key=off.__getitem__)
    return Figure(
        "Does a plan bring what it forecasts?",
        f"Forecast net corrections are off by {median(off.values()):.0f} % (median of {len(off)} "
        f"means over splits), {max(off.values()):.0f} % at most ({recording}, budget {worst})",
        "patterns",
    )


def unlike_data(pages: Path, budget: str = "30%") -> Figure:
    """How far expected accuracy is off where the target is unlike the labelled set."""
    names = {
        "imagenetv2_matchedfreq": "ImageNetV2, labelled set from ImageNet",
        "cifar10_1_v6": "CIFAR-10.1, labelled set from CIFAR-10",
        "model_vs_human": "photos with distortions that the labelled set lacks",
    }
    column = "difficulty (default)"
    found = {
        row["recording"]: re.search(r"\(([^)]*)\)", row[column])
        for row in rows(sections(pages / "beyond.md")["Natural shift"], column)
        if row["budget"] == budget and row["rule"] == "max-belief"
    }
    told = [f"{names[name]}: {cell[1]}" for name, cell in found.items() if cell]
    return Figure(
        "What if my data is unlike the labelled set?",
        f"Expected minus true accuracy in points: {'; '.join(told)} (`max-belief`, budget "
        f"{budget})",
        "beyond",
    )


def cost(pages: Path) -> Figure:
    """Time and memory of a step with the defaults."""
    ((title, lines),) = [
        (title, lines)
        for title, lines in sections(pages / "store-performance.md").items()
        if title.startswith("Kinds of beliefs")
    ]
    (row,) = [row for row in rows(lines, "plan 10 %") if row[""].startswith("defaults")]
    peak = re.search(r"Peak memory of all: ([\d.]+ GiB)", " ".join(lines))
    machine = re.search(r"(\d+) cores", (pages / "store-performance.md").read_text("utf-8"))
    assert peak is not None
    assert machine is not None
    return Figure(
        "What does a step cost, the model aside?",
        f"For {title.partition(', ')[2]} and 1,000 classes on {machine[1]} cores: "
        f"plan {row['plan 10 %']}, update {row['update 10 %']}, peak memory {peak[1]}",
        "store-performance",
    )


FIGURES = (fewer_broken, honest_accuracy, honest_plans, unlike_data, cost)


def page(pages: Path = PAGES) -> str:
    """The index, with the figures that the other pages have now."""
    lines = [
        "# Measurements",
        "",
        "Generated by `python -m benchmarks.figures` from the pages below; do not edit. Each page "
        "is written by the command beside it; most need recordings of real models "
        "([how to get them](../reference/replay.md)).",
        "",
        "## Five figures to decide by",
        "",
        "| question | measured | where, how |",
        "|---|---|---|",
        *(str(figure(pages)) for figure in FIGURES),
        "",
        "The constants of the default rule were chosen on some of these recordings, so the first "
        "figure flatters them.",
        "",
        "## All pages",
        "",
        "| page | made by | what it holds |",
        "|---|---|---|",
        *(f"| [{name}]({name}.md) | {made} | {holds} |" for name, (made, holds) in OTHERS.items()),
        "",
        "```{toctree}",
        ":hidden:",
        ":maxdepth: 1",
        "",
        *OTHERS,
        "```",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (PAGES / "index.md").write_text(page(), encoding="utf-8")
