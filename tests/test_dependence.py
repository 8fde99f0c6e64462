"""Dependent beliefs against plain loops, what is learnt on made-up models, and how it is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posterity import priors
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.beliefs.dependent_state import DependentBeliefs
from posterity.method.beliefs.patterns import Patterns
from posterity.method.beliefs.temperature import Temperature
from posterity.method.data.arrays import Codes
from posterity.method.data.votes import SoftVotes, VoteTable
from posterity.method.decide.budget import FULL, Budget
from posterity.method.decide.rules import MaxBelief
from posterity.method.decide.selectors import Entropy, Everything, Selector, Value
from posterity.method.kernels import compiler
from posterity.validation.cross_fits import Fits
from posterity.validation.outcome import RehearsedStep
from posterity.validation.rehearsal import FRESH, Rehearsal
from tests import naive, naive_dependence, naive_temperatures

CALIBRATORS = (
    PLAIN_CALIBRATOR,
    (0.8, -0.1, 0.2, -0.2, 0.1, 0.3, 0.0, 0.0, 0.0),
    (0.1, -0.1, 0.2, -0.2, 0.1, 0.3, 0.0, 0.0, 0.1),
    (0.9, -0.3, 0.1, 0.1, -0.2, -0.2, 0.2, 0.0, 1.0),
    (0.7, -0.1, 0.1, 0.1, -0.2, 0.2, 0.1, 0.6, 0.03),
)

SLOW = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
TOLERANCE = 1e-9


@st.composite
def labelled_patterns(draw: st.DrawFn, classes: int, models: int) -> Patterns:
    """None, or a few classes' worth, so that histories find some; of any weight."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    items, few = draw(st.sampled_from([0, 1, 40])), draw(st.sampled_from([1, 2, 1000]))
    votes = rng.integers(0, min(few, classes), (items, models)).astype(np.int32)
    seen = Patterns.of(votes, rng.integers(0, classes, items).astype(np.int32))
    weighed = draw(st.booleans())
    return seen.weighed(rng.random(len(seen.truth)) * 3) if weighed else seen


@st.composite
def fits(draw: st.DrawFn) -> Dependence:
    """Any parameters, learnt or not."""
    classes = draw(st.sampled_from([2, 3, 7, 50]))
    models, depth = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    extreme = draw(st.booleans())
    accuracies = (
        rng.choice([0.001, 0.5, 0.999], (models, depth))
        if extreme
        else rng.random((models, depth)).clip(0.001, 0.999)
    )
    copies = np.tril(rng.random((models, models)).clip(0, 0.995), -1)
    cells = np.flatnonzero(rng.random(classes * classes) < 0.2)
    starts = np.searchsorted(cells, np.arange(classes + 1) * classes)
    prior = rng.dirichlet(np.ones(classes))
    if classes > 2 and draw(st.booleans()):
        prior[rng.integers(0, classes)] = 0.0  # a class that cannot be
        prior /= prior.sum()
    return Dependence(
        prior=prior,
        levels=rng.dirichlet(np.ones(depth), classes),
        accuracies=accuracies,
        shifts=rng.normal(0, draw(st.sampled_from([0.0, 2.0])), (models, classes)),
        copies=copies + copies.T,
        rates=rng.dirichlet(np.ones(classes), models).clip(1e-9, 0.98),
        starts=starts,
        wrong=(cells % classes).astype(np.int32),
        seen=rng.random(len(cells)) * 5,
        pull=draw(st.sampled_from([1.0, 64.0])),
        calibrator=np.array(draw(st.sampled_from(CALIBRATORS))),
        patterns=draw(labelled_patterns(classes, models)),
        temperatures=tuple(
            None
            if rng.random() < 0.2
            else Temperature(
                float(rng.choice([0.05, 1.0, 8.0])),
                rng.normal(0, 1, classes),
                float(rng.choice([1e-4, 0.3])),
                float(rng.uniform(0.05, 0.95)),
            ).kept()
            for _ in range(models)
        ),
    )


@st.composite
def histories(draw: st.DrawFn, fit: Dependence) -> Codes:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    few = draw(st.sampled_from([1, 2, 1000]))
    votes = rng.integers(0, min(few, fit.classes), (draw(st.integers(1, 5)), fit.models))
    votes[rng.random(votes.shape) < draw(st.sampled_from([0.0, 0.5, 0.9]))] = -1
    return votes.astype(np.int32)


