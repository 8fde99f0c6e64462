"""The demo's job on a part of its texts: what it stores is what replay says it does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posterity import Store, cli
from posterity.cli.demo.detectors import Detector
from posterity.cli.demo.job import BUDGET, RULE, Job, run_job, score
from posterity.replay import run


@pytest.fixture(scope="module")
def job() -> Job:
    return Job.prepare(items=2500)


def test_the_store_and_replay_agree(job: Job, tmp_path: Path) -> None:
    asked: dict[str, int] = {}

    def counting(detector: Detector) -> Detector:
        def guess(texts: list[str]) -> Iterable[str | None]:
            asked[detector.name] = asked.get(detector.name, 0) + len(texts)
            return detector.guess(texts)

        return replace(detector, guess=guess)

    counted = replace(job, detectors=[counting(detector) for detector in job.detectors])
    told: list[dict[str, object]] = []
    store = run_job(counted, tmp_path, told.append)
    recorded = run(job.record(), order="given", budgets=BUDGET, rules=RULE, split="is_source")
    done, row = score(job, store), recorded.rows[0]
    for figure, value in done.items():
        # The store rehearses its steps with what it knows now, replay with what it knew then.
        close: dict[str, Any] = {"abs": 1.0} if "accuracy" in figure else {"rel": 0.15, "abs": 15}
        assert row[figure] == pytest.approx(value, **close), figure
    assert store.check() == []
    assert [report["step"] for report in told] == list(range(len(job.detectors)))
    # Asked on the labelled texts once, and on the stored ones within the budget; the first one's
    # labels are imported, never asked for by an update.
    for detector, report in zip(job.detectors[1:], told[1:], strict=True):
        assert asked[detector.name] == len(job.labelled) + int(str(report["evaluations"]))


def test_detectors_arrive_as_they_improve(job: Job) -> None:
    right = [job.accuracy(detector) for detector in job.detectors]
    assert right == sorted(right)
    assert job.missing == {}


@pytest.mark.long
def test_a_quick_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, recording = tmp_path / "kept", tmp_path / "votes.npz"
    given = ["demo", "--items", "1000", "--store", str(kept), "--recording", str(recording)]
    assert cli.run(given) == 0
    out = capsys.readouterr().out
    assert "full backfill, majority vote" in out
    assert f"posterity log {kept / 'store'}" in out
    assert len(Store(kept / "store").steps) == 7
    assert cli.run(["replay", str(recording), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]
    assert cli.run(given) == 2
    assert "an empty or a new folder" in capsys.readouterr().err
    assert cli.run(["demo", "--items", "3", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "invalid-parameter"
    assert cli.run(["demo", "--items", "1000", "--json"]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    assert [way["evaluations"] for way in ways][:3] == [0, 4800, 4800]
