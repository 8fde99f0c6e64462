"""First labels: items without one are looked at first and all, besides what a budget is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from posterity import Evaluation, Model, Store
from posterity.cli import run as cli
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, StoreError
from posterity.storage.files import open_files
from posterity.web.report.item import review_view
from tests.stores import World, make, registered, small_store, update


@pytest.fixture
def world() -> World:
    """With items that come later."""
    return World(items=400, labelled=200)


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    """100 items with the labels of the first model."""
    held = Store.create(tmp_path / "store", classes=["cat", "dog", "fox", "owl"], shard_rows=25)
    held.add(world.table(0, 100))
    held.update(world.model("old"))
    return held


def opened(store: Store) -> Context:
    return Context(open_files(store.path))


def unlabelled(store: Store) -> int:
    count: int = store.status()["unlabelled"]
    assert store.labels()["label"].null_count == count
    return count


def test_every_night_all_new_items_get_a_label(store: Store, world: World) -> None:
    asked: list[int] = []
    for night, start in enumerate(range(100, 112, 4)):
        store.add(world.table(start, start + 4))
        assert unlabelled(store) == 4
        report = store.update(world.model("new", asked.extend), budget="5%")
        # A share is one of the other items: 5 % of 100 the first time, later of what is new.
        assert (report.first_labels, report.evaluations) == (4, 4 if night else 9)
        assert unlabelled(store) == 0
    assert len(asked) == len(set(asked)) == 9 + 4 + 4
    again = store.update(world.model("new", asked.extend), budget="5%")
    assert "carried out already" in str(again)
    assert len(asked) == 17
    assert store.check() == []


def test_by_default_too(store: Store, world: World) -> None:
    for start in (100, 160, 220):
        store.add(world.table(start, start + 60))
    plan = store.plan(registered(store, world.model("new")))
    assert (plan.eligible, plan.unlabelled, plan.evaluations) == (280, 180, 190)
    assert "new on 180 items without a label, then 10 others of 100 eligible" in str(plan)
    assert "180 items without a label" in plan._repr_html_()
    assert plan.to_dict()["first_labels"] == 180
    assert store.update(world.model("new")).first_labels == 180
    assert unlabelled(store) == 0


def test_a_count_limits_them_and_the_same_command_goes_on(store: Store, world: World) -> None:
    store.add(world.table(100, 160))
    asked: list[int] = []
    for left in (35, 10, 0):
        report = store.update(world.model("new", asked.extend), budget=25)
        told = f"{left} more items have no label yet; the same command again goes on with them."
        assert (told in str(report)) == (left > 0)
        assert unlabelled(store) == left
    assert report.first_labels == 10
    assert report.evaluations == 10  # no others came since
    assert len(asked) == len(set(asked)) == 60
    assert store.update(world.model("new", asked.extend), budget=25).step is None
    assert store.check() == []


def test_a_budget_of_nothing_looks_at_nothing_and_of_no_share_at_new_items_alone(
    store: Store, world: World
) -> None:
    store.add(world.table(100, 110))
    nothing = store.update(world.model("new"), budget=0)
    assert nothing.step is None
    assert "10 items have no label yet; a budget of 0% gives them one" in str(nothing)
    report = store.update(world.model("new"), budget="0%")
    assert (report.first_labels, report.evaluations) == (10, 10)


def test_a_filter_still_holds(store: Store, world: World) -> None:
    store.add(world.table(100, 130))
    options: dict[str, Any] = {"budget": "0%", "where": "lang = 'en'"}
    assert store.update(world.model("new"), **options).first_labels == 10
    assert unlabelled(store) == 20
    assert "carried out already" in str(store.update(world.model("new"), **options))


def test_a_kept_plan_does_not_keep_new_items_waiting(store: Store, world: World) -> None:
    """A plan from before they came is made anew, unless its items were voted on elsewhere."""
    plan = store.plan(registered(store, world.model("new")), budget="10%")
    nothing = store.plan("new", budget="0%")
    assert nothing.evaluations == 0
    store.add(world.table(100, 105))
    assert store.update(world.model("new"), budget="0%").first_labels == 5
    store.revert(1)
    store.plan("new", budget="20%")
    store.add(world.table(105, 110))
    planned = store.plan("new", budget="20%")
    assert planned.unlabelled == 10
    assert plan.unlabelled == 0


def test_votes_made_elsewhere_from_a_plan_are_those_of_the_plan(store: Store, world: World) -> None:
    plan = store.plan(registered(store, world.model("new")), budget=20)
    items = store.planned_items(plan)["id"]
    votes = pa.table({"id": items, "vote": [world.votes["new"][int(i.as_py()[5:])] for i in items]})
    store.add(world.table(100, 105))
    report = store.update("new", votes=votes, budget=20)
    assert (report.evaluations, report.first_labels) == (20, 0)
    assert unlabelled(store) == 5


def test_a_file_given_again_is_done_already(store: Store, world: World) -> None:
    store.register(world.model("new"))
    votes = world.votes_table("new").slice(0, 100)
    assert store.update("new", votes=votes, budget="10%").evaluations == 10
    store.add(world.table(100, 110))
    for _ in range(2):
        again = store.update("new", votes=votes, budget="10%")
        assert again.step is None
        assert "carried out already" in str(again)
        assert "10 planned items had no vote" in str(again)
        assert store.runs() == []
    more = world.votes_table("new").slice(100, 7)
    assert store.update("new", votes=more, budget="10%").first_labels == 7
    assert unlabelled(store) == 3
    with pytest.raises(InvalidData, match="None of the 100 votes in the file is on a planned item"):
        store.update("new", votes=votes, budget="0%")  # another request


def failing_on(world: World, poison: set[int], asked: list[list[int]]) -> Model:
    def predict(batch: pa.Table) -> np.ndarray:
        numbers = batch["number"].to_pylist()
        asked.append(numbers)
        if poison & set(numbers):
            raise ValueError(f"cannot see {sorted(poison & set(numbers))}")
        votes: np.ndarray = world.votes["new"][numbers]
        return votes

    return Model("new", labelled=world.labelled_table("new"), predict=predict)


def test_what_a_model_failed_on_is_tried_again_while_it_has_no_label(
    store: Store, world: World
) -> None:
    poison, asked = {101, 3}, list[list[int]]()
    model = failing_on(world, poison, asked)
    store.add(world.table(100, 104))
    first = store.update(model, budget="100%")
    assert (first.first_labels, first.errors) == (3, 2)
    assert unlabelled(store) == 1
    asked.clear()
    again = store.update(model, budget="100%")
    assert again.step is None
    assert "Nothing was changed: new failed again on 1 item without a label" in str(again)
    assert "'item-101': ValueError('cannot see [101]')" in str(again)
    assert asked == [[101]]  # alone; and item-3 has a label
    assert store.runs() == []
    # With others it comes last, and makes no batch of them fail.
    store.add(world.table(104, 109))
    asked.clear()
    report = store.update(model, budget="100%")
    assert (report.first_labels, report.errors) == (5, 1)
    assert asked == [[104, 105, 106, 107, 108], [101]]
    poison.clear()
    assert store.update(model, budget="100%").first_labels == 1
    assert unlabelled(store) == 0
    assert store.update(model, budget="100%").step is None
    assert store.check() == []


def test_old_failures_do_not_stop_a_run(store: Store, world: World) -> None:
    """Items that have been failing for long do not count against the errors of tonight."""
    poison, asked = set(range(100, 104)), list[list[int]]()
    model, how = failing_on(world, poison, asked), Evaluation(max_errors=4)
    store.add(world.table(100, 110))
    assert store.update(model, budget="0%", evaluation=how).errors == 4
    poison |= {110}
    store.add(world.table(110, 120))
    assert store.update(model, budget="0%", evaluation=how).errors == 5
    poison |= set(range(120, 130))
    store.add(world.table(120, 130))
    with pytest.raises(StoreError, match="The model failed on 10 items"):
        store.update(model, budget="0%", evaluation=how)
    poison.clear()
    assert store.update(model, budget="0%", evaluation=how).first_labels == 15
    assert unlabelled(store) == 0


def test_a_model_that_fails_on_all_that_is_new_is_an_error(store: Store, world: World) -> None:
    poison, asked = {100}, list[list[int]]()
    model = failing_on(world, poison, asked)
    store.add(world.table(100, 103))
    assert store.update(model, budget="0%").errors == 1
    poison |= {103, 104}
    store.add(world.table(103, 105))
    with pytest.raises(StoreError, match="failed on all 3 items"):
        store.update(model, budget="0%")
    assert store.runs() == []


def test_a_total_pays_for_first_labels_as_far_as_it_goes(tmp_path: Path) -> None:
    world = World(items=400, labelled=300)
    store = Store.create(tmp_path / "store", classes=["cat", "dog", "fox", "owl"])
    store.add(world.table(0, 300))
    update(store, world, "old")
    budget = "total:100,horizon=4"
    first = store.update(world.model("mid"), budget=budget, rule="max-belief")
    spent = 0.5 * first.evaluations
    assert 0 < spent < 100
    store.add(world.table(300, 340))
    plan = store.plan(registered(store, world.model("new")), budget=budget, rule="max-belief")
    assert plan.spending is not None
    assert plan.spending["left"] == 100 - spent
    assert plan.first_labels == 40
    assert 40 < plan.evaluations <= 2 * (100 - spent)
    report = store.update(world.model("new"), budget=budget, rule="max-belief")
    assert report.evaluations == plan.evaluations
    spent += 0.5 * report.evaluations
    store.add(world.table(340, 400))
    left = store.plan(registered(store, world.model("best")), budget=budget, rule="max-belief")
    assert left.spending is not None
    assert left.spending["left"] == pytest.approx(100 - spent)
    small = "total:10,horizon=1"
    assert store.update(world.model("best"), budget=small).first_labels == 20
    assert unlabelled(store) == 40
    nothing = store.update(world.model("best"), budget=small)
    assert nothing.step is None
    assert "nothing is left. 40 items have no label yet; a budget of 0% gives" in str(nothing)


def test_a_price_is_for_corrections(tmp_path: Path) -> None:
    world = World(items=400, labelled=300)
    store = Store.create(tmp_path / "store", classes=["cat", "dog", "fox", "owl"])
    store.add(world.table(0, 300))
    update(store, world, "old")
    store.add(world.table(300, 320))
    report = store.update(world.model("best"), budget="price:0.001")
    assert (report.first_labels, report.evaluations) == (20, 20)


def test_new_items_do_not_wear_out_the_labelled_set(tmp_path: Path) -> None:
    """Steps that only label what is new are no steps of items that have long had a label."""
    world = World(items=400, labelled=300)
    store = Store.create(tmp_path / "store", classes=["cat", "dog", "fox", "owl"])
    store.add(world.table(0, 200))
    update(store, world, "old")
    store.register(world.model("mid"))
    before = store.plan("mid", budget="50%")
    assert before.rehearsed is not None
    assert before.rehearsed["evaluations"] == 150
    for start in range(200, 400, 50):
        store.add(world.table(start, start + 50))
        store.update(world.model("mid"), budget="0%")
    after = store.plan("mid", budget="50%")
    assert after.rehearsed is not None
    assert (after.eligible, after.evaluations) == (200, 100)
    # 100 of 400 labels: the labelled items have no vote of it yet.
    assert after.rehearsed["evaluations"] == 75
    assert after.rehearsed["accuracy_before"] == before.rehearsed["accuracy_before"]
    assert after.forecast is not None
    assert after.forecast["value"] > 0


def test_the_planner_says_what_a_plan_says(tmp_path: Path, world: World) -> None:
    from posterity.engine.plan.prospects import Prospects

    store = make(tmp_path / "store", world, "old")
    more = World(items=440, labelled=200)
    store.add(more.table(400, 440))
    store.register(Model("new", labelled=world.labelled_table("new"), cost=1.0))
    found = Prospects(opened(store), "new")
    for budget in ("0%", "10%", "30", "100%"):
        told, plan = found.answer(budget), store.plan("new", budget=budget)
        names = ("evaluations", "eligible", "unlabelled", "first_labels", "cost", "rehearsed")
        assert [told[name] for name in names] == [plan.to_dict()[name] for name in names]
        assert told["net"] == plan.forecast
    (choice,) = store.compare(["new"], 60)
    plan = store.plan("new", budget=60)
    assert (choice.evaluations, choice.net.to_dict()) == (60, plan.forecast)


def test_status_counts_them(store: Store, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert "without a label" not in repr(store)
    assert cli(["status", store.path]) == 0
    assert "unlabelled   0" in capsys.readouterr().out
    store.add(world.table(100, 104))
    assert "104 items, 4 without a label, step 0" in repr(store)
    assert ">4<" in store._repr_html_().split("without a label")[1][:50]
    assert cli(["status", store.path]) == 0
    assert "unlabelled   4" in capsys.readouterr().out
    store.remove(["item-101", "item-3"])
    assert store.status()["unlabelled"] == 3


def test_a_review_asks_about_them_first(store: Store, world: World) -> None:
    store.add(world.table(100, 104))
    queue = store.review_queue(7)
    assert (queue.eligible, queue.unlabelled) == (104, 4)
    found = queue.items.to_pylist()
    assert {row["id"] for row in found[:4]} == {f"item-{at}" for at in range(100, 104)}
    assert {row["why"] for row in found[:4]} == {"no label"}
    for row in found[:4]:
        assert [row[name] for name in ("label", "belief", "rival", "worth")] == [None] * 4
    assert queue.worth == pytest.approx(sum(row["worth"] for row in found[4:]))
    assert (
        "7 of 104 items that could be reviewed, by worth; 4 without a label; as the beliefs"
        in str(queue)
    )
    assert store.review_queue(7, order="entropy").unlabelled == 4
    assert store.review_queue(60, order="random").unlabelled < 4  # which is a fair draw
    assert store.review_queue(104, order="random").unlabelled == 4
    done = store.review({"id": [row["id"] for row in found[:4]], "answer": ["fox"] * 4})
    assert done.first_labels == 4
    assert (unlabelled(store), store.review_queue(7).unlabelled) == (0, 0)
    assert store.check() == []


def test_a_store_that_no_model_has_seen_can_be_reviewed(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=["cat", "dog", "fox", "owl"])
    store.add(world.table(0, 9))
    assert len(store.review_queue(5)) == 5
    view = review_view(opened(store), 5)
    assert all(len(item["choices"]) == 4 for item in view["items"])
    ids = store.review_queue(5).items["id"].to_pylist()
    assert store.review({"id": ids, "answer": ["cat"] * 5}).first_labels == 5
    assert unlabelled(store) == 4


def test_a_first_model_looks_at_everything(tmp_path: Path, world: World) -> None:
    store = small_store(tmp_path / "store", World())
    assert unlabelled(store) == 0
    for at, (budget, labelled) in enumerate([(None, 60), ("10%", 60), (20, 20)]):
        other = Store.create(tmp_path / f"other-{at}", classes=["cat", "dog", "fox", "owl"])
        other.add(world.table(0, 60))
        assert other.update(world.model("old"), budget=budget).first_labels == labelled
