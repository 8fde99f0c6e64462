"""The page: pure functions of kept rows."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pyarrow.parquet as pq

from benchmarks.beyond import budgets, promises, review, shares, shift, weights

Row = dict[str, Any]

HEAD = """# Beyond one step, measured

Made from the recordings of `docs/replay.md` by `make beyond`.
"""


def write_page(rows: Path, docs: Path) -> None:
    """From the rows that are kept; what was not measured is left out."""
    own = [*_promises(rows), *_shares(rows), *_shift(rows), *_weights(rows)]
    parts = [HEAD, *own, *budgets.section(rows), *review.section(rows)]
    (docs / "beyond-measured.md").write_text("\n".join(parts))


def _read(path: Path) -> list[Row]:
    return pq.read_table(path).to_pylist() if path.exists() else []


def _promises(rows: Path) -> list[str]:
    told = [
        "## Promises\n",
        f"The rule `at-most:SHARE,confidence={promises.CONFIDENCE}` with a budget of "
        f"{promises.BUDGET}, on random halves: one labelled, one the target. *Broken*: steps in "
        "which a larger share of all items was broken than promised, on the target itself; at most "
        f"{100 * (1 - promises.CONFIDENCE):.0f} % may be. Two standard errors allow for the number "
        "of splits; steps of one split are not independent, so it is those of splits that count.\n",
        "| recording | rule | splits | steps broken | most allowed | mean share broken a step | "
        "final accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    found = False
    for name in promises.SEQUENCES:
        kept = _read(rows / f"promises-{name}.parquet")
        found |= bool(kept)
        for rule in [*promises.RULES, *promises.BESIDE] if kept else []:
            steps = [
                row for row in kept if row["kind"] == "step" and row["rule"] == rule and row["step"]
            ]
            runs = [row for row in kept if row["kind"] == "run" and row["rule"] == rule]
            shares_broken = [row["negative_flips"] / row["n"] for row in steps]
            told.append(
                f"| {name} | `{rule}` | {len(runs)} | {_broken(rule, shares_broken, len(runs))} | "
                f"{100 * mean(shares_broken):.2f} % | {mean(r['accuracy'] for r in runs):.1f} % |"
            )
    told += ["", "The other two rules promise nothing; they show what a promise costs.\n"]
    return told if found else []


def _broken(rule: str, found: list[float], splits: int) -> str:
    if not rule.startswith("at-most"):
        return "– | –"
    rate = float(rule.removeprefix("at-most:").split("%")[0]) / 100
    doubt = 1 - promises.CONFIDENCE
    most = doubt + 2 * (doubt * (1 - doubt) / splits) ** 0.5
    share = mean(one > rate for one in found)
    return f"{100 * share:.1f} % of {len(found)} | {100 * most:.1f} %"


def _shares(rows: Path) -> list[str]:
    by_kind = {
        kind: [row for row in _read(rows / "shares.parquet") if row["prior"] == given]
        for kind, given in zip(shares.KINDS, ("uniform", "estimated", "given"), strict=True)
    }
    if not by_kind["uniform"]:
        return []
    told = [
        "## Class shares\n",
        f"Languages: about {shares.LABELLED:,} labelled texts, as many of each language; a target "
        f"of about {shares.TARGET:,} whose languages have Zipf frequencies in random order (mean "
        f"of {shares.SEEDS} draws). Accuracy with equal class shares, with those estimated from "
        "the target's votes (`--prior estimated`), and with the true ones; *recovered*: how much "
        "of what the true ones bring. In brackets, expected less true accuracy.\n",
        "| budget | rule | uniform | estimated | known | recovered |",
        "|---|---|---|---|---|---|",
    ]
    for budget in shares.BUDGETS:
        for rule in shares.RULES:
            cells, accuracy = [], {}
            for kind, kept in by_kind.items():
                own = _runs(kept, budget, rule)
                accuracy[kind] = mean(row["accuracy"] for row in own)
                cells.append(f"{accuracy[kind]:.2f} ({_off(own):+.1f})")
            lost = accuracy["known"] - accuracy["uniform"]
            back = (accuracy["estimated"] - accuracy["uniform"]) / lost if lost else 0.0
            told.append(f"| {budget} | {rule} | {' | '.join(cells)} | {100 * back:.0f} % |")
    return [*told, ""]


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


def _off(rows: list[Row]) -> float:
    return float(mean(row["checked_accuracy"] - row["accuracy"] for row in rows))
