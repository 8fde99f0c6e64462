from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Beliefs, Confusion, priors, rules
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.method.decide.rules import (
    Confirm,
    CostRatio,
    MaxBelief,
    MaxBeliefMinEntropy,
    Oracle,
    Replace,
    parse,
)
from posterity.method.decide.simple_rules import Evidence
from tests import naive

NAMES = [
    "replace",
    "majority-vote",
    "max-belief",
    "max-belief-min-entropy",
    "cost-ratio:1",
    "cost-ratio:10",
    "cost-ratio:2.5,neutral=0.5",
    "oracle",
]


@given(st.sampled_from(NAMES), st.integers(2, 6), st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_rules_equal_naive(name: str, classes: int, items: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.5), size=items)
    votes = rng.integers(0, classes, (4, items)).astype(np.int32)
    label = rng.integers(-1, classes, items).astype(np.int32)
    truth = rng.integers(0, classes, items).astype(np.int32)
    before, after = rng.random(items), rng.random(items)
    best = probabilities.argmax(axis=1).astype(np.int32)
    each = np.arange(items)
    decided = rules.decide(
        rules.parse(name),
        Evidence(
            label=label,
            vote=votes[-1],
            best=best,
            belief_best=probabilities[each, best],
            belief_label=np.where(label == -1, 0, probabilities[each, label]),
            entropy=after,
            entropy_before=before,
            majority=rules_majority(votes),
            truth=truth,
        ),
    )
    assert decided.dtype == np.int32
    for item in range(items):
        assert decided[item] == naive.decide(
            name,
            label=int(label[item]),
            vote=int(votes[-1, item]),
            best=int(best[item]),
            probabilities=probabilities[item].tolist(),
            entropy_before=before[item],
            entropy_after=after[item],
            votes=votes[:, item].tolist(),
            truth=int(truth[item]),
        )


def rules_majority(votes: np.ndarray) -> np.ndarray:
    return np.array([naive.majority(column) for column in votes.T.tolist()], dtype=np.int32)


@given(st.floats(0.01, 1), st.floats(0.01, 100), st.integers(0, 2**32 - 1))
def test_cost_ratio_is_the_papers_inequality(p_label: float, ratio: float, seed: int) -> None:
    p_best = np.random.default_rng(seed).uniform(0, 1)
    changed = CostRatio(ratio).decide(
        Evidence(
            label=np.array([0], dtype=np.int32),
            vote=np.array([1], dtype=np.int32),
            best=np.array([1], dtype=np.int32),
            belief_best=np.array([p_best]),
            belief_label=np.array([p_label]),
        )
    )
    if abs(p_best / p_label - ratio) > 1e-9:
        assert (changed[0] == 1) == (p_best / p_label > ratio)


def test_what_is_just_not_enough_changes_nothing() -> None:
    """The comparisons are strict: twice as likely is not more than twice as likely."""
    label, best = np.array([0]), np.array([1])
    even = Evidence(
        label=label,
        vote=best,
        best=best,
        belief_best=np.array([0.5]),
        belief_label=np.array([0.25]),
        entropy=np.array([0.7]),
        entropy_before=np.array([0.7]),
    )
    assert CostRatio(2).decide(even).tolist() == [0]
    assert CostRatio(1.99).decide(even).tolist() == [1]
    assert MaxBeliefMinEntropy().decide(even).tolist() == [0]


def test_a_missing_vote_keeps_the_label() -> None:
    evidence = Evidence(label=[0, 1], vote=[-1, 2])  # type: ignore[arg-type]
    assert rules.decide(Replace(), evidence).tolist() == [0, 2]


def test_a_rule_must_decide_every_item() -> None:
    class Lazy:
        def decide(self, evidence: Evidence) -> np.ndarray:
            return evidence.vote[:1]

    with pytest.raises(InvalidData, match="decided has 1, label has 2"):
        rules.decide(Lazy(), Evidence(label=np.array([0, 1]), vote=np.array([1, 1])))


def test_evidence_can_come_from_beliefs() -> None:
    beliefs = Beliefs(priors.uniform(3), items=2)
    beliefs.fold([0, 1], Confusion.from_accuracy(0.6, classes=3))
    before = beliefs.entropy([1])
    beliefs.fold([2], Confusion.from_accuracy(0.9, classes=3), rows=[1])
    evidence = Evidence.of(beliefs, rows=np.array([1]), label=[1], vote=[2], entropy_before=before)
    assert evidence.best is not None
    assert evidence.best.tolist() == [2]
    assert evidence.belief_label == pytest.approx(beliefs.probabilities()[1, 1])
    assert rules.decide(MaxBelief(), evidence).tolist() == [2]


def test_a_neutral_cost_makes_rules_stricter() -> None:
    evidence = Evidence(
        label=np.array([0], dtype=np.int32),
        vote=np.array([1], dtype=np.int32),
        best=np.array([1], dtype=np.int32),
        belief_best=np.array([0.4]),
        belief_label=np.array([0.1]),
    )
    assert CostRatio(2).decide(evidence).tolist() == [1]
    assert CostRatio(2, neutral=1).decide(evidence).tolist() == [0]


