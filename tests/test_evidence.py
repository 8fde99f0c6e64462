"""How a model errs, in every form people have it, in Python and on the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from posterity import Confusion, Evaluation, Model, Store, VoteFile
from posterity.engine.labelled import register
from posterity.engine.ledger.context import Context
from posterity.engine.steps.first_votes import labelled_plan
from posterity.errors import CommitConflict, InvalidData, InvalidParameter, StoreError, Unavailable
from posterity.method.beliefs.confusion import FLOOR
from posterity.storage.files import open_files
from tests import naive
from tests.stores import NAMES, World, contents, registered, small_store, write_table
from tests.test_cli import run

KNOWN = [*range(0, 30, 2), 55]
"""Rows of stored items whose truth somebody knows."""


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def empty(tmp_path: Path, world: World) -> Store:
    """Items, and nothing else."""
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    store.add(world.table())
    return store


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """For what is refused."""
    store = Store.create(tmp_path_factory.mktemp("untouched") / "store", classes=NAMES)
    store.add(World().table())
    return store


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    return small_store(tmp_path / "store", world)


def fit_of(store: Store, model: str) -> np.ndarray:
    return Context(open_files(store.path)).fits.now().confusion(model).probabilities


def codes_of(names: Any) -> list[int]:
    listed = NAMES.tolist()
    return [listed.index(name) for name in names]


def counted(truth: Any, votes: Any) -> np.ndarray:
    """The full estimator from pairs, by hand."""
    return np.array(naive.full(naive.count(codes_of(truth), codes_of(votes), 4)))


def truth_of(world: World, rows: list[int], **more: Any) -> pa.Table:
    """The truth of stored items by id."""
    return pa.table({"id": [f"item-{row}" for row in rows], "truth": world.truth[rows], **more})


def by_id(world: World, rows: list[int], name: str, predict: Any = None) -> Model:
    """A model with the truth of stored items; what becomes of labels is in `test_truths`."""
    return Model(name, labelled=truth_of(world, rows), predict=predict, keep_labels=True)


def ask(world: World, name: str, asked: list[int]) -> Any:
    return world.model(name, asked.extend).predict


# A file per model, one wide file


def test_one_wide_file_serves_every_model(store: Store, world: World) -> None:
    wide = pa.table({"truth": world.labelled_truth, **world.labelled})
    for name in ("mid", "new"):
        done = store.register(Model(name, labelled=wide))
        assert done.labelled == 80
        assert done.accuracy == pytest.approx((world.labelled[name] == world.labelled_truth).mean())
        expected = counted(world.labelled_truth, world.labelled[name])
        np.testing.assert_allclose(fit_of(store, name), expected, rtol=1e-15)
    with pytest.raises(InvalidData, match=r"no column of votes \('vote' or 'other'\)"):
        store.register(Model("other", labelled=wide))
    with pytest.raises(InvalidData, match="has no column 'nwe'; it has: truth, old"):
        store.register(Model("other", labelled=wide, vote="nwe"))


def test_the_column_of_votes(store: Store, world: World) -> None:
    """``vote`` comes first; then the one named like the model; what is said comes before both."""
    both = pa.table(
        {"truth": world.labelled_truth, "vote": world.labelled["mid"], "m": world.labelled["new"]}
    )
    right = {name: (world.labelled[name] == world.labelled_truth).mean() for name in ("mid", "new")}
    assert store.register(Model("m", labelled=both)).accuracy == pytest.approx(right["mid"])
    said = Model("n", labelled=both, vote="m")
    assert store.register(said).accuracy == pytest.approx(right["new"])


@pytest.mark.parametrize("name", ["truth", "id"])
def test_a_model_named_like_a_column_is_not_taken_for_perfect(
    store: Store, world: World, name: str
) -> None:
    labelled = truth_of(world, KNOWN)
    assert store.register(Model(name, labelled=labelled)).pending == len(KNOWN)


def test_the_truth_may_be_called_vote(store: Store, world: World) -> None:
    odd = pa.table({"vote": world.labelled_truth, "new": world.labelled["new"]})
    done = store.register(Model("new", labelled=odd, truth="vote"))
    assert done.accuracy == pytest.approx((world.labelled["new"] == world.labelled_truth).mean())


def test_every_form_on_the_command_line(
    store: Store, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: object, code: int = 0) -> Any:
        out, err = run(capsys, "model", store.path, *arguments, "--json", code=code)
        return json.loads(out or err)

    wide = pa.table({"y": world.labelled_truth, "new": world.labelled["new"]})
    matrix = naive.count(codes_of(world.labelled_truth), codes_of(world.labelled["new"]), 4)
    named = {"truth": NAMES, **{name: matrix[i] for i, name in enumerate(NAMES.tolist())}}
    write_table(wide, tmp_path / "wide.csv")
    write_table(pa.table(named), tmp_path / "matrix.csv")
    paths = truth_of(world, KNOWN).rename_columns(["path", "truth"])
    write_table(paths, tmp_path / "truth.jsonl")
    accuracy = (world.labelled["new"] == world.labelled_truth).mean()
    for name, *given in (
        ("wide", "--labelled", tmp_path / "wide.csv", "--truth", "y", "--vote", "new"),
        ("matrix", "--confusion-matrix", tmp_path / "matrix.csv"),
    ):
        done = told(name, *given)
        assert done["labelled"] == 80
        assert done["accuracy"] == pytest.approx(accuracy)
        low, high = done["interval"]
        assert low < done["accuracy"] < high
    assert told("one", "--accuracy", 0.83)["accuracy"] == 0.83
    assert told("ids", "--labelled", tmp_path / "truth.jsonl", "--key", "path")["pending"] == len(
        KNOWN
    )
    assert told("shared")["pending"] == len(KNOWN)
    np.testing.assert_array_equal(fit_of(store, "wide"), fit_of(store, "matrix"))
    refused = told("two", "--accuracy", 0.8, "--confusion-matrix", tmp_path / "matrix.csv", code=2)
    assert "not by more" in refused["error"]["message"]
    assert told("x", "--accuracy", 1.2, code=2)["error"]["kind"] == "invalid-parameter"
    assert store.status()["models"] == ["old", "wide", "matrix", "one", "ids", "shared"]
    assert store.check() == []


# The truth of stored items by id


def test_the_truth_of_imported_items_tells_how_their_model_errs(
    tmp_path: Path, world: World
) -> None:
    preds = world.table().append_column("pred", pa.array(world.votes["old"]))
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    store.import_predictions(preds, {"pred": by_id(world, KNOWN, "old")})
    pairs = Store.create(tmp_path / "pairs", classes=NAMES)
    pairs.add(world.table())
    joined = truth_of(world, KNOWN, vote=world.votes["old"][KNOWN])
    pairs.register(Model("old", labelled=joined))
    np.testing.assert_array_equal(fit_of(store, "old"), fit_of(pairs, "old"))
    expected = counted(world.truth[KNOWN], world.votes["old"][KNOWN])
    np.testing.assert_allclose(fit_of(store, "old"), expected, rtol=1e-15)
    assert store.check() == []


def test_a_new_model_votes_on_its_labelled_items_first(store: Store, world: World) -> None:
    asked: list[int] = []
    model = by_id(world, KNOWN, "new", ask(world, "new", asked))
    plan = store.plan(registered(store, model), budget="50%")
    assert plan.rows.tolist() == KNOWN
    assert "must first vote on its 16 labelled items" in str(plan)
    assert store.planned_items(plan)["number"].to_pylist() == KNOWN
    assert asked == []
    report = store.update(model, budget="50%", rule="max-belief")
    assert asked[: len(KNOWN)] == KNOWN
    assert len(asked) == len(set(asked))  # nobody is asked about an item twice
    assert report.evaluations == 30  # the budget, labelled items among them
    step = {row["row"]: row["vote"] for row in contents(store)["rows"] if row["step"] == 1}
    reused = set(step) & set(KNOWN)
    assert reused
    assert len(asked) == len(KNOWN) + 30 - len(reused)
    assert {row: NAMES[vote] for row, vote in step.items()} == {
        row: world.votes["new"][row] for row in step
    }
    expected = counted(world.truth[KNOWN], world.votes["new"][KNOWN])
    np.testing.assert_allclose(fit_of(store, "new"), expected, rtol=1e-15)
    assert store.status()["unfinished"] == []
    assert store.check() == []


def test_the_same_call_twice_does_it_once(store: Store, world: World) -> None:
    """The votes on labelled items are known by then, on planned ones in part: no other model."""
    asked: list[int] = []
    model = by_id(world, KNOWN, "new", ask(world, "new", asked))
    for budget in (3, "50%"):
        assert store.update(model, budget=budget).step is not None
        assert store.update(model, budget=budget).step is None
    store.remove(["item-2"])
    assert store.update(model, budget="50%").step is None
    assert len(asked) == len(set(asked))
    other = by_id(world, KNOWN[:-1], "new")
    with pytest.raises(InvalidData, match="registered with other labelled votes"):
        store.register(other)
    wrong = truth_of(world, KNOWN).set_column(1, "truth", pa.array(["owl"] * len(KNOWN)))
    with pytest.raises(InvalidData, match="registered with other labelled votes"):
        store.register(Model("new", labelled=wrong))


def test_it_is_the_same_as_labelled_pairs(tmp_path: Path, world: World) -> None:
    stores = [small_store(tmp_path / name, world) for name in ("ids", "pairs")]
    pairs = truth_of(world, KNOWN, vote=world.votes["new"][KNOWN])
    models = [
        by_id(world, KNOWN, "new", ask(world, "new", [])),
        Model("new", labelled=pairs, predict=world.model("new").predict),
    ]
    for store, model in zip(stores, models, strict=True):
        store.update(model, budget="50%", rule="max-belief")
    one, other = (contents(store) for store in stores)
    assert one["rows"] == other["rows"]
    assert one["labels"] == other["labels"]


@pytest.mark.parametrize("stop", [4, 18])
def test_stopped_at_any_batch_it_goes_on(tmp_path: Path, world: World, stop: int) -> None:
    """Among the labelled items and among the planned ones."""
    whole = small_store(tmp_path / "whole", world)
    whole.update(by_id(world, KNOWN, "new", ask(world, "new", [])), budget="50%")
    store = small_store(tmp_path / "store", world)
    asked: list[int] = []

    def tiring(numbers: list[int]) -> None:
        if len(asked) >= stop:
            raise KeyboardInterrupt
        asked.extend(numbers)

    tired = by_id(world, KNOWN, "new", world.model("new", tiring).predict)
    with pytest.raises(KeyboardInterrupt):
        store.update(tired, budget="50%", evaluation=Evaluation(batch=4))
    assert len(store.status()["unfinished"]) == 1
    model = by_id(world, KNOWN, "new", ask(world, "new", asked))
    store.update(model, budget="50%", evaluation=Evaluation(batch=4))
    assert len(asked) == len(set(asked))
    assert contents(store)["rows"] == contents(whole)["rows"]
    assert contents(store)["labels"] == contents(whole)["labels"]
    assert store.status()["unfinished"] == []
    assert store.check() == []


def test_what_a_killed_process_left_behind_is_dropped(store: Store, world: World) -> None:
    """Killed after the model was registered, before its run was dropped."""
    model = by_id(world, KNOWN, "new", ask(world, "new", []))
    plan = store.plan(registered(store, model))
    context = Context(open_files(store.path))
    left = context.files
    store.update(model, plan=plan.id)
    left.write(f"runs/{plan.id}/votes-0.parquet", b"of a process that is gone")
    assert store.status()["unfinished"] == [plan.id]
    store.update(model, budget=5)
    assert store.status()["unfinished"] == []


def test_the_labelled_plan_may_be_carried_out_alone(store: Store, world: World) -> None:
    asked: list[int] = []
    model = by_id(world, KNOWN, "new", ask(world, "new", asked))
    plan = store.plan(registered(store, model))
    report = store.update(model, plan=plan.id)
    assert report.step is None
    assert "new is registered: right on" in str(report)
    assert asked == KNOWN
    assert store.plan("new", budget="50%").evaluations == 30


def test_votes_from_a_file_with_everything(store: Store, world: World) -> None:
    store.register(by_id(world, KNOWN, "new"))
    report = store.update(
        "new", budget="50%", votes=VoteFile(world.votes_table("new"), strict=True)
    )
    assert report.evaluations == 30
    assert store.check() == []


def test_votes_from_two_files_one_after_the_other(
    store: Store, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What goes out as a plan comes back as votes: labelled items first, then the planned ones."""
    write_table(truth_of(world, KNOWN), tmp_path / "truth.csv")
    given = ("--labelled", tmp_path / "truth.csv", "--keep-labels")
    run(capsys, "model", store.path, "new", *given)
    everything = world.votes_table("new")
    seen: list[str] = []
    for step in (None, 1):
        out, _ = run(capsys, "plan", store.path, "new", "--budget", "50%", "--out", "todo.csv")
        todo = pd.read_csv("todo.csv")["id"].tolist()
        # Items that were voted on before need not come twice, even where that is strict.
        wanted = pa.array([item for item in todo if item not in seen])
        seen += wanted.to_pylist()
        rows = pa.compute.is_in(everything["id"], value_set=wanted)
        write_table(everything.filter(rows), tmp_path / "votes.parquet")
        votes = ("--votes", tmp_path / "votes.parquet", "--strict")
        out, _ = run(capsys, "update", store.path, "new", "--budget", "50%", *votes, "--json")
        report = json.loads(out)
        assert report["step"] == step
        assert "had no vote" not in report["note"]
    assert seen[: len(KNOWN)] == [f"item-{row}" for row in KNOWN]
    assert report["evaluations"] == 30
    assert len(seen) == len(set(seen))
    assert store.check() == []


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_without_the_labelled_items_is_refused(store: Store, world: World) -> None:
    store.register(by_id(world, KNOWN, "new"))
    others = world.votes_table("new").slice(30, 20)
    with pytest.raises(InvalidData, match="must vote on its 16 labelled items first; it gave none"):
        store.update("new", votes=others)
    assert len(store.log()) == 1
    some = world.votes_table("new").slice(10, 50)  # ten of the labelled items, and others
    report = store.update("new", votes=some)
    assert report.step == 1
    assert "right on" in report.note
    known = [row for row in KNOWN if row >= 10]
    expected = counted(world.truth[known], world.votes["new"][known])
    np.testing.assert_allclose(fit_of(store, "new"), expected, rtol=1e-15)


