from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity import Beliefs, Recording, priors, replay, rules
from posterity.errors import InvalidData, InvalidParameter, InvalidRecording, UnknownName
from posterity.method.decide.budget import Budget
from posterity.method.decide.selectors import Entropy, Random
from posterity.replay.walk import fit_temperatures
from tests import naive, naive_temperatures
from tests.problems import Problem, problems, synthetic_recording

run_plain = partial(replay.run, beliefs="plain")
"""The paper's method; what the defaults are is tested with dependent beliefs."""

ALL_RULES = [
    "replace",
    "majority-vote",
    "max-belief",
    "max-belief-min-entropy",
    "cost-ratio:2",
    "cost-ratio:10,neutral=0.5",
    "oracle",
    "max-belief+confirm",
    "cost-ratio:2+confirm",
    "majority-vote+confirm",
]
KEYS = [
    *("recording", "source", "models", "order", "split", "seed", "beliefs", "confusion", "prior"),
    *("votes", "adapt", "weigh", "selector", "budget", "spending", "rule"),
    *("n", "steps", "evaluations", "accuracy"),
    *("delta_accuracy", "mean_accuracy", "negative_flips", "positive_flips", "neutral_flips"),
    *("nfr", "pf_nf", "btc", "bec", "expected_accuracy", "expected_negative_flips"),
    *("expected_positive_flips", "checked_accuracy", "checked_accuracy_low"),
    *("checked_accuracy_high", "checked_negative_flips", "checked_positive_flips", "forecast"),
    *("unlike", "seconds"),
]
PERCENT = {"accuracy", "delta_accuracy", "mean_accuracy", "nfr", "btc", "bec", "expected_accuracy"}


@pytest.fixture(scope="module")
def recording() -> Recording:
    return synthetic_recording(items=400, classes=7, models=6, missing=1 / 3, seed=5)


@dataclass(frozen=True)
class Twin:
    """The same replay, by plain loops, on the split of seed 3."""

    recording: Recording
    estimator: str = "full"
    prior: str = "uniform"

    def expect(self, rule: str, **options: Any) -> dict[str, Any]:
        parts = replay.take_apart(self.recording, 0.5, seed=3)
        classes = len(parts.labelled.classes)
        estimate = {"diagonal": naive.diagonal, "full": naive.full}[self.estimator]
        truth = parts.labelled.truth.tolist()
        labelled = naive.labelled_prior(truth, classes)
        soft = None
        if parts.target.probabilities is not None:
            each = parts.target.probabilities.astype(float)
            each /= each.sum(axis=2, keepdims=True)
            soft = [[naive.top(item.tolist(), classes) for item in model] for model in each]
        return naive.replay(
            parts.target.truth.tolist(),
            parts.target.votes.tolist(),
            [estimate(naive.count(truth, cast.tolist(), classes)) for cast in parts.labelled.votes],
            prior=labelled if self.prior == "labelled" else [1 / classes] * classes,
            rule=rule,
            soft=soft,
            **options,
        )


def assert_equal(row: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if name not in ("labels", "steps", "entropy_even"):
            scale = 100 if name in PERCENT else 1
            wanted = None if value is None else pytest.approx(scale * value, rel=1e-9, abs=1e-9)
            assert row[name] == wanted, name


@pytest.mark.parametrize("estimator", ["diagonal", "full"])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 1.0])
def test_a_replay_with_missing_votes_equals_naive(
    recording: Recording, estimator: str, fraction: float
) -> None:
    assert (recording.votes == -1).mean() == pytest.approx(1 / 3, abs=0.05)
    results = run_plain(
        recording, confusion=estimator, budgets=fraction, rules=ALL_RULES, split=0.5, seed=3
    )
    for at, rule in enumerate(ALL_RULES):
        expected = Twin(recording, estimator).expect(rule, fraction=fraction)
        assert_equal(results.rows[at], expected)
        for step, wanted in zip(results.steps[6 * at : 6 * at + 6], expected["steps"], strict=True):
            assert_equal(step, wanted)


