"""Models that err more on a target than on the labelled set: plain loops, and made-up models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store, priors
from posterity.cli import run as command
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter, UnknownName
from posterity.method import kernels
from posterity.method.adapt import model_accuracy
from posterity.method.adapt.adapt import read_adapt
from posterity.method.adapt.model_accuracy import Offsets
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import VoteTable
from posterity.replay import Recording, run
from posterity.storage.files import open_files
from tests import naive_dependence
from tests.stores import NAMES, World
from tests.test_dependence import SLOW, fits, histories, votes_of

CLASSES = 5


@SLOW
@given(data=st.data(), fit=fits())
def test_rightness_is_that_of_plain_loops(data: st.DataObject, fit: Dependence) -> None:
    hard = data.draw(histories(fit))
    out, who = [np.empty(hard.shape) for _ in range(3)], np.arange(fit.models)
    kernels.adapt.rightness(fit.parameters, hard, who, np.zeros((0, 0)), *out, 0, len(hard))
    for item, row in enumerate(hard):
        cast = np.flatnonzero(row >= 0)
        if len(cast):
            expected = naive_dependence.rightness(fit, votes_of(row))
            for at, told in zip(cast, expected, strict=True):
                assert [each[item, at] for each in out] == pytest.approx(told, abs=1e-6)
        assert all((each[item, row < 0] == 0).all() for each in out)


@SLOW
@given(fit=fits(), seed=st.integers(0, 2**32 - 1), width=st.sampled_from([0.1, 1.5, 30.0]))
def test_no_offset_turns_a_confusion_around(fit: Dependence, seed: int, width: float) -> None:
    sizes = np.random.default_rng(seed).normal(0, width, fit.models)
    kept = model_accuracy.guarded(fit, sizes)
    assert (np.abs(kept) <= np.abs(sizes)).all()
    assert (np.sign(kept) * np.sign(sizes) >= 0).all()
    after = model_accuracy.moved(fit, kept)
    assert ((after.accuracies > 0) & (after.accuracies < 1)).all()
    for model in range(fit.models):
        for truth in range(min(fit.classes, 7)):
            before, now = (
                [
                    naive_dependence.confusion(each, model, truth, code)
                    for code in range(each.classes)
                ]
                for each in (fit, after)
            )
            upright = before[truth] > max(before[:truth] + before[truth + 1 :]) + 1e-9
            assert not upright or now[truth] > max(now[:truth] + now[truth + 1 :]) - 1e-9


def test_what_could_be_chance_is_hardly_followed_and_nothing_else() -> None:
    known = Offsets(np.array([0.5, 0.5, -0.8, 0.3]), np.array([5.0, 0.01, 0.01, np.inf]))
    nothing = Offsets(np.zeros(4), np.full(4, 0.01))
    found = model_accuracy.difference(known, [nothing, nothing])
    assert abs(found[0]) < 0.01
    assert found[1] > 0.49
    assert found[2] < -0.79
    assert found[3] == 0
    # What labelled items show as well is the method's own error.
    same = model_accuracy.difference(known, [Offsets(known.sizes, np.full(4, 0.01))] * 2)
    assert (same == 0).all()


def drawn(
    rng: np.random.Generator, items: int, right: Floats, classes: int = CLASSES
) -> tuple[Codes, Codes]:
    truth = rng.integers(0, classes, items).astype(np.int32)
    hit = rng.random((items, len(right))) < right
    others = (truth[:, None] + rng.integers(1, classes, hit.shape)) % classes
    return truth, np.where(hit, truth[:, None], others).astype(np.int32)


USUAL = np.array([0.7, 0.75, 0.8, 0.85])
WORSE = np.array([0.7, 0.75, 0.8, 0.5])
"""The last one suffers."""


def offsets(right: Floats, seed: int = 9) -> tuple[Dependence, Floats]:
    """What votes of a target say, after the same on labelled halves is taken off."""
    truth, votes = drawn(np.random.default_rng(0), 4000, USUAL)
    side, prior = np.arange(len(truth)) % 2 == 0, priors.uniform(CLASSES)
    halves = [(beliefs_fit.fit(votes[one], truth[one], prior), ~one) for one in (side, ~side)]
    numbers = beliefs_fit.calibrate(
        [(fit, votes[other], truth[other]) for fit, other in halves],
        range(4),
        np.array(PLAIN_CALIBRATOR),
    )
    whole = beliefs_fit.fit(votes, truth, prior).calibrated(numbers)
    target = drawn(np.random.default_rng(seed), 4000, right)[1]
    checks = [
        model_accuracy.offsets_of(fit.calibrated(numbers), VoteTable.only(votes[other]), range(4))
        for fit, other in halves
    ]
    found = model_accuracy.offsets_of(whole, VoteTable.only(target), range(4))
    return whole, model_accuracy.difference(found, checks)


def test_without_a_shift_little_changes() -> None:
    fit, found = offsets(USUAL)
    assert np.abs(found).max() < 0.1
    assert model_accuracy.most(fit, model_accuracy.moved(fit, found)) < 0.02


def test_a_model_that_suffers_is_found() -> None:
    fit, found = offsets(WORSE)
    assert found.argmin() == 3
    after = model_accuracy.moved(fit, model_accuracy.guarded(fit, found))
    told = [float(fit.prior @ model_accuracy.right_of(after, model)) for model in range(4)]
    assert told[3] < 0.68
    assert np.abs(np.array(told[:3]) - USUAL[:3]).max() < 0.08
    assert model_accuracy.most(fit, after) == pytest.approx(USUAL[3] - told[3], abs=0.03)


def test_single_votes_say_nothing() -> None:
    fit = beliefs_fit.fit(
        *drawn(np.random.default_rng(0), 500, USUAL)[::-1], priors.uniform(CLASSES)
    )
    alone = np.full((50, 4), -1, dtype=np.int32)
    alone[:, 0] = 1
    found = model_accuracy.offsets_of(fit, VoteTable.only(alone), range(4))
    assert not found.sizes.any()
    assert np.isinf(found.errors).all()


def test_names_of_adaptations() -> None:
    assert read_adapt(True) == ("difficulty",)
    assert read_adapt(False) == read_adapt("none") == read_adapt([]) == ()
    assert read_adapt(["confusions"]) == ("confusions",)
    assert read_adapt("confusions, difficulty") == ("difficulty", "confusions")
    with pytest.raises(UnknownName, match="adaptation"):
        read_adapt("dificulty")
    with pytest.raises(InvalidParameter, match="alone"):
        read_adapt("none,difficulty")


def recordings() -> tuple[Recording, Recording]:
    made = []
    for seed, right in ((1, USUAL), (2, WORSE)):
        truth, votes = drawn(np.random.default_rng(seed), 3000, right)
        names = [f"class-{code}" for code in range(CLASSES)]
        made.append(Recording(names, ("a", "b", "c", "d"), truth, votes.T))
    return made[0], made[1]


def test_replay_follows_a_model_that_suffers() -> None:
    labelled, target = recordings()

    def walked(**options: Any) -> dict[str, Any]:
        found = run(target, source=labelled, budgets="100%", rules="max-belief", **options)
        return found.rows[0]

    usual, off, on = walked(), walked(adapt=False), walked(adapt="difficulty,confusions")
    assert [row["adapt"] for row in (usual, off, on)] == [
        *("difficulty", "none", "difficulty,confusions")
    ]
    assert on["accuracy"] > off["accuracy"]
    assert abs(on["checked_accuracy"] - on["accuracy"]) < abs(
        off["checked_accuracy"] - off["accuracy"]
    )


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, target = recordings()
    for name, recording in (("labelled", labelled), ("target", target)):
        recording.take(np.arange(300)).save(tmp_path / f"{name}.npz")
    replayed = ["replay", str(tmp_path / "target.npz"), "--source", str(tmp_path / "labelled.npz")]
    assert command([*replayed, "--adapt", "difficulty,confusions", "--json"]) == 0
    assert '"adapt": "difficulty,confusions"' in capsys.readouterr().out
    assert command([*replayed, "--no-adapt", "--json"]) == 0
    assert '"adapt": "none"' in capsys.readouterr().out
    assert command([*replayed, "--adapt", "nothing"]) == 2
    assert "adaptation" in capsys.readouterr().err


def test_a_store_follows_and_says_by_how_much(tmp_path: Path) -> None:
    world = World(items=1500, labelled=900)
    spoilt = world.rng.random(world.items) < 0.5
    world.votes["new"] = np.where(
        spoilt, NAMES[world.rng.integers(0, 4, world.items)], world.votes["new"]
    )
    notes = {}
    for kind in ("difficulty", "difficulty,confusions"):
        store = Store.create(tmp_path / kind, classes=NAMES, adapt=kind, shard_rows=500)
        store.add(world.table())
        for name in ("old", "mid", "new"):
            store.register(Model(name, labelled=world.labelled_table(name)))
            report = store.update(
                name, votes=world.votes_table(name), budget="100%", rule="max-belief"
            )
        notes[kind] = report
        assert report.adapted is not None
        assert (report.adapted["accuracies"] > 0.02) == ("confusions" in kind)
        assert ("accuracies on these items" in report.note) == ("confusions" in kind)
        assert store.check() == []
    assert command(["init", str(tmp_path / "cli"), "--classes", "a,b", "--adapt", "none"]) == 0
    assert Context(open_files(tmp_path / "cli")).description.adapt == []
    assert command(["init", str(tmp_path / "two"), "--classes", "a,b"]) == 0
    assert Context(open_files(tmp_path / "two")).description.adapt == ["difficulty"]


def test_a_model_that_voted_in_two_steps_has_one_offset() -> None:
    fit, _ = offsets(USUAL)
    votes = drawn(np.random.default_rng(4), 400, WORSE)[1]
    apart = np.column_stack([votes, votes[:, 3]])
    apart[:200, 4] = apart[200:, 3] = -1
    one = model_accuracy.offsets_of(fit, VoteTable.only(votes), range(4))
    two = model_accuracy.offsets_of(fit, VoteTable.only(apart), [0, 1, 2, 3, 3])
    np.testing.assert_allclose(one.sizes, two.sizes, atol=1e-9)