def test_removed_labelled_items_are_left_out(store: Store, world: World) -> None:
    asked: list[int] = []
    model = by_id(world, KNOWN, "new", ask(world, "new", asked))
    store.register(model)
    store.remove(["item-0", "item-4"])
    store.compact()
    left = [row for row in KNOWN if row not in (0, 4)]
    assert store.plan("new").rows.tolist() == left
    store.update(model, budget=4)
    assert asked[: len(left)] == left
    assert {0, 4}.isdisjoint(asked)
    expected = counted(world.truth[left], world.votes["new"][left])
    np.testing.assert_allclose(fit_of(store, "new"), expected, rtol=1e-15)
    store.remove([f"item-{row}" for row in left])
    store.compact()
    with pytest.raises(InvalidData, match="Nothing tells how the model 'best' errs"):
        store.register(Model("best"))
    assert store.check() == []


def test_labelled_ids_nobody_knows_are_named(store: Store, world: World) -> None:
    some = pa.concat_tables([truth_of(world, KNOWN), pa.table({"id": ["x1"], "truth": ["cat"]})])
    done = store.register(Model("new", labelled=some, keep_labels=True))
    assert done.pending == len(KNOWN)
    assert done.warning == "1 labelled ids are not in the store, such as 'x1'"
    assert str(done).endswith(f"\nwarning: {done.warning}")
    model = Model("best", labelled=some, predict=world.model("best").predict)
    note = store.update(model, budget=3).note
    assert done.warning in note
    assert "of 16 labelled items" in note
    with pytest.raises(InvalidData, match=r"None of the 2 labelled ids of 'm' .*: \['a', 'b'\]"):
        store.register(Model("m", labelled={"id": ["a", "b"], "truth": ["cat", "dog"]}))
    with pytest.raises(InvalidData, match="ids are of type string; got int64"):
        store.register(Model("m", labelled={"id": [1, 2], "truth": ["cat", "dog"]}))
    with pytest.raises(InvalidData, match="an item more than once"):
        store.register(Model("m", labelled={"id": ["item-1"] * 2, "truth": ["cat", "dog"]}))
    with pytest.raises(InvalidData, match=r"no ids of stored items; it has: truth"):
        store.register(Model("m", labelled={"truth": ["cat", "dog"]}))
    assert store.status()["models"] == ["old", "new", "best"]


