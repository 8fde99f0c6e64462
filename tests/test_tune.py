"""Tune: policies on the labelled items' whole history, the choice, and how a store follows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store, replay
from posterity.cli import run
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import PUBLISHED, labels_schema
from posterity.errors import CommitConflict, InvalidData, InvalidParameter, PosterityError
from posterity.method.decide.policy import Figures, Goal, Policy
from posterity.method.decide.rules import AtMost, CostRatio, Evidence, TwoVotes
from posterity.method.decide.rules import parse as parse_rule
from posterity.method.decide.selectors import Contested, Value
from posterity.storage.files import open_files
from posterity.validation.outcome import Coverage
from posterity.validation.tune import Trial, follow, tune
from tests.problems import synthetic_recording
from tests.stores import World, contents, make, update

shares = st.floats(0, 1)
figures = st.builds(
    Figures,
    items=st.just(100),
    first=st.just(0.4),
    final=shares,
    mean=shares,
    fixed=st.integers(0, 60),
    broken=st.integers(0, 60),
)


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=400, labelled=300)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("balance", "balance:90%"),
        ("soon:0.5", "soon:50%"),
        ("final:97%", "final:97%"),
        ("ratio:5.0", "ratio:5"),
        ("at-most:0.5%", "at-most:0.5%,confidence=0.9"),
        ("at-most:1%,confidence=0.95", "at-most:1%,confidence=0.95"),
    ],
)
def test_goals_are_read_and_written(text: str, kept: str) -> None:
    assert str(Goal.parse(text)) == kept
    assert Goal.parse(kept) == Goal.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("best", "balance:120%", "balance:0", "ratio", "ratio:0", "ratio:inf", "ratio:x"),
        *("at-most", "at-most:1%,ratio=5", "at-most:1%,confidence=0.9999999999999999", 3),
    ],
)
def test_what_is_no_goal_is_refused(text: Any) -> None:
    with pytest.raises(PosterityError):
        Goal.parse(text)


@given(st.lists(figures, min_size=1, max_size=8), st.sampled_from(["balance", "soon", "final"]))
def test_enough_of_the_gain_with_fewest_broken(tried: list[Figures], name: str) -> None:
    chosen = tried[Goal.parse(f"{name}:90%").choose(tried)]
    parts = {"balance": ("final", "mean"), "soon": ("mean",), "final": ("final",)}[name]
    enough = list(tried)
    for part in parts:
        best = max(getattr(one, part) - one.first for one in tried)
        enough = [one for one in enough if getattr(one, part) - one.first >= min(0.9 * best, best)]
    if enough:
        assert chosen in enough
        assert chosen.broken == min(one.broken for one in enough)


def test_where_no_policy_has_most_of_both_the_one_that_falls_short_least_is_taken() -> None:
    def policy(final: float, mean: float) -> Figures:
        return Figures(items=100, first=0.7, final=final, mean=mean, fixed=1, broken=1)

    goal = Goal.parse("balance")
    assert goal.choose([policy(0.70, 0.70), policy(0.69, 0.72)]) == 1
    # Accuracy falls whatever is done: by a whole quotient the last one would look best.
    falling = [policy(0.69, 0.705), policy(0.695, 0.715), policy(0.40, 0.72)]
    assert goal.choose(falling) == 1


@given(st.lists(figures, min_size=1, max_size=8), st.sampled_from(["balance", "soon", "final"]))
def test_a_goal_always_has_a_choice(tried: list[Figures], name: str) -> None:
    chosen = tried[Goal.parse(f"{name}:90%").choose(tried)]
    assert not any(
        one.final > chosen.final and one.mean > chosen.mean and one.broken <= chosen.broken
        for one in tried
    )


@given(st.lists(figures, min_size=1, max_size=8), st.floats(0.1, 100))
def test_a_broken_label_costs_so_many_fixed_ones(tried: list[Figures], cost: float) -> None:
    chosen = tried[Goal("ratio", cost).choose(tried)]
    assert all(
        chosen.fixed - cost * chosen.broken >= one.fixed - cost * one.broken for one in tried
    )


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.9998, 0.999999])
def test_promises_are_made_with_confidence_for_all_of_them(confidence: float) -> None:
    """Each of the policies keeps its promise so often that all of them together are kept."""
    tried = Goal.parse(f"at-most:1%,confidence={confidence}").policies
    rules = [policy.rule for policy in tried]
    assert all(isinstance(rule, AtMost) and rule.rate == 0.01 for rule in rules)
    doubts = [1 - rule.confidence for rule in rules if isinstance(rule, AtMost)]
    assert 0.97 * (1 - confidence) < sum(doubts) <= 1 - confidence


def test_a_class_needs_two_votes() -> None:
    evidence = Evidence(
        label=np.array([0, 0, 0]),
        vote=np.array([1, 1, 0]),
        best=np.array([1, 1, 0]),
        belief_best=np.array([0.9, 0.9, 0.9]),
        belief_label=np.array([0.1, 0.1, 0.9]),
        support=np.array([1, 2, 1]),
    )
    rule = parse_rule("cost-ratio:2+two-votes")
    assert rule == TwoVotes(CostRatio(2))
    assert rule.decide(evidence).tolist() == [0, 1, 0]
    assert TwoVotes(CostRatio(20)).decide(evidence).tolist() == [0, 0, 0]
    for text in ("replace+two-votes", "balanced+two-votes", "max-belief+confirm+two-votes"):
        with pytest.raises(InvalidParameter):
            parse_rule(text)


def test_the_history_is_that_of_a_rehearsal() -> None:
    """Step by step the same as a replay's own rehearsal under the same policy."""
    recording = synthetic_recording(items=400, classes=4, models=3, missing=0.0, seed=1)
    from posterity.method.decide.budget import Budget
    from posterity.replay.split import read_prior, take_apart
    from posterity.replay.walk import Fitted, walk_dependent

    parts = take_apart(recording, 0.5, seed=1)
    fitted = Fitted(parts.labelled, read_prior("uniform", parts.labelled))
    policy = Policy(Value(), CostRatio(2.0))
    truth, history = parts.labelled.truth, fitted.history(0.3)
    begun = Trial.start(truth, fitted.prior, history, items=len(parts.target))
    track = follow(policy, begun, after_each=lambda: None)
    steps = list(
        walk_dependent(
            parts.target,
            fitted,
            selector=policy.selector,
            budget=Budget.of(0.3),
            rules=[policy.rule],
            adapt=(),
        )
    )
    # The first step, which is the same under any policy, is made once for all of them.
    goal = Goal.parse("ratio:2")
    found = tune(truth, fitted.prior, history, goal=goal, current=policy, items=len(parts.target))
    own = next(one for one in found.tried if (one.selector, one.rule) == ("value", "cost-ratio:2"))
    assert own.figures == track.figures()
    told = [step.rehearsed for step in steps if step.rehearsed is not None]
    assert track.fixed.sum(axis=1).tolist() == [one.fixed for one in told]
    assert track.broken.sum(axis=1).tolist() == [one.broken for one in told]
    items = len(parts.labelled)
    after = [one.accuracy_after for one in told]
    assert (track.right.sum(axis=1) / items).tolist() == pytest.approx(after)
    assert track.last.mean() == pytest.approx(after[-1])


