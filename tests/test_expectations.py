"""What is expected without truth: right in the mean, and within its interval 90 times in 100."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import replay
from posterity.method.adapt import class_shares
from posterity.validation import expectation
from posterity.validation.cross_fits import Fits
from posterity.validation.expectation import Checked, Estimate, Sums
from tests.problems import characters

DRAWS = 400

labels = st.lists(
    st.tuples(st.booleans(), st.floats(0, 1, allow_subnormal=False)), min_size=2, max_size=60
)


@given(labels, st.integers(0, 60))
def test_sums_can_be_made_in_parts(drawn: list[tuple[bool, float]], at: int) -> None:
    right, belief = [one for one, _ in drawn], [one for _, one in drawn]
    whole = Checked.of(right, belief)
    parts = Checked.of(right[:at], belief[:at]) + Checked.of(right[at:], belief[at:])
    assert vars(parts) == pytest.approx(vars(whole))
    assert whole.squares == pytest.approx(
        sum((1 - p) ** 2 if hit else p**2 for hit, p in drawn), abs=1e-9
    )
    assert whole.missed == pytest.approx((sum(right) - sum(belief)) / len(right), abs=1e-9)
    held = Sums.of(belief[:at]) + Sums.of(belief[at:])
    assert vars(held) == pytest.approx(vars(Sums.of(belief)))
    assert held.variance == pytest.approx(sum(p * (1 - p) for p in belief), abs=1e-9)


@given(labels, labels)
def test_an_interval_is_around_its_value(
    target: list[tuple[bool, float]], known: list[tuple[bool, float]]
) -> None:
    held = Sums.of([p for _, p in target])
    checked = Checked.of([hit for hit, _ in known], [p for _, p in known])
    for found, most in (
        (expectation.accuracy(held, checked), 1.0),
        (expectation.flips(held, [(checked, checked)]), np.inf),
        (expectation.forecast(checked.right, 3, labelled=70, items=500), np.inf),
    ):
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.value <= found.high <= most
    accuracy = expectation.accuracy(held, checked)
    assert accuracy is not None
    assert accuracy.value == pytest.approx(
        min(1.0, max(0.0, held.belief / held.items + checked.missed))
    )


def test_without_labelled_items_nothing_is_promised() -> None:
    held = Sums.of([0.5, 0.9])
    assert expectation.accuracy(held) == Estimate(0.7)
    assert expectation.flips(held) == Estimate(1.4)
    assert expectation.accuracy(Sums()) is None


def covered(draw: Callable[[np.random.Generator], tuple[Estimate | None, float]]) -> float:
    """How often an interval holds the truth."""
    rng, hits = np.random.default_rng(7), 0
    for _ in range(DRAWS):
        found, truth = draw(rng)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth <= found.high
    return hits / DRAWS


@pytest.mark.parametrize(("labelled", "items"), [(40, 4000), (500, 300), (2000, 20000)])
@pytest.mark.parametrize("bias", [-0.1, 0.0, 0.08])
def test_accuracy_lies_in_its_interval(labelled: int, items: int, bias: float) -> None:
    """Whether beliefs are right, or too high or low by as much on both sides."""

    def draw(rng: np.random.Generator) -> tuple[Estimate | None, float]:
        chances = [rng.beta(6, 2, size) * 0.8 + 0.1 for size in (labelled, items)]
        right = [rng.random(len(each)) < each for each in chances]
        believed = [np.clip(each + bias, 0, 1) for each in chances]
        checked = Checked.of(right[0], believed[0])
        return expectation.accuracy(Sums.of(believed[1]), checked), right[1].mean()

    assert 0.85 <= covered(draw) <= 0.96


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.2])
def test_flips_lie_in_their_interval(ratio: float) -> None:
    """Where of those believed a share came true, about the same in all steps."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        def believed(size: int, factor: float) -> tuple[np.ndarray, np.ndarray]:
            chance = rng.beta(2, 8, size)
            return rng.random(size) < factor * chance, chance

        steps = []
        for _ in range(4):
            factor = ratio * rng.normal(1, 0.05)
            first, second = (Checked.of(*believed(150, factor)) for _ in range(2))
            steps.append((first, second))
        right, belief = believed(400, factor)
        return expectation.flips(Sums.of(belief), steps), right.sum()

    assert 0.84 <= covered(draw) <= 0.98


def test_few_flips_leave_beliefs_as_they_are() -> None:
    none = Checked()
    one = Checked.of([False], [0.9])
    held = Sums.of([0.9] * 100)
    assert expectation.flips(held, [(none, none)]).value == pytest.approx(90)
    assert 75 < expectation.flips(held, [(none, none), (one, none)]).value < 90


