"""Classes as they are: appended later, called otherwise by models, very skewed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.engine.ledger.context import Context
from posterity.engine.maintenance.create import append_classes
from posterity.errors import InvalidData, InvalidParameter
from posterity.storage.files import open_files
from tests import naive
from tests.stores import NAMES, World, contents, small_store, write_table
from tests.test_cli import run


@pytest.fixture
def world() -> World:
    return World()


def decided(store: Store) -> tuple[Any, ...]:
    told = contents(store)
    return told["rows"], told["headers"], told["labels"], told["published"]


def soft_model(world: World, name: str, classes: int = 4) -> Model:
    """Votes with probabilities; where a fifth class is known, it gets some of each."""

    def predict(batch: pa.Table) -> np.ndarray:
        numbers = batch["number"].to_numpy()
        table = np.full((len(numbers), classes), 0.1)
        for at, number in enumerate(numbers):
            table[at, NAMES.tolist().index(world.votes[name][number])] = 0.5 + number % 7 / 100
        table /= table.sum(axis=1, keepdims=True)
        return table

    return Model(name, labelled=world.labelled_table(name), predict=predict, soft=3)


def eel_model(world: World, name: str = "best", like: str = "best") -> Model:
    """Knows the appended class, and votes for it now and then."""
    truth = np.array([*world.labelled_truth, *["eel"] * 10])
    votes = np.array([*world.labelled[like], *["eel"] * 9, "owl"])
    cast = np.where(np.arange(world.items) % 5 == 0, "eel", world.votes[like])

    def predict(batch: pa.Table) -> Any:
        return cast[batch["number"].to_numpy()].tolist()

    return Model(name, labelled={"truth": truth, "vote": votes}, predict=predict)


SURE = np.full((4, 4), 0.05) + 0.8 * np.eye(4)


def append(store: Store, capsys: pytest.CaptureFixture[str] | None, *names: str) -> None:
    if capsys is None:
        store.append_classes(names)
    else:
        out, _ = run(capsys, "classes", store.path, "--append", ",".join(names), "--json")
        assert json.loads(out)["classes"] == [*NAMES.tolist(), *names]


@pytest.mark.parametrize(("by_command", "softly"), [(False, False), (True, True)])
def test_classes_appended_to_a_history(
    tmp_path: Path,
    world: World,
    capsys: pytest.CaptureFixture[str],
    by_command: bool,
    softly: bool,
) -> None:
    store = small_store(tmp_path / "store", world)
    make: Callable[[World, str], Model] = soft_model if softly else World.model
    store.update(make(world, "mid"), budget="60%", rule="max-belief")
    store.revert(1)
    store.update(make(world, "mid"), budget="100%", rule="max-belief-min-entropy")
    before = decided(store)
    append(store, capsys if by_command else None, "eel")
    assert list(store.classes) == [*NAMES, "eel"]
    assert decided(store) == before  # nothing decided changes
    assert store.check() == []
    report = store.update(eel_model(world), budget="100%", rule="max-belief")
    assert report.evaluations == 60
    assert "eel" in store.labels()["label"].to_pylist()
    assert store.check() == []
    store.revert(report.step or 0)
    assert store.check() == []
    labels = store.labels()
    assert labels["label"].to_pylist() == [row["label"] for row in before[2]]
    assert labels["belief"].to_pylist() == [row["belief"] for row in before[2]]
    store.revert(3)  # one from before
    assert store.check() == []
    old = store.labels()["label"].to_pylist()
    assert old == world.votes["old"].tolist()


@pytest.mark.parametrize("softly", [False, True])
def test_reverting_across_the_append_equals_never_having_happened(
    tmp_path: Path, world: World, softly: bool
) -> None:
    make: Callable[[World, str], Model] = soft_model if softly else World.model
    stores = [small_store(tmp_path / name, world) for name in ("store", "never")]
    stores[0].update(make(world, "mid"), budget="40%", rule="max-belief")
    for store in stores:
        store.append_classes(["eel"])
        store.update(make(world, "new") if not softly else soft_model(world, "new", 5), budget=1.0)
        store.update(eel_model(world), budget="100%", rule="cost-ratio:2")
    stores[0].revert(1)
    mine, theirs = (store.labels() for store in stores)
    assert mine["label"].to_pylist() == theirs["label"].to_pylist()
    assert mine["belief"].to_pylist() == theirs["belief"].to_pylist()
    assert stores[0].check() == []


def test_old_models_say_nothing_about_a_new_class(tmp_path: Path, world: World) -> None:
    """Counted: one more column of one over K. Stated: the same, and all but never a vote for it."""
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    matrix = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    store.update(Model("old", confusion=matrix, predict=world.model("old").predict))
    store.update(world.model("mid"), budget="100%")
    store.append_classes(["eel", "ape"])
    fit = Context(open_files(store.path)).fits.now()
    for name in ("old", "mid"):
        table = fit.confusion(name).probabilities
        assert table.shape == (6, 6)
        np.testing.assert_allclose(table[:, 4:], 1 / 6)
        np.testing.assert_allclose(table.sum(axis=0), 1)
    np.testing.assert_allclose(fit.confusion("old").probabilities[:4, :4], matrix, rtol=1e-7)
    assert store.check() == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cat", "eel"], "'cat' twice"),
        (["eel", "eel"], "'eel' twice"),
        ([7], "all strings"),
        ([], "at least one"),
    ],
)
def test_classes_that_cannot_be_appended(
    tmp_path: Path, world: World, names: list[Any], message: str
) -> None:
    store = small_store(tmp_path / "store", world)
    with pytest.raises(InvalidParameter, match=message):
        store.append_classes(names)
    assert list(store.classes) == NAMES.tolist()
    assert store.check() == []


def test_two_who_append_at_the_same_time(tmp_path: Path, world: World) -> None:
    """Codes are given once: whoever read the classes before the other looks again."""
    store = small_store(tmp_path / "store", world)
    late = Context(open_files(store.path))
    assert len(late.classes) == 4
    store.append_classes(["eel"])
    append_classes(late, ["ape"])
    assert list(store.append_classes(["eel"])) == list(store.classes)  # done already
    assert list(store.classes)[4:] == ["eel", "ape"]


# Priors


def test_a_given_prior_needs_weights(
    tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prior.csv").write_text("cat,60\ndog,20\nfox,15\nowl,5\n")
    store = small_store(tmp_path / "store", world, prior=tmp_path / "prior.csv")
    store.update(world.model("mid"), budget="50%")
    store.revert(1)
    with pytest.raises(InvalidParameter, match=r"weight; say those of \['eel'\] too"):
        store.append_classes(["eel"])
    with pytest.raises(InvalidParameter, match="weights"):
        store.append_classes(["eel"], weights={"ape": 1})
    with pytest.raises(InvalidData, match="finite weights"):
        store.append_classes(["eel"], weights={"eel": -1})
    run(capsys, "classes", store.path, "--append", "eel", "--weight", 25)
    prior = Context(open_files(store.path)).fits.now().prior
    np.testing.assert_allclose(prior, np.array([60, 20, 15, 5, 25]) / 125)  # in the file's unit
    assert store.check() == []
    store.update(eel_model(world), budget="50%")
    store.revert(2)
    assert store.check() == []
    plain = small_store(tmp_path / "plain", world)
    with pytest.raises(InvalidParameter, match="has no weights"):
        plain.append_classes(["eel"], weights={"eel": 1})


@pytest.mark.parametrize("text", ["cat,1\ncow,1\n", "cat\n", "cat,1\ncat,2\n", "cat,x\n", "cat,0"])
def test_files_that_are_no_prior(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "prior.csv").write_text(text)
    given = ("--classes", "cat,dog", "--prior", tmp_path / "prior.csv")
    _, err = run(capsys, "init", tmp_path / "store", *given, code=1)
    assert "prior" in err
    assert not (tmp_path / "store" / "posterity.json").exists()
    _, err = run(capsys, "init", tmp_path / "s", "--classes", "a,b", "--prior", "none", code=2)
    assert "uniform, labelled, estimated, or a file of class weights" in err


def test_a_labelled_prior_is_kept_with_each_step(tmp_path: Path, world: World) -> None:
    """Later models with other labelled sets disturb neither checks nor reverts."""
    store = small_store(tmp_path / "store", world, prior="labelled")
    never = small_store(tmp_path / "never", world, prior="labelled")
    codes = [NAMES.tolist().index(name) for name in world.labelled_truth]
    (header,) = store.log()
    assert header.fit["prior"] == pytest.approx(naive.labelled_prior(codes, 4))
    store.update(world.model("mid"), budget="50%", rule="max-belief")
    skewed = {
        "id": [f"x{at}" for at in range(50)],
        "truth": ["cat"] * 45 + ["dog"] * 5,
        "vote": ["cat"] * 44 + ["dog"] * 6,
    }
    for held in (store, never):
        predict = world.model("new").predict
        held.update(Model("new", labelled=skewed, predict=predict), budget="100%")
        # A stated confusion has no labelled items: the frequencies are those known last.
        predict = world.model("best").predict
        held.update(Model("best", confusion=SURE, predict=predict), budget="100%")
        held.update(Model("one", accuracy=0.9, predict=predict), budget="100%")
    expected = naive.labelled_prior([0] * 45 + [1] * 5, 4)
    for header in store.log()[2:]:
        assert header.fit["prior"] == pytest.approx(expected)
    assert store.check() == []
    store.register(Model("last", labelled={"truth": ["owl"] * 9, "vote": ["owl"] * 9}))
    assert store.check() == []
    store.revert(1)
    assert store.labels()["label"].to_pylist() == never.labels()["label"].to_pylist()
    assert store.labels()["belief"].to_pylist() == never.labels()["belief"].to_pylist()
    assert store.check() == []
    store.append_classes(["eel"])
    store.update(eel_model(world, "mid2"), budget="100%")
    assert len(store.log()[-1].fit["prior"]) == 5
    store.revert(0)
    assert store.check() == []


def test_priors_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prior.json").write_text('{"b": 3, "a": 1}')
    (tmp_path / "labelled.csv").write_text("truth,vote\na,a\nb,b\nb,b\nb,a\nb,b\n")
    (tmp_path / "votes.csv").write_text("id,vote\n1,a\n2,b\n")
    (tmp_path / "items.csv").write_text("id\n1\n2\n")
    priors = {"uniform": None, "labelled": [0.2, 0.8], tmp_path / "prior.json": [1.0, 3.0]}
    for at, (prior, expected) in enumerate(priors.items()):
        path = tmp_path / f"store-{at}"
        run(capsys, "init", path, "--classes", "a,b", "--prior", prior)
        run(capsys, "add", path, tmp_path / "items.csv")
        run(capsys, "model", path, "m", "--labelled", tmp_path / "labelled.csv")
        run(capsys, "update", path, "m", "--votes", tmp_path / "votes.csv")
        assert Store(path).log()[0].fit["prior"] == expected
        run(capsys, "check", path)


def test_a_labelled_prior_needs_labelled_items(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, prior="labelled")
    store.add(world.table())
    with pytest.raises(InvalidData, match="no model has labelled items"):
        store.update(Model("m", accuracy=0.8, predict=world.model("old").predict))
    assert store.log() == []
    ids = pa.table({"id": ["item-1", "item-2"], "truth": ["cat", "owl"]})
    store.update(Model("n", labelled=ids, predict=world.model("old").predict))
    assert store.log()[-1].fit["prior"] == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 3])
    assert store.check() == []


def test_counts_tell_a_labelled_prior_too(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["a", "b"], prior="labelled")
    store.add({"id": [1]})
    counts = [[27, 3], [1, 9]]
    store.update(Model("m", confusion=counts, predict=lambda _: ["a"]))
    assert store.log()[0].fit["prior"] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("weights", [[0.97, 0.01, 0.01, 0.01], [0, 1, 1, 1]])
def test_a_skewed_prior_decides_as_the_formula_says(
    tmp_path: Path, world: World, weights: list[float]
) -> None:
    stores = {
        "skewed": small_store(tmp_path / "skewed", world, beliefs="plain", prior=weights),
        "uniform": small_store(tmp_path / "uniform", world, beliefs="plain", prior="uniform"),
    }
    listed = NAMES.tolist()
    truth = [listed.index(name) for name in world.labelled_truth]
    confusions, changed = [], {}
    for name in ("old", "mid"):
        votes = [listed.index(vote) for vote in world.labelled[name]]
        confusions.append(naive.full(naive.count(truth, votes, 4)))
    for kind, store in stores.items():
        store.update(world.model("mid"), budget="100%", rule="max-belief")
        total = sum(weights)
        prior = [w / total for w in weights] if kind == "skewed" else [0.25] * 4
        for row in store.labels().to_pylist():
            votes = [listed.index(world.votes[name][row["row"]]) for name in ("old", "mid")]
            joint = naive.log_joint(prior, votes, confusions)
            best = naive.most_believed(joint, votes, votes[0])
            assert row["label"] == listed[best]
            assert row["belief"] == pytest.approx(naive.belief(joint)[best], rel=1e-5)
        changed[kind] = store.labels()["label"].to_pylist()
        assert store.check() == []
    assert changed["skewed"] != changed["uniform"]


# Class maps


MAP = {"tabby": "cat", "siamese": "cat", "wolf": "dog", "vixen": "fox"}
THEIRS = np.array(["tabby", "siamese", "wolf", "vixen", "newt"])
OURS = np.array(["cat", "cat", "dog", "fox", "owl"])
"""A newt is something else, which here is an owl."""


@pytest.mark.parametrize(
    ("kind", "form", "source"),
    [
        ("text", "mapping", "predict"),
        ("text", "json", "probabilities"),
        ("text", "csv", "parquet"),
        ("text", "mapping", "csv"),
        ("integer", "mapping", "predict"),
        ("integer", "csv", "probabilities"),
        ("integer", "mapping", "parquet"),
        ("integer", "json", "parquet"),
        ("integer", "csv", "csv"),
    ],
)
def test_a_model_may_call_classes_otherwise(
    tmp_path: Path, world: World, kind: str, form: str, source: str
) -> None:
    """Renamed, merged, the rest as ``other``: in labelled data, predictions and files of votes."""
    store = small_store(tmp_path / "store", world)
    rng = np.random.default_rng(1)
    names = THEIRS if kind == "text" else np.arange(100, 105)
    labelled, cast = rng.integers(0, 5, 80), rng.integers(0, 5, 60)
    table: dict[Any, str] = {names.tolist()[at]: MAP[str(THEIRS[at])] for at in range(4)}
    given: Any = table
    if form == "csv":
        given = tmp_path / "map.csv"
        given.write_text("".join(f"{old},{new}\n" for old, new in table.items()))
    elif form == "json":
        given = str(tmp_path / "map.json")
        Path(given).write_text(json.dumps({str(old): new for old, new in table.items()}))
    pairs = pa.table({"truth": world.labelled_truth, "vote": names[labelled]})
    write_table(pairs, tmp_path / f"labelled.{'csv' if source == 'csv' else 'parquet'}")

    def predict(batch: pa.Table) -> Any:
        codes = cast[batch["number"].to_numpy()]
        if source == "probabilities":
            return np.eye(5)[codes]
        return names[codes]

    model = Model(
        "new",
        labelled=tmp_path / f"labelled.{'csv' if source == 'csv' else 'parquet'}",
        class_map=given,
        other="owl",
        classes=names if source in ("predict", "probabilities") else None,
        predict=predict,
    )
    store.register(model)
    votes = None
    if source in ("parquet", "csv"):
        votes = tmp_path / f"votes.{source}"
        ids = [f"item-{at}" for at in range(60)]
        write_table(pa.table({"id": ids, "vote": names[cast]}), votes)
    # By name: what the store remembers of the map is enough.
    asked: Any = "new" if votes is not None else Model("new", predict=predict)
    store.update(asked, budget="100%", rule="replace", votes=votes)
    assert store.labels()["label"].to_pylist() == OURS[cast].tolist()
    listed = NAMES.tolist()
    truth = [listed.index(name) for name in world.labelled_truth]
    known = [listed.index(name) for name in OURS[labelled]]
    np.testing.assert_allclose(
        Context(open_files(store.path)).fits.now().confusion("new").probabilities,
        naive.full(naive.count(truth, known, 4)),
        rtol=1e-15,
    )
    assert store.check() == []


def test_a_models_integers_are_names_where_its_map_says_so(tmp_path: Path) -> None:
    """Not codes of our classes: 0 is a dog here."""
    store = Store.create(tmp_path / "store", classes=["cat", "dog"])
    store.add({"id": ["a", "b"]})
    store.update(
        Model("m", accuracy=0.9, class_map={0: "dog", 1: "cat"}, predict=lambda _: [0, 1]),
    )
    assert store.labels()["label"].to_pylist() == ["dog", "cat"]


def test_a_matrix_in_the_models_own_classes(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["cat", "dog"])
    store.add({"id": [1]})
    matrix = {"truth": ["dog", "cat"], "7": [1, 6], "8": [1, 2], "9": [5, 0]}
    store.register(Model("m", confusion=matrix, class_map={7: "cat", 8: "cat", 9: "dog"}))
    found = Context(open_files(store.path)).fits.now().confusion("m").probabilities
    np.testing.assert_allclose(found, naive.full([[8, 2], [0, 5]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_map": {"tabby": "cow"}}, "our classes; got 'cow'"),
        ({"class_map": {"tabby": 1}}, "our classes; got 1"),
        ({"class_map": "nowhere.csv"}, "no class map 'nowhere.csv'"),
        ({"other": "cow"}, "one of our classes"),
        ({"soft": 0}, "at least 1"),
        ({"soft": 5}, "between 1 and 4"),
        ({"classes": ["one"]}, "at least two"),
        ({"classes": ["a", "a"]}, "twice"),
    ],
)
def test_maps_that_lead_nowhere(
    tmp_path: Path, world: World, options: dict[str, Any], message: str
) -> None:
    store = small_store(tmp_path / "store", world)
    with pytest.raises((InvalidData, InvalidParameter), match=message):
        store.register(Model("new", accuracy=0.8, **options))
    assert store.status()["models"] == ["old"]


def test_a_model_of_integer_classes_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours are integers: so are the model's, in its own order, and in its class map."""
    path = tmp_path / "store"
    run(capsys, "init", path, "--classes", "1,2,3", "--type", "int")
    (tmp_path / "items.csv").write_text("id\na\nb\nc\n")
    run(capsys, "add", path, tmp_path / "items.csv")
    (tmp_path / "own.txt").write_text("9\n2\n1\n")
    (tmp_path / "map.csv").write_text("9,3\n")
    (tmp_path / "labelled.csv").write_text("truth,vote\n1,1\n2,2\n3,9\n3,9\n")
    own = ("--model-classes", tmp_path / "own.txt", "--class-map", tmp_path / "map.csv")
    given = ("--labelled", tmp_path / "labelled.csv", "--json")
    for name, extra in (("own", own), ("map", own[2:])):
        out, _ = run(capsys, "model", path, name, *extra, *given)
        assert json.loads(out)["accuracy"] == 1.0
    (tmp_path / "votes.csv").write_text("id,vote\na,9\nb,2\nc,1\n")
    run(capsys, "update", path, "own", "--votes", tmp_path / "votes.csv")
    assert Store(path).labels()["label"].to_pylist() == [3, 2, 1]


