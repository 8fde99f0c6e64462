"""What a job logs under ``posterity``; nothing is printed."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from posterity import Evaluation, Model, Store
from tests.stores import World, small_store


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="posterity")
    return caplog


def told(logged: pytest.LogCaptureFixture, level: int, store: Store) -> list[str]:
    """The messages of a level, without the store they all begin with."""
    begin = f"{store.path}: "
    assert all(record.name.split(".")[0] == "posterity" for record in logged.records)
    found = [each.getMessage() for each in logged.records if each.levelno == level]
    assert all(text.startswith(begin) or "ompil" in text for text in found)
    return [text.removeprefix(begin) for text in found if "ompil" not in text]


def test_what_a_job_wants_to_know(
    logged: pytest.LogCaptureFixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    store = small_store(tmp_path / "store", world)
    logged.clear()
    model = world.model("new")
    store.register(model)
    report = store.update(model, budget=20, evaluation=Evaluation(batch=10))
    store.revert(1)
    store.remove(["item-1"])
    store.compact()
    store.vacuum(hours=0)
    infos = told(logged, logging.INFO, store)
    assert infos[0].startswith("new is registered: right on ")
    assert infos[1] == f"new votes on 20 items, plan {report.run}"
    assert infos[2] == f"step 1: update, new, 20 evaluations, {_flips(report.flips)}"
    assert infos[3].startswith("step 2: revert, reverts 1, ")
    assert infos[4] == "1 item removed"
    assert "removed item purged" in infos[5]
    assert infos[6].endswith("deleted")
    assert len(infos) == 7
    debugs = told(logged, logging.DEBUG, store)
    assert debugs == ["new: 10 of 20 items done", "new: 20 of 20 items done"]
    assert capsys.readouterr() == ("", "")


def _flips(count: int) -> str:
    return "1 flip" if count == 1 else f"{count} flips"


def test_warnings(logged: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["cat", "dog"], prior="labelled")
    truth, few = ["cat"] * 95 + ["dog"] * 5, ["cat", "dog"] * 3
    store.register(Model("few", labelled=(few, few)))
    (warning,) = told(logged, logging.WARNING, store)
    assert warning.startswith("few: 6 labelled items")
    logged.clear()
    store.add({"id": list(range(200))})

    def predict(batch: pa.Table) -> Any:
        if 7 in batch["id"].to_pylist():
            raise RuntimeError("seven")
        return ["dog"] * len(batch)

    labelled = {"id": list(range(1000, 1100)), "truth": truth, "vote": truth}
    report = store.update(Model("m", labelled=labelled, predict=predict))
    warnings = told(logged, logging.WARNING, store)
    assert "m: failed on row 7: RuntimeError('seven')" in [
        text.replace("m failed", "m: failed") for text in warnings
    ]
    lines = [
        line.removeprefix("warning: ") for line in report.note.split("\n") if "warning: " in line
    ]
    assert lines
    assert [f"step 0: {line}" for line in lines] == [w for w in warnings if w.startswith("step 0")]


def test_nothing_is_shown_unless_somebody_asks() -> None:
    script = (
        "import logging, posterity\n"
        "logging.getLogger('posterity.engine').warning('unseen')\n"
        "held = logging.getLogger('posterity').handlers\n"
        "assert [type(one) for one in held] == [logging.NullHandler], held\n"
        "assert not logging.getLogger().handlers\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "logging.getLogger('posterity.engine').warning('seen')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "WARNING:posterity.engine:seen\n")
