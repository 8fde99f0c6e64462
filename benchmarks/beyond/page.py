"""The page: pure functions of kept rows."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pyarrow.parquet as pq

from benchmarks.beyond import budgets, review, shift, weights

Row = dict[str, Any]

HEAD = """# Beyond one step, measured

Made from the recordings of `docs/reference/replay.md` by `make beyond`.
"""


def write_page(rows: Path, docs: Path) -> None:
    """From the rows that are kept; what was not measured is left out."""
    own = [*_shift(rows), *_weights(rows)]
    parts = [HEAD, *own, *budgets.section(rows), *review.section(rows)]
    (docs / "beyond.md").write_text("\n".join(parts))


def _read(path: Path) -> list[Row]:
    return pq.read_table(path).to_pylist() if path.exists() else []


def _shift(rows: Path) -> list[str]:
    told = [
        "## Natural shift\n",
        f"Labelled sets are {shift.SEEDS} random halves of the source (of `imagenet_val` for "
        "ImageNetV2, of `cifar10_test` for CIFAR-10.1); of `model_vs_human`, half of the kinds of "
        "distortion are labelled and the others are the target. Accuracy, and in brackets expected "
        "less true accuracy in points as `status` and `report` tell it: mean and standard "
        "deviation over draws; –: not measured.\n",
        *_head(["recording", "budget", "rule", *shift.KINDS]),
    ]
    found = []
    for name, budget in product(shift.PAIRS, shift.BUDGETS):
        files = [
            rows / f"{shift.rows_of(name, budget, at)}.parquet" for at in range(len(shift.KINDS))
        ]
        kept = [_read(path) for path in files]
        for rule in shift.RULES if any(kept) else []:
            cells = [_cell(_runs(own, budget, rule)) for own in kept]
            found.append(f"| {name} | {budget} | {rule} | {' | '.join(cells)} |")
    return [*told, *found, ""] if found else []


def _weights(rows: Path) -> list[str]:
    told = [
        "## Another mix of items\n",
        f"Photos with 17 kinds of distortion; up to {weights.LABELLED:,} are labelled. Of half of "
        f"the kinds {100 * (1 - weights.RARE):.0f} % of the items are among those to be labelled "
        f"and the rest in the target, of the others {100 * weights.RARE:.0f} %: {weights.SEEDS} "
        "draws. *Weights*: labelled items are weighed by their kind (`--weigh groups`). Accuracy, "
        "and in brackets expected less true accuracy: mean and standard deviation.\n",
        *_head(["budget", "rule", *weights.KINDS]),
    ]
    found = []
    for budget in weights.BUDGETS:
        files = [
            rows / f"{weights.rows_of(budget, at)}.parquet" for at in range(len(weights.KINDS))
        ]
        kept = [_read(path) for path in files]
        for rule in weights.RULES if any(kept) else []:
            cells = [_cell(_runs(own, budget, rule)) for own in kept]
            found.append(f"| {budget} | {rule} | {' | '.join(cells)} |")
    return [*told, *found, ""] if found else []


def _head(columns: list[str]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def _cell(runs: list[Row]) -> str:
    if not runs:
        return "–"
    off = [row["checked_accuracy"] - row["accuracy"] for row in runs]
    return f"{mean(row['accuracy'] for row in runs):.1f} ({mean(off):+.1f} ± {pstdev(off):.1f})"


def _runs(rows: list[Row], budget: str, rule: str) -> list[Row]:
    share = float(budget.rstrip("%")) / 100
    return [
        row
        for row in rows
        if row["kind"] == "run" and row["rule"] == rule and abs(row["budget"] - share) < 1e-3
    ]
