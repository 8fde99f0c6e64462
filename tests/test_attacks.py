"""What attacks on a store found, one test for each: nothing lost, doubled or left behind."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from posterity import Evaluation, Model, Store
from posterity.cli import cli
from posterity.engine.ledger.context import Context
from posterity.engine.maintenance import check
from posterity.engine.steps import import_predictions, update
from posterity.errors import CommitConflict, InvalidData, PosterityError, StoreError
from posterity.storage.delta import commits
from posterity.storage.delta.table import Snapshot, Table
from posterity.storage.files import LocalFiles, open_files
from tests.killing import at_once, run_until
from tests.stores import NAMES, World, contents, registered, small_store


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    held = small_store(tmp_path / "store", world)
    held.update(world.model("mid"), budget="30%", rule="max-belief")
    return held


def command(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [str(one) for one in arguments])
    if isinstance(done.exception, PosterityError):
        assert done.exception.exit_code == code, done.exception
        return str(done.exception)
    assert done.exit_code == code, done.output
    return done.output


def test_a_table_made_by_several_at_once_is_made_once(tmp_path: Path) -> None:
    """`add` makes the table of items, and `vacuum` may make it at the same moment."""
    columns = [
        pa.schema([("row", pa.int64())]),
        pa.schema([("row", pa.int64()), ("id", pa.int8())]),
    ]
    for attempt in range(5):
        files, barrier = open_files(tmp_path / str(attempt)), threading.Barrier(4)
        tables = [Table(files, "items", columns[number % 2]) for number in range(4)]

        def make(table: Table, barrier: threading.Barrier = barrier) -> pa.Schema:
            barrier.wait()
            table.create()
            return table.head().schema

        with ThreadPoolExecutor(len(tables)) as pool:
            made = list(pool.map(make, tables))
        assert tables[0].head().version == 0
        assert all(schema == made[0] for schema in made)


@pytest.mark.parametrize("verb", ["plan", "update"])
def test_a_plan_reads_again_what_was_vacuumed(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """`compact` and `vacuum --hours 0` may delete the files of the head it has opened."""
    store.register(world.model("new"))
    find_plan, tries = update.find_plan, list[int]()

    def vacuumed(context: Context, *rest: Any, **options: Any) -> Any:
        tries.append(len(tries))
        if len(tries) == 1:
            other = Store(store.path)
            other.compact()
            assert other.vacuum(hours=0) > 0
        return find_plan(context, *rest, **options)

    monkeypatch.setattr("posterity.engine.steps.update.find_plan", vacuumed)
    if verb == "plan":
        assert store.plan("new", budget="20%").evaluations > 0
    else:
        assert store.update(world.model("new"), budget="20%").step == 2
    assert tries == [0, 1]
    assert store.check() == []


def temporaries(path: str | Path) -> list[Path]:
    return [one for one in Path(path).rglob(".*") if one.is_file()]


def data_files(path: str | Path, table: str) -> set[str]:
    return {one.name for one in Path(path, table).rglob("*.parquet")}


# 1: compactions


def test_two_compactions_at_once(store: Store, tmp_path: Path) -> None:
    store.remove(["item-7"])
    for trial in range(2):
        path = tmp_path / f"{trial}"
        shutil.copytree(store.path, path)
        expected = contents(store)
        assert at_once([("compact", path)] * 3) == [0, 0, 0]
        held = Store(path)
        assert held.check() == []
        found = contents(held)
        assert found["headers"] == expected["headers"]
        assert [row for row in expected["rows"] if row["row"] != 7] == found["rows"]
        held.revert(1)


def test_a_commit_that_retires_files_is_refused_where_they_are_gone(store: Store) -> None:
    """Also where the table format itself would let it through."""
    first, second = (Context(open_files(store.path)).ledger for _ in range(2))
    own = first.files_of(0)
    rows = first.read(partition=0)
    copies = [first.table.write(rows, label="copy", partition=0) for _ in range(2)]
    first.commit(copies[:1], removes=own, data_change=False)
    with pytest.raises(CommitConflict, match="Another process changed the table 'ledger'"):
        second.commit(copies[1:], removes=own, data_change=False)
    assert Store(store.path).check() == []


def test_a_commit_goes_on_where_others_left_what_it_needs(store: Store, world: World) -> None:
    """A compaction is not in vain because a step was made meanwhile, nor a step by a compaction."""
    late = Context(open_files(store.path)).ledger
    store.update(world.model("new"), budget="20%")
    own = late.files_of(0)
    copy = late.table.write(late.read(partition=0), label="copy", partition=0)
    late.commit([copy], removes=own, data_change=False)
    assert store.check() == []
    assert store.status()["step"] == 2


def doubled(store: Store) -> None:
    """As two compactions at once left it: two sets of files, each with every row."""
    for name in ("ledger", "items"):
        context = Context(open_files(store.path))
        snapshot = context.ledger if name == "ledger" else context.items
        assert snapshot is not None
        for shard in snapshot.partitions():
            rows = snapshot.read(partition=shard)
            copy = snapshot.table.write(rows, label="compacted", partition=shard)
            snapshot.commit([copy], data_change=False)


def test_a_store_that_two_compactions_have_doubled_is_restored(store: Store) -> None:
    expected = contents(store)
    doubled(store)
    told = "\n".join(store.check())
    assert "The table 'ledger' has" in told
    assert "`store.repair()` drops" in told
    assert "rows twice" in command("check", store.path, code=1)
    assert "each is there once now" in command("check", store.path, "--repair")
    assert contents(store) == expected
    assert store.check() == []
    assert store.repair() == []
    store.revert(1)
    assert store.check() == []


def test_rows_that_differ_are_not_repaired(store: Store) -> None:
    doubled(store)
    victim = next(path for path in Path(store.path, "items").rglob("compacted-*"))
    rows = pq.ParquetFile(victim).read()
    numbers = pa.array([number + 1 for number in rows.column("number").to_pylist()])
    at = rows.column_names.index("number")
    pq.write_table(rows.set_column(at, "number", numbers), victim)
    with pytest.raises(StoreError, match="two different rows"):
        store.repair()


# 2: labelled votes


def test_labelled_votes_whose_keys_look_like_ids_stay(tmp_path: Path, world: World) -> None:
    """A validation set numbered like the items: its rows are about other things."""
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add({"id": [f"{n}" for n in range(60)], "number": list(range(60))})
    validation = world.labelled_table("old").set_column(0, "id", [[f"{n}" for n in range(80)]])
    model = Model("old", labelled=validation, predict=world.model("old").predict)
    store.update(model)
    store.remove([f"{n}" for n in range(50)])
    store.compact()
    assert Context(open_files(store.path)).labelled.num_rows == 80
    assert store.check() == []


def test_labelled_votes_about_removed_items_go_with_them(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    truth = {"id": [f"item-{n}" for n in range(40)], "truth": world.truth[:40]}
    store.update(Model("old", labelled=truth, predict=world.model("old").predict), budget="100%")
    store.remove(["item-3"])
    store.compact()
    keys = Context(open_files(store.path)).labelled.column("key").to_pylist()
    assert "item-3" not in keys
    assert "item-4" in keys
    assert store.check() == []


def test_labelled_votes_that_were_lost_are_found_and_given_again(store: Store) -> None:
    context = Context(open_files(store.path))
    held = context.labelled_table
    (mid,) = [file for file in held.data_files() if "mid" in _models_of(held, file)]
    held.commit(removes=[mid])
    (told,) = store.check()
    assert "'mid' has 0 of its 80 labelled votes; register it again" in told
    store.register(World().model("mid"))
    assert store.check() == []


def _models_of(held: Snapshot, file: Any) -> list[str]:
    models: list[str] = held.read_file(file, ["model"]).column("model").to_pylist()
    return models


# 3: runs


def test_a_run_is_protected_from_its_start(store: Store, world: World) -> None:
    """While the first batch is under way another step is made, and the store is vacuumed."""
    asked: list[int] = []

    def meanwhile(numbers: list[int]) -> None:
        if not asked:
            other = Store(store.path)
            other.compact()
            other.update(world.model("best"), budget="10%")
            other.vacuum()
            (run,) = [run for run in other.runs() if run.state == "started"]
            assert (run.model, run.planned, run.votes) == ("new", 30, 0)
        asked.extend(numbers)

    with pytest.raises(CommitConflict, match="rebase=True"):
        store.update(world.model("new", meanwhile), budget="50%", evaluation=Evaluation(batch=6))
    assert len(asked) == 30
    store.vacuum(hours=0)
    report = store.update(
        world.model("new", meanwhile), budget="50%", rebase=True, evaluation=Evaluation(batch=6)
    )
    assert (report.step, len(asked)) == (3, 30)  # nobody was asked again
    assert store.runs() == []


def test_runs_are_listed_and_dropped(store: Store, world: World) -> None:
    def failing(_: list[int]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.update(world.model("new", failing), budget="50%")
    (run,) = store.status()["unfinished"]
    assert run in command("runs", store.path)
    told = json.loads(command("runs", store.path, "--json"))
    assert told["runs"][0]["state"] == "started"
    assert "no run 'x'" in command("runs", store.path, "--drop", "x", code=2)
    assert f"Dropped started run {run}" in command("runs", store.path, "--drop", run)
    assert store.status()["unfinished"] == []
    assert "No plans" in command("runs", store.path)


# 4 and 5: repeated and simultaneous commands


def test_a_removal_that_was_cut_short_is_finished(store: Store) -> None:
    ids = ["item-3", "item-30"]
    code = run_until("commit.made:1", Path(store.path), "remove", Path(f"{store.path}.log"))
    assert code == 137
    assert store.check() == []
    assert "Done already" in command("remove", store.path, *ids)
    assert store.remove(ids) == 0
    published = pa.table(DeltaTable(f"{store.path}/labels").to_pyarrow_table())
    assert not set(ids) & set(published.column("id").to_pylist())
    assert len(store) == 58


def test_what_is_done_is_done_already(tmp_path: Path, world: World) -> None:
    path, items = tmp_path / "store", tmp_path / "items.parquet"
    pq.write_table(world.table(), items)
    for words in (
        ("init", path, "--classes", "cat,dog,fox,owl"),
        ("add", path, items),
        ("remove", path, "item-9", "item-8"),
    ):
        assert "Done already" not in command(*words)
        if words[0] != "remove":
            assert "Done already" in command(*words)
    assert "Done already" in command("remove", path, "item-9", "item-8")
    for _ in range(2):
        command("classes", path, "--append", "eel,ape")
    assert list(Store(path).classes) == [*NAMES, "eel", "ape"]
    assert Store(path).check() == []


def test_items_with_another_payload_are_not_done_already(store: Store, world: World) -> None:
    one = world.table().slice(3, 2)
    assert store.add(one) == 0
    assert store.add(one.select(["lang", "id", "number"]).take([1, 0])) == 0
    for other in (
        one.set_column(1, "number", pa.array([3, 99])),
        pa.concat_tables([one, World(items=61).table(60)]),
    ):
        with pytest.raises(InvalidData, match="in the store already"):
            store.add(other)
    store.remove(["item-3"])
    with pytest.raises(InvalidData, match="in the store already"):
        store.add(one)


@pytest.mark.parametrize("boundary", ["commit.before", "commit.made", "file.before", "file.synced"])
def test_an_init_that_was_cut_short_is_finished(boundary: str, tmp_path: Path) -> None:
    for nth in range(1, 4):
        path = tmp_path / f"{nth}"
        code = run_until(f"{boundary}:{nth}", path, "init", tmp_path / "log")
        assert code in (0, 137)
        if code == 0:
            assert nth > 1
            break
        other = tmp_path / f"{nth}-other"
        shutil.copytree(path, other) if path.exists() else other.mkdir()
        assert run_until("", path, "init", tmp_path / "log") == 0
        assert Store(path).check() == []
        assert list(Store(path).classes) == NAMES.tolist()
        # With other classes it is a store already, or still nobody's.
        done = CliRunner().invoke(cli, ["init", str(other), "--classes", "a,b"])
        assert done.exit_code == 0 or "made with other settings" in str(done.exception)
        assert Store(other).check() == []


def test_two_inits_at_once(tmp_path: Path) -> None:
    path = tmp_path / "same"
    assert at_once([("init", path)] * 4) == [0] * 4
    assert list(Store(path).classes) == NAMES.tolist()
    assert Store(path).check() == []
    for trial in range(2):
        path = tmp_path / f"other-{trial}"
        codes = at_once([("init", path), ("init other", path)])
        assert sorted(codes) == [0, 1]
        assert Store(path).check() == []


def test_foreign_files_are_no_unfinished_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"not empty.*'notes.txt'"):
        Store.create(tmp_path, classes=NAMES)


@pytest.mark.parametrize("broken", ["code", "name", "lost"])
def test_broken_classes_are_found(store: Store, broken: str) -> None:
    snapshot = Context(open_files(store.path)).class_table
    rows = snapshot.read()
    other = {
        "code": rows.set_column(0, "code", pa.array([0, 1, 1, 2], pa.int32())),
        "name": rows.set_column(1, "name", pa.array(["cat", "dog", "cat", "owl"])),
        "lost": rows.slice(0, 3),
    }[broken]
    file = snapshot.table.write(other, label="classes")
    snapshot.commit([file], removes=snapshot.data_files())
    assert any("class" in line for line in store.check())


def test_garbage_in_labelled_votes_is_found(store: Store) -> None:
    (victim, *_) = Path(store.path, "labelled").glob("*.parquet")
    whole = victim.read_bytes()
    victim.write_bytes(os.urandom(len(whole)))
    assert any(victim.name in line for line in store.check())
    rows = pq.ParquetFile(pa.BufferReader(whole)).read()
    votes = pa.array(np.roll(rows.column("vote").to_numpy(), 1))
    pq.write_table(rows.set_column(rows.column_names.index("vote"), "vote", votes), victim)
    assert any(
        "not those it was registered with" in line or "bytes" in line for line in store.check()
    )


def test_a_lost_removal_is_found(store: Store) -> None:
    store.remove(["item-3"])
    store.remove(["item-4", "item-5"])
    log = sorted(Path(store.path, "removed", "_delta_log").glob("*.json"))
    log[-1].unlink()
    (told, *_) = store.check()
    assert "2 removals that the published labels reflect are missing" in told


# 6: lost answers


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every commit is made, and its answer lost: the library says that somebody else was first."""
    lost: list[str] = []
    made = DeltaTable.create_write_transaction

    def commit(self: DeltaTable, *given: Any, **options: Any) -> None:
        made(self, *given, **options)
        lost.append(self.table_uri)
        raise CommitFailedError("Failed to commit transaction: 0")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
    yield lost
    monkeypatch.undo()


