"""Import, add and export through an executor: the same store and the same files with any."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from posterity import Model, Store
from posterity.cli import cli
from posterity.engine.executors import Executor, open_executor
from posterity.engine.inspect import queries
from posterity.engine.items import item_files
from posterity.engine.ledger import publish
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import ShardHistory
from posterity.errors import InvalidData, InvalidParameter, StoreError
from posterity.storage import input_files, output
from posterity.storage.delta.table import Snapshot, Table
from posterity.storage.files import open_files
from posterity.storage.stream import Stream
from tests.executor_suite import Travelling
from tests.stores import NAMES, World, make, write_table
from tests.test_import import files, nothing_imported, predictions, whole
from tests.test_store import s3

__all__ = ["s3"]  # a fixture

OLD = Model("old", accuracy=0.6)
NEW = Model("new", accuracy=0.8)


@pytest.fixture
def world() -> World:
    return World(items=200)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few rows are large."""
    monkeypatch.setattr(input_files, "BATCH", 7)
    monkeypatch.setattr(input_files, "PORTION", 20)
    monkeypatch.setattr(input_files, "CSV_BLOCK", 500)
    monkeypatch.setattr(item_files, "FILE_ROWS", 30)


def parts_of(folder: Path, table: pa.Table, cuts: Sequence[int]) -> Path:
    """A table as many files, of all kinds; those of Parquet in several row groups."""
    folder.mkdir(parents=True)
    ends = [*cuts, table.num_rows]
    for at, (start, stop) in enumerate(zip([0, *cuts], ends, strict=True)):
        form = ("parquet", "csv", "jsonl")[at % 3]
        part, path = table.slice(start, stop - start), folder / f"{at:03}.{form}"
        if form == "parquet":
            pq.write_table(part, path, row_group_size=8)
        else:
            write_table(part, path)
    return folder


def with_soft(world: World, *models: str) -> pa.Table:
    """Predictions with the probabilities of the first model."""
    table = predictions(world, *models)
    for name in NAMES:
        likely = np.where(world.votes[models[0]] == name, 0.7, 0.1)
        table = table.append_column(f"p_{name}", pa.array(likely))
    return table


