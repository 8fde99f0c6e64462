"""Steps whose items look unlike the labelled set can be refused, for jobs that nobody watches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.errors import StoreError, Unlike
from tests.stores import NAMES, World, contents, update
from tests.test_cli import run
from tests.test_import import files


@pytest.fixture
def world() -> World:
    """Models that know labelled items, and call each class by the next one's name elsewhere."""
    world = World(items=600, labelled=300, seed=3)
    at = np.searchsorted(NAMES, world.votes["new"])
    world.votes["new"] = NAMES[(at + 1) % len(NAMES)]
    return world


def store_of(path: Path, world: World, **options: Any) -> Store:
    store = Store.create(path, classes=NAMES, shard_rows=250, **options)
    store.add(world.table())
    update(store, world, "old")
    store.register(world.model("new"))
    return store


def test_rotated_classes_are_refused_and_their_votes_kept(tmp_path: Path, world: World) -> None:
    store, asked = store_of(tmp_path / "store", world), list[int]()
    model, before = world.model("new", seen=asked.extend), contents(store)
    ledger = files(tmp_path / "store" / "ledger")
    with pytest.raises(
        Unlike, match="The step was not made, and no label changed: the items look"
    ) as refused:
        store.update(model, budget="30%", refuse_unlike=True)
    assert "votes agree with labels believed as much in" in refused.value.message
    assert contents(store) == before
    assert (
        files(tmp_path / "store" / "ledger") == ledger
    )  # nothing is left of it, night after night
    (left,) = store.runs()
    assert (left.state, left.votes) == ("started", 180)
    assert f"`store.drop_run({left.run!r})`" in str(refused.value)
    assert len(asked) == 180
    # Asked again, it is refused again; and then made after all. The model is not asked for that.
    with pytest.raises(Unlike):
        store.update(model, budget="30%", refuse_unlike=True)
    report = store.update(model, budget="30%")
    assert len(asked) == 180
    assert (report.step, report.evaluations) == (1, 180)
    assert report.flips > 60
    assert "warning: the items look unlike the labelled set" in report.note
    assert store.runs() == []
    assert store.check() == []
    # As if nobody had refused it.
    other = store_of(tmp_path / "other", world)
    other.update(world.model("new"), budget="30%")
    assert contents(other) == contents(store)


def test_votes_that_were_refused_can_be_dropped(tmp_path: Path, world: World) -> None:
    store = store_of(tmp_path / "store", world)
    with pytest.raises(Unlike):
        store.update(world.model("new"), budget="30%", refuse_unlike=True)
    (left,) = store.runs()
    store.drop_run(left.run)
    right = World(items=600, labelled=300, seed=3).votes["new"]
    votes = pa.table({"id": world.table()["id"], "vote": right})
    report = store.update("new", votes=votes, budget="30%", refuse_unlike=True)
    assert (report.step, report.evaluations) == (1, 180)
    assert "unlike" not in report.note


def test_a_store_may_refuse_by_itself(tmp_path: Path, world: World) -> None:
    store = store_of(tmp_path / "store", world, refuse_unlike=True)
    with pytest.raises(Unlike, match="unlike"):
        store.update(world.model("new"), budget="30%")
    assert (
        Store.create(
            tmp_path / "store", classes=NAMES, shard_rows=250, refuse_unlike=True
        ).status()["step"]
        == 0
    )
    with pytest.raises(StoreError, match="other settings: refuse_unlike"):
        Store.create(tmp_path / "store", classes=NAMES, shard_rows=250)
    assert store.update(world.model("new"), budget="30%", refuse_unlike=False).step == 1


def test_like_items_are_not_refused(tmp_path: Path) -> None:
    world = World(items=600, labelled=300, seed=3)
    store = store_of(tmp_path / "store", world, refuse_unlike=True)
    assert store.update(world.model("new"), budget="30%").step == 1
    store.register(Model("best", labelled=world.labelled_table("best")))
    assert store.update("best", votes=world.votes_table("best"), budget="100%").step == 2


def test_the_command(tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    store, votes = tmp_path / "store", tmp_path / "votes.jsonl"
    items, labelled = tmp_path / "items.jsonl", tmp_path / "labelled.jsonl"
    for path, table in (
        (items, world.votes_table("old")),
        (labelled, world.labelled_table("old").append_column("old", [world.labelled["old"]])),
        (votes, world.votes_table("new")),
    ):
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    run(capsys, "init", str(store), "--classes", ",".join(NAMES), "--refuse-unlike")
    run(
        capsys,
        "import",
        str(store),
        str(items),
        "--label",
        "vote",
        "--model",
        "old",
        "--labelled",
        str(labelled),
        "--vote",
        "old",
    )
    wide = world.labelled_table("new")
    labelled.write_text("".join(json.dumps(row) + "\n" for row in wide.to_pylist()))
    run(capsys, "model", str(store), "new", "--labelled", str(labelled))
    command = ["update", str(store), "new", "--budget", "30%", "--votes", str(votes)]
    _, err = run(capsys, *command, "--json", code=1)
    error = json.loads(err)["error"]
    assert error["kind"] == "unlike"
    assert "--accept-unlike" in error["hint"]
    assert "step 1: new voted on 180 items" in run(capsys, *command, "--accept-unlike")[0]