@st.composite
def softened(draw: st.DrawFn, hard: Codes, classes: int) -> VoteTable:
    """Some of the votes with probabilities: sure ones, zeros, classes left out; any hard vote."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = min(draw(st.integers(1, 5)), classes)
    places = np.full(hard.shape, -1, dtype=np.int64)
    soft = (hard >= 0) & (rng.random(hard.shape) < draw(st.sampled_from([0.3, 1.0])))
    places[soft] = np.arange(soft.sum())
    weights = rng.dirichlet(np.full(classes, draw(st.sampled_from([0.01, 1.0]))), int(soft.sum()))
    top = SoftVotes.top(weights, width)
    kept = np.where(top.weights > 0, top.codes, -1) if draw(st.booleans()) else top.codes
    return VoteTable(hard, places, kept.astype(np.int32), top.weights)


def leaning_of(fit: Dependence, votes: VoteTable, item: int) -> naive_dependence.Leaning:
    """As plain loops have it."""
    listed = votes_of(votes.hard[item])
    softs: list[naive_temperatures.Soft | None] = []
    for model, _ in listed:
        place = int(votes.soft[item, model]) if votes.soft.size else -1
        if place < 0:
            softs.append(None)
            continue
        pairs = zip(votes.classes[place].tolist(), votes.weights[place].tolist(), strict=True)
        softs.append({k: w for k, w in pairs if w > 0})
    return naive_temperatures.leaning(listed, softs, fit.temperatures, fit.classes)


@SLOW
@given(data=st.data(), fit=fits())
def test_contests_are_those_of_plain_loops(data: st.DataObject, fit: Dependence) -> None:
    hard = data.draw(histories(fit))
    found = fit.contest(hard, range(fit.models))
    for item, row in enumerate(hard):
        assert found[item] == pytest.approx(naive_dependence.contest(fit, votes_of(row)), abs=1e-9)


@SLOW
@given(data=st.data(), fit=fits())
def test_leanings_are_those_of_plain_loops(data: st.DataObject, fit: Dependence) -> None:
    hard = data.draw(histories(fit))
    votes = data.draw(softened(hard, fit.classes))
    found = fit.leaning(votes, range(fit.models))
    if not votes.soft.size or not any(fit.temperatures):
        assert not found.size
        return
    for item, row in enumerate(hard):
        expected = leaning_of(fit, votes, item)
        for model, code in votes_of(row):
            assert found[item, model] == pytest.approx(expected[code], abs=1e-6)
        if len(set(row[row >= 0].tolist())) < fit.classes:
            assert found[item, -1] == pytest.approx(expected[None], abs=1e-6)


def votes_of(row: Codes) -> list[tuple[int, int]]:
    return [(model, code) for model, code in enumerate(row.tolist()) if code >= 0]


@SLOW
@given(data=st.data(), fit=fits())
def test_beliefs_are_those_of_plain_loops(data: st.DataObject, fit: Dependence) -> None:
    hard = data.draw(histories(fit))
    votes = data.draw(st.just(VoteTable.only(hard)) | softened(hard, fit.classes))
    every = np.tile(np.arange(fit.classes, dtype=np.int32), (len(hard), 1))
    found = fit.believe(votes, range(fit.models), asked=every)
    for item, row in enumerate(hard):
        if not (row >= 0).any():
            expected = fit.prior.tolist()
        else:
            leaning = leaning_of(fit, votes, item)
            expected = naive_dependence.belief(fit, votes_of(row), leaning)
        np.testing.assert_allclose(found.asked[item], expected, atol=TOLERANCE)
        assert found.entropy[item] == pytest.approx(naive.entropy(expected), abs=1e-7)
        assert found.belief_best[item] == pytest.approx(max(expected), abs=TOLERANCE)
        assert expected[found.best[item]] == pytest.approx(max(expected), abs=TOLERANCE)


@SLOW
@given(data=st.data(), fit=fits(), ratio=st.sampled_from([1.0, 2.0, 10.0]))
def test_the_value_of_a_vote_is_that_of_plain_loops(
    data: st.DataObject, fit: Dependence, ratio: float
) -> None:
    hard = data.draw(histories(fit))
    model = data.draw(st.integers(0, fit.models - 1))
    hard[:, model] = -1
    stored = data.draw(
        st.lists(st.integers(-1, fit.classes - 1), min_size=len(hard), max_size=len(hard))
    )
    labels = np.array(stored, dtype=np.int32)
    votes = data.draw(st.just(VoteTable.only(hard)) | softened(hard, fit.classes))
    found = fit.value(votes, range(fit.models), labels, model=model, ratio=ratio)
    for item, row in enumerate(hard):
        expected = 0.0
        if (row >= 0).any():
            label, leaning = int(labels[item]), leaning_of(fit, votes, item)
            expected = naive_dependence.value(fit, votes_of(row), label, model, ratio, leaning)
        assert found[item] == pytest.approx(expected, abs=1e-7)


@given(fit=fits())
@settings(max_examples=20, deadline=None)
def test_threads_change_no_bit(fit: Dependence) -> None:
    rng = np.random.default_rng(3)
    hard = rng.integers(-1, fit.classes, (2 * compiler.LEAST_ITEMS + 5, fit.models)).astype(
        np.int32
    )
    found = []
    for threads in ("1", "3"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("POSTERITY_THREADS", threads)
            found.append(fit.believe(hard, range(fit.models)))
    np.testing.assert_array_equal(found[0].entropy, found[1].entropy)
    np.testing.assert_array_equal(found[0].best, found[1].best)


def made_up(
    items: int = 4000,
    classes: int = 20,
    models: int = 6,
    seed: int = 0,
    hard: float = 0.3,
) -> tuple[Codes, Codes]:
    """Models that fail on the same items, and often with the same wrong label."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, items)
    hard_items = rng.random(items) < hard
    tempting = (truth + 1 + rng.integers(0, 3, items)) % classes
    votes = np.empty((items, models), dtype=np.int32)
    for model in range(models):
        right = rng.random(items) < np.where(hard_items, 0.3, 0.97)
        wrong = np.where(rng.random(items) < 0.6, tempting, rng.integers(0, classes, items))
        votes[:, model] = np.where(right, truth, wrong)
    return votes, truth.astype(np.int32)