OPERATIONS: dict[str, Callable[[Store, World], Any]] = {
    "add": lambda store, _: store.add(World(items=70).table(60, 70)),
    "remove": lambda store, _: store.remove(["item-1"]),
    "classes": lambda store, _: store.append_classes(["eel"]),
    "register": lambda store, world: store.register(world.model("new")),
    "update": lambda store, world: store.update(world.model("new"), budget="30%"),
    "revert": lambda store, _: store.revert(1),
    "tune": lambda store, _: store.tune(goal="at-most:50%", apply=True),
    "review": lambda store, _: store.review({"id": ["item-1"], "answer": ["owl"]}),
    "compact": lambda store, _: store.compact(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_answer_that_was_lost_is_no_conflict(
    operation: str, store: Store, world: World, tmp_path: Path, losing: list[str]
) -> None:
    other = Store(shutil.copytree(store.path, tmp_path / "other"))
    OPERATIONS[operation](store, world)
    assert losing
    assert store.check() == []
    assert other.status()["step"] == 1
    assert len(store) == {"add": 70, "remove": 59}.get(operation, 60)
    steps = ("update", "revert", "tune", "review")
    assert store.status()["step"] == (2 if operation in steps else 1)


# 7: imports


def test_identical_imports_at_once(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    assert at_once([("import", Path(store.path))] * 4) == [0] * 4
    assert store.status()["step"] == 1
    assert store.check() == []


def test_a_run_that_another_process_tidied_away_is_done(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its votes are read when another process has just made them a step."""
    read, done = LocalFiles.read, list[Any]()

    def later(self: LocalFiles, path: str) -> pa.Buffer:
        if "/votes-" in path and not done:
            done.append(path)
            monkeypatch.undo()
            Store(store.path).update(world.model("new"), budget="50%")
        return read(self, path)

    plan = store.plan(registered(store, world.model("new")), budget="50%")
    monkeypatch.setattr(LocalFiles, "read", later)
    assert store.update(world.model("new"), budget="50%").step == 2
    assert done
    assert plan.evaluations == 30
    assert store.check() == []


# 8 and 10: vacuum


def test_orphans_of_killed_commands_are_vacuumed(store: Store) -> None:
    for boundary, operation in (
        ("commit.before:1", "add"),
        ("file.synced:1", "add"),
        ("file.written:4", "update"),
        ("commit.before:1", "compact"),
    ):
        code = run_until(boundary, Path(store.path), operation, Path(f"{store.path}.log"))
        assert code == 137
    assert temporaries(store.path)
    before = data_files(store.path, "items")
    assert store.vacuum(hours=1) == 0  # they are seconds old
    assert data_files(store.path, "items") == before
    assert store.vacuum(hours=0, dry_run=True) > 0
    assert store.vacuum(hours=0) > 0
    assert temporaries(store.path) == []
    for table in ("items", "ledger", "labels", "labelled"):
        named = {file.split("/")[-1] for file in DeltaTable(f"{store.path}/{table}").file_uris()}
        assert data_files(store.path, table) == named
    assert store.check() == []
    assert store.status()["unfinished"]  # the votes of the killed update


def test_the_first_items_of_a_killed_add_are_vacuumed(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    assert run_until("commit.before:1", Path(store.path), "add first", tmp_path / "log") == 137
    assert data_files(store.path, "items")
    store.vacuum(hours=0)
    assert data_files(store.path, "items") == set()
    assert run_until("", Path(store.path), "add first", tmp_path / "log") == 0
    assert len(store) == 60
    assert store.check() == []


@pytest.mark.parametrize("hours", [0.5, 0.02])
def test_a_fraction_of_an_hour_is_not_zero(store: Store, hours: float) -> None:
    store.compact()
    orphan = Path(store.path, "items", "shard=0", "items-0-abcdef012345.parquet")
    orphan.write_bytes(b"an orphan")
    assert store.vacuum(hours=hours) == 0
    old = time.time() - 3600 * hours - 10
    os.utime(orphan, (old, old))
    assert store.vacuum(hours=hours) == 1
    assert not orphan.exists()
    assert store.vacuum(hours=0) > 1


@pytest.mark.parametrize("operation", ["add", "update", "review", "register", "classes", "remove"])
def test_a_vacuum_beside_a_writer(
    operation: str, store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a writer has not committed yet is gone: it writes it again instead of committing it."""
    vacuumed: list[int] = []
    refuse = commits._refuse_outdated

    def between(*given: Any, **options: Any) -> None:
        refuse(*given, **options)
        if not vacuumed and given[1].name != "labels":
            vacuumed.append(0)
            vacuumed.append(Store(store.path).vacuum(hours=0))

    monkeypatch.setattr(commits, "_refuse_outdated", between)
    OPERATIONS[operation](store, world)
    assert vacuumed[1] > 0
    monkeypatch.undo()
    assert store.check() == []
    assert len(store) == {"add": 70, "remove": 59}.get(operation, 60)


# 9: what a removed item leaves


def test_a_removed_item_is_nowhere(tmp_path: Path, world: World) -> None:
    """Its id, its payload and what a model said about it."""
    secret = "Erika Mustermann, Heidestr. 17"
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    table = world.table().append_column("text", [[secret if n == 7 else "x" for n in range(60)]])
    ids = ["erika@example.org" if n == 7 else f"item-{n}" for n in range(60)]
    store.add(table.set_column(0, "id", pa.array(ids)))

    def failing(batch: pa.Table) -> np.ndarray:
        if secret in batch.column("text").to_pylist():
            raise ValueError(f"cannot read {batch.column('text').to_pylist()}")
        votes: np.ndarray = world.votes["old"][batch.column("number").to_numpy()]
        return votes

    model = Model("old", labelled=world.labelled_table("old"), predict=failing)
    report = store.update(model)
    assert "erika" in report.note  # whoever asked is told
    assert secret in report.note
    votes = {"id": ["erika@example.org", "item-1", "erika2@example.org"], "vote": ["cat"] * 3}
    store.register(world.model("mid"))
    told = store.update("mid", votes=votes, budget="100%")
    assert "erika2" in told.note
    answers = {"id": ["item-1", "erika3@example.org"], "answer": ["owl", "owl"]}
    assert "erika3" in str(store.review(answers))
    store.remove(["erika@example.org"])
    store.compact()
    store.vacuum(hours=0)
    assert store.check() == []
    held = "".join(_texts(Path(store.path)))
    assert "Mustermann" not in held
    assert "erika" not in held


def _texts(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield str(pq.ParquetFile(path).read().to_pylist())
        elif path.is_file():
            yield path.read_bytes().decode(errors="replace")


# 19: damage, and files that were replaced


@pytest.mark.parametrize("settings", ["{", "[]", "{}", "null"])
def test_a_damaged_model_is_named(store: Store, settings: str) -> None:
    snapshot = Context(open_files(store.path)).arrivals
    rows = snapshot.read()
    damaged = rows.set_column(2, "settings", pa.array([settings] * rows.num_rows))
    snapshot.commit([snapshot.table.write(damaged, label="model")], removes=snapshot.data_files())
    with pytest.raises(StoreError, match="'models' is damaged"):
        store.status()
    assert any("'models' is damaged" in line for line in store.check())


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PAR1PAR1"])
def test_a_damaged_run_is_named_and_dropped(store: Store, world: World, content: bytes) -> None:
    plan = store.plan(registered(store, world.model("new")), budget="50%")
    for name in ("votes-0-0123456789abcdef", "errors-0123456789abcdef"):
        Path(store.path, "runs", plan.id, f"{name}.parquet").write_bytes(content)
    with pytest.raises(StoreError, match=rf"damaged.*store.drop_run\('{plan.id}'\)"):
        store.update(world.model("new"), budget="50%")
    (run,) = store.runs()
    assert (run.run, run.state) == (plan.id, "damaged")
    store.drop_run(plan.id)
    assert store.update(world.model("new"), budget="50%").step == 2


def test_files_that_were_replaced_are_no_damage(store: Store) -> None:
    store.add(World(items=70).table(60, 70))
    late = Context(open_files(store.path))
    assert late.items is not None
    store.compact()
    store.vacuum(hours=0)
    with pytest.raises(CommitConflict, match="compacted and vacuumed while it was read"):
        late.ledger.read(partition=0)
    with pytest.raises(CommitConflict, match="compacted and vacuumed"):
        late.items.groups(late.items.data_files()[-1])
    victim = next(Path(store.path, "ledger").rglob("compacted*"))
    victim.unlink()
    with pytest.raises(StoreError, match=f"{victim.name}' of the store is damaged"):
        store.flips(1)


def test_an_update_goes_on_where_files_were_replaced(store: Store, world: World) -> None:
    asked: list[int] = []

    def meanwhile(numbers: list[int]) -> None:
        asked.extend(numbers)
        other = Store(store.path)
        other.add(World(items=100 + len(asked)).table(60 + len(asked), 61 + len(asked)))
        other.compact()
        other.vacuum(hours=0)

    report = store.update(
        world.model("new", meanwhile), budget="100%", evaluation=Evaluation(batch=20)
    )
    assert report.evaluations == 60
    assert len(asked) == 60
    assert store.check() == []


def test_a_plan_that_is_evaluated_elsewhere_survives_a_vacuum(store: Store, world: World) -> None:
    """Only a plan of a head that moved long ago is taken for forgotten."""
    plan = store.plan(registered(store, world.model("new")), budget="50%")
    store.update(world.model("best"), budget="10%")
    store.vacuum(hours=0)
    report = store.update("new", plan=plan.id, votes=world.votes_table("new"), rebase=True)
    assert (report.step, report.evaluations) == (3, 30)
    old = store.plan("new", budget="20%", more=True)
    store.update("best", votes=world.votes_table("best"), budget="10%", more=True)
    for path in Path(store.path, "runs", old.id).iterdir():
        os.utime(path, (time.time() - 700_000,) * 2)
    store.vacuum(hours=0)
    assert store.runs() == []


def test_a_check_beside_writers_raises_no_alarm(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step, a removal, a compaction and a vacuum while the steps are being decided again."""
    parts, busy = check._steps, list[str]()

    def meanwhile(context: Context) -> Iterator[str]:
        if not busy:
            busy.append("busy")
            store.update(world.model("best"), budget="10%")
            store.remove(["item-5"])
            store.compact()
            store.vacuum(hours=0)
        return parts(context)

    monkeypatch.setattr(check, "_steps", meanwhile)
    assert store.check() == []
    assert busy


def test_an_import_whose_model_has_voted_meanwhile_ends(store: Store) -> None:
    """Killed after its items were added; then the model was asked about them by an update."""
    more = World(items=70)
    table = more.table(60, 70).append_column("pred", [more.votes["old"][60:]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_predictions, "commit_votes", _killed)
        with pytest.raises(KeyboardInterrupt):
            store.import_predictions(table, {"pred": "old"})
    assert len(store) == 70
    store.update("old", votes=more.votes_table("old"), budget="100%", more=True)
    done = store.import_predictions(table, {"pred": "old"})
    assert "imported already" in str(done)
    assert store.check() == []
    assert store.runs() == []


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt
