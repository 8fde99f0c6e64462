"""Beliefs that hold per pattern of votes: what was true of labelled items with the same votes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from posterity import priors
from posterity.method import kernels
from posterity.method.adapt import difficulty, model_accuracy
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.beliefs.patterns import CLEARLY, Patterns
from posterity.method.data.arrays import Codes
from posterity.method.decide.budget import FULL
from posterity.method.decide.rules import MaxBelief
from posterity.method.decide.selectors import Everything
from posterity.validation.cross_fits import Fits
from posterity.validation.outcome import RehearsedStep
from posterity.validation.rehearsal import Rehearsal
from tests import naive_dependence

CLASSES = 4


def tickets(items: int, seed: int) -> tuple[Codes, Codes]:
    """Two models; where they say 0 and then 1, the second is right far more often than elsewhere.

    No formula about single models knows that.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, CLASSES, items)
    wrong = (truth[:, None] + rng.integers(1, CLASSES, (items, 2))) % CLASSES
    votes = np.where(rng.random((items, 2)) < (0.6, 0.7), truth[:, None], wrong)
    pair = (votes[:, 0] == 0) & (votes[:, 1] == 1)
    truth = np.where(pair & (rng.random(items) < 0.9), 1, truth)
    return votes.astype(np.int32), truth.astype(np.int32)


def walked(votes: Codes, truth: Codes) -> Dependence:
    """What is believed after both models have voted on everything."""
    prior = priors.uniform(CLASSES)
    rehearsal = Rehearsal(truth, prior, MaxBelief())
    for model in (0, 1):
        fits = Fits.of(votes[:, : model + 1], truth, prior)
        step = RehearsedStep(model, Everything(), MaxBelief(), FULL)
        rehearsal.step(fits, votes[:, model], step)
    return fits.whole.calibrated(rehearsal.calibrator)


def test_beliefs_hold_per_pair_of_votes() -> None:
    known = walked(*tickets(2000, seed=1))
    assert known.calibrator[-1] > 0
    votes, truth = tickets(20_000, seed=2)
    believed = known.believe(votes, [0, 1], asked=votes[:, 1:]).asked[:, 0]
    formulas = known.calibrated(np.append(known.calibrator[:-1], 0.0))
    without = formulas.believe(votes, [0, 1], asked=votes[:, 1:]).asked[:, 0]
    for first in range(CLASSES):
        for second in range(CLASSES):
            pair = (votes[:, 0] == first) & (votes[:, 1] == second)
            true = float((truth == votes[:, 1])[pair].mean())
            assert float(believed[pair].mean()) == pytest.approx(true, abs=0.08), (first, second)
            if (first, second) == (0, 1):
                assert float(without[pair].mean()) < true - 0.1


def test_formulas_are_kept_where_patterns_tell_nothing() -> None:
    """Votes that err by themselves, as the formulas have it: nothing clear is left to learn."""
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 50, 400)
    wrong = rng.integers(0, 50, (400, 2))
    votes = np.where(rng.random((400, 2)) < (0.6, 0.7), truth[:, None], wrong).astype(np.int32)
    prior, start = priors.uniform(50), np.array(PLAIN_CALIBRATOR)
    half = np.arange(400) % 2 == 0
    parts = [
        (beliefs_fit.fit(votes[one], truth[one], prior).calibrated(start), votes[~one], truth[~one])
        for one in (half, ~half)
    ]
    assert beliefs_fit.weigh_patterns(parts, [0, 1]) == 0.0


