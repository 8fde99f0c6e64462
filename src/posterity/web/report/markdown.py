"""A report as Markdown, for a pull request or a message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from posterity.engine.inspect.step_views import step_of
from posterity.engine.ledger.steps import REVERT, REVIEW, UPDATE
from posterity.web.report.pages import belief, estimate, number, percent

SHOWN = 10


def told(view: dict[str, Any]) -> str:
    """All of a summary that needs no picture."""
    parts = _step(view) if view["only"] is not None else _store(view)
    parts += ["", f"*{cell(view['store'])} on {view['made']}, Posterity {view['software']}*"]
    return "\n".join(parts) + "\n"


def _store(view: dict[str, Any]) -> list[str]:
    told, status = view["overview"], view["overview"]["status"]
    parts = [
        f"# {cell(view['store'])}",
        "",
        f"{number(status['items'])} items in {number(status['classes'])} classes; expected "
        f"accuracy **{estimate(status['expected_accuracy'], 'share')}**. In {len(told['steps'])} "
        f"steps {number(told['spent'])} evaluations fixed about **{number(told['fixed'])}** labels "
        f"and broke **{number(told['broke'])}**, as far as can be told without truth.",
        *_warnings(told["warnings"]),
        "",
        "## Steps",
        "",
        *table(
            ["step", "what", "rule", "evaluations", "flips", "fixed", "broke", "expected accuracy"],
            [
                [
                    str(step["step"]),
                    step["what"] + ("" if step["counts"] else " (undone)"),
                    step["rule"] or "–",
                    number(step["evaluations"]),
                    number(step["flips"]),
                    estimate(step["fixed"]) if step["flips"] else "–",
                    estimate(step["broke"]) if step["flips"] else "–",
                    estimate(step["accuracy"], "share"),
                ]
                for step in told["steps"]
            ],
            text=(1, 2),
        ),
    ]
    if view["outlook"]:
        parts += ["", "## Next", "", _outlook(view["outlook"])]
    if view["flips"]:
        last = view["flips"]["step"]
        parts += ["", f"## Flips of step {last['step']} ({cell(last['what'])})"]
        parts += _flips(view["flips"])
    return parts


def _step(view: dict[str, Any]) -> list[str]:
    steps = view["overview"]["steps"]
    step = step_of(steps, view["only"])
    before = [one for one in steps if one["step"] < step["step"] and one["accuracy"]]
    was = estimate(before[-1]["accuracy"], "share") if before else "none"
    worth = ""
    if step["fixed"] is not None and step["flips"]:
        worth = (
            f": about **{estimate(step['fixed'])}** fixed and **{estimate(step['broke'])}** broken"
        )
    spent = ""
    if step["kind"] == UPDATE:
        asked = ", ".join(part for part in (step["budget"], step["rule"]) if part)
        spent = f"{number(step['evaluations'])} evaluations ({cell(asked)}) "
    else:
        spent = f"This {step['kind']} "
    return [
        f"# Step {step['step']} of {cell(view['store'])}: {cell(step['what'])}",
        "",
        f"{spent}changed **{number(step['flips'])}** labels{worth}. Expected accuracy {was} → "
        f"**{estimate(step['accuracy'], 'share')}**."
        + ("" if step["counts"] else " **It was undone since.**"),
        *_warnings([step["warning"]] if step["warning"] else []),
        "",
        "## Can it be trusted?",
        "",
        *[f"- {cell(line)}" for line in view["trust"]],
        *(_flips(view["flips"]) if view["flips"] and view["flips"]["count"] else []),
    ]


def trust_lines(view: dict[str, Any], step: dict[str, Any]) -> list[str]:
    """What speaks for and against the figures of a step."""
    told = []
    if step["kind"] == REVIEW:
        decided = "Given truths" if step["model"] else "People"
        told.append(f"{decided} decided these labels; whether they are right, votes cannot tell.")
    elif step["kind"] == REVERT:
        told.append("A revert decides labels again from the votes that are left.")
    elif step["checked"] and step["calibration_error"] is not None:
        off = 100 * step["calibration_error"]
        told.append(
            f"Labelled items went through the same steps; beliefs are off by {off:.1f} points "
            "there."
        )
    else:
        told.append("Figures are estimated from the beliefs alone.")
    found = view["reliability"]
    if found:
        told.append(
            f"As the store is now, beliefs in the labels of {number(found['labels']['items'])} "
            f"labelled items are off by {100 * found['labels']['error']:.1f} points "
            f"({100 * found['labels']['chance']:.1f} by chance alone)."
        )
    if step["warning"]:
        told.append(step["warning"])
    elif step["compared"]:
        told.append("The items this step looked at do not look unlike the labelled set.")
    elif step["kind"] == UPDATE:
        told.append("Whether the items look like the labelled set was not compared.")
    if step["held_back"]:
        told.append(
            f"{number(step['held_back'])} labels are believed less than another; the rule keeps "
            "them."
        )
    if step["pending"]:
        told.append(f"{number(step['pending'])} flips wait for another vote.")
    if step["errors"]:
        told.append(f"The model failed on {number(step['errors'])} items.")
    return told


def _flips(view: dict[str, Any]) -> list[str]:
    parts = [
        "",
        "### From and to",
        "",
        *table(
            ["from", "to", "flips", "fixed", "broke"],
            [
                [
                    str(row["old"]),
                    str(row["new"]),
                    number(row["flips"]),
                    estimate(row["fixed"]),
                    estimate(row["broke"]),
                ]
                for row in view["pairs"][:SHOWN]
            ],
            text=(0, 1),
        ),
    ]
    if view["doubtful"]:
        parts += ["", "### Look at these first: most likely to have been right before", ""]
        parts += table(
            ["item", "from", "to", "belief in new", "in old"],
            [
                [
                    str(flip["id"]),
                    str(flip["old"]),
                    str(flip["new"]),
                    belief(flip["belief"]),
                    belief(flip["belief_old"]),
                ]
                for flip in view["doubtful"][:SHOWN]
            ],
            text=(0, 1, 2),
        )
    return parts


def _outlook(told: dict[str, Any]) -> str:
    begin = (
        f"{cell(told['model'])} on {number(told['evaluations'])} of {number(told['eligible'])} "
        f"items ({told['budget']}, {told['rule']})"
    )
    if told["fixed"] is None:
        return f"{begin}. {told['note']}"
    now = percent(told["accuracy_now"]["value"]) if told["accuracy_now"] else "–"
    then = estimate(told["accuracy"], "share")
    return (
        f"{begin} would fix about {estimate(told['fixed'])} labels and break "
        f"{estimate(told['broke'])}: expected accuracy {now} → {then}."
    )


def _warnings(told: Sequence[str]) -> list[str]:
    return [line for one in told for line in ("", f"> **Careful.** {cell(one)}")]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[int]) -> list[str]:
    """A table whose columns are numbers but for some."""
    line = "|".join(":---" if at in text else "---:" for at in range(len(head)))
    body = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{line}|", *body]


def cell(text: str) -> str:
    """Text that stays text, whatever is in it, in one line.

    >>> print(cell("a|b <img> [x](y)\\n*c* &lt; $d$"))
    a\\|b \\<img\\> \\[x\\](y) \\*c\\* &amp;lt; \\$d\\$
    """
    flat = re.sub(r"\s+", " ", text).replace("&", "&amp;")
    flat = re.sub(r"([\\`*_\[\]<>|~$])", r"\\\1", flat)
    # What a code host would make a link of, or call somebody by, is taken apart by nothing.
    return re.sub(r"(:(?=//)|[@#](?=\w)|www\.(?=\w)|GH-(?=\d))", r"\1&#8203;", flat)
