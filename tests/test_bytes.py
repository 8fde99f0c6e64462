"""What is read, written and held at once is bounded in bytes: an item may be a large picture."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterity import Evaluation, Model, Store
from posterity.cli.data import read_names
from posterity.engine.items import item_files, payload
from posterity.engine.items.payload import Payload
from posterity.engine.ledger.context import Context
from posterity.engine.maintenance import compact
from posterity.storage import input_files
from posterity.storage import row_groups as storage_row_groups
from posterity.storage.files import open_files
from posterity.storage.input_files import InputReader, Piece, Portion
from tests.conftest import ROOT
from tests.test_adding_memory import own_pool, peak

__all__ = ["own_pool"]

GROUP, FILE, BATCH, READ = 4_000, 16_000, 6_000, 3_000
CLASSES = ["cat", "dog"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that small items reach."""
    monkeypatch.setattr(storage_row_groups, "GROUP_BYTES", GROUP)
    monkeypatch.setattr(item_files, "FILE_BYTES", FILE)
    monkeypatch.setattr(compact, "FILE_BYTES", FILE)
    monkeypatch.setattr(payload, "BATCH_BYTES", BATCH)
    monkeypatch.setattr(input_files, "BATCH_BYTES", READ)
    monkeypatch.setattr(input_files, "HELD_BYTES", READ)


def items_of(sizes: Sequence[int], first: int = 0) -> pa.Table:
    """Items with pictures of so many bytes."""
    rng = np.random.default_rng(first)
    numbers = range(first, first + len(sizes))
    return pa.table(
        {
            "id": [f"i{number:05}" for number in numbers],
            "image": pa.array([rng.bytes(size) for size in sizes], pa.binary()),
            "pred": [CLASSES[number % 3 == 0] for number in numbers],
        }
    )


@pytest.fixture(params=["alike", "tiny and large", "first small", "one larger than any bound"])
def source(request: pytest.FixtureRequest) -> pa.Table:
    sizes = {
        "alike": [700] * 120,
        "tiny and large": [(9, 3000)[number % 7 == 0] for number in range(150)],
        "first small": [20] * 200 + [2500] * 30,
        "one larger than any bound": [300] * 50 + [40_000] + [300] * 50,
    }
    return items_of(sizes[request.param])


def bounded(tables: Sequence[pa.Table], most: int) -> bool:
    return all(table.nbytes <= most or table.num_rows == 1 for table in tables)


def opened(store: Store) -> Context:
    return Context(open_files(store.path))


def files_of(store: Store) -> list[pq.ParquetFile]:
    items = opened(store).items
    assert items is not None
    return [pq.ParquetFile(Path(store.path) / "items" / file.path) for file in items.data_files()]


def row_groups(store: Store) -> list[pa.Table]:
    return [
        file.read_row_group(at) for file in files_of(store) for at in range(file.num_row_groups)
    ]


def stored(store: Store) -> pa.Table:
    """All items by row."""
    items = opened(store).items
    assert items is not None
    return items.read(["row", "id", "image", "pred"]).sort_by("row").drop_columns(["row"])


def made(path: Path, data: Any) -> Store:
    store = Store.create(path, classes=CLASSES, shard_rows=64)
    store.add(data)
    return store


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["table", "one row group", "many row groups"])
def test_items_are_kept_in_row_groups_and_files_of_few_bytes(
    source: pa.Table, form: str, tmp_path: Path
) -> None:
    data: Any = source
    if form != "table":
        data = tmp_path / "source.parquet"
        pq.write_table(source, data, row_group_size=1000 if form == "one row group" else 5)
    store = made(tmp_path / "store", data)
    assert bounded(row_groups(store), GROUP)
    assert stored(store).equals(source)
    for file in files_of(store):
        told = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
        before_last = [group.total_byte_size for group in told[:-1]]
        assert sum(before_last) < FILE
    # Small tables are not cut more than that needs.
    assert len(row_groups(store)) < 4 * source.nbytes / GROUP + len(files_of(store))


