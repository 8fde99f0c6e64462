"""What all commands print with: tables that fit, progress only for people, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from posterity.replay.experiment import Progress as Report
from posterity.replay.table import SHED_FIRST, table

PIPED_WIDTH = 200


def console() -> Console:
    """Standard output; wide when piped, so that nothing is folded for a file or another program."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)


def show(renderable: RenderableType) -> None:
    """Print something for people; piped, without the padding a terminal does not show."""
    out = console()
    if sys.stdout.isatty():
        out.print(renderable, crop=False)
        return
    with out.capture() as captured:
        out.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


store_argument = click.argument("store")
executor_option = click.option(
    "--executor",
    metavar="WHERE",
    default="local",
    show_default=True,
    envvar="POSTERITY_EXECUTOR",
    help="Where shards are worked on: local, or a Ray cluster: ray (the one this machine belongs"
    " to, or ray://HOST:PORT of its head), ray://local (one of this machine, for this call).",
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def plain_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Rows as a table; numbers to the right, nothing as a dash."""
    shown = Table(box=SIMPLE_HEAD, header_style="bold")
    for key in rows[0]:
        numeric = all(isinstance(row[key], (int, float, type(None))) for row in rows)
        shown.add_column(key, justify="right" if numeric else "left")
    for row in rows:
        shown.add_row(*(Text(_cell(value)) for value in row.values()))
    return shown


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else str(value)


def print_json(value: Any) -> None:
    """One JSON document; NaN is refused because JSON has none."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1))


def print_results(rows: Sequence[dict[str, Any]]) -> None:
    """Replay results as a table, shedding the least important columns on a narrow terminal."""
    out = console()
    unlimited = out.options.update(max_width=PIPED_WIDTH)  # else a table measures as if it fitted
    for shed in range(len(SHED_FIRST) + 1):
        fitted = table(rows, without=SHED_FIRST[:shed])
        needed = Measurement.get(out, unlimited, fitted).maximum
        if needed <= out.width:
            break
    else:
        fitted.width = needed  # better wider than the terminal than cut beyond recognition
    show(fitted)


class _Speed(ProgressColumn):
    """How many a second, once that is known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def progress_bar(what: str, unit: str = "steps") -> Iterator[Report | None]:
    """A bar on a terminal, nothing when the output is piped."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield None
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        _Speed(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
