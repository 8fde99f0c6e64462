"""Commands that look at a store: status, log, flips, history, labels, check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from posterity._text import Progress, counted, percent
from posterity.cli.output import (
    as_json_option,
    echo,
    exact_option,
    executor_option,
    plain_table,
    print_json,
    progress_bar,
    show,
    store_argument,
    tell,
)
from posterity.engine.executors import open_executor
from posterity.engine.inspect import queries
from posterity.engine.ledger import publish
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import Sharded, refuse_used
from posterity.engine.ledger.reports import expected_accuracy
from posterity.engine.ledger.steps import REDECIDE, REVIEW, SETTLE, TUNE, Header
from posterity.errors import InvalidParameter
from posterity.storage.files import local_path, open_files
from posterity.storage.output import check_target, is_folder, write_stream
from posterity.store import Store
from posterity.validation import shift

SHOWN = 20
ACCURACY = (
    "accuracy: as expected without truth; ?: as the beliefs have it, unchecked on labelled items; "
    "!: of items that look unlike those"
)


@click.command("status")
@store_argument
@as_json_option
def status_command(store: str, as_json: bool) -> None:
    """Items, classes, models, the last step, the policy, pending flips, and unfinished runs."""
    told = Store(store).status()
    if as_json:
        print_json(told)
        return
    expected = told.pop("expected_accuracy")
    told["accuracy"] = (
        "–" if expected is None else f"{percent(**expected)}, as expected without truth"
    )
    for key, value in told.items():
        listed = ", ".join(value) if isinstance(value, list) else value
        echo(f"{key:12} {listed if listed != '' else '–'}")


@click.command("log")
@store_argument
@as_json_option
def log_command(store: str, as_json: bool) -> None:
    """Every step: what was asked for, what it spent, what it changed."""
    headers = Store(store).log()
    if as_json:
        print_json({"steps": [asdict(header) for header in headers]})
        return
    rows = [
        {
            "step": header.step,
            "kind": header.kind,
            "model": _what(header),
            "budget": header.budget,
            "rule": header.rule,
            "evaluations": header.report.get("evaluations"),
            "flips": header.flips,
            "pending": header.report.get("pending"),
            "accuracy": _accuracy(header),
            "time": header.time,
        }
        for header in headers
    ]
    show(plain_table(rows) if rows else "no steps yet")
    if any(row["accuracy"] for row in rows):
        echo(ACCURACY)
    warned = [header for header in headers if header.unlike]
    if warned:
        echo(f"step {warned[-1].step}: {shift.warning(warned[-1].unlike)}")


def _accuracy(header: Header) -> str | None:
    """As expected after a step."""
    found = expected_accuracy(header)
    if found is None or found.low is None:
        return None if found is None else f"{percent(**found.to_dict())} ?"
    return percent(**found.to_dict()) + (" !" if header.unlike else "")


def _what(header: Header) -> str:
    if header.reverts is not None:
        return f"reverts {header.reverts}"
    if header.gives_truth:
        return f"truth with {header.model}"
    if header.kind == REVIEW:
        return counted(header.answers, "answer")
    without_model = {REDECIDE: "all labels", SETTLE: "pending flips", TUNE: "later steps"}
    return header.model or without_model.get(header.kind, "")


@click.command("runs")
@store_argument
@click.option("--drop", metavar="RUN", help="Delete this one, with the votes it holds.")
@as_json_option
def runs_command(store: str, drop: str | None, as_json: bool) -> None:
    """Plans and runs that are not a step yet: what each was planned for and the votes it holds.

    A started run belongs to an update that is under way or was cut short. The same `update` goes on
    with it; --drop gives it up.

    \b
      posterity runs photos
      posterity runs photos --drop 4f1c0e9b7a52-1
    """
    held = Store(store)
    if drop is not None:
        dropped = held.drop_run(drop)
        votes = "" if dropped.votes is None else f" with {counted(dropped.votes, 'vote')}"
        done = f"Dropped {dropped.state} run {dropped.run}{votes}."
        tell(as_json, {"dropped": dropped.to_dict()}, done)
        return
    runs = [run.to_dict() for run in held.runs()]
    shown = plain_table(runs) if runs else "No plans, and no unfinished runs."
    tell(as_json, {"runs": runs}, shown)


out_option = click.option(
    "--out",
    metavar="FILE|FOLDER/",
    help="Write all of them to a .parquet, .csv or .jsonl file; or to a folder that is empty or not"
    " there yet (FOLDER/, s3://bucket/prefix/), as one Parquet file a shard, each written where the"
    " shard is worked on, and _SUCCESS when all are there.",
)


@click.command("flips")
@store_argument
@click.option("--step", type=int, help="Which step. [default: the last]")
@out_option
@exact_option
@executor_option
@as_json_option
def flips_command(
    store: str, step: int | None, out: str | None, exact: bool, executor: str, as_json: bool
) -> None:
    """Items whose label a step changed: id, row, old, new, belief, step, reason; by row."""
    flips = queries.flips_by_shard(_opened(store, out, executor), step)
    _tell_rows(flips, "flips", out, exact=exact, as_json=as_json)


@click.command("labels")
@store_argument
@click.option(
    "--since", type=int, metavar="STEP", help="Only what changed after this step (-1: ever)."
)
@out_option
@exact_option
@executor_option
@as_json_option
def labels_command(
    store: str, since: int | None, out: str | None, exact: bool, executor: str, as_json: bool
) -> None:
    """The label of each item, the belief in it, and the step of its last change; by row.

    With --since, what a pipeline that applies only changes needs: id, row, old, new, belief, step,
    reason. An item whose label came back to what it was is not among them.
    """
    context = _opened(store, out, executor)
    if since is None:
        what, rows = "labels", publish.labels_by_shard(context)
    else:
        what, rows = "changes", queries.changes_by_shard(context, since)
    _tell_rows(rows, what, out, exact=exact, as_json=as_json)


@click.command("history")
@store_argument
@click.argument("item")
@as_json_option
def history_command(store: str, item: str, as_json: bool) -> None:
    """Every vote on an item, the belief after it, what its label became, and the label proposed
    where a flip is pending. A step without a vote made a flip that was pending.
    """
    held = Store(store)
    told = held.history(held._context().read_id(item))
    shown = plain_table(told) if told else "nobody has voted on this item yet"
    tell(as_json, {"history": told}, shown)


@click.command("explain")
@store_argument
@click.argument("item")
@as_json_option
def explain_command(store: str, item: str, as_json: bool) -> None:
    """Why the label of ITEM moved or did not, in words: every vote and what it says, what each
    step compared, and which vote of a model that has not voted yet would change it.

    Of each vote is told how many times as likely it makes the label beside its strongest rival.
    `history` shows the same item as bare numbers.
    """
    held = Store(store)
    told = held.explain(held._context().read_id(item))
    tell(as_json, told)


@click.command("reliability")
@store_argument
@click.option("--plot", metavar="FILE", help="Draw it: .png, .svg or .pdf.")
@as_json_option
def reliability_command(store: str, plot: str | None, as_json: bool) -> None:
    """Of labels believed so much, how many are right: on the labelled set.

    The labelled items go through the steps of STORE as if they were stored, half of them by what
    was learnt on the other half. Needs dependent beliefs, and labelled votes with ids.
    """
    if plot is not None:
        from posterity.cli import replay

        replay.check_picture(Path(plot))
    found = Store(store).reliability()
    if plot is not None:
        replay.reliability(found.labels, found.best, Path(plot))
    tell(as_json, found, str(found) + (f"\ndrawn in {plot}" if plot else ""))


@click.command("check")
@store_argument
@click.option("--repair", is_flag=True, help="First drop rows that a table holds twice.")
@executor_option
@as_json_option
def check_command(store: str, repair: bool, executor: str, as_json: bool) -> None:
    """Verify files, rows and headers, and decide every step again from its votes.

    Exit code 1 if anything is broken; each line names what. --repair restores a store in which
    rows are there twice, as two compactions at once could leave it.
    """
    held = Store(store, executor=executor)
    repaired = held.repair() if repair else []
    broken = held.check()
    tell(
        as_json,
        {"broken": broken} | ({"repaired": repaired} if repair else {}),
        "\n".join([*repaired, *(broken or ["The store is sound."])]),
    )
    if broken:
        raise click.exceptions.Exit(1)


def _opened(store: str, out: str | None, executor: str) -> Context:
    """The store, read shard by shard; where to write is looked at first."""
    if out is not None and is_folder(out):
        refuse_used(open_files(out))
    elif out is not None and "://" in local_path(out):
        allowed = "a .parquet, .csv or .jsonl file here, or a folder/ on an object store"
        raise InvalidParameter.of("out", allowed, out)
    elif out is not None:
        check_target(Path(local_path(out)))
    return Context(open_files(store), open_executor(executor))


def _tell_rows(sharded: Sharded, what: str, out: str | None, *, exact: bool, as_json: bool) -> None:
    """The first rows and how many there are, or all of them as JSON; all written, if asked."""
    first: list[dict[str, Any]] = []

    def passing(progress: Progress | None) -> Iterator[pa.Table]:
        for table in sharded.each(progress):
            wanted = table.num_rows if as_json and out is None else SHOWN - len(first)
            # As plain rows: a slice would hold on to the whole table.
            first.extend(table.slice(0, wanted).to_pylist())
            yield table

    with progress_bar("Reading", "items") as progress:
        if out is None:
            count = sum(table.num_rows for table in passing(progress))
        elif is_folder(out):
            first, count = sharded.write(open_files(out), first=SHOWN, progress=progress)
        else:
            target = Path(local_path(out))
            count = write_stream(target, sharded.schema, passing(progress), exact=exact)
    if as_json:
        print_json({what: first})
        return
    if first:
        show(plain_table(first))
    more = f", the first {SHOWN} shown" if count > SHOWN else ""
    echo(f"{count:,} {what}{more}" + (f"; all in {out}" if out else ""))
