"""Explanations: every number is what the beliefs have, and the words say what the rule did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from posterity import Model, Store
from posterity.cli import run
from tests import naive
from tests.stores import NAMES, World, make, update

RULES = (
    "cost-ratio:3",
    "cost-ratio:3,neutral=0.5",
    "cost-ratio:3+confirm",
    "max-belief",
    "max-belief-min-entropy",
    "majority-vote",
    "replace",
    "at-most:20%",
)
"""The last one needs dependent beliefs."""


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=200, labelled=200)


@pytest.mark.parametrize(
    ("rule", "beliefs"),
    [
        *((rule, "dependent") for rule in RULES),
        *(pytest.param(rule, "plain", marks=pytest.mark.long) for rule in RULES[:-1]),
    ],
)
def test_words_agree_with_the_ledger(tmp_path: Path, world: World, rule: str, beliefs: str) -> None:
    store = make(tmp_path / "store", world, "old", beliefs=beliefs)
    for name in ("mid", "new"):
        update(store, world, name, rule=rule, budget="60%")
    labels = {row["id"]: row for row in store.labels().to_pylist()}
    for item in list(labels)[:40]:
        told, history = store.explain(item), store.history(item)
        assert told.label == labels[item]["label"]
        assert told.belief == pytest.approx(labels[item]["belief"])
        assert [one.step for one in told.decisions] == [row["step"] for row in history]
        assert [one.after for one in told.decisions] == [row["label"] for row in history]
        assert [one.vote for one in told.votes] == [row["vote"] for row in history if row["vote"]]
        for one, row in zip(told.decisions[1:], history[1:], strict=True):
            if one.belief_best is None or one.belief_label is None:  # a pending flip made
                continue
            after = one.belief_best if one.after == one.best else one.belief_label
            if one.after in (one.best, one.before):
                assert after == pytest.approx(row["belief"], abs=1e-4)
            moved = one.before != one.after
            assert ("becomes" in one.why) == moved
            assert ("stays" in one.why) == (not moved)
        assert str(told).startswith(f"{item} is labelled {told.label}")


def test_labelled_items_with_the_same_votes_are_counted(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid", "new")
    for row in store.labels().to_pylist()[:30]:
        told = store.explain(row["id"])
        same = np.ones(len(world.labelled_truth), dtype=np.bool_)
        for one in told.votes:
            same &= world.labelled[one.model] == one.vote
        found = dict(zip(*np.unique(world.labelled_truth[same], return_counts=True), strict=True))
        assert told.alike == {str(name): int(many) for name, many in found.items()}
        assert list(told.alike.values()) == sorted(told.alike.values(), reverse=True)
        items = "labelled item has" if same.sum() == 1 else "labelled items have"
        assert (f"{same.sum()} {items} the same votes" in str(told)) == bool(same.any())


def test_weights_are_the_ratios_of_plain_confusions(tmp_path: Path) -> None:
    """In a plain product a vote counts by itself: π(vote, label) / π(vote, rival)."""
    store = Store.create(tmp_path / "store", classes=NAMES, beliefs="plain", confusion="diagonal")
    store.add({"id": ["a"]})
    for name, accuracy, vote in (("old", 0.6, 0), ("mid", 0.7, 1), ("new", 0.8, 1)):
        store.register(Model(name, accuracy=accuracy))
        store.update(
            name, votes={"id": ["a"], "vote": [NAMES[vote]]}, budget="100%", rule="max-belief"
        )
    told = store.explain("a")
    assert (told.label, told.rival) == (NAMES[1], NAMES[0])
    tables = [naive.spread([accuracy] * len(NAMES)) for accuracy in (0.6, 0.7, 0.8)]
    expected = [
        table[vote][1] / table[vote][0] for table, vote in zip(tables, (0, 1, 1), strict=True)
    ]
    np.testing.assert_allclose([one.weight for one in told.votes], expected)
    assert "every model known has voted" in str(told)


def test_a_vote_it_says_would_change_the_label_does(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, beliefs="plain")
    store.add({"id": ["a"]})
    for name, accuracy in (("old", 0.7), ("weak", 0.4), ("strong", 0.95)):
        store.register(Model(name, accuracy=accuracy))
    store.update("old", votes={"id": ["a"], "vote": [NAMES[0]]}, rule="cost-ratio:2")
    told = store.explain("a")
    assert told.silent == ["weak", "strong"]
    assert {change.model for change in told.changes} == {"strong"}
    assert "no vote of weak would, alone" in str(told)
    change = told.changes[0]
    votes = {"id": ["a"], "vote": [change.vote]}
    store.update("strong", votes=votes, budget="100%", rule="cost-ratio:2")
    assert store.explain("a").label == change.label != told.label


def test_steps_that_were_undone_and_flips_that_waited(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    update(store, world, "mid", rule="max-belief+confirm", budget="100%")
    item = next(
        row["id"]
        for row in store.labels().to_pylist()
        if store.explain(row["id"]).proposed is not None
    )
    assert "is proposed" in str(store.explain(item))
    assert "is pending" in str(store.explain(item))
    store.settle()
    assert "pending flip, settled" in str(store.explain(item))
    store.revert(1)
    told = str(store.explain(item))
    assert "(undone)" in told
    assert "revert of step 1" in told


def test_the_command(tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    item = store.labels().column("id")[0].as_py()
    assert run(["explain", store.path, str(item)]) == 0
    assert "What would change it:" in capsys.readouterr().out
    assert run(["explain", store.path, str(item), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["label"] in NAMES
    assert run(["explain", store.path, "nothing-like-it"]) == 1
    bare = Store.create(tmp_path / "bare", classes=NAMES)
    bare.add({"id": ["a"]})
    assert "nobody has voted" in str(bare.explain("a"))


def test_steps_are_explained_by_the_votes_they_had(tmp_path: Path, world: World) -> None:
    """Also after an earlier step was undone; and an item whose votes were all undone says so."""
    store = make(tmp_path / "store", world, "old")
    for name in ("mid", "new"):
        update(store, world, name, rule="max-belief", budget="100%")
    before = {
        item: [one.why for one in store.explain(item).decisions]
        for item in store.labels().column("id").to_pylist()[:60]
    }
    store.revert(1)
    for item, told in before.items():
        assert [one.why for one in store.explain(item).decisions[:3]] == told
    bare = make(tmp_path / "bare", world, "old")
    bare.revert(0)
    shown = str(bare.explain("item-0"))
    assert "no vote on this item counts any more" in shown
    assert "(undone)" in shown


def test_a_model_that_was_not_planned_yet_is_named(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    told = store.explain("item-0")
    assert told.unplanned == ["new"]
    assert "new has not voted" in str(told)
    assert "every model known has voted" not in str(told)


def test_every_vote_is_tried(tmp_path: Path) -> None:
    """Also one for the label itself: from a model that is mostly wrong it speaks against it."""
    store = Store.create(tmp_path / "store", classes=NAMES, beliefs="plain")
    store.add({"id": ["a"]})
    store.register(Model("old", accuracy=0.4))
    store.register(Model("contrary", accuracy=0.001))
    store.update("old", votes={"id": ["a"], "vote": [NAMES[0]]})
    changes = store.explain("a").changes
    store.update(
        "contrary", votes={"id": ["a"], "vote": [NAMES[0]]}, budget="100%", rule="cost-ratio:10"
    )
    assert store.labels().column("label")[0].as_py() != NAMES[0]
    assert NAMES[0] in [change.vote for change in changes]


def test_labelled_items_are_those_with_the_votes_that_the_fit_knows(tmp_path: Path) -> None:
    """A revert that is reverted brings back votes of a model that the last fit does not know."""
    world = World(items=40, labelled=200)
    store = make(tmp_path / "store", world, "old")
    update(store, world, "mid", budget="100%")
    store.revert(1)
    update(store, world, "new", budget="100%")
    store.revert(2)
    for item in range(world.items):
        known = [world.labelled[name] == world.votes[name][item] for name in ("old", "new")]
        told = store.explain(f"item-{item}").alike
        assert sum(told.values()) == int((known[0] & known[1]).sum())
