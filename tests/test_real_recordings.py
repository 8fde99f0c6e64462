"""The paper's findings on recordings of real classifiers: a short part of `make paper`."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from benchmarks.paper.bars import ACCURACY, COMPATIBILITY, FLIPS, FLIPS_SHARE, bars
from benchmarks.paper.experiments import PAPER_MODELS, RULES, WEAKEST

from posterity import replay
from posterity.replay import Recording
from tests.conftest import real_recording

run_plain = partial(replay.run, beliefs="plain")


@pytest.fixture(scope="module")
def imagenet() -> Recording:
    return real_recording("imagenet_val").pick(PAPER_MODELS)


def test_one_split_of_imagenet_reproduces_the_paper(imagenet: Recording) -> None:
    """One seed instead of five, so the bars are half as wide again (BEC: two and a half times)."""
    budgets = ["10%", "30%", "100%"]
    rows = run_plain(imagenet, split=0.5, seed=0, budgets=budgets, rules=RULES).rows
    for bar in bars(rows):
        where = (bar.budget, bar.rule)
        assert abs(bar.off("accuracy")) <= 1.5 * ACCURACY, where
        allowed = max(FLIPS_SHARE[bar.rule] * bar.theirs["negative_flips"], FLIPS[bar.rule])
        assert abs(bar.off("negative_flips")) <= 1.5 * allowed, where
        assert abs(bar.off("btc")) <= 1.5 * COMPATIBILITY, where
        assert abs(bar.off("bec")) <= 2.5 * COMPATIBILITY, where


@pytest.mark.parametrize("order", ["adversarial", "random:0"])
@pytest.mark.parametrize("confusion", ["diagonal", "full"])
def test_cost_ratio_breaks_less_than_majority_vote_in_any_order(
    imagenet: Recording, order: str, confusion: str
) -> None:
    models = [model for model in PAPER_MODELS if order == "adversarial" or model not in WEAKEST]
    rules = ["majority-vote", "cost-ratio:10"]
    majority, cost_ratio = run_plain(
        imagenet, models=models, order=order, confusion=confusion, rules=rules
    ).rows
    assert cost_ratio["negative_flips"] < majority["negative_flips"]


def test_labelled_set_and_target_from_different_recordings(imagenet: Recording) -> None:
    target = real_recording("imagenetv2_matchedfreq").pick(PAPER_MODELS)
    (row,) = run_plain(target, source=imagenet, rules="max-belief").rows
    assert row["delta_accuracy"] > 10
    # The models of the two recordings are in different orders; by position it would be nonsense.
    shuffled = imagenet.pick(PAPER_MODELS[::-1])
    (same,) = run_plain(target, source=shuffled, rules="max-belief").rows
    assert same["accuracy"] == row["accuracy"]


def test_a_class_never_seen_in_the_labelled_set() -> None:
    langid = real_recording("langid")
    unseen = np.setdiff1d(np.arange(len(langid.classes)), langid.truth[langid.is_source])
    assert [langid.classes[k] for k in unseen] == ["other"]
    models = langid.models[-4:]
    for prior in ("uniform", "labelled"):
        rows = run_plain(langid, models=models, prior=prior, confusion=["diagonal", "full"]).rows
        assert all(row["accuracy"] > 85 for row in rows)
        assert all(0 <= row["expected_accuracy"] <= 100 for row in rows)


def test_soft_votes_of_language_models() -> None:
    emotion = real_recording("emotion_llm")
    for votes in ("hard", "soft"):
        (row,) = run_plain(emotion, votes=votes, rules="max-belief", budgets="30%").rows
        assert row["delta_accuracy"] > 0


def test_every_recording_can_be_replayed() -> None:
    for name in ("cifar10_test", "cifar10_1_v6", "model_vs_human"):
        recording = real_recording(name)
        (row,) = run_plain(recording, budgets="10%").rows
        assert row["steps"] == len(recording.models) - 1