def filled(path: Path, world: World, folder: Path, executor: Executor | str | None) -> Store:
    """A store made by an import and an addition, of files and of a table."""
    store = Store.create(path, classes=NAMES, shard_rows=64, executor=executor)
    table = with_soft(world, "old", "new")
    source = parts_of(folder / "preds", table.slice(0, 140), [50, 52, 90, 90, 130])
    told = store.import_predictions(
        [source, table.slice(140, 20)],
        {"old": OLD, "new": NEW},
        soft={"old": "p_{class}"},
        payload=["number", "lang"],
    )
    assert (told.items, told.files, len(told.steps)) == (160, 7, 2)
    rest = world.table(160)
    assert store.add([rest.slice(0, 10), parts_of(folder / "items", rest.slice(10), [5])]) == 40
    return store


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("large", [False, True])
def test_a_store_is_the_same_wherever_its_files_are_read(
    large: bool, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are too large to be handed over."""
    here = filled(tmp_path / "here", world, tmp_path / "1", None)
    if large:
        monkeypatch.setattr(input_files, "LARGE_BYTES", 100)
        monkeypatch.setattr(input_files, "LARGE_ROWS", -1)
    elsewhere = Travelling()
    there = filled(tmp_path / "there", world, tmp_path / "2", elsewhere)
    assert whole(there) == whole(here)
    assert there.check() == []
    assert there.beliefs().equals(here.beliefs())
    assert there.beliefs(["item-150", "item-3"]).equals(here.beliefs(["item-150", "item-3"]))
    names = [name for name, _ in elsewhere.tasks]
    assert {"Writer", "portions_of", "schema"} <= set(names)
    assert ("Look" in names) is not large
    # A batch of rows is read by each task, and no task is smaller than it has to be.
    assert names.count("Writer") == 5 + 1 + 1
    assert all(size < 2000 for name, size in elsewhere.tasks if name == "Writer")


@pytest.mark.usefixtures("small")
def test_an_import_goes_on_elsewhere(world: World, tmp_path: Path) -> None:
    """It is named by what it holds, whoever reads it."""
    source = parts_of(tmp_path / "preds", predictions(world, "old"), [30, 70])
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posterity.engine.steps.import_predictions._keep_votes", _fails)
        with pytest.raises(StoreError, match="no room"):
            store.import_predictions(source, {"old": OLD})
    assert len(store) == 200
    there = Store(store.path, executor=Travelling())
    dry = there.import_predictions(source, {"old": "old"}, dry_run=True)
    assert (dry.items, len(store.steps)) == (200, 0)
    assert [step["step"] for step in there.import_predictions(source, {"old": OLD}).steps] == [0]
    assert "Nothing to do" in str(store.import_predictions(source, {"old": OLD}))
    assert len(store) == 200
    assert store.check() == []


def _fails(*_: Any) -> None:
    raise StoreError("no room")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("class", r"column 'old' of '.*003.parquet' \(rows from 21\).*unknown.*'cow'"),
        ("twice", r"1 id occurs more than once: 'item-3'; the first in row 3 of '.*000"),
        ("column", "000.parquet' has a column 'number' that '.*003.parquet' has not"),
        ("damaged", "003.parquet' cannot be read as a table"),
    ],
)
def test_what_is_refused_here_is_refused_there(
    change: str, message: str, world: World, tmp_path: Path
) -> None:
    source = parts_of(tmp_path / "preds", predictions(world, "old"), [30, 70, 100, 150])
    bad = pq.read_table(source / "003.parquet")
    if change == "class":
        votes = bad.column("old").to_pylist()
        votes[24] = "cow"
        bad = bad.set_column(bad.column_names.index("old"), "old", pa.array(votes))
    elif change == "twice":
        bad = bad.set_column(0, "id", pa.array(["item-3", *bad.column("id").to_pylist()[1:]]))
    elif change == "column":
        bad = bad.drop_columns("number")
    pq.write_table(bad, source / "003.parquet", row_group_size=21)
    if change == "damaged":
        (source / "003.parquet").write_bytes((source / "003.parquet").read_bytes()[:-20])
    told = []
    for name, executor in (("here", None), ("there", Travelling())):
        store = Store.create(tmp_path / name, classes=NAMES, shard_rows=64, executor=executor)
        before = files(store.path)
        with pytest.raises(InvalidData, match=message) as caught:
            store.import_predictions(source, {"old": OLD})
        told.append(str(caught.value))
        nothing_imported(store, before)
    assert told[0] == told[1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("way", ["import", "add"])
def test_no_file_of_tasks_under_way_is_left(
    way: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes between the two times it is read; those after it are written by then."""
    source = parts_of(tmp_path / "preds", predictions(world, "old"), list(range(20, 200, 20)))
    executor = Travelling(ahead=4)
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=64, executor=executor)
    before = files(store.path)
    changed = predictions(world, "old").slice(0, 20)
    write_all, written = item_files.write_all, Table.write
    made: list[str] = []

    def later(*given: Any) -> Any:
        pq.write_table(changed, source / "003.parquet", row_group_size=8)
        return write_all(*given)

    def counted(*given: Any, **options: Any) -> Any:
        file = written(*given, **options)
        made.append(file.path)
        return file

    monkeypatch.setattr("posterity.engine.items.add.write_all", later)
    monkeypatch.setattr(Table, "write", counted)
    work: dict[str, Callable[[], Any]] = {
        "add": lambda: store.add(source),
        "import": lambda: store.import_predictions(source, {"old": OLD}),
    }
    with pytest.raises(InvalidData, match=r"003\.parquet' changed while it was read; nothing was"):
        work[way]()
    monkeypatch.undo()
    assert len(made) >= 5
    nothing_imported(store, before)


