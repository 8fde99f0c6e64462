"""Commands that look at a store: status, log, flips, history, labels, check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from posterity import likeness, plots
from posterity._wording import counted
from posterity.cli.output import (
    as_json_option,
    executor_option,
    plain_table,
    print_json,
    progress_bar,
    show,
    store_argument,
)
from posterity.engine import publishing, reading
from posterity.engine.context import Context
from posterity.engine.exporting import Sharded, refuse_used
from posterity.engine.reports import expected_accuracy, percent
from posterity.engine.runs import Progress
from posterity.engine.steps import REVIEW, Header
from posterity.errors import InvalidData, InvalidParameter
from posterity.executors import open_executor
from posterity.expectations import Estimate
from posterity.likeness import Difference
from posterity.store import Store
from posterity.tables.exports import check_target, is_folder, write_stream
from posterity.tables.files import open_files

SHOWN = 20
ACCURACY = (
    "accuracy: as expected without truth; ?: as the beliefs have it, unchecked on labelled items; "
    "!: of items that look unlike those"
)


@click.command("status", short_help="A store at a glance.")
@store_argument
@as_json_option
def status_command(store: str, as_json: bool) -> None:
    """Items, classes, models, the last step, pending flips, and runs that are not finished."""
    told = Store(store).status()
    if as_json:
        print_json(told)
        return
    expected = told.pop("expected_accuracy")
    told["accuracy"] = (
        "–" if expected is None else f"{percent(Estimate(**expected))}, as expected without truth"
    )
    for key, value in told.items():
        listed = ", ".join(value) if isinstance(value, list) else value
        click.echo(f"{key:12} {listed if listed != '' else '–'}")


@click.command("log", short_help="The steps of a store.")
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
            "flips": header.report.get("flips", header.report.get("changed")),
            "pending": header.report.get("pending"),
            "accuracy": _accuracy(header),
            "time": header.time,
        }
        for header in headers
    ]
    show(plain_table(rows) if rows else "no steps yet")
    if any(row["accuracy"] for row in rows):
        click.echo(ACCURACY)
    warned = [header for header in headers if _unlike(header)]
    if warned:
        click.echo(f"step {warned[-1].step}: {likeness.warning(_unlike(warned[-1]))}")


def _unlike(header: Header) -> list[Difference]:
    """In what the items of a step looked unlike the labelled set."""
    told = [Difference(**one) for one in header.report.get("differences", ())]
    return [one for one in told if one.unlike]


def _accuracy(header: Header) -> str | None:
    """As expected after a step."""
    found = expected_accuracy(header.report)
    if found is None or found.low is None:
        return None if found is None else f"{percent(found)} ?"
    return percent(found) + (" !" if _unlike(header) else "")


def _what(header: Header) -> str:
    if header.reverts is not None:
        return f"reverts {header.reverts}"
    if header.kind == REVIEW:
        return counted(header.report["items"], "answer")
    return header.model or "pending flips"


out_option = click.option(
    "--out",
    metavar="FILE|FOLDER/",
    help="Write all of them to a .parquet, .csv or .jsonl file; or to a folder that is empty or not"
    " there yet (FOLDER/, s3://bucket/prefix/), as one Parquet file a shard, each written where the"
    " shard is worked on, and _SUCCESS when all are there.",
)


@click.command("flips", short_help="The labels a step changed.")
@store_argument
@click.option("--step", type=int, help="Which step. [default: the last]")
@out_option
@executor_option
@as_json_option
def flips_command(
    store: str, step: int | None, out: str | None, executor: str, as_json: bool
) -> None:
    """Items whose label a step changed: id, row, old, new, belief, step, reason; by row."""
    told = _taken(reading.flips_by_shard(_opened(store, out, executor), step), out, as_json)
    _tell(told, "flips", out, as_json=as_json)


@click.command("labels", short_help="Current labels.")
@store_argument
@click.option(
    "--since", type=int, metavar="STEP", help="Only what changed after this step (-1: ever)."
)
@out_option
@executor_option
@as_json_option
def labels_command(
    store: str, since: int | None, out: str | None, executor: str, as_json: bool
) -> None:
    """The label of each item, the belief in it, and the step of its last change; by row.

    With --since, what a pipeline that applies only changes needs: id, row, old, new, belief, step,
    reason. An item whose label came back to what it was is not among them.
    """
    context = _opened(store, out, executor)
    if since is None:
        sharded = publishing.labels_by_shard(context)
    else:
        sharded = reading.changes_by_shard(context, since)
    told = _taken(sharded, out, as_json)
    _tell(told, "labels" if since is None else "changes", out, as_json=as_json)


@click.command("history", short_help="What happened to one item.")
@store_argument
@click.argument("item")
@as_json_option
def history_command(store: str, item: str, as_json: bool) -> None:
    """Every vote on an item, the belief after it, what its label became, and the label proposed
    where a flip is pending. A step without a vote made a flip that was pending.
    """
    held = Store(store)
    told = held.history(read_id(item, held.id_type))
    if as_json:
        print_json({"history": told})
    else:
        show(plain_table(told) if told else "nobody has voted on this item yet")


@click.command("explain", short_help="Why an item has its label.")
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
    told = held.explain(read_id(item, held.id_type))
    if as_json:
        print_json(told.to_dict())
    else:
        click.echo(str(told))


@click.command("reliability", short_help="How far beliefs can be trusted.")
@store_argument
@click.option("--plot", metavar="FILE", help="Draw it: .png, .svg or .pdf.")
@as_json_option
def reliability_command(store: str, plot: str | None, as_json: bool) -> None:
    """Of labels believed so much, how many are right: on the labelled set.

    The labelled items go through the steps of STORE as if they were stored, half of them by what
    was learnt on the other half. Needs dependent beliefs, and labelled votes with ids.
    """
    if plot is not None:
        plots.check_picture(Path(plot))
    found = Store(store).reliability()
    if plot is not None:
        plots.reliability(found.labels, found.best, Path(plot))
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(str(found) + (f"\ndrawn in {plot}" if plot else ""))


@click.command("check", short_help="Verify every invariant.")
@store_argument
@executor_option
@as_json_option
def check_command(store: str, executor: str, as_json: bool) -> None:
    """Verify files, rows and headers, and decide every step again from its votes.

    Exit code 1 if anything is broken; each line names what.
    """
    broken = Store(store, executor=executor).check()
    if as_json:
        print_json({"broken": broken})
    else:
        click.echo("\n".join(broken) if broken else "The store is sound.")
    if broken:
        raise click.exceptions.Exit(1)


def read_id(text: str, kind: type | None) -> str | int:
    """An id as a user types it, in the type the store's ids have."""
    if kind is not int:
        return text
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise InvalidData(f"The store's ids are integers; got {text!r}.")
    return int(text)


