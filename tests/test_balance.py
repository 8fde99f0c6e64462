"""The rule balanced: a cost ratio chosen on the labelled set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store, replay
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter
from posterity.method.decide import balance
from posterity.method.decide.balance import RATIOS, USUAL, FlipMargins
from posterity.method.decide.rules import CAUTIOUS, Balanced, CostRatio, Evidence, parse
from posterity.replay.recording import Recording
from posterity.storage.files import open_files
from tests import naive
from tests.stores import NAMES, World, make, small_store, update

FLIPS = st.lists(
    st.tuples(
        st.sampled_from([1.0, 1.1, 1.2, 1.3, 2.0, 2.2, 4.0, 10.0, 50.0]),
        st.sampled_from([(True, False), (True, False), (False, True), (False, False)]),
    ),
    max_size=80,
)


@given(FLIPS, st.sampled_from([0.5, 0.8, 0.95]))
def test_the_chosen_ratio_is_that_of_plain_loops(
    drawn: list[tuple[float, tuple[bool, bool]]], share: float
) -> None:
    flips = [(margin, *kind) for margin, kind in drawn]
    margins = FlipMargins(
        np.array([one[0] for one in flips]),
        np.array([one[1] for one in flips], dtype=np.bool_),
        np.array([one[2] for one in flips], dtype=np.bool_),
    )
    found = balance.choose(Balanced(share), margins).ratio
    assert found == naive.balanced_ratio(flips, RATIOS, share)
    # A higher share never asks for a higher ratio, and halves together are the whole.
    more = balance.choose(Balanced(0.99), margins).ratio
    assert found is not None
    assert more is not None
    assert more <= found
    first, second = (
        FlipMargins(margins.margins[at::2], margins.fixes[at::2], margins.breaks[at::2])
        for at in (0, 1)
    )
    joined = FlipMargins.joined([first, second])
    assert joined.outcomes(RATIOS) == margins.outcomes(RATIOS)


def test_a_ratio_that_does_harm_is_not_taken() -> None:
    """40 fixed and 160 broken with a margin of 2.7: ratios from 3 on change nothing."""
    fixes = np.arange(200) < 40
    margins = FlipMargins(np.full(200, 2.7), fixes, ~fixes)
    assert balance.choose(Balanced(), margins).ratio == 3.0
    worse = FlipMargins(np.full(200, 50.0), fixes, ~fixes)
    assert balance.choose(Balanced(), worse).ratio == CAUTIOUS
    none = FlipMargins(np.zeros(0), np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_))
    assert balance.choose(Balanced(), none).ratio == USUAL


def test_reading_and_writing() -> None:
    assert parse("balanced") == Balanced() == parse("balanced:80%") == parse("balanced:0.8")
    assert parse("balanced:90%,ratio=1.5") == Balanced(0.9, 1.5)
    assert parse(str(Balanced(0.95, 2.5))) == Balanced(0.95, 2.5)
    for wrong in ("balanced:x", "balanced:0", "balanced:100%", "balanced:1.5"):
        with pytest.raises(InvalidParameter, match="balanced"):
            parse(wrong)
    with pytest.raises(InvalidParameter, match="at least 1"):
        parse("balanced:80%,ratio=0.5")
    with pytest.raises(InvalidParameter, match=r"takes no '\+confirm'"):
        parse("balanced+confirm")


def test_with_its_ratio_it_is_that_cost_ratio_and_without_one_it_is_cautious() -> None:
    evidence = Evidence(
        label=np.zeros(4, dtype=np.int32),
        vote=np.ones(4, dtype=np.int32),
        best=np.ones(4, dtype=np.int32),
        belief_best=np.array([0.5, 0.6, 0.8, 0.95]),
        belief_label=np.array([0.45, 0.3, 0.15, 0.05]),
        support=np.ones(4, dtype=np.int32),
    )
    for ratio in RATIOS:
        told = Balanced(ratio=ratio).decide(evidence)
        assert np.array_equal(told, CostRatio(ratio).decide(evidence))
    told = Balanced().decide(evidence)
    assert np.array_equal(told, CostRatio(CAUTIOUS).decide(evidence))


def test_labels_change_only_to_classes_with_a_vote() -> None:
    evidence = Evidence(
        label=np.zeros(3, dtype=np.int32),
        vote=np.ones(3, dtype=np.int32),
        best=np.array([2, 1, 1], dtype=np.int32),
        belief_best=np.full(3, 0.9),
        belief_label=np.full(3, 0.05),
        support=np.array([0, 1, 2]),
    )
    assert Balanced(ratio=1.5).decide(evidence).tolist() == [0, 1, 1]
    assert CostRatio(1.5).decide(evidence).tolist() == [2, 1, 1]


def test_no_default_step_gives_a_label_nobody_voted_for(tmp_path: Path) -> None:
    """Two rare votes against each other leave the most frequent class most believed."""
    rng = np.random.default_rng(4)
    items, labelled = 600, 400
    truth = rng.choice(4, items + labelled, p=[0.82, 0.06, 0.06, 0.06]).astype(np.int32)
    votes = [
        np.where(rng.random(len(truth)) < accuracy, truth, rng.integers(0, 4, len(truth)))
        for accuracy in (0.75, 0.8)
    ]
    store = Store.create(tmp_path / "store", classes=["normal", "a", "b", "c"])
    names = np.array(["normal", "a", "b", "c"])
    store.add({"id": np.arange(items)})
    for name, cast in zip(("old", "new"), votes, strict=True):
        known = {"id": np.arange(items, len(truth)), "truth": names[truth[items:]]}
        store.register(Model(name, labelled=known | {"vote": names[cast[items:]]}))
        own = pa.table({"id": np.arange(items), "vote": names[cast[:items]]})
        store.update(name, votes=own, budget="100%")
    labels = store.labels()["label"].to_pylist()
    given = [{names[one] for one in both} for both in np.transpose(votes)[:items].tolist()]
    assert all(label in own for label, own in zip(labels, given, strict=True))
    bold = store.redecide("max-belief", dry_run=True)
    assert bold.flips > 0
    assert store.check() == []


def test_a_store_chooses_by_default_and_keeps_what_it_chose(tmp_path: Path) -> None:
    world = World(items=600, labelled=600)
    store = make(tmp_path / "store", world, "old", "mid")
    store.register(Model("new", labelled=world.labelled_table("new")))
    plan = store.plan("new", budget="30%")
    assert plan.rehearsed is not None
    ratio = plan.rehearsed["ratio"]
    assert ratio in RATIOS
    assert f"cost ratio {ratio:g}, chosen on them" in str(plan)
    report = store.update("new", votes=world.votes_table("new"), budget="30%")
    found = parse(Context(open_files(store.path)).headers[-1].rule or "")
    assert isinstance(found, Balanced)
    assert replace(found, ratio=None) == Balanced()
    assert f"Cost ratio {found.ratio:g}, chosen on the labelled set" in report.note
    assert report.flips > 0
    assert store.check() == []
    again = store.update("new", votes=world.votes_table("new"), budget="30%")
    assert again.step is None  # the same request, whatever ratio it would choose now
    store.revert(1)  # decides the later step anew, by the ratio it chose
    assert store.check() == []


def test_the_ratio_cannot_be_given(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", World())
    with pytest.raises(InvalidParameter, match="finds its ratio by itself"):
        store.plan("old", rule="balanced:80%,ratio=2")


def test_a_plan_tells_what_other_ratios_would_do(tmp_path: Path) -> None:
    world = World(items=600, labelled=600)
    store = make(tmp_path / "store", world, "old")
    store.register(Model("new", labelled=world.labelled_table("new")))
    plan = store.plan("new", budget="30%", rule="cost-ratio:5")
    assert plan.rehearsed is not None
    choices = {one["ratio"]: one for one in plan.rehearsed["choices"]}
    assert list(choices) == [1.0, 2.0, 5.0, 10.0]
    own = choices[5.0]
    for name in ("fixed", "broken", "accuracy_after"):
        assert own[name] == pytest.approx(plan.rehearsed[name])
    moved = [one["fixed"] + one["broken"] for one in choices.values()]
    assert moved == sorted(moved, reverse=True)
    assert "by cost ratio" in str(plan)
    assert plan.to_dict()["rehearsed"]["choices"] == plan.rehearsed["choices"]


def test_a_plan_that_changes_nothing_says_so_first(tmp_path: Path) -> None:
    world = World(items=600, labelled=600)
    store = make(tmp_path / "store", world, "old")
    store.register(Model("mid", labelled=world.labelled_table("mid")))
    plan = store.plan("mid", budget="30%", rule="cost-ratio:5000")
    first = str(plan).splitlines()[0]
    assert first.startswith(
        "On the labelled items this plan would change nothing: no vote is enough for "
        "cost-ratio:5000."
    )
    assert "`rule='cost-ratio:" in first


def test_a_first_plan_is_not_called_useless(tmp_path: Path) -> None:
    world = World(items=300, labelled=300)
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    store.register(Model("old", labelled=world.labelled_table("old")))
    assert str(store.plan("old")).startswith("plan ")


def test_pending_flips_are_made_whatever_the_ratio(tmp_path: Path) -> None:
    world = World(items=600, labelled=600)
    store = make(tmp_path / "store", world, "old")
    update(store, world, "new", rule="max-belief+confirm", budget="50%")
    store.register(Model("best", labelled=world.labelled_table("best")))
    plan = store.plan("best", budget="10%", rule="cost-ratio:10")
    assert plan.rehearsed is not None
    own = plan.rehearsed["choices"][-1]
    assert own["ratio"] == 10
    assert (own["fixed"], own["broken"]) == (plan.rehearsed["fixed"], plan.rehearsed["broken"])


def test_without_a_labelled_set_to_choose_on_it_is_cautious(tmp_path: Path) -> None:
    """Stated accuracies: beliefs are plain, which are too sure of themselves."""
    world = World()
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    for name, accuracy in (("old", 0.55), ("best", 0.95)):
        store.register(Model(name, accuracy=accuracy))
        store.update(name, votes=world.votes_table(name), budget="100%")
    rules = [header.rule for header in Context(open_files(store.path)).headers]
    assert rules == ["balanced:80%,ratio=10"] * 2
    assert store.check() == []


def skewed(items: int, seed: int = 0) -> Recording:
    """Two models on three classes, of which one is most of the items."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, items, p=[0.85, 0.1, 0.05])
    votes = [
        np.where(rng.random(items) < accuracy, truth, rng.integers(0, 3, items))
        for accuracy in (0.4, 0.55)
    ]
    return Recording(
        classes=["a", "b", "c"],
        models=["old", "new"],
        truth=truth.astype(np.int32),
        votes=np.array(votes, dtype=np.int32),
    )