def test_beliefs_of_models_that_err_together_are_calibrated_where_a_product_is_not() -> None:
    votes, truth = made_up()
    prior = priors.uniform(20)
    half = np.arange(len(truth)) % 2 == 0
    seen, other = votes[half], votes[~half]
    fit = beliefs_fit.fit(seen, truth[half], prior)
    quarter = np.arange(len(seen)) % 2 == 0
    parts = [
        (beliefs_fit.fit(seen[side], truth[half][side], prior), seen[~side], truth[half][~side])
        for side in (quarter, ~quarter)
    ]
    numbers = beliefs_fit.calibrate(parts, range(6), np.array(PLAIN_CALIBRATOR))
    believed = fit.calibrated(numbers).believe(other, range(6))
    accuracy = (believed.best == truth[~half]).mean()
    assert abs(believed.belief_best.mean() - accuracy) < 0.03
    assert fit.copies[1, 0] > 0.2  # they repeat each other
    hardest, easiest = fit.accuracies[0].min(), fit.accuracies[0].max()
    assert hardest < 0.5 < 0.9 < easiest


def test_one_model_alone_says_how_often_it_is_right() -> None:
    votes, truth = made_up(models=1)
    fit = beliefs_fit.fit(votes, truth, priors.uniform(20))
    believed = fit.believe(votes, [0])
    assert believed.belief_best.mean() == pytest.approx((votes[:, 0] == truth).mean(), abs=0.02)


@pytest.mark.parametrize("items", [1, 2, 5])
def test_very_few_labelled_items_still_give_beliefs(items: int) -> None:
    votes, truth = made_up(items=items, models=3)
    fit = beliefs_fit.fit(votes, truth, priors.uniform(20))
    numbers = beliefs_fit.calibrate([(fit, votes, truth)], range(3), np.array(PLAIN_CALIBRATOR))
    believed = fit.calibrated(numbers).believe(votes, range(3))
    assert np.isfinite(believed.entropy).all()
    assert ((believed.belief_best > 0) & (believed.belief_best <= 1)).all()


def test_missing_votes_on_the_labelled_set_are_left_out() -> None:
    votes, truth = made_up()
    votes[::3, 2] = -1
    votes[:, 4] = -1
    fit = beliefs_fit.fit(votes, truth, priors.uniform(20))
    assert np.isfinite(fit.believe(votes, range(6)).entropy).all()


def test_what_is_kept_is_what_was_used() -> None:
    votes, truth = made_up()
    fit = beliefs_fit.fit(votes, truth, priors.uniform(20))
    again = Dependence.from_arrays(fit.to_arrays())
    np.testing.assert_array_equal(
        fit.believe(votes, range(6)).entropy, again.believe(votes, range(6)).entropy
    )


def test_votes_folded_one_after_the_other_are_those_folded_at_once() -> None:
    votes, truth = made_up(items=50)
    fit = beliefs_fit.fit(votes, truth, priors.uniform(20))
    beliefs = DependentBeliefs(fit.prior, 50)
    for model in range(6):
        beliefs.fold(votes[:, model], fit)
    whole = DependentBeliefs.from_votes(fit, votes, range(6))
    np.testing.assert_array_equal(beliefs.entropy(), whole.entropy())
    np.testing.assert_allclose(beliefs.probabilities().sum(axis=1), 1)
    np.testing.assert_array_equal(
        beliefs.entropy_without(5, np.arange(50)), fit.believe(votes[:, :5], range(5)).entropy
    )