def test_a_random_selection_equals_naive(recording: Recording) -> None:
    for selector, seed in (("random", 3), ("random:7", 7)):
        (row,) = run_plain(recording, selector=selector, rules="max-belief", split=0.5, seed=3).rows
        expected = Twin(recording).expect("max-belief", fraction=0.1, random_seed=seed)
        assert_equal(row, expected)


def test_soft_votes_and_a_labelled_prior_equal_naive() -> None:
    skewed = synthetic_recording(items=300, classes=4, models=4, missing=0.0, seed=8)
    skewed = skewed.take(np.flatnonzero((skewed.truth > 0) | (np.arange(300) % 5 == 0)))
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(4), size=skewed.votes.shape)
    probabilities = (probabilities + np.eye(4)[skewed.votes]) / 2
    soft = replace(skewed, probabilities=probabilities)
    for rule in ("replace", "max-belief", "cost-ratio:2"):
        options: dict[str, Any] = {"budgets": 0.3, "split": 0.5, "seed": 3, "rules": rule}
        (row,) = run_plain(soft, votes="soft", prior="labelled", **options).rows
        assert_equal(row, Twin(soft, prior="labelled").expect(rule, fraction=0.3))
        (uniform,) = run_plain(soft, votes="soft", **options).rows
        assert uniform["expected_accuracy"] != row["expected_accuracy"]


def test_calibrated_votes_equal_naive() -> None:
    plain = synthetic_recording(items=400, classes=4, models=4, missing=0.0, seed=8)
    rng = np.random.default_rng(1)
    sure = (3 * rng.dirichlet(np.ones(4), size=plain.votes.shape) + 5 * np.eye(4)[plain.votes]) / 8
    soft = replace(plain, probabilities=sure)
    options: dict[str, Any] = {"budgets": 1.0, "split": 0.5, "seed": 3, "rules": "cost-ratio:2"}
    (row,) = run_plain(soft, votes="calibrated", **options).rows
    parts = replay.take_apart(soft, 0.5, seed=3)
    found = fit_temperatures(parts.labelled)
    read = sure.copy()
    for model, each in enumerate(found):
        for item, shown in enumerate(sure[model].tolist()):
            known = naive_temperatures.calibrated(
                dict(enumerate(shown)), each.sharpness, each.biases.tolist()
            )
            read[model, item] = [known[code] for code in range(4)]
    assert_equal(row, Twin(replace(soft, probabilities=read)).expect("cost-ratio:2", fraction=1.0))
    assert any(abs(each.sharpness - 1) > 0.1 for each in found)
    (paper,) = run_plain(soft, votes="soft", **options).rows
    assert (row["votes"], paper["votes"]) == ("calibrated", "soft")
    assert paper["expected_accuracy"] != row["expected_accuracy"]


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
        if rule == "max-belief-min-entropy" and expected["entropy_even"]:
            continue  # whether the entropy fell is rounding
        assert steps[-1].shard.labels[at].label.tolist() == expected["labels"], rule


