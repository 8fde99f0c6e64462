from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Classes, Confusion, confusion, priors
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from tests import naive


@st.composite
def labelled_sets(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    classes = draw(st.integers(2, 8))
    items = draw(st.integers(1, 40))
    code = st.integers(0, classes - 1)
    truth = draw(st.lists(code, min_size=items, max_size=items))
    votes = draw(st.lists(st.integers(-1, classes - 1), min_size=items, max_size=items))
    votes[0] = max(votes[0], 0)
    return classes, truth, votes


@given(labelled_sets())
def test_estimators_equal_naive(labelled: tuple[int, list[int], list[int]]) -> None:
    classes, truth, votes = labelled
    counts = naive.count(truth, votes, classes)
    assert confusion.count(truth, votes, classes=classes).tolist() == counts
    for name in ("diagonal", "full", "shrunk", "single"):
        slow = getattr(naive, name)
        fast = Confusion.from_pairs(truth, votes, classes=classes, estimator=name)
        np.testing.assert_allclose(fast.probabilities, slow(counts), rtol=1e-15)
        np.testing.assert_allclose(fast.probabilities.sum(axis=0), 1, rtol=1e-12)
        assert (fast.probabilities > 0).all()
        assert np.isfinite(fast.log).all()
        other = Confusion.from_counts(np.array(counts).T, estimator=name, truth="rows")
        assert (other.probabilities == fast.probabilities).all()


def test_a_class_never_seen_has_a_defined_confusion() -> None:
    unseen = 2
    diagonal = Confusion.from_pairs([0, 1], [0, 1], classes=3, estimator="diagonal")
    full = Confusion.from_pairs([0, 1], [0, 1], classes=3, estimator="full")
    assert diagonal.probabilities[:, unseen].tolist() == [0.25, 0.25, 0.5]
    assert full.probabilities[:, unseen] == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("accuracy", [0.0, 1.0, [0.0, 0.5, 1.0]])
def test_certainty_is_never_taken_literally(accuracy: Any) -> None:
    sure = Confusion.from_accuracy(accuracy, classes=3)
    assert np.isfinite(sure.log).all()
    assert sure.probabilities.min() == pytest.approx(confusion.FLOOR)
    np.testing.assert_allclose(sure.probabilities.sum(axis=0), 1, rtol=1e-12)


@given(st.integers(2, 9), st.floats(0, 1))
def test_one_accuracy_equals_naive(classes: int, accuracy: float) -> None:
    expected = naive.floored(naive.spread([accuracy] * classes), confusion.FLOOR)
    stated = Confusion.from_accuracy(accuracy, classes=classes)
    np.testing.assert_allclose(stated.probabilities, expected, rtol=1e-12)


def test_classes_stand_for_their_number() -> None:
    classes = Classes(["cat", "dog", "fox"])
    assert Confusion.from_accuracy(0.5, classes=classes).classes == 3
    assert len(priors.uniform(classes)) == 3


@given(st.lists(st.integers(0, 4), min_size=1))
def test_the_labelled_prior_equals_naive(truth: list[int]) -> None:
    expected = naive.labelled_prior(truth, 5)
    np.testing.assert_allclose(priors.labelled(truth, classes=5), expected, rtol=1e-15)


def test_a_matrix_can_have_truth_in_rows() -> None:
    table = np.array([[0.9, 0.1], [0.3, 0.7]])
    by_rows = Confusion.from_matrix(table, truth="rows")
    assert (by_rows.probabilities == Confusion.from_matrix(table.T).probabilities).all()
    assert by_rows.accuracies == pytest.approx([0.9, 0.7])
    with pytest.raises(InvalidData, match="truth='rows'"):
        Confusion.from_matrix(table)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Confusion.from_pairs([], [], classes=3), "labelled set is empty"),
        (lambda: Confusion.from_pairs([0, 1], [-1, -1], classes=3), "labelled set is empty"),
        (lambda: Confusion.from_pairs([0], [0, 1], classes=3), "truth has 1, votes has 2"),
        (lambda: Confusion.from_pairs([3], [0], classes=3), "'truth' must be between 0 and 2"),
        (lambda: Confusion.from_pairs([-1], [0], classes=3), "'truth' must be between 0 and 2"),
        (lambda: Confusion.from_counts(np.zeros((2, 3))), "square"),
        (lambda: Confusion.from_counts([[1, -1], [0, 0]]), "whole numbers"),
        (lambda: Confusion.from_counts([[0.5, 1], [0, 0]]), "whole numbers"),
        (lambda: Confusion.from_counts([[np.nan, 1], [0, 0]]), "whole numbers"),
        (lambda: Confusion.from_counts([[np.inf, 1], [0, 0]]), "whole numbers"),
        (lambda: Confusion.from_counts([[1e308, 1e308], [0, 0]]), "at most 9,007,199,254,740,991"),
        (lambda: Confusion.from_counts([[2**53, 1], [1, 0]]), "at most 9,007,199,254,740,991"),
        (lambda: Confusion.from_matrix([[np.nan, 1], [1, 0]]), "finite"),
        (lambda: Confusion.from_matrix([["a", "b"], ["c", "d"]]), "must hold numbers"),
        (lambda: Confusion.from_counts([[1, 2], [3]]), "no array"),
        (lambda: Confusion(np.eye(2)), "above 0 everywhere"),
        (lambda: Confusion(np.full((2, 2), 0.4)), "sum to one"),
        (lambda: Confusion.from_matrix([[-0.5, 1], [1.5, 0]]), "finite probabilities ≥ 0"),
    ],
)
def test_bad_data_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Confusion.from_pairs([0], [0], classes=1),
            "'classes' must be at least 2, as a number or as names; got 1",
        ),
        (
            lambda: Confusion.from_accuracy(0.5, classes=1),
            "'classes' must be at least 2, as a number or as names; got 1",
        ),
        (
            lambda: Confusion.from_counts([[3]]),
            "'classes' must be at least 2, as a number or as names; got 1",
        ),
        (lambda: Confusion.from_accuracy(1.5, classes=3), "'accuracy' must be from 0 to 1"),
        (lambda: Confusion.from_accuracy(float("nan"), classes=3), "'accuracy'"),
        (lambda: Confusion.from_accuracy([0.5, 0.5], classes=3), "'accuracy'"),
        (lambda: Confusion.from_accuracy("high", classes=3), "'accuracy'"),
        (lambda: Confusion.from_accuracy(0.5, classes="abc"), "'classes' must be at least 2"),
        (lambda: Confusion.from_counts(np.eye(2), truth="sideways"), "'columns' or 'rows'"),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters_are_named(call: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        call()


def test_an_unknown_estimator_gets_a_guess() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'diagonal'"):
        Confusion.from_counts(np.eye(2), estimator="diagonl")


def test_priors() -> None:
    assert priors.uniform(4).tolist() == [0.25] * 4
    assert priors.labelled([0, 0, 0, 1], classes=2).tolist() == [0.75, 0.25]
    assert priors.labelled([0, 0], classes=2).tolist() == [0.8, 0.2]
    assert priors.given([2, 0, 2], classes=3).tolist() == [0.5, 0, 0.5]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 1], "3 weights"),
        ([0, 0, 0], "above 0"),
        ([-1, 1, 1], "≥ 0"),
        ([np.nan, 1, 1], "finite"),
    ],
)
def test_bad_priors_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        priors.given(weights, classes=3)


def test_the_prior_of_an_empty_labelled_set_is_refused() -> None:
    with pytest.raises(InvalidData, match="empty"):
        priors.labelled([], classes=3)
