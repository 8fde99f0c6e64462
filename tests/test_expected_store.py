"""What a store says of itself without truth: in plans, reports, the log, and as reliability."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from posterity import Model, Store
from posterity.cli import cli
from posterity.engine.evaluation.plans import load_plan
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import ShardHistory
from posterity.engine.ledger.reports import Report
from posterity.engine.ledger.totals import Total, total_of
from posterity.errors import InvalidData
from posterity.method.data.votes import MISSING
from posterity.storage.files import open_files
from tests.stores import NAMES, RULE, World, make, update


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=400, labelled=300)


def recounted(store: Store) -> Total:
    """By looking at every item."""
    context = Context(open_files(store.path))
    total = Total(removed=len(context.removed))
    for shard, start, items in context.shards:
        now = ShardHistory.read(context.ledger, shard, start, items).current([], 0.0)
        here = ~context.removed.among(start, items)
        for label, belief in zip(now.label[here], now.belief[here], strict=True):
            if label >= 0:
                one, square = round(float(belief) * 10**6), round(float(belief) ** 2 * 10**6)
                total = Total(
                    total.labels + 1, total.belief + one, total.squares + square, total.removed
                )
    return total


def held(store: Store) -> Total:
    return Total(**store.steps[-1].report["held"])


def test_sums_of_beliefs_go_from_step_to_step(tmp_path: Path, world: World) -> None:
    """Through updates, pending flips, a settle, reverts, a removal and new items."""
    store = make(tmp_path / "store", world, "old", "mid")
    assert held(store) == recounted(store)
    before = held(store)
    update(store, world, "new", rule="max-belief+confirm")
    assert store.status()["pending"]
    assert held(store) == recounted(store) != before
    store.settle()
    assert held(store) == recounted(store)
    store.revert(3)
    assert held(store) == recounted(store)
    store.revert(2)
    assert held(store) == recounted(store) == before
    store.remove(["item-3", "item-77", "item-399"])
    gone = recounted(store)
    assert gone.labels == before.labels - 3
    store.add({"id": ["late"], "number": [0], "lang": ["de"]})
    update(store, world, "best")
    assert held(store) == recounted(store)
    assert held(store).removed == 3
    store.compact()
    assert held(store) == recounted(store)


def test_a_sum_is_not_counted_anew(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(tmp_path / "store", world, "old", "mid")

    def refused(*_: Any) -> None:
        raise AssertionError("read all items")

    monkeypatch.setattr("posterity.engine.ledger.totals.state_of", refused)
    assert total_of(Context(open_files(store.path))) == recounted(store)


def test_reports_tell_what_they_expect(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid", "new")
    report = update(store, world, "best", budget="100%")
    told = report.to_dict()["expected"]
    labels = np.array(store.labels().sort_by("row")["label"].to_pylist())
    accuracy = (labels == world.truth).mean()
    assert told["accuracy"]["low"] < accuracy < told["accuracy"]["high"]
    assert told["accuracy"]["high"] - told["accuracy"]["low"] < 0.1
    assert told["belief"] == pytest.approx(held(store).belief / 10**6 / held(store).labels)
    for kind in ("positive_flips", "negative_flips"):
        assert told[kind]["low"] <= told[kind]["value"] <= told[kind]["high"]
    shown = 100 * told["accuracy"]["value"]
    assert f"expected accuracy {shown:.1f} % (" in str(report)
    error = 100 * told["calibration_error"]
    assert f"beliefs are off by {error:.1f} points on the labelled set" in str(report)
    assert f"flips; about {told['positive_flips']['value']:,.0f} (" in str(report)
    assert "warning" not in str(report)
    assert store.status()["expected_accuracy"] == told["accuracy"]
    assert json.loads(json.dumps(asdict(store.steps[-1])))["report"]["expected"] == told
    # Asked again, the same report comes from the header.
    again = store.update("best", votes=world.votes_table("best"), budget="100%", rule=RULE)
    assert again.step is None
    assert Report(**store.steps[-1].report) == report


def test_after_a_revert_beliefs_are_unchecked(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.revert(1)
    told = store.status()["expected_accuracy"]
    assert told["low"] is None
    assert told["value"] == pytest.approx(held(store).belief / 10**6 / held(store).labels)
    shown = CliRunner().invoke(cli, ["log", store.path]).output
    assert f"{100 * told['value']:.1f} % ?" in shown
    assert "unchecked" in shown


def test_plain_beliefs_are_unchecked(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid", beliefs="plain")
    report = update(store, world, "new")
    told = report.to_dict()["expected"]
    assert told["accuracy"]["value"] == pytest.approx(told["belief"])
    assert told["accuracy"]["low"] is told["calibration_error"] is None
    assert "unchecked" in str(report)
    assert report.differences == []
    assert told["positive_flips"]["value"] == pytest.approx(report.expected_positive_flips)
    with pytest.raises(InvalidData, match="cannot be checked"):
        store.reliability()


def test_plans_forecast_net_corrections(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    store.register(Model("best", labelled=world.labelled_table("best")))
    plan = store.plan("best", budget="50%", rule=RULE)
    told, tried = plan.to_dict()["forecast"], plan.to_dict()["rehearsed"]
    assert told["value"] == pytest.approx((tried["fixed"] - tried["broken"]) * 400 / 300)
    assert told["low"] < told["value"] < told["high"]
    assert f"about {told['value']:,.0f} ({told['low']:,.0f} to {told['high']:,.0f})" in str(plan)
    assert "net corrections\n" in str(plan)
    filtered = store.plan("best", budget="5%", rule=RULE, where="lang = 'de'")
    assert filtered.forecast is not None
    assert "of labelled items that no filter was applied to\n" in str(filtered)
    kept = load_plan(Context(open_files(store.path)), plan.id)
    assert kept is not None
    assert kept.forecast == told
    before = np.array(store.labels().sort_by("row")["label"].to_pylist())
    store.update("best", votes=world.votes_table("best"), plan=plan.id)
    after = np.array(store.labels().sort_by("row")["label"].to_pylist())
    net = int((after == world.truth).sum()) - int((before == world.truth).sum())
    assert told["low"] <= net <= told["high"]


def test_nothing_is_forecast_before_the_first_label(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world)
    store.register(Model("old", labelled=world.labelled_table("old")))
    plan = store.plan("old")
    assert plan.forecast is None
    assert "net corrections" not in str(plan)


def unlike(seed: int = 0) -> World:
    """Items on which models are far worse than on the labelled ones."""
    world = World(items=2000, labelled=600, seed=seed)
    worse = {"old": 0.35, "mid": 0.4, "new": 0.5, "best": 0.55}
    world.votes = {name: world._guess(world.truth, share) for name, share in worse.items()}
    return world


def test_items_unlike_the_labelled_ones_are_told_of(tmp_path: Path) -> None:
    store = make(tmp_path / "store", unlike(), "old")
    report = update(store, unlike(), "best", budget="100%")
    (told, *_) = [one for one in report.to_dict()["differences"] if one["unlike"]]
    assert told["figure"] == "agreement"
    assert told["target"] < told["labelled"] - 0.1
    assert "warning: the items look unlike the labelled set" in str(report)
    assert "too high" in report.note
    shown = CliRunner().invoke(cli, ["log", store.path]).output
    assert ") !" in shown
    assert "step 1: warning: the items look unlike" in shown


def grown(path: Path, world: World, nights: list[int], budget: str | int) -> list[Report]:
    """A store that gets items every night, and lets a better model look at them; its steps."""
    store = Store.create(path, classes=NAMES)
    store.add(world.table(0, nights[0]))
    reports = [update(store, world, "old")]
    store.register(Model("best", labelled=world.labelled_table("best")))
    for start, stop in pairwise(nights):
        votes = world.votes_table("best").slice(0, start)
        reports.append(store.update("best", votes=votes, budget="10%", more=True))
        store.add(world.table(start, stop))
        votes = world.votes_table("best").slice(0, stop)
        reports.append(store.update("best", votes=votes, budget=budget, more=True))
    return reports


@pytest.mark.parametrize(("nights", "budget"), [([2000, 3000], 1000), ([2000, 2300, 2600], "20%")])
def test_items_that_come_later_are_not_unlike(
    tmp_path: Path, nights: list[int], budget: str | int
) -> None:
    """Their labels rest on other votes than those of older items: so do some labelled ones'."""
    world = World(items=nights[-1], labelled=1000, seed=1)
    for report in grown(tmp_path / "store", world, nights, budget):
        told = {one["figure"]: one for one in report.to_dict()["differences"]}
        assert not any(one["unlike"] for one in told.values())
        assert told["belief"]["target"] == pytest.approx(told["belief"]["labelled"], abs=0.02)
    labels = Store(tmp_path / "store").labels().sort_by("row")["label"].to_pylist()
    accuracy = float(np.mean(np.array(labels) == world.truth))
    expected = report.to_dict()["expected"]["accuracy"]
    assert expected["low"] < accuracy < expected["high"]


