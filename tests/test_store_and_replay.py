"""A store on disk does what replay does in memory, bit for bit, however it is cut into shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.paper.experiments import PAPER_MODELS

from posterity import Model, Store, priors, replay
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import ShardHistory
from posterity.method.beliefs.plain import ENTROPY_BITS, kept
from posterity.method.decide.budget import Budget
from posterity.method.decide.rules import parse
from posterity.method.decide.selectors import Entropy
from posterity.replay import Recording
from posterity.storage.files import open_files
from tests.conftest import real_recording
from tests.problems import synthetic_recording

RULES = ["cost-ratio:10", "max-belief", "majority-vote", "max-belief-min-entropy", "replace"]
RULES += ["cost-ratio:10+confirm", "max-belief+confirm"]


def run_both(recording: Recording, path: Path, shard_rows: int, budget: str, rule: str) -> None:
    """Walk the recording in memory and through a store, and compare after every step."""
    parts = replay.take_apart(recording, 0.5, seed=0)
    target, labelled, names = parts.target, parts.labelled, np.array(recording.classes)
    ids = [f"item-{row}" for row in range(len(target))]
    store = Store.create(path, classes=recording.classes, beliefs="plain", shard_rows=shard_rows)
    store.add({"id": ids})
    steps = replay.walk(
        target,
        replay.fit(labelled, "full"),
        prior=priors.uniform(len(names)),
        selector=Entropy(),
        budget=Budget.of(budget),
        rules=[parse(rule)],
    )
    for step in steps:
        at = step.number
        known = {
            "id": [f"labelled-{row}" for row in range(len(labelled))],
            "truth": names[labelled.truth],
            "vote": names[labelled.votes[at]],
        }
        store.register(Model(step.model, labelled=known))
        votes = pa.table({"id": ids, "vote": names[target.votes[at]]})
        spending = None if at == 0 else budget  # the first model labels everything
        report = store.update(step.model, votes=votes, budget=spending, rule=rule)
        assert report.evaluations == len(step.rows)
        flips = report.flips
        if at + 1 == len(target.models):
            flips += store.settle().settled  # as a walk does in its last step
        assert flips == int(step.decisions[0].flipped.sum())
        context = Context(open_files(path))
        labels, entropies = [], []
        for shard in context.shards:
            history = ShardHistory.read(context.ledger, *shard)
            now = history.current([], np.log(len(names)))
            labels.append(now.label)
            entropies.append(now.entropy)
        assert (np.concatenate(labels) == step.shard.labels[0].label).all()
        exact = kept(step.shard.beliefs.entropy(), ENTROPY_BITS)
        assert (np.concatenate(entropies) == exact).all()
    assert store.check() == []


@pytest.mark.parametrize("shard_rows", [pytest.param(7, marks=pytest.mark.long), 10_000])
@pytest.mark.parametrize("rule", RULES)
def test_synthetic(tmp_path: Path, shard_rows: int, rule: str) -> None:
    recording = synthetic_recording(items=400, classes=6, models=5, missing=0.0, seed=3)
    run_both(recording, tmp_path / "store", shard_rows, "20%", rule)


@pytest.mark.long
@pytest.mark.parametrize("shard_rows", [7_000, 1_000_000])
def test_imagenet(tmp_path: Path, shard_rows: int) -> None:
    recording = real_recording("imagenet_val").pick(PAPER_MODELS)
    run_both(recording, tmp_path / "store", shard_rows, "10%", "cost-ratio:10")
