"""Stored predictions become items and steps: from everywhere, whole, once, or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posterity import Model, Store, VoteFile
from posterity.engine.evaluation import durable_votes
from posterity.engine.items import item_files
from posterity.engine.items.item_files import Incoming
from posterity.engine.ledger.context import Context
from posterity.engine.steps import commit_votes, import_predictions
from posterity.engine.steps.import_file import Predictions, sources_of
from posterity.errors import (
    CommitConflict,
    InvalidData,
    InvalidParameter,
    PosterityError,
    StoreError,
)
from posterity.storage import failpoints, input_files
from posterity.storage import stream as storage_stream
from posterity.storage.files import open_files
from tests.killing import perform, run_until
from tests.stores import NAMES, World, contents, registered, write_table
from tests.test_cli import run
from tests.test_store import Place, place, s3

__all__ = ["place", "s3"]  # fixtures

OLD = Model("old", accuracy=0.6)
NEW = Model("new", accuracy=0.8)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)


def predictions(world: World, *models: str) -> pa.Table:
    """Items with their payload and a column of votes for each model."""
    table = world.table()
    for name in models:
        table = table.append_column(name, pa.array(world.votes[name]))
    return table


def whole(store: Store) -> dict[str, Any]:
    """Everything a store holds, items and models included."""
    context = Context(open_files(store.path, store.options))
    rows = [] if context.items is None else context.items.read().sort_by("row").to_pylist()
    models = {name: model.settings for name, model in context.models.items()}
    held = contents(store) if context.headers else {}
    return held | {"items": rows, "models": models}


def files(path: str | Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(p): p.read_bytes() for p in sorted(Path(path).rglob("*")) if p.is_file()}


def labels(store: Store) -> dict[Any, Any]:
    table = store.labels()
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def nothing_imported(store: Store, before: dict[str, bytes]) -> None:
    assert files(store.path) == before
    assert store.check() == []


# From everywhere


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars", "dict", "parquet", "csv", "jsonl"])
def test_every_form_equals_adding_and_updating(
    form: str, store: Store, world: World, tmp_path: Path
) -> None:
    table = predictions(world, "old")
    make: dict[str, Callable[[], Any]] = {
        "arrow": lambda: table,
        "pandas": lambda: pd.DataFrame(table.to_pydict()),
        "polars": lambda: pl.DataFrame(table.to_pydict()),
        "dict": table.to_pydict,
    }
    if form in make:
        source = make[form]()
    else:
        source = tmp_path / f"preds.{form}"
        write_table(table, source)
    model = Model("old", labelled=world.labelled_table("old"))
    done = store.import_predictions(source, {"old": model})
    assert (done.items, done.files, len(done.steps)) == (60, 1, 1)
    assert "60 items imported from 1 file" in str(done)
    other = Store.create(tmp_path / "other", classes=NAMES, shard_rows=25)
    other.add(world.table())
    votes = world.votes_table("old")
    other.update(model, votes=votes, budget="100%", selector="everything")
    assert whole(store) == whole(other)
    assert store.check() == []
    assert store.status()["unfinished"] == []


def test_a_glob_a_folder_and_a_list(world: World, tmp_path: Path) -> None:
    table = predictions(world, "old")
    folder = tmp_path / "preds [1]" / "deep"
    folder.mkdir(parents=True)
    parts = [folder.parent / "a.parquet", folder / "b.PARQUET", folder / "c.jsonl"]
    for at, part in enumerate(parts):
        write_table(table.slice(20 * at, 20), part.with_suffix(part.suffix.lower()))
    parts[1].with_suffix(".parquet").rename(parts[1])
    # What other tools leave beside their data is not data.
    for name in ("_SUCCESS", "_delta_log/0.parquet", ".ipynb_checkpoints/x.csv", ".x.csv", "x.txt"):
        beside = folder / name
        beside.parent.mkdir(exist_ok=True)
        beside.write_text("nonsense")
    expected = None
    for at, source in enumerate(
        (
            folder.parent,
            str(folder.parent),
            f"file://{folder.parent}",
            parts,
            [str(parts[0]), str(tmp_path / "preds ?1]" / "deep" / "[bc].*")],
        )
    ):
        store = Store.create(tmp_path / f"store-{at}", classes=NAMES)
        assert store.import_predictions(source, {"old": OLD}).files == 3
        expected = expected or whole(store)
        assert whole(store) == expected
    store = Store.create(tmp_path / "last", classes=NAMES)
    for source, message in (
        (str(tmp_path / "*.nothing"), "No file matches"),
        (tmp_path / "last" / "runs", "There is no file|must end in"),
        (tmp_path / "last" / "ledger", "holds no files that end in one of"),
        ([], "There are no predictions: the list is empty"),
        (7, "must be an Arrow table"),
    ):
        with pytest.raises(InvalidData, match=message):
            store.import_predictions(source, {"old": OLD})


def test_ids_and_names_in_csv_stay_as_they_are_written(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["01", "NA", "1"])
    file = tmp_path / "preds.csv"
    file.write_text("path,pred,note\n001,01,x\n2,NA,\n3,,y\n4,1,NA\n")
    store.import_predictions(file, {"pred": OLD}, id="path")
    assert labels(store) == {"001": "01", "2": "NA", "3": None, "4": "1"}
    assert [row["note"] for row in whole(store)["items"]] == ["x", None, "y", "NA"]
    assert store.id_type is str
    # The store's ids are texts now, so numbers stay texts too.
    file.write_text("path,pred\n10,01\n11,NA\n")
    store.import_predictions(file, {"pred": "old"}, id="path")
    assert list(labels(store)) == ["001", "2", "3", "4", "10", "11"]
    assert store.check() == []


def test_ids_that_are_all_numbers_are_numbers(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["a", "b"])
    (tmp_path / "one.csv").write_text("id,pred\n7,a\n-3,b\n")
    pq.write_table(pa.table({"id": [10], "pred": ["b"]}), tmp_path / "two.parquet")
    both = [tmp_path / "one.csv", tmp_path / "two.parquet"]
    store.import_predictions(both, {"pred": OLD})
    assert labels(store) == {7: "a", -3: "b", 10: "b"}
    with pytest.raises(InvalidData, match="store's ids are of type int64; got string"):
        store.import_predictions({"id": ["x"], "pred": ["a"]}, {"pred": "old"})
    pq.write_table(pa.table({"id": ["5"], "pred": ["b"]}), tmp_path / "two.parquet")
    texts = Store.create(tmp_path / "texts", classes=["a", "b"])
    texts.import_predictions(both, {"pred": OLD})
    assert list(labels(texts)) == ["7", "-3", "5"]
    assert texts.check() == store.check() == []


def test_an_object_store(place: Place, world: World, s3: dict[str, str], tmp_path: Path) -> None:
    """Sources at s3://, the store there or in a folder."""
    table = predictions(world, "old")
    remote = open_files("s3://stores", s3)
    prefix = f"sources-{Path(place[0]).name}"
    parts = {"a.parquet": (0, 20), "v1.2/b.csv": (20, 40), "v1.2/deep/c.jsonl": (40, 60)}
    for name, (start, stop) in parts.items():
        local = tmp_path / Path(name).name
        write_table(table.slice(start, stop - start), local)
        remote.write(f"{prefix}/{name}", local.read_bytes())
    remote.write(f"{prefix}/v1.2/_delta_log/0.parquet", b"nonsense")
    store = Store.create(place[0], classes=NAMES, shard_rows=25, options=s3)
    root = f"s3://stores/{prefix}"
    assert store.import_predictions(f"{root}/v1.2/", {"old": OLD}, dry_run=True).items == 40
    assert store.import_predictions(f"{root}/v1.2", {"old": OLD}, dry_run=True).items == 40
    assert store.import_predictions(f"{root}/*.parquet", {"old": OLD}, dry_run=True).items == 20
    everything = store.import_predictions(f"{root}/**/[abc].*", {"old": OLD}, dry_run=True)
    assert (everything.items, everything.files) == (60, 3)
    done = store.import_predictions([f"{root}/{name}" for name in parts], {"old": OLD})
    assert done.files == 3
    here = Store.create(tmp_path / "here", classes=NAMES, shard_rows=25)
    here.import_predictions(table, {"old": OLD})
    assert whole(store) == whole(here)
    assert store.check() == []
    for source, error in (
        (f"{root}/nothing", InvalidData),
        (f"{root}/*.nothing", InvalidData),
        ("s3://no-such-bucket/x", StoreError),
        ("nonsense://x/y.parquet", StoreError),
    ):
        with pytest.raises(error):
            store.import_predictions(source, {"old": "old"})


