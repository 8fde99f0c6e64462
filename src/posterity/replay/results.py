"""Results of replays: self-describing rows, one per run and one per run and step."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from posterity.errors import InvalidParameter
from posterity.method import metrics
from posterity.method.data.arrays import Codes
from posterity.method.data.votes import MISSING
from posterity.method.step import Decision
from posterity.replay.table import table
from posterity.replay.walk import Step
from posterity.storage.output import written_whole
from posterity.validation.expectation import Estimate, Sums
from posterity.validation.shift import Difference

Row = dict[str, Any]

_SETTING = [
    ("recording", pa.string()),
    ("source", pa.string()),
    ("models", pa.list_(pa.string())),
    ("order", pa.string()),
    ("split", pa.string()),
    ("seed", pa.int64()),
    ("beliefs", pa.string()),
    ("confusion", pa.string()),
    ("prior", pa.string()),
    ("votes", pa.string()),
    ("adapt", pa.string()),
    ("weigh", pa.string()),
    ("selector", pa.string()),
    ("budget", pa.float64()),
    ("spending", pa.string()),
    ("rule", pa.string()),
]
_COUNTS = ["n", "steps", "step", "evaluations", "negative_flips", "positive_flips", "neutral_flips"]
_RATES = [
    *("accuracy", "delta_accuracy", "mean_accuracy", "nfr", "pf_nf", "btc", "bec"),
    *("expected_accuracy", "expected_negative_flips", "expected_positive_flips"),
    *("checked_accuracy", "checked_accuracy_low", "checked_accuracy_high"),
    *("checked_negative_flips", "checked_negative_flips_low", "checked_negative_flips_high"),
    *("checked_positive_flips", "checked_positive_flips_low", "checked_positive_flips_high"),
    *("forecast", "forecast_low", "forecast_high", "seconds"),
]
SCHEMA = pa.schema(
    [("kind", pa.string()), *_SETTING, ("model", pa.string())]
    + [(name, pa.int64()) for name in _COUNTS]
    + [(name, pa.float64()) for name in _RATES]
    + [("unlike", pa.list_(pa.string()))]
)
"""Both kinds of row in one table: ``kind`` is ``run`` or ``step``; what does not apply is null."""


@dataclass
class Results:
    """The outcome of a replay; prints as a table, means over seeds."""

    rows: list[Row] = field(default_factory=list)
    """One per run and seed."""
    steps: list[Row] = field(default_factory=list)
    """One per run, seed and step, step 0 (the first labels) included."""

    def add(self, setting: Row, steps: Sequence[ScoredStep], seconds: float) -> None:
        """Record the scored steps of one run."""
        self.rows.append(setting | _run_row(steps) | {"seconds": seconds})
        self.steps.extend(
            setting | _step_row(number, step, steps[0].score.accuracy)
            for number, step in enumerate(steps)
        )

    def extend(self, other: Results) -> None:
        """Append another replay's rows."""
        self.rows.extend(other.rows)
        self.steps.extend(other.steps)

    def to_dict(self) -> dict[str, list[Row]]:
        """What ``--json`` prints."""
        return {"rows": self.rows}

    def to_arrow(self) -> pa.Table:
        """Rows of both kinds as one Arrow table."""
        listed: list[Row] = [
            {"kind": kind} | row | {"split": None if row["split"] is None else str(row["split"])}
            for kind, rows in (("run", self.rows), ("step", self.steps))
            for row in rows
        ]
        return pa.Table.from_pylist(listed, schema=SCHEMA)

    def write(self, path: str | Path) -> None:
        """Write rows of both kinds as one Parquet file: all of it or nothing."""
        where = Path(path)
        if where.exists() and not where.is_file():
            raise InvalidParameter.of("out", "a file", str(where))
        with written_whole(where) as beside:
            pq.write_table(self.to_arrow(), beside)

    def __str__(self) -> str:
        if not self.rows:
            return "no runs"
        console = Console(file=io.StringIO(), width=200, color_system=None)
        with console.capture() as capture:
            console.print(table(self.rows))
        return capture.get()


def _run_row(steps: Sequence[ScoredStep]) -> Row:
    score = metrics.score_run([step.score for step in steps])
    later = steps[1:]
    return {
        "n": score.items,
        "steps": score.steps,
        "evaluations": score.evaluations,
        "accuracy": 100 * score.accuracy,
        "delta_accuracy": 100 * score.delta_accuracy,
        "mean_accuracy": _percent(score.mean_accuracy),
        **_flips(score.flips),
        "nfr": _percent(score.nfr),
        "pf_nf": score.pf_nf,
        "btc": _percent(score.btc),
        "bec": _percent(score.bec),
        "expected_accuracy": 100 * steps[-1].expected_accuracy,
        "expected_negative_flips": sum(step.expected_flips.negative for step in later),
        "expected_positive_flips": sum(step.expected_flips.positive for step in later),
        **_estimate("checked_accuracy", steps[-1].checked.accuracy, 100),
        # Of sums over steps no interval is known: steps are about the same items.
        "checked_negative_flips": _sum(step.checked.negative_flips for step in later),
        "checked_positive_flips": _sum(step.checked.positive_flips for step in later),
        "forecast": _sum(step.checked.forecast for step in later),
        "unlike": sorted({figure for step in steps for figure in _unlike(step)}),
    }


