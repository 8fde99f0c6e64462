"""The page: pure functions of kept rows."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow.parquet as pq

from benchmarks.beyond import budgets, promises, review, shares, shift

Row = dict[str, Any]

HEAD = """# Beyond one step, measured

Made from the recordings of `docs/replay.md` by `make beyond`.
"""


def write_page(rows: Path, docs: Path) -> None:
    """From the rows that are kept; what was not measured is left out."""
    own = [*_promises(rows), *_shares(rows), *_shift(rows)]
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
        "The labelled set is the source recording. Accuracy, and in brackets expected less true "
        "accuracy in points, as `status` and `report` tell it; nothing is drawn here, so there is "
        "one walk each.\n",
        f"| recording | budget | rule | {' | '.join(shift.KINDS)} |",
        "|---|---|---|" + "---|" * len(shift.KINDS),
    ]
    found = False
    for name in shift.PAIRS:
        kept = {
            kind: _read(rows / f"shift-{name}-{at}.parquet") for at, kind in enumerate(shift.KINDS)
        }
        if not all(kept.values()):
            continue
        found = True
        for budget in shift.BUDGETS:
            for rule in shift.RULES:
                cells = [_runs(own, budget, rule) for own in kept.values()]
                shown = [
                    f"{mean(r['accuracy'] for r in own):.1f} ({_off(own):+.1f})" for own in cells
                ]
                told.append(f"| {name} | {budget} | {rule} | {' | '.join(shown)} |")
    return [*told, ""] if found else []


def _runs(rows: list[Row], budget: str, rule: str) -> list[Row]:
    share = float(budget.rstrip("%")) / 100
    return [
        row
        for row in rows
        if row["kind"] == "run" and row["rule"] == rule and abs(row["budget"] - share) < 1e-3
    ]


def _off(rows: list[Row]) -> float:
    return float(mean(row["checked_accuracy"] - row["accuracy"] for row in rows))