def _opened(store: str, out: str | None, executor: str) -> Context:
    """The store, read shard by shard; where to write is looked at first."""
    if out is not None and is_folder(out):
        refuse_used(open_files(out))
    elif out is not None and "://" in out:
        allowed = "a .parquet, .csv or .jsonl file here, or a folder/ on an object store"
        raise InvalidParameter.of("out", allowed, out)
    elif out is not None:
        check_target(Path(out))
    return Context(open_files(store), open_executor(executor))


def _taken(sharded: Sharded, out: str | None, as_json: bool) -> tuple[list[dict[str, Any]], int]:
    """The rows to show, and how many there are in all; written on the way, if asked."""
    shown: list[dict[str, Any]] = []

    def passing(progress: Progress | None) -> Iterator[pa.Table]:
        for table in sharded.each(progress):
            wanted = table.num_rows if as_json and out is None else SHOWN - len(shown)
            # As plain rows: a slice would hold on to the whole table.
            shown.extend(table.slice(0, wanted).to_pylist())
            yield table

    with progress_bar("Reading", "items") as progress:
        if out is None:
            return shown, sum(table.num_rows for table in passing(progress))
        if is_folder(out):
            return sharded.write(open_files(out), first=SHOWN, progress=progress)
        return shown, write_stream(Path(out), sharded.schema, passing(progress))


def _tell(
    told: tuple[list[dict[str, Any]], int], what: str, out: str | None, *, as_json: bool
) -> None:
    shown, count = told
    if as_json:
        print_json({what: shown})
        return
    if shown:
        show(plain_table(shown))
    more = f", the first {SHOWN} shown" if count > SHOWN else ""
    click.echo(f"{count:,} {what}{more}" + (f"; all in {out}" if out else ""))


def write_table(table: pa.Table, path: Path) -> None:
    """A table as the file its name asks for, whole or not at all."""
    write_stream(path, table.schema, [table])