def test_it_finds_what_fits_and_says_how_far_to_trust_it(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    before = contents(store)
    seen: list[tuple[int, int]] = []
    found = store.tune("new", budget="30%", progress=lambda done, total: seen.append((done, total)))
    assert contents(store) == before
    assert seen[-1][0] == seen[-1][1] == len(found.tried) * 3
    assert found.steps == 3
    assert found.current is not None
    assert (found.current.selector, found.current.rule) == ("value", "balanced:80%")
    best = max(one.figures.final - one.figures.first for one in found.tried)
    assert found.chosen.figures.final - found.chosen.figures.first >= 0.9 * best
    assert found.chosen.frontier or found.chosen.figures.broken == 0
    assert found.crossed.items == 300
    told = str(found)
    assert f"choice: {found.chosen.selector}, {found.chosen.rule}" in told
    assert "checked (chosen on one half of the items, scored on the other)" in told
    assert all(len(line) <= 120 for line in told.splitlines())
    json.dumps(found.to_dict())


def test_what_was_tried_is_kept_until_something_changes(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTERITY_CACHE", str(tmp_path / "cache"))
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    tried: list[str] = []

    def counted(policy: Policy, *rest: Any, **options: Any) -> Any:
        tried.append(str(policy))
        return follow(policy, *rest, **options)

    monkeypatch.setattr("posterity.validation.tune.follow", counted)

    def tuned(goal: str, budget: str = "30%") -> tuple[dict[str, Any], int]:
        tried.clear()
        found = Store(store.path).tune("new", goal=goal, budget=budget)
        return found.to_dict(), len(tried)

    first, every = tuned("final")
    assert every == len(first["tried"])
    assert tuned("final") == (first, 0)
    other, more = tuned("ratio:5")  # another goal for the same policies
    assert more == 0
    promised, more = tuned("at-most:30%")
    assert more == len(promised["tried"]) == 3
    assert tuned("final") == (first, 0)
    assert tuned("final", "40%")[1] == every
    update(store, world, "new", budget="10%")
    store.register(Model("newest", labelled=world.labelled_table("new")))
    tried.clear()
    Store(store.path).tune("newest", goal="final", budget="30%")
    assert len(tried) == every
    monkeypatch.setenv("POSTERITY_CACHE", "off")
    assert tuned("ratio:5")[1] == every
    assert other["tried"] == first["tried"]


def test_a_policy_leaves_what_was_tried_as_it_is(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a policy nor its revert changes the history; what an interrupt leaves is kept."""
    monkeypatch.setenv("POSTERITY_CACHE", str(tmp_path / "cache"))
    store = make(tmp_path / "store", world, "old", "mid")
    left = [5]

    def interrupted(policy: Policy, *rest: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return follow(policy, *rest, **options)

    monkeypatch.setattr("posterity.validation.tune.follow", interrupted)
    with pytest.raises(Killed):
        store.tune("mid", goal="final:99%")
    left[0] = 43
    step = store.tune("mid", goal="final:99%", apply=True).step
    assert left[0] == 0
    assert step == 2
    store.tune("mid", goal="ratio:2")
    store.revert(step)
    store.tune("mid", goal="ratio:3")


def test_the_next_step_has_the_budget_of_a_plan(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share is one of the items that are left for the model, not of all of them."""
    store = make(tmp_path / "store", world, "old", "mid")
    update(store, world, "mid", budget="80%")
    assert 0 < store.plan("mid", budget="100%").evaluations < 100
    coverages, history = list[Coverage | None](), Prepared.history

    def watched(self: Prepared, coverage: Coverage | None) -> Any:
        coverages.append(coverage)
        return history(self, coverage)

    monkeypatch.setattr(Prepared, "history", watched)
    store.tune("mid", budget="50%")
    assert coverages == [Coverage(0.0, store.plan("mid", budget="50%").evaluations / 400)]
    update(store, world, "mid", budget="100%")
    with pytest.raises(InvalidParameter, match="no next step"):
        store.tune("mid", budget="50%")


def test_a_tuned_policy_is_for_beliefs_that_are_checked(tmp_path: Path, world: World) -> None:
    """A model with nothing but a stated confusion is believed plainly, and so with caution."""
    store = make(tmp_path / "store", world, "old", "mid")
    store.tune("mid", goal="ratio:1", apply=True)
    policy = store.status()["policy"]
    assert policy != "value, balanced:80%"
    store.register(Model("stated", confusion=np.eye(4) * 0.6 + 0.1))
    store.register(Model("new", labelled=world.labelled_table("new")))
    plans = [store.plan(name, budget="30%") for name in ("new", "stated")]
    rules = [plan.request.rule for plan in plans]
    assert rules == [policy.split(", ")[1], "balanced:80%"]
    report = store.update("stated", votes=world.votes_table("new"), budget="30%")
    assert "this step follows balanced:80%,ratio=10" in report.note
    asked = store.plan("stated", budget="30%", rule="max-belief").request
    assert asked.rule == "max-belief"


def test_a_policy_that_was_applied_is_published_by_the_next_call(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of any other step that was killed between its commit and the table of labels."""
    store = make(tmp_path / "store", world, "old", "mid")
    with monkeypatch.context() as patched:
        patched.setattr("posterity.engine.ledger.publish._publish", _killed)
        with pytest.raises(Killed):
            store.tune("mid", goal="ratio:8", apply=True)
    assert _published(store) == 1
    assert "Nothing to do" in store.tune("mid", goal="ratio:8", apply=True).note
    assert _published(store) == 2


class Killed(BaseException):
    """As an interrupt is, but that pytest does not stop for it."""


def _killed(*_: Any, **__: Any) -> None:
    raise Killed


def _published(store: Store) -> int | None:
    context = Context(open_files(store.path))
    return context.layout.labels(labels_schema(context)).head().fence(PUBLISHED)


def test_two_models_that_have_voted_have_answers_of_their_own(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their history is the same, and so is the prior; the next step is not."""
    store = make(tmp_path / "store", world, "old", "mid", "best")

    def tuned(name: str) -> list[dict[str, Any]]:
        found = Store(store.path).tune(name, budget="30%").to_dict()["tried"]
        assert isinstance(found, list)
        return found

    monkeypatch.setenv("POSTERITY_CACHE", "off")
    alone = tuned("mid"), tuned("best")
    monkeypatch.setenv("POSTERITY_CACHE", str(tmp_path / "cache"))
    assert (tuned("mid"), tuned("best")) == alone
    assert alone[0] != alone[1]


def test_the_same_command_is_done_once_whatever_the_policy_is_by_then(
    tmp_path: Path, world: World
) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    votes = world.votes_table("new")
    assert store.update("new", votes=votes, budget="10%").step == 2
    store.register(Model("best", labelled=world.labelled_table("best")))
    assert store.tune("best", goal="ratio:8", apply=True).step == 3
    again = store.update("new", votes=votes, budget="10%")
    assert again.step is None
    assert "carried out already" in again.note
    # With a rule of its own it is other work.
    assert store.update("new", votes=votes, budget="10%", rule="max-belief").step == 4


def test_a_choice_is_for_the_steps_it_has_read(tmp_path: Path, world: World) -> None:
    from posterity.engine.plan.tune import apply

    store = make(tmp_path / "store", world, "old", "mid")
    found = store.tune("mid", goal="ratio:8")
    assert found.head == 1
    update(store, world, "best")
    with pytest.raises(CommitConflict, match="Step 2 was made after this choice"):
        apply(Context(open_files(store.path)), found)
    assert store.status()["policy"] == "value, balanced:80%"


def test_a_policy_does_not_stand_in_the_way_of_a_plan(tmp_path: Path, world: World) -> None:
    """It moves neither votes nor labels: what was planned before can be carried out after it."""
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    plan = store.plan("new", budget="20%")
    assert store.tune("new", goal="ratio:8", apply=True).step == 2
    votes = world.votes_table("new")
    report = store.update("new", votes=votes, plan=plan.id)
    assert report.step == 3
    assert str(store._context().headers[-1].rule).startswith("balanced:80%")  # as planned
    assert store.check() == []
    other = store.plan("new", budget="10%")
    update(store, world, "best")
    with pytest.raises(CommitConflict, match="Step 4 was made after this plan"):
        store.update("new", votes=votes, plan=other.id)


def test_a_policy_changes_nothing_that_is_expected_of_labels(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    expected = store.status()["expected_accuracy"]
    assert expected["low"] is not None
    step = store.tune("mid", goal="ratio:8", apply=True).step
    assert step is not None
    store.revert(step)
    assert store.status()["expected_accuracy"] == expected
    store.remove([f"item-{number}" for number in range(100)])
    assert store.status()["expected_accuracy"] is None
    store.tune("mid", goal="ratio:8", apply=True)
    # Of other items than those it was estimated for: without the interval of all of them.
    assert store.status()["expected_accuracy"]["low"] is None


def test_policies_that_differ_on_the_way_are_shown() -> None:
    """Of two policies with the same end, one that is better sooner is not the closest one."""
    at_the_end = Figures(items=100, first=0.5, final=0.71, mean=0.65, fixed=30, broken=3)
    sooner = replace(at_the_end, final=0.6, mean=0.75, broken=4)
    alike = replace(at_the_end, final=0.715, mean=0.655, broken=5)
    assert at_the_end.apart(alike) < at_the_end.apart(sooner)


def test_a_store_follows_its_policy_until_it_is_undone(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    accuracy = store.status()["expected_accuracy"]
    found = store.tune("new", goal="ratio:8", apply=True)
    assert found.step == 2
    assert store.status()["expected_accuracy"] == accuracy
    plan = store.plan("new", budget="20%")
    assert (plan.request.selector, plan.request.rule) == (found.chosen.selector, found.chosen.rule)
    again = store.tune("new", goal="ratio:8", apply=True)
    assert again.step is None
    assert "Nothing to do" in again.note
    labels = store.labels()
    done = store.revert(2)
    assert (done.items, done.changed) == (0, 0)
    assert store.labels().equals(labels)
    plan = store.plan("new", budget="20%")
    assert (plan.request.selector, plan.request.rule) == ("value", "balanced:80%")
    store.revert(3)
    assert store.plan("new", budget="20%").request.rule == found.chosen.rule
    update(store, world, "best")
    store.compact()
    assert store.check() == []
    assert store.plan("new", budget="20%").request.rule == found.chosen.rule
    assert [header.kind for header in store.log()] == ["update"] * 2 + ["tune"] + ["revert"] * 2 + [
        "update"
    ]


def test_tuning_leaves_pending_flips_alone(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    update(store, world, "mid", rule="max-belief+confirm", budget="60%")
    pending = store.status()["pending"]
    assert pending
    found = store.tune(goal="ratio:3", apply=True)
    assert found.step == 2
    assert store.status()["pending"] == pending
    store.revert(2)
    assert store.status()["pending"] == pending
    assert store.check() == []


def test_a_store_decides_with_two_votes(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    for name in ("new", "best"):
        update(store, world, name, rule="max-belief+two-votes", budget="100%")
    for row in store.labels().to_pylist()[:60]:
        votes = [one["vote"] for one in store.history(row["id"]) if one["vote"]]
        label = store.history(row["id"])[1]["label"] if len(votes) > 1 else votes[0]
        if row["label"] not in (label, votes[0]):
            assert votes.count(row["label"]) >= 2
    assert store.check() == []
    assert any("two votes" in str(store.explain(f"item-{at}")) for at in range(60))


def test_selecting_contested_items_in_a_store(tmp_path: Path, world: World) -> None:
    """As the selector has it in memory: few votes first, then votes that contradict each other."""
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    plan = store.plan("new", selector="contested", budget="10%")
    votes = {name: dict(zip(range(400), world.votes[name], strict=True)) for name in ("old", "mid")}
    voted = {
        int(row["id"].removeprefix("item-"))
        for row in store.labels().to_pylist()
        if len(store.history(row["id"])) > 1
    }
    chosen = {
        int(str(one).removeprefix("item-")) for one in store.planned_items(plan)["id"].to_pylist()
    }
    agreeing = {at for at in voted if votes["old"][at] == votes["mid"][at]}
    assert len(chosen) == 40
    assert not chosen & agreeing
    assert store.check() == []


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ((), {}, "no label yet"),
        (("old",), {"goal": "best"}, "goal"),
        (("old",), {"model": "nobody"}, "nobody"),
        (("old",), {"budget": "10%"}, "no next step"),
    ],
)
def test_what_cannot_be_tuned_is_said(
    tmp_path: Path, world: World, names: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    store = make(tmp_path / "store", world, *names)
    with pytest.raises(PosterityError, match=message):
        store.tune(**options)


def test_plain_beliefs_have_nothing_to_compare(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old", "mid", beliefs="plain")
    with pytest.raises(InvalidData, match="cannot be compared"):
        store.tune()


def test_on_the_command_line(
    tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "store")
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    assert run(["tune", path, "new", "--goal", "ratio:8", "--budget", "20%", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["goal"] == "ratio:8"
    assert told["step"] is None
    assert {"selector", "rule", "final", "mean", "fixed", "broken", "frontier"} <= set(
        told["chosen"]
    )
    assert run(["tune", path, "new", "--goal", "ratio:8", "--apply"]) == 0
    assert "plans and updates now follow it" in capsys.readouterr().out
    assert run(["log", path]) == 0
    assert told["chosen"]["rule"] in capsys.readouterr().out


def test_a_recording_is_tuned_on_its_labelled_part() -> None:
    recording = synthetic_recording(items=1200, classes=4, models=4, missing=0.0, seed=2)
    rows = replay.run(
        recording, split=0.5, rules="cost-ratio:5", budgets=["20%"], tune=["final:95%", "ratio:5"]
    ).rows
    assert rows[0]["rule"] == "cost-ratio:5"
    assert rows[1]["rule"].endswith("(tuned: final:95%)")
    assert rows[2]["rule"].endswith("(tuned: ratio:5)")
    again = replay.run(
        recording,
        split=0.5,
        rules=rows[1]["rule"].split(" ")[0],
        selector=rows[1]["selector"],
        budgets=["20%"],
    ).rows
    assert again[0]["accuracy"] == rows[1]["accuracy"]
    with pytest.raises(InvalidParameter, match="budget over time"):
        replay.run(recording, split=0.5, budgets=["10%", "total:20%"], tune="final")
    with pytest.raises(InvalidParameter, match="dependent"):
        replay.run(recording, split=0.5, beliefs="plain", tune="final")


def test_chosen_on_one_half_and_tried_on_the_other() -> None:
    """The figures that were crossed are made of each half under the other half's choice."""
    from posterity.validation.tune import PolicyTrack, Tuned

    def track(right: list[int], broken: list[int]) -> PolicyTrack:
        counts = np.array([[5, 5], right]), np.zeros((2, 2), int), np.array([[0, 0], broken])
        last = np.ones(20, dtype=np.bool_)
        return PolicyTrack(*counts, np.array([10, 10]), last)

    policies = [Policy(Value(), parse_rule(f"cost-ratio:{ratio}")) for ratio in (2, 3)]
    tracks = [track([9, 6], [1, 4]), track([6, 9], [3, 2])]
    found = Tuned.of(Goal.parse("final"), policies, tracks, Policy(Contested(), CostRatio(9.0)))
    assert found.current is None
    assert found.crossed.final == pytest.approx(0.6)
    assert found.crossed.broken == 7
    # Each half is right where the policy that was chosen on the other is: here always wrong.
    lasts = [np.repeat([True, False], 10), np.repeat([False, True], 10)]
    tracks = [replace(one, last=last) for one, last in zip(tracks, lasts, strict=True)]
    current = replace(tracks[0], last=np.ones(20, dtype=np.bool_))
    policies.append(Policy(Contested(), CostRatio(9.0)))
    found = Tuned.of(Goal.parse("final"), policies, [*tracks, current], policies[-1])
    assert found.difference == -1.0
