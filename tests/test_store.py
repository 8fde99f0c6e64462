"""What a store promises, the same on a folder and on an S3-compatible server."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from posterity import Evaluation, Model, Store, VoteFile, rules
from posterity.errors import CommitConflict, InvalidData, InvalidParameter, StoreError, UnknownName
from tests.s3 import serving_s3
from tests.stores import NAMES, World, contents, registered, small_store

Place = tuple[str, dict[str, str] | None]


class Whim:
    """A rule that only exists in this process."""

    def decide(self, evidence: rules.Evidence) -> Any:
        return evidence.vote


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    with serving_s3("stores") as options:
        yield options


WHOLE = "POSTERITY_KILLS" in os.environ
SAME_ANYWHERE = {
    "test_an_update_stays_within_its_budget_and_asks_once",
    "test_a_second_step_goes_on_where_the_first_stopped",
    "test_a_file_of_votes_stands_in_for_the_model",
    "test_unplanned_votes_are_left_out_unless_wanted",
    "test_a_filter_composes_with_the_score",
    "test_history_and_flips_tell_the_story",
    "test_beliefs_say_what_else_it_could_be",
    "test_labels_since_a_step_are_what_changed",
    "test_reverting_an_early_step_equals_its_never_having_happened",
    "test_a_reverted_model_may_vote_again",
    "test_a_model_that_fails_on_an_item_costs_that_item",
    "test_nonsense_from_a_model_is_an_error_record",
    "test_models_are_known_by_their_labelled_votes",
    "test_rehearsal_is_honest",
    "test_bad_requests_change_nothing",
    "test_a_plan_belongs_to_its_model_and_its_items",
    "test_a_model_never_has_two_votes_that_count",
    "test_errors_can_be_retried_after_the_step",
    "test_the_error_limit_cannot_be_walked_through",
    "test_a_models_price_and_callable_can_change",
}
"""What no kind of file system has a part in: on an object store they are run by `make torture`."""


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return str(tmp_path / "store"), None
    if request.function.__name__ in SAME_ANYWHERE and not WHOLE:
        pytest.skip("on an object store in `make torture`")
    return f"s3://stores/{uuid.uuid4().hex}", request.getfixturevalue("s3")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(place: Place, world: World) -> Store:
    return small_store(place[0], world, options=place[1])


def labels(store: Store) -> dict[str, str]:
    table = store.labels()
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def test_the_first_model_labels_everything(store: Store, world: World) -> None:
    assert len(store) == 60
    assert list(labels(store).values()) == world.votes["old"].tolist()
    (header,) = store.log()
    assert header.report["evaluations"] == header.report["first_labels"] == 60
    assert header.report["flips"] == 0
    assert store.check() == []


def test_an_update_stays_within_its_budget_and_asks_once(store: Store, world: World) -> None:
    asked: list[int] = []
    plan = store.plan(registered(store, world.model("new")), budget="20%")
    assert plan.evaluations == 12
    assert plan.cost == 6.0
    assert asked == []
    report = store.update(world.model("new", asked.extend), budget="20%", rule="max-belief")
    assert report.evaluations == len(asked) == len(set(asked)) == 12
    assert store.check() == []


def test_the_same_call_twice_does_the_work_once(store: Store, world: World) -> None:
    asked: list[int] = []
    model = world.model("new", asked.extend)
    assert store.update(model, budget="20%").step == 1
    again = store.update(model, budget="20%")
    assert again.step is None
    assert "carried out already" in str(again)
    assert len(asked) == 12
    assert len(store.log()) == 2


def test_a_second_step_goes_on_where_the_first_stopped(store: Store, world: World) -> None:
    asked: list[int] = []
    model = world.model("new", asked.extend)
    store.update(model, budget="50%")
    report = store.update(model, budget="50%", more=True)
    assert report.step == 2
    assert len(asked) == len(set(asked)) == 45
    store.update(model, budget="100%")
    assert len(asked) == len(set(asked)) == 60
    assert store.update(model, budget="100%", more=True).step is None  # nobody is left
    assert store.check() == []


def test_a_plan_is_kept_and_carried_out_exactly(store: Store, world: World) -> None:
    plan = store.plan(registered(store, world.model("new")), budget=7, rule="max-belief")
    items = store.planned_items(plan)
    assert items.num_rows == 7
    assert items.column_names == ["id", "number", "lang"]
    votes = world.votes_table("new")
    report = store.update("new", plan=plan.id, votes=votes)
    assert (report.step, report.evaluations) == (1, 7)
    touched = {row["row"] for row in contents(store)["rows"] if row["step"] == 1}
    assert touched == set(plan.rows.tolist())
    with pytest.raises(UnknownName, match="no plan 'nonsense'"):
        store.update("new", plan="nonsense", votes=votes)


def test_a_file_of_votes_stands_in_for_the_model(store: Store, world: World) -> None:
    store.register(world.model("new"))
    frame = world.votes_table("new").slice(0, 30)
    strange = pa.table({"id": ["nobody"], "vote": ["cat"]})
    votes = pa.concat_tables([frame, strange])
    with pytest.raises(InvalidData, match="planned items have no row"):
        store.update("new", budget="100%", votes=VoteFile(votes, strict=True))
    report = store.update("new", budget="100%", votes=votes)
    assert report.evaluations == 30
    assert "1 id is not in the store, such as 'nobody'" in str(report)
    assert "30 planned items had no vote" in str(report)
    assert store.check() == []


def test_unplanned_votes_are_left_out_unless_wanted(store: Store, world: World) -> None:
    store.register(world.model("new"))
    store.register(world.model("mid"))
    assert store.update("new", budget=5, votes=world.votes_table("new")).evaluations == 5
    report = store.update(
        "mid", budget=5, votes=VoteFile(world.votes_table("mid"), keep_unplanned=True)
    )
    assert report.evaluations == 60
    assert store.check() == []


def test_a_filter_composes_with_the_score(store: Store, world: World) -> None:
    asked: list[int] = []
    report = store.update(world.model("new", asked.extend), budget="50%", where="lang = 'en'")
    assert report.evaluations == 10
    assert all(number % 3 == 0 for number in asked)
    with pytest.raises(InvalidParameter, match="filter 'lang ==' cannot be used"):
        store.plan("new", where="lang ==", more=True)
    with pytest.raises(InvalidParameter, match="there is no column 'nonsense'"):
        store.plan("new", where="nonsense = 3", more=True)
    assert len(store.log()) == 2


def test_the_dataset_grows(store: Store, world: World) -> None:
    assert store.add(world.table()) == 0  # as they are: done already
    other = world.table().set_column(1, "number", pa.array(range(1, 61)))
    with pytest.raises(InvalidData, match="60 ids are in the store already: 'item-0'"):
        store.add(other)
    more = World(items=80)
    store.add(more.table(60, 80))
    assert len(store) == 80
    assert labels(store)["item-70"] is None
    asked: list[int] = []
    few = store.plan(registered(store, more.model("mid")), budget=8)
    assert set(few.rows.tolist()) <= set(range(60, 80))  # items without a label come first
    assert few.affected == {"no label yet": 8}
    assert "mid on 8 of 20 items without a label (" in str(few)
    plan = store.plan("mid", budget="10%")  # all of them, and a tenth of the others
    assert (plan.eligible, plan.unlabelled, plan.evaluations) == (80, 20, 26)
    assert "mid on 20 items without a label, then 6 others of 60 eligible (" in str(plan)
    report = store.update(more.model("mid", asked.extend), budget="50%")
    assert (report.first_labels, report.evaluations) == (20, 50)
    assert labels(store)["item-70"] == more.votes["mid"][70]
    assert store.check() == []


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars", "dict", "parquet", "csv", "jsonl"])
def test_items_come_in_every_form(form: str, world: World, tmp_path: Path) -> None:
    table = world.table()
    make: dict[str, Callable[[], Any]] = {
        "arrow": lambda: table,
        "pandas": lambda: pd.DataFrame(table.to_pydict()),
        "polars": lambda: pl.DataFrame(table.to_pydict()),
        "dict": table.to_pydict,
    }
    if form in make:
        data = make[form]()
    else:
        from tests.stores import write_table

        data = tmp_path / f"items.{form}"
        write_table(table, data)
    store = Store.create(tmp_path / "store", classes=NAMES)
    assert store.add(data) == 60
    assert store.labels()["id"].to_pylist() == table["id"].to_pylist()


def test_integer_ids(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=[3, 5])
    store.add({"id": [10, 7], "x": [1.5, None]})
    labelled = {"id": [1, 2, 3], "truth": [3, 5, 5], "vote": [3, 5, 3]}
    store.update(Model("m", labelled=labelled, predict=lambda batch: [5] * batch.num_rows))
    assert store.history(7)[0]["label"] == 5
    assert store.labels()["label"].to_pylist() == [5, 5]
    with pytest.raises(InvalidData, match="ids are of type int64; got string"):
        store.history("7")
    assert store.check() == []


def test_history_and_flips_tell_the_story(store: Store, world: World) -> None:
    store.update(world.model("best"), budget="100%", rule="replace")
    flips = store.flips()
    assert flips.num_rows == (world.votes["old"] != world.votes["best"]).sum()
    first = flips.to_pylist()[0]
    story = store.history(first["id"])
    assert [row["model"] for row in story] == ["old", "best"]
    assert story[0]["label"] == first["old"]
    assert story[1]["label"] == story[1]["vote"] == first["new"]
    assert store.flips(0).num_rows == 0  # first labels are no flips
    with pytest.raises(InvalidParameter, match="'step' must be a step of the store, 0 to 1"):
        store.flips(9)
    with pytest.raises(InvalidData, match="'nobody'"):
        store.history("nobody")


def test_beliefs_say_what_else_it_could_be(store: Store, world: World) -> None:
    store.update(world.model("best"), budget="50%", rule="max-belief")
    table = store.beliefs(top=4)
    believed = dict(zip(table["id"].to_pylist(), table["beliefs"].to_pylist(), strict=True))
    assert all(sum(each) == pytest.approx(1) for each in believed.values())
    assert all(each == sorted(each, reverse=True) for each in believed.values())
    voted = {row["row"]: row for row in contents(store)["rows"] if row["step"] == 1}
    for row in table.to_pylist():
        if row["row"] in voted:  # the rule takes the most believed class
            assert row["classes"][0] == NAMES[voted[row["row"]]["label"]]
            assert row["beliefs"][0] == pytest.approx(voted[row["row"]]["belief"], rel=1e-5)
    assert store.beliefs("item-7", top=1).num_rows == 1
    with pytest.raises(InvalidParameter, match="'top'"):
        store.beliefs(top=0)


def test_labels_since_a_step_are_what_changed(store: Store, world: World) -> None:
    before = labels(store)
    store.update(world.model("best"), budget="100%", rule="replace")
    after = labels(store)
    changed = {row["id"]: row["new"] for row in store.labels(since=0).to_pylist()}
    assert changed == {key: after[key] for key in after if after[key] != before[key]}
    assert store.labels(since=1).num_rows == 0
    store.revert(1)
    reverted = {row["id"]: row["new"] for row in store.labels(since=1).to_pylist()}
    assert reverted == {key: before[key] for key in changed}


def test_reverting_an_early_step_equals_its_never_having_happened(
    place: Place, world: World, tmp_path: Path
) -> None:
    """Everything else is asked of all items, so that the later steps are the same in both."""
    # Plain: what dependent beliefs have learnt from the undone model stays in later steps' fits.
    store = small_store(place[0], world, beliefs="plain", options=place[1])
    store.update(world.model("mid"), budget="40%", rule="max-belief")
    never = small_store(tmp_path / "never", world, beliefs="plain")
    for held in (store, never):
        held.update(world.model("new"), budget="100%", rule="cost-ratio:2")
        held.update(world.model("best"), budget="100%", rule="max-belief-min-entropy")
        held.update(world.model("best"), budget="100%", rule="majority-vote", where="number > 999")
    before = store.labels()
    done = store.revert(1)
    assert done.items == 24
    mine, theirs = store.labels(), never.labels()
    assert mine["label"].to_pylist() == theirs["label"].to_pylist()
    assert mine["belief"].to_pylist() == theirs["belief"].to_pylist()
    assert store.check() == []
    store.revert(done.step)
    again = store.labels()
    assert again["label"].to_pylist() == before["label"].to_pylist()
    assert again["belief"].to_pylist() == before["belief"].to_pylist()
    assert store.check() == []
    assert "Nothing to do: step" in str(store.revert(done.step))
    with pytest.raises(InvalidParameter, match="'step' must be a step"):
        store.revert(99)


def test_a_reverted_model_may_vote_again(store: Store, world: World) -> None:
    asked: list[int] = []
    store.update(world.model("new"), budget="30%")
    store.revert(1)
    report = store.update(world.model("new", asked.extend), budget="100%")
    assert report.evaluations == len(asked) == 60
    assert store.check() == []


def test_removed_items_are_gone_at_once_and_purged_later(store: Store, world: World) -> None:
    store.update(world.model("new"), budget="50%")
    assert store.remove(["item-3", "item-30"]) == 2
    assert len(store) == 58
    assert "item-3" not in labels(store)
    with pytest.raises(InvalidData, match="'item-3'"):
        store.history("item-3")
    assert store.remove(["item-3"]) == 0  # done already
    done = store.compact()
    assert done.purged == 2
    assert store.check() == []
    text = str(contents(store))
    assert "item-3'" not in text
    assert {3, 30} & {row["row"] for row in contents(store)["rows"]} == set()
    asked: list[int] = []
    store.update(world.model("best", asked.extend), budget="100%")
    assert len(asked) == 58
    assert store.check() == []


def test_compaction_changes_nothing_but_files(store: Store, world: World) -> None:
    store.update(world.model("mid"), budget="30%")
    store.add(World(items=70).table(60, 70))
    before = contents(store)
    done = store.compact()
    assert done.files_after < done.files_before
    after = contents(store)
    assert after["rows"] == before["rows"]
    assert after["labels"] == before["labels"]
    assert store.check() == []
    assert store.vacuum(hours=0) > 0
    assert contents(store)["rows"] == before["rows"]
    assert store.check() == []


def test_an_update_survives_a_compaction_in_between(store: Store, world: World) -> None:
    def compacting(_: list[int]) -> None:
        Store(store.path, store.options).compact()

    store.update(world.model("mid"), budget="20%")
    assert store.update(world.model("new", compacting), budget="20%").step == 2
    assert store.check() == []


def test_a_moved_head_is_a_conflict_and_nothing_is_lost(store: Store, world: World) -> None:
    asked: list[int] = []

    def overtaken(numbers: list[int]) -> None:
        asked.extend(numbers)
        Store(store.path, store.options).update(world.model("mid"), budget="10%")

    with pytest.raises(CommitConflict, match="--rebase"):
        store.update(world.model("new", overtaken), budget="20%")
    assert [header.model for header in store.log()] == ["old", "mid"]
    model = world.model("new", asked.extend)
    with pytest.raises(CommitConflict, match="Its votes are kept"):
        store.update(model, budget="20%")
    report = store.update(model, budget="20%", rebase=True)
    assert (report.step, report.evaluations) == (2, 12)
    assert len(asked) == 12  # nothing was asked twice
    assert store.check() == []


@pytest.mark.long
def test_two_updaters_make_every_step_once(store: Store, world: World) -> None:
    rounds = 20 if store.options is None else 3
    store.register(world.model("new"))
    conflicts: list[CommitConflict] = []

    def updater(where: str, barrier: threading.Barrier) -> None:
        held = Store(store.path, store.options)
        barrier.wait()
        votes, beaten = world.votes_table("new"), False
        while True:
            try:
                held.update("new", votes=votes, budget="100%", where=where, rebase=beaten)
                return
            except CommitConflict as conflict:
                conflicts.append(conflict)
                beaten = True

    for at in range(rounds):
        barrier = threading.Barrier(2)
        threads = [
            threading.Thread(target=updater, args=(f"number = {number}", barrier))
            for number in (2 * at, 2 * at + 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
    assert conflicts  # they did meet
    rows = [row for row in contents(store)["rows"] if row["step"] > 0]
    assert [header.step for header in store.log()] == list(range(2 * rounds + 1))
    assert sorted(row["row"] for row in rows) == list(range(2 * rounds))
    assert store.check() == []


def test_a_model_that_fails_on_an_item_costs_that_item(store: Store, world: World) -> None:
    poisoned = {5, 11}
    asked: list[int] = []

    def failing(batch: pa.Table) -> Any:
        numbers = batch["number"].to_pylist()
        if poisoned & set(numbers):
            raise RuntimeError(f"cannot see {sorted(poisoned & set(numbers))}")
        asked.extend(numbers)
        return world.votes["new"][numbers]

    labelled = world.labelled_table("new")
    report = store.update(
        Model("new", labelled=labelled, predict=failing),
        budget="100%",
        evaluation=Evaluation(batch=8),
    )
    assert (report.evaluations, report.errors) == (58, 2)
    assert "2 items failed; 'item-5': RuntimeError('cannot see [5]')" in report.note
    assert len(asked) == len(set(asked)) == 58
    poisoned.clear()
    mended = Model("new", labelled=labelled, predict=failing)
    assert store.update(mended, budget="100%", more=True).step is None  # not again and again
    retried = store.update(mended, budget="100%", evaluation=Evaluation(retry_errors=True))
    assert retried.evaluations == 2
    assert store.check() == []


def test_too_many_errors_stop_the_run_with_everything_kept(store: Store, world: World) -> None:
    broken = True
    asked: list[int] = []

    def failing(batch: pa.Table) -> Any:
        numbers = batch["number"].to_pylist()
        if broken and max(numbers) >= 20:
            raise RuntimeError("out of memory")
        asked.extend(numbers)
        return world.votes["new"][numbers]

    model = Model("new", labelled=world.labelled_table("new"), predict=failing)
    with pytest.raises(StoreError, match=r"failed on .* more than 5.*out of memory.*same again"):
        store.update(model, budget="100%", evaluation=Evaluation(batch=10, max_errors=5))
    assert len(store.log()) == 1
    assert asked == list(range(20))
    assert len(store.status()["unfinished"]) == 1
    broken = False
    report = store.update(
        model, budget="100%", evaluation=Evaluation(batch=10, max_errors=5, retry_errors=True)
    )
    assert (report.evaluations, report.errors) == (60, 0)
    assert sorted(asked) == list(range(60))
    assert store.status()["unfinished"] == []
    assert store.check() == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [(["cat"] * 2, "2 votes for 1 item"), (["cow"], "'cow'"), ([9], "between 0 and 3")],
)
def test_nonsense_from_a_model_is_an_error_record(
    store: Store, world: World, answer: list[Any], message: str
) -> None:
    def nonsense(_: pa.Table) -> Any:
        return answer

    model = Model("new", labelled=world.labelled_table("new"), predict=nonsense)
    with pytest.raises(StoreError, match=f"failed on 4 items.*{message}"):
        store.update(model, budget="20%", evaluation=Evaluation(max_errors=3))
    assert store.check() == []


def test_models_are_known_by_their_labelled_votes(store: Store, world: World) -> None:
    store.register(world.model("new"))
    store.register(world.model("new"))  # the same again is no error
    other = Model("new", labelled=world.labelled_table("mid"))
    with pytest.raises(InvalidData, match="registered with other labelled votes"):
        store.register(other)
    with pytest.raises(UnknownName, match=r"no model 'nwe'.*Did you mean 'new'"):
        store.plan("nwe")
    with pytest.raises(InvalidData, match="Nothing tells how"):
        store.register(Model("bare"))
    with pytest.raises(InvalidParameter, match="predict="):
        store.update("new")
    assert store.status()["models"] == ["old", "new"]


@pytest.mark.parametrize(
    ("labelled", "message"),
    [
        ({"truth": ["cat"], "vote": ["cow"]}, r"unknown classes in 1 row: \['cow'\]"),
        ({"truth": [None], "vote": ["cat"]}, "without a truth"),
        ({"truth": ["cat"], "vote": [None]}, "holds no vote"),
        ({"truth": ["cat"]}, "no ids of stored items; it has: truth"),
        ({"truth": [1], "vote": ["cat"]}, "must hold classes of type str; got int64"),
    ],
)
def test_bad_labelled_data_is_named(tmp_path: Path, labelled: dict[str, Any], message: str) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    with pytest.raises(InvalidData, match=message):
        store.register(Model("m", labelled=labelled))
    assert store.status()["models"] == []


def test_rehearsal_is_honest(store: Store, world: World) -> None:
    plan = store.plan(registered(store, world.model("best")), budget="100%", rule="replace")
    assert plan.rehearsed is not None
    before = (world.labelled["old"] == world.labelled_truth).mean()
    after = (world.labelled["best"] == world.labelled_truth).mean()
    assert plan.rehearsed["accuracy_before"] == pytest.approx(before)
    assert plan.rehearsed["accuracy_after"] == pytest.approx(after)
    assert "labelled items the same would fix" in str(plan)
    bare = world.labelled_table("mid").drop_columns(["id"])
    assert store.plan(registered(store, Model("mid", labelled=bare))).rehearsed is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "oracle"}, "for replay only"),
        ({"rule": "nonsense"}, "no rule"),
        ({"rule": Whim()}, "no rule"),
        ({"selector": "nonsense"}, "no selector"),
        ({"budget": "110%"}, "'budget'"),
    ],
)
def test_bad_requests_change_nothing(
    tmp_path: Path, world: World, options: dict[str, Any], message: str
) -> None:
    store = small_store(tmp_path / "store", world)
    with pytest.raises(InvalidParameter, match=message):
        store.update(world.model("new"), **options)
    assert len(store.log()) == 1
    assert store.check() == []


@pytest.mark.usefixtures("store")
def test_a_store_needs_a_place_of_its_own(place: Place) -> None:
    with pytest.raises(StoreError, match="already, made with other settings: shard_rows"):
        Store.create(place[0], classes=NAMES, options=place[1])
    assert len(Store.create(place[0], classes=NAMES, shard_rows=25, options=place[1])) == 60
    with pytest.raises(StoreError, match="There is no store at"):
        Store(place[0] + "-elsewhere", options=place[1])


def test_two_processes_on_one_run_fold_every_vote_once(store: Store, world: World) -> None:
    """The same command twice at the same time, with other batches."""
    reports: list[Any] = []

    def updater(batch: int, barrier: threading.Barrier) -> None:
        held = Store(store.path, store.options)
        barrier.wait()
        reports.append(
            held.update(world.model("new"), budget="100%", evaluation=Evaluation(batch=batch))
        )

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=updater, args=(batch, barrier)) for batch in (8, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert [report.evaluations for report in reports] == [60, 60]
    assert len(store.log()) == 2
    assert store.check() == []


def test_removal_and_compaction_while_a_model_votes(store: Store, world: World) -> None:
    def interfering(_: list[int]) -> None:
        held = Store(store.path, store.options)
        if len(held) == 60:
            held.remove(["item-3"])
            held.compact()

    report = store.update(
        world.model("new", interfering), budget="100%", evaluation=Evaluation(batch=10)
    )
    assert report.evaluations == 59
    assert store.check() == []
    assert 3 not in {row["row"] for row in contents(store)["rows"]}


def test_a_plan_belongs_to_its_model_and_its_items(store: Store, world: World) -> None:
    for name in ("mid", "new"):
        store.register(world.model(name))
    plan = store.plan("new", budget=5)
    with pytest.raises(InvalidParameter, match="is for the model 'new', not for 'mid'"):
        store.update("mid", plan=plan.id, votes=world.votes_table("mid"))
    store.update("mid", budget="30%", votes=world.votes_table("mid"))
    other = store.plan("new", budget=5)
    assert other.id != plan.id
    votes = world.votes_table("new")
    with pytest.raises(CommitConflict, match="which has read step 0"):
        store.update("new", plan=plan.id, votes=votes)
    report = store.update("new", plan=plan.id, votes=votes, rebase=True)
    assert {row["row"] for row in contents(store)["rows"] if row["step"] == 2} == set(
        plan.rows.tolist()
    )
    assert store.update("new", plan=plan.id, votes=votes) == report  # once more is no harm


def test_a_model_never_has_two_votes_that_count(store: Store, world: World) -> None:
    store.update(world.model("new"), budget="50%")
    store.revert(1)
    store.update(world.model("new"), budget="100%")
    with pytest.raises(InvalidParameter, match="two votes on the same item; revert step 3"):
        store.revert(2)
    assert store.check() == []


def test_an_explicit_budget_holds_from_the_start(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    asked: list[int] = []
    assert store.update(world.model("old", asked.extend), budget=7).first_labels == 7
    assert len(asked) == 7
    assert store.check() == []


def test_what_was_spent_survives_growth(store: Store, world: World) -> None:
    """A run that was stopped, then new items, then the same command: nothing is asked twice."""
    grown = World(items=70)
    asked: list[int] = []

    def tiring(numbers: list[int]) -> None:
        if len(asked) >= 12:
            raise KeyboardInterrupt
        asked.extend(numbers)

    with pytest.raises(KeyboardInterrupt):
        store.update(world.model("new", tiring), budget="50%", evaluation=Evaluation(batch=6))
    store.add(grown.table(60, 70))
    model = Model("new", predict=grown.model("new", asked.extend).predict)
    report = store.update(model, budget="50%", evaluation=Evaluation(batch=6))
    assert "step 1 carried out a plan from before these items came, with 30 votes" in str(report)
    assert (report.step, report.evaluations, report.first_labels) == (2, 10, 10)
    assert len(asked) == len(set(asked)) == 40
    assert min(asked[30:]) == 60
    assert store.update(model, budget="50%").step is None
    assert store.check() == []


def test_errors_can_be_retried_after_the_step(store: Store, world: World) -> None:
    poisoned = {5}

    def failing(batch: pa.Table) -> Any:
        numbers = batch["number"].to_pylist()
        if poisoned & set(numbers):
            raise RuntimeError("cannot see")
        return world.votes["new"][numbers]

    model = Model("new", labelled=world.labelled_table("new"), predict=failing)
    assert store.update(model, budget="100%").errors == 1
    assert store.update(model, budget="100%").step is None
    poisoned.clear()
    report = store.update(model, budget="100%", evaluation=Evaluation(retry_errors=True))
    assert (report.step, report.evaluations) == (2, 1)
    assert store.update(model, budget="100%", evaluation=Evaluation(retry_errors=True)).step is None


def test_the_error_limit_cannot_be_walked_through(store: Store, world: World) -> None:
    calls, failing = list[int](), True

    def broken(batch: pa.Table) -> Any:
        calls.append(batch.num_rows)
        if failing:
            raise RuntimeError("no")
        return world.votes["new"][batch["number"].to_numpy()]

    model, how = Model("new", labelled=world.labelled_table("new"), predict=broken), Evaluation
    for _ in range(3):
        with pytest.raises(StoreError, match="failed on 4 items, more than 3"):
            store.update(model, budget="100%", evaluation=how(max_errors=3))
        assert calls == [60, 1, 1, 1, 1]  # a batch, four items, and then nothing more
        calls.clear()
    assert len(store.log()) == 1
    failing = False  # the same command finds out that it was mended
    assert store.update(model, budget="100%", evaluation=how(max_errors=3)).evaluations == 60


@pytest.mark.parametrize("classes", [[0, 1, 2], [False, True]])
def test_classes_that_are_not_text(tmp_path: Path, classes: list[Any]) -> None:
    store = Store.create(tmp_path / "store", classes=classes)
    store.add({"id": ["a", "b"]})
    labelled = {"id": [1, 2, 3], "truth": [classes[0], classes[1], classes[0]]}
    model = Model(
        "m",
        labelled=labelled | {"vote": labelled["truth"]},
        predict=lambda batch: [classes[0]] * batch.num_rows,
    )
    store.update(model)
    assert store.labels()["label"].to_pylist() == [classes[0]] * 2
    assert store.history("a")[0]["label"] is classes[0]
    other = Model("n", labelled=model.labelled, predict=lambda batch: [classes[1]] * batch.num_rows)
    assert store.plan(registered(store, other), budget=1.0).affected == {str(classes[0]): 2}
    store.update(other, budget=1.0, rule="replace")
    assert store.flips().to_pylist()[0]["new"] is classes[1]
    assert store.check() == []


def test_payloads_delta_has_no_type_for(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    with pytest.raises(InvalidData, match="cannot be stored"):
        store.add(pa.table({"id": ["a"], "x": pa.array([1], pa.duration("s"))}))
    with pytest.raises(InvalidData, match="cannot be stored"):
        store.add(pa.table({"id": ["a"], "x": pa.array([2**63], pa.uint64())}))
    with pytest.raises(InvalidData, match="twice"):
        store.add(pa.table([["a"], [1], [2]], names=["id", "x", "X"]))
    with pytest.raises(InvalidData, match="name the store uses itself"):
        store.add({"key": ["a"], "Row": [1]}, id="key")
    small = {"x": pa.array([200], pa.uint8()), "y": pa.array([1.5], pa.float16())}
    store.add(pa.table({"id": ["a"], **small}))
    model = World().model("old")
    store.update(Model("m", labelled=model.labelled, predict=lambda _: ["cat"]))
    assert store.compact().purged == 0
    assert store.check() == []


def test_ids_in_csv_stay_as_they_are_written(tmp_path: Path) -> None:
    for name, text, expected in (
        ("padded", "id\n001\n002\n", ["001", "002"]),
        ("plain", "id\n1\n20\n", [1, 20]),
    ):
        (tmp_path / f"{name}.csv").write_text(text)
        store = Store.create(tmp_path / name, classes=NAMES)
        store.add(tmp_path / f"{name}.csv")
        assert store.labels()["id"].to_pylist() == expected


def test_a_models_price_and_callable_can_change(store: Store, world: World) -> None:
    store.register(Model("new", labelled=world.labelled_table("new"), cost=1.0))
    store.register(Model("new", labelled=world.labelled_table("new"), cost=2.0))
    assert store.plan("new", budget=3).cost == 6.0
    assert store.status()["models"] == ["old", "new"]


def test_published_labels_are_checked_and_made_anew(tmp_path: Path, world: World) -> None:
    store = small_store(tmp_path / "store", world)
    for path in Path(store.path, "labels").rglob("*.parquet"):
        path.unlink()
    assert any("labels/" in line for line in store.check())
    store.update(world.model("old"))  # nothing to do but this
    assert store.check() == []


def test_an_empty_store_answers(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    assert store.labels().column_names == ["id", "row", "label", "belief", "step"]
    assert store.update(world.model("old")).step is None
    with pytest.raises(InvalidParameter, match="which has none yet"):
        store.flips()
    with pytest.raises(InvalidParameter, match="'since'"):
        store.labels(since=3)
    assert store.check() == []
    with pytest.raises(InvalidData, match="no ids"):
        store.remove([2**80])


@pytest.mark.parametrize("hours", [-1.0, float("nan"), float("inf")])
def test_impossible_retentions_are_refused(tmp_path: Path, hours: float) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    with pytest.raises(InvalidParameter, match="'hours'"):
        store.vacuum(hours=hours)


def test_labels_of_some_classes_may_be_dearer(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "dear", classes=NAMES, beliefs="plain")
    store.add({"id": ["a", "b"]})
    for name, accuracy in (("old", 0.6), ("new", 0.9)):
        store.register(Model(name, accuracy=accuracy))
    store.update("old", votes={"id": ["a", "b"], "vote": [NAMES[0], NAMES[1]]})
    rule = rules.CostRatio(2, of={NAMES[1]: 1000})
    votes = {"id": ["a", "b"], "vote": [NAMES[2], NAMES[2]]}
    store.update("new", votes=votes, budget="100%", rule=rule)
    assert store.labels().column("label").to_pylist() == [NAMES[2], NAMES[1]]
    assert f"of.{NAMES[1]}=1000" in (store.log()[-1].rule or "")
    assert "asks for more than 1000 times" in str(store.explain("b"))
    assert store.check() == []
    with pytest.raises(UnknownName, match="nobody"):
        store.plan("new", rule="cost-ratio:2,of.nobody=3")


def test_fences_have_the_names_the_format_states(tmp_path: Path) -> None:
    """They are stored: whoever renames a module must not rename them."""
    store = small_store(tmp_path / "store", World(50))
    store.append_classes(["another"])
    store.remove([store.labels().column("id")[0].as_py()])
    store.vacuum()
    logs = (tmp_path / "store").glob("*/_delta_log/*.json")
    entries = [json.loads(line) for path in logs for line in path.read_text().splitlines()]
    names = {entry["txn"]["appId"] for entry in entries if "txn" in entry}
    assert "posterity.classes" in names
    assert "posterity.models" in names
    page = (Path(__file__).parents[1] / "docs" / "format.md").read_text()
    assert all(f"`{name}`" in page for name in names), names