@pytest.mark.parametrize(("labelled", "items"), [(300, 3000), (5000, 5000), (4000, 500)])
def test_net_corrections_lie_in_their_interval(labelled: int, items: int) -> None:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        fixed, broken, _ = rng.multinomial(labelled, [0.04, 0.01, 0.95])
        found = expectation.forecast(fixed, broken, labelled=labelled, items=items)
        truly = rng.multinomial(items, [0.04, 0.01, 0.95])
        return found, truly[0] - truly[1]

    assert 0.86 <= covered(draw) <= 0.97


def test_halves_that_differ_widen_a_forecast() -> None:
    alike = expectation.dispersion([(30 - 31, 80), (28 - 25, 70)])
    apart = expectation.dispersion([(60 - 5, 80), (10 - 50, 70)])
    assert alike == 1
    assert apart > 10
    told = [
        expectation.forecast(60, 5, labelled=100, items=1000, dispersion=each)
        for each in (alike, apart)
    ]
    assert told[0].value == told[1].value == pytest.approx(550)
    narrow, wide = (one.value - (one.low or 0.0) for one in told)
    assert wide == pytest.approx(narrow * np.sqrt(apart))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1), st.integers(0, 3)), max_size=200))
def test_rare_classes_miss_together(drawn: list[tuple[bool, float, int]]) -> None:
    missed = defaultdict(list)
    for hit, belief, code in drawn:
        missed[code].append(hit - belief)
    expected = sum(
        sum(own) ** 2 if len(own) < expectation.RARE else sum(each**2 for each in own)
        for own in missed.values()
    )
    hits, beliefs, codes = ([one[at] for one in drawn] for at in range(3))
    found = Checked.of(hits, beliefs, np.array(codes, dtype=np.int32))
    assert found.together == pytest.approx(expected, abs=1e-9)


@pytest.mark.long
def test_with_thousands_of_classes_intervals_hold() -> None:
    """The prior of each half is learnt on the other: an item's own truth must not speak for it."""
    recording = characters()
    rows = replay.run(recording, split=5000 / len(recording), budgets="100%", seeds=8).rows
    inside = [
        row["checked_accuracy_low"] <= row["accuracy"] <= row["checked_accuracy_high"]
        for row in rows
    ]
    assert sum(inside) >= 6
    assert sum(bool(row["unlike"]) for row in rows) <= 1
    assert abs(np.mean([row["checked_accuracy"] - row["accuracy"] for row in rows])) < 0.6


@pytest.mark.parametrize("kind", ["labelled", "estimated", None])
def test_each_half_has_the_prior_of_the_other(kind: str | None) -> None:
    rng = np.random.default_rng(1)
    truth = rng.choice(5, 200, p=[0.6, 0.2, 0.1, 0.05, 0.05]).astype(np.int32)
    votes = np.where(rng.random((200, 2)) < 0.8, truth[:, None], 0).astype(np.int32)
    whole = class_shares.learnt(kind, np.bincount(truth, minlength=5))
    prior = np.full(5, 0.2) if whole is None else whole
    fits = Fits.of(votes, truth, prior, learnt=kind)
    np.testing.assert_allclose(fits.whole.prior, prior, rtol=1e-6)
    for half, other in zip(fits.halves, (truth[1::2], truth[::2]), strict=True):
        own = class_shares.learnt(kind, np.bincount(other, minlength=5))
        np.testing.assert_allclose(half.prior, prior if own is None else own, rtol=1e-6)


def test_halves_learn_the_prior_from_labelled_items_that_only_one_model_has() -> None:
    """Of 2,000 labelled items 40 are common to all models: too few to know the frequencies."""
    rng = np.random.default_rng(2)
    everyone = rng.choice(3, 2000, p=[0.6, 0.3, 0.1]).astype(np.int32)
    truth, counts = everyone[:40], np.bincount(everyone, minlength=3)
    votes = np.where(rng.random((40, 2)) < 0.8, truth[:, None], 0).astype(np.int32)
    whole = class_shares.learnt("estimated", counts)
    assert whole is not None
    fits = Fits.of(votes, truth, whole, learnt="estimated", counts=counts)
    for half, unseen in zip(fits.halves, (truth[::2], truth[1::2]), strict=True):
        own = class_shares.learnt("estimated", counts - np.bincount(unseen, minlength=3))
        assert own is not None
        np.testing.assert_allclose(half.prior, own, rtol=1e-6)
        assert np.abs(half.prior - whole).max() < 0.01
