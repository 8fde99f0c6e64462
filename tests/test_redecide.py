"""Redecide: labels decided again from votes already paid for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from posterity import Model, Store
from posterity.cli import cli
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter
from posterity.method.decide.rules import Balanced, parse
from posterity.storage.files import open_files
from tests.invariants import assert_invariants
from tests.stores import NAMES, World, contents, make, update

STRICT = "cost-ratio:5000"


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=400, labelled=400)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, world: World) -> Path:
    """Three models have voted, and a strict rule has changed next to nothing."""
    path = tmp_path_factory.mktemp("strict") / "store"
    held = make(path, world, "old")
    for name in ("mid", "new"):
        update(held, world, name, rule=STRICT, budget="50%")
    return path


@pytest.fixture
def store(strict: Path, tmp_path: Path) -> Store:
    """A copy of that store."""
    return Store(shutil.copytree(strict, tmp_path / "store"))


def labels(store: Store) -> dict[str, str]:
    return {row["id"]: row["label"] for row in store.labels().to_pylist()}


def accuracy(store: Store, world: World) -> float:
    told = labels(store)
    return float(np.mean([told[f"item-{at}"] == world.truth[at] for at in range(world.items)]))


def headers(store: Store) -> list[Any]:
    return Context(open_files(store.path)).headers


def test_it_decides_as_the_rule_would_have_with_all_votes(store: Store, world: World) -> None:
    before = accuracy(store, world)
    done = store.redecide("cost-ratio:2")
    assert done.step == 3
    assert done.flips > 20
    assert accuracy(store, world) > before + 0.05
    beliefs = {row["id"]: row for row in store.beliefs(top=4).to_pylist()}
    changed = {row["id"]: row for row in store.flips(step=3).to_pylist()}
    assert len(changed) == done.flips
    now = labels(store)
    for item, row in beliefs.items():
        told = dict(zip(row["classes"], row["beliefs"], strict=True))
        best = max(told, key=lambda name: told[name])
        old = changed[item]["old"] if item in changed else now[item]
        flips = best != old and told[best] > 2 * told[old]
        assert (item in changed) == flips
        assert now[item] == (best if flips else old)
    assert {row["reason"] for row in changed.values()} == {"decided again under cost-ratio:2"}
    assert store.check() == []
    assert_invariants(Path(str(store.path)))


def test_asked_twice_it_does_nothing_and_undone_it_never_was(store: Store) -> None:
    before = labels(store)
    assert store.redecide("max-belief").flips > 0
    assert labels(store) != before
    again = store.redecide("max-belief")
    assert again.step is None
    assert "Nothing to do" in str(again)
    store.revert(3)
    assert labels(store) == before
    assert store.check() == []
    store.revert(4)  # and back again
    assert store.redecide("max-belief").step is None
    assert store.check() == []


def test_a_dry_run_changes_nothing(store: Store) -> None:
    before = contents(store)
    tried = store.redecide("cost-ratio:2", dry_run=True)
    assert tried.step is None
    assert tried.flips > 0
    assert str(tried).startswith("dry run: cost-ratio:2 changes")
    assert contents(store) == before
    assert store.redecide("cost-ratio:2").flips == tried.flips


def test_steps_after_it_go_on_from_there(store: Store, world: World) -> None:
    store.redecide("cost-ratio:2")
    update(store, world, "best", rule="cost-ratio:2", budget="30%")
    assert store.check() == []
    store.revert(1)  # an update before it: the redecide is made again without its votes
    assert store.check() == []
    store.revert(3)  # the redecide itself, below a later update
    assert store.check() == []
    assert_invariants(Path(str(store.path)))


def test_people_and_pending_flips(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    update(store, world, "mid", rule="max-belief+confirm", budget="50%")
    waits = [
        row for row in contents(store)["rows"] if row["step"] == 1 and row["proposed"] is not None
    ]
    assert waits
    decided = [f"item-{at}" for at in range(40)]
    wrong = [str(NAMES[(list(NAMES).index(world.truth[at]) + 1) % 4]) for at in range(40)]
    store.review(pa.table({"id": decided, "answer": wrong}))
    done = store.redecide("max-belief")
    assert done.step == 3
    told = labels(store)
    assert [told[item] for item in decided] == wrong
    assert store.settle().step is None  # nothing is pending any more
    assert store.check() == []
    store.revert(3)
    assert store.check() == []
    assert store.settle().step is not None
    assert_invariants(Path(str(store.path)))


def test_the_default_rule_is_chosen_on_the_labelled_set(store: Store, world: World) -> None:
    done = store.redecide()
    found = parse(done.rule)
    assert isinstance(found, Balanced)
    assert found.ratio is not None
    assert done.labelled_fixed is not None
    assert done.labelled_broken is not None
    assert done.labelled_fixed > done.labelled_broken
    assert headers(store)[-1].rule == done.rule
    # The rehearsal of later steps goes through it too.
    update(store, world, "best", rule="cost-ratio:2", budget="10%")
    assert store.check() == []


def test_the_default_asked_twice_does_it_once(store: Store) -> None:
    """Chosen among the flips that are left, the ratio would be lower each time."""
    assert store.redecide().step == 3
    assert store.redecide().step is None
    assert store.redecide("balanced:95%").rule.startswith("balanced:95%,ratio=")


def test_items_whose_models_the_fit_does_not_know_keep_their_labels(
    tmp_path: Path, world: World
) -> None:
    """A model counts again that was undone when the last fit was made."""
    store = make(tmp_path / "store", world, "old")
    update(store, world, "mid", rule=STRICT, budget="30%")
    store.revert(0)
    update(store, world, "new", rule=STRICT, budget="30%")
    store.revert(2)
    before, rows = labels(store), contents(store)["rows"]
    others = {row["row"] for row in rows if row["vote"] is not None and row["step"]}
    store.redecide("max-belief")
    after = labels(store)
    only = [item for item in before if int(item.removeprefix("item-")) not in others]
    assert only
    assert all(after[item] == before[item] for item in only)
    assert store.check() == []


def test_classes_that_came_after_the_fit(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.append_classes(["elk"])
    votes = np.where(np.arange(400) < 20, "elk", world.votes["new"])
    labelled = world.labelled_table("new")
    store.register(Model("new", labelled=labelled))
    store.update("new", votes=pa.table({"id": world.table()["id"], "vote": votes}), budget="100%")
    store.revert(2)
    store.redecide("max-belief")
    store.revert(3)  # the votes for the new class count again
    assert store.check() == []
    store.redecide("max-belief")
    assert store.check() == []


def test_compaction_and_removal(store: Store) -> None:
    store.redecide("cost-ratio:2")
    before = contents(store)
    store.compact()
    assert contents(store) == before
    store.remove(["item-3", "item-30"])
    store.compact()
    assert store.check() == []
    store.revert(3)
    assert store.check() == []


def test_what_it_refuses(tmp_path: Path, store: Store) -> None:
    for rule in ("replace", "majority-vote", "max-belief+confirm", "at-most:1%", "oracle"):
        with pytest.raises(InvalidParameter, match="which compare beliefs"):
            store.redecide(rule)
    with pytest.raises(InvalidParameter, match="finds its ratio by itself"):
        store.redecide("balanced:80%,ratio=2")
    nothing = Store.create(tmp_path / "empty", classes=NAMES).redecide()
    assert nothing.step is None
    assert "there is no label yet" in str(nothing)


def test_plain_beliefs(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", beliefs="plain")
    update(store, world, "new", rule=STRICT, budget="50%")
    done = store.redecide("cost-ratio:2")
    assert done.flips > 0
    assert done.labelled_fixed is None
    assert store.redecide("cost-ratio:2").step is None
    assert store.check() == []
    store.revert(2)
    assert store.check() == []


def test_the_command(store: Store) -> None:
    path = str(store.path)
    tried = CliRunner().invoke(cli, ["redecide", path, "--rule", "cost-ratio:2", "--dry-run"])
    assert tried.exit_code == 0, tried.output
    assert "dry run: cost-ratio:2 changes" in tried.output
    assert "no model was asked" in tried.output
    made = CliRunner().invoke(cli, ["redecide", path, "--rule", "cost-ratio:2", "--json"])
    told = json.loads(made.output)
    assert told["step"] == 3
    assert told["flips"] > 0
    log = CliRunner().invoke(cli, ["log", path])
    assert "redecide" in log.output
    item = store.flips(step=3).column("id")[0].as_py()
    why = CliRunner().invoke(cli, ["explain", path, item])
    assert "decided again under cost-ratio:2" in why.output
