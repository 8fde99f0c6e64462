from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity import Recording, priors, replay, rules
from posterity.budget import Budget
from posterity.errors import InvalidData, InvalidParameter, InvalidRecording, UnknownName
from posterity.selectors import Entropy
from tests import naive
from tests.problems import Problem, problems, synthetic_recording

ALL_RULES = [
    "replace",
    "majority-vote",
    "max-belief",
    "max-belief-min-entropy",
    "cost-ratio:2",
    "cost-ratio:10,neutral=0.5",
    "oracle",
]
KEYS = [
    *("recording", "source", "models", "order", "split", "seed", "beliefs", "confusion", "prior"),
    *("votes", "selector", "budget", "rule", "n", "steps", "evaluations", "accuracy"),
    *("delta_accuracy", "mean_accuracy", "negative_flips", "positive_flips", "neutral_flips"),
    *("nfr", "pf_nf", "btc", "bec", "expected_accuracy", "expected_negative_flips"),
    *("expected_positive_flips", "seconds"),
]
PERCENT = {"accuracy", "delta_accuracy", "mean_accuracy", "nfr", "btc", "bec", "expected_accuracy"}


@pytest.fixture(scope="module")
def recording() -> Recording:
    return synthetic_recording(items=400, classes=7, models=6, missing=1 / 3, seed=5)


@pytest.mark.parametrize("estimator", ["diagonal", "full"])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 1.0])
def test_a_replay_with_missing_votes_equals_naive(
    recording: Recording, estimator: str, fraction: float
) -> None:
    rows = replay.run(
        recording, confusion=estimator, budgets=fraction, rules=ALL_RULES, split=0.5, seed=3
    ).rows
    parts = replay.take_apart(recording, 0.5, seed=3)
    estimate = {"diagonal": naive.diagonal, "full": naive.full}[estimator]
    truth = parts.labelled.truth.tolist()
    tables = [estimate(naive.count(truth, cast.tolist(), 7)) for cast in parts.labelled.votes]
    assert (parts.target.votes == -1).mean() == pytest.approx(1 / 3, abs=0.05)
    for rule, row in zip(ALL_RULES, rows, strict=True):
        expected = naive.replay(
            parts.target.truth.tolist(),
            parts.target.votes.tolist(),
            tables,
            prior=[1 / 7] * 7,
            fraction=fraction,
            rule=rule,
        )
        expected.pop("labels")
        for name, value in expected.items():
            scale = 100 if name in PERCENT else 1
            wanted = None if value is None else pytest.approx(scale * value, rel=1e-9, abs=1e-9)
            assert row[name] == wanted, (rule, name)


@given(problems(max_classes=6, max_models=5, max_items=15), st.data())
@settings(max_examples=60)
def test_any_replay_equals_naive(problem: Problem, data: st.DataObject) -> None:
    codes = st.integers(0, problem.classes - 1)
    truth = data.draw(st.lists(codes, min_size=problem.items, max_size=problem.items))
    fraction = data.draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    target = Recording(
        classes=tuple("abcdef"[: problem.classes]),
        models=tuple(f"model {t}" for t in range(len(problem.votes))),
        truth=np.array(truth, dtype=np.int32),
        votes=problem.votes,
    )
    steps = list(
        replay.walk(
            target,
            problem.confusions,
            prior=problem.prior,
            selector=Entropy(),
            budget=Budget.of(fraction),
            rules=[rules.parse(rule) for rule in ALL_RULES],
        )
    )
    for at, rule in enumerate(ALL_RULES):
        expected = naive.replay(
            truth,
            problem.votes.tolist(),
            [confusion.probabilities.tolist() for confusion in problem.confusions],
            prior=problem.prior.tolist(),
            fraction=fraction,
            rule=rule,
            # Equal entropies may round apart in the two; naive checks that these rows are
            # as good a choice as its own, and goes on with them.
            chosen=[step.rows.tolist() for step in steps],
        )
        assert steps[-1].shard.labels[at].label.tolist() == expected["labels"], rule