@pytest.mark.parametrize(
    ("name", "values", "kind", "expected"),
    [
        ("t.parquet", ["b", None, "a", "b"], None, ["a", "b"]),
        ("t.parquet", [3, 1, 3, None], None, [1, 3]),
        ("t.parquet", [True, False, None], None, [False, True]),
        ("t.csv", ["b", "a", "b"], None, ["a", "b"]),
        ("t.csv", ["01", "1", "02"], None, ["01", "02", "1"]),  # names, not numbers
        ("t.csv", ["10", "9", "9"], "int", [9, 10]),
        ("t.csv", ["true", "false"], "bool", [False, True]),
        ("t.jsonl", ["b", "a"], None, ["a", "b"]),
    ],
)
def test_classes_from_a_column(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    values: list[Any],
    kind: str | None,
    expected: list[Any],
) -> None:
    write_table(pa.table({"pred": values}), tmp_path / name)
    typed = () if kind is None else ("--type", kind)
    given = ("--classes", tmp_path / name, "--column", "pred", *typed)
    run(capsys, "init", tmp_path / "store", *given)
    found = list(Store(tmp_path / "store").classes)
    assert found == expected
    assert [type(one) for one in found] == [type(one) for one in expected]
    _, err = run(
        capsys, "init", tmp_path / "s", "--classes", tmp_path / name, "--column", "x", code=1
    )
    assert "has no column 'x'; it has: pred" in err
    _, err = run(capsys, "init", tmp_path / "s", "--classes", "a,b", "--column", "x", code=2)
    assert "a table, to go with --column" in err


