from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Budget
from posterity.errors import InvalidParameter
from posterity.method.data.spec import LARGEST
from tests import naive


@pytest.mark.parametrize(
    ("written", "evaluations"),
    [
        (0, 0),
        (7, 7),
        (1000, 200),
        (np.int64(7), 7),
        (0.1, 20),
        (1.0, 200),
        (np.float32(0.5), 100),
        ("10%", 20),
        ("0.5%", 1),
        ("100%", 200),
        (" 15 % ", 30),
        ("1e-1", 20),
        ("0.1", 20),
        ("1.0", 200),
        ("1", 1),
        ("50", 50),
    ],
)
def test_budgets_as_users_write_them(written: Any, evaluations: int) -> None:
    assert Budget.of(written).evaluations(200) == evaluations


@pytest.mark.parametrize(
    "written",
    [
        *(-1, "-1", "-5%", "110%", 1.1, "1.5", "abc", "", "%", "ten%", "nan", "inf%"),
        *(float("nan"), float("inf"), True, None),
    ],
)
def test_impossible_budgets_say_what_is_allowed(written: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"'budget' must be a count.*fraction.*percentage"):
        Budget.of(written)


@given(st.floats(0, 1), st.integers(0, 10**9))
def test_fractions_round_half_up(fraction: float, eligible: int) -> None:
    budget = Budget.of(fraction)
    assert budget.evaluations(eligible) == naive.budgeted(fraction, eligible) <= eligible


@given(st.one_of(st.floats(0, 1), st.integers(0, LARGEST)))
def test_the_text_reads_back(given: float) -> None:
    assert Budget.of(str(Budget.of(given))) == Budget.of(given)


@pytest.mark.parametrize(
    "wrong", [{}, {"count": -1}, {"fraction": 2.0}, {"count": 1, "fraction": 0.1}]
)
def test_budgets_made_directly_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="'budget'"):
        Budget(**wrong)


def test_a_count_as_share() -> None:
    assert Budget.of(50).share(200) == 0.25
    assert Budget.of("30%").share(200) == 0.3


@pytest.mark.parametrize(
    "count",
    [LARGEST + 1, 10**5000, str(LARGEST + 1), "9" * 5000],
    ids=["large", "endless", "large text", "endless text"],
)
def test_no_count_is_larger_than_any_dataset(count: Any) -> None:
    with pytest.raises(InvalidParameter, match="'budget' must be a count") as told:
        Budget.of(count)
    assert len(str(told.value)) < 600