def test_one_pass_serves_all_rules(recording: Recording) -> None:
    together = replay.run(recording, rules=ALL_RULES, seed=1).rows
    for rule, row in zip(ALL_RULES, together, strict=True):
        alone = replay.run(recording, rules=rule, seed=1).rows[0]
        assert alone | {"seconds": 0} == row | {"seconds": 0}


def test_zero_budget_changes_nothing(recording: Recording) -> None:
    for row in replay.run(recording, budgets=0, rules=ALL_RULES).rows:
        assert row["evaluations"] == 0
        assert row["negative_flips"] == row["positive_flips"] == row["neutral_flips"] == 0
        assert row["delta_accuracy"] == 0


def test_steps_stay_within_budget_and_no_vote_is_asked_for_twice(recording: Recording) -> None:
    asked = np.zeros((len(recording.models), len(recording)), dtype=int)
    budget = Budget.of(0.1)
    for step in replay.walk(
        recording,
        replay.fit(recording, "full"),
        prior=priors.uniform(7),
        selector=Entropy(),
        budget=budget,
        rules=[rules.Replace()],
    ):
        asked[step.number, step.rows] += 1
        if step.number > 0:
            eligible = (recording.votes[step.number] != -1).sum()
            assert len(step.rows) == budget.evaluations(eligible)
    assert asked.max() == 1
    assert (asked[recording.votes == -1] == 0).all()


def test_items_without_a_vote_come_first(recording: Recording) -> None:
    unlabelled = set(np.flatnonzero(recording.votes[0] == -1).tolist())
    steps = replay.walk(
        recording,
        replay.fit(recording, "full"),
        prior=priors.uniform(7),
        selector=Entropy(),
        budget=Budget.of(0.1),
        rules=[rules.Replace()],
    )
    next(steps)
    assert set(next(steps).rows.tolist()) <= unlabelled


def test_the_oracle_never_breaks_and_bounds_the_rest(recording: Recording) -> None:
    rows = {row["rule"]: row for row in replay.run(recording, rules=ALL_RULES, budgets=1.0).rows}
    assert rows["oracle"]["negative_flips"] == 0
    assert rows["oracle"]["pf_nf"] is None
    assert rows["oracle"]["accuracy"] == max(row["accuracy"] for row in rows.values())


def test_the_truth_is_hidden_from_everything_but_the_metrics(recording: Recording) -> None:
    parts = replay.take_apart(recording, 0.5, seed=0)
    lied = replace(parts.target, truth=(parts.target.truth + 1) % 7)
    labels = [
        [
            step.shard.labels[at].label.copy()
            for step in replay.walk(
                target,
                replay.fit(parts.labelled, "full"),
                prior=priors.uniform(7),
                selector=Entropy(),
                budget=Budget.of(0.3),
                rules=[rules.parse(rule) for rule in ALL_RULES if rule != "oracle"],
            )
            for at in range(len(ALL_RULES) - 1)
        ]
        for target in (parts.target, lied)
    ]
    assert all((one == other).all() for one, other in zip(*labels, strict=True))


def test_rows_describe_themselves(recording: Recording) -> None:
    results = replay.run(
        recording,
        budgets=["10%", 20],
        rules=["max-belief", rules.CostRatio(5)],
        selector=["entropy", "random"],
        seeds=2,
        seed=4,
    )
    assert len(results.rows) == 16
    assert list(results.rows[0]) == KEYS
    assert {row["budget"] for row in results.rows} == {0.1, 20 / 200}
    assert {row["rule"] for row in results.rows} == {"max-belief", "cost-ratio:5"}
    assert {row["seed"] for row in results.rows} == {4, 5}
    json.dumps(results.to_dict(), allow_nan=False)
    assert results.rows[0]["accuracy"] != results.rows[8]["accuracy"]  # another split
    assert len(results.steps) == 16 * 6
    first = results.steps[:6]
    assert [row["step"] for row in first] == list(range(6))
    assert sum(row["negative_flips"] for row in first[1:]) == results.rows[0]["negative_flips"]
    assert first[-1]["accuracy"] == results.rows[0]["accuracy"]