def test_defaults_follow_skewed_classes() -> None:
    """With equally frequent classes a vote for a rare one is believed far too much."""
    recording = skewed(6000)
    (usual,) = replay.run(recording, split=0.3, budgets="100%").to_dict()["rows"]
    assert (usual["prior"], usual["rule"]) == ("estimated", "balanced:80%")
    assert usual["delta_accuracy"] > 5
    even, learnt = (
        replay.run(recording, split=0.3, budgets="100%", rules="max-belief", prior=prior)
        for prior in ("uniform", None)
    )
    gain = learnt.to_dict()["rows"][0]["accuracy"] - even.to_dict()["rows"][0]["accuracy"]
    assert gain > 1


def test_import_takes_the_default(tmp_path: Path) -> None:
    world = World(items=300, labelled=300)
    store = Store.create(tmp_path / "store", classes=NAMES)
    table = pa.table({"id": np.arange(300), "a": world.votes["old"], "b": world.votes["best"]})
    votes = {"a": Model("old", labelled=world.labelled_table("old"))}
    votes["b"] = Model("best", labelled=world.labelled_table("best"))
    store.import_predictions(table, votes)
    rules = [parse(header.rule or "") for header in Context(open_files(store.path)).headers]
    assert all(isinstance(rule, Balanced) and rule.ratio is not None for rule in rules)
    assert store.check() == []
