"""Comparing models for the same money: what is told is what a plan would tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from posterity import Model, Store
from posterity.cli import run
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from tests.stores import World, make, update


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=400, labelled=300)


def priced(path: Path, world: World, beliefs: str = "dependent") -> Store:
    store = make(path, world, "old", beliefs=beliefs)
    for name, cost in (("mid", 0.1), ("new", 0.2), ("best", 5.0)):
        store.register(Model(name, labelled=world.labelled_table(name), cost=cost))
    return store


@pytest.mark.parametrize("beliefs", ["dependent", "plain"])
def test_what_is_told_is_what_a_plan_tells(tmp_path: Path, world: World, beliefs: str) -> None:
    store = priced(tmp_path / "store", world, beliefs)
    found = store.compare(["mid", "new", "best"], 30, rule="max-belief")
    assert [choice.evaluations for choice in sorted(found, key=lambda one: one.unit)] == [
        *(300, 150),
        6,
    ]
    assert [one.net.value for one in found] == sorted(one.net.value for one in found)[::-1]
    for choice in found:
        plan = store.plan(choice.model, budget=choice.evaluations, rule="max-belief")
        assert plan.forecast == choice.net.to_dict()
        assert plan.cost == choice.cost
        assert plan.rehearsed == choice.rehearsed.to_dict()


def test_a_dear_model_on_few_items_loses_and_with_enough_money_wins(
    tmp_path: Path, world: World
) -> None:
    store = priced(tmp_path / "store", world)
    assert store.compare(["mid", "best"], 20, rule="max-belief")[0].model == "mid"
    assert store.compare(["mid", "best"], 10**6, rule="max-belief")[0].model == "best"


def test_items_a_model_has_voted_on_are_not_paid_again(tmp_path: Path, world: World) -> None:
    store = priced(tmp_path / "store", world)
    update(store, world, "mid", budget="75%")
    store.register(Model("mid", labelled=world.labelled_table("mid"), cost=0.1))
    (choice,) = store.compare(["mid"], 10**6)
    assert choice.evaluations == 100
    assert choice.cost == pytest.approx(10)


def test_what_is_refused(tmp_path: Path, world: World) -> None:
    store = priced(tmp_path / "store", world)
    store.register(Model("free", labelled=world.labelled_table("best")))
    with pytest.raises(InvalidData, match="what an evaluation of 'free' costs"):
        store.compare(["free"], 10)
    with pytest.raises(InvalidParameter, match="above 0"):
        store.compare(["mid"], 0)
    with pytest.raises(UnknownName, match="nobody"):
        store.compare(["nobody"], 10)
    store.register(Model("stated", accuracy=0.9, cost=1.0))
    with pytest.raises(InvalidData, match="cannot be rehearsed"):
        store.compare(["stated"], 10)
    bare = make(tmp_path / "bare", world)
    with pytest.raises(InvalidData, match="no label yet"):
        bare.compare(["mid"], 10)


def test_the_command(tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    store = priced(tmp_path / "store", world)
    assert run(["compare", store.path, "mid", "best", "--money", "30"]) == 0
    shown = capsys.readouterr().out
    assert "net corrections" in shown
    assert "75 %" in shown
    assert run(["compare", store.path, "mid", "best", "--money", "30", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["choices"]
    assert {choice["model"] for choice in told} == {"mid", "best"}
    assert run(["compare", store.path, "mid"]) == 2


def test_money_is_counted_in_the_decimals_it_was_given_in(tmp_path: Path, world: World) -> None:
    store = priced(tmp_path / "store", world)
    assert [store.compare(["mid"], money)[0].evaluations for money in (0.3, 0.6)] == [3, 6]
    store.register(Model("free", labelled=world.labelled_table("best"), cost=0.0))
    assert store.compare(["free"], 1)[0].evaluations == 400
    assert len(store.compare(["mid", "mid"], 1)) == 1


def test_votes_on_removed_items_are_not_missed(tmp_path: Path, world: World) -> None:
    store = priced(tmp_path / "store", world)
    update(store, world, "mid", budget="50%")
    voted = [
        item["id"] for item in store.labels().to_pylist() if len(store.history(item["id"])) > 1
    ]
    store.remove(voted)
    store.register(Model("mid", labelled=world.labelled_table("mid"), cost=0.1))
    assert store.compare(["mid"], 10**6)[0].evaluations == 400 - len(voted) == 200
