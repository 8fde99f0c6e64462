"""Commands that look at a store: status, log, flips, history, labels, check."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from posterity._whole import written_whole
from posterity.cli.output import as_json_option, plain_table, print_json, show, store_argument
from posterity.errors import InvalidData, InvalidParameter
from posterity.store import Store

SHOWN = 20


@click.command("status", short_help="A store at a glance.")
@store_argument
@as_json_option
def status_command(store: str, as_json: bool) -> None:
    """Items, classes, models, the last step, and runs that are not finished."""
    told = Store(store).status()
    if as_json:
        print_json(told)
        return
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
            "model": header.model or f"reverts {header.reverts}",
            "budget": header.budget,
            "rule": header.rule,
            "evaluations": header.report.get("evaluations"),
            "flips": header.report.get("flips", header.report.get("changed")),
            "time": header.time,
        }
        for header in headers
    ]
    show(plain_table(rows) if rows else "no steps yet")


@click.command("flips", short_help="The labels a step changed.")
@store_argument
@click.option("--step", type=int, help="Which step. [default: the last]")
@click.option("--out", metavar="FILE", help="Write all of them: .parquet, .csv or .jsonl.")
@as_json_option
def flips_command(store: str, step: int | None, out: str | None, as_json: bool) -> None:
    """Items whose label a step changed: id, row, old, new, belief, step, reason; by row."""
    _tell(Store(store).flips(step), "flips", out, as_json=as_json)


@click.command("labels", short_help="Current labels.")
@store_argument
@click.option(
    "--since", type=int, metavar="STEP", help="Only what changed after this step (-1: ever)."
)
@click.option("--out", metavar="FILE", help="Write all of them: .parquet, .csv or .jsonl.")
@as_json_option
def labels_command(store: str, since: int | None, out: str | None, as_json: bool) -> None:
    """The label of each item, the belief in it, and the step of its last change; by row.

    With --since, what a pipeline that applies only changes needs: id, row, old, new, belief, step,
    reason. An item whose label came back to what it was is not among them.
    """
    what = "labels" if since is None else "changes"
    _tell(Store(store).labels(since=since), what, out, as_json=as_json)


@click.command("history", short_help="What happened to one item.")
@store_argument
@click.argument("item")
@as_json_option
def history_command(store: str, item: str, as_json: bool) -> None:
    """Every vote on an item, the belief after it, and what its label became."""
    held = Store(store)
    told = held.history(read_id(item, held.id_type))
    if as_json:
        print_json({"history": told})
    else:
        show(plain_table(told) if told else "nobody has voted on this item yet")


@click.command("check", short_help="Verify every invariant.")
@store_argument
@as_json_option
def check_command(store: str, as_json: bool) -> None:
    """Verify files, rows and headers, and decide every step again from its votes.

    Exit code 1 if anything is broken; each line names what.
    """
    broken = Store(store).check()
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


def _tell(table: pa.Table, what: str, out: str | None, *, as_json: bool) -> None:
    if out is not None:
        write_table(table, Path(out))
    if as_json:
        print_json({what: table.slice(0, SHOWN if out else table.num_rows).to_pylist()})
        return
    if table.num_rows:
        show(plain_table(table.slice(0, SHOWN).to_pylist()))
    more = f", the first {SHOWN} shown" if table.num_rows > SHOWN else ""
    click.echo(f"{table.num_rows:,} {what}{more}" + (f"; all in {out}" if out else ""))


def write_table(table: pa.Table, path: Path) -> None:
    """A table as the file its name asks for, whole or not at all."""
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".csv", ".jsonl"):
        raise InvalidParameter.of("out", "a .parquet, .csv or .jsonl file", str(path))
    with written_whole(path) as beside:
        if suffix == ".parquet":
            pq.write_table(table, beside)
        elif suffix == ".csv":
            pa_csv.write_csv(table, beside)
        else:
            _write_lines(table, beside)


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in table.to_batches():
            rows: list[dict[str, Any]] = batch.to_pylist()
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