def test_payload(store: Store, world: World, tmp_path: Path) -> None:
    table = predictions(world, "old", "new").rename_columns(
        {"id": "path"} | {name: name for name in ("number", "lang", "old", "new")}
    )
    for at, (payload, expected) in enumerate(
        (
            (None, ["number", "lang", "new"]),
            ([], []),
            (["lang", "old", "lang"], ["lang", "old"]),
            (["path"], ["path"]),
            (["lang", "n*"], ["lang", "number", "new"]),
            (["*"], ["number", "lang", "new"]),
        )
    ):
        held = Store.create(tmp_path / f"{at}", classes=NAMES)
        held.import_predictions(table, {"old": OLD}, id="path", payload=payload)
        assert list(whole(held)["items"][0]) == ["shard", "row", "id", *expected]
    before = files(store.path)
    for dry_run in (True, False):
        with pytest.raises(InvalidData, match=r"'the table' has no column 'nobody'; it has: path"):
            store.import_predictions(
                table, {"old": OLD}, id="path", payload=["nobody"], dry_run=dry_run
            )
    with pytest.raises(InvalidData, match=r"No column matches 'x\*'; there are: number, lang, new"):
        store.import_predictions(table, {"old": OLD}, id="path", payload=["x*"])
    with pytest.raises(InvalidData, match="'Row' has a name the store uses itself"):
        store.import_predictions({"id": [1], "v": ["cat"], "Row": [1]}, {"v": OLD})
    with pytest.raises(InvalidData, match="'lang' twice"):
        store.import_predictions(
            pa.table([["a"], ["cat"], [1], [2]], ["id", "v", "lang", "LANG"]), {"v": OLD}
        )
    nothing_imported(store, before)


@pytest.mark.parametrize("rule", ["max-belief", "cost-ratio:2", "majority-vote"])
def test_several_models_equal_one_after_the_other(
    rule: str, store: Store, world: World, tmp_path: Path
) -> None:
    names = ("old", "mid", "best")
    table = predictions(world, *names)
    gap = table["mid"].to_pylist()
    gap[::3] = [None] * len(gap[::3])  # a model need not vote on everything
    table = table.set_column(table.column_names.index("mid"), "mid", pa.array(gap))
    models = {name: Model(name, labelled=world.labelled_table(name)) for name in names}
    done = store.import_predictions(table, models, rule=rule)
    assert [step["evaluations"] for step in done.steps] == [60, 40, 60]
    assert len(done.registrations) == 3
    other = Store.create(tmp_path / "other", classes=NAMES, shard_rows=25)
    other.add(world.table())
    for model in models.values():
        other.register(model)
    for name in names:
        votes = table.select(["id", name]).filter(table[name].is_valid())
        other.update(
            name, votes=VoteFile(votes, vote=name), budget="100%", selector="everything", rule=rule
        )
    assert whole(store)["rows"] == whole(other)["rows"]  # labels, beliefs and entropies
    assert store.labels().equals(other.labels())
    assert store.beliefs(top=4).equals(other.beliefs(top=4))
    assert store.check() == []