def test_integer_ids_keep_their_type(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=[False, True])
    store.add({"id": list(range(10))})
    (tmp_path / "truth.csv").write_text("id,truth\n3,true\n1,false\n7,true\n")
    model = Model(
        "m",
        labelled=tmp_path / "truth.csv",
        predict=lambda batch: [number > 4 for number in batch["id"].to_pylist()],
        keep_labels=True,
    )
    assert store.plan(registered(store, model)).rows.tolist() == [1, 3, 7]
    report = store.update(model)
    assert report.evaluations == 10
    assert "right on 66.7 % of 3 labelled items" in report.note
    assert store.check() == []


def test_the_truth_one_model_came_with_serves_the_next(store: Store, world: World) -> None:
    with pytest.raises(InvalidData, match="Nothing tells how the model 'mid' errs") as refused:
        store.update(Model("mid", predict=world.model("mid").predict))
    assert "truth of some stored items by id, a confusion matrix" in str(refused.value)
    store.update(by_id(world, KNOWN, "new", ask(world, "new", [])), budget=5)
    asked: list[int] = []
    report = store.update(Model("mid", predict=ask(world, "mid", asked)), budget=5)
    assert asked[: len(KNOWN)] == KNOWN
    assert report.evaluations == 5
    expected = counted(world.truth[KNOWN], world.votes["mid"][KNOWN])
    np.testing.assert_allclose(fit_of(store, "mid"), expected, rtol=1e-15)
    assert store.check() == []