@pytest.mark.parametrize(
    "said", [{"accuracy": 0.9}, {"confusion": np.eye(4) * 8 + 1}, {"confusion": np.eye(4)}]
)
@pytest.mark.parametrize("estimator", ["full", "diagonal"])
def test_nothing_is_known_of_a_class_that_came_later(
    said: dict[str, Any], estimator: str, tmp_path: Path
) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, confusion=estimator)
    store.register(Model("old", **said))
    store.append_classes(["eel"])
    known = Context(open_files(store.path)).fits.now("old").confusion("old").probabilities
    np.testing.assert_allclose(known[:, 4], 0.2)
    np.testing.assert_allclose(known.sum(axis=0), 1)
    assert (np.diagonal(known)[:4] > 0.4).all()


def test_an_estimated_prior_has_no_weights(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["cat", "dog"], prior="estimated")
    assert store.append_classes(["fox"]).names == ("cat", "dog", "fox")
    with pytest.raises(InvalidParameter, match="has no weights"):
        store.append_classes(["cow"], weights={"cow": 1})
    with pytest.raises(InvalidParameter, match="needs dependent beliefs"):
        Store.create(tmp_path / "plain", classes=["a", "b"], beliefs="plain", prior="estimated")
    assert not (tmp_path / "plain").exists()
