"""Changes for pipelines downstream: what a step flipped, and what is different since a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posterity import Model, Store, cli
from posterity.errors import InvalidParameter
from tests.stores import NAMES, World, small_store
from tests.test_cli import run

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("row", pa.int64()),
        ("old", pa.string()),
        ("new", pa.string()),
        ("belief", pa.float32()),
        ("step", pa.int32()),
        ("reason", pa.string()),
    ]
)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    """Three updates and a revert; the last one touched few items."""
    made = small_store(tmp_path / "store", world)
    made.update(world.model("new"), budget="50%", rule="max-belief")
    made.update(world.model("best"), budget="100%", rule="replace")
    return made


def labels(store: Store) -> dict[str, Any]:
    table = store.labels()
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def test_schema_and_order(store: Store) -> None:
    tables = [store.flips(step) for step in range(3)]
    tables += [store.labels(since=step) for step in range(-1, 3)]
    for table in tables:
        assert table.schema.equals(SCHEMA)
        rows = table["row"].to_pylist()
        assert rows == sorted(set(rows))
        assert table["id"].to_pylist() == [f"item-{row}" for row in rows]
    assert tables[0].num_rows == tables[-1].num_rows == 0
    assert store.flips().equals(store.flips(2))


def test_flips_are_what_a_step_changed(store: Store, world: World) -> None:
    table = store.flips(2).to_pylist()
    before = {row["id"]: row["new"] for row in store.flips(1).to_pylist()}
    for row in table:
        was = before.get(row["id"], world.votes["old"][row["row"]])
        assert (row["old"], row["new"]) == (was, world.votes["best"][row["row"]])
        assert row["old"] != row["new"]
        assert row["step"] == 2
        assert row["reason"] == "vote of best under replace"
        assert 0 <= row["belief"] <= 1
    report = store.steps[2].report
    assert len(table) == report["flips"] > 0
    assert {row["reason"] for row in store.flips(1).to_pylist()} == {"vote of new under max-belief"}


def test_everything_ever_has_first_labels(store: Store) -> None:
    ever = store.labels(since=-1).to_pylist()
    now = store.labels().to_pylist()
    assert [(row["id"], row["new"], row["belief"], row["step"]) for row in ever] == [
        (row["id"], row["label"], row["belief"], row["step"]) for row in now
    ]
    assert {row["old"] for row in ever} == {None}
    with pytest.raises(InvalidParameter, match="'since' must be a step of the store, up to 2"):
        store.labels(since=3)


def test_there_and_back_is_no_change(store: Store, world: World) -> None:
    after_first = dict(zip(labels(store), world.votes["old"].tolist(), strict=True))
    store.revert(2)
    store.revert(1)
    assert labels(store) == after_first
    assert store.labels(since=0).num_rows == 0
    undone = store.flips()
    assert set(undone["reason"].to_pylist()) == {"revert of step 1"}
    assert set(undone["step"].to_pylist()) == {4}
    since = store.labels(since=1).to_pylist()
    assert since
    assert {row["reason"] for row in since} <= {"revert of step 1", "revert of step 2"}
    store.revert(4)
    store.revert(3)
    assert store.labels(since=2).num_rows == 0
    assert store.check() == []


def test_a_label_that_is_gone(tmp_path: Path, world: World) -> None:
    store = small_store(tmp_path / "store", world)
    store.revert(0)
    for table in (store.flips(), store.labels(since=0)):
        assert table.num_rows == 60
        assert table["old"].to_pylist() == world.votes["old"].tolist()
        assert table["new"].null_count == table["belief"].null_count == 60
        assert set(table["reason"].to_pylist()) == {"revert of step 0"}
    assert store.labels(since=-1).num_rows == 0
    store.revert(1)
    assert store.flips().num_rows == 0  # first labels are no flips
    assert store.labels(since=1)["old"].null_count == 60
    assert store.labels(since=0).num_rows == 0


def test_removed_items_are_left_out(store: Store) -> None:
    gone = store.flips()["id"][0].as_py()
    for compacted in (False, True):
        if not compacted:
            store.remove(gone)
        else:
            store.compact()
        for table in (store.flips(), store.labels(since=-1), store.labels(since=1)):
            assert gone not in table["id"].to_pylist()
    store.revert(2)
    assert gone not in store.flips()["id"].to_pylist()
    assert store.check() == []


@pytest.mark.parametrize("classes", [[3, 5], [False, True]])
def test_names_keep_their_type(tmp_path: Path, classes: list[Any]) -> None:
    store = Store.create(tmp_path / "store", classes=classes)
    store.add({"id": [10, 7]})
    for vote in classes:
        votes = {"id": [10, 7], "vote": [vote] * 2}
        store.register(Model(f"says {vote}", accuracy=0.9))
        store.update(f"says {vote}", budget="100%", rule="replace", votes=votes)
    rows = store.flips().to_pylist()
    assert [(row["id"], row["old"], row["new"]) for row in rows] == [(10, *classes), (7, *classes)]
    assert rows[0]["new"] is classes[1]


@pytest.mark.parametrize("what", ["flips", "labels"])
@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_files_for_pipelines(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, suffix: str
) -> None:
    store.revert(2)  # some changes have no belief of their own, and some no old label
    store.add({"id": ["späť"]})
    first = ("--since", -1) if what == "labels" else ()
    paths = [tmp_path / f"{at}.{suffix}" for at in range(2)]
    for path in paths:
        run(capsys, what, store.path, *first, "--out", path, "--json")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    table = store.labels(since=-1) if what == "labels" else store.flips()
    expected = table.to_pylist()
    assert len(expected) > 5
    if suffix == "parquet":
        assert pq.read_table(paths[0]).equals(table)
    elif suffix == "jsonl":
        lines = paths[0].read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == expected
    else:
        frame = pd.read_csv(paths[0])
        assert list(frame.columns) == SCHEMA.names
        assert frame["id"].tolist() == table["id"].to_pylist()
        assert frame["reason"].tolist() == table["reason"].to_pylist()
        assert frame["belief"].tolist() == pytest.approx(table["belief"].to_pylist())


WORLD = World(items=12, labelled=12)
MOVES = st.one_of(
    st.tuples(
        st.sampled_from(["mid", "new", "best"]),
        st.sampled_from(["20%", "60%", "100%"]),
        st.sampled_from(["replace", "max-belief", "cost-ratio:2", "majority-vote"]),
    ),
    st.integers(0, 6),
)


@settings(
    max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(moves=st.lists(MOVES, min_size=1, max_size=5), data=st.data())
def test_changes_applied_to_what_was_give_what_is(
    tmp_path_factory: pytest.TempPathFactory, moves: list[Any], data: st.DataObject
) -> None:
    """For any history of updates and reverts, and any step a pipeline stopped at."""
    store = Store.create(tmp_path_factory.mktemp("any") / "store", classes=NAMES, shard_rows=5)
    store.add(WORLD.table())
    seen = {-1: labels(store)}
    store.update(WORLD.model("old"), budget="60%")
    seen[0] = labels(store)
    for move in moves:
        if isinstance(move, int):
            try:
                store.revert(move % len(store.steps))
            except InvalidParameter:
                continue  # would give a model two votes
        else:
            name, budget, rule = move
            store.update(WORLD.model(name), budget=budget, rule=rule, more=True)
        seen[len(store.steps) - 1] = labels(store)
    now = labels(store)
    for since, was in seen.items():
        changes = store.labels(since=since).to_pylist()
        applied = dict(was)
        for row in changes:
            assert applied[row["id"]] == row["old"] != row["new"]
            applied[row["id"]] = row["new"]
            assert row["step"] > since
        assert applied == now
    step = data.draw(st.sampled_from(sorted(seen)[1:]))
    flipped = {row["id"]: (row["old"], row["new"]) for row in store.flips(step).to_pylist()}
    before, after = seen[step - 1], seen[step]
    assert flipped == {
        key: (before[key], after[key])
        for key in before
        if before[key] is not None and before[key] != after[key]
    }
    assert store.check() == []


def test_labels_as_they_were_after_a_step(store: Store) -> None:
    """Whatever happened since: updates, reverts, a compaction."""
    after = [labels(store)]
    store.revert(2)
    after.append(labels(store))
    store.review({"item-0": "owl"})
    assert dict(_at(store, 2)) == after[0]
    assert dict(_at(store, 3)) == after[1]
    store.compact()
    assert dict(_at(store, 2)) == after[0]
    first = dict(_at(store, 0))
    undone = {row["id"]: row["old"] for row in store.labels(since=0).to_pylist()}
    assert first == labels(store) | undone
    now = store.labels()
    assert store.labels(at=4).equals(now)
    store.add({"id": ["late"], "number": [0], "lang": ["de"]})
    store.remove(["item-7"])
    assert store.labels(at=4).equals(now.filter(pc.field("id") != "item-7"))
    assert store.labels().num_rows == now.num_rows


def _at(store: Store, step: int) -> list[tuple[str, str]]:
    table = store.labels(at=step)
    return list(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def test_steps_whose_labels_cannot_be_told(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (3, -1, True, "1"):
        with pytest.raises(InvalidParameter, match="'at' must be a step of the store, 0 to 2"):
            store.labels(at=step)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"\(`at=`\) or as changes \(`since=`\)"):
        store.labels(at=1, since=0)
    assert cli.run(["labels", store.path, "--at", "1", "--since", "0"]) == 2
    assert "(`--at`) or as changes (`--since`)" in capsys.readouterr().err
    assert cli.run(["labels", store.path, "--at", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["labels"]
    assert rows == store.labels(at=1).to_pylist()


def test_the_last_step_is_undone_and_then_the_one_before(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {step: dict(_at(store, step)) for step in (0, 1)}
    assert store.revert("last").reverts == 2
    assert labels(store) == before[1]
    assert store.revert("last").reverts == 1
    assert labels(store) == before[0]
    store.revert(4)  # what was undone counts again, and is the last
    assert store.revert("last").reverts == 1
    assert cli.run(["revert", store.path, "last"]) == 0
    assert "reverts step 0" in capsys.readouterr().out
    assert cli.run(["revert", store.path, "last"]) == 2
    assert "There is no step left to revert" in capsys.readouterr().err
    with pytest.raises(
        InvalidParameter, match=r"'step' must be .*, 0 to 7, or 'last'; got 'first'"
    ):
        store.revert("first")
    assert cli.run(["revert", store.path, "first"]) == 2
    assert "STEP must be a step of the store, 0 to 7, or 'last'" in capsys.readouterr().err
    assert store.check() == []
