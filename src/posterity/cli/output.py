"""What all commands print with: tables that fit, progress only for people, JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from posterity._text import (
    SHOWN_AS,
    SHOWN_IN_TEXTS,
    advice_on_command_line,
    json_text,
    on_command_line,
)
from posterity.storage.output import is_standard

PIPED_WIDTH = 200


def echo(text: str, *, err: bool = False, file: TextIO | None = None) -> None:
    """Print a text for people: the one place for it. Names, ids and answers of servers are in it,
    and what they hold must not move the cursor, colour the screen or write to the clipboard.
    """
    click.echo(text.translate(SHOWN_IN_TEXTS), err=err, file=file)


@dataclass(frozen=True)
class _Harmless:
    """Something for people with nothing in it that a terminal obeys, but what Rich puts there."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.inner, options):
            if segment.control is None:
                yield Segment(segment.text.translate(SHOWN_IN_TEXTS), segment.style)
            else:
                yield segment


def console() -> Console:
    """Standard output; wide when piped, so that nothing is folded for a file or another program.

    A name in brackets is a name, not markup.
    """
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def show(renderable: RenderableType) -> None:
    """Print something for people; piped, without the padding a terminal does not show."""
    out = console()
    if sys.stdout.isatty():
        out.print(_Harmless(renderable), crop=False)
        return
    with out.capture() as captured:
        out.print(_Harmless(renderable))
    echo("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


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
exact_option = click.option(
    "--exact",
    is_flag=True,
    help="Write a .csv byte for byte: by default texts that a spreadsheet would run as formulas get"
    " an apostrophe in front.",
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


columns_option = click.option(
    "--columns",
    metavar="A,B",
    help="Columns of the payload to show; a star stands for any text: px*. [default: the first 8,"
    " texts and pictures before numbers]",
)


def listed(text: str | None) -> list[str] | None:
    """Names separated by commas; None where none were asked for."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Options that several commands have, as one decorator; help lists them in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def plain_table(
    rows: Sequence[dict[str, Any]], *, right: Collection[str] = (), caption: str | None = None
) -> Table:
    """Rows as a table; numbers to the right, and texts of these columns; nothing as a dash."""
    shown = Table(box=SIMPLE_HEAD, header_style="bold", caption=caption, caption_justify="left")
    for key in rows[0]:
        numeric = key in right or all(isinstance(row[key], _NUMERIC) for row in rows)
        shown.add_column(key, justify="right" if numeric else "left")
    for row in rows:
        shown.add_row(*(Text(_cell(value)) for value in row.values()))
    return shown


_NUMERIC = (int, float, type(None))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else str(value).translate(SHOWN_AS)


def print_json(value: Any) -> None:
    """One JSON document."""
    echo(json_text(value, indent=1))


def in_flags(text: str, command: click.Command | None = None) -> str:
    """Advice on Python's options, as a command (by default the one under way) has them."""
    flags = _flags(command)
    told = on_command_line(text, flags)
    return _PARAMETER.sub(lambda found: flags.get(found[1], found[0]), told)


_PARAMETER = re.compile(r"^The parameter '(\w+)'")


def _flags(command: click.Command | None) -> dict[str, str]:
    """The options and arguments of a command by the parameter they are."""
    context = click.get_current_context(silent=True)
    if command is None and context is not None:
        command = context.command
    given = [] if command is None else command.params
    return {
        str(one.name): one.opts[0] if isinstance(one, click.Option) else str(one.name).upper()
        for one in given
    }


def refuse_two(out: str | None, as_json: bool) -> bool:
    """Whether rows go to standard output; JSON cannot go there too."""
    standard = out is not None and is_standard(out)
    if standard and as_json:
        raise click.UsageError(
            f"--out {out} and --json both write to standard output; choose one.",
            click.get_current_context(),
        )
    return standard


def tell(
    as_json: bool,
    value: Any,
    text: str | RenderableType | None = None,
    *,
    err: bool = False,
) -> None:
    """What a command has to say: to programs, or to people; a result says both itself.

    ``err``: standard output is taken.
    """
    if as_json:
        told = value.to_dict() if hasattr(value, "to_dict") else value
        print_json(advice_on_command_line(told, in_flags))
    elif text is None or isinstance(text, str):
        echo(in_flags(str(value) if text is None else text), err=err)
    else:
        show(text)


def confirmed(told: str, question: str) -> bool:
    """Whether a person says yes; where nobody can be asked, no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    echo(told, err=True)
    return click.confirm(question, err=True)