@pytest.mark.parametrize("classes", [[3, 1, 2], [False, True]])
@pytest.mark.parametrize("form", ["arrow", "csv", "jsonl"])
def test_classes_that_are_not_text(classes: list[Any], form: str, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=classes)
    table = pa.table({"id": ["a", "b", "c"], "pred": [classes[0], classes[1], None]})
    source: Any = table
    if form != "arrow":
        source = tmp_path / f"preds.{form}"
        write_table(table, source)
    store.import_predictions(source, {"pred": OLD})
    assert list(labels(store).values()) == [classes[0], classes[1], None]
    assert store.history("a")[0]["label"] is classes[0]
    texts = {"id": ["d"], "pred": [str(classes[0])]}
    with pytest.raises(InvalidData, match="must hold classes of type"):
        store.import_predictions(texts, {"pred": "old"})
    assert store.check() == []


@pytest.mark.parametrize(
    "kind",
    [pa.dictionary(pa.int8(), pa.string()), pa.large_string(), pa.string_view()],
    ids=["dictionary", "large", "view"],
)
def test_how_texts_are_encoded_does_not_matter(
    kind: pa.DataType, store: Store, world: World, tmp_path: Path
) -> None:
    table = predictions(world, "old")
    as_kind = pa.chunked_array([table["old"].combine_chunks().cast(pa.string())])
    if pa.types.is_dictionary(kind):
        as_kind = as_kind.dictionary_encode()
        ids = table["id"].dictionary_encode()
    else:
        as_kind, ids = as_kind.cast(kind), table["id"].cast(kind)
    encoded = table.set_column(3, "old", as_kind).set_column(0, "id", ids)
    encoded = encoded.set_column(2, "lang", table["lang"].dictionary_encode())
    store.import_predictions(encoded, {"old": OLD})
    plain = Store.create(tmp_path / "plain", classes=NAMES, shard_rows=25)
    plain.import_predictions(table, {"old": OLD})
    assert whole(store) == whole(plain)