def test_a_file_that_is_no_longer_as_it_was_cut(tmp_path: Path) -> None:
    """Row groups nobody knew of would be left out."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": range(9)}), path, row_group_size=3)
    stream = Stream(path)
    (portion,) = stream.portions
    pq.write_table(pa.table({"id": range(12)}), path, row_group_size=3)
    with pytest.raises(InvalidData, match=r"x\.parquet' changed while it was read"):
        list(stream.reader(["id"], ids="id").batches(portion))


def test_a_column_of_numbers_in_some_files_and_names_in_others(tmp_path: Path) -> None:
    """What ids are is known when all were looked at, and then everywhere."""
    (tmp_path / "parts").mkdir()
    for at, ids in enumerate((["1", "2"], ["3", "x"], ["05", "6"])):
        lines = "".join(f"{one},{at}\n" for one in ids)
        (tmp_path / "parts" / f"{at}.csv").write_text(f"id,x\n{lines}")
    for end, kind in ((3, str), (1, int)):
        for name, executor in (("here", None), ("there", Travelling())):
            path = tmp_path / f"{name}-{end}"
            store = Store.create(path, classes=NAMES, executor=executor)
            store.add([tmp_path / "parts" / f"{at}.csv" for at in range(end)])
            assert store.id_type is kind
            assert store.labels().column("id").to_pylist()[:2] == [kind(1), kind(2)]


# Exports


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = make(tmp_path_factory.mktemp("exported") / "store", World(), "old", "new")
    store.remove(["item-3", "item-59"])
    return store


def context_of(store: Store, executor: Executor | None = None) -> Context:
    return Context(open_files(store.path), open_executor(executor))


COMMANDS = [["labels"], ["labels", "--since", "0"], ["flips", "--step", "1"]]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_file_is_the_same_wherever_its_rows_are_made(
    exported: Store, tmp_path: Path, suffix: str
) -> None:
    made = []
    for name, executor in (("here", None), ("there", Travelling())):
        context = context_of(exported, executor)
        for at, sharded in enumerate(
            (
                publish.labels_by_shard(context),
                queries.changes_by_shard(context, 0),
                queries.flips_by_shard(context, 1),
            )
        ):
            path = tmp_path / f"{name}-{at}{suffix}"
            output.write_stream(path, sharded.schema, sharded.each())
            made.append(path.read_bytes())
    assert made[:3] == made[3:]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_holds_what_the_call_returns(
    exported: Store, tmp_path: Path, command: list[str]
) -> None:
    name, *options = command
    out = f"{tmp_path}/out/"
    told = CliRunner().invoke(cli, [name, exported.path, *options, "--out", out, "--json"])
    assert told.exit_code == 0, told.output
    number = int(options[1]) if options else None
    table = exported.flips(number) if name == "flips" else exported.labels(since=number)
    (shown,) = json.loads(told.output).values()
    assert shown == table.slice(0, 20).to_pylist()
    parts = sorted(Path(out).glob("part-*.parquet"))
    assert [part.name for part in parts] == [f"part-{at:06}.parquet" for at in range(1)]
    assert pa.concat_tables(map(pq.read_table, parts)).to_pylist() == table.to_pylist()
    done = json.loads((Path(out) / "_SUCCESS").read_text())
    assert done["rows"] == table.num_rows
    again = CliRunner().invoke(cli, [name, exported.path, *options, "--out", out])
    assert again.exit_code == 0, again.output  # its own export is replaced
    (Path(out) / "mine.txt").write_text("")
    with pytest.raises(InvalidParameter, match=r"one of an earlier export.*'mine.txt'"):
        CliRunner().invoke(
            cli, [name, exported.path, *options, "--out", out], catch_exceptions=False
        )


def test_a_folder_is_written_by_the_tasks(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(tmp_path / "store", world, "old")
    executor = Travelling()
    sharded = publish.labels_by_shard(context_of(store, executor))
    done: list[tuple[int, int]] = []
    out = open_files(tmp_path / "out")
    shown, count = sharded.write(out, first=70, progress=lambda at, of: done.append((at, of)))
    assert count == 200
    assert shown == store.labels().slice(0, 70).to_pylist()
    assert done == [(64, 200), (128, 200), (192, 200), (200, 200)]
    assert [name for name, _ in executor.tasks] == ["_write_file"] * 4
    parts = [pq.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert [part.num_rows for part in parts] == [64, 64, 64, 8]
    assert pa.concat_tables(parts).equals(store.labels())
    kept = json.loads((tmp_path / "out" / "_SUCCESS").read_text())["files"]
    assert kept[3] == {"file": "part-000003.parquet", "rows": 8}

    # A failure leaves nothing, a death no sign of success.
    read = ShardHistory.read

    def failing(ledger: Snapshot, shard: int, start: int, items: int) -> ShardHistory:
        if shard == 2:
            raise StoreError("no room")
        return read(ledger, shard, start, items)

    monkeypatch.setattr(ShardHistory, "read", failing)
    with pytest.raises(StoreError, match="no room"):
        sharded.write(open_files(tmp_path / "failed"))
    assert open_files(tmp_path / "failed").list("") == []
    (tmp_path / "failed" / "part-000009.parquet").write_bytes(b"")  # of one that was cut short
    monkeypatch.undo()
    sharded.write(open_files(tmp_path / "failed"))
    assert len(open_files(tmp_path / "failed").list("")) == 5


def test_an_empty_store_has_columns_all_the_same(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    out = tmp_path / "out"
    out.mkdir()
    told = CliRunner().invoke(cli, ["labels", store.path, "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert pq.read_table(out / "part-000000.parquet").schema.names == store.labels().schema.names
    remote = ["labels", store.path, "--out", "s3://bucket/x.parquet"]
    with pytest.raises(InvalidParameter, match="a folder/ on an object store"):
        CliRunner().invoke(cli, remote, catch_exceptions=False)


def test_a_folder_on_an_object_store(exported: Store, s3: dict[str, str]) -> None:
    out = open_files("s3://stores/exports/labels/", s3)
    publish.labels_by_shard(context_of(exported, Travelling())).write(out)
    assert out.list("") == ["_SUCCESS", "part-000000.parquet"]
    assert pq.read_table(pa.BufferReader(out.read("part-000000.parquet"))).equals(exported.labels())