def test_one_pass_serves_all_rules(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    folds = []
    fold = Beliefs.fold

    def counted(*given: Any, **options: Any) -> None:
        folds.append(1)
        fold(*given, **options)

    monkeypatch.setattr(Beliefs, "fold", counted)
    together = run_plain(recording, rules=ALL_RULES, seed=1).rows
    assert len(folds) == len(recording.models)
    for rule, row in zip(ALL_RULES, together, strict=True):
        alone = run_plain(recording, rules=rule, seed=1).rows[0]
        assert alone | {"seconds": 0} == row | {"seconds": 0}
        assert row["seconds"] > 0


def test_zero_budget_changes_nothing(recording: Recording) -> None:
    for row in run_plain(recording, budgets=0, rules=ALL_RULES).rows:
        assert row["evaluations"] == 0
        assert row["negative_flips"] == row["positive_flips"] == row["neutral_flips"] == 0
        assert row["delta_accuracy"] == 0


def test_steps_stay_within_budget_and_no_vote_is_asked_for_twice(recording: Recording) -> None:
    asked = np.zeros(recording.votes.shape, dtype=int)

    class Counting(Recording):
        """Counts every vote that is read, as a model would count its evaluations."""

        def soft_votes(self, model: int) -> Any:
            votes = super().soft_votes(model)

            class Counted:
                def __getitem__(self, rows: Any) -> Any:
                    np.add.at(asked[model], rows, 1)
                    return votes[rows]

            return Counted()

    certain = np.eye(7)[recording.votes]
    fields = {name: getattr(recording, name) for name in ("classes", "models", "truth", "votes")}
    list(
        replay.walk(
            Counting(**fields, probabilities=certain),
            replay.fit(recording, "full"),
            prior=priors.uniform(7),
            selector=Entropy(),
            budget=Budget.of("10%"),
            rules=[rules.Replace()],
            soft=True,
        )
    )
    assert asked.max() == 1
    assert (asked[recording.votes == -1] == 0).all()
    recorded = (recording.votes != -1).sum(axis=1)
    assert asked[0].sum() == recorded[0]
    assert asked[1:].sum(axis=1).tolist() == [naive.budgeted(0.1, n) for n in recorded[1:].tolist()]


def test_random_selection_differs_by_step_and_by_seed(recording: Recording) -> None:
    def rows(seed: int) -> list[set[int]]:
        steps = replay.walk(
            recording,
            replay.fit(recording, "full"),
            prior=priors.uniform(7),
            selector=Random(),
            budget=Budget.of("30%"),
            rules=[],
            seed=seed,
        )
        return [set(step.rows.tolist()) for step in steps]

    drawn = rows(1)
    assert drawn == rows(1)
    assert drawn[3] != drawn[4]
    assert drawn[3] != rows(2)[3]


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
    rows = {row["rule"]: row for row in run_plain(recording, rules=ALL_RULES, budgets=1.0).rows}
    assert rows["oracle"]["negative_flips"] == 0
    assert rows["oracle"]["pf_nf"] is None
    assert rows["oracle"]["accuracy"] == max(row["accuracy"] for row in rows.values())


def test_the_truth_is_hidden_from_everything_but_the_metrics(recording: Recording) -> None:
    shown = []

    class Spy:
        def decide(self, evidence: rules.Evidence) -> Any:
            shown.append(evidence.truth)
            return evidence.label

    deciding = [rules.parse(rule) for rule in ALL_RULES if rule != "oracle"]
    parts = replay.take_apart(recording, 0.5, seed=0)
    lied = replace(parts.target, truth=(parts.target.truth + 1) % 7)
    labels = []
    for target in (parts.target, lied):
        steps = replay.walk(
            target,
            replay.fit(parts.labelled, "full"),
            prior=priors.uniform(7),
            selector=Entropy(),
            budget=Budget.of(0.3),
            rules=[*deciding, Spy()],
        )
        last = list(steps)[-1]
        labels.append([each.label for each in last.shard.labels])
    assert all((one == other).all() for one, other in zip(*labels, strict=True))
    assert shown
    assert all(truth is None for truth in shown)


def test_rows_describe_themselves(recording: Recording) -> None:
    results = run_plain(
        recording,
        budgets=["10%", 0.1, 30],
        rules=["max-belief", rules.CostRatio(5), "cost-ratio:5.0"],
        selector=["entropy", "random"],
        seeds=2,
        seed=4,
    )
    assert len(results.rows) == 16
    assert list(results.rows[0]) == KEYS
    assert {row["budget"] for row in results.rows} == {0.1, 30 / 200}
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
    results = run_plain(recording, rules=ALL_RULES)
    results.write(tmp_path / "results.parquet")
    table = pq.read_table(tmp_path / "results.parquet")
    kinds = table["kind"].to_pylist()
    assert (kinds.count("run"), kinds.count("step")) == (10, 60)
    run = table.slice(0, 1).to_pylist()[0]
    for key in KEYS:
        expected = results.rows[0][key]
        assert run[key] == (str(expected) if key == "split" else expected)
    assert [path.name for path in tmp_path.iterdir()] == ["results.parquet"]


def test_a_failed_write_keeps_what_was_there(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = run_plain(recording)
    out = tmp_path / "results.parquet"
    out.write_text("precious")

    def full_disk(_: Any, where: Path) -> None:
        where.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(OSError, match="No space left"):
        results.write(out)
    assert out.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(InvalidParameter, match="'out' must be a file"):
        results.write(tmp_path)


def test_results_print_as_a_table(recording: Recording) -> None:
    text = str(run_plain(recording, rules=["replace", "oracle"], seeds=2))
    assert "mean of 2 seeds" in text
    assert "replace" in text
    assert "–" in text  # the oracle's PF/NF
    assert str(replay.Results()) == "no runs"


def test_the_table_shows_means_and_the_ratio_of_sums() -> None:
    shared: dict[str, Any] = {
        "recording": "r",
        "source": None,
        "split": 0.5,
        "order": "given",
        "seed": 0,
    }
    shared |= {"prior": "uniform", "votes": "hard", "confusion": "full", "selector": "entropy"}
    shared |= {"adapt": None, "weigh": None}
    shared |= {"budget": 50 / 878, "rule": "replace", "n": 9, "models": ["[v1]", "[/v2]"]}
    shared |= {"delta_accuracy": 0, "btc": None, "bec": 99, "expected_accuracy": 1}
    best = {"accuracy": 70.0, "negative_flips": 0, "positive_flips": 8, "pf_nf": None}
    worst = {"accuracy": 80.0, "negative_flips": 4, "positive_flips": 4, "pf_nf": 1.0}
    rows = [shared | {"evaluations": 10} | seed for seed in (best, worst)]
    text = str(replay.Results(rows))
    assert "[v1] … [/v2]" in text  # names are not markup
    (line,) = [line for line in text.splitlines() if "replace" in line]
    # 12 positive over 4 negative flips: the seed without a negative flip counts too
    assert line.split() == [
        "5.695%",
        "replace",
        "75.0",
        "+0.0",
        "2",
        "6",
        "3.0",
        "–",
        "99.00",
        "1.0",
        "10",
    ]


def test_progress_counts_every_step(recording: Recording) -> None:
    seen: list[tuple[int, int]] = []
    run_plain(recording, budgets=[0.1, 0.2], progress=lambda *step: seen.append(step))
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
    assert run_plain(marked).rows[0]["split"] == "is_source"
    assert run_plain(recording).rows[0]["split"] == 0.5


def test_orders_follow_the_labelled_set(recording: Recording) -> None:
    def order(name: str) -> Any:
        return run_plain(recording, split=0.5, order=name).rows[0]["models"]

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
    row = run_plain(replace(target, name="target"), source=replace(source, name="source")).rows[0]
    assert (row["source"], row["split"], row["n"]) == ("source", None, 200)
    expected = run_plain(replace(recording, is_source=np.arange(400) < 200)).rows[0]
    assert row["accuracy"] == expected["accuracy"]
    with pytest.raises(InvalidParameter, match="not from both"):
        run_plain(target, source=source, split=0.5)
    with pytest.raises(UnknownName, match="model 0"):
        run_plain(target, source=source.pick(["model 1"]))
    other = replace(source, classes=("x", *source.classes[1:]))
    with pytest.raises(InvalidRecording, match="same classes"):
        run_plain(target, source=other)


def test_priors_as_users_write_them(recording: Recording, tmp_path: Path) -> None:
    weights = {"class 0": 3, "class 1": 1}
    as_json, as_csv = tmp_path / "prior.json", tmp_path / "prior.csv"
    as_json.write_text(json.dumps(weights))
    as_csv.write_text("\ufeffclass 0, 3\n\nclass 1,1\n\n", encoding="utf-8")
    rows = [
        run_plain(recording, prior=prior, budgets=1.0, rules="max-belief").rows[0]
        for prior in (str(as_json), str(as_csv), np.array([3.0, 1, 0, 0, 0, 0, 0]))
    ]
    assert len({row["accuracy"] for row in rows}) == 1
    assert rows[0]["prior"] == str(as_json)
    assert rows[2]["prior"] == "given"
    assert run_plain(recording, prior="labelled").rows[0]["prior"] == "labelled"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no prior"),
        ("[1, 2]", "no prior"),
        ('{"class 0": "x"}', "no prior"),
        ('{"class 0": 1, "class 0": 2}', "names a class twice"),
        ('{"class 0": -1}', "gives 'class 0' the weight -1"),
        ('{"class 0": NaN}', "gives 'class 0' the weight nan"),
        ('{"cow": 1}', "'cow', which is no class"),
    ],
)
def test_bad_prior_files_are_named(
    recording: Recording, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "prior.json"
    path.write_text(content)
    with pytest.raises(InvalidData, match=message):
        run_plain(recording, prior=str(path))


def test_soft_votes_change_beliefs(recording: Recording) -> None:
    sure = np.eye(7)[recording.votes] * 0.93 + 0.01
    soft = replace(recording, probabilities=sure.astype(np.float16))
    hard_row = run_plain(soft, rules="max-belief").rows[0]
    soft_row = run_plain(soft, rules="max-belief", votes="soft").rows[0]
    assert soft_row["votes"] == "soft"
    assert soft_row["expected_accuracy"] != hard_row["expected_accuracy"]
    certain = replace(recording, probabilities=np.eye(7)[recording.votes].astype(np.float16))
    same = run_plain(certain, rules="max-belief", votes="soft").rows[0]
    assert same["accuracy"] == hard_row["accuracy"]
    with pytest.raises(InvalidRecording, match="no class probabilities"):
        run_plain(recording, votes="soft")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"beliefs": "fancy"},
            UnknownName,
            "no kind of beliefs 'fancy'; known are: dependent, plain",
        ),
        ({"selector": ["entropy", "x"], "budgets": 1.0}, UnknownName, "no selector"),
        ({"budgets": ["10%", 20]}, InvalidParameter, "10% and 20 are the same share of 200"),
        ({"rules": [None]}, InvalidParameter, "a name or a rule object"),
        ({"rules": rules.Replace}, InvalidParameter, "a name or a rule object"),
        ({"selector": 5}, InvalidParameter, "a name or a selector object"),
        ({"split": [0.5]}, InvalidParameter, "'split'"),
        ({"order": 3}, InvalidParameter, "'order'"),
        ({"order": "random:²"}, InvalidParameter, "whole number"),
        ({"seed": "x"}, InvalidParameter, "'seed' must be a whole number"),
        ({"seed": 2**40}, InvalidParameter, "'seed' must be a whole number"),
        ({"seeds": 1.5}, InvalidParameter, "'seeds'"),
        ({"source": 5}, InvalidRecording, "'source' must be a recording or a path"),
        ({"models": ["model 1", "model 1"]}, InvalidParameter, "each only once"),
        ({"models": []}, InvalidParameter, "'models' must be at least one"),
        ({"votes": "firm"}, UnknownName, "hard, soft, calibrated"),
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
        run_plain(recording, **options)


def test_a_model_without_labelled_votes_is_refused_by_name(recording: Recording) -> None:
    votes = recording.votes.copy()
    votes[2] = -1
    with pytest.raises(InvalidData, match=r"'model 2'.*labelled set is empty"):
        run_plain(replace(recording, votes=votes))
