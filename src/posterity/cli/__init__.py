"""The command line: the library's verbs, with help, tables and JSON.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted. Errors are one paragraph
on stderr, or an object with ``--json``; never a traceback.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

import click

from posterity._text import json_text
from posterity._version import __version__
from posterity.cli.output import echo, in_flags
from posterity.errors import PosterityError, PosterityWarning
from posterity.method.kernels import when_compiling

TRACEBACK = "POSTERITY_TRACEBACK"
"""Set in the environment, errors are raised as they are."""
LONGEST = 2000
"""Characters of an error that are printed."""


COMMANDS = {
    "add": ("data", "Add items."),
    "check": ("inspect", "Verify every invariant."),
    "classes": ("data", "Show or append classes."),
    "compact": ("steps", "Fewer files; purge removed items."),
    "compare": ("steps", "Which model to spend the same money on."),
    "demo": ("demo.command", "See the main job on real texts and detectors."),
    "explain": ("inspect", "Why an item has its label."),
    "flips": ("inspect", "The labels a step changed."),
    "history": ("inspect", "What happened to one item."),
    "import": ("data", "Items and labels from stored predictions."),
    "init": ("data", "Make an empty store."),
    "labels": ("inspect", "Current labels."),
    "log": ("inspect", "The steps of a store."),
    "model": ("data", "Register a model."),
    "plan": ("steps", "Which items a model should look at."),
    "redecide": ("steps", "Decide labels again from the votes there are."),
    "reliability": ("inspect", "How far beliefs can be trusted."),
    "remove": ("steps", "Remove items."),
    "replay": ("replay", "Measure on recorded predictions."),
    "report": ("show", "A store, or one step, as a file to send."),
    "revert": ("steps", "Undo a step."),
    "review": ("review", "Ask people about items, and take their answers."),
    "runs": ("inspect", "Plans and unfinished runs."),
    "serve": ("show", "Look at a store in a browser."),
    "settle": ("steps", "Make pending flips."),
    "status": ("inspect", "A store at a glance."),
    "tune": ("steps", "Find the policy that serves your goal."),
    "update": ("steps", "Spend a plan and commit a step."),
    "vacuum": ("steps", "Delete files nothing refers to."),
}
"""Where each command is, and what it does in a line: help must not load them all."""


class Commands(click.Group):
    """Commands that are loaded when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """By name."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """A command with all it needs."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module = import_module(f"posterity.cli.{COMMANDS[cmd_name][0]}")
            self.add_command(getattr(module, f"{cmd_name}_command"))
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """A line each, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def every(self) -> dict[str, click.Command]:
        """All commands, loaded."""
        context = click.Context(self)
        found = {name: self.get_command(context, name) for name in COMMANDS}
        return {name: command for name, command in found.items() if command is not None}


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="posterity")
def cli() -> None:
    """Keep a dataset's stored predictions up to date as models improve.

    Start with `posterity demo`; measure on recorded predictions with `posterity replay`. From
    predictions you have to your first update takes five commands (docs/first-hour.md):

    \b
      posterity init photos --classes preds.parquet --column pred
      posterity import photos preds.parquet --id path --label pred --model old --labelled truth.csv
      posterity model photos vit-l --predict mypackage.models:vit
      posterity plan photos vit-l --budget 10%
      posterity update photos vit-l --budget 10%
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        # Where the encoding knows no Σ, a question mark is better than no table at all.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning
    if sys.stderr.isatty():
        when_compiling(_say_why_it_takes_longer)
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Ours in one sentence; those of others as they come."""
    told = warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    ours = issubclass(category, PosterityWarning)
    echo(f"Warning: {in_flags(str(message))}" if ours else told, file=file, err=True)


def _say_why_it_takes_longer() -> None:
    echo("First use on this machine: compiling, once, for up to a minute …", err=True)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    as_json = "--json" in arguments
    try:
        code = cli.main(args=list(arguments), prog_name="posterity", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        return 2
    except BrokenPipeError:
        # The reader of our output has left (as `| head` does); there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(TRACEBACK):
            raise
        code, told = _told(error)
        command = cli.commands.get(arguments[0]) if arguments else None
        told = {name: text and _cut(in_flags(text, command)) for name, text in told.items()}
        if as_json:
            echo(json_text({"error": told}), err=True)
        else:
            hint = f" {told['hint']}" if told["hint"] else ""
            echo(f"Error: {told['message']}{hint}", err=True)
        return code


def _cut(text: str) -> str:
    """A message as long as one can be read: what was given may be repeated in it."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _interrupted(error: BaseException | None) -> bool:
    """Whether somebody stopped it: while a class is made, Python says so by another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _told(error: BaseException) -> tuple[int, dict[str, str | None]]:
    """The exit code, and an error as kind, message and hint."""
    if isinstance(error, PosterityError):
        return error.exit_code, error.to_dict()
    code, kind, hint = 1, "bug", None
    if isinstance(error, click.UsageError):
        code, kind, message = 2, "usage", error.format_message()
        hint = f"Try '{error.ctx.command_path if error.ctx else 'posterity'} --help'."
    elif isinstance(error, click.Abort) or _interrupted(error):
        code, kind, message = 130, "interrupted", "Interrupted."
    elif isinstance(error, UnicodeEncodeError):
        code, kind, message = 2, "usage", "An argument has bytes that are not UTF-8 text."
    elif isinstance(error, OSError):
        which = f": '{error.filename}'" if error.filename else ""
        kind, message = "file", f"{error.strerror or error}{which}."
    else:
        message = f"Unexpected {type(error).__name__}: {error}."
        hint = f"Please report it, with what {TRACEBACK}=1 in the environment prints."
    return code, {"kind": kind, "message": message, "hint": hint}
