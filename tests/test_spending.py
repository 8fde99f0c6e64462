"""Budgets over time: what is left, what a step is given of it, and what it is worth."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Budget, Evaluation, Model, Spending, Store, VoteFile
from posterity.cli import run as cli
from posterity.errors import InvalidParameter
from posterity.method.data.arrays import Codes
from posterity.method.decide.budget import FULL, LEAST, MOST, SHARES, Account, Outlook, read_budget
from posterity.method.decide.rules import MaxBelief, Rule, traits
from posterity.method.decide.rules import parse as parse_rule
from posterity.method.decide.selectors import parse as parse_selector
from posterity.method.step import choose
from posterity.method.step import update as update_shard
from posterity.replay import run
from posterity.validation.cross_fits import Fits
from posterity.validation.outcome import RehearsedStep
from posterity.validation.rehearsal import Rehearsal
from tests import naive
from tests.problems import synthetic_recording
from tests.stores import World, make

OUTLOOKS = st.lists(st.integers(-20, 40), min_size=len(SHARES) - 1, max_size=len(SHARES) - 1).map(
    lambda found: Outlook(np.concatenate([[0], np.cumsum(found) / 1000]))
)


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=400, labelled=300)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("total:80000", "total:80000"),
        ("total:8e4,horizon=8", "total:80000,horizon=8"),
        (" total:160%,price=2.50 ", "total:160%,price=2.5"),
        ("price:20", "price:20"),
    ],
)
def test_a_budget_over_time_reads_as_it_prints(text: str, same: str) -> None:
    read = read_budget(text)
    assert str(read) == same
    assert read_budget(same) == read == read_budget(read)


@pytest.mark.parametrize(
    "text",
    [
        *("total:", "total:0", "total:-5", "total:nan", "total:1,horizon=0", "price:0", "price:x"),
        *("total:5,horizon=1.5", "total:5,until=6", "price:5,horizon=3", "total:5,6", "total:inf"),
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="budget"):
        read_budget(text)
    with pytest.raises(InvalidParameter, match="budget over time"):
        Spending(horizon=3)


@given(st.floats(1e-6, 1e3), st.one_of(st.none(), st.integers(1, 99)))
def test_a_share_stays_a_share_whatever_it_is(share: float, horizon: int | None) -> None:
    spending = Spending(share=share, horizon=horizon)
    assert Spending.of(str(spending)) == spending


def test_a_budget_of_a_step_is_still_one() -> None:
    assert read_budget("10%") == Budget.of(0.1) == read_budget(0.1)


@given(OUTLOOKS)
def test_slopes_are_those_of_the_least_concave_curve_above(outlook: Outlook) -> None:
    expected = naive.concave_slopes(SHARES.tolist(), outlook.gains.tolist())
    np.testing.assert_allclose(outlook.slopes, expected, atol=1e-9)
    assert all(right <= left + 1e-9 for left, right in pairwise(outlook.slopes))


@given(
    OUTLOOKS,
    st.lists(OUTLOOKS, max_size=3),
    st.integers(1, 30),
    st.integers(1, 5000),
    st.floats(1, 20_000),
    st.sampled_from([0.25, 1.0, 3.0]),
    st.sampled_from([None, 5.0, 50.0]),
)
def test_the_best_evaluations_come_first_whoever_has_them(
    now: Outlook,
    past: list[Outlook],
    steps: int,
    eligible: int,
    left: float,
    unit: float,
    price: float | None,
) -> None:
    account = Account(left, steps, now, past, price, unit, later=2.0)
    found = account.evaluations(eligible)
    widths = (np.diff(SHARES) * eligible).tolist()
    worth = [slope > 0 if price is None else slope * price >= unit for slope in now.slopes]
    own = [
        (slope / unit, width * unit)
        for slope, width, good in zip(now.slopes, widths, worth, strict=True)
        if good
    ]
    expected = Outlook((np.mean([each.gains for each in [*past, now]], axis=0) + now.gains) / 2)
    lowest = min((value for value, _ in own), default=np.inf)
    coming = [
        (slope / 2.0, width * 2.0)
        for slope, width in zip(expected.slopes, widths, strict=True)
        if slope / 2.0 >= lowest
    ]
    spent = naive.spend_best_first(own, coming, steps - 1, left)
    even = left / steps
    spent = min(max(spent, even * LEAST), even * MOST)
    if price is not None:
        spent = min(spent, sum(cost for _, cost in own))
    best = min(eligible, int(left / unit + 1e-6), round(spent / unit))
    # Equal slopes may differ in their last bit: another level in the one, and not in the other.
    assert abs(found - best) <= 1 + 1e-6 * eligible
    assert 0 <= found <= eligible
    assert found * unit <= left + 1e-3


@given(OUTLOOKS, st.integers(1, 40))
def test_steps_that_look_alike_are_given_alike(now: Outlook, steps: int) -> None:
    if now.slopes[0] <= 0:
        return
    affordable = Account(1000.0 * steps, steps, now).evaluations(100_000)
    assert 1000 * LEAST - 1 <= affordable <= 1000 + 1
    reached = float((np.diff(SHARES) * 100_000)[now.slopes > 0].sum())
    assert affordable == round(min(1000, max(reached, 1000 * LEAST)))


def test_a_free_model_looks_at_all_that_gains() -> None:
    now = Outlook(np.minimum(SHARES, 0.5))
    assert Account(10.0, 4, now, unit=0.0).evaluations(1000) == 500
    assert Account(None, 1, now, price=2.0).evaluations(1000) == 500
    assert Account(None, 1, now, price=0.5).evaluations(1000) == 0


@pytest.mark.parametrize("rule", ["max-belief", "cost-ratio:10", "cost-ratio:3+confirm"])
def test_an_outlook_is_what_steps_of_every_share_would_bring(rule: str) -> None:
    """Against a walk of copies, one for each share, under the calibrator the outlook has."""
    recording = synthetic_recording(items=400, models=3, classes=4, missing=0, seed=5)
    prior, decides = np.full(4, 0.25), parse_rule(rule)
    votes = np.ascontiguousarray(recording.votes.T.astype(np.int32))
    selector, rehearsal = parse_selector("value"), Rehearsal(recording.truth, prior, MaxBelief())
    for model in range(2):
        fits = Fits.of(votes[:, : model + 1], recording.truth, prior)
        budget = Budget.of(1.0 if model == 0 else 0.4)
        rehearsal.step(fits, votes[:, model], RehearsedStep(model, selector, decides, budget))
    fits = Fits.of(votes, recording.truth, prior)
    step = RehearsedStep(2, selector, decides, FULL)
    found = rehearsal.outlook(fits, votes[:, 2], step)
    expected = [_brought(rehearsal, fits, votes[:, 2], decides, share) for share in SHARES]
    np.testing.assert_allclose(found.gains, expected, atol=1e-12)
    again = rehearsal.outlook(fits, votes[:, 2], step)
    np.testing.assert_array_equal(found.gains, again.gains)  # nothing was changed


def _brought(rehearsal: Rehearsal, fits: Fits, cast: Codes, rule: Rule, share: float) -> float:
    """By a step on a copy that looks at this share: how many more are known."""
    total, items = 0, 0
    for side, half in enumerate(rehearsal._halves):
        shard, truth, own = deepcopy(half.shard), half.truth, half.own
        fit = fits.halves[side].calibrated(rehearsal.calibrator)
        label = shard.labels[0].label.copy()
        table, ratio = shard.dependent.table, traits(rule).cost
        value = fit.value(table, range(table.hard.shape[1]), label, model=2, ratio=ratio)
        rows = choose(
            shard,
            selector=parse_selector("value"),
            budget=Budget.of(float(share)),
            eligible=np.ones(len(own), dtype=np.bool_),
            step=2,
            value=lambda value=value: value,  # type: ignore[misc]
        )
        before = fit.believe(shard.dependent.table, [0, 1], label).best
        if len(rows):
            update_shard(shard, rows, cast[own[rows]], fit, model=2)
            after = shard.dependent.most_believed(stored=label)
            for row in rows:
                total += int(after[row] == truth[row]) - int(before[row] == truth[row])
        items += len(own)
    return total / items


def register(store: Store, world: World, **costs: float | None) -> None:
    for name, cost in costs.items():
        store.register(Model(name, labelled=world.labelled_table(name), cost=cost))


def spend(store: Store, world: World, name: str, budget: str, *, unplanned: bool = False) -> int:
    report = store.update(
        name,
        votes=VoteFile(world.votes_table(name), keep_unplanned=unplanned),
        budget=budget,
        rule="max-belief",
    )
    return 0 if report.step is None else report.evaluations


def test_steps_of_the_same_budget_share_it(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=None, new=None, best=None)
    budget, spent = "total:300,horizon=3", 0
    for left, name in ((3, "mid"), (2, "new"), (1, "best")):
        plan = store.plan(name, budget=budget, rule="max-belief")
        assert plan.spending is not None
        assert plan.spending["left"] == 300 - spent
        assert plan.spending["steps"] == left
        even = (300 - spent) / left
        assert even * LEAST - 1 <= plan.evaluations <= even * MOST + 1
        assert f"{300 - spent} is left for {f'{left} steps' if left > 1 else 'one step'}" in str(
            plan
        )
        spent += spend(store, world, name, budget)
        assert store.steps[-1].budget == budget
    assert 100 < spent <= 300
    assert store.check() == []


def test_what_an_undone_step_spent_is_spent(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=2.0, new=0.5)
    spent = 2.0 * spend(store, world, "mid", "total:200,horizon=2")
    assert 0 < spent <= 200
    store.revert(store.steps[-1].step)
    plan = store.plan("new", budget="total:200,horizon=2", rule="max-belief")
    assert plan.spending is not None
    assert plan.spending["left"] == 200 - spent
    assert plan.spending["later"] == pytest.approx(1.25)
    assert plan.cost == plan.evaluations * 0.5 <= 200 - spent
    other = store.plan("new", budget="total:200,horizon=3", rule="max-belief")
    assert other.spending is not None  # other words are another account
    assert other.spending["left"] == 200


def test_nothing_is_spent_that_is_not_worth_it(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, best=1.0)
    report = store.update("best", votes=world.votes_table("best"), budget="price:0.001")
    assert report.step is None
    assert "worth its price" in report.note
    few, many = (
        store.plan("best", budget=f"price:{price}", rule="max-belief").evaluations
        for price in (5, 100)
    )
    assert 0 < few <= many


def test_the_first_labels_are_outside_of_it(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world)
    register(store, world, old=None, mid=None)
    assert spend(store, world, "old", "total:50%,horizon=2") == 400
    plan = store.plan("mid", budget="total:50%,horizon=2")
    assert plan.spending is not None
    assert plan.spending["left"] == 200


def test_when_nothing_is_left_nothing_is_done(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=None, best=None)
    assert spend(store, world, "mid", "total:5,horizon=1") == 5
    report = store.update("best", votes=world.votes_table("best"), budget="total:5,horizon=1")
    assert report.step is None
    assert "nothing is left" in report.note


def test_what_is_refused(tmp_path: Path, world: World) -> None:
    plain = make(tmp_path / "plain", world, "old", beliefs="plain")
    register(plain, world, mid=None)
    with pytest.raises(InvalidParameter, match="what a step would bring"):
        plain.plan("mid", budget="total:300")
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=0.5)
    with pytest.raises(InvalidParameter, match=r"one of 'mid' costs 0\.5"):
        store.plan("mid", budget="total:100%")
    recording = synthetic_recording(items=100, models=2, classes=3, missing=0, seed=1)
    with pytest.raises(InvalidParameter, match="needs dependent beliefs"):
        run(recording, budgets="price:5", split=0.5, beliefs="plain")


def test_the_commands(tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=None)
    assert cli(["plan", store.path, "mid", "--budget", "total:200,horizon=2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["spending"]["left"] == 200
    assert len(told["spending"]["outlook"]) == len(SHARES)
    assert cli(["plan", store.path, "mid", "--budget", "total:200,horizon=2"]) == 0
    assert "of total:200,horizon=2 200 is left for 2 steps" in capsys.readouterr().out


@pytest.mark.parametrize("budget", ["total:60%,horizon=3", "total:60%", "total:60%,price=100"])
def test_replay_spends_no_more_than_the_total(budget: str) -> None:
    recording = synthetic_recording(items=600, models=4, classes=4, missing=0, seed=3)
    found = run(recording, budgets=[budget, "20%"], split=0.5, rules="max-belief")
    over_time, each = found.rows
    assert over_time["spending"] == budget
    assert over_time["budget"] is None
    assert (each["budget"], each["spending"]) == (0.2, None)
    assert 0 < over_time["evaluations"] <= each["evaluations"]
    assert budget in str(found)


def test_failures_and_another_try_are_paid_for(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, best=None)
    votes, budget, asked = world.votes["best"], "total:100,horizon=4", list[int]()
    failing = True

    def predict(batch: pa.Table) -> list[str]:
        numbers = batch.column("number").to_pylist()
        asked.extend(numbers)
        if failing and any(number % 2 for number in numbers):
            raise ValueError("odd")
        return [votes[number] for number in numbers]

    model = Model("best", predict=predict)
    first = store.update(model, budget=budget, rule="max-belief", evaluation=Evaluation(batch=1))
    assert first.errors > 0
    paid = first.evaluations + first.errors
    failing = False
    second = store.update(model, budget=budget, rule="max-belief", evaluation=Evaluation(batch=1))
    assert second.evaluations == first.errors
    paid += second.evaluations
    assert paid == len(asked)
    register(store, world, new=None)
    plan = store.plan("new", budget=budget)
    assert plan.spending is not None
    assert (plan.spending["left"], plan.spending["steps"]) == (100 - paid, 3)


def test_it_is_said_where_more_was_spent_than_was_left(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=None, new=None)
    budget = "total:100,horizon=2"
    spent = spend(store, world, "mid", budget, unplanned=True)
    assert spent == 400
    assert "300 more than was left of total:100,horizon=2" in store.steps[-1].report["note"]
    report = store.update("new", votes=world.votes_table("new"), budget=budget)
    assert "nothing is left" in report.note


def test_a_little_for_many_steps_begins_all_the_same(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=None, best=2.0)
    assert spend(store, world, "mid", "total:6,horizon=20") == 1
    report = store.update("best", votes=world.votes_table("best"), budget="total:1")
    assert "only 1 is left, and one costs 2" in report.note


def test_a_plan_is_made_anew_where_its_price_has_changed(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    register(store, world, mid=None)
    before = store.plan("mid", budget="total:120,horizon=3")
    register(store, world, mid=5.0)
    after = store.plan("mid", budget="total:120,horizon=3")
    assert after.cost == 5 * after.evaluations <= 120 < 5 * before.evaluations


def test_the_first_plan_says_it_is_outside(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world)
    register(store, world, old=None)
    assert "outside of total:100" in str(store.plan("old", budget="total:100"))