def test_small_integers_are_integers(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=[1, 2])
    columns = {"id": pa.array([7, 8], pa.uint16()), "pred": pa.array([2, 1], pa.int8())}
    store.import_predictions(pa.table(columns), {"pred": OLD})
    assert labels(store) == {7: 2, 8: 1}
    huge = pa.table({"id": [9], "pred": pa.array([2**63], pa.uint64())})
    with pytest.raises(InvalidData, match="cannot be class names"):
        store.import_predictions(huge, {"pred": "old"})


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow"])
def test_where_batches_end_does_not_matter(
    form: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = predictions(world, "old", "new")
    source: Any = table
    if form != "arrow":
        source = tmp_path / f"preds.{form}"
        write_table(table, source)
    held = []
    for at, (batch, block, rows) in enumerate(((2**17, 2**24, 2**20), (7, 400, 4), (25, 900, 25))):
        monkeypatch.setattr(input_files, "BATCH", batch)
        monkeypatch.setattr(input_files, "CSV_BLOCK", block)
        monkeypatch.setattr(item_files, "FILE_ROWS", rows)
        store = Store.create(tmp_path / f"{at}", classes=NAMES, shard_rows=25)
        store.import_predictions(source, {"old": OLD, "new": NEW}, rule="max-belief")
        assert store.check() == []
        held.append(whole(store))
    assert held[0] == held[1] == held[2]
    assert len(list(Path(store.path, "items").rglob("*.parquet"))) == 3


# Once


def test_a_dry_run_changes_nothing(store: Store, world: World) -> None:
    table = predictions(world, "old")
    model = Model("old", labelled=world.labelled_table("old"))
    before = files(store.path)
    done = store.import_predictions(table, {"old": model}, dry_run=True)
    assert (done.dry_run, done.items, done.steps) == (True, 60, [])
    assert "60 items would be imported" in str(done)
    assert "old would be registered" in str(done)
    nothing_imported(store, before)
    store.import_predictions(table.slice(0, 30), {"old": model})
    before = files(store.path)
    assert store.import_predictions(table.slice(30), {"old": "old"}, dry_run=True).items == 30
    more = table.slice(30).append_column("strange", pa.nulls(30, pa.int64()))
    for dry_run in (True, False):
        with pytest.raises(InvalidData, match="items have no column 'strange'"):
            store.import_predictions(more, {"old": "old"}, dry_run=dry_run)
    nothing_imported(store, before)


def test_the_same_import_twice_is_done_once(store: Store, world: World) -> None:
    table = predictions(world, "old", "new")
    votes: dict[str, Model | str] = {"old": OLD, "new": NEW}
    first = store.import_predictions(table, votes)
    assert first.note == ""
    held = whole(store)
    again = store.import_predictions(table, votes)
    assert "Nothing to do: this was imported already" in str(again)
    assert [step["step"] for step in again.steps] == [0, 1]
    parts = [table.slice(0, 13), table.slice(13)]  # the same, cut in another way
    assert "Nothing to do" in str(store.import_predictions(parts, {"old": "old", "new": "new"}))
    assert whole(store) == held
    store.remove("item-3")
    store.compact()
    assert "Nothing to do" in str(store.import_predictions(table, votes))
    assert len(store) == 59
    assert store.check() == []


@pytest.mark.parametrize("change", ["vote", "soft", "rule", "missing"])
def test_other_content_for_the_same_ids_is_refused(change: str, store: Store, world: World) -> None:
    table = predictions(world, "old", "new")
    votes: dict[str, Model | str] = {"old": OLD, "new": NEW}
    tops = [[vote, "dog" if vote == "cat" else "cat"] for vote in world.votes["new"].tolist()]
    table = table.append_column("top", pa.array(tops))
    table = table.append_column("score", pa.array([[0.6, 0.4]] * 60))
    how: dict[str, Any] = {"soft": {"new": "top:score"}, "rule": "max-belief"}
    store.import_predictions(table, votes, **how)
    if change == "vote":
        other = np.where(world.votes["old"] == "cat", "dog", "cat")
        table = table.set_column(3, "old", pa.array(other))
    elif change == "missing":
        table = table.set_column(3, "old", pa.array([None] * 59 + ["cat"], pa.string()))
    elif change == "soft":
        table = table.set_column(
            5, "top", pa.array([[top[0], "fox" if top[0] != "fox" else "owl"] for top in tops])
        )
    else:
        how["rule"] = "replace"
    before = files(store.path)
    with pytest.raises(InvalidData, match="60 ids are in the store already: 'item-0'"):
        store.import_predictions(table, votes, **how)
    nothing_imported(store, before)


def test_other_ids_come_later(store: Store, world: World) -> None:
    table = predictions(world, "old", "new")
    store.import_predictions(table.slice(0, 40), {"old": OLD})
    store.import_predictions(table.slice(40), {"old": "old", "new": NEW}, rule="replace")
    assert list(labels(store).values()) == [*world.votes["old"][:40], *world.votes["new"][40:]]
    assert [header.report["evaluations"] for header in store.steps] == [40, 20, 20]
    assert store.check() == []
    with pytest.raises(InvalidData, match="1 id is in the store already: 'item-7'"):
        store.import_predictions(table.slice(7, 1), {"old": "old"})


def test_somebody_else_commits_at_the_same_time(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction, or a step by somebody else, between reading the head and committing."""
    table = predictions(world, "old", "new")
    store.import_predictions(table.slice(0, 30), {"old": OLD})
    store.register(NEW)
    meddling = count()

    def meddled(context: Context, *given: Any, **options: Any) -> Any:
        if next(meddling) == 0:
            votes = {"id": ["item-1"], "vote": ["cat"]}
            Store(store.path).update("new", votes=votes, budget="100%")
        return commit_votes.commit_votes(context, *given, **options)

    monkeypatch.setattr(import_predictions, "commit_votes", meddled)
    store.import_predictions(table.slice(30), {"old": "old"})
    assert [header.model for header in store.steps] == ["old", "new", "old"]
    assert store.status()["unfinished"] == []
    assert store.check() == []

    def losing(*_: Any, **__: Any) -> Any:
        raise CommitConflict("no")

    monkeypatch.setattr(import_predictions, "commit_votes", losing)
    later = {"id": ["x"], "old": ["cat"], "number": [1], "lang": ["de"]}
    with pytest.raises(CommitConflict, match="same import goes on"):
        store.import_predictions(later, {"old": "old"})
    monkeypatch.undo()
    done = store.import_predictions(later, {"old": "old"})
    assert (done.note, done.steps[0]["step"]) == ("", 3)  # it went on, and says what it did
    assert store.status()["unfinished"] == []


def test_items_added_in_the_meantime(store: Store, world: World) -> None:
    """Somebody adds the first items, with other columns, while ours are being written."""
    meddling = count()

    def progress(done: int, total: int) -> None:
        assert done <= total == 60
        if next(meddling) == 0:
            Store(store.path).add({"id": ["early"], "lang": ["fr"], "number": [-1]})

    store.import_predictions(predictions(world, "old"), {"old": OLD}, progress=progress)
    assert list(labels(store))[:2] == ["early", "item-0"]
    assert labels(store)["item-59"] == world.votes["old"][59]
    assert store.check() == []


def test_an_attempt_cut_short_leaves_no_columns(store: Store, world: World) -> None:
    schema = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("id", pa.int64())])
    context = Context(open_files(store.path))
    context.layout.items(schema.append(pa.field("lang", pa.float64()))).create()
    assert store.status()["items"] == 0
    store.import_predictions(predictions(world, "old"), {"old": OLD})
    assert whole(store)["items"][1]["lang"] == "de"
    assert store.check() == []


# Bad input: named, and nothing half-imported


GOOD = {"id": ["a", "b"], "pred": ["cat", "dog"], "x": [1, 2]}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"id": ["c", "d"], "pred": ["cat", "cow"], "x": [1, 2]}, r"column 'pred' of .*two.*'cow'"),
        (
            {"id": ["c", None], "pred": ["cat", "dog"], "x": [1, 2]},
            r"two.* 1 row without an id.*1",
        ),
        ({"pred": ["cat", "dog"], "x": [1, 2]}, r"two.*' has no column 'id'; it has: pred, x"),
        ({"id": ["c", "d"], "x": [1, 2]}, r"two.*' has no column 'pred'; it has: id, x"),
        ({"id": ["c", "d"], "pred": ["cat", "dog"]}, r"one.*' has a column 'x' that .*two.* not"),
        ({**GOOD, "id": ["c", "d"], "y": [1, 2]}, r"two.*' has a column 'y' that .*one.* not"),
        ({"id": ["c", "d"], "pred": ["cat", "dog"], "x": ["1", "2"]}, r"'x' holds string in .*two"),
        ({"id": ["c", "d"], "pred": ["cat", "dog"], "x": [1.5, 2]}, r"'x' holds double in .*two"),
        ({"id": [3, 4], "pred": ["cat", "dog"], "x": [1, 2]}, r"one.* are string, .*two.* int64"),
        ({"id": [3.5, 4], "pred": ["cat", "dog"], "x": [1, 2]}, "must be strings or integers"),
        ({"id": ["c", "d"], "pred": [0, 1], "x": [1, 2]}, r"'pred' of .*two.*type str; got int64"),
        ({"id": ["c", "d"], "pred": [0.5, 1], "x": [1, 2]}, r"'pred' of .*two.* got double"),
        ({"id": ["c", "d"], "pred": [True, False], "x": [1, 2]}, "type str; got bool"),
        (
            {"id": ["c", "c"], "pred": ["cat", "dog"], "x": [1, 2]},
            "1 id occurs more than once: 'c'; the first in row",
        ),
        (
            {"id": ["c", "a"], "pred": ["cat", "dog"], "x": [1, 2]},
            "1 id occurs more than once: 'a'",
        ),
    ],
)
def test_a_bad_file_among_good_ones(
    second: Any, message: str, store: Store, tmp_path: Path
) -> None:
    pq.write_table(pa.table(GOOD), tmp_path / "one.parquet")
    pq.write_table(pa.table(second), tmp_path / "two.parquet")
    before = files(store.path)
    for dry_run in (True, False):
        with pytest.raises(InvalidData, match=message):
            store.import_predictions(str(tmp_path / "*.parquet"), {"pred": OLD}, dry_run=dry_run)
        nothing_imported(store, before)
    assert store.status()["models"] == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.parquet", b"PAR1 nonsense", "x.parquet' cannot be read as a table"),
        ("x.parquet", b"", "x.parquet' is empty"),
        ("x.csv", b"id,pred\n1,cat,9\n", "x.csv' cannot be read as a table"),
        ("x.csv", b"id,id,pred\n1,2,cat\n", "x.csv' cannot be read .*exists 2 times"),
        ("x.csv", b"id,pred\n1,\xff\n", "x.csv"),
        ("x.csv", b"id,pr\xffed\n1,a\n", "x.csv"),
        ("x.csv", b"id,pred\n", "x.csv' holds no rows"),
        ("x.csv", b"id,pred\n1,cat\n,dog\n", "1 row without an id; first row 1"),
        ("x.jsonl", b'{"id": 1, "pred": "cat"}\n{"id": "x"}\n', "x.jsonl' cannot be read"),
        ("x.jsonl", b'{"id": 1, "pred": ["cat"]}\n', "x.jsonl.* must hold class names; got list"),
        ("x.jsonl", b'{"id": 1}\n', "x.jsonl' has no column 'pred'; it has: id"),
        ("x.txt", b"id,pred\n", "must end in one of"),
        ("gone.csv", None, "There is no file"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, content: bytes | None, message: str, store: Store, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = files(store.path)
    with pytest.raises(InvalidData, match=message):
        store.import_predictions(tmp_path / name, {"pred": OLD})
    nothing_imported(store, before)


def test_the_batch_of_a_bad_row_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "BATCH", 10)
    names = ["cat"] * 40
    names[27] = "cow"
    pq.write_table(pa.table({"id": list(range(40)), "pred": names}), tmp_path / "x.parquet")
    before = files(store.path)
    with pytest.raises(InvalidData, match=r"x.parquet' \(rows from 20\).*'cow'.*first in row 7"):
        store.import_predictions(tmp_path / "x.parquet", {"pred": OLD})
    tables = [pa.table({"id": [1], "pred": ["cat"]}), pa.table({"id": [2], "pred": ["cow"]})]
    with pytest.raises(InvalidData, match=r"'table 2' \(rows from 0\).*'cow'"):
        store.import_predictions(tables, {"pred": OLD})
    nothing_imported(store, before)


@pytest.mark.parametrize(
    ("soft", "columns", "message"),
    [
        ("p", {"p": [None, [0.9, 0.3, 0, 0]]}, "must sum to one; row 1 is"),
        ("p", {"p": [None, [0.5, 0.5]]}, "probability for each of 4 classes; row 1 has 2"),
        ("p", {"p": [[0, 0, 0, 0.0], None]}, "row 0 are all zero"),
        ("p", {"p": [0.5, 0.5]}, "must hold lists; got double"),
        ("p", {"p": [["a"] * 4, None]}, "must hold numbers; got string"),
        ("t:s", {"t": [["cat"], ["dog"]], "s": [[0.5], [1.5]]}, "at most one; row 1 does not"),
        ("t:s", {"t": [["cat"], ["cow"]], "s": [[0.5], [0.5]]}, r"unknown classes .*'cow'"),
        ("t:s", {"t": [["cat"], ["dog"]], "s": [[0.5], None]}, "score for each class; row 1"),
        ("t:s", {"t": [["cat"], ["dog"]]}, "has no column 's'"),
        ("p_{class}", {"p_cat": [1.0, 1.0]}, "has no column 'p_dog'"),
    ],
)
def test_bad_soft_votes(soft: str, columns: dict[str, Any], message: str, store: Store) -> None:
    before = files(store.path)
    table = {"id": ["a", "b"], "pred": ["cat", "dog"], **columns}
    with pytest.raises(InvalidData, match=message) as caught:
        store.import_predictions(table, {"pred": OLD}, soft={"old": soft})
    assert "'the table'" in str(caught.value)
    nothing_imported(store, before)


@pytest.mark.parametrize(
    ("votes", "options", "error"),
    [
        ({}, {}, "at least one model"),
        ({"pred": OLD, "x": OLD}, {}, "'old' is given twice"),
        ({"pred": OLD}, {"soft": {"nobody": "p"}}, "'soft'"),
        ({"pred": OLD}, {"soft": {"old": ":"}}, "'soft'"),
        ({"pred": OLD}, {"rule": "nonsense"}, "no rule"),
        ({"pred": OLD}, {"rule": "oracle"}, "for replay only"),
        ({"pred": Model("old")}, {}, "Nothing tells how"),
        ({"pred": Model("old", accuracy=7)}, {}, "accurac"),
        ({"pred": Model("old", accuracy=0.5, class_map={"x": "cow"})}, {}, "class map"),
    ],
)
def test_bad_requests_change_nothing(
    votes: dict[str, Model], options: dict[str, Any], error: str, store: Store
) -> None:
    before = files(store.path)
    with pytest.raises((InvalidParameter, InvalidData), match=error):
        store.import_predictions(GOOD, votes, **options)
    nothing_imported(store, before)


def test_a_prior_that_cannot_be_had(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, prior="labelled")
    before = files(store.path)
    for dry_run in (True, False):
        with pytest.raises(InvalidData, match="no model has labelled items"):
            store.import_predictions(GOOD, {"pred": OLD}, dry_run=dry_run)
    nothing_imported(store, before)
    labelled = Model("new", labelled=world.labelled_table("new"))
    store.import_predictions({**GOOD, "new": ["cat", "cat"]}, {"pred": OLD, "new": labelled})
    assert store.check() == []


def test_the_truth_by_id(store: Store, world: World, tmp_path: Path) -> None:
    """The votes that are imported tell how a model errs, where the truth is known."""
    table = predictions(world, "old", "new")
    truth = pa.table({"id": table["id"][:40], "truth": world.truth[:40]})
    votes = {name: Model(name, labelled=truth) for name in ("old", "new")}
    done = store.import_predictions(table, votes, rule="max-belief")
    right = (world.votes["old"] == world.truth)[:40].mean()
    assert done.registrations[0]["accuracy"] == pytest.approx(right)
    assert "Nothing to do" in str(store.import_predictions(table, votes, rule="max-belief"))
    assert store.check() == []
    other = Store.create(tmp_path / "other", classes=NAMES)
    before = files(other.path)
    empty = table.set_column(3, "old", pa.nulls(60, pa.string()))
    with pytest.raises(InvalidData, match="'old' has no vote on any of them"):
        other.import_predictions(empty, {"old": votes["old"]})
    nothing_imported(other, before)


def test_a_model_that_is_to_vote_first(store: Store, world: World) -> None:
    store.add(predictions(world).slice(0, 30))
    truth = pa.table({"id": ["item-1", "item-2"], "truth": ["cat", "dog"]})
    store.register(Model("late", labelled=truth))
    before = files(store.path)
    more = predictions(world, "old").slice(30)
    with pytest.raises(InvalidData, match="'late' must vote on its labelled items first"):
        store.import_predictions(more, {"old": "late"})
    nothing_imported(store, before)


def test_a_column_without_any_vote(store: Store) -> None:
    done = store.import_predictions(
        {"id": ["a"], "one": ["cat"], "two": pa.nulls(1)}, {"one": OLD, "two": NEW}
    )
    assert [step["step"] for step in done.steps] == [0, None]
    assert store.status()["unfinished"] == []
    assert "new has no vote on any item" in str(done)
    assert store.check() == []


def test_a_registered_class_map_holds(store: Store) -> None:
    store.register(Model("old", accuracy=0.5, class_map={"tabby": "cat"}))
    rows = {"id": ["a", "b"], "pred": ["tabby", "dog"]}
    store.import_predictions(rows, {"pred": Model("old", cost=2.0)})
    assert labels(store) == {"a": "cat", "b": "dog"}


@pytest.mark.parametrize("change", ["ids", "shorter", "longer", "gone", "type"])
def test_a_file_that_changes_while_it_is_read(
    change: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "BATCH", 10)
    monkeypatch.setattr(item_files, "FILE_ROWS", 5)
    file = tmp_path / "x.parquet"
    table = pa.table({"id": [f"i{n}" for n in range(40)], "pred": ["cat"] * 40, "x": range(40)})
    pq.write_table(table, file)
    stream = Predictions.items

    def later(*given: Any) -> Incoming:
        other = {
            "ids": pa.table({"id": [f"j{n}" for n in range(40)], "x": range(40)}),
            "shorter": table.slice(0, 30),
            "longer": pa.concat_tables([table, table]),
            "type": table.set_column(2, "x", pa.array(["text"] * 40)),
        }
        if change == "gone":
            file.unlink()
        else:
            pq.write_table(other[change], file)
        return stream(*given)

    monkeypatch.setattr(Predictions, "items", later)
    before = files(store.path)
    with pytest.raises(PosterityError, match=r"changed while it was read|no file|cannot"):
        store.import_predictions(file, {"pred": OLD})
    nothing_imported(store, before)


def test_csv_columns_are_read_alike_in_all_files(store: Store, tmp_path: Path) -> None:
    """007 is a name where the first file shows that its column holds names."""
    (tmp_path / "1.csv").write_text("id,pred,code,empty\na,cat,B7,\n")
    (tmp_path / "2.csv").write_text("id,pred,code,empty\nb,dog,007,5\n")
    store.import_predictions(str(tmp_path / "?.csv"), {"pred": OLD})
    held = [(row["code"], row["empty"]) for row in whole(store)["items"]]
    assert held == [("B7", None), ("007", 5)]
    (tmp_path / "1.csv").write_text("id,pred,code,empty\nc,cat,7,\n")
    (tmp_path / "2.csv").write_text("id,pred,code,empty\nd,dog,B7,\n")
    before = files(store.path)
    with pytest.raises(InvalidData, match=r"2\.csv"):
        store.import_predictions(str(tmp_path / "?.csv"), {"pred": "old"})
    nothing_imported(store, before)


# The command line


def test_the_command(tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    table = predictions(world, "old", "new").rename_columns(
        ["path", "number", "lang", "old", "new"]
    )
    for at in range(3):
        write_table(table.slice(20 * at, 20), tmp_path / f"preds-{at}.parquet")
    store = str(tmp_path / "store")
    run(capsys, "init", store, "--classes", ",".join(NAMES))
    common = [str(tmp_path / "preds-*.parquet"), "--id", "path", "--payload", "lang"]
    common += ["--label", "old", "--model", "old", "--label", "new", "--model", "new"]
    _, err = run(capsys, "import", store, *common, "--accuracy", "0.7", "--json", code=2)
    assert "--accuracy tells about one model; got 2" in json.loads(err)["error"]["message"]
    for name in ("old", "new"):
        run(capsys, "model", store, name, "--accuracy", "0.7")
    command = ["import", store, *common]
    before = files(store)
    out, _ = run(capsys, *command, "--dry-run", "--json")
    assert json.loads(out)["items"] == 60
    assert files(store) == before
    assert "60 items imported from 3 files" in run(capsys, *command)[0]
    assert run(capsys, *command)[0].strip() == "Nothing to do: this was imported already."
    assert list(whole(Store(store))["items"][0]) == ["shard", "row", "id", "lang"]
    assert [header.rule for header in Store(store).steps] == ["balanced:80%,ratio=10"] * 2
    _, err = run(capsys, *command, "--label", "lang", "--json", code=2)
    assert "Each --label needs its --model" in json.loads(err)["error"]["message"]


# Killed at any moment


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    before = tmp_path_factory.mktemp("import") / "before"
    Store.create(before, classes=NAMES, shard_rows=100)
    after = before.with_name("after")
    shutil.copytree(before, after)
    perform(str(after), "import", "")
    return before, whole(Store(after))


@pytest.mark.long
@pytest.mark.parametrize("name", failpoints.NAMES)
def test_an_import_that_is_killed_goes_on(
    name: str, undisturbed: tuple[Path, Any], tmp_path: Path
) -> None:
    """At every commit and every file; what a file goes through itself only at the first two."""
    before, expected = undisturbed
    for nth in count(1):
        path = tmp_path / f"{nth}"
        shutil.copytree(before, path)
        code = run_until(f"{name}:{nth}", path, "import", tmp_path / "log")
        if code == 0:
            assert nth > 5, f"an import never reaches {name}"
            break
        assert code == failpoints.EXIT_CODE
        store = Store(path)
        assert store.check() == []
        assert len(store) in (0, 60)
        perform(str(path), "import", "")
        assert whole(store) == expected
        assert store.check() == []
        assert store.status()["unfinished"] == []
        shutil.rmtree(path)
        if nth == 2 and name in ("file.before", "file.written", "file.synced"):
            break


# However it is cut


@st.composite
def cut_tables(draw: st.DrawFn) -> tuple[pa.Table, list[tuple[int, str]], int]:
    rows = draw(st.integers(1, 14))
    kind = draw(st.sampled_from(["text", "number"]))
    ids: list[Any] = list(range(-3, rows - 3))
    if kind == "text":
        ids = [f"{at:03}" for at in range(rows)]
    vote = st.sampled_from([*NAMES.tolist(), None])
    note = st.none() | st.sampled_from(["a b", 'say "x"', "é", "zwei,drei"])
    number = st.none() | st.integers(-(2**40), 2**40)
    columns = {
        "id": pa.array(ids),
        "old": pa.array([draw(vote) for _ in ids], pa.string()),
        "new": pa.array([draw(vote) for _ in ids], pa.string()),
        "note": pa.array([draw(note) for _ in ids], pa.string()),
        "number": pa.array([draw(number) for _ in ids], pa.int64()),
    }
    cuts = [*draw(st.lists(st.integers(1, rows), max_size=3, unique=True)), rows]
    form = st.sampled_from(["parquet", "csv", "jsonl"])
    return (
        pa.table(columns),
        [(cut, draw(form)) for cut in sorted(set(cuts))],
        draw(st.sampled_from([1, 2, 5])),
    )


@given(case=cut_tables())
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_however_a_table_is_cut(
    case: tuple[pa.Table, list[tuple[int, str]], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    table, parts, batch = case
    folder = tmp_path_factory.mktemp("cut", numbered=True)
    votes: dict[str, Model | str] = {"old": OLD, "new": NEW}
    one = Store.create(folder / "one", classes=NAMES, shard_rows=4)
    one.import_predictions(table, votes, rule="max-belief")
    (folder / "parts").mkdir()
    start = 0
    for at, (stop, form) in enumerate(parts):
        write_table(table.slice(start, stop - start), folder / "parts" / f"{at}.{form}")
        start = stop
    many = Store.create(folder / "many", classes=NAMES, shard_rows=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_files, "BATCH", batch)
        patch.setattr(item_files, "FILE_ROWS", batch + 1)
        many.import_predictions(folder / "parts", votes, rule="max-belief")
    assert whole(many) == whole(one)
    assert many.check() == []
    shutil.rmtree(folder)


def test_probabilities_in_another_order_are_noticed(store: Store, world: World) -> None:
    """Labels in one column, probabilities in another, and the classes in the order of neither."""
    table = predictions(world, "old")
    own = ["fox", "owl", "cat", "dog"]
    sure = [[0.7 if name == vote else 0.1 for name in own] for vote in world.votes["old"]]
    table = table.append_column("probs", pa.array(sure))
    before = files(store.path)
    with pytest.raises(InvalidData, match="60 of 60 rows the most probable class of 'old' is not"):
        store.import_predictions(table, {"old": OLD}, soft={"old": "probs"})
    nothing_imported(store, before)
    model = Model("old", labelled=world.labelled_table("old"), classes=own)
    store.import_predictions(table, {"old": model}, soft={"old": "probs"})
    assert list(labels(store).values()) == world.votes["old"].tolist()


def test_lines_within_a_cell(store: Store, tmp_path: Path) -> None:
    """A file long enough to be read in blocks, as texts and mails are."""
    text = '"first line\nsecond, and ""more""\n' + "x" * 200 + '"'
    rows = [f"i{number},{text},cat" for number in range(12_000)]
    path = tmp_path / "long.csv"
    path.write_text("id,text,pred\n" + "\n".join(rows) + "\n")
    store.import_predictions(path, {"pred": OLD})
    assert len(store) == 12_000
    other = Store.create(tmp_path / "other", classes=NAMES)
    assert other.add(path) == 12_000


def test_what_names_an_import_by_its_content_stays(tmp_path: Path) -> None:
    """However it is read, and from version to version: one that was begun goes on."""
    texts = pa.table(
        {
            "id": ["x", "", "zwölf", "a b"],
            "a": ["cat", "dog", None, "fox"],
            "b": [None, "dog", "dog", "cat"],
            "p": [[0.5, 0.25, 0.25], None, [0.0, 0.1, 0.9], [1.0, 0.0, 0.0]],
            "t": [["dog", "cat"], ["dog"], None, ["cat", "fox"]],
            "s": [[0.7, 0.1], [0.5], None, [0.5, 0.5]],
        }
    )
    three = Store.create(tmp_path / "three", classes=["cat", "dog", "fox"])
    context = Context(open_files(three.path))
    models = {name: Model(name, accuracy=0.5) for name in "ab"}
    forms: list[tuple[str, dict[str, str]]] = [
        ("a", {}),
        ("ab", {}),
        ("ab", {"b": "p"}),
        ("ab", {"b": "t:s", "a": "p"}),
    ]
    for ids, expected in (
        (
            texts["id"],
            ["4b493b0b51ba8ef3", "7acca591354fa8fa", "846cbbf20fd0ec3b", "2574351472d85dd9"],
        ),
        (
            pa.array([3, -1, 2**60, 0]),
            ["1cafd2e21232abf1", "d41511174a97cd0f", "c813b0e9b0f827b4", "3d331f81fa033442"],
        ),
    ):
        table = texts.set_column(0, "id", ids)
        for at, (names, soft) in enumerate(forms):
            for batch in (2**17, 3):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(input_files, "BATCH", batch)
                    sources = sources_of({name: models[name] for name in names}, soft)
                    stream = storage_stream.Stream(table)
                    held = Predictions(context, stream, sources, "id", tmp_path)
                assert held.digest("max-belief") == expected[at]


def test_votes_of_some_shards_are_not_all(
    store: Store, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut short while votes are kept shard by shard, the same import keeps the rest."""
    table, votes = predictions(world, "old"), {"old": OLD}
    keep, kept = durable_votes.Run.keep_votes, list[int]()

    def failing(self: durable_votes.Run, rows: Any, cast: Any) -> None:
        if len(kept) == 2:
            raise KeyboardInterrupt
        kept.append(len(rows))
        keep(self, rows, cast)

    monkeypatch.setattr(durable_votes.Run, "keep_votes", failing)
    with pytest.raises(KeyboardInterrupt):
        store.import_predictions(table, votes)
    monkeypatch.undo()
    assert kept == [25, 25]
    assert store.check() == []
    store.import_predictions(table, votes)
    other = Store.create(tmp_path / "other", classes=NAMES, shard_rows=25)
    other.import_predictions(table, votes)
    assert whole(store) == whole(other)
    assert store.check() == []
    assert store.status()["unfinished"] == []


def test_nothing_goes_on_as_if_all_was_well(store: Store, world: World) -> None:
    store.import_predictions(predictions(world, "old"), {"old": OLD})
    labelled = world.labelled_table("new")
    broken = Model("new", labelled=labelled, predict=lambda batch: ["cow"] * len(batch))
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"failed on all 6 items .* 'item-\d+': The model's answer names"
        ):
            store.update(broken, budget="10%")
        assert store.status()["unfinished"] == []
    assert store.update(world.model("new"), budget="10%").evaluations == 6
    planned = set(
        store.planned_items(
            store.plan(registered(store, world.model("best")), budget=5)
        ).to_pydict()["id"]
    )
    votes = world.votes_table("best")
    others = votes.filter(pa.array([name not in planned for name in votes["id"].to_pylist()]))
    with pytest.raises(InvalidData, match="None of the 55 votes in the file is on a planned item"):
        store.update(world.model("best"), budget=5, votes=others)


def test_an_empty_file_among_others(store: Store, world: World, tmp_path: Path) -> None:
    table = predictions(world, "old")
    (tmp_path / "parts").mkdir()
    for at, part in enumerate((table, table.slice(0, 0))):
        write_table(part, tmp_path / "parts" / f"part-{at}.parquet")
    store.import_predictions(tmp_path / "parts", {"old": OLD})
    assert len(store) == 60


def test_two_processes_at_the_same_import_keep_the_order(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one makes the same steps just before ours, and tidies the votes away."""
    table, votes = predictions(world, "old", "new"), {"old": OLD, "new": NEW}
    commit, others = commit_votes.commit_votes, list[bool]()

    def late(*arguments: Any, **options: Any) -> Any:
        if not others:
            others.append(True)
            Store(store.path, store.options).import_predictions(table, votes)
        return commit(*arguments, **options)

    monkeypatch.setattr(import_predictions, "commit_votes", late)
    store.import_predictions(table, votes)
    assert [header.model for header in store.steps] == ["old", "new"]
    assert store.check() == []


def test_a_payload_that_changes_its_type_on_the_way(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON has no types of its own: what is nothing at first may be a text later."""
    monkeypatch.setattr(input_files, "CSV_BLOCK", 2**10)
    rows = [{"id": f"i{n}", "pred": "cat", "x": "late" if n > 300 else None} for n in range(400)]
    path = tmp_path / "preds.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    before = files(store.path)
    with pytest.raises(InvalidData, match=r"preds\.jsonl.*changed from null to string in row"):
        store.import_predictions(path, {"pred": OLD})
    nothing_imported(store, before)