@pytest.mark.usefixtures("small")
def test_compacted_items_are_in_row_groups_of_few_bytes(
    source: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "FILE_BYTES", 4 * FILE)
    store = Store.create(tmp_path / "store", classes=CLASSES, shard_rows=64)
    for start in range(0, source.num_rows, 10):
        store.add(source.slice(start, 10))
    gone = source.column("id").take(pa.array([3, 80])).to_pylist()
    store.remove(gone)
    before = len(files_of(store))
    store.compact()
    assert len(files_of(store)) < before
    assert bounded(row_groups(store), GROUP)
    rest = source.filter(pa.array([name not in gone for name in source.column("id").to_pylist()]))
    assert stored(store).equals(rest)
    assert store.check() == []


@pytest.mark.usefixtures("small")
def test_a_model_is_asked_about_few_bytes_at_a_time(source: pa.Table, tmp_path: Path) -> None:
    store = made(tmp_path / "store", source)
    seen: list[pa.Table] = []

    def predict(batch: pa.Table) -> list[str]:
        seen.append(batch)
        return ["cat"] * batch.num_rows

    store.update(
        Model("new", accuracy=0.8, predict=predict),
        budget=source.num_rows,
        evaluation=Evaluation(batch=16),
    )
    assert bounded(seen, BATCH)
    assert max(batch.num_rows for batch in seen) <= 16
    assert pa.concat_tables(seen).equals(source)
    assert store.labels().column("label").to_pylist() == ["cat"] * source.num_rows


@pytest.mark.usefixtures("small")
def test_a_batch_that_fits_is_what_was_asked_for(tmp_path: Path) -> None:
    store = made(tmp_path / "store", items_of([200] * 100))
    seen: list[int] = []

    def predict(batch: pa.Table) -> list[str]:
        seen.append(batch.num_rows)
        return ["cat"] * batch.num_rows

    store.update(
        Model("new", accuracy=0.8, predict=predict), budget=100, evaluation=Evaluation(batch=16)
    )
    assert seen == [16] * 6 + [4]


@pytest.fixture
def voted(source: pa.Table, tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "store", classes=CLASSES, shard_rows=64)
    store.import_predictions(source, {"pred": Model("old", accuracy=0.7)})
    store.register(Model("new", accuracy=0.9))
    return store


@pytest.mark.usefixtures("small")
def test_a_plan_is_written_few_bytes_at_a_time(source: pa.Table, voted: Store) -> None:
    plan = voted.plan("new", budget=source.num_rows)
    parts = list(voted.planned_batches(plan))
    assert len(parts) > 1
    assert bounded(parts, BATCH)
    assert pa.concat_tables(parts).equals(source.drop_columns(["pred"]))
    assert voted.planned_items(plan).equals(source.drop_columns(["pred"]))


