"""Truth of stored items that a user gives with a model: it becomes their label, once, by a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from posterity import Model, Store
from posterity.cli import run as cli
from posterity.engine.ledger.context import Context
from posterity.engine.steps import review
from posterity.errors import InvalidParameter
from posterity.storage.files import open_files
from tests.stores import NAMES, World, contents

KNOWN = list(range(0, 60, 3))
"""The items whose truth the user knows."""


@pytest.fixture
def world() -> World:
    return World()


def truth_of(world: World, rows: list[int]) -> pa.Table:
    return pa.table({"id": [f"item-{row}" for row in rows], "truth": world.truth[rows]})


def imported(path: Path, world: World, **given: Any) -> Store:
    """A store with labels of the model old, and the truth of some items."""
    store = Store.create(path, classes=NAMES, shard_rows=25)
    table = world.table().append_column("old", [world.votes["old"]])
    labelled = given.pop("labelled", truth_of(world, KNOWN))
    store.import_predictions(table, {"old": Model("old", labelled=labelled, **given)})
    return store


def labels(store: Store) -> list[Any]:
    return list(store.labels().column("label").to_pylist())


def expected_labels(world: World, known: list[int]) -> list[Any]:
    after = world.votes["old"].copy()
    after[known] = world.truth[known]
    return list(after.tolist())


def test_a_given_truth_is_a_label(tmp_path: Path, world: World) -> None:
    store = imported(tmp_path / "store", world)
    assert labels(store) == expected_labels(world, KNOWN)
    step = store.log()[-1]
    wrong = int((world.votes["old"][KNOWN] != world.truth[KNOWN]).sum())
    assert (step.kind, step.model, step.flips, step.answers) == ("review", "old", wrong, len(KNOWN))
    assert store.history("item-3")[-1]["reason"] == "truth given with old"
    assert "the truth, given with old (step 1)" in str(store.explain("item-3"))
    reasons = set(store.flips(1).column("reason").to_pylist())
    assert reasons == {"truth given with old"}
    assert store.status()["reviewed"] == len(KNOWN)
    assert store.check() == []


def test_no_vote_is_bought_for_known_items_but_to_learn_how_a_model_errs(
    tmp_path: Path, world: World
) -> None:
    store = imported(tmp_path / "store", world)
    asked: list[int] = []
    new = Model("new", predict=world.model("new", asked.extend).predict)
    store.register(new)
    assert store.update(new, budget=0).labelled_evaluations == len(KNOWN)
    assert sorted(asked) == KNOWN
    plan = store.plan("new", budget="50%")
    assert (plan.eligible, plan.evaluations) == (40, 20)
    store.update(new, budget="100%")
    assert sorted(asked) == list(range(60))  # each once, and the known ones at first
    voted = {row["row"] for row in contents(store)["rows"] if row["step"] == 2}
    assert voted == set(range(60)) - set(KNOWN)
    assert store.check() == []


@pytest.mark.parametrize("by", ["register", "update"])
def test_the_same_again_is_done_once(tmp_path: Path, world: World, by: str) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    store.add(world.table())
    predict = world.model("old").predict
    model = Model("old", labelled=truth_of(world, KNOWN), predict=predict)
    told = str(store.register(model)) if by == "register" else str(store.update(model))
    assert "step 0: truth given with old for 20 items; 0 labels were wrong" in told
    assert "20 missing" in told
    again = str(store.register(model)) if by == "register" else str(store.update(model))
    assert "truth given" not in again
    assert [header.kind for header in store.log() if header.model] == (
        ["review"] if by == "register" else ["review", "update"]
    )
    store.update(model)
    assert labels(store) == expected_labels(world, KNOWN)
    assert store.check() == []


def test_an_import_again_is_done_once(tmp_path: Path, world: World) -> None:
    store = imported(tmp_path / "store", world)
    imported(tmp_path / "store", world)
    assert [header.kind for header in store.log()] == ["update", "review"]


def test_the_user_may_decline(tmp_path: Path, world: World) -> None:
    store = imported(tmp_path / "store", world, keep_labels=True)
    assert [header.kind for header in store.log()] == ["update"]
    kept = Model("old", labelled=truth_of(world, KNOWN), keep_labels=True)
    assert store.register(kept).labels == ""
    # A model that is told the same truth by the store declines as well.
    store.update(Model("new", predict=world.model("new").predict), budget=5)
    assert [header.kind for header in store.log()] == ["update", "update"]
    store.register(Model("old", labelled=truth_of(world, KNOWN)))
    assert store.log()[-1].kind == "review"
    with pytest.raises(InvalidParameter, match=r"keep_labels \(--keep-labels\) is about labelled"):
        Model("other", accuracy=0.5, keep_labels=True)


def test_killed_before_the_step_the_same_call_makes_it(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(review, "make_step", killed)
        with pytest.raises(KeyboardInterrupt):
            imported(tmp_path / "store", world)
    store = Store(tmp_path / "store")
    assert [header.kind for header in store.log()] == ["update"]
    imported(tmp_path / "store", world)
    assert labels(store) == expected_labels(world, KNOWN)


def test_a_revert_is_not_undone_by_the_next_registration(tmp_path: Path, world: World) -> None:
    store = imported(tmp_path / "store", world)
    reverted = store.revert(1)
    assert labels(store) == world.votes["old"].tolist()
    assert reverted.items == len(KNOWN)
    for name in ("old", "new"):
        assert store.register(Model(name, labelled=truth_of(world, KNOWN))).labels == ""
    assert labels(store) == world.votes["old"].tolist()
    store.revert(2)
    assert labels(store) == expected_labels(world, KNOWN)
    assert store.check() == []


def test_truth_of_items_that_come_later(tmp_path: Path) -> None:
    whole = World(80)
    truth = truth_of(whole, [0, 3, 60, 79])
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    store.add(whole.table(0, 60))
    model = Model("old", labelled=truth, predict=whole.model("old").predict)
    store.update(model)
    store.add(whole.table(60, 80))
    assert "step 2: truth given with old for 2 items" in store.register(model).labels
    assert [labels(store)[row] for row in (0, 3, 60, 79)] == whole.truth[[0, 3, 60, 79]].tolist()
    assert labels(store)[61] is None
    assert store.register(model).labels == ""
    assert store.check() == []


def _other(label: str) -> str:
    return str(next(name for name in NAMES.tolist() if name != label))


def test_what_a_person_answers_holds(tmp_path: Path, world: World) -> None:
    """Whether before the truth was given or after it."""
    store = imported(tmp_path / "store", world, keep_labels=True)
    before, after = _other(str(world.truth[3])), _other(str(world.truth[6]))
    store.review({"id": ["item-3"], "answer": [before]})
    model = Model("old", labelled=truth_of(world, KNOWN))
    told = store.register(model).labels
    assert "for 19 items" in told
    assert "1 item keeps another label that a person gave" in told
    store.review({"id": ["item-6"], "answer": [after]})
    store.register(model)
    assert (labels(store)[3], labels(store)[6]) == (before, after)
    assert labels(store)[9] == world.truth[9]
    assert [header.kind for header in store.log()] == ["update", "review", "review", "review"]
    store.revert(3)  # the truth is what is left
    assert labels(store)[6] == world.truth[6]
    assert store.check() == []


def test_a_later_truth_takes_the_place_of_an_earlier_one(tmp_path: Path, world: World) -> None:
    store = imported(tmp_path / "store", world)
    corrected = world.truth.copy()
    corrected[3] = _other(str(world.truth[3]))
    table = pa.table({"id": [f"item-{row}" for row in KNOWN], "truth": corrected[KNOWN]})
    new = Model("new", labelled=table, predict=world.model("new").predict)
    assert "for 1 item; 1 label was wrong" in store.register(new).labels
    for _ in range(2):  # in turn, every night: neither is given again
        store.register(Model("old", labelled=truth_of(world, KNOWN)))
        store.register(new)
    assert labels(store)[3] == corrected[3]
    assert len(store.log()) == 3
    assert store.check() == []


@pytest.mark.parametrize("kind", ["votes beside", "no ids", "other ids"])
def test_keys_that_only_look_like_ids_decide_nothing(
    tmp_path: Path, world: World, kind: str
) -> None:
    """A validation set may be numbered as the items are, and be about others."""
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add({"id": list(range(60)), "number": list(range(60))})
    own = world.labelled_table("old")
    ids = {"votes beside": range(80), "no ids": None, "other ids": range(1000, 1080)}[kind]
    columns = {"truth": own["truth"], "vote": own["vote"]}
    labelled = pa.table(columns if ids is None else {"id": list(ids)} | columns)
    model = Model("old", labelled=labelled, predict=world.model("old").predict)
    assert store.register(model).labels == ""
    store.update(model)
    assert [header.kind for header in store.log()] == ["update"]
    assert labels(store) == world.votes["old"].tolist()


def test_votes_that_are_there_already_change_no_known_label(tmp_path: Path, world: World) -> None:
    store = imported(tmp_path / "store", world)
    new = Model("new", predict=world.model("new").predict)
    store.update(new, budget=0)
    report = store.update("new", votes=world.votes_table("new"), rule="replace")
    assert (report.evaluations, report.pinned) == (60, len(KNOWN))
    assert "20 votes were on items whose label is an answer or a given truth" in str(report)
    after = world.votes["new"].copy()
    after[KNOWN] = world.truth[KNOWN]
    assert labels(store) == after.tolist()
    assert store.log()[-1].share == 1.0
    assert store.check() == []


def test_plain_beliefs_and_whole_numbers_as_ids(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, beliefs="plain")
    table = pa.table({"id": list(range(60)), "old": world.votes["old"]})
    (tmp_path / "truth.csv").write_text(
        "id,truth\n" + "".join(f"{row},{world.truth[row]}\n" for row in KNOWN)
    )
    store.import_predictions(table, {"old": Model("old", labelled=tmp_path / "truth.csv")})
    store.remove([0])
    assert labels(store) == expected_labels(world, KNOWN)[1:]
    store.compact()
    assert store.check() == []


def test_known_items_do_not_distort_what_is_expected(tmp_path: Path) -> None:
    """The labelled items stand for the others, whose share and number a step is rehearsed for."""
    world = World(items=2000)
    known = list(range(0, 2000, 4))
    stores = [
        imported(tmp_path / f"{keep}", world, labelled=truth_of(world, known), keep_labels=keep)
        for keep in (False, True)
    ]
    of_truth, of_votes = (store.status()["expected_accuracy"] for store in stores)
    for end in ("value", "low", "high"):  # a quarter is right, the others are as they were
        assert of_truth[end] == pytest.approx(0.25 + 0.75 * of_votes[end], abs=0.01)
    labelled = np.isin(np.arange(2000), known)
    for store, others in zip(stores, (~labelled, ~labelled | labelled), strict=True):
        new = Model("new", predict=world.model("new").predict)
        store.update(new, budget=0)
        plan = store.plan("new", budget="40%", rule="cost-ratio:2")
        assert plan.evaluations == round(0.4 * others.sum())
        assert plan.rehearsed is not None
        assert plan.rehearsed["evaluations"] == pytest.approx(0.4 * len(known), abs=1)
        assert plan.forecast is not None
        report = store.update(new, budget="40%", rule="cost-ratio:2")
        assert store.log()[-1].share == pytest.approx(0.4, abs=0.001)
        flips = store.flips(report.step).to_pylist()
        fixed = sum(flip["new"] == world.truth[flip["row"]] for flip in flips)
        broken = sum(flip["old"] == world.truth[flip["row"]] for flip in flips)
        assert plan.forecast["low"] <= fixed - broken <= plan.forecast["high"]
        right = float((np.array(labels(store)) == world.truth).mean())
        expected = store.status()["expected_accuracy"]
        assert expected["low"] <= right <= expected["high"]
        assert (expected["high"] - expected["low"]) < 0.1


def test_where_all_is_known_nothing_is_left_to_do(tmp_path: Path, world: World) -> None:
    store = imported(tmp_path / "store", world, labelled=truth_of(world, list(range(60))))
    assert store.status()["expected_accuracy"]["value"] == 1.0
    new = Model("new", predict=world.model("new").predict, cost=1.0)
    store.update(new, budget=0)
    assert store.plan("new", budget="100%").evaluations == 0
    assert store.compare(["new"], money=10.0)[0].net.value == 0
    assert store.update("new", votes=world.votes_table("new")).flips == 0
    assert store.status()["expected_accuracy"]["value"] == 1.0
    assert labels(store) == world.truth.tolist()
    assert store.check() == []


def test_on_the_command_line(
    tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    table = world.table().append_column("pred", [world.votes["old"]])
    pa_csv.write_csv(table, tmp_path / "items.csv")
    pa_csv.write_csv(truth_of(world, KNOWN), tmp_path / "truth.csv")
    given = ["--label", "pred", "--model", "old", "--labelled", str(tmp_path / "truth.csv")]
    store = str(tmp_path / "store")
    assert cli(["init", store, "--classes", ",".join(NAMES)]) == 0
    words = ["import", store, str(tmp_path / "items.csv"), *given]
    assert cli([*words, "--keep-labels"]) == 0
    assert "truth given" not in capsys.readouterr().out
    assert cli(words) == 0
    assert "truth given with old for 20 items" in capsys.readouterr().out
    assert cli(["log", store]) == 0
    assert "truth with old" in capsys.readouterr().out
    model = ["model", store, "old", "--labelled", str(tmp_path / "truth.csv"), "--json"]
    assert cli(model) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ""
    assert cli(["report", store, "-o", str(tmp_path / "report.html")]) == 0
    context = Context(open_files(store))
    assert [header.kind for header in context.headers] == ["update", "review"]
