"""Forecasts after reviews, against the truth: what people have decided cannot be corrected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store
from posterity.engine.ledger.context import Context
from posterity.engine.plan.prospects import Prospects
from posterity.storage.files import open_files
from posterity.validation.half import picked_alike
from tests.stores import World, make

ITEMS, LABELLED = 1200, 480
REVIEWED = 300


def grown(path: Path, seed: int, **options: Any) -> tuple[Store, World]:
    """A store of two models, and a third one that is about to look at it."""
    world = World(items=ITEMS, labelled=LABELLED, seed=seed)
    store = make(path, world, "old", "mid", **options)
    store.register(Model("new", labelled=world.labelled_table("new"), cost=1.0))
    return store, world


def reviewed(
    store: Store, world: World, count: int, *, order: str = "worth", where: str | None = None
) -> None:
    ids = store.review_queue(count, order=order, where=where).items["id"].to_pylist()
    truth = [str(world.truth[int(one.split("-")[1])]) for one in ids]
    store.review({"id": ids, "answer": truth})


def right(store: Store, world: World) -> int:
    return int((store.labels()["label"].to_numpy(zero_copy_only=False) == world.truth).sum())


def forecast_and_truth(store: Store, world: World) -> tuple[dict[str, float], int]:
    """What a plan says of the next step, and what the step does."""
    found = store.plan("new", budget="30%").forecast
    assert found is not None
    before = right(store, world)
    store.update("new", votes=world.votes_table("new"), budget="30%")
    return found, right(store, world) - before


def judged(folder: Path, seeds: range, order: str, **options: Any) -> tuple[int, float]:
    """How often the truth is in the interval, and the mean error beside the mean truth."""
    told = []
    for seed in seeds:
        store, world = grown(folder / f"{order}-{seed}", seed, **options)
        for _ in range(2):
            reviewed(store, world, REVIEWED // 2, order=order)
        told.append(forecast_and_truth(store, world))
    covered = sum(found["low"] <= truth <= found["high"] for found, truth in told)
    off = np.mean([found["value"] - truth for found, truth in told])
    return covered, float(off / np.mean([truth for _, truth in told]))


def test_the_truth_is_in_the_interval(tmp_path: Path) -> None:
    """The doubtful labels are right by now: what is left has less to correct than all had."""
    covered, off = judged(tmp_path, range(3), "worth")
    assert covered == 3
    assert abs(off) < 0.3


@pytest.mark.long
@pytest.mark.parametrize("beliefs", ["dependent", "plain"])
@pytest.mark.parametrize("order", ["worth", "entropy", "random"])
def test_the_truth_is_in_most_intervals(tmp_path: Path, order: str, beliefs: str) -> None:
    covered, off = judged(tmp_path, range(10, 22), order, beliefs=beliefs)
    assert covered >= 10
    assert abs(off) < 0.15


def test_what_is_told_is_told_everywhere(tmp_path: Path) -> None:
    store, world = grown(tmp_path / "store", 1)
    before = store.plan("new", budget="30%")
    reviewed(store, world, REVIEWED)
    plan = store.plan("new", budget=270)
    assert plan.forecast is not None
    assert before.forecast is not None
    assert plan.forecast["value"] < 0.7 * before.forecast["value"]
    assert plan.rehearsed is not None
    assert plan.rehearsed["answered"] == pytest.approx(REVIEWED * LABELLED / ITEMS, abs=2)
    assert f"({plan.rehearsed['answered']} taken as reviewed)" in str(plan)
    found = Prospects(Context(open_files(store.path)), "new").answer("270")
    assert (found["net"], found["rehearsed"]) == (plan.forecast, plan.rehearsed)
    # A share of all labels, of which those that are reviewed can gain nothing.
    now, then = found["accuracy_now"]["value"], found["accuracy"]["value"]
    assert then - now == pytest.approx(plan.forecast["value"] / ITEMS)
    (choice,) = store.compare(["new"], 270)
    assert choice.net.to_dict() == plan.forecast
    store.revert(store.log()[-1].step)
    again = store.plan("new", budget="30%")
    assert (again.forecast, again.rehearsed) == (before.forecast, before.rehearsed)


def test_where_people_have_decided_everything_nothing_is_expected(tmp_path: Path) -> None:
    store, world = grown(tmp_path / "store", 2)
    reviewed(store, world, ITEMS)
    plan = store.plan("new", budget="30%")
    assert (plan.eligible, plan.forecast) == (0, {"value": 0.0, "low": 0.0, "high": 0.0})
    assert right(store, world) == ITEMS


def test_pending_flips_and_other_steps_go_on_around_answers(tmp_path: Path) -> None:
    store, world = grown(tmp_path / "store", 3)
    best = Model("best", labelled=world.labelled_table("best"))
    store.register(best)
    rule = "cost-ratio:1+confirm"
    store.update("new", votes=world.votes_table("new"), budget="50%", rule=rule)
    assert store.status()["pending"] > 20
    reviewed(store, world, 100)
    store.settle()
    reviewed(store, world, 50, order="random")
    store.redecide("cost-ratio:2")
    plan = store.plan("best", budget="30%")
    assert plan.rehearsed is not None
    assert plan.rehearsed["answered"] == pytest.approx(150 * LABELLED / ITEMS, abs=2)
    assert plan.rehearsed["labels"] + plan.rehearsed["answered"] == LABELLED
    report = store.update("best", votes=world.votes_table("best"), budget="30%")
    assert report.step is not None
    assert store.check() == []


def test_shards_do_not_matter(tmp_path: Path) -> None:
    """Also those that nobody has answered anything of."""
    plans = []
    for size in (64, 500, 10_000):
        store, world = grown(tmp_path / f"store-{size}", 4, shard_rows=size)
        reviewed(store, world, 50, where="number < 60")
        reviewed(store, world, 100)
        plan = store.plan("new", budget="30%")
        plans.append((plan.rows.tolist(), plan.forecast, plan.rehearsed))
    assert plans[0] == plans[1] == plans[2]
    assert plans[0][2] is not None
    assert plans[0][2]["answered"] == pytest.approx(150 * LABELLED / ITEMS, abs=2)


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 80))
def test_as_many_are_picked_in_every_part(picked: list[bool], items: int) -> None:
    mask = np.array(picked, dtype=np.bool_)
    found = picked_alike(mask, items)
    assert len(found) == items
    if items == len(mask):
        assert found.tolist() == picked
    for end in range(items + 1):
        whole, part = divmod(end * len(mask), max(1, items))
        share = mask[:whole].sum() + (part / max(1, items) * mask[whole] if part else 0)
        assert abs(found[:end].sum() - share * items / max(1, len(mask))) <= 0.5 + 1e-9
