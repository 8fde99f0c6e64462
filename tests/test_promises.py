"""Promises: at most so many labels break, as often as was said."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store, VoteFile
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.method.beliefs.patterns import Patterns
from posterity.method.data.spec import split_list
from posterity.method.decide import promise
from posterity.method.decide.rules import AtMost, Confirm, CostRatio, parse
from posterity.method.decide.simple_rules import Evidence
from posterity.replay import Recording, run
from posterity.storage.files import open_files
from posterity.validation.outcome import Coverage
from tests import naive
from tests.problems import synthetic_recording
from tests.stores import NAMES, World, make, update

PROMISE = "at-most:2%,confidence=0.9"


@given(
    st.integers(1, 60),
    st.integers(1, 80),
    st.sampled_from(["0.01", "0.05", "0.1", "0.3", "0.7"]),
    st.sampled_from(["0.5", "0.8", "0.9", "0.99"]),
)
def test_how_many_may_break_equals_naive(
    labelled: int, items: int, rate: str, confidence: str
) -> None:
    expected = naive.promise_allows(labelled, items, Fraction(rate), 1 - Fraction(confidence))
    found = promise.allowed(labelled, items, rate=float(rate), confidence=float(confidence))
    assert found == expected


@given(st.integers(1, 10**9), st.floats(1e-4, 0.5), st.floats(0.5, 0.999))
def test_so_many_labelled_items_are_enough_and_not_one_less(
    items: int, rate: float, confidence: float
) -> None:
    enough = promise.needed(items, rate=rate, confidence=confidence)
    assert promise.allowed(enough, items, rate=rate, confidence=confidence) is not None
    if enough > 1:
        assert promise.allowed(enough - 1, items, rate=rate, confidence=confidence) is None


@pytest.mark.parametrize(("labelled", "items"), [(400, 4000), (1000, 1000), (2000, 500)])
def test_what_is_promised_is_kept_as_often_as_said(labelled: int, items: int) -> None:
    """Margins of labels that would break, drawn for labelled and stored items alike."""
    rng, kept, draws = np.random.default_rng(0), 0, 2000
    rule, allowance = AtMost(0.02, 0.8), int(0.02 * items)
    for _ in range(draws):
        share = rng.uniform(0.01, 0.2)
        own, others = (
            rng.lognormal(1, 2, rng.binomial(number, share)) for number in (labelled, items)
        )
        ratio = promise.keep(rule, own, labelled=labelled, items=items).ratio
        assert ratio is not None
        kept += int((others > ratio).sum() <= allowance)
    error = 3 * np.sqrt(0.8 * 0.2 / draws)
    assert 0.8 - error < kept / draws < 0.95  # kept, and not by flipping nothing


def test_the_ratio_is_just_high_enough() -> None:
    margins = np.array([1.2345678, 3.0, 150.0, 7.77777])
    rule, most = AtMost(0.05), promise.allowed(100, 1000, rate=0.05, confidence=0.9)
    assert most == 1
    kept = promise.keep(rule, margins, labelled=100, items=1000)
    assert kept.ratio == 7.778  # the second highest must not flip, with four digits
    assert str(kept) == "at-most:5%,confidence=0.9,ratio=7.778"
    assert parse(str(kept)) == kept
    few = promise.keep(rule, margins[2:3], labelled=100, items=1000)
    assert few.ratio == 1
    with pytest.raises(InvalidData, match="pending flips"):
        promise.keep(rule, np.full(2, np.inf), labelled=100, items=1000)


def test_too_few_labelled_items_are_refused_with_the_number_needed() -> None:
    with pytest.raises(InvalidData, match=r"100 labelled items are too few.*at least 1,151"):
        promise.keep(AtMost(0.002), np.zeros(0), labelled=100, items=10**6)


def test_reading_and_writing() -> None:
    assert parse("at-most:0.2%,confidence=0.95") == AtMost(0.002, 0.95)
    assert parse("at-most:0.002") == AtMost(0.002, 0.9)
    for wrong in ("at-most", "at-most:x", "at-most:0", "at-most:100%", "at-most:1%,confidence=1"):
        with pytest.raises(InvalidParameter, match="at-most"):
            parse(wrong)
    with pytest.raises(InvalidParameter, match=r"takes no '\+confirm'"):
        parse("at-most:1%+confirm")
    with pytest.raises(InvalidParameter, match="'ratio' in its evidence"):
        AtMost(0.01).decide(Evidence(label=np.array([0]), vote=np.array([1])))
    assert Confirm(CostRatio(2)) == parse("cost-ratio:2+confirm")


def test_a_store_keeps_the_ratio_it_found(tmp_path: Path) -> None:
    world = World(items=600, labelled=600)
    store = make(tmp_path / "store", world, "old", "mid")
    plan = store.plan("mid", budget="10%", rule=PROMISE)
    assert plan.rehearsed is not None
    assert f"cost ratio {plan.rehearsed['ratio']:g}, chosen on them" in str(plan)
    report = update(store, world, "new", rule=PROMISE)
    header = Context(open_files(store.path)).headers[-1]
    found = parse(header.rule or "")
    assert isinstance(found, AtMost)
    assert replace(found, ratio=None) == parse(PROMISE)
    assert found.ratio is not None
    assert f"A cost ratio of {found.ratio:g} keeps the promise" in report.note
    assert store.check() == []
    store.revert(1)  # decides the later step anew, by the ratio it found
    assert store.check() == []
    assert str(found) in str(store.log())


def test_a_stricter_promise_breaks_fewer(tmp_path: Path) -> None:
    world, flips = World(items=600, labelled=600), []
    for rate in ("10%", "1%"):
        store = make(tmp_path / f"store-{rate}", world, "old")
        flips.append(update(store, world, "mid", rule=f"at-most:{rate}", budget="100%").flips)
    assert flips[0] > flips[1]


def test_what_cannot_be_promised_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    world = World(items=300, labelled=200)
    store = make(tmp_path / "store", world, "old", "mid")
    with pytest.raises(InvalidData, match="200 labelled items are too few"):
        store.plan("mid", rule="at-most:0.1%")
    with pytest.raises(InvalidParameter, match="finds its ratio by itself"):
        store.plan("mid", rule="at-most:10%,ratio=3")
    plain = make(tmp_path / "plain", world, "old", "mid", beliefs="plain")
    with pytest.raises(InvalidParameter, match="needs dependent beliefs"):
        plain.plan("mid", rule=PROMISE)


def test_replay() -> None:
    recording = synthetic_recording(items=1200, classes=6, models=4, missing=0.0, seed=3)
    strict, lax = run(
        recording, rules=["at-most:1%", "at-most:20%"], budgets="100%", split=0.5
    ).rows
    assert strict["rule"] == "at-most:1%"
    assert strict["negative_flips"] < lax["negative_flips"]
    with pytest.raises(InvalidParameter, match="needs dependent beliefs"):
        run(recording, rules=PROMISE, beliefs="plain", split=0.5)
    with pytest.raises(InvalidParameter, match="finds its ratio by itself"):
        run(recording, rules="at-most:20%,ratio=2", split=0.5)


def test_removed_items_do_not_count(tmp_path: Path) -> None:
    """A step has votes on a share of the items there are, and so have the labelled ones."""
    world = World(items=600, labelled=600)
    few, many = make(tmp_path / "few", world), make(tmp_path / "many", world)
    update(few, world, "old")
    many.remove([f"item-{at}" for at in range(300, 600)])
    update(many, world, "old")
    told = []
    for store in (few, many):
        store.register(Model("mid", labelled=world.labelled_table("mid")))
        told.append(store.plan("mid", budget="50%", rule="max-belief").rehearsed)
    assert told[0] is not None
    assert told[1] is not None
    assert told[0]["evaluations"] == told[1]["evaluations"] == 300
    update(many, world, "mid", budget="50%")
    assert Context(open_files(many.path)).headers[-1].coverage == Coverage(0.0, 0.5)


def test_flips_that_are_pending_count_against_a_promise(tmp_path: Path) -> None:
    world = World(items=600, labelled=600)
    store = make(tmp_path / "store", world, "old")
    update(store, world, "mid", rule="max-belief+confirm", budget="100%")
    store.register(Model("new", labelled=world.labelled_table("new")))
    with pytest.raises(InvalidData, match="pending flips"):
        store.plan("new", budget=1, rule="at-most:1%")
    store.settle()
    store.plan("new", budget=1, rule="at-most:1%")


def test_a_promise_is_about_all_items_and_those_chosen(tmp_path: Path) -> None:
    world = World(items=300, labelled=600)
    store = make(tmp_path / "store", world, "old")
    with pytest.raises(InvalidParameter, match="takes no filter"):
        store.plan("old", rule=PROMISE, where="lang = 'de'")
    store.register(Model("mid", labelled=world.labelled_table("mid")))
    votes = world.votes_table("mid")
    with pytest.raises(InvalidParameter, match="others cannot be kept"):
        store.update("mid", votes=VoteFile(votes, keep_unplanned=True), budget="10%", rule=PROMISE)
    bare = Store.create(tmp_path / "bare", classes=NAMES)
    table = {"id": ["a"], "pred": [str(NAMES[0])]}
    with pytest.raises(InvalidParameter, match="is for updates"):
        bare.import_predictions(table, {"pred": Model("old", accuracy=0.5)}, rule=PROMISE)
    with pytest.raises(UnknownName, match="lion"):
        bare.import_predictions(
            table, {"pred": Model("old", accuracy=0.5)}, rule="cost-ratio:10,of.lion=5"
        )
    assert len(bare) == 0


def test_shares_are_the_decimals_that_were_written() -> None:
    assert parse("at-most:0.7%,confidence=90%") == AtMost(0.007, 0.9)
    assert str(AtMost(np.float64(0.0012345678))) == "at-most:0.0012345678,confidence=0.9"
    for ratio in (9.000000000000002, 1.0000001, 123456.7, 3e299):
        kept = promise.keep(AtMost(0.5), np.full(99, ratio), labelled=99, items=100).ratio
        assert kept is not None
        assert kept >= ratio
    assert split_list("at-most:1%,confidence=0.9,cost-ratio:2,of.a:b=5") == [
        "at-most:1%,confidence=0.9",
        "cost-ratio:2,of.a:b=5",
    ]
    with pytest.raises(InvalidParameter, match="names a class twice"):
        parse("cost-ratio:2,of.cat=5,of.c%61t=6")


def many_patterns(seed: int) -> Recording:
    """Three models on items of 3,000 kinds: most patterns of votes have a few labelled items."""
    rng, kinds, items, classes = np.random.default_rng(seed), 3000, 5500, 20
    main, other = rng.integers(0, classes, (2, kinds))
    drawn = rng.integers(0, classes, (kinds, 3))
    wrong = np.where(rng.random((kinds, 3)) < 0.5, other[:, None], drawn)
    says = np.where(rng.random((kinds, 3)) < (0.5, 0.6, 0.7), main[:, None], wrong)
    kind = rng.integers(0, kinds, items)
    sure = rng.choice([0.55, 0.8, 0.95], kinds)[kind]
    truth = np.where(rng.random(items) < sure, main[kind], other[kind]).astype(np.int32)
    noise = rng.random((items, 3)) < 0.05
    votes = np.where(noise, rng.integers(0, classes, (items, 3)), says[kind]).astype(np.int32)
    names = [f"class-{code}" for code in range(classes)]
    return Recording(classes=names, models=["a", "b", "c"], truth=truth, votes=votes.T)


def test_a_labelled_item_does_not_protect_its_own_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored items have no truth that would: promises break too often if labelled ones have."""

    def broken() -> float:
        steps = [
            step
            for seed in range(3)
            for step in run(
                many_patterns(seed), rules="at-most:2%", budgets="100%", split=1500 / 5500
            ).steps
            if step["step"]
        ]
        return float(np.mean([step["negative_flips"] / step["n"] for step in steps]))

    found = broken()
    monkeypatch.setattr(Patterns, "places", lambda _, __, truth: np.full(len(truth), -1))
    assert found < 0.95 * broken()