def test_what_an_item_counts_for_makes_held_out_truths_likeliest() -> None:
    """Against plain loops over the same items."""
    votes, truth = tickets(400, seed=8)
    half = np.arange(400) % 2 == 0
    fit = beliefs_fit.fit(votes[half], truth[half], priors.uniform(CLASSES))
    likely = dict.fromkeys((0.0, *naive_dependence.WORTHS), 0.0)
    for row, true in zip(votes[~half].tolist(), truth[~half].tolist(), strict=True):
        listed = list(enumerate(row))
        known = naive_dependence.of_candidates(fit, listed, formulas_alone=True)
        told, _, _ = naive_dependence.labelled(fit, listed, list(known))
        for worth in likely:
            drawn = naive_dependence.drawn(known, worth, told)
            likely[worth] += math.log(max(drawn[true if true in drawn else None], 1e-12))
    best = max(likely, key=lambda worth: likely[worth])
    assert likely[best] > likely[0.0] + CLEARLY
    assert beliefs_fit.weigh_patterns([(fit, votes[~half], truth[~half])], [0, 1]) == best


def test_no_labelled_item_counts_itself() -> None:
    """Where it is asked for: against plain loops over the labelled items without it."""
    votes, truth = tickets(300, seed=4)
    fit = walked(votes, truth)
    fit = fit.calibrated(np.append(fit.calibrator[:-1], kernels.patterns.WORTHS[4]))
    places = fit.patterns.places(votes, truth)
    assert (fit.patterns.truth[places] == truth).all()
    assert (fit.patterns.votes[places] == votes).all()
    for models in ([0], [0, 1]):
        cast = votes[:, models]
        found = fit.believe(cast, models, asked=cast[:, -1:], own=places).asked[:, 0]
        itself = fit.believe(cast, models, asked=cast[:, -1:]).asked[:, 0]
        assert np.abs(found - itself).max() > 0.001
        for row in range(0, 300, 7):
            listed = list(zip(models, cast[row].tolist(), strict=True))
            known = naive_dependence.of_candidates(fit, listed, formulas_alone=True)
            place = int(places[row])
            told, _, _ = naive_dependence.labelled(fit, listed, list(known), without=place)
            drawn = naive_dependence.drawn(known, fit.calibrator[-1], told)
            assert found[row] == pytest.approx(drawn[int(cast[row, -1])], abs=1e-9)


def test_the_value_of_a_vote_on_a_labelled_item_does_not_count_the_item_itself() -> None:
    votes, truth = tickets(300, seed=6)
    fit = walked(votes, truth)
    fit = fit.calibrated(np.append(fit.calibrator[:-1], kernels.patterns.WORTHS[4]))
    places, label = fit.patterns.places(votes, truth), votes[:, 0].copy()
    found = fit.value(votes[:, :1], [0], label, model=1, ratio=3.0, own=places)
    itself = fit.value(votes[:, :1], [0], label, model=1, ratio=3.0)
    assert np.abs(found - itself).max() > 0.001
    for row in range(0, 300, 7):
        listed, place = [(0, int(votes[row, 0]))], int(places[row])
        expected = naive_dependence.value(fit, listed, int(label[row]), 1, 3.0, without=place)
        assert found[row] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("worth", kernels.patterns.WORTHS)
def test_a_fit_believes_the_same_when_it_is_kept(worth: float) -> None:
    """What is chosen on the labelled set must be what a store decides with."""
    votes, truth = tickets(600, seed=5)
    fit = walked(votes, truth)
    fit = fit.calibrated(np.append(fit.calibrator[:-1], worth))
    kept = Dependence.from_arrays(fit.kept().to_arrays())
    assert kept.calibrator[-1] == worth
    asked = votes[:, 1:]
    before, after = (one.believe(votes, [0, 1], asked=asked).asked for one in (fit, kept))
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_a_few_fresh_items_do_not_change_what_labelled_ones_count_for() -> None:
    """Only where they clearly contradict all histories."""
    votes, truth = tickets(400, seed=8)
    half = np.arange(400) % 2 == 0
    fit = beliefs_fit.fit(votes[half], truth[half], priors.uniform(CLASSES))
    usual = kernels.patterns.WORTHS[3]
    none = [(fit, votes[:0], truth[:0])]
    assert beliefs_fit.weigh_patterns(none, [0, 1], usual) == usual
    assert beliefs_fit.weigh_patterns(none, [0, 1]) == 0.0


