"""A target that is unlike the labelled set is told of; one that is like it is not."""

from __future__ import annotations

import numpy as np
import pytest

from posterity.validation import shift
from posterity.validation.expectation import Sums
from posterity.validation.shift import AGREEMENT, BELIEF, CLASSES, Difference, Seen

NOTHING = shift.dispersions([])


def drawn(
    rng: np.random.Generator,
    items: int,
    *,
    voted: float = 1.0,
    low: float = 0.3,
    harder: float = 0.0,
    classes: int = 10,
    skew: float = 0.0,
) -> Seen:
    """A step's votes: agreement rises with the belief in the label, and falls where harder."""
    belief = rng.uniform(low, 1, items)
    share = np.full(classes, 1 / classes)
    share[0] += skew
    label = rng.choice(classes, items, p=share / share.sum()).astype(np.int32)
    at = np.flatnonzero(rng.random(items) < voted)
    agrees = rng.random(len(at)) < 0.1 + 0.8 * belief[at] - harder
    vote = np.where(agrees, label[at], (label[at] + 1) % classes).astype(np.int32)
    return Seen.of(label[at], belief[at], vote, classes).with_held(Sums.of(belief))


def test_like_sets_are_not_told_of() -> None:
    rng = np.random.default_rng(0)
    for items in (200, 2000, 20000):
        for voted in (0.1, 1.0):
            for _ in range(20):
                target, labelled = (drawn(rng, items, voted=voted) for _ in range(2))
                found = shift.compare(target, labelled, NOTHING)
                assert not any(one.unlike for one in found)
                assert shift.warning(found) == ""


def test_votes_that_agree_less_are() -> None:
    rng = np.random.default_rng(1)
    found = shift.compare(drawn(rng, 2000, harder=0.15), drawn(rng, 5000), NOTHING)
    (told,) = [one for one in found if one.unlike]
    assert told.figure == AGREEMENT
    assert told.apart == pytest.approx(-0.15, abs=0.04)
    warned = shift.warning(found)
    assert f"{100 * told.target:.1f} % of cases, not {100 * told.labelled:.1f} %" in warned
    assert "too high" in warned
    easier = shift.compare(drawn(rng, 2000, harder=-0.1), drawn(rng, 5000), NOTHING)
    assert "too low" in shift.warning(easier)


def test_agreement_is_that_of_labels_believed_as_much() -> None:
    """Another choice of items is no difference; only that beliefs are lower is told."""
    rng = np.random.default_rng(2)
    found = shift.compare(drawn(rng, 4000, low=0.3), drawn(rng, 4000, low=0.6), NOTHING)
    assert [one.figure for one in found if one.unlike] == [BELIEF]
    agreement = found[0]
    assert abs(agreement.apart) < 0.03


def test_other_classes_are_told_of_where_everything_was_looked_at() -> None:
    rng = np.random.default_rng(3)
    found = shift.compare(drawn(rng, 4000, skew=0.4), drawn(rng, 4000), NOTHING)
    told = {one.figure: one for one in found}
    assert told[CLASSES].unlike
    assert 0.1 < told[CLASSES].target < 0.5
    some = shift.compare(drawn(rng, 4000, skew=0.4, voted=0.5), drawn(rng, 4000), NOTHING)
    assert CLASSES not in {one.figure for one in some}


def test_many_classes_are_no_difference_by_themselves() -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        target, labelled = (drawn(rng, 1500, classes=1000) for _ in range(2))
        found = {one.figure: one for one in shift.compare(target, labelled, NOTHING)}
        assert abs(found[CLASSES].errors) < 4


def test_one_step_against_all_others_is_an_accident_unless_it_stands_out() -> None:
    rng = np.random.default_rng(5)
    target, labelled = drawn(rng, 2000, harder=0.05), drawn(rng, 5000)
    alone = shift.compare(target, labelled, NOTHING)
    assert -shift.ALONE < alone[0].errors < -shift.CLEAR
    assert alone[0].unlike
    before = [[Difference(AGREEMENT, 0.8, 0.8, errors)] for errors in (1.0, -0.5, 0.2, 0.9)]
    assert not shift.compare(target, labelled, NOTHING, before)[0].unlike
    far = shift.compare(drawn(rng, 2000, harder=0.3), labelled, NOTHING, 20 * before)[0]
    assert far.unlike
    # Not where steps have been as far apart before, to either side.
    wild = [*before, [Difference(AGREEMENT, 0.8, 0.8, -0.6 * far.errors)]]
    assert not shift.compare(drawn(rng, 2000, harder=0.3), labelled, NOTHING, wild)[0].unlike
    leaning = [[Difference(AGREEMENT, 0.8, 0.8, -2.5)] for _ in range(4)]
    assert shift.compare(target, labelled, NOTHING, leaning)[0].unlike


def test_what_halves_differ_by_is_no_difference() -> None:
    rng = np.random.default_rng(6)
    target, labelled = drawn(rng, 2000, harder=0.08), drawn(rng, 5000)
    halves = [[Difference(AGREEMENT, 0.7, 0.8, 5.0 * side)] for side in (1, -1, 1)]
    wide = shift.dispersions(halves)
    assert wide[AGREEMENT] == pytest.approx((3 * 25 + 1) / 4)
    assert wide[BELIEF] == 1
    found = shift.compare(target, labelled, wide)[0]
    assert not found.unlike
    assert found.errors == pytest.approx(
        shift.differences(target, labelled)[0].errors / np.sqrt(wide[AGREEMENT])
    )


def test_too_little_says_nothing() -> None:
    assert shift.differences(Seen(), Seen()) == []
    rng = np.random.default_rng(7)
    assert shift.differences(drawn(rng, 1), drawn(rng, 100)) == []