def test_labelled_items_whose_truth_cannot_be_say_nothing() -> None:
    votes = np.tile(np.array([[0, 1], [0, 0]], dtype=np.int32), (30, 1))
    truth = np.tile(np.array([2, 0], dtype=np.int32), 30)
    fit = beliefs_fit.fit(votes, truth, np.array([0.5, 0.5, 0.0]))
    start = np.array(PLAIN_CALIBRATOR)
    numbers = beliefs_fit.calibrate([(fit, votes, truth)], range(2), start)
    sane = truth == 0
    np.testing.assert_array_equal(
        numbers, beliefs_fit.calibrate([(fit, votes[sane], truth[sane])], range(2), start)
    )


@pytest.mark.filterwarnings("error")
def test_of_two_classes_the_wrong_one_is_no_copy() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200).astype(np.int32)
    votes = np.where(rng.random((200, 3)) < 0.8, truth[:, None], 1 - truth[:, None])
    fit = beliefs_fit.fit(votes.astype(np.int32), truth, priors.uniform(2))
    assert (fit.copies == 0).all()


def test_codes_that_are_no_class_never_reach_the_kernels() -> None:
    votes, truth = made_up(items=50)
    fit = beliefs_fit.fit(votes, truth, priors.uniform(20))
    with pytest.raises(InvalidData, match="between -1 and 19; got 20"):
        fit.believe(np.full((1, 6), 20, dtype=np.int32), range(6))
    with pytest.raises(InvalidData, match="one of 6 models"):
        fit.believe(votes, [0, 1, 2, 3, 4, 6])
    with pytest.raises(InvalidParameter, match="from 0 to 5"):
        fit.value(votes, range(6), truth, model=6, ratio=1)


def test_a_second_step_of_an_earlier_model_forgets_no_votes() -> None:
    """The calibrator looks at every vote of a history, whoever votes in the step at hand."""
    votes, truth = made_up(items=400, models=3)
    votes[:200, 0] = -1
    fits = Fits.of(votes, truth, priors.uniform(20))
    walked = Rehearsal(truth, priors.uniform(20), MaxBelief())
    for model in (1, 2, 0):
        step = RehearsedStep(model, Everything(), MaxBelief(), FULL)
        walked.step(fits, votes[:, model], step)
    half = np.arange(400) % 2
    parts = [(fits.halves[side], votes[half == side], truth[half == side]) for side in (0, 1)]
    fresh = [(fit, cast[cast[:, 0] >= 0], true[cast[:, 0] >= 0]) for fit, cast, true in parts]
    start = beliefs_fit.calibrate(parts, range(3), np.array(PLAIN_CALIBRATOR))
    expected = beliefs_fit.calibrate(fresh, range(3), start, drawn=FRESH)
    np.testing.assert_allclose(walked.calibrator, expected)


@pytest.mark.parametrize("selector", [Value(), Entropy()], ids=str)
def test_each_half_of_the_labelled_set_has_its_share_of_a_budget(selector: Selector) -> None:
    """Beliefs of one half may all be a little less certain: with few classes they hardly differ."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 400).astype(np.int32)
    votes = np.where(rng.random((400, 2)) < 0.8, truth[:, None], 1 - truth[:, None])
    votes = votes.astype(np.int32)
    fits = Fits.of(votes, truth, priors.uniform(2))
    walked = Rehearsal(truth, priors.uniform(2), MaxBelief())
    for number, budget in enumerate((FULL, Budget.of(41))):
        chosen_by = selector if number else Everything()
        step = RehearsedStep(number, chosen_by, MaxBelief(), budget)
        done = walked.step(fits, votes[:, number], step)
    assert done.evaluations == 41
    cast = [int((half.shard.dependent.votes[1] >= 0).sum()) for half in walked._halves]
    assert sorted(cast) == [20, 21]


def test_raw_scores_never_speak_against_a_class() -> None:
    """Where levels of difficulty mislead, the plain product takes over; sharpness stops at 0."""
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 600).astype(np.int32)
    votes = np.where(rng.random((600, 9)) < 0.62, truth[:, None], 1 - truth[:, None])
    side = np.arange(600) % 2 == 0
    fit = beliefs_fit.fit(votes[side].astype(np.int32), truth[side], priors.uniform(2))
    misled = replace(fit, accuracies=1 - fit.accuracies)
    parts = [(misled, votes[~side].astype(np.int32), truth[~side])]
    numbers = beliefs_fit.calibrate(parts, range(9), np.array(PLAIN_CALIBRATOR))
    assert abs(numbers[0] + numbers[1] * np.log(9)) < 1e-9
