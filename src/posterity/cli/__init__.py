"""The command line: the library's verbs, with help, tables and JSON.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted. Errors are one paragraph
on stderr, or an
object with ``--json``; never a traceback.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence

import click

import posterity
from posterity._first_use import when_compiling
from posterity.cli import bringing, changing, inspecting, reviewing, showing
from posterity.cli.demo import demo_command
from posterity.cli.replay import replay_command
from posterity.errors import PosterityError

TRACEBACK = "POSTERITY_TRACEBACK"
"""Set in the environment, errors are raised as they are."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(posterity.__version__, prog_name="posterity")
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


for command in (
    *(bringing.init_command, bringing.classes_command, bringing.add_command),
    *(bringing.import_command, bringing.model_command, changing.remove_command),
    *(changing.plan_command, changing.compare_command),
    *(changing.update_command, changing.revert_command),
    reviewing.review_command,
    *(changing.settle_command, changing.compact_command, changing.vacuum_command),
    *(inspecting.status_command, inspecting.log_command, inspecting.flips_command),
    *(inspecting.labels_command, inspecting.history_command, inspecting.check_command),
    inspecting.explain_command,
    inspecting.reliability_command,
    *(showing.serve_command, showing.report_command),
    *(demo_command, replay_command),
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        # Where the encoding knows no Σ, a question mark is better than no table at all.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stderr.isatty():
        when_compiling(_say_why_it_takes_longer)
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def _say_why_it_takes_longer() -> None:
    click.echo("First use on this machine: compiling, once, for up to a minute …", err=True)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    as_json = "--json" in arguments
    try:
        code = cli.main(args=list(arguments), prog_name="posterity", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except BrokenPipeError:
        # The reader of our output has left (as `| head` does); there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(TRACEBACK):
            raise
        told = _told(error)
        if as_json:
            click.echo(json.dumps({"error": told}, ensure_ascii=False), err=True)
        else:
            hint = f" {told['hint']}" if told["hint"] else ""
            click.echo(f"Error: {told['message']}{hint}", err=True)
        return _exit_code(error)


def _told(error: BaseException) -> dict[str, str | None]:
    """An error as kind, message and hint."""
    if isinstance(error, PosterityError):
        return error.to_dict()
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "posterity"
        hint = f"Try '{command} --help'."
        return {"kind": "usage", "message": error.format_message(), "hint": hint}
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return {"kind": "interrupted", "message": "Interrupted.", "hint": None}
    if isinstance(error, OSError):
        which = f": '{error.filename}'" if error.filename else ""
        return {"kind": "file", "message": f"{error.strerror or error}{which}.", "hint": None}
    return {
        "kind": "bug",
        "message": f"Unexpected {type(error).__name__}: {error}.",
        "hint": f"Please report it, with what {TRACEBACK}=1 in the environment prints.",
    }


def _exit_code(error: BaseException) -> int:
    if isinstance(error, PosterityError):
        return error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return 130
    return 2 if isinstance(error, click.UsageError) else 1
