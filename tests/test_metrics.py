from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import metrics
from posterity.errors import InvalidData, InvalidParameter
from tests import naive

codes = st.integers(-1, 3)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    items = draw(st.integers(1, 15))
    truth = draw(st.lists(st.integers(0, 3), min_size=items, max_size=items))
    history = draw(
        st.lists(st.lists(codes, min_size=items, max_size=items), min_size=1, max_size=5)
    )
    return truth, history


@given(steps())
def test_metrics_equal_naive(problem: tuple[list[int], list[list[int]]]) -> None:
    truth, history = problem
    nothing = [-1] * len(truth)
    scored = [
        metrics.score_step(truth, before, after, evaluations=3)
        for before, after in zip([nothing, *history[:-1]], history, strict=True)
    ]
    run = metrics.score_run(scored)
    pairs = list(pairwise(history))
    total = [naive.flips(truth, before, after) for before, after in pairs]
    assert run.flips.negative == sum(step["negative"] for step in total)
    assert run.flips.positive == sum(step["positive"] for step in total)
    assert run.flips.neutral == sum(step["neutral"] for step in total)
    assert run.accuracy == pytest.approx(naive.accuracy(truth, history[-1]))
    gained = naive.accuracy(truth, history[-1]) - naive.accuracy(truth, history[0])
    assert run.delta_accuracy == pytest.approx(gained)
    means: dict[str, list[float | None]] = {
        "mean_accuracy": [naive.accuracy(truth, after) for _, after in pairs],
        "btc": [naive.btc(truth, before, after) for before, after in pairs],
        "bec": [naive.bec(truth, before, after) for before, after in pairs],
    }
    for name, values in means.items():
        expected = naive.mean(values)
        assert getattr(run, name) == (None if expected is None else pytest.approx(expected))
    assert run.evaluations == 3 * len(pairs)
    assert run.steps == len(pairs)
    negative = sum(step["negative"] for step in total)
    positive = sum(step["positive"] for step in total)
    if pairs:
        assert run.nfr == pytest.approx(negative / len(truth) / len(pairs))
    assert run.pf_nf == (pytest.approx(positive / negative) if negative else None)
    assert run.utility(5) == positive - 5 * negative


def test_error_compatibility_divides_by_the_new_errors() -> None:
    truth = [0, 0, 0, 0]
    before, after = [1, 1, 1, 0], [0, 0, 1, 1]
    assert metrics.backward_error(truth, before, after) == 0.5  # 1 of 2 new errors, not 1 of 3 old
    assert metrics.backward_trust(truth, before, after) == 0.0


def test_undefined_rates_are_none() -> None:
    all_right = metrics.score_step([0, 1], [-1, -1], [0, 1])
    assert all_right.btc is None
    assert all_right.bec is None
    run = metrics.score_run([all_right])
    assert (run.nfr, run.pf_nf, run.mean_accuracy) == (None, None, None)


def test_expectations_without_truth() -> None:
    assert metrics.expected_accuracy(np.array([0.5, 1.0])) == 0.75
    flips = metrics.expected_flips(np.array([]), np.array([]))
    assert (flips.negative, flips.positive, flips.neutral) == (0, 0, 0)
    flips = metrics.expected_flips([0.1, 0.2], [0.7, 0.5])
    assert flips.neutral == pytest.approx(0.2 + 0.3)  # what neither label gets


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: metrics.accuracy([0], [0, 1]), InvalidData, "truth has 1, labels has 2"),
        (lambda: metrics.accuracy([], []), InvalidData, "no items"),
        (lambda: metrics.accuracy([-1], [-1]), InvalidData, "'truth' must hold class codes, 0"),
        (lambda: metrics.accuracy(["cat"], ["cat"]), InvalidData, "class codes"),
        (lambda: metrics.accuracy([0, 1], [[0], [1]]), InvalidData, "'labels' must hold"),
        (lambda: metrics.expected_accuracy(np.array([])), InvalidData, "no items"),
        (
            lambda: metrics.expected_flips(np.array([0.1]), np.array([])),
            InvalidData,
            "belief_in_old has 1",
        ),
        (lambda: metrics.score_run([]), InvalidParameter, "at least step 0"),
    ],
)
def test_bad_input_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
