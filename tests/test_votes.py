from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import SoftVotes
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.votes import check_codes, check_probabilities, majority
from tests import naive


@given(st.integers(1, 9), st.integers(1, 6), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_majority_equals_naive(models: int, items: int, classes: int, seed: int) -> None:
    votes = np.random.default_rng(seed).integers(-1, classes, (models, items)).astype(np.int32)
    expected = [naive.majority(votes[:, item].tolist()) for item in range(items)]
    assert majority(votes).tolist() == expected


@pytest.mark.parametrize("votes", [[0, 1], [["a"], ["b"]], [[0.5]]])
def test_a_majority_needs_codes(votes: Any) -> None:
    with pytest.raises(InvalidData, match="'votes' must be codes"):
        majority(votes)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([0, 3], r"'votes' must be between -1 and 2; got 3 in row 1"),
        ([-2], "got -2 in row 0"),
        ([0.5], "integer class codes; got float64"),
        (["cat"], r"Classes\.encode"),
        ([[0, 1]], "one dimension"),
        ([True], "integer class codes; got bool"),
    ],
)
def test_bad_codes_are_named(codes: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        check_codes(codes, 3, "votes")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 0.5], [np.nan, 1.0]], r"finite.*row 1"),
        ([[np.inf, 0.0]], "finite"),
        ([[1.2, -0.2]], "not be negative; row 0"),
        ([[0.5, 0.4]], "sum to one"),
        ([[0.5, 0.3, 0.2]], r"shape \(items, 2\)"),
        ([0.5, 0.5], "shape"),
    ],
)
def test_bad_probabilities_are_named(rows: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        check_probabilities(rows, 2)


def test_half_precision_probabilities_are_renormalised() -> None:
    thirds = np.full((1, 3), 1 / 3, dtype=np.float16)
    assert check_probabilities(thirds, 3).sum() == pytest.approx(1, abs=1e-15)


@given(st.integers(2, 8), st.integers(1, 5), st.data())
def test_soft_votes_keep_the_heaviest(classes: int, items: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(1, classes))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    probabilities = rng.dirichlet(np.ones(classes), size=items)
    soft = SoftVotes.top(probabilities, m)
    assert soft.weights.sum(axis=1) == pytest.approx(1)
    assert soft.hard.tolist() == probabilities.argmax(axis=1).tolist()
    for row in range(items):
        expected = naive.top(probabilities[row].tolist(), m)
        assert soft.codes[row].tolist() == list(expected)
        assert soft.weights[row] == pytest.approx(list(expected.values()))
    assert len(soft[np.array([0])]) == 1


@pytest.mark.parametrize(
    ("codes", "weights", "hard", "message"),
    [
        ([[0, 1]], [[np.nan, 1.0]], [0], "finite"),
        ([[0, 1]], [[-1.0, 2.0]], [0], "≥ 0"),
        ([[0, 3]], [[0.5, 0.5]], [0], "between -1 and 2"),
        ([[0, 1]], [[1.0]], [0], "both be"),
        ([[0, 1]], [[0.5, 0.5]], [0, 0], "hard has 2"),
        ([[0, 1]], [[0.5, 0.5]], [-1], "needs its hard vote"),
    ],
)
def test_soft_votes_made_directly_are_checked(
    codes: Any, weights: Any, hard: Any, message: str
) -> None:
    with pytest.raises(InvalidData, match=message):
        SoftVotes(np.array(codes), np.array(weights), 3, np.array(hard))


@pytest.mark.parametrize("m", [0, 4, -1])
def test_soft_votes_need_a_sensible_m(m: int) -> None:
    with pytest.raises(InvalidParameter, match="'m' must be between 1 and 3"):
        SoftVotes.top([[0.2, 0.3, 0.5]], m)
