"""Plans: the same whatever the shards, and the same when they are read back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterity import Model, Store
from posterity.engine.evaluation import plans as evaluation_plans
from posterity.engine.evaluation.plans import load_plan, save_plan
from posterity.engine.ledger.context import Context
from posterity.engine.plan import score
from posterity.errors import StoreError
from posterity.method.data import row_sets
from posterity.storage.delta.table import to_parquet
from posterity.storage.files import open_files
from tests.stores import NAMES, World, registered, small_store


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    held = small_store(tmp_path / "store", world)
    held.register(world.model("new"))
    return held


def opened(store: Store) -> Context:
    return Context(open_files(store.path))


def test_a_plan_is_named_by_its_rows(store: Store) -> None:
    plan = store.plan("new", budget="30%")
    told = hashlib.sha256(np.concatenate([[plan.head], plan.rows]).tobytes()).hexdigest()
    assert plan.id.endswith(f"-{told[:8]}")
    assert plan.rows.dtype == np.int64
    assert plan.evaluations == len(plan.rows) == 18


def test_shards_and_blocks_do_not_matter(tmp_path: Path, world: World) -> None:
    asked = [
        {"budget": "30%"},
        {"budget": 7, "selector": "random", "seed": 3},
        {"budget": 0.5, "where": "lang = 'de'", "selector": "everything"},
    ]
    found = []
    for size in (1, 7, 25, 1000):
        store = Store.create(tmp_path / f"store-{size}", classes=NAMES, shard_rows=size)
        store.add(world.table(0, 50))
        store.update(world.model("old"), budget=40)
        store.update(world.model("mid"), budget=20)
        store.add(world.table(50, 60))
        store.remove(["item-4", "item-44"])
        store.register(world.model("new"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(score, "BLOCK", 5 if size == 25 else 2**20)
            found.append([store.plan("new", **options).to_dict() for options in asked])  # type: ignore[arg-type]
    assert (found[0][0]["unlabelled"], found[0][0]["evaluations"]) == (10, 24)
    assert all(plans == found[0] for plans in found)


def test_a_plan_is_read_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sets, "STRETCH", 16)
    monkeypatch.setattr(evaluation_plans, "STRETCH", 16)
    context = opened(store)
    plan = store.plan("new", budget="100%")
    kept = load_plan(context, plan.id)
    assert kept is not None
    assert kept.rows.tolist() == plan.rows.tolist() == list(range(60))
    assert kept.to_dict() == plan.to_dict()
    path = f"{store.path}/runs/{plan.id}/{evaluation_plans.PLAN_FILE}"
    assert pq.ParquetFile(path).num_row_groups == 4


def test_a_purged_plan_is_read_back(store: Store) -> None:
    """A compaction writes its rows anew, without removed items."""
    plan = store.plan("new", budget="100%")
    store.remove(["item-7"])
    store.compact()
    kept = load_plan(opened(store), plan.id)
    assert kept is not None
    assert kept.rows.tolist() == [row for row in range(60) if row != 7]
    assert kept.request == plan.request


def test_a_damaged_plan_is_named(store: Store) -> None:
    context = opened(store)
    plan = store.plan("new", budget="30%")
    beyond = to_parquet(pa.table({"row": pa.array([10**6])}))
    for content in (b"nonsense", beyond):
        context.files.write(f"runs/{plan.id}/{evaluation_plans.PLAN_FILE}", content)
        with pytest.raises(StoreError, match=f"The plan '{plan.id}' is damaged"):
            load_plan(context, plan.id)
    save_plan(context, plan)
    assert load_plan(context, plan.id) is not None


def test_a_plan_of_nothing_is_kept_too(store: Store) -> None:
    plan = store.plan("new", budget=0)
    kept = load_plan(opened(store), plan.id)
    assert kept is not None
    assert kept.rows.tolist() == []


def test_items_whose_votes_were_reverted_compete_with_those_never_voted_on(tmp_path: Path) -> None:
    """Both are as uncertain as the prior, so that only the hash of their rows tells them apart."""
    many = World(items=200)
    store = Store.create(tmp_path / "many", classes=[f"class {k}" for k in range(10)])
    store.add(many.table())
    first = Model("first", accuracy=0.7, predict=lambda batch: ["class 1"] * batch.num_rows)
    store.update(first, budget="100%", where="number < 100")
    store.revert(0)
    plan = store.plan(
        registered(
            store, Model("next", accuracy=0.8, predict=lambda batch: ["class 2"] * batch.num_rows)
        ),
        budget=60,
    )
    assert 10 < np.count_nonzero(plan.rows < 100) < 50


def test_a_plan_says_that_no_vote_can_change_a_label(tmp_path: Path) -> None:
    """With stated accuracies there is nothing to rehearse, but what a vote can do is known."""
    world = World(items=200, labelled=40)
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    store.register(Model("old", accuracy=0.45))
    store.register(Model("new", accuracy=0.7))
    store.update("old", votes=world.votes_table("old"), budget="100%")
    plan = store.plan("new", budget="50%")
    # Of four classes: a vote for another one, against the label and the vote for it.
    odds = (0.7 / 0.1) / (0.45 / (0.55 / 3))
    assert plan.reach == pytest.approx(odds)
    assert plan.to_dict()["reach"] == plan.reach
    assert "at most 2.9 times as likely, which is not enough for balanced:80%" in str(plan)
    assert "With --rule cost-ratio:2 some votes would." in str(plan)
    report = store.update("new", votes=world.votes_table("new"), budget="50%")
    assert report.flips == 0
    assert "This step changed no label" in str(report)
    for rule in ("cost-ratio:2", "max-belief", "replace"):
        assert store.plan("new", budget="20%", rule=rule).reach is None
    # A plan that can be kept is the same when it is read again.
    assert store.plan("new", budget="20%").reach is not None


def test_first_labels_are_in_reach(tmp_path: Path) -> None:
    world = World(items=50, labelled=40)
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    store.register(Model("old", accuracy=0.45))
    assert store.plan("old").reach is None
