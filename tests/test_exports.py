"""Exports: shard by shard into one file, whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from posterity import Store
from posterity.cli import cli, run
from posterity.engine.inspect import queries
from posterity.engine.ledger import publish
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.publish import refuse_used
from posterity.errors import InvalidParameter, StoreError
from posterity.storage.files import open_files
from posterity.storage.output import write_stream
from tests.stores import World, small_store

SUFFIXES = [".parquet", ".csv", ".jsonl"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    world = World()
    held = small_store(tmp_path / "store", world)
    held.update(world.model("best"), budget="60%")
    held.update(world.model("mid"), budget="30%")
    held.revert(1)
    held.remove(["item-3", "item-40"])
    return held


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    if path.suffix == ".csv":
        kinds = pa_csv.ConvertOptions(
            column_types={"belief": pa.float32()}, strings_can_be_null=True
        )
        return list(pa_csv.read_csv(path, convert_options=kinds).to_pylist())
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


SCHEMA = pa.schema([("row", pa.int64()), ("name", pa.string())])


def parts() -> Iterator[pa.Table]:
    for start, stop in ((0, 3), (3, 3), (3, 9)):
        rows = list(range(start, stop))
        yield pa.table({"row": rows, "name": [f"é {row}" for row in rows]}, schema=SCHEMA)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_stream_is_the_file_of_all_its_tables(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    whole = pa.concat_tables(parts())
    assert write_stream(path, whole.schema, parts()) == whole.num_rows == 9
    assert read(path) == whole.to_pylist()
    assert write_stream(path, whole.schema, []) == 0
    assert read(path) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_export_leaves_what_was_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_text("before")

    def failing() -> Iterator[pa.Table]:
        yield from parts()
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write_stream(path, SCHEMA, failing())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_kind_of_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    def never() -> Iterator[pa.Table]:
        raise AssertionError("read")
        yield

    with pytest.raises(InvalidParameter, match=r"\.parquet, \.csv or \.jsonl"):
        write_stream(tmp_path / "rows.xlsx", pa.schema([]), never())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["labels"], "labels"),
        (["labels", "--since", "-1"], "changes"),
        (["labels", "--since", "0"], "changes"),
        (["flips", "--step", "1"], "flips"),
        (["flips"], "flips"),
    ],
)
def test_a_file_holds_what_the_call_returns(
    store: Store, tmp_path: Path, suffix: str, command: list[str], what: str
) -> None:
    name, *options = command
    out = tmp_path / f"out{suffix}"
    told = CliRunner().invoke(cli, [name, store.path, *options, "--out", str(out), "--json"])
    assert told.exit_code == 0, told.output
    number = int(options[1]) if options else None
    table = store.flips(number) if name == "flips" else store.labels(since=number)
    assert read(out) == table.to_pylist()
    assert json.loads(told.output)[what] == table.slice(0, 20).to_pylist()
    rows = table.column("row").to_pylist()
    assert rows == sorted(rows)
    if not options and name == "labels":
        assert len(rows) == 58
    shown = CliRunner().invoke(cli, [name, store.path, *options])
    assert f"{len(rows)} {what}" in shown.output
    printed = CliRunner().invoke(cli, [name, store.path, *options, "--json"])
    assert json.loads(printed.output)[what] == table.to_pylist()


@pytest.mark.parametrize("what", ["labels", "changes", "flips"])
def test_one_shard_is_read_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A table is asked for when the one before is written, and tells how far that is."""
    whole = ShardHistory.read
    seen: list[int] = []

    def watched(ledger: Any, shard: int, start: int, items: int) -> ShardHistory:
        seen.append(shard)
        return whole(ledger, shard, start, items)

    monkeypatch.setattr(ShardHistory, "read", watched)
    context = Context(open_files(store.path))
    done: list[tuple[int, int]] = []

    def progress(at: int, of: int) -> None:
        done.append((at, of))

    tables = {
        "labels": lambda: publish.labels_by_shard(context).each(progress),
        "changes": lambda: queries.changes_by_shard(context, 0).each(progress),
        "flips": lambda: queries.flips_by_shard(context, 1).each(progress),
    }[what]()
    for shard, table in enumerate(tables):
        assert seen == list(range(shard + 1))
        assert len(done) == shard
        assert set(table.column("row").to_numpy() // 25) <= {shard}
    assert done == [(25, 60), (50, 60), (60, 60)]


def test_no_table_outlives_its_writing(store: Store, tmp_path: Path) -> None:
    """What is shown of an export does not hold on to the shards it came from."""
    alive: list[int] = []
    labels_of = publish.labels_of

    def watched(context: Context, shard: RowRange, *, at: int | None) -> pa.Table:
        alive.append(pa.total_allocated_bytes())
        wide = labels_of(context, shard, at=at)
        return wide.set_column(0, "id", pa.array(["x" * 2**14] * wide.num_rows))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "labels_of", watched)
        out = str(tmp_path / "out.jsonl")
        told = CliRunner().invoke(cli, ["labels", store.path, "--out", out])
    assert told.exit_code == 0, told.output
    # The last table may still be there when the next is made; those before it are not.
    assert alive[2] - alive[0] < 1.5 * 25 * 2**14


def test_a_folder_that_is_a_whole_disk_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def endless(self: Path, _: str) -> Iterator[Path]:
        nonlocal looked
        while True:
            looked += 1
            yield self / "file"

    (tmp_path / "file").touch()
    monkeypatch.setattr(Path, "rglob", endless)
    with pytest.raises(StoreError, match="not empty"):
        Store.create(tmp_path, classes=["a", "b"])
    with pytest.raises(InvalidParameter, match="an empty folder"):
        refuse_used(open_files(tmp_path))
    assert looked <= 20_001  # so many files of each of the two


@pytest.mark.parametrize(
    "command",
    [
        ("labels",),
        ("labels", "--since", "0"),
        ("flips",),
        ("plan", "mid", "--budget", "3", "--more"),
        ("review", "--next", "3"),
    ],
)
def test_rows_for_a_pipe(
    command: tuple[str, ...], store: Store, tmp_path: Path, capfdbinary: Any
) -> None:
    """What a file would hold goes to standard output; what is said to people to the other one."""
    name, *options = command
    line = [name, str(store.path), *options]
    told = ""
    for suffix in ("", ".csv", ".jsonl", ".parquet"):
        file = tmp_path / f"rows{suffix or '.csv'}"
        assert run([*line, "--out", str(file)]) == 0
        capfdbinary.readouterr()
        assert run([*line, "--out", f"-{suffix}"]) == 0
        out, err = capfdbinary.readouterr()
        assert out == file.read_bytes()
        assert len(err.decode().splitlines()) >= 1
        told = err.decode()
    assert "rows" not in told
    assert run([*line, "--out", "-", "--json"]) == 2
    assert b"--out - and --json both write to standard output" in capfdbinary.readouterr().err
    assert not Path("-").exists()


def test_a_reader_that_leaves(store: Store) -> None:
    """As `| head` does: no traceback, and no other words."""
    script = f"{sys.executable} -m posterity labels {store.path} --out - | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.replace('"', "") == "id,row,label,belief,step\n"
    assert "Traceback" not in done.stderr


def test_what_is_not_for_a_pipe(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(store.path), "--out", "-"]) == 0
    assert capsys.readouterr().out.startswith("#")
