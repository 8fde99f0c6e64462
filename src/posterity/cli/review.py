"""The command review: whom to ask about, and what people answered."""

from __future__ import annotations

from pathlib import Path

import click

from posterity.cli.output import (
    as_json_option,
    echo,
    exact_option,
    executor_option,
    plain_table,
    print_json,
    show,
    store_argument,
    tell,
)
from posterity.engine.steps import ANSWER, NEXT, WORTH
from posterity.storage.files import local_path
from posterity.storage.output import check_target, write_batches
from posterity.store import Store

ASKING = ("next", "order", "where", "out", "exact")
ANSWERING = ("id_column", "answer", "learn", "dry_run")


@click.command("review")
@store_argument
@click.option(
    "--next", type=click.IntRange(min=1), default=NEXT, show_default=True, help="How many items."
)
@click.option(
    "--order",
    default=WORTH,
    show_default=True,
    help="worth (the chance that the label is wrong), entropy, random[:SEED].",
)
@click.option("--where", metavar="SQL", help="Only items whose payload satisfies this.")
@click.option(
    "--out", metavar="FILE", help="Write them with their payload: .parquet, .csv, .jsonl."
)
@exact_option
@click.option("--answers", metavar="FILE", help="Take answers instead: the file, filled in.")
@click.option("--id", "id_column", default="id", show_default=True, help="Its column of ids.")
@click.option("--answer", default=ANSWER, show_default=True, help="Its column of answers.")
@click.option("--learn", is_flag=True, help="The answers become labelled items of the models too.")
@click.option("--dry-run", is_flag=True, help="Look at the answers, change nothing.")
@executor_option
@as_json_option
@click.pass_context
def review_command(
    context: click.Context,
    store: str,
    next: int,  # noqa: A002 the user's word
    order: str,
    where: str | None,
    out: str | None,
    exact: bool,
    answers: str | None,
    id_column: str,
    answer: str,
    learn: bool,
    dry_run: bool,
    executor: str,
    as_json: bool,
) -> None:
    """List the items whose label a person should look at: first those without one, then by what an
    answer is worth. With --answers, make what people answered the labels of these items.

    An answer stays, whatever models vote later, until it is answered again or its step is
    reverted. Rows without an answer are left out, and those that cannot be used are told of.

    \b
      posterity review photos --next 50 --out todo.csv
      posterity review photos --answers todo.csv

    With --learn, later steps also learn from the answers how models err. That is fair to the
    models only where items were drawn (`--order random`): on doubtful ones they look worse than
    they are.
    """
    _refuse_others(context, ASKING if answers is not None else ANSWERING, answers is not None)
    held = Store(store, executor=executor)
    if answers is not None:
        done = held.review(answers, id=id_column, answer=answer, learn=learn, dry_run=dry_run)
        tell(as_json, done)
        return
    if out is not None:
        check_target(Path(local_path(out)))
    queue = held.review_queue(next, order=order, where=where)
    if out is not None:
        write_batches(held.review_batches(queue), Path(local_path(out)), exact=exact)
    if as_json:
        print_json(queue.to_dict())
        return
    if len(queue) and out is None:
        show(plain_table(queue.items.drop_columns(["row"]).to_pylist()))
    echo(str(queue) + (f"\nitems in {out}; fill in its column '{ANSWER}'" if out else ""))


def _refuse_others(context: click.Context, names: tuple[str, ...], answering: bool) -> None:
    """Options of the other half of the command, which would be ignored quietly."""
    for name in names:
        if context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            flag = {"id_column": "--id"}.get(name, f"--{name.replace('_', '-')}")
            needs = "has no use with --answers" if answering else "needs --answers"
            raise click.UsageError(f"{flag} {needs}.", context)