def test_results_are_written_as_parquet(recording: Recording, tmp_path: Path) -> None:
    results = replay.run(recording, rules=ALL_RULES)
    results.write(tmp_path / "results.parquet")
    table = pq.read_table(tmp_path / "results.parquet")
    kinds = table["kind"].to_pylist()
    assert (kinds.count("run"), kinds.count("step")) == (7, 42)
    run = table.slice(0, 1).to_pylist()[0]
    for key in KEYS:
        expected = results.rows[0][key]
        assert run[key] == (str(expected) if key == "split" else expected)
    with pytest.raises(InvalidParameter, match="cannot be written"):
        results.write(tmp_path / "no" / "folder.parquet")


def test_results_print_as_a_table(recording: Recording) -> None:
    text = str(replay.run(recording, rules=["replace", "oracle"], seeds=2))
    assert "mean of 2 seeds" in text
    assert "replace" in text
    assert "–" in text  # the oracle's PF/NF


def test_progress_counts_every_step(recording: Recording) -> None:
    seen: list[tuple[int, int]] = []
    replay.run(recording, budgets=[0.1, 0.2], progress=lambda *step: seen.append(step))
    assert seen == [(done, 12) for done in range(1, 13)]


def test_splits(recording: Recording) -> None:
    one, again = (replay.take_apart(recording, 0.25, seed=9) for _ in range(2))
    assert len(one.labelled) == 100
    assert len(one.target) == 300
    assert (one.target.truth == again.target.truth).all()
    both = replay.take_apart(recording, 1, seed=0)
    assert len(both.labelled) == len(both.target) == 400
    mask = np.arange(400) < 50
    marked = replace(recording, is_source=mask)
    assert (
        replay.take_apart(marked, "is_source", seed=0).labelled.truth == recording.truth[:50]
    ).all()
    assert replay.run(marked).rows[0]["split"] == "is_source"
    assert replay.run(recording).rows[0]["split"] == 0.5


def test_orders_follow_the_labelled_set(recording: Recording) -> None:
    def order(name: str) -> Any:
        return replay.run(recording, split=0.5, order=name).rows[0]["models"]

    labelled = replay.take_apart(recording, 0.5, seed=0).labelled
    accuracy = [
        np.mean((cast == labelled.truth)[cast != -1])
        for cast in (labelled.pick([model]).votes[0] for model in order("improving"))
    ]
    assert accuracy == sorted(accuracy)
    assert order("adversarial") == order("improving")[::-1]
    assert order("given") == list(recording.models)
    assert sorted(order("random:3")) == sorted(recording.models)
    assert order("random:3") != order("random:4")


def test_the_labelled_set_can_come_from_another_recording(recording: Recording) -> None:
    source = recording.take(np.arange(200)).pick(recording.models[::-1])
    target = recording.take(np.arange(200, 400))
    row = replay.run(replace(target, name="target"), source=replace(source, name="source")).rows[0]
    assert (row["source"], row["split"], row["n"]) == ("source", None, 200)
    expected = replay.run(replace(recording, is_source=np.arange(400) < 200)).rows[0]
    assert row["accuracy"] == expected["accuracy"]
    with pytest.raises(InvalidParameter, match="not from both"):
        replay.run(target, source=source, split=0.5)
    with pytest.raises(UnknownName, match="model 0"):
        replay.run(target, source=source.pick(["model 1"]))
    other = replace(source, classes=("x", *source.classes[1:]))
    with pytest.raises(InvalidRecording, match="same classes"):
        replay.run(target, source=other)