def test_items_with_the_same_votes_are_believed_the_same_to_the_last_bit() -> None:
    """Each is computed once; alone or among its like makes no difference."""
    known = walked(*tickets(500, seed=3))
    votes, _ = tickets(3000, seed=4)
    stored = votes[:, 0].copy()
    whole = known.believe(votes, [0, 1], stored, asked=stored[:, None])
    value = known.value(votes[:, :1], [0], stored, model=1, ratio=3.0)
    for item in range(0, 3000, 97):
        one = slice(item, item + 1)
        alone = known.believe(votes[one], [0, 1], stored[one], asked=stored[one, None])
        assert [each[one].tobytes() for each in whole] == [each.tobytes() for each in alone]
        own = known.value(votes[one, :1], [0], stored[one], model=1, ratio=3.0)
        assert own.tobytes() == value[one].tobytes()


def test_more_frequent_classes_count_for_more() -> None:
    """The labelled set has a class as often as another; the target has it nine times as often."""
    votes = np.zeros((200, 1), dtype=np.int32)
    truth = np.repeat([0, 1], 100).astype(np.int32)
    fit = beliefs_fit.fit(votes, truth, np.array([0.9, 0.1]))
    drawn = fit.calibrated(np.append(fit.calibrator[:-1], 1.0)).believe(votes[:1], [0])
    assert drawn.belief_best[0] == pytest.approx(0.9, abs=0.02)


def test_harder_targets_weigh_hard_labelled_items_more() -> None:
    """Against plain loops: by the levels at which the models are right and wrong as they were."""
    votes, truth = tickets(300, seed=5)
    fit = beliefs_fit.fit(votes, truth, priors.uniform(CLASSES))
    tilted = difficulty.tilted(fit, 1.5)
    errors = (1 - fit.accuracies).mean(axis=0)
    scale = (errors - errors.min()) / (errors.max() - errors.min())
    for row in range(len(fit.patterns.truth)):
        k = int(fit.patterns.truth[row])
        likely = []
        for level in range(fit.accuracies.shape[1]):
            weight = float(fit.levels[k, level])
            for model in (0, 1):
                right = naive_dependence.accuracy(fit, model, level, k)
                weight *= right if fit.patterns.votes[row, model] == k else 1 - right
            likely.append(weight)
        tilt = [math.exp(1.5 * float(each)) for each in scale]
        own = sum(one * more for one, more in zip(likely, tilt, strict=True)) / sum(likely)
        usual = sum(float(one) * more for one, more in zip(fit.levels[k], tilt, strict=True))
        assert tilted.patterns.weights[row] == pytest.approx(own / usual)
    assert difficulty.tilted(fit, 0.0).patterns is fit.patterns


def test_models_with_other_accuracies_forget_patterns() -> None:
    fit = beliefs_fit.fit(*tickets(100, seed=6), priors.uniform(CLASSES))
    assert not len(model_accuracy.moved(fit, np.array([0.5, 0.0])).patterns.truth)


def test_answers_are_no_fair_sample_of_patterns() -> None:
    votes, truth = tickets(100, seed=7)
    fits = Fits.of(votes, truth, priors.uniform(CLASSES), answered=20)
    assert fits.whole.patterns.counts.sum() == 80
    assert [fit.patterns.counts.sum() for fit in fits.halves] == [40, 40]


@pytest.mark.parametrize("classes", [10, 40_000])
def test_patterns_are_kept_as_they_are(classes: int) -> None:
    rng = np.random.default_rng(1)
    votes = rng.integers(0, classes, (50, 3)).astype(np.int32)
    made = Patterns.of(votes, rng.integers(0, classes, 50).astype(np.int32))
    kept = made.weighed(rng.random(len(made.truth))).kept()
    again = Patterns.from_arrays(kept.to_arrays())
    for name in ("votes", "truth", "counts", "weights"):
        assert getattr(again, name).tobytes() == getattr(kept, name).tobytes()
