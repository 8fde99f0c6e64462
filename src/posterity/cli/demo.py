"""``posterity demo``: the method on real classifiers, in a few seconds and in plain words."""

from __future__ import annotations

import shlex
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from posterity.cli.output import print_json, show
from posterity.demo import record_digits
from posterity.replay import Recording, run
from posterity.specs import MOST_SEED

WAYS = (
    ("never update", 0, "replace"),
    ("full backfill: every item, always replace", "100%", "replace"),
    ("full backfill, majority vote", "100%", "majority-vote"),
    ("Posterity: 10% of the items, cost ratio 10", "10%", "cost-ratio:10"),
    ("Posterity: 20% of the items, cost ratio 10", "20%", "cost-ratio:10"),
    ("Posterity: every item, cost ratio 10", "100%", "cost-ratio:10"),
)


@click.command("demo", short_help="See the method work on real classifiers.")
@click.option(
    "--seed",
    type=click.IntRange(0, MOST_SEED),
    default=0,
    show_default=True,
    help="Which digits are learnt from and labelled.",
)
@click.option(
    "--recording", metavar="FILE", help="Also keep the recorded votes, for `posterity replay`."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print replay rows as JSON instead of a table."
)
def demo_command(seed: int, recording: str | None, as_json: bool) -> None:
    """Record six scikit-learn classifiers on handwritten digits and keep stored labels up to date.

    The first classifier labels every digit. Then five better ones arrive, one after the other.
    What does running each of them on everything cost and break, and what does a small budget do
    instead?
    """
    digits = record_digits(seed)
    if recording is not None:
        digits.save(recording)
    rows = [
        run(digits, order="improving", budgets=budget, rules=rule, seed=seed).rows[0]
        for _, budget, rule in WAYS
    ]
    if as_json:
        print_json({"rows": rows})
        return
    show(_story(digits, rows[0]))
    show(_table(rows))
    show(_moral(rows))
    if recording is not None:
        show(Text(f"The recording is kept; try: posterity replay {shlex.quote(recording)}"))


def _story(digits: Recording, first: dict[str, Any]) -> str:
    labelled = len(digits) - first["n"]
    return (
        f"{first['n']:,} digits carry the label '{first['models'][0]}' gave them; "
        f"{first['accuracy']:.1f} % are right, but nobody knows which.\n"
        f"{first['steps']} better classifiers arrive: {', '.join(first['models'][1:])}.\n"
        f"{labelled:,} other digits with known truth tell how each of them errs."
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    caption = "fixed: positive flips, wrong → right; broke: negative flips, right → wrong"
    shown = Table(box=SIMPLE_HEAD, header_style="bold", caption=caption, caption_justify="left")
    shown.add_column("way of updating")
    for heading in ("evaluations", "fixed", "broke", "accuracy"):
        shown.add_column(heading, justify="right")
    for (way, _, _), row in zip(WAYS, rows, strict=True):
        shown.add_row(
            way,
            f"{row['evaluations']:,}",
            f"{row['positive_flips']:,}",
            f"{row['negative_flips']:,}",
            f"{row['accuracy']:.1f} %",
        )
    return shown


def _moral(rows: list[dict[str, Any]]) -> str:
    backfill, small, large = rows[1], rows[3], rows[5]
    return (
        f"On its way the backfill broke {backfill['negative_flips']} labels that were right.\n"
        f"With {small['evaluations'] / backfill['evaluations']:.0%} of its evaluations Posterity "
        f"fixed {small['positive_flips']} and broke {small['negative_flips']}; "
        f"with all of them it broke {large['negative_flips']}."
    )