def _step_row(number: int, step: ScoredStep, first_accuracy: float) -> Row:
    return {
        "step": number,
        "model": step.model,
        "n": step.score.items,
        "evaluations": step.score.evaluations,
        "accuracy": 100 * step.score.accuracy,
        "delta_accuracy": 100 * (step.score.accuracy - first_accuracy),
        **_flips(step.score.flips),
        "btc": _percent(step.score.btc),
        "bec": _percent(step.score.bec),
        "expected_accuracy": 100 * step.expected_accuracy,
        "expected_negative_flips": step.expected_flips.negative,
        "expected_positive_flips": step.expected_flips.positive,
        **_estimate("checked_accuracy", step.checked.accuracy, 100),
        **_estimate("checked_negative_flips", step.checked.negative_flips),
        **_estimate("checked_positive_flips", step.checked.positive_flips),
        **_estimate("forecast", step.checked.forecast if number else None),
        "unlike": _unlike(step),
    }


def _estimate(name: str, found: Estimate | None, factor: float = 1) -> Row:
    value, low, high = (None,) * 3 if found is None else astuple(found.times(factor))
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _unlike(step: ScoredStep) -> list[str]:
    return [one.figure for one in step.checked.differences if one.unlike]


def _flips(flips: metrics.Flips) -> Row:
    return {
        "negative_flips": flips.negative,
        "positive_flips": flips.positive,
        "neutral_flips": flips.neutral,
    }


def _sum(values: Iterable[Estimate | None]) -> float | None:
    """None as soon as one is not known."""
    listed = [None if each is None else each.value for each in values]
    return None if None in listed or not listed else sum(value for value in listed if value)


def _percent(rate: float | None) -> float | None:
    return None if rate is None else 100 * rate


@dataclass(frozen=True)
class ScoredStep:
    """One step of one rule: against the truth, and as the beliefs would have it."""

    model: str
    score: metrics.StepScore
    expected_accuracy: float
    expected_flips: metrics.ExpectedFlips
    checked: LabelledFigures
    """The same as the labelled set has it."""


@dataclass(frozen=True)
class LabelledFigures:
    """What the labelled items that went through the same steps say; None where there are none."""

    accuracy: Estimate | None = None
    positive_flips: Estimate | None = None
    negative_flips: Estimate | None = None
    forecast: Estimate | None = None
    """Net corrections, told before the step was spent."""
    differences: Sequence[Difference] = ()
    """Between the target and the labelled set."""


class Scores:
    """The scored steps of each rule, gathered while a walk goes on."""

    def __init__(self, truth: Codes, rules: int) -> None:
        self.by_rule: list[list[ScoredStep]] = [[] for _ in range(rules)]
        self._truth = truth
        self._differences: list[Sequence[Difference]] = []
        self._before = [np.full(len(truth), MISSING, dtype=np.int32) for _ in range(rules)]

    def add(self, step: Step) -> None:
        """Score a step under every rule."""
        for at, (labels, decision) in enumerate(
            zip(step.shard.labels, step.decisions, strict=True)
        ):
            flipped = decision.flipped
            scored = ScoredStep(
                model=step.model,
                score=metrics.score_step(
                    self._truth, self._before[at], labels.label, evaluations=len(step.rows)
                ),
                expected_accuracy=metrics.expected_accuracy(labels.belief),
                expected_flips=metrics.expected_flips(
                    decision.belief_before[flipped], decision.belief_after[flipped]
                ),
                checked=self._checked(step, decision),
            )
            self.by_rule[at].append(scored)
            self._before[at] = labels.label.copy()

    def _checked(self, step: Step, decision: Decision) -> LabelledFigures:
        rehearsed, seen = step.rehearsed, step.seen
        if rehearsed is None or rehearsed.trust is None or seen is None:
            return LabelledFigures()
        trust, items, flipped = rehearsed.trust, len(self._truth), decision.flipped
        found = trust.compare(seen, self._differences)
        self._differences.append(found)
        accuracy = trust.accuracy(seen.held.drifted(step.drift))
        return LabelledFigures(
            # An item without a label counts as wrong, as it does with the truth known.
            accuracy=None if accuracy is None else accuracy.times(seen.held.items / items),
            positive_flips=trust.fixed(Sums.of(decision.belief_after[flipped])),
            negative_flips=trust.broken(Sums.of(decision.belief_before[flipped])),
            forecast=replace(rehearsed, labels=rehearsed.items).net(items),
            differences=found,
        )