def test_priors_as_users_write_them(recording: Recording, tmp_path: Path) -> None:
    weights = {"class 0": 3, "class 1": 1}
    as_json, as_csv = tmp_path / "prior.json", tmp_path / "prior.csv"
    as_json.write_text(json.dumps(weights))
    as_csv.write_text("class 0,3\nclass 1,1\n")
    rows = [
        replay.run(recording, prior=prior, budgets=1.0, rules="max-belief").rows[0]
        for prior in (str(as_json), str(as_csv), np.array([3.0, 1, 0, 0, 0, 0, 0]))
    ]
    assert len({row["accuracy"] for row in rows}) == 1
    assert rows[0]["prior"] == str(as_json)
    assert rows[2]["prior"] == "given"
    assert replay.run(recording, prior="labelled").rows[0]["prior"] == "labelled"


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not a prior"), ("[1, 2]", "not a prior"), ('{"cow": 1}', "'cow', which is no class")],
)
def test_bad_prior_files_are_named(
    recording: Recording, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "prior.json"
    path.write_text(content)
    with pytest.raises(InvalidData, match=message):
        replay.run(recording, prior=str(path))


def test_soft_votes_change_beliefs(recording: Recording) -> None:
    sure = np.eye(7)[recording.votes] * 0.93 + 0.01
    soft = replace(recording, probabilities=sure.astype(np.float16))
    hard_row = replay.run(soft, rules="max-belief").rows[0]
    soft_row = replay.run(soft, rules="max-belief", votes="soft").rows[0]
    assert soft_row["votes"] == "soft"
    assert soft_row["expected_accuracy"] != hard_row["expected_accuracy"]
    certain = replace(recording, probabilities=np.eye(7)[recording.votes].astype(np.float16))
    same = replay.run(certain, rules="max-belief", votes="soft").rows[0]
    assert same["accuracy"] == hard_row["accuracy"]
    with pytest.raises(InvalidRecording, match="no class probabilities"):
        replay.run(recording, votes="soft")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"beliefs": "fancy"}, UnknownName, "no beliefs 'fancy'; known are: plain"),
        ({"votes": "firm"}, UnknownName, "hard, soft"),
        ({"confusion": "ful"}, UnknownName, "Did you mean 'full'"),
        ({"selector": "x"}, UnknownName, "no selector"),
        ({"rules": "x"}, UnknownName, "no rule"),
        ({"rules": []}, InvalidParameter, "'rules' must be at least one"),
        ({"budgets": "110%"}, InvalidParameter, "'budget'"),
        ({"split": 0}, InvalidParameter, "'split' must be a fraction above 0"),
        ({"split": 1.5}, InvalidParameter, "'split'"),
        ({"split": "half"}, InvalidParameter, "'split'"),
        ({"split": "is_source"}, InvalidParameter, "no is_source mask"),
        ({"split": 0.0001}, InvalidData, "labelled set is empty"),
        ({"split": 0.9999}, InvalidData, "target is empty"),
        ({"order": "backwards"}, InvalidParameter, "'order' must be one of given"),
        ({"order": "random"}, InvalidParameter, "random:SEED"),
        ({"prior": "nonsense"}, InvalidParameter, "'prior'"),
        ({"prior": np.zeros(7)}, InvalidData, "at least one above 0"),
        ({"seeds": 0}, InvalidParameter, "'seeds' must be at least 1"),
        ({"seed": -1}, InvalidParameter, "'seed'"),
        ({"models": ["model 9"]}, UnknownName, "Did you mean"),
    ],
)
def test_bad_options_are_named(
    recording: Recording, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replay.run(recording, **options)


def test_a_model_without_labelled_votes_is_refused_by_name(recording: Recording) -> None:
    votes = recording.votes.copy()
    votes[2] = -1
    with pytest.raises(InvalidData, match=r"'model 2'.*labelled set is empty"):
        replay.run(replace(recording, votes=votes))
