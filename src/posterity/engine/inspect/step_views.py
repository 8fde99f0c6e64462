"""The history of a store: what each step was, cost, changed and left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posterity._text import counted
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.reports import Expected, expected_accuracy, expected_of
from posterity.engine.ledger.steps import DECISIVE, REDECIDE, REVERT, REVIEW, SETTLE, TUNE, Header
from posterity.validation import shift
from posterity.validation.expectation import Estimate


def steps_view(context: Context) -> list[dict[str, Any]]:
    """Every step, in order."""
    return [_step(header, counts=header.step not in context.undone) for header in context.headers]


def overview_view(context: Context, status: dict[str, Any]) -> dict[str, Any]:
    """The store at a glance, its steps, and what all of them together brought."""
    told = steps_view(context)
    made = [step for step in told if step["counts"]]
    return {
        "status": status,
        "steps": told,
        "spent": sum(step["evaluations"] for step in told),
        "flips": sum(step["flips"] for step in made),
        "fixed": _total(step["fixed"] for step in made if step["fixed"]),
        "broke": _total(step["broke"] for step in made if step["broke"]),
        "warnings": [step["warning"] for step in told[-1:] if step["warning"]],
    }


def _step(header: Header, *, counts: bool) -> dict[str, Any]:
    report, flips = header.report, header.flips
    expected, accuracy = expected_of(header), expected_accuracy(header)
    fixed, broke = _worth(header, expected)
    return {
        "step": header.step,
        "kind": header.kind,
        "model": header.model,
        "what": _what(header),
        "rule": header.rule,
        "budget": header.budget,
        "selector": header.selector,
        "where": header.where,
        "time": header.time,
        "counts": counts,
        "evaluations": header.evaluations,
        "errors": int(report.get("errors", 0)),
        "first_labels": int(report.get("first_labels", 0)),
        "flips": flips,
        "fixed": None if fixed is None else fixed.to_dict(),
        "broke": None if broke is None else broke.to_dict(),
        "believed": {
            "fixed": float(report.get("expected_positive_flips", 0.0)),
            "broke": float(report.get("expected_negative_flips", 0.0)),
        },
        "neutral": None
        if fixed is None or broke is None
        else max(0.0, flips - fixed.value - broke.value),
        "pending": int(report.get("pending", 0)),
        "held_back": int(report.get("held_back", 0)),
        "accuracy": None if accuracy is None else accuracy.to_dict(),
        "checked": expected is not None and expected.checked,
        "calibration_error": None if expected is None else expected.calibration_error,
        "compared": bool(report.get("differences")),
        "warning": shift.warning(header.unlike) if header.unlike else "",
        "note": report.get("note", ""),
    }


def _worth(header: Header, expected: Expected | None) -> tuple[Estimate | None, Estimate | None]:
    """Positive and negative flips; of reverts and reviews nothing says which are which."""
    report = header.report
    if header.kind not in DECISIVE:
        return None, None
    if expected is not None and expected.checked:
        return expected.positive_flips, expected.negative_flips
    return (
        Estimate(report["expected_positive_flips"]),
        Estimate(report["expected_negative_flips"]),
    )


def _what(header: Header) -> str:
    """A step in a few words."""
    if header.kind == REVERT:
        return f"revert of step {header.reverts}"
    if header.gives_truth:
        return f"truth of {counted(header.answers, 'item')}, given with {header.model}"
    if header.kind == REVIEW:
        return f"{counted(header.answers, 'answer')} of people"
    if header.kind == SETTLE:
        return "pending flips made"
    if header.kind == REDECIDE:
        return f"decided again, {header.rule}"
    if header.kind == TUNE:
        return f"policy for later steps: {header.selector}, {header.rule}"
    return header.model or header.kind


def _total(told: Any) -> float:
    """Figures of steps summed up; their errors hang together, so that there is no interval."""
    return float(sum(one["value"] for one in told))


def step_of(steps: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
    """One of the steps."""
    return next(step for step in steps if step["step"] == number)
