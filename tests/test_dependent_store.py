"""A store with dependent beliefs: fitted on its labelled votes, kept with each step, and undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posterity import Model, Store
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter, UnknownName
from posterity.method.decide.defaults import DEPENDENT, PLAIN
from posterity.method.decide.selectors import Candidates, Value
from posterity.storage.files import open_files
from tests.stores import NAMES, RULE, World, make, update


@pytest.fixture
def world() -> World:
    return World(items=300, labelled=200)


def fits_of(store: Store) -> list[dict[str, Any]]:
    return [header.fit for header in Context(open_files(store.path)).headers]


def test_each_step_records_the_fit_it_decided_with(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid", "new", "best")
    told = fits_of(store)
    assert [fit["beliefs"] for fit in told] == [DEPENDENT] * 4
    assert told[2]["order"] == ["old", "mid", "new"]
    assert len({fit["parameters"] for fit in told}) == 4
    assert all(Path(store.path, fit["parameters"]).is_file() for fit in told)
    assert store.check() == []


def test_shards_change_no_bit(tmp_path: Path, world: World) -> None:
    labels = []
    for size in (7, 64, 1000):
        store = make(tmp_path / f"store-{size}", world, "old", "mid", "new", shard_rows=size)
        labels.append(store.labels().sort_by("id"))
    assert labels[0].equals(labels[1])
    assert labels[1].equals(labels[2])


def test_what_was_asked_before_changes_no_step(tmp_path: Path, world: World) -> None:
    """What the labelled set says is remembered from a plan to its step, and never beyond."""
    plain, asked = (make(tmp_path / name, world, "old", "mid") for name in ("plain", "asked"))
    for name in ("new", "best"):
        update(plain, world, name)
    for name in ("new", "best"):
        asked.register(Model(name, labelled=world.labelled_table(name)))
    for name in ("best", "new", "mid"):
        asked.plan(name, budget="10%")
    update(asked, world, "new")
    asked.reliability()
    asked.plan("best", budget="60%", rule="max-belief")
    update(asked, world, "best")
    assert [fit["parameters"] for fit in fits_of(asked)] == [
        fit["parameters"] for fit in fits_of(plain)
    ]
    assert asked.labels().sort_by("id").equals(plain.labels().sort_by("id"))


def test_labels_get_better_and_beliefs_say_by_how_much(tmp_path: Path) -> None:
    world = World(items=2000, labelled=1000)
    store = make(tmp_path / "store", world, "old", "mid", "new", "best")
    labels = store.labels().sort_by("row")
    right = np.array(labels["label"].to_pylist()) == world.truth
    first = world.votes["old"] == world.truth
    assert right.mean() > first.mean() + 0.05
    assert abs(np.mean(labels["belief"].to_pylist()) - right.mean()) < 0.05


def test_a_lost_fit_is_found_by_a_check(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    Path(store.path, fits_of(store)[1]["parameters"]).unlink()
    found = store.check()
    assert any("What step 1 decided with" in line for line in found)


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_fit_is_no_traceback(tmp_path: Path, world: World, damage: bytes | None) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    path = Path(store.path, fits_of(store)[1]["parameters"])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content if damage is None else damage)
    assert any("cannot be read" in line for line in store.check())


def test_equal_parameters_of_other_models_are_not_mixed_up(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.revert(1)
    store.register(Model("same", labelled=world.labelled_table("mid")))
    store.update("same", votes=world.votes_table("mid"), budget="30%", rule=RULE)
    told = fits_of(store)
    assert told[1]["parameters"] == told[3]["parameters"]
    assert (told[1]["order"][-1], told[3]["order"][-1]) == ("mid", "same")
    assert store.check() == []


def test_default_selectors_go_by_the_store(tmp_path: Path, world: World) -> None:
    for beliefs, selector in (("dependent", "value"), ("plain", "entropy")):
        store = Store.create(tmp_path / beliefs, classes=NAMES, beliefs=beliefs)
        store.add(world.table())
        update(store, world, "old")
        assert store.steps[0].selector == selector


def test_a_revert_and_its_own_revert(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid", "new")
    before = store.labels().sort_by("id").select(["id", "label"])
    store.revert(1)
    assert store.check() == []
    store.revert(3)
    assert store.check() == []
    assert store.labels().sort_by("id").select(["id", "label"]).equals(before)


def test_without_ids_the_same_truths_in_the_same_order_are_the_same_items(
    tmp_path: Path, world: World
) -> None:
    """Labels, beliefs and all else come out as with ids."""
    labels = []
    for kind in ("ids", "none"):
        store = Store.create(tmp_path / kind, classes=NAMES)
        store.add(world.table())
        for name, budget in (("old", "100%"), ("mid", "30%"), ("new", "30%")):
            pairs = world.labelled_table(name)
            own = Model(name, labelled=pairs if kind == "ids" else pairs.drop_columns(["id"]))
            store.register(own)
            store.update(name, votes=world.votes_table(name), budget=budget)
        assert [one["beliefs"] for one in fits_of(store)] == [DEPENDENT] * 3
        labels.append(store.labels().sort_by("id"))
        assert store.check() == []
    assert labels[0]["label"].equals(labels[1]["label"])


@pytest.mark.parametrize("order", ["sorted", "shuffled", "in turn"])
def test_without_ids_other_orders_are_other_items(tmp_path: Path, world: World, order: str) -> None:
    """Any two sets that are sorted by class, or go round the classes, may have the same truths."""
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    for at, name in enumerate(("old", "mid")):
        pairs = world.labelled_table(name).drop_columns(["id"])
        rows = np.random.default_rng(at).permutation(len(pairs))
        if order == "sorted":
            pairs = pairs.sort_by("truth")
        elif order == "shuffled":
            pairs = pairs.take(rows)
        else:
            truth = np.array(pairs["truth"].to_pylist())[rows]
            by_class = [rows[truth == name] for name in np.unique(truth)]
            few = min(map(len, by_class))
            pairs = pairs.take(np.stack([each[:few] for each in by_class], axis=1).ravel())
        store.register(Model(name, labelled=pairs))
    store.update("old", votes=world.votes_table("old"), budget="100%")
    plan = store.plan("mid", budget="30%")
    assert plan.beliefs == PLAIN


def test_without_labelled_ids_beliefs_are_plain_and_that_is_said(
    tmp_path: Path, world: World
) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    pairs = world.labelled_table("new").drop_columns(["id"])
    store.register(Model("new", labelled=pairs))
    plan = store.plan("new", budget="20%", rule=RULE)
    assert (plan.beliefs, plan.evaluations) == (PLAIN, 60)
    report = store.update("new", votes=world.votes_table("new"), budget="20%", rule=RULE)
    assert "plain beliefs: dependent ones need labelled votes with ids" in report.note
    assert fits_of(store)[-1]["beliefs"] == PLAIN
    assert store.check() == []


def test_with_a_stated_accuracy_too(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    store.register(Model("old", accuracy=0.6))
    report = store.update("old", votes=world.votes_table("old"))
    assert "plain beliefs" in report.note
    assert fits_of(store)[0]["beliefs"] == PLAIN


def test_plain_stores_stay_plain(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, beliefs="plain")
    store.add(world.table())
    report = update(store, world, "old")
    assert "plain" not in report.note
    assert fits_of(store)[0]["beliefs"] == PLAIN
    with pytest.raises(UnknownName, match="no kind of beliefs 'fancy'"):
        Store.create(tmp_path / "other", classes=NAMES, beliefs="fancy")
    assert not (tmp_path / "other").exists()  # nothing in the way of the next try


def test_the_plan_says_what_the_step_would_do_on_the_labelled_set(
    tmp_path: Path, world: World
) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    plan = store.plan("new", budget="30%", rule=RULE)
    assert plan.beliefs == DEPENDENT
    assert plan.rehearsed is not None
    assert plan.rehearsed["items"] == 200
    assert plan.rehearsed["accuracy_after"] >= plan.rehearsed["accuracy_before"]
    assert "(value, 30%)" in str(plan)


def test_what_a_patient_step_proposes_is_rehearsed_as_if_made(tmp_path: Path) -> None:
    world = World(items=300, labelled=400)
    store = make(tmp_path / "store", world, "old")
    store.register(Model("best", labelled=world.labelled_table("best")))
    plan = store.plan("best", budget="30%", rule="max-belief+confirm")
    assert plan.rehearsed is not None
    assert plan.rehearsed["fixed"] > 0


def test_value_depends_on_the_rule(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    plans = [store.plan("new", budget="30%", rule=f"cost-ratio:{c}").rows for c in (1, 100)]
    assert (plans[0] != plans[1]).any()


def test_pending_flips_and_settling(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    update(store, world, "new", rule="cost-ratio:2+confirm")
    update(store, world, "best", rule="cost-ratio:2+confirm")
    store.settle()
    assert store.check() == []


def test_a_second_step_of_a_model_goes_on(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.update("mid", votes=world.votes_table("mid"), budget="30%", rule=RULE, more=True)
    assert fits_of(store)[-1]["order"] == ["old", "mid"]
    assert store.check() == []


def test_the_value_selector_is_refused_where_nobody_can_tell() -> None:
    with pytest.raises(InvalidParameter, match="needs dependent beliefs"):
        Value().score(Candidates(entropy=np.zeros(1), rows=np.arange(1)))
