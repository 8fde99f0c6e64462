"""The page: pure functions of kept rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.trust.experiments import BUDGETS, METHODS, RATIOS, SETTINGS

Row = dict[str, Any]
SHARES = [float(budget.rstrip("%")) / 100 for budget in BUDGETS]
HEAD = """# Beliefs, measured

Made from the recordings of `docs/reference/replay.md` by `make trust`, or `python -m
benchmarks.trust` with fewer seeds; means over the splits named below. *Ours*:
dependent beliefs and the selector `value`, the defaults of `posterity replay`, with the rule shown.
*Full* and *diagonal*: the paper's method, `--beliefs plain --selector entropy --confusion
full|diagonal`, with the same rule but `+confirm`, which is not in the paper.
Utility is PF − c·ΣNF; mean accuracy is over the steps after the first.
"""

LEFT_OUT = """## What did not help

- Wrong labels of each model under each truth: no better than those of all models together.
- A number of the calibrator for the most recent vote: likelier truths, but more negative flips.
- Counts of votes as numbers of the calibrator: hardly anything beyond the plain product.
- A share of its own for each level of difficulty on the target: runs off where levels mean little.
- Longer patience than `+confirm`: later, and hardly ever better.
- Counting what a vote leads to with 1 or c^¼ where `value` has √c: no better on the whole.
- With few votes and a high cost ratio the full estimator still wins on 1,000 classes, by being
  unsure: it flips late, with strong models, and utility has no price for being late.
"""


def write_page(rows: Path, docs: Path) -> None:
    """From the rows of the recordings that were replayed."""
    by_name: dict[str, list[Row]] = {}
    for setting in SETTINGS:
        kept = [rows / f"{setting.name}-{method}.parquet" for method in METHODS]
        if all(path.exists() for path in kept):
            by_name[setting.name] = [
                row
                for path in kept
                for row in pq.read_table(path, filters=[("kind", "=", "run")]).to_pylist()
            ]
    parts = [HEAD, *(_seeds(by_name)), _frontier(by_name), _calibration(by_name)]
    parts += [_evidence(by_name), _cells(by_name), _parts(by_name), _ablation(rows), LEFT_OUT]
    (docs / "beliefs.md").write_text("\n".join(parts))


def _seeds(by_name: dict[str, list[Row]]) -> Iterable[str]:
    told = [
        f"{name} {len({row['seed'] for row in rows})} × {rows[0]['n']:,}"
        for name, rows in by_name.items()
    ]
    yield "Splits × items: " + ", ".join(told) + ".\n"


def _pick(rows: list[Row], budget: float, rule: str, **wanted: Any) -> list[Row]:
    return [
        row
        for row in rows
        if row["rule"] == rule
        and abs(row["budget"] - budget) < 1e-3
        and all(row[key] == value for key, value in wanted.items())
    ]


def _ours(rows: list[Row], budget: float, rule: str) -> list[Row]:
    return _pick(rows, budget, rule, beliefs="dependent", selector="value")


def _plain(rows: list[Row], budget: float, rule: str, confusion: str) -> list[Row]:
    return _pick(rows, budget, rule, beliefs="plain", confusion=confusion)


def _mean(rows: Sequence[Row], value: str | Callable[[Row], float]) -> float:
    read = value if callable(value) else lambda row: row[value]
    return sum(read(row) for row in rows) / len(rows)


def _table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    text += ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]
    return "\n".join(text) + "\n"


def _frontier(by_name: dict[str, list[Row]]) -> str:
    rows = by_name.get("imagenet_val")
    if not rows:
        return ""
    lines = []
    for share in SHARES[1:]:
        for rule in ["max-belief", *(f"cost-ratio:{ratio}+confirm" for ratio in RATIOS)]:
            plain = rule.removesuffix("+confirm")
            cells = [f"{100 * share:g} %", f"`{rule}`", _shown(_ours(rows, share, rule))]
            cells += [_shown(_plain(rows, share, plain, each)) for each in ("full", "diagonal")]
            lines.append(cells)
    replaced = _shown(_plain(rows, 1.0, "replace", "full"))
    return (
        "## The frontier: ImageNet, 17 models\n\nAccuracy / ΣNF. Replacing every label: "
        f"{replaced}.\n\n" + _table(["budget", "rule", "ours", "full", "diagonal"], lines)
    )


def _shown(rows: list[Row]) -> str:
    if not rows:
        return "–"
    return f"{_mean(rows, 'accuracy'):.1f} / {_mean(rows, 'negative_flips'):,.0f}"


def _calibration(by_name: dict[str, list[Row]]) -> str:
    lines = []
    for name, rows in by_name.items():
        for share in SHARES[1:]:
            for rule in ["max-belief", *(f"cost-ratio:{ratio}+confirm" for ratio in RATIOS)]:
                ours = _ours(rows, share, rule)
                if not ours:
                    continue
                diagonal = _plain(rows, share, rule.removesuffix("+confirm"), "diagonal")
                off = _mean(ours, lambda row: row["checked_accuracy"] - row["accuracy"])
                bare = _mean(ours, lambda row: row["expected_accuracy"] - row["accuracy"])
                theirs = _mean(diagonal, lambda row: row["expected_accuracy"] - row["accuracy"])
                net = _mean(ours, lambda row: row["positive_flips"] - row["negative_flips"])
                lines.append(
                    [
                        name,
                        f"{100 * share:g} %",
                        f"`{rule}`",
                        f"{off:+.1f}",
                        f"{bare:+.1f}",
                        f"{theirs:+.1f}",
                        _against(ours, "positive_flips"),
                        _against(ours, "negative_flips"),
                        f"{_mean(ours, 'forecast'):,.0f} / {net:,.0f}",
                    ]
                )
    head = ["recording", "budget", "rule", "accuracy off", "bare beliefs off", "diagonal off"]
    head += ["PF expected / true", "NF expected / true", "net forecast / true"]
    return (
        "## Calibration\n\nExpected accuracy less the true one, in points: as it is told, with "
        "what beliefs miss on the labelled set; mean belief alone; and that of the paper's "
        "diagonal estimator. Flips as they are told (as beliefs alone have them); net corrections "
        "as forecast from the labelled set before each step was spent.\n\n" + _table(head, lines)
    )


def _against(rows: list[Row], what: str) -> str:
    told, bare = _mean(rows, f"checked_{what}"), _mean(rows, f"expected_{what}")
    return f"{told:,.0f} ({bare:,.0f}) / {_mean(rows, what):,.0f}"


def _evidence(by_name: dict[str, list[Row]]) -> str:
    lines = []
    for name, rows in by_name.items():
        some = _ours(rows, 0.3, "max-belief")
        every = [
            _ours(rows, 1.0, "max-belief"),
            _ours(rows, 1.0, "max-belief+confirm"),
            _ours(rows, 1.0, "cost-ratio:2+confirm"),
            _plain(rows, 1.0, "majority-vote", "full"),
        ]
        if some and all(every):
            lines.append([name, _finely(some), *map(_finely, every)])
    head = ["recording", "30 %, `max-belief`", "100 %, `max-belief`"]
    head += ["`max-belief+confirm`", "`cost-ratio:2+confirm`", "majority vote"]
    return "## More evidence\n\nAccuracy / ΣNF.\n\n" + _table(head, lines)


def _finely(rows: list[Row]) -> str:
    return f"{_mean(rows, 'accuracy'):.2f} / {_mean(rows, 'negative_flips'):,.0f}"


def _cells(by_name: dict[str, list[Row]]) -> str:
    lines, won, lost = [], 0, []
    for name, rows in by_name.items():
        for share in SHARES:
            for ratio in RATIOS:
                ours = _ours(rows, share, f"cost-ratio:{ratio}+confirm")
                others = {
                    kind: _plain(rows, share, f"cost-ratio:{ratio}", kind)
                    for kind in ("full", "diagonal")
                }
                if not ours or not all(others.values()):
                    continue
                utility = partial(_utility, ratio)
                best = max(_mean(each, utility) for each in others.values())
                win = _mean(ours, utility) > best
                won += win
                if not win:
                    lost.append(f"{name} {100 * share:g} % c={ratio}")
                lines.append(
                    [
                        name,
                        f"{100 * share:g} %",
                        ratio,
                        *(
                            f"{_mean(each, utility):,.0f} ({_mean(each, 'mean_accuracy'):.1f})"
                            for each in (ours, *others.values())
                        ),
                        "won" if win else "lost",
                    ]
                )
    head = ["recording", "budget", "c", "ours", "full", "diagonal", ""]
    told = f"Utility (mean accuracy); won where above both: **{won} of {len(lines)}**."
    told += f" Lost: {', '.join(lost)}." if lost else ""
    return f"## Every cell\n\n{told}\n\n" + _table(head, lines)


def _utility(ratio: int, row: Row) -> float:
    return float(row["positive_flips"] - ratio * row["negative_flips"])


def _parts(by_name: dict[str, list[Row]]) -> str:
    lines = []
    for name, rows in by_name.items():
        for ratio in RATIOS:
            patient, hasty = f"cost-ratio:{ratio}+confirm", f"cost-ratio:{ratio}"
            every = [
                _ours(rows, 0.1, patient),
                _ours(rows, 0.1, hasty),
                _pick(rows, 0.1, patient, beliefs="dependent", selector="entropy"),
                _plain(rows, 0.1, patient, "full"),
                _plain(rows, 0.1, hasty, "full"),
                _plain(rows, 0.1, patient, "diagonal"),
                _plain(rows, 0.1, hasty, "diagonal"),
            ]
            if all(every):
                lines.append(
                    [
                        name,
                        ratio,
                        *(
                            f"{_mean(each, 'accuracy'):.1f} / "
                            f"{_mean(each, partial(_utility, ratio)):,.0f}"
                            for each in every
                        ),
                    ]
                )
    head = ["recording", "c", "ours", "without confirm", "entropy for value", "full + confirm"]
    head += ["full", "diagonal + confirm", "diagonal"]
    return (
        "## What each part brings, at 10 %\n\nAccuracy / utility with one part changed.\n\n"
        + _table(head, lines)
    )


def _ablation(rows: Path) -> str:
    lines, head = [], ["recording", "votes"]
    for setting in SETTINGS:
        path = rows / f"{setting.name}-ablation.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text())
        for share, group in groupby(found, key=lambda each: each["share"]):
            told = {each["part"]: each for each in group}
            head = ["recording", "votes", *told]
            shown = [
                f"{each['surprise']:.3f}, {each['accuracy']:.1f}, {each['off']:+.1f}"
                for each in told.values()
            ]
            lines.append([setting.name, f"{100 * share:g} %", *shown])
    if not lines:
        return ""
    return (
        "## What each part of the belief brings\n\nIdentical histories: all votes of the first "
        "model, a random share of every later one's; one split. Mean of −log of what is believed "
        "of the truth (lower is better; 0.693 is a coin), accuracy of the most believed class, "
        "and by how many points its belief is too high. The last three are products of votes.\n\n"
        + _table(head, lines)
    )
