"""Soft votes under dependent beliefs: what probabilities say beyond the votes themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from posterity import Model, Store, priors, replay
from posterity.engine.labelled.labelled_votes import labelled_rows
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.beliefs.dependent_state import DependentBeliefs
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import SoftVotes, VoteTable
from posterity.replay import Recording
from posterity.storage.files import open_files
from posterity.validation.cross_fits import Fits, SoftReadings
from tests.conftest import real_recording
from tests.problems import synthetic_recording
from tests.stores import NAMES, World
from tests.test_soft_votes import LabelledSoftly


def telling(votes: Codes, truth: Codes, classes: int, seed: int = 0) -> Floats:
    """(n, K) probabilities that know when a vote is right, and are too sure of it."""
    rng = np.random.default_rng(seed)
    right = votes == truth
    sure = np.where(right, rng.uniform(0.7, 0.999, len(votes)), rng.uniform(0.4, 0.9, len(votes)))
    table = rng.dirichlet(np.ones(classes), len(votes)) * (1 - sure)[:, None]
    table[np.arange(len(votes)), votes] += sure
    table[~right, truth[~right]] += 0.2
    shown: Floats = table / table.sum(axis=1, keepdims=True)
    return shown


def softly(recording: Recording) -> Recording:
    shown = [
        telling(np.maximum(cast, 0), recording.truth, len(recording.classes), at)
        for at, cast in enumerate(recording.votes)
    ]
    return replace(recording, probabilities=np.array(shown, dtype=np.float16))


@pytest.fixture(scope="module")
def recording() -> Recording:
    return softly(synthetic_recording(items=800, classes=5, models=4, missing=0.1, seed=3))


def learnt(recording: Recording) -> tuple[Fits, list[SoftVotes]]:
    softs = [recording.soft_votes(at) for at in range(len(recording.models))]
    readings = [SoftReadings.of(soft, recording.truth, 5) for soft in softs]
    votes = np.ascontiguousarray(recording.votes.T)
    return Fits.of(votes, recording.truth, priors.uniform(5), readings), softs


def test_halves_are_read_as_the_other_half_says(recording: Recording) -> None:
    fits, softs = learnt(recording)
    half = np.arange(len(recording)) % 2
    for side in (0, 1):
        few = recording.take(np.flatnonzero(half != side))
        alone = SoftReadings.of(few.soft_votes(2), few.truth, 5).whole
        known = fits.halves[side].temperatures[2]
        assert known is not None
        assert alone is not None
        assert known.sharpness == alone.sharpness
    assert len(softs) == len(fits.whole.temperatures) == 4


def test_votes_folded_one_after_the_other_are_those_folded_at_once(recording: Recording) -> None:
    """Soft and hard ones of the same model, too."""
    fits, softs = learnt(recording)
    fit = fits.whole.calibrated([0.8, 0, 0, 0, 0, 0.1, 0.1, 0.5])
    beliefs, rows = DependentBeliefs(fit.prior, len(recording)), np.arange(len(recording))
    for model, soft in enumerate(softs):
        even, odd = rows[::2], rows[1::2]
        beliefs.fold(soft[even], fit, rows=even, model=model)
        beliefs.fold(soft.hard[odd], fit, rows=odd, model=model)
    hard = np.ascontiguousarray(recording.votes.T)
    places = np.full(hard.shape, -1, dtype=np.int64)
    places[::2] = np.arange(400 * 4).reshape(4, 400).T
    kept = np.concatenate([soft.codes[::2] for soft in softs])
    weights = np.concatenate([soft.weights[::2] for soft in softs])
    votes = VoteTable(hard, places, kept, weights)
    whole = DependentBeliefs.from_votes(fit, votes, range(4))
    np.testing.assert_array_equal(beliefs.probabilities(), whole.probabilities())
    np.testing.assert_array_equal(
        beliefs.entropy_without(3, rows), fit.believe(votes.of([0, 1, 2]), range(3)).entropy
    )
    only = fit.believe(hard, range(4))
    np.testing.assert_array_equal(whole.entropy(rows)[1::2], only.entropy[1::2])
    assert (whole.entropy(rows)[::2] != only.entropy[::2]).any()


def test_what_tells_the_truth_gets_a_weight_and_hard_votes_give_none(recording: Recording) -> None:
    fits, softs = learnt(recording)
    start, half = np.array(PLAIN_CALIBRATOR), np.arange(len(recording)) % 2
    found = []
    for soft in (True, False):
        beliefs = DependentBeliefs(fits.whole.prior, len(recording))
        for model, each in enumerate(softs):
            beliefs.fold(each if soft else each.hard, fits.whole, model=model)
        votes = beliefs.table.with_votes(
            np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), 3
        )
        parts = [
            (fit, votes[np.flatnonzero(half == side)], recording.truth[half == side])
            for side, fit in enumerate(fits.halves)
        ]
        found.append(beliefs_fit.calibrate(parts, range(4), start))
    assert found[0][7] > 0.3
    assert found[1][7] == 0


def test_parameters_and_back(recording: Recording) -> None:
    fits, _ = learnt(recording)
    mixed = replace(fits.whole, temperatures=(None, *fits.whole.temperatures[1:]))
    again = Dependence.from_arrays(mixed.kept().to_arrays())
    assert again.temperatures[0] is None
    known, kept = mixed.temperatures[1], again.temperatures[1]
    assert known is not None
    assert kept is not None
    assert (known.sharpness, known.biases.tolist()) == (kept.sharpness, kept.biases.tolist())
    hard = replace(fits.whole, temperatures=())
    assert "temperatures" not in hard.to_arrays()
    assert Dependence.from_arrays(hard.to_arrays()).temperatures == ()


def test_classes_nobody_knows_are_refused(recording: Recording) -> None:
    fits, _ = learnt(recording)
    places = np.zeros((1, 4), dtype=np.int64)
    strange = VoteTable(
        np.zeros((1, 4), dtype=np.int32), places, np.array([[5]], np.int32), np.ones((1, 1))
    )
    with pytest.raises(InvalidData, match="known classes; got 5"):
        fits.whole.believe(strange, range(4))


# In replay


OPTIONS: dict[str, Any] = {"split": 0.5, "seed": 1, "budgets": "40%", "rules": "max-belief"}


def test_soft_votes_that_tell_more_decide_better(recording: Recording) -> None:
    (hard,) = replay.run(recording, **OPTIONS).rows
    (soft,) = replay.run(recording, votes="soft", **OPTIONS).rows
    assert (soft["beliefs"], soft["votes"], soft["selector"]) == ("dependent", "soft", "value")
    assert soft["accuracy"] > hard["accuracy"] + 2
    assert abs(soft["expected_accuracy"] - soft["accuracy"]) < 5
    (again,) = replay.run(recording, votes="calibrated", **OPTIONS).rows
    assert again["accuracy"] == soft["accuracy"]  # under dependent beliefs they always are


def test_sure_votes_lean_nowhere(recording: Recording) -> None:
    """All weight on the vote: the tail is just how often that is wrong."""
    certain = np.eye(5)[np.maximum(recording.votes, 0)]
    same = replace(recording, probabilities=certain)
    (hard,) = replay.run(recording, **OPTIONS).rows
    (soft,) = replay.run(same, votes="soft", **OPTIONS).rows
    assert soft["accuracy"] == pytest.approx(hard["accuracy"], abs=1)
    assert soft["expected_accuracy"] == pytest.approx(hard["expected_accuracy"], abs=1)


@pytest.mark.long
def test_soft_votes_of_language_models_break_less() -> None:
    emotion = real_recording("emotion_llm")
    options = OPTIONS | {"budgets": "30%", "prior": "uniform"}
    (hard,) = replay.run(emotion, **options).rows
    (soft,) = replay.run(emotion, votes="soft", **options).rows
    assert soft["accuracy"] > hard["accuracy"] + 0.5
    assert soft["negative_flips"] < 0.9 * hard["negative_flips"]
    assert abs(soft["expected_accuracy"] - soft["accuracy"]) < 2


# In a store


class Telling(LabelledSoftly):
    """Probabilities that know when a vote is right."""

    def __init__(self) -> None:
        World.__init__(self, items=300, labelled=240)

    def shown(self, votes: np.ndarray, seed: int) -> np.ndarray:
        truth = self.truth if len(votes) == self.items else self.labelled_truth
        given, known = (np.searchsorted(NAMES, each).astype(np.int32) for each in (votes, truth))
        return telling(given, known, 4, seed)

    def hardly(self, name: str) -> Model:
        soft = self.softly(name)
        labelled = soft.labelled.drop_columns("p")
        return Model(name, labelled=labelled, predict=soft.predict)


def make(path: Path, world: Telling, *, soft: bool, shard_rows: int = 64) -> Store:
    store = Store.create(path, classes=NAMES, shard_rows=shard_rows)
    store.add(world.table())
    for name in ("old", "mid", "new"):
        model = world.softly(name) if soft else world.hardly(name)
        budget = None if name == "old" else "50%"
        store.update(model, budget=budget, rule="cost-ratio:2")
    return store


def right(store: Store, world: World) -> float:
    labels = store.labels().sort_by("row")["label"].to_pylist()
    return float((np.array(labels) == world.truth).mean())


def test_a_store_leans_as_replay_does_and_keeps_what_it_decided_with(tmp_path: Path) -> None:
    world = Telling()
    soft, hard = (make(tmp_path / str(way), world, soft=way) for way in (True, False))
    assert right(soft, world) > right(hard, world)
    assert soft.check() == hard.check() == []
    before = soft.labels().to_pylist()
    done = soft.revert(1)
    assert soft.check() == []
    soft.revert(done.step)
    assert soft.check() == []
    assert [row["label"] for row in soft.labels().to_pylist()] == [row["label"] for row in before]
    believed = soft.beliefs(top=1).to_pylist()
    assert all(0 < row["beliefs"][0] <= 1 for row in believed)


def test_shards_change_no_bit(tmp_path: Path) -> None:
    world = Telling()
    labels = [
        make(tmp_path / str(size), world, soft=True, shard_rows=size).labels().sort_by("id")
        for size in (37, 1000)
    ]
    assert labels[0].equals(labels[1])


def test_hard_votes_follow_soft_ones(tmp_path: Path) -> None:
    """A model without labelled soft votes counts by its class; both mix in one history."""
    world = Telling()
    store = make(tmp_path / "store", world, soft=True)
    store.update(world.soft_model("best"), budget="50%", rule="cost-ratio:2")
    assert store.check() == []
    assert right(store, world) > 0.85


def test_the_truth_of_imported_items_calibrates_their_soft_votes(tmp_path: Path) -> None:
    """Labelled votes that are looked up, in an import or in the ledger, bring theirs along."""
    world = Telling()
    table = world.table().append_column("old", [world.votes["old"]])
    table = table.append_column("sure", pa.array(world.sure("old").tolist()))
    truth = pa.table({"id": table["id"][:200], "truth": world.truth[:200]})
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=64)
    imported = {"old": Model("old", labelled=truth, soft=3)}
    store.import_predictions(table, imported, soft={"old": "sure"})
    new = world.soft_model("new")
    store.update(Model("new", predict=new.predict, soft=3), budget="50%", rule="cost-ratio:2")
    context = Context(open_files(store.path))
    for name in ("old", "new"):
        rows = labelled_rows(context, context.models[name]).to_pylist()
        top = SoftVotes.top(world.sure(name), 3).codes.tolist()
        assert len(rows) == 200
        for row in rows:
            assert row["soft_classes"] == top[int(row["key"].removeprefix("item-"))]
    fit = context.fits.of(context.headers[-1].fit)
    assert [each is not None for each in fit.dependence.temperatures] == [True, True]
    assert store.check() == []