def test_the_first_vote_becomes_the_label_under_every_rule() -> None:
    for name in NAMES:
        evidence = Evidence(
            label=np.array([-1], dtype=np.int32),
            vote=np.array([2], dtype=np.int32),
            best=np.array([1], dtype=np.int32),
            belief_best=np.array([0.9]),
            belief_label=np.array([0.0]),
            entropy=np.array([1.0]),
            entropy_before=np.array([0.5]),
            majority=np.array([1], dtype=np.int32),
            truth=np.array([0], dtype=np.int32),
        )
        assert rules.decide(rules.parse(name), evidence).tolist() == [2]


PATIENT = ["replace+confirm", "max-belief+confirm", "cost-ratio:1e+06,neutral=2+confirm"]


@pytest.mark.parametrize("name", [*NAMES, *PATIENT, "cost-ratio:1e+06", "cost-ratio:1234.5678"])
def test_names_read_back(name: str) -> None:
    assert str(rules.parse(name)) == name
    assert isinstance(rules.parse(name), rules.Rule)


def test_members_pass_through() -> None:
    assert rules.parse(Replace()) == Replace()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("cost-rato:5", UnknownName, "Did you mean 'cost-ratio'"),
        ("nonsense", UnknownName, "known are: replace"),
        ("cost-ratio", InvalidParameter, "cost-ratio:C"),
        ("cost-ratio:", InvalidParameter, "number C above 0"),
        ("cost-ratio:0", InvalidParameter, "'cost ratio' must be a finite number above 0; got 0.0"),
        ("cost-ratio:-2", InvalidParameter, "above 0; got -2.0"),
        ("cost-ratio:nan", InvalidParameter, "finite"),
        ("cost-ratio:inf", InvalidParameter, "finite"),
        ("cost-ratio:ten", InvalidParameter, "got 'ten'"),
        ("cost-ratio:10,neutral=-1", InvalidParameter, "'neutral'"),
        ("cost-ratio:10,neutral=x", InvalidParameter, "neutral=C0"),
        ("cost-ratio:10,typo=1", InvalidParameter, "takes only neutral; got 'typo'"),
        ("cost-ratio:10,20", InvalidParameter, "two values"),
        ("cost-ratio:10+confrm", UnknownName, "rule modifier 'confrm'.*Did you mean 'confirm'"),
        ("oracle+confirm", InvalidParameter, "'oracle' takes no '.confirm'"),
        ("replace+confirm+confirm", InvalidParameter, "has a modifier already"),
        ("replace:3", InvalidParameter, "takes no value"),
        ("cost-ratio:10,neutral=1,neutral=2", InvalidParameter, "'neutral' twice"),
        (Replace, InvalidParameter, "a rule object"),
        (5, InvalidParameter, "a name or a rule object"),
    ],
)
def test_bad_rules_are_refused(text: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rules.parse(text)


@pytest.mark.parametrize("ratio", ["10", None, True, float("inf"), 0, -1])
def test_cost_ratios_are_numbers_above_zero(ratio: Any) -> None:
    with pytest.raises(InvalidParameter, match="'cost ratio' must be a finite number above 0"):
        CostRatio(ratio)


@pytest.mark.parametrize(("rule", "field"), [(MaxBelief(), "best"), (Oracle(), "truth")])
def test_evidence_that_is_lacking_is_named(rule: Any, field: str) -> None:
    label = np.array([0], dtype=np.int32)
    with pytest.raises(InvalidParameter, match=f"'{rule}' needs '{field}'"):
        rule.decide(Evidence(label=label, vote=label))


ODD = "New York, 100%=a+b"


def test_some_labels_are_dearer() -> None:
    rule = CostRatio(2, of={"dog": 50, ODD: 5})
    assert parse(str(rule)) == rule
    assert parse(f"{rule}+confirm") == Confirm(rule)
    assert hash(parse(str(rule))) == hash(rule)
    known = rules.among(rule, ["cat", "dog", ODD])
    evidence = Evidence(
        label=np.array([0, 1, 2, -1]),
        vote=np.array([1, 0, 0, 1]),
        best=np.array([1, 0, 0, 1]),
        belief_best=np.full(4, 0.9),
        belief_label=np.full(4, 0.1),
    )
    assert rules.decide(known, evidence).tolist() == [1, 1, 0, 1]
    cheap = Evidence(**(vars(evidence) | {"belief_label": np.full(4, 0.01)}))
    assert rules.decide(known, cheap).tolist() == [1, 0, 0, 1]
    assert rules.among(Confirm(rule), ["cat", "dog", ODD]) == Confirm(known)
    with pytest.raises(InvalidParameter, match="has to know the classes"):
        rule.decide(evidence)
    with pytest.raises(UnknownName, match="fox"):
        rules.among(CostRatio(2, of={"fox": 3}), ["cat", "dog"])
    with pytest.raises(InvalidParameter, match="above 0"):
        CostRatio(2, of={"dog": 0})
    with pytest.raises(InvalidParameter, match=r"as in of\.cat=50"):
        parse("cost-ratio:2,of.cat=x")
