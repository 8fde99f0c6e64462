"""With very many classes nothing is as large as classes × classes, or items × classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Confusion, Model, Recording, Store
from posterity.engine.inspect import explanation
from posterity.engine.ledger import decide
from posterity.errors import InvalidRecording
from posterity.method.beliefs.confusion import ESTIMATORS, Cells
from tests import naive
from tests.many_classes import LIVES, measured
from tests.stores import World, small_store
from tests.test_confusion import labelled_sets


def peak_of_life(folder: Path, classes: int, name: str) -> float:
    """The most memory the whole life of a store takes in one process, in MiB."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.many_classes", str(folder), str(classes), name],
        cwd=Path(__file__).parents[1],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stderr.splitlines()
    return float(last.split(" MiB")[0])


@pytest.mark.parametrize("name", ["dependent", "full"])
def test_the_whole_life_of_a_store_of_20_000_classes(tmp_path: Path, name: str) -> None:
    # One byte for each pair of classes would be 381 MiB; Python and compiling take up to 600.
    assert peak_of_life(tmp_path, 20_000, name) < 768


# Minutes each: all of them in `make torture`.
@pytest.mark.long
@pytest.mark.parametrize("name", LIVES if "POSTERITY_KILLS" in os.environ else list(LIVES)[:1])
def test_the_whole_life_of_a_store_of_100_000_classes(tmp_path: Path, name: str) -> None:
    assert peak_of_life(tmp_path, 100_000, name) < 1024


def test_the_life_that_is_measured_works_with_few_classes(tmp_path: Path) -> None:
    commands = [line.split()[4] for line in measured(tmp_path, 30, "shrunk")]
    assert commands[0] == "init"
    assert commands[-1] == "check"


@given(labelled_sets())
def test_cells_equal_the_naive_table(labelled: tuple[int, list[int], list[int]]) -> None:
    classes, truth, votes = labelled
    cells, table = Cells.of_pairs(truth, votes, classes=classes), naive.count(truth, votes, classes)
    assert cells.table.tolist() == table
    assert cells.right.tolist() == [table[code][code] for code in range(classes)]
    assert cells.truth_counts.tolist() == np.sum(table, axis=0).tolist()
    # In the order in which a store keeps them.
    places = np.argwhere(table)
    assert np.stack([cells.votes, cells.truths], axis=1).tolist() == places.tolist()


def same(one: Confusion, other: Confusion) -> bool:
    """Bit for bit, as products of votes are computed from it."""
    pairs = [
        *((getattr(each, name) for each in (one, other)) for name in ("common", "starts")),
        *((getattr(each, name) for each in (one, other)) for name in ("truths", "values")),
        *zip(one.kinds, other.kinds, strict=True),
    ]
    return all(np.array_equal(*pair) for pair in pairs)


def unknown_as_a_table(known: Confusion, code: int) -> Confusion:
    table = known.probabilities.copy()
    table[:, code:] = 1 / known.classes
    return Confusion(table)


@given(labelled_sets(), st.data())
def test_a_confusion_without_appended_classes_equals_the_dense_one(
    labelled: tuple[int, list[int], list[int]], data: st.DataObject
) -> None:
    classes, truth, votes = labelled
    code = data.draw(st.integers(0, classes))
    for estimator in ESTIMATORS:
        known = Confusion.from_pairs(truth, votes, classes=classes, estimator=estimator)
        assert same(known.unknown_from(code), unknown_as_a_table(known, code))
    shares = st.sampled_from([0.0, 0.25, 0.5])
    rows = st.lists(shares, min_size=classes, max_size=classes)
    table = 0.01 + np.array(data.draw(st.lists(rows, min_size=classes, max_size=classes)))
    for known in (Confusion(table / table.sum(axis=0)), Confusion.from_accuracy(0.5, classes=2)):
        here = min(code, known.classes)
        assert same(known.unknown_from(here), unknown_as_a_table(known, here))


@given(st.lists(st.lists(st.integers(0, 3), min_size=12, max_size=12), max_size=5))
def test_the_highest_are_those_of_a_stable_sort(rows: list[list[int]]) -> None:
    believed = np.array(rows, dtype=np.float64).reshape(-1, 12)
    for top in (1, 2, decide.FEW, decide.FEW + 1, 20):
        sorted_all = np.argsort(-believed, axis=1, kind="stable")[:, :top]
        assert decide.highest(believed, top).tolist() == sorted_all.tolist()


def test_beliefs_do_not_depend_on_how_many_are_formed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = small_store(tmp_path / "store", World())
    whole, queue = store.beliefs(top=3), store.review_queue(20)
    monkeypatch.setattr(decide, "DENSE_CELLS", 8)
    assert store.beliefs(top=3).equals(whole)
    assert store.review_queue(20).items.equals(queue.items)


def test_an_explanation_lists_the_likeliest_votes_only(tmp_path: Path) -> None:
    classes = [f"class {code}" for code in range(explanation.KEPT + 50)]
    store = Store.create(tmp_path / "store", classes=classes, beliefs="plain")
    store.add({"id": ["a"]})
    old, new = Model("old", accuracy=0.6), Model("new", accuracy=0.999)
    store.update(old, votes={"id": ["a"], "vote": [classes[0]]})
    store.register(new)
    changes = store.explain("a").changes
    assert len(changes) == explanation.KEPT
    assert changes[0].model == "new"


def test_a_recording_of_too_many_classes_is_refused(tmp_path: Path) -> None:
    names = [str(code) for code in range(65_536)]
    recording = Recording(names[:-1], ["old"], np.array([65_534]), np.array([[65_534]]))
    recording.save(tmp_path / "most.npz")
    assert Recording.load(tmp_path / "most.npz").votes.tolist() == [[65_534]]
    too_many = Recording(names, ["old"], np.array([65_535]), np.array([[65_535]]))
    with pytest.raises(InvalidRecording, match=r"has 65,536 classes; .* up to 65,535"):
        too_many.save(tmp_path / "more.npz")
    arrays = {"classes": np.array(names), "models": np.array(["old"])}
    arrays |= {"y_true": np.array([65_535]), "y_pred": np.array([[65_535]])}
    np.savez(tmp_path / "more.npz", allow_pickle=False, **arrays)
    with pytest.raises(InvalidRecording, match=r"has 65,536 classes; .* up to 65,535"):
        Recording.load(tmp_path / "more.npz")


def test_recordings_with_many_classes_in_another_order_are_matched() -> None:
    names = [str(code) for code in range(60_000)]
    one = Recording(names, ["old"], np.array([1, 2]), np.array([[1, 3]]))
    other = Recording(names[::-1], ["old"], np.array([0]), np.array([[0]]))
    assert one.in_classes_of(other).truth.tolist() == [59_998, 59_997]