def test_items_that_come_later_may_be_unlike(tmp_path: Path) -> None:
    """One vote on each shows nothing; a second model that contradicts it does."""
    world = World(items=3000, labelled=1000, seed=1)
    for name in ("old", "best", "new"):
        worse = world._guess(world.truth, 0.45)
        world.votes[name] = np.where(np.arange(3000) < 2000, world.votes[name], worse)
    first, *_ = grown(tmp_path / "store", world, [2000, 3000], "50%")
    assert "unlike" not in str(first)
    last = update(Store(tmp_path / "store"), world, "new", budget="100%")
    assert "warning: the items look unlike the labelled set" in str(last)


def test_items_that_come_a_few_at_a_time_are_not_left_without_a_vote(tmp_path: Path) -> None:
    """A night's items are less than half a labelled item; those of all nights are not."""
    world = World(items=424, labelled=60, seed=2)
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table(0, 400))
    update(store, world, "old")
    store.register(Model("best", labelled=world.labelled_table("best")))
    for start in range(400, 424, 3):
        store.add(world.table(start, start + 3))
        votes = world.votes_table("best").slice(start, 3)
        assert store.update("best", votes=votes, budget=3, more=True).first_labels == 3
    halves = Prepared(Context(open_files(store.path)), "best")._known.rehearsal._halves
    assert sum(int((half.labels.label == MISSING).sum()) for half in halves) <= 1