@pytest.mark.usefixtures("small")
def test_a_queue_is_written_few_bytes_at_a_time_in_its_order(
    source: pa.Table, voted: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = voted.review_queue(source.num_rows, order="random:5")
    parts = list(voted.review_batches(queue))
    assert len(parts) > 1
    # Items that are not alike are cut by their average.
    assert max(part.nbytes for part in parts) < 0.7 * source.nbytes
    together = pa.concat_tables(parts)
    ids = queue.items.column("id").to_pylist()
    assert together.column("id").to_pylist() == ids
    place = {name: at for at, name in enumerate(source.column("id").to_pylist())}
    images = source.column("image").take(pa.array([place[name] for name in ids]))
    assert together.column("image").to_pylist() == images.to_pylist()
    assert voted.review_items(queue).equals(together)
    monkeypatch.undo()  # all of it fits
    (whole,) = voted.review_batches(queue)
    assert whole.equals(together)
    assert whole.column_names[:2] == ["id", "image"]
    assert whole.column_names[-1] == "answer"


@pytest.mark.usefixtures("small")
def test_a_queue_of_nothing_has_the_same_columns(voted: Store) -> None:
    queue = voted.review_queue(3)
    none = queue.__class__(queue.order, 0, queue.items.slice(0, 0))
    assert voted.review_items(none).schema.equals(voted.review_items(queue).schema)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("rows", [1, 1000])
def test_a_few_items_do_not_hold_on_to_their_row_groups(rows: int, tmp_path: Path) -> None:
    store = made(tmp_path / "store", items_of([300] * 500))
    spans = [table.column("row")[0].as_py() for table in row_groups(store)]
    wanted = np.sort(np.array(spans if rows == 1 else range(500)))
    for _, part in Payload(opened(store)).parts(wanted):
        # Columns of slices count whole buffers there.
        assert part.get_total_buffer_size() < 3 * part.nbytes + 1000


def whole(tables: Iterator[pa.Table]) -> list[pa.Table]:
    return list(tables)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("columns", [None, ["id", "image"]])
def test_a_large_row_group_is_read_in_batches_of_few_bytes(
    columns: list[str] | None, tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(items_of([700] * 100), path)
    piece = Piece("x", str(tmp_path), path.name)
    parts = whole(InputReader(None, "id", columns).batches(Portion(piece)))
    assert max(part.nbytes for part in parts) <= READ
    assert sum(part.num_rows for part in parts) == 100
    ids = whole(InputReader(None, "id", ["id"]).batches(Portion(piece)))
    assert len(ids) == 1  # what is not read does not count


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["file", "table"])
def test_values_kept_once_count_as_often_as_they_stand(form: str, tmp_path: Path) -> None:
    """A Parquet file keeps a text that stands in many rows once; in memory it is in each."""
    texts = pa.array(["long " * 100] * 300).dictionary_encode()
    table = pa.table({"id": range(300), "text": texts})
    piece = Piece("x", table=table)
    if form == "file":
        pq.write_table(
            table.cast(pa.schema([("id", pa.int64()), ("text", pa.string())])),
            tmp_path / "x.parquet",
        )
        piece = Piece("x", str(tmp_path), "x.parquet")
    parts = whole(InputReader(None, "id", None).batches(Portion(piece)))
    assert max(part.num_rows for part in parts) * 500 <= READ
    assert sum(part.num_rows for part in parts) == 300


def test_row_groups_that_differ_are_read_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A few large items do not make all others be read a few at a time."""
    monkeypatch.setattr(input_files, "BATCH_BYTES", 100_000)
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, items_of([1]).schema) as file:
        for sizes in ([10] * 500, [50_000] * 4, [10] * 500):
            file.write_table(items_of(sizes))
    piece = Piece("x", str(tmp_path), path.name)
    parts = whole(InputReader(None, "id", None).batches(Portion(piece)))
    assert [part.num_rows for part in parts] == [500, 1, 1, 1, 1, 500]


def test_portions_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(items_of([1000] * 40), path, row_group_size=4)
    piece = Piece("x", str(tmp_path), path.name)
    assert [portion.groups for portion in input_files.portions_of(None, piece)] == [(0, 10)]
    group = pq.read_metadata(path).row_group(0).total_byte_size
    monkeypatch.setattr(input_files, "PORTION_BYTES", int(2.5 * group))
    cut = input_files.portions_of(None, piece)
    assert [portion.groups for portion in cut] == [(at, at + 2) for at in range(0, 10, 2)]
    assert [portion.first for portion in cut] == list(range(0, 40, 8))


@pytest.mark.parametrize("what", ["answers", "classes"])
def test_pictures_nobody_needs_are_not_read(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    table = items_of([100] * 10)
    pq.write_table(table.append_column("answer", table.column("pred")), path)
    store = Store.create(tmp_path / "store", classes=CLASSES)
    store.import_predictions(table, {"pred": Model("old", accuracy=0.7)})
    read: list[list[str]] = []
    plain = pq.read_table

    def counted(source: Any, **options: Any) -> pa.Table:
        rows = plain(source, **options)
        read.append(rows.column_names)
        return rows

    monkeypatch.setattr(pq, "read_table", counted)
    if what == "answers":
        assert store.review(path).items == 10
        assert read == [["id", "answer"]]
    else:
        assert read_names(str(path), column_name="pred") == CLASSES
        assert read == [["pred"]]


PICTURE = 20_000


def pictures(path: Path, count: int) -> Path:
    """One row group, its pages as small as other writers make them."""
    pq.write_table(items_of([PICTURE] * count), path, use_dictionary=False, write_batch_size=4)
    return path


@pytest.mark.usefixtures("own_pool")
@pytest.mark.parametrize("work", ["add", "import", "update", "plan", "review", "compact"])
def test_four_times_the_pictures_take_the_same_memory(
    work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in [
        *((storage_row_groups, "GROUP_BYTES"), (payload, "BATCH_BYTES")),
        *(
            (input_files, "BATCH_BYTES"),
            (input_files, "HELD_BYTES"),
            (storage_row_groups, "READ_AHEAD"),
        ),
    ]:
        monkeypatch.setattr(module, name, 10 * PICTURE)
    monkeypatch.setattr(item_files, "FILE_BYTES", 50 * PICTURE)
    monkeypatch.setattr(compact, "FILE_BYTES", 50 * PICTURE)
    taken = [_held(work, tmp_path, count) for count in (50, 100, 400)][1:]
    for less, more in zip(*taken, strict=True):
        assert more - less < 0.05 * 300 * PICTURE


def _held(work: str, tmp_path: Path, count: int) -> tuple[int, int]:
    """What is held at the worst moment of some work on so many pictures."""
    source, folder = pictures(tmp_path / f"{count}.parquet", count), tmp_path / f"{work}-{count}"
    store = Store.create(folder, classes=CLASSES)
    old, new = Model("old", accuracy=0.7), Model("new", accuracy=0.9, predict=_cats)
    if work == "add":
        return peak(lambda: store.add(source))
    if work == "import":
        return peak(lambda: store.import_predictions(source, {"pred": old}))
    if work == "compact":
        for start in range(0, count, 10):
            store.add(items_of([PICTURE] * 10, start))
        return peak(store.compact)
    store.import_predictions(source, {"pred": old})
    if work == "update":
        return peak(lambda: store.update(new, budget=count))
    if work == "plan":
        store.register(new)
        plan = store.plan("new", budget=count)
        return peak(lambda: _exhaust(store.planned_batches(plan)))
    queue = store.review_queue(count)
    return peak(lambda: _exhaust(store.review_batches(queue)))


def _cats(batch: pa.Table) -> list[str]:
    return ["cat"] * batch.num_rows


def _exhaust(parts: Iterator[pa.Table]) -> None:
    for _ in parts:
        pass


HELD = 950 * 2**10
"""KiB a process may hold: 300 for the interpreter and its libraries, 300 for what a writer of
Parquet keeps together (1,024 pictures: compressed, not compressed, and as a dictionary), and as
much again where the next are read before these are written, which is the scheduler's choice."""
LARGE, COUNT = 100_000, 4_000


LAUNCH = """
import os, sys
process = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)
_, status, used = os.wait4(process, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A process is said to have held what the one that started it did: here one that is small."""

MAKE = """
import sys
import pyarrow.parquet as pq
from tests.test_bytes import COUNT, LARGE, items_of
pq.write_table(items_of([LARGE] * COUNT), sys.argv[1])
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., int]:
    """A command in a process of its own; how many KiB it held at most."""
    (tmp_path / "asked.py").write_text("def cats(batch):\n    return ['cat'] * batch.num_rows\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    def held(*words: object) -> int:
        command = [sys.executable, "-c", LAUNCH, "-m", "posterity", *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.splitlines()[-1])

    return held


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="what a process held is counted in KiB there")
def test_pictures_larger_than_memory_should_hold(run: Callable[..., int], tmp_path: Path) -> None:
    """400 MB of them, in one row group, as Arrow writes them unless told otherwise."""
    source, store, other = (tmp_path / name for name in ("source.parquet", "store", "other"))
    subprocess.run([sys.executable, "-c", MAKE, source], check=True, cwd=ROOT)
    peaks: dict[str, int] = {}
    run("init", store, "--classes", "cat,dog")
    peaks["add"] = run("add", store, source)
    run("model", store, "old", "--accuracy", 0.7)
    run("model", store, "new", "--accuracy", 0.9)
    few = ("--budget", 160, "--predict", "asked:cats")
    peaks["update of some"] = run("update", store, "old", *few)
    every = ("--budget", COUNT, "--predict", "asked:cats")
    peaks["update of all"] = run("update", store, "new", *every)
    run("model", store, "third", "--accuracy", 0.9)
    out = tmp_path / "out.parquet"
    peaks["plan"] = run("plan", store, "third", "--budget", COUNT, "--out", out)
    peaks["review"] = run("review", store, "--next", COUNT, "--out", out)
    peaks["answers"] = run("review", store, "--answers", out, "--answer", "label")
    out.unlink()
    run("remove", store, "i00003")
    peaks["compact"] = run("compact", store)
    run("init", other, "--classes", source, "--column", "pred")
    label = ("--label", "pred", "--model", "old", "--accuracy", 0.7)
    peaks["import"] = run("import", other, source, *label)
    for path in (source, store, other):  # large, and of no use to anybody later
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert {name: held for name, held in peaks.items() if held > HELD} == {}
