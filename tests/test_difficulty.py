"""A target harder than the labelled set: against plain loops, and on made-up models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store, priors
from posterity.method import kernels
from posterity.method.adapt import difficulty
from posterity.method.adapt.difficulty import Tilt
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.data import arrays
from posterity.method.data.arrays import Codes
from posterity.method.data.votes import VoteTable
from tests import naive_dependence
from tests.test_dependence import SLOW, fits, histories, made_up, votes_of


@SLOW
@given(data=st.data(), fit=fits())
def test_hardness_is_that_of_plain_loops(data: st.DataObject, fit: Dependence) -> None:
    hard = data.draw(histories(fit))
    scale = np.linspace(0, 1, fit.accuracies.shape[1])
    out, who = np.empty(len(hard)), np.arange(fit.models)
    kernels.adapt.hardness(fit.parameters, hard, who, np.zeros((0, 0)), scale, out, 0, len(hard))
    for item, row in enumerate(hard):
        if (row >= 0).any():
            expected = naive_dependence.hardness(fit, votes_of(row), scale.tolist())
            assert out[item] == pytest.approx(expected, abs=1e-7)


@SLOW
@given(fit=fits(), size=st.floats(-4, 4))
def test_levels_stay_shares_however_far_they_are_tilted(fit: Dependence, size: float) -> None:
    levels = difficulty.tilted(fit, size).levels
    np.testing.assert_allclose(levels.sum(axis=1), 1)
    assert (levels >= 0).all()


def tilt(fit: Dependence, hard: Codes) -> Tilt:
    return difficulty.tilt_of(fit, VoteTable.only(hard), range(hard.shape[1]))


def thinned(votes: Codes) -> Codes:
    """As a budget leaves it: two votes on each item, and some more here and there."""
    few = votes.copy()
    few[:, 2:][np.random.default_rng(5).random((len(votes), votes.shape[1] - 2)) < 0.8] = -1
    return few


def learnt(hard: float = 0.3) -> tuple[Dependence, list[Tilt], Codes, Codes]:
    """A calibrated fit, what it says of its own labelled items, and a target."""
    votes, truth = made_up()
    votes = thinned(votes)
    side, prior = np.arange(len(truth)) % 2 == 0, priors.uniform(20)
    halves = [(beliefs_fit.fit(votes[one], truth[one], prior), ~one) for one in (side, ~side)]
    numbers = beliefs_fit.calibrate(
        [(fit, votes[other], truth[other]) for fit, other in halves],
        range(6),
        np.array(PLAIN_CALIBRATOR),
    )
    labelled = [tilt(fit.calibrated(numbers), votes[other]) for fit, other in halves]
    whole = beliefs_fit.fit(votes, truth, prior).calibrated(numbers)
    votes, truth = made_up(seed=1, hard=hard)
    return whole, labelled, thinned(votes), truth


def test_a_target_like_the_labelled_set_is_left_alone() -> None:
    fit, labelled, votes, _ = learnt()
    size = difficulty.difference(tilt(fit, votes), labelled)
    assert abs(size) < 0.1


@pytest.mark.parametrize("hard", [0.1, 0.6])
def test_beliefs_follow_a_harder_and_an_easier_target(hard: float) -> None:
    fit, labelled, votes, truth = learnt(hard)
    size = difficulty.difference(tilt(fit, votes), labelled)
    assert np.sign(size) == np.sign(hard - 0.3)

    def off(by: Dependence, votes: Codes, truth: Codes) -> float:
        believed = by.believe(votes, range(6))
        return float(believed.belief_best.mean() - (believed.best == truth).mean())

    same, _, *alike = learnt()
    usual = off(same, *alike)  # what is off without any shift is none of its business
    before, after = off(fit, votes, truth), off(difficulty.tilted(fit, size), votes, truth)
    assert abs(after - usual) < 0.5 * abs(before - usual)


def test_selection_by_earlier_votes_does_not_look_like_a_shift() -> None:
    """Items are looked at again where two votes disagree, on the labelled set as on the target."""
    fit, _, votes, _ = learnt()
    votes = votes.copy()
    votes[votes[:, 0] == votes[:, 1], 2:] = -1
    assert abs(tilt(fit, votes).size) < 0.3


def test_single_votes_and_a_single_level_say_nothing() -> None:
    fit, labelled, votes, _ = learnt(0.6)
    alone = votes.copy()
    alone[:, 1:] = -1
    assert difficulty.difference(tilt(fit, alone), labelled) == 0.0
    assert difficulty.difference(Tilt(1.0, 0.1), [Tilt(0.0, np.inf)]) == 0.0


def test_what_could_be_chance_is_hardly_followed() -> None:
    assert difficulty.difference(Tilt(0.5, 5.0), [Tilt(0.0, 0.0)]) < 0.01
    assert difficulty.difference(Tilt(0.5, 0.01), [Tilt(0.0, 0.0)]) > 0.49
    assert difficulty.difference(Tilt(-1.5, 0.01), [Tilt(-1.6, 0.1), Tilt(-1.4, 0.1)]) < 0.01


def test_a_sample_is_spread_over_all_items() -> None:
    assert arrays.evenly(7).tolist() == list(range(7))
    rows = arrays.evenly(10**9)
    assert len(rows) == arrays.SAMPLE
    assert (np.diff(rows) > 0).all()
    assert rows[0] == 0
    assert rows[-1] == 10**9 - 1
    assert len(np.unique(rows // 2**20)) <= 8  # few shards are read
    some = arrays.evenly(30_000)
    assert (np.diff(some) > 0).all()
    assert np.diff(some).max() <= 4  # and where there are not many, all over


def store_of(path: Path, target: Codes, shard_rows: int) -> Store:
    """A store after steps of four models: labelled as the others, with a target of its own."""
    names = [f"class {code}" for code in range(20)]
    labelled, truth = made_up(items=2000)
    store = Store.create(path, classes=names, shard_rows=shard_rows)
    ids = [f"item {row}" for row in range(len(target))]
    store.add(pa.table({"id": ids}))
    for model in range(4):
        columns = {
            "id": [f"labelled {row}" for row in range(len(truth))],
            "truth": np.array(names)[truth],
            "vote": np.array(names)[labelled[:, model]],
        }
        store.register(Model(f"model {model}", labelled=pa.table(columns)))
        votes = pa.table({"id": ids, "vote": np.array(names)[target[:, model]]})
        budget = None if model == 0 else "40%"
        store.update(f"model {model}", votes=votes, budget=budget, rule="cost-ratio:2")
    return store


def test_a_store_follows_a_harder_target_whatever_its_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "SAMPLE", 800)  # so that rows are picked
    monkeypatch.setattr(arrays, "STRETCH", 600)
    target, truth = made_up(items=3000, seed=7, hard=0.6)
    stores = [store_of(tmp_path / f"{rows}", target, rows) for rows in (500, 10_000)]
    one, other = (store.labels().sort_by("row") for store in stores)
    assert one.equals(other)
    assert stores[0].check() == []
    monkeypatch.setattr(difficulty, "difference", lambda *_: 0.0)
    stubborn = store_of(tmp_path / "stubborn", target, 10_000)

    def off(store: Store) -> float:
        labels = store.labels().sort_by("row")["label"].to_pylist()
        right = np.array(labels) == [f"class {code}" for code in truth.tolist()]
        expected = store.steps[-1].report["expected"]["accuracy"]["value"]
        return float(expected - right.mean())

    # Labelled items are far easier; most items have a single vote, which says little of that.
    assert off(stubborn) > 0.1
    assert 0 < off(stores[0]) < off(stubborn) - 0.01


@pytest.mark.parametrize("items", [1, 12])
def test_a_few_items_that_look_alike_prove_nothing(items: int) -> None:
    fit, labelled, votes, _ = learnt()
    alike = np.tile(np.full(votes.shape[1], 3, dtype=np.int32), (items, 1))
    found = tilt(fit, alike)
    assert found.error > 0.5 / np.sqrt(items)
    assert abs(difficulty.difference(found, labelled)) < 0.1