def test_reliability_on_the_labelled_set(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid", "new")
    found = store.reliability()
    told = found.to_dict()
    assert told["step"] == 2
    assert told["labels"]["items"] == told["best"]["items"] == 300
    expected = store.steps[-1].report["expected"]
    assert told["labels"]["error"] == pytest.approx(expected["calibration_error"])
    assert 0 < told["labels"]["error"] < 0.1
    # What is believed most is right at least as often as what is stored.
    right = [
        sum(row["right"] * row["items"] for row in told[kind]["bins"])
        for kind in ("best", "labels")
    ]
    assert right[0] >= right[1] - 3
    pytest.importorskip("matplotlib")
    runner, picture = CliRunner(), str(tmp_path / "drawn.svg")
    done = runner.invoke(cli, ["reliability", store.path, "--plot", picture])
    assert done.exit_code == 0
    assert done.output.startswith("300 labelled items after step 2")
    assert f"{100 * told['labels']['error']:.1f} points" in done.output
    assert Path(picture).is_file()
    printed = runner.invoke(cli, ["reliability", store.path, "--json"]).output
    assert json.loads(printed) == json.loads(json.dumps(told))


def test_reliability_needs_a_step(tmp_path: Path, world: World) -> None:
    with pytest.raises(InvalidData, match="no step yet"):
        make(tmp_path / "store", world).reliability()


def test_counts_alone_cannot_be_checked(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    votes = pa.table({"id": world.table()["id"], "vote": world.votes["old"]})
    report = store.update(Model("old", accuracy=0.6), votes=votes)
    assert "unchecked" in str(report)
    with pytest.raises(InvalidData, match="cannot be checked"):
        store.reliability()
