"""Progress of long calls: a line where somebody is looking, and nothing elsewhere."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posterity import Model, Store
from posterity import _progress as shown
from posterity._progress import ProgressLine, progress_line
from posterity.errors import InvalidParameter


class Screen(io.StringIO):
    """A terminal, and what stands in its line at the end."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        """What has not been written over."""
        held = ""
        for part in self.getvalue().split("\r"):
            held = part + held[len(part) :]
        return held.rstrip()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    made = Screen()
    # Not sys.stderr itself: pytest puts its own there between fixtures and tests.
    monkeypatch.setattr(shown, "sys", SimpleNamespace(stderr=made, modules={}))
    monkeypatch.setattr(shown, "PATIENCE", 0.0)
    monkeypatch.setattr(shown, "EVERY", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "store", classes=["cat", "dog"])
    made.add({"id": list(range(40))}, progress=False)
    return made


MODEL = Model("m", predict=lambda batch: ["cat"] * len(batch), accuracy=0.9)


def test_a_line_that_is_gone_at_the_end(store: Store, screen: Screen) -> None:
    store.update(MODEL)
    assert "\rEvaluating ━━━" in screen.getvalue()
    assert "40/40 items" in screen.getvalue()
    assert screen.line == ""


@pytest.mark.parametrize("progress", [False, lambda *_: None])
def test_no_line_where_none_is_wanted(store: Store, screen: Screen, progress: Any) -> None:
    store.update(MODEL, progress=progress)
    assert screen.getvalue() == ""


def test_nothing_where_nobody_looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stderr", piped)
    monkeypatch.setattr(shown, "PATIENCE", 0.0)
    store.update(MODEL)
    assert piped.getvalue() == ""
    with progress_line(True, "Reading", "rows") as report:  # but if it is asked for
        assert report is not None
        report(1, 2)
    assert "Reading ###" in piped.getvalue()  # an encoding nobody knows gets plain signs


def test_in_a_notebook(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = io.StringIO()
    monkeypatch.setattr(sys, "stderr", cell)
    monkeypatch.setattr(shown, "PATIENCE", 0.0)
    shell: Any = object()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    store.update(MODEL, budget=20)  # IPython in a script or a pipe has no kernel
    assert cell.getvalue() == ""
    shell = SimpleNamespace(kernel="one")
    store.update(MODEL, budget=20, more=True)
    assert "20/20 items" in cell.getvalue()


def test_calls_that_are_short_show_nothing(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "PATIENCE", 60.0)
    line = ProgressLine("Reading", "rows", screen)
    line(1, 2)
    line.clear()
    assert screen.getvalue() == ""


def test_what_a_line_says(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    line = ProgressLine("Evaluating", "items", screen)
    line(1000, 4000)  # of a run that goes on
    assert screen.line == f"Evaluating {'━' * 7}{'─' * 23}  1,000/4,000 items"
    now = 110.0
    line(2000, 4000)
    assert screen.line == f"Evaluating {'━' * 15}{'─' * 15}  2,000/4,000 items  100/s  20 s left"
    monkeypatch.setenv("COLUMNS", "40")
    now = 120.0
    line(3000, 4000)
    assert len(screen.line) == 39  # no line may be folded: it could not be written over
    line.clear()
    assert screen.line == ""


def test_anything_else_is_refused(store: Store) -> None:
    with pytest.raises(
        InvalidParameter, match="'progress' must be None, True, False or a callable"
    ):
        store.update(MODEL, progress=3)  # type: ignore[arg-type]