def test_a_registration_that_was_cut_short_counts_once(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labelled rows are written first: another try, or another process, writes them again."""
    commit, calls = register._commit, []

    def losing(*given: Any) -> None:
        calls.append(given)
        if len(calls) in (1, 3):
            raise CommitConflict("somebody else registered a model")
        commit(*given)

    monkeypatch.setattr(register, "_commit", losing)
    model = by_id(world, KNOWN, "new", ask(world, "new", []))
    store.register(model)
    assert store.plan("new").rows.tolist() == KNOWN
    report = store.update(model, budget=5)
    assert len(calls) == 4
    assert "of 16 labelled items" in report.note
    expected = counted(world.truth[KNOWN], world.votes["new"][KNOWN])
    np.testing.assert_allclose(fit_of(store, "new"), expected, rtol=1e-15)


def test_two_processes_learn_at_the_same_time(store: Store, world: World) -> None:
    model = by_id(world, KNOWN, "new", ask(world, "new", []))
    store.register(model)

    def interfering(_: list[int]) -> None:
        if not done:
            done.append(Store(store.path).update(model, budget=5))

    done: list[Any] = []
    slow = Model("new", predict=world.model("new", interfering).predict)
    report = store.update(slow, budget=5)
    assert done[0].step == report.step or report.step is None
    assert len(store.log()) == 2
    assert store.check() == []


def test_a_model_that_fails_on_a_labelled_item(store: Store, world: World) -> None:
    def failing(batch: pa.Table) -> Any:
        numbers = batch["number"].to_pylist()
        if 4 in numbers:
            raise RuntimeError("cannot see")
        return world.votes["new"][numbers]

    report = store.update(by_id(world, KNOWN, "new", failing), budget=2)
    assert "of 15 labelled items" in report.note
    with pytest.raises(StoreError, match="failed on 1 item, more than 0"):
        store.update(
            by_id(world, KNOWN, "mid", failing), budget=2, evaluation=Evaluation(max_errors=0)
        )
    assert store.plan("mid").rows.tolist() == KNOWN  # nothing is lost, nothing is known
    assert store.check() == []


# Stated: a confusion matrix, one accuracy

PROBABILITIES = np.array(
    [[0.9, 0.1, 0.0, 0.0], [0.2, 0.6, 0.1, 0.1], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.25, 0.25]]
)
"""Truths in rows."""
COUNTS = np.array([[9, 1, 0, 0], [4, 12, 2, 2], [0, 0, 3, 0], [0, 0, 0, 0]])


def named(table: np.ndarray, order: list[int]) -> dict[str, Any]:
    """A table with names, truths and votes in any order."""
    columns = {str(NAMES[vote]): table[order, vote] for vote in reversed(order)}
    return {**columns, "truth": NAMES[order]}


FORMS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "array": lambda table, _: table,
    "lists": lambda table, _: table.tolist(),
    "dict": lambda table, _: named(table, [2, 0, 3, 1]),
    "pandas": lambda table, _: pd.DataFrame(named(table, [1, 0, 3, 2])),
    "arrow": lambda table, _: pa.table(named(table, [3, 0, 1, 2])),
    "csv": lambda table, path: _written(table, path / "matrix.csv"),
    "parquet": lambda table, path: str(_written(table, path / "matrix.parquet")),
}


def _written(table: np.ndarray, path: Path) -> Path:
    write_table(pa.table(named(table, [1, 3, 0, 2])), path)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_in_every_form(empty: Store, tmp_path: Path, form: str) -> None:
    empty.register(Model("said", confusion=FORMS[form](PROBABILITIES, tmp_path)))
    done = empty.register(Model("counted", confusion=FORMS[form](COUNTS, tmp_path)))
    expected = naive.floored(PROBABILITIES.T.tolist(), FLOOR)
    np.testing.assert_allclose(fit_of(empty, "said"), expected, rtol=1e-12)
    np.testing.assert_allclose(fit_of(empty, "counted"), naive.full(COUNTS.T.tolist()), rtol=1e-15)
    assert (done.labelled, done.accuracy) == (33, 24 / 33)


def test_a_confusion_object(empty: Store) -> None:
    known = Confusion.from_matrix(PROBABILITIES, truth="rows")
    done = empty.register(Model("m", confusion=known))
    assert "stated, not counted" in done.warning
    np.testing.assert_allclose(fit_of(empty, "m"), known.probabilities, rtol=1e-12)
    for classes in (3, 5):
        wrong = Confusion.from_accuracy(0.8, classes=classes)
        with pytest.raises(InvalidData, match="must be 4 × 4"):
            empty.register(Model("n", confusion=wrong))


def test_what_was_stated_is_told_again(empty: Store) -> None:
    for at, said in enumerate(
        ({"confusion": PROBABILITIES}, {"confusion": COUNTS}, {"accuracy": 0.8})
    ):
        first = empty.register(Model(f"m{at}", **said))  # type: ignore[arg-type]
        again = empty.register(Model(f"m{at}", cost=3.0))
        assert again == replace(first, cost=3.0)
        assert empty.plan(f"m{at}", budget=2).cost == 6.0


def test_a_table_of_integer_classes_goes_by_name(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=[3, 1, 2])
    store.add({"id": ["a"]})
    table = {"truth": [1, 2, 3], "1": [5, 0, 0], "2": [1, 7, 0], "3": [0, 0, 9]}
    write_table(pa.table(table), tmp_path / "matrix.csv")
    expected = naive.full([[9, 0, 0], [0, 5, 0], [0, 1, 7]])
    forms = (table, pa.table(table), pd.DataFrame(table), tmp_path / "matrix.csv")
    for at, form in enumerate(forms):
        store.register(Model(f"m{at}", confusion=form))
        np.testing.assert_allclose(fit_of(store, f"m{at}"), expected, rtol=1e-15)
    mixed = {**table, "nine": [0, 0, 0]}
    with pytest.raises(InvalidData, match="confusion matrix's columns"):
        store.register(Model("n", confusion=mixed))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(3), r"must be 4 × 4, .*; got shape \(3, 3\)"),
        (np.ones((4, 5)), r"got shape \(4, 5\)"),
        (np.ones(4), r"got shape \(4,\)"),
        (0.9, r"got shape \(\)"),
        (np.full((4, 4), 0.3), "must hold counts"),
        (np.zeros((4, 4)), "must hold counts"),
        (-np.eye(4), "must hold counts"),
        (np.full((4, 4), np.nan), "must hold counts"),
        (np.full((4, 4), np.inf), "must hold counts"),
        (np.full((4, 4), 1e308), "at most 9,007,199,254,740,991 in all"),
        (np.eye(4) * 2**53, "at most 9,007,199,254,740,991 in all"),
        (np.eye(4, dtype=np.int64) * 2**62, "at most 9,007,199,254,740,991 in all"),
        (np.full((4, 4), 2**63, dtype=np.uint64), "at most 9,007,199,254,740,991 in all"),
        (np.eye(4) * 10 + 0.5, "must hold counts"),
        ([["a"] * 4] * 4, "must hold numbers"),
        ([[1, 2], [3]], "is no array"),
        ("nothing.csv", "There is no file"),
        ({"cat": [1]}, "has no column 'truth'"),
        ({"truth": ["cat"], "cat": [1]}, "one row for each of the 4 classes"),
        ({"truth": NAMES, "cow": [1, 1, 1, 1]}, "unknown classes in 1 row: \\['cow'\\]"),
        ({"truth": NAMES, "cat": ["x", "y", "z", "w"]}, "column 'cat' holds no numbers"),
    ],
)
def test_what_is_no_matrix_is_refused(untouched: Store, matrix: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        untouched.register(Model("m", confusion=matrix))
    assert untouched.status()["models"] == []


@pytest.mark.parametrize("accuracy", [-0.1, 1.1, float("nan"), float("inf"), [0.5] * 4, True])
def test_accuracies_out_of_range(untouched: Store, accuracy: Any) -> None:
    with pytest.raises(InvalidParameter, match="accuracy"):
        untouched.register(Model("m", accuracy=accuracy))
    assert untouched.status()["models"] == []


def test_two_forms_at_once_are_refused(world: World) -> None:
    labelled = world.labelled_table("new")
    for forms in (
        {"labelled": labelled, "accuracy": 0.9},
        {"labelled": labelled, "confusion": COUNTS},
        {"confusion": COUNTS, "accuracy": 0.0},
    ):
        with pytest.raises(InvalidParameter, match="one of labelled, confusion"):
            Model("m", **forms)


def test_beliefs_of_stated_confusions_are_the_formulas(tmp_path: Path, world: World) -> None:
    empty = Store.create(tmp_path / "even", classes=NAMES, prior="uniform")
    empty.add(world.table())
    models = [
        Model("old", confusion=PROBABILITIES, predict=world.model("old").predict),
        Model("mid", accuracy=0.7, predict=world.model("mid").predict),
        Model("new", confusion=COUNTS, predict=world.model("new").predict),
        Model("best", accuracy=1.0, predict=world.model("best").predict),
    ]
    confusions = [
        naive.floored(PROBABILITIES.T.tolist(), FLOOR),
        naive.spread([0.7] * 4),
        naive.full(COUNTS.T.tolist()),
        naive.floored(naive.spread([1.0] * 4), FLOOR),
    ]
    for model in models:
        empty.update(model, budget="100%", rule="max-belief")
    found = {row["row"]: row for row in empty.beliefs(top=4).to_pylist()}
    for row in range(60):
        votes = [codes_of([world.votes[model.name][row]])[0] for model in models]
        joint = naive.log_joint([0.25] * 4, votes, confusions)
        believed = naive.belief(joint)
        told = dict(zip(found[row]["classes"], found[row]["beliefs"], strict=True))
        assert [told[name] for name in NAMES] == pytest.approx(believed, rel=1e-9, abs=1e-15)
    assert empty.check() == []


def test_a_rehearsal_says_why_it_cannot_be(store: Store, world: World) -> None:
    for model in (
        Model("said", accuracy=0.9),
        Model("few", labelled=world.labelled_table("new").slice(0, 19)),
        Model("bare", labelled=world.labelled_table("new").drop_columns(["id"])),
    ):
        plan = store.plan(registered(store, model))
        assert plan.rehearsed is None
        assert "no rehearsal: its models have too few labelled items in common" in str(plan)
        assert "or a stated confusion" in str(plan)


def test_a_rehearsal_on_votes_that_are_mostly_missing(store: Store, world: World) -> None:
    """A vote in one half of the labelled items says nothing about the other."""
    votes = [*world.labelled["new"][:1], *[None] * 79]
    labelled = world.labelled_table("new").set_column(2, "vote", pa.array(votes))
    assert store.plan(registered(store, Model("new", labelled=labelled))).rehearsed is None


# How well that is founded


def wilson(right: int, total: int) -> tuple[float, float]:
    """The two shares p at which (right/total − p)² = z²·p(1−p)/total."""
    z2, share = 1.96**2, right / total
    a, b, c = 1 + z2 / total, -(2 * share + z2 / total), share * share
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


@pytest.mark.parametrize(("right", "total"), [(0, 1), (1, 1), (3, 7), (60, 80), (400, 400)])
def test_intervals_are_wilsons(empty: Store, right: int, total: int) -> None:
    labelled = {"truth": ["cat"] * total, "vote": ["cat"] * right + ["dog"] * (total - right)}
    done = empty.register(Model("m", labelled=labelled))
    assert done.labelled == total
    assert done.accuracy == right / total
    assert done.interval == pytest.approx(wilson(right, total), abs=1e-12)
    assert done.interval is not None
    low, high = done.interval
    if (high - low) / 2 > 0.05:
        points = round(50 * (high - low))
        assert f"{total} labelled items tell the accuracy only to ±{points} points" in done.warning
    else:
        assert "points" not in done.warning
    few = 3 + (total < 5)
    assert f"{few} of 4 classes have fewer than 5 labelled items, 3 have none" in done.warning
    assert empty.register(Model("m")) == done  # told again when asked again


def test_enough_data_is_no_warning(empty: Store) -> None:
    truth = NAMES.tolist() * 200
    done = empty.register(Model("m", labelled={"truth": truth, "vote": truth}))
    assert done.warning == ""
    assert "warning" not in str(done)


# Registering again


def test_what_is_said_anew_keeps_the_rest(store: Store, world: World) -> None:
    labelled = world.labelled_table("new")
    store.register(
        Model(
            "new",
            labelled=labelled,
            cost=1.0,
            predict="a.b:c",
            class_map={"wolf": "fox"},
            other="owl",
            soft=2,
        )
    )
    before = fit_of(store, "new")

    def settings() -> dict[str, Any]:
        told = asdict(Context(open_files(store.path)).model("new").settings)
        kept = ("cost", "predict", "class_map", "other", "soft", "classes")
        return {key: told[key] for key in kept}

    first = settings()
    store.register(Model("new", cost=np.float32(0)))  # type: ignore[arg-type]
    assert settings() == first | {"cost": 0.0}
    store.register(Model("new", predict="d.e:f"))
    assert settings() == first | {"cost": 0.0, "predict": "d.e:f"}
    store.register(Model("new", soft=np.int64(3)))  # type: ignore[arg-type]
    assert settings()["soft"] == 3
    np.testing.assert_array_equal(fit_of(store, "new"), before)
    with pytest.raises(InvalidData, match="registered with other labelled votes"):
        store.register(Model("new", accuracy=0.5))


def test_a_price_of_nothing_is_known(store: Store, world: World) -> None:
    """Also where the model still had to vote on its labelled items."""
    store.register(by_id(world, KNOWN, "new"))
    assert store.plan("new").cost is None
    votes = truth_of(world, KNOWN, vote=world.votes["new"][KNOWN])
    store.register(Model("new", labelled=votes, cost=0))
    assert store.plan("new").cost == 0.0


# Callables


class Loading:
    """A model with state."""

    made = 0
    batches: list[int] = []  # noqa: RUF012 shared on purpose: the test reads it

    def __init__(self) -> None:
        type(self).made += 1

    def __call__(self, batch: pa.Table) -> list[str]:
        type(self).batches.append(batch.num_rows)
        return ["cat"] * batch.num_rows


@pytest.fixture
def _loading() -> None:
    Loading.made = 0
    Loading.batches = []


@pytest.mark.usefixtures("_loading")
@pytest.mark.parametrize("given", [Loading, f"{__name__}:Loading"])
def test_a_class_is_made_once_an_update(store: Store, world: World, given: Any) -> None:
    model = by_id(world, KNOWN, "new", given)
    store.register(model)
    store.plan(registered(store, model))
    assert Loading.made == 0
    store.update(
        model, budget="50%", evaluation=Evaluation(batch=7)
    )  # labelled items, then planned ones
    assert Loading.made == 1
    assert Loading.batches[:3] == [7, 7, 2]
    assert max(Loading.batches) == 7
    store.update("new" if isinstance(given, str) else model, budget="50%", more=True)
    assert Loading.made == 2
    assert store.update(model, budget="50%").step is None
    assert Loading.made == 2  # nobody was asked


def test_a_model_that_cannot_be_loaded_stops_at_once(store: Store, world: World) -> None:
    made: list[int] = []

    class Broken:
        def __init__(self) -> None:
            made.append(1)
            raise OSError("no weights")

    class Mute:
        pass

    before = contents(store)
    for broken, message in ((Broken, "cannot be loaded: OSError"), (Mute, "is not callable")):
        model = Model("new", labelled=world.labelled_table("new"), predict=broken)  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match=message):
            store.update(model, budget="50%", evaluation=Evaluation(batch=5))
    assert made == [1]
    assert contents(store) == before
    assert store.status()["unfinished"] == []
    model = world.model("new")
    assert store.update(model, budget="50%").evaluations == 30


def test_a_model_that_is_lost_half_way_keeps_its_votes(store: Store, world: World) -> None:
    asked: list[int] = []

    def leaving(numbers: list[int]) -> None:
        if len(asked) >= 10:
            raise Unavailable("gone")
        asked.extend(numbers)

    with pytest.raises(Unavailable, match="gone"):
        store.update(world.model("new", leaving), budget="50%", evaluation=Evaluation(batch=5))
    store.update(world.model("new", asked.extend), budget="50%", evaluation=Evaluation(batch=5))
    assert len(asked) == len(set(asked)) == 30


@pytest.mark.parametrize("form", ["names", "list", "codes", "arrow", "probabilities", "lists"])
def test_votes_in_every_form(store: Store, world: World, form: str) -> None:
    def predict(batch: pa.Table) -> Any:
        numbers = batch["number"].to_numpy()
        names = world.votes["new"][numbers]
        told = np.array(codes_of(names))
        return {
            "names": names,
            "list": names.tolist(),
            "codes": told,
            "arrow": pa.array(names.tolist()),
            "probabilities": np.eye(4)[told] * 0.7 + 0.075,
            "lists": (np.eye(4)[told] * 0.7 + 0.075).tolist(),
        }[form]

    store.update(
        Model("new", labelled=world.labelled_table("new"), predict=predict),
        budget="50%",
        evaluation=Evaluation(batch=11),
    )
    rows = [row for row in contents(store)["rows"] if row["step"] == 1]
    assert [NAMES[row["vote"]] for row in rows] == [world.votes["new"][row["row"]] for row in rows]
    assert store.check() == []


class Ordered:
    """Names its classes, in an order of its own."""

    classes = ("owl", "fox", "dog", "cat")

    def __init__(self) -> None:
        self.world = World()

    def __call__(self, batch: pa.Table) -> Any:
        codes = 3 - np.array(codes_of(self.world.votes["new"][batch["number"].to_numpy()]))
        return codes if batch.num_rows % 2 else np.eye(4)[codes] * 0.6 + 0.1


def test_a_model_that_names_its_own_classes(store: Store, world: World) -> None:
    model = by_id(world, KNOWN, "new", Ordered)
    store.update(model, budget="50%", evaluation=Evaluation(batch=5))
    expected = counted(world.truth[KNOWN], world.votes["new"][KNOWN])
    np.testing.assert_allclose(fit_of(store, "new"), expected, rtol=1e-15)
    rows = [row for row in contents(store)["rows"] if row["step"] == 1]
    assert [NAMES[row["vote"]] for row in rows] == [world.votes["new"][row["row"]] for row in rows]


ANSWERS: list[tuple[Callable[[int], Any], str]] = [
    (lambda n: [None] * n, "gave no vote in row 0"),
    (lambda n: [4] * n, "between 0 and 3; got 4"),
    (lambda n: [-1] * n, "between 0 and 3; got -1"),
    (lambda n: ["cow"] * n, "unknown classes"),
    (lambda n: [True] * n, "type str"),
    (lambda n: [0.0] * n, "names of one type, codes or probabilities; got float"),
    (lambda n: np.zeros((n, 4)), "all zero"),
    (lambda n: np.full((n, 4), np.nan), "finite"),
]


def test_answers_that_are_none(store: Store, world: World) -> None:
    def model_of(name: str, answer: Callable[[int], Any]) -> Model:
        labelled = world.labelled_table("new")
        return Model(name, labelled=labelled, predict=lambda batch: answer(batch.num_rows))

    for at, (answer, message) in enumerate(ANSWERS):
        model = model_of(f"new {at}", answer)
        with pytest.raises(StoreError, match=message):
            store.update(model, budget=6, evaluation=Evaluation(max_errors=2))
    assert len(store.log()) == 1
    assert store.check() == []


def test_the_plan_of_labelled_items_is_no_other_models(store: Store, world: World) -> None:
    for name in ("new", "mid"):
        store.register(by_id(world, KNOWN, name))
    context = Context(open_files(store.path))
    plans = {name: store.plan(name) for name in ("new", "mid")}
    assert plans["new"].id != plans["mid"].id
    again = labelled_plan(context, plans["mid"].request)
    assert again.id == plans["mid"].id


def test_numbers_in_a_csv_are_texts_where_ids_are(tmp_path: Path) -> None:
    """A part of the ids may look like numbers when all of them together do not."""
    store = Store.create(tmp_path / "store", classes=["cat", "dog"])
    votes = {"id": ["17", "18", "x"], "pred": ["cat", "dog", "dog"]}
    (tmp_path / "truth.csv").write_text("id,truth\n17,cat\n18,cat\n")
    known = Model("old", labelled=tmp_path / "truth.csv", keep_labels=True)
    done = store.import_predictions(votes, {"pred": known})
    assert done.registrations[0]["labelled"] == 2
    (tmp_path / "votes.csv").write_text("id,vote\n18,cat\n")
    new = Model("new", accuracy=0.9)
    report = store.update(new, votes=tmp_path / "votes.csv", budget="100%", rule="replace")
    assert (report.evaluations, report.flips) == (1, 1)


def test_more_items_with_the_same_truth(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["cat", "dog"])
    truth = {"id": ["a", "b"], "truth": ["cat", "dog"]}
    for ids in (["a", "b", "c"], ["d", "e", "f"]):
        votes = {"id": ids, "pred": ["cat", "dog", "dog"]}
        store.import_predictions(votes, {"pred": Model("old", labelled=truth)})
    assert [header.kind for header in store.log()] == ["update", "review", "update"]
    assert store.labels()["label"].null_count == 0
    assert store.check() == []


def test_soft_votes_on_labelled_items_stay_soft(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["cat", "dog"])
    ids = [f"i{number}" for number in range(12)]
    truth = {"id": ids[:6], "truth": ["cat", "dog"] * 3}
    old = Model("old", labelled=truth, keep_labels=True)
    store.import_predictions({"id": ids, "pred": ["cat", "dog"] * 6}, {"pred": old})
    soft = Model("soft", predict=lambda batch: np.tile([0.7, 0.3], (batch.num_rows, 1)), soft=2)
    assert store.update(soft, budget="100%").evaluations == 12
    ledger = DeltaTable(f"{store.path}/ledger").to_pyarrow_table().to_pylist()
    weights = [row["soft_weights"] for row in ledger if row["step"] == 1 and row["row"] is not None]
    assert len(weights) == 12
    for given in weights:
        assert given == pytest.approx([0.7, 0.3])
    assert store.check() == []


def test_a_report_says_what_was_held_back_and_what_learning_took(
    store: Store, world: World
) -> None:
    """A better model with few flips is no riddle, and no vote is paid for in silence."""
    store.register(by_id(world, KNOWN, "new"))
    report = store.update(
        Model("new", predict=world.model("new").predict), budget="100%", rule="cost-ratio:1000"
    )
    assert report.labelled_evaluations == len(KNOWN)
    believed = {row["id"]: row["classes"][0] for row in store.beliefs(top=1).to_pylist()}
    kept = [row for row in store.labels().to_pylist() if row["label"] != believed[row["id"]]]
    assert report.held_back == len(kept) > 0
    assert f"{len(kept)} other labels are believed less than another" in str(report)


def test_a_model_that_fails_on_all_labelled_items_is_tried_again(
    store: Store, world: World
) -> None:
    store.register(by_id(world, KNOWN, "new"))

    def broken(_: pa.Table) -> Any:
        raise RuntimeError("no weights")

    for _ in range(2):
        with pytest.raises(StoreError, match=r"failed on all 16 labelled items .*no weights"):
            store.update(Model("new", predict=broken))
    assert store.update(Model("new", predict=world.model("new").predict)).step == 1


def test_labelled_ids_may_join_later(store: Store, world: World) -> None:
    """Truth of items that were not there yet says nothing against the truth of those that were."""
    ids = [f"item-{row}" for row in (*KNOWN, 900)]
    truth = {"id": ids, "truth": [*world.truth[KNOWN], "cat"]}
    model = Model("new", labelled=truth, predict=world.model("new").predict)
    store.update(model, budget="10%")
    store.add({"id": ["item-900"], "number": [0], "lang": ["de"]})
    assert store.update(model, budget="10%").evaluations == 0
    plan = f"labelled-{'0' * 16}-1"
    assert "is registered" in store.update("new", plan=plan, votes=world.votes_table("new")).note


def test_a_query_of_a_url_is_not_told(store: Store) -> None:
    secret = "https://example.org/predict?user=SECRET,column=number"
    told = store.register(Model("served", accuracy=0.9, predict=secret))
    assert told.source == "https://example.org/predict"
    assert "SECRET" not in f"{told} {told.to_dict()} {store.register(Model('served', cost=1.0))}"
