"""The command line: the library's verbs, with help, tables and JSON.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage. Errors are one paragraph on stderr, or an
object with ``--json``; never a traceback.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

import click

import posterity
from posterity.cli.demo import demo
from posterity.cli.replay import replay
from posterity.errors import PosterityError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(posterity.__version__, prog_name="posterity")
def cli() -> None:
    """Keep a dataset's stored predictions up to date as models improve.

    Start with `posterity demo`; measure on recorded predictions with `posterity replay`.
    """


cli.add_command(demo)
cli.add_command(replay)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(given))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    as_json = "--json" in arguments
    try:
        code = cli.main(args=list(arguments), prog_name="posterity", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PosterityError as error:
        return _fail(error.to_dict(), error.exit_code, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "posterity"
        told = {
            "kind": "usage",
            "message": error.format_message(),
            "hint": f"Try '{command} --help'.",
        }
        return _fail(told, 2, as_json=as_json)
    except BrokenPipeError:
        # The reader of our output has left (as `| head` does); there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted; nothing was written.", err=True)
        return 130


def _fail(error: Mapping[str, str | None], code: int, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
    else:
        hint = f" {error['hint']}" if error["hint"] else ""
        click.echo(f"Error: {error['message']}{hint}", err=True)
    return code
