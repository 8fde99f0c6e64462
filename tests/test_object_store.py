"""Object stores: who reads objects, and that processes that did so end well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from posterity import Store
from posterity.storage.files import RemoteFiles, open_files
from posterity.storage.parquet import TAIL, ParquetParts
from tests.s3 import serving_s3
from tests.stores import NAMES, World, registered, small_store

EXITS = int(os.environ.get("POSTERITY_EXITS", "5"))
"""How many processes read a store and end; more in `make torture`."""


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with serving_s3("objects") as options:
        yield options


@pytest.fixture
def bucket(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of its own; credentials are in the environment, as they mostly are."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return f"s3://objects/{uuid.uuid4().hex}"


@pytest.fixture
def callers(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that ask the object store for something."""
    seen: set[int] = set()

    def spied(ask: Any) -> Any:
        def spy(*given: Any, **options: Any) -> Any:
            seen.add(threading.get_ident())
            return ask(*given, **options)

        return spy

    for name in ("get", "get_range", "get_ranges", "head", "list"):
        monkeypatch.setattr(obstore, name, spied(getattr(obstore, name)))
    return seen


def put(files: RemoteFiles, path: str, rows: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    if path.endswith(".csv"):
        pa_csv.write_csv(rows, sink)
    elif path.endswith(".parquet"):
        pq.write_table(rows, sink, row_group_size=7)
    else:
        sink.write("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode())
    files.write(path, sink.getvalue())


def test_only_the_calling_thread_asks_an_object_store(bucket: str, callers: set[int]) -> None:
    """Arrow's threads would call into an interpreter that may be shutting down."""
    world = World()
    inputs = open_files(f"{bucket}/inputs")
    assert isinstance(inputs, RemoteFiles)
    rows = world.table()
    names = ("a.csv", "b.jsonl", "c.parquet")
    for name, start in zip(names, (0, 20, 40), strict=True):
        put(inputs, name, rows.slice(start, 20))
    store = Store.create(f"{bucket}/store", classes=NAMES, shard_rows=25)
    assert store.add([f"{bucket}/inputs/{name}" for name in names]) == 60
    store.update(world.model("old"))
    store.update(world.model("new"), budget="50%", where="number > 3")
    plan = store.plan(registered(store, world.model("best")), budget="20%")
    assert store.planned_items(plan).num_rows == 12
    assert len(store.history("item-7")) > 0
    assert store.labels().num_rows == 60
    assert store.check() == []
    assert callers == {threading.get_ident()}


def test_parts_of_an_object_are_the_same_as_of_a_file(bucket: str, tmp_path: Path) -> None:
    """Footers longer than what is fetched at first, nested columns, names with dots, no rows."""
    count = 5_000
    wide = {f"column number {at} of many": pa.array(range(count), pa.int32()) for at in range(40)}
    rows = pa.table(
        {
            "x.y": [f"text {at % 7}" for at in range(count)],
            "a": [{"b": at, "c": [at, None]} for at in range(count)],
            **wide,
        }
    )
    remote, local = open_files(bucket), open_files(tmp_path)
    for name, table, size in (("many", rows, 50), ("few", rows, 5_000), ("none", rows[:0], 10)):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=size)
        for files in (remote, local):
            files.write(f"{name}.parquet", sink.getvalue())
        fetched, read = (ParquetParts(files, f"{name}.parquet") for files in (remote, local))
        if name == "many":
            assert fetched.metadata.serialized_size > TAIL
        assert fetched.metadata.num_rows == table.num_rows
        assert fetched.schema == read.schema
        groups = range(fetched.metadata.num_row_groups)
        for columns in (None, ["x.y"], ["a"], [*wide][3:5]):
            parts = [list(one.batches(groups, columns, 700)) for one in (fetched, read)]
            schema = table.schema if columns is None else table.select(columns).schema
            tables = [pa.Table.from_batches(batches, schema) for batches in parts]
            assert tables[0] == tables[1] == (table if columns is None else table.select(columns))
        if len(groups) > 1:
            assert fetched.group(1, ["x.y"]) == read.group(1, ["x.y"])


def test_only_what_is_asked_for_is_fetched(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_files(bucket)
    rows = pa.table({"small": range(1000), "large": [os.urandom(2000) for _ in range(1000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=100)
    size = files.write("one.parquet", sink.getvalue())
    fetched: list[int] = []
    ask = obstore.get_ranges

    def counted(*given: Any, **options: Any) -> Any:
        parts = ask(*given, **options)
        fetched.extend(len(part) for part in parts)
        return parts

    monkeypatch.setattr(obstore, "get_ranges", counted)
    parts = ParquetParts(files, "one.parquet")
    assert parts.group(3, ["small"]).column("small").to_pylist() == list(range(300, 400))
    assert sum(fetched) < TAIL + 5_000 < size


READ = """
import sys
from posterity import Store
store = Store(sys.argv[1])
assert len(store.history("item-7")) > 0
assert store.planned_items(store.plan("new", budget="50%", where="number > 3")).num_rows > 0
queue = store.review_queue(5)
assert store.review_items(queue).num_rows == 5
"""


def test_what_is_read_does_not_belong_to_python(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a thread of Arrow's lets go of it last, perhaps while the interpreter shuts down."""
    files = open_files(bucket)
    assert isinstance(files, RemoteFiles)
    rows = pa.table({"a": list(range(3000))})
    put(files, "a.parquet", rows)
    made: list[Any] = []
    monkeypatch.setattr(pa, "py_buffer", made.append)
    content = files.read("a.parquet")
    assert pq.read_table(pa.BufferReader(content)).equals(rows)
    assert ParquetParts(files, "a.parquet").group(1, ["a"]).equals(rows.slice(7, 7))
    assert len(files.read("a.parquet")) == files.size_of("a.parquet")
    assert made == []


@pytest.mark.long
def test_processes_that_read_an_object_store_end_well(bucket: str) -> None:
    world = World()
    store = small_store(f"{bucket}/store", world)
    store.register(world.model("new"))
    for _ in range(EXITS):
        ended = subprocess.run(
            [sys.executable, "-c", READ, f"{bucket}/store"], capture_output=True, text=True
        )
        assert (ended.returncode, ended.stderr) == (0, "")
