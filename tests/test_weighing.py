"""Labelled items with weights: who is kept, in replays and in stores."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store
from posterity.cli import run as command
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.replay import Recording, run
from posterity.validation import shift
from tests.stores import NAMES, World

WEIGHTS = st.lists(st.floats(0, 100), min_size=1, max_size=200).filter(
    lambda each: max(each) > 1e-6
)


def plainly_kept(weights: list[float]) -> list[int]:
    """Chances in proportion to clipped weights, added up; whenever half is passed one is kept."""
    most = 10 * sum(weights) / len(weights)
    clipped = [min(weight, most) for weight in weights]
    total, kept = 0.0, []
    for at, weight in enumerate(clipped):
        before, total = total, total + weight / max(clipped)
        if math.floor(total + 0.5) > math.floor(before + 0.5):
            kept.append(at)
    return kept


@given(WEIGHTS)
def test_those_kept_are_those_of_plain_loops(weights: list[float]) -> None:
    assert shift.kept(np.array(weights)).tolist() == plainly_kept(weights)


@given(WEIGHTS)
def test_the_highest_weights_stay_and_none_without(weights: list[float]) -> None:
    each = np.array(weights)
    kept = np.isin(np.arange(len(each)), shift.kept(each))
    assert not kept[each == 0].any()
    assert kept[each >= min(each.max(), 10 * each.mean())].all()


@given(st.integers(1, 300), st.floats(1e-3, 1e3))
def test_equal_weights_keep_everything(items: int, weight: float) -> None:
    assert shift.kept(np.full(items, weight)).tolist() == list(range(items))


def test_what_is_left_has_the_mix_that_was_asked_for() -> None:
    group = np.random.default_rng(0).integers(0, 4, 4000)
    wanted = np.array([0.55, 0.25, 0.15, 0.05])
    weights = shift.weights_of_groups(group, 10_000 * wanted, 4)
    kept = group[shift.kept(weights)]
    np.testing.assert_allclose(np.bincount(kept) / len(kept), wanted, atol=0.02)
    # Groups nobody labelled cannot be had; those that differ by chance alone are left alone.
    more = shift.weights_of_groups(group, np.append(10_000 * wanted, 500.0), 5)
    assert len(more) == len(group)
    alike = shift.weights_of_groups(group, np.bincount(group) + np.array([5.0, -5, 5, -5]), 4)
    assert shift.kept(alike).tolist() == list(range(4000))


@pytest.mark.parametrize("wrong", [[1.0, -1.0], [1.0, np.nan], [0.0, 0.0], [[1.0]], ["a", "b"]])
def test_weights_that_are_none(wrong: Any) -> None:
    with pytest.raises(InvalidData, match="weights"):
        shift.checked(wrong)


def mixed(items: int = 4000) -> tuple[Recording, Recording]:
    """Two kinds of items, hard and easy ones: labelled are mostly easy, the target is hard."""
    made = []
    for seed, share in ((1, 0.1), (2, 0.9)):
        rng = np.random.default_rng(seed)
        truth = rng.integers(0, 6, items).astype(np.int32)
        hard = rng.random(items) < share
        # Models err in other ways on each kind: nothing votes could tell without the truth.
        right = rng.random((3, items)) < np.where(hard, 0.4, 0.9)
        wrong = np.where(hard, (truth + 1) % 6, rng.integers(0, 6, (3, items)))
        votes = np.where(right, truth, wrong).astype(np.int32)
        groups = np.where(hard, "hard", "easy")
        names = [f"class-{code}" for code in range(6)]
        made.append(Recording(names, ("a", "b", "c"), truth, votes, groups=groups))
    return made[0], made[1]


def test_replay_weighs_by_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, target = mixed()

    def off(**options: Any) -> float:
        row = run(target, source=labelled, budgets="30%", rules="max-belief", **options).rows[0]
        return float(row["checked_accuracy"] - row["accuracy"])

    assert abs(off(weigh="groups", adapt=False)) < 0.5 * abs(off(adapt=False))
    weights = np.where(labelled.groups == "hard", 9.0, 1 / 9)
    given_ones = replace(labelled, weights=weights)
    row = run(target, source=given_ones, weigh="weights", budgets="30%").rows[0]
    assert row["weigh"] == "weights"
    for name, recording in (("labelled", given_ones), ("target", target)):
        recording.take(np.arange(400)).save(tmp_path / f"{name}.npz")
    again = Recording.load(tmp_path / "labelled.npz")
    assert (again.groups == given_ones.groups[:400]).all()  # type: ignore[index]
    np.testing.assert_allclose(again.weights, weights[:400])  # type: ignore[arg-type]
    replayed = ["replay", str(tmp_path / "target.npz"), "--source", str(tmp_path / "labelled.npz")]
    assert command([*replayed, "--weigh", "groups", "--json"]) == 0
    assert '"weigh": "groups"' in capsys.readouterr().out
    assert command([*replayed, "--weigh", "kinds"]) == 2
    with pytest.raises(UnknownName, match="weigh by"):
        run(target, source=labelled, weigh="kinds")
    with pytest.raises(InvalidData, match="has no weights"):
        run(target, source=labelled, weigh="weights")


def test_with_equal_weights_a_replay_is_the_same() -> None:
    labelled, target = mixed(300)
    even = replace(labelled, weights=np.full(300, 0.7))
    one, other = (
        run(target, source=source, weigh=by, budgets="30%", rules="max-belief").rows[0]
        for source, by in ((labelled, None), (even, "weights"))
    )
    for row in (one, other):
        del row["seconds"], row["weigh"]
    assert one == other


def weighed_table(world: World, name: str, weights: list[float]) -> pa.Table:
    lang = ["de" if at % 2 else "en" for at in range(len(world.labelled_truth))]
    table = world.labelled_table(name).append_column("weight", pa.array(weights))
    return table.append_column("lang", pa.array(lang))


def grown(path: Path, world: World, **options: Any) -> Store:
    """A store after three steps; its models came with weights, if that is asked for."""
    store = Store.create(path, classes=NAMES, shard_rows=200)
    store.add(world.table())
    count = len(world.labelled_truth)
    weights = options.pop("weights", [1.0] * count)
    for name in ("old", "mid", "new"):
        table = weighed_table(world, name, weights)
        store.register(Model(name, labelled=table, vote="vote", **options))
        store.update(name, votes=world.votes_table(name), budget="60%", rule="cost-ratio:2")
    return store


def test_a_store_weighs_and_says_so(tmp_path: Path) -> None:
    world = World(items=400, labelled=600)
    plain = grown(tmp_path / "plain", world)
    even = grown(tmp_path / "even", world, weight="weight")
    assert plain.labels().sort_by("row").equals(even.labels().sort_by("row"))
    unequal = [4.0 if at % 2 else 0.5 for at in range(600)]
    given_ones = grown(tmp_path / "given", world, weight="weight", weights=unequal)
    report = given_ones.steps[-1].report
    assert report["adapted"]["labelled"] == pytest.approx((300 + 300 / 8) / 600, abs=0.01)
    assert given_ones.check() == []
    # Two thirds of the items are "de", of the labelled ones half.
    matched = grown(tmp_path / "match", world, match="lang").steps[-1].report
    assert 0.65 < matched["adapted"]["labelled"] < 0.85
    assert plain.steps[-1].report["adapted"]["labelled"] == 1.0


def test_matched_weights_are_those_of_the_registration(tmp_path: Path) -> None:
    world = World(items=400, labelled=100)
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table(0, 200))
    told = Model(
        "old", labelled=weighed_table(world, "old", [1.0] * 100), vote="vote", match="lang"
    )
    assert store.register(told).labelled == 100
    store.add(world.table(200))
    store.register(told)  # nothing new is said, although the items have changed
    with pytest.raises(InvalidData, match="other labelled votes"):
        store.register(replace(told, match=None, weight="weight"))


def test_weights_outlive_a_removal(tmp_path: Path) -> None:
    world = World(items=200, labelled=100)
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=200)
    store.add(world.table())
    truth = pa.table(
        {
            "id": [f"item-{at}" for at in range(100)],
            "truth": world.truth[:100],
            "weight": [2.0 if at % 2 else 1.0 for at in range(100)],
        }
    )
    store.update(Model("old", labelled=truth, weight="weight"), votes=world.votes_table("old"))
    store.register(Model("mid"))
    store.update("mid", votes=world.votes_table("mid"), budget="50%")
    store.remove(["item-3"])
    store.compact()
    store.register(Model("new"))
    report = store.update("new", votes=world.votes_table("new"), budget="50%")
    assert report.adapted is not None
    assert report.adapted["labelled"] < 1
    assert "% of labelled items" in report.note
    assert store.check() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": "nothing"}, "no column 'nothing'"),
        ({"weight": "lang"}, "one number an item"),
        ({"match": "nothing"}, "nothing"),
        ({"weight": "weight", "key": "nokey"}, "no ids"),
    ],
)
def test_weights_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    world = World(items=50, labelled=60)
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    table = weighed_table(world, "old", [1.0] * 60)
    with pytest.raises(InvalidData, match=message):
        store.register(Model("old", labelled=table, vote="vote", **options))
    with pytest.raises(InvalidParameter, match="not by both"):
        Model("old", labelled=table, weight="weight", match="lang")
    with pytest.raises(InvalidParameter, match="labelled items"):
        Model("old", accuracy=0.5, weight="weight")
    nowhere = Store.create(tmp_path / "empty", classes=NAMES)
    with pytest.raises(InvalidData, match="no items yet"):
        nowhere.register(Model("old", labelled=table, vote="vote", match="lang"))


def test_too_unequal_weights_are_refused(tmp_path: Path) -> None:
    world = World(items=50, labelled=60)
    with pytest.raises(InvalidData, match="weights leave"):
        grown(tmp_path / "few", world, weight="weight", weights=[1000.0] * 3 + [1.0] * 57)
