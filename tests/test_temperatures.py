"""Temperatures: class probabilities made believable on the labelled set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity.errors import InvalidData
from posterity.method.beliefs import temperature
from posterity.method.beliefs.temperature import Temperature
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import MISSING, SoftVotes
from tests import naive_temperatures as naive


def as_dicts(soft: SoftVotes) -> list[naive.Soft]:
    pairs = zip(soft.codes.tolist(), soft.weights.tolist(), strict=True)
    return [
        {code: weight for code, weight in zip(codes, weights, strict=True) if weight > 0}
        for codes, weights in pairs
    ]


def drawn(items: int, classes: int, *, seed: int = 0, spread: float = 1.5) -> tuple[Floats, Codes]:
    """Probabilities, and truths drawn from them: as calibrated as can be."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.standard_normal((items, classes))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = (rng.random((items, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    return chances, truth.clip(max=classes - 1).astype(np.int32)


def tempered(chances: Floats, sharpness: float) -> Floats:
    powers = chances**sharpness
    tempered: Floats = powers / powers.sum(axis=1, keepdims=True)
    return tempered


@st.composite
def labelled_votes(draw: st.DrawFn) -> tuple[SoftVotes, Codes, int]:
    """Top classes, one-hot rows, zeros and missing votes among them; in half precision or not."""
    classes, items = draw(st.integers(2, 6)), draw(st.integers(0, 60))
    keep = draw(st.integers(1, classes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.dirichlet(np.full(classes, draw(st.sampled_from([0.02, 0.3, 3.0]))), items)
    rows[rng.random(items) < draw(st.sampled_from([0.0, 0.3]))] = 0
    certain = rng.random(items) < draw(st.sampled_from([0.0, 0.3]))
    rows[certain] = np.eye(classes)[rng.integers(0, classes, items)][certain]
    if draw(st.booleans()):
        rows = rows.astype(np.float16).astype(np.float64)
    total = rows.sum(axis=1, keepdims=True)
    rows = rows / np.where(total > 0, total, 1)
    truth = rng.integers(0, classes, items).astype(np.int32)
    return SoftVotes.top(rows, keep), truth, classes


@given(labelled_votes(), st.floats(0.05, 10), st.integers(0, 2**32))
def test_calibrated_votes_equal_naive(
    case: tuple[SoftVotes, Codes, int], sharpness: float, seed: int
) -> None:
    soft, _, classes = case
    biases = np.random.default_rng(seed).standard_normal(classes)
    found = Temperature(sharpness, biases, 0.1).calibrated(soft)
    wanted = [naive.calibrated(each, sharpness, biases.tolist()) for each in as_dicts(soft)]
    for got, expected in zip(as_dicts(found), wanted, strict=True):
        # One that is next to nothing may be nothing.
        assert {k: w for k, w in got.items() if w > 1e-300} == pytest.approx(
            {k: w for k, w in expected.items() if w > 1e-300}
        )
    assert (found.codes == soft.codes).all()
    assert (found.hard == soft.hard).all()


@given(labelled_votes())
@settings(max_examples=60)
def test_what_is_fitted_is_never_less_likely(case: tuple[SoftVotes, Codes, int]) -> None:
    soft, truth, classes = case
    fitted = temperature.fit(soft, truth, classes=classes)
    votes, known = as_dicts(soft), truth.tolist()
    before = naive.likelihood(votes, known, 1.0, [0.0] * classes)
    after = naive.likelihood(votes, known, fitted.sharpness, fitted.biases.tolist())
    assert after >= before - 1e-7 * max(1, abs(before))  # single precision is kept
    low, high = temperature.DULLEST, temperature.SHARPEST
    assert low - 1e-6 <= fitted.sharpness <= high + 1e-6
    if any(votes):
        assert fitted.tail == pytest.approx(naive.tail(votes, known, classes))


@given(labelled_votes())
@settings(max_examples=30)
def test_a_fit_has_no_better_neighbour(case: tuple[SoftVotes, Codes, int]) -> None:
    """Under the likelihood less what draws the sharpness to one, without biases."""
    soft, truth, classes = case
    votes, known = as_dicts(soft), truth.tolist()
    inside = [bool(each.get(true)) for each, true in zip(votes, known, strict=True)]
    few = np.flatnonzero(inside)[:19]  # too few for biases
    soft, truth = soft[few], truth[few]
    fitted = temperature.fit(soft, truth, classes=classes)
    assert not fitted.biases.any()

    def worth(sharpness: float) -> float:
        said = naive.likelihood(as_dicts(soft), truth.tolist(), sharpness, [0.0] * classes)
        return said - (sharpness - 1) ** 2 / 2

    for other in np.geomspace(temperature.DULLEST, temperature.SHARPEST, 60):
        assert worth(fitted.sharpness) >= worth(float(other)) - 1e-5


def test_calibrated_votes_stay_as_they_are() -> None:
    chances, truth = drawn(6000, 5)
    fitted = temperature.fit(SoftVotes.top(chances), truth, classes=5)
    assert fitted.sharpness == pytest.approx(1, abs=0.06)
    assert np.abs(fitted.biases).max() < 0.15


@pytest.mark.parametrize("sharpness", [0.4, 2.5])
def test_a_temperature_is_found_again(sharpness: float) -> None:
    chances, truth = drawn(6000, 5, seed=1)
    shown = SoftVotes.top(tempered(chances, 1 / sharpness))
    fitted = temperature.fit(shown, truth, classes=5)
    assert fitted.sharpness == pytest.approx(sharpness, rel=0.06)
    believed = fitted.calibrated(shown).weights[:, 0].mean()
    right = (shown.hard == truth).mean()
    assert abs(shown.weights[:, 0].mean() - right) > 0.1
    assert believed == pytest.approx(right, abs=0.015)


def test_the_bias_of_a_class_is_found_and_few_items_find_none() -> None:
    chances, truth = drawn(3000, 4, seed=2)
    towards = chances * np.array([4.0, 1.0, 1.0, 1.0])  # names the first class too often
    shown = SoftVotes.top(towards / towards.sum(axis=1, keepdims=True))
    fitted = temperature.fit(shown, truth, classes=4)
    assert fitted.biases[0] - fitted.biases[1:].mean() == pytest.approx(-np.log(4), abs=0.25)
    before = (shown.codes[:, 0] == truth).mean()
    again = fitted.calibrated(shown)
    top = again.codes[np.arange(3000), again.weights.argmax(axis=1)]
    assert (top == truth).mean() > before + 0.02
    for seed in range(10):
        few, known = drawn(60, 40, seed=seed)
        assert not temperature.fit(SoftVotes.top(few), known, classes=40).biases.any()


@given(labelled_votes(), st.floats(0.05, 10))
def test_a_temperature_keeps_the_order_of_classes(
    case: tuple[SoftVotes, Codes, int], sharpness: float
) -> None:
    soft, _, classes = case
    found = Temperature(sharpness, np.zeros(classes), 0.0).calibrated(soft)
    assert (np.diff(found.weights, axis=1) <= 1e-15).all()  # heaviest first, as they were
    present = soft.hard != MISSING
    assert found.weights[present].sum(axis=1) == pytest.approx(1)
    assert (found.weights[~present] == 0).all()


@given(labelled_votes(), st.integers(0, 2**32))
@settings(max_examples=30)
def test_renamed_classes_get_the_same_biases(case: tuple[SoftVotes, Codes, int], seed: int) -> None:
    soft, truth, classes = case
    rename = np.random.default_rng(seed).permutation(classes)
    codes = np.where(soft.codes == MISSING, MISSING, rename[soft.codes]).astype(np.int32)
    renamed = SoftVotes(codes, soft.weights, classes, codes[:, 0])
    one = temperature.fit(soft, truth, classes=classes)
    other = temperature.fit(renamed, rename[truth].astype(np.int32), classes=classes)
    assert other.sharpness == pytest.approx(one.sharpness, rel=1e-6)
    assert other.biases[rename] == pytest.approx(one.biases, abs=1e-6)


def test_votes_that_are_all_right_stay_finite() -> None:
    soft = SoftVotes.top(np.tile([0.6, 0.3, 0.1], (50, 1)))
    fitted = temperature.fit(soft, np.zeros(50, dtype=np.int32), classes=3)
    assert 1 < fitted.sharpness <= temperature.SHARPEST
    assert fitted.calibrated(soft).weights[0, 0] > 0.9


def test_nothing_known_changes_nothing() -> None:
    none = SoftVotes.top(np.zeros((5, 3)))
    fitted = temperature.fit(none, np.zeros(5, dtype=np.int32), classes=3)
    assert (fitted.sharpness, fitted.tail) == (1.0, 0.0)
    some = SoftVotes.top([[0.2, 0.5, 0.3]])
    assert fitted.calibrated(some).weights == pytest.approx(some.weights)


def test_classes_that_do_not_exist_are_refused() -> None:
    soft = SoftVotes.top(np.eye(4))
    with pytest.raises(InvalidData, match="about 3 classes"):
        temperature.fit(soft, [0, 1, 2, 2], classes=3)


def test_what_is_kept_is_what_is_used() -> None:
    chances, truth = drawn(200, 3)
    fitted = temperature.fit(
        SoftVotes.top(chances**2 / (chances**2).sum(1)[:, None]), truth, classes=3
    )
    again = temperature.from_arrays(temperature.to_arrays([None, fitted]))
    assert again[0] is None
    assert again[1] is not None
    assert again[1].biases.tolist() == fitted.biases.tolist()
    for name in ("sharpness", "tail", "accuracy"):
        assert getattr(again[1], name) == getattr(fitted, name)
    assert temperature.from_arrays(temperature.to_arrays([])) == []
