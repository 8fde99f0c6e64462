"""How long pages take, told by their own clock: until they are complete, until they answer."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.chromium import WINDOW

PAGE, ANSWER = 1.0, 0.3
"""The bars, in seconds: a whole page, and an answer of the planner."""

VISITS = 7

READY = "html[data-ready]"
"""A page says so once everything on it is drawn."""

# Time counts from the start of the navigation. The attribute is watched, not asked for again and
# again: a page that is busy would be asked too late.
_WATCH = """
new MutationObserver((_, watcher) => {
  if (document.documentElement?.dataset.ready) {
    window.readyAt = performance.now();
    watcher.disconnect();
  }
}).observe(document, {subtree: true, childList: true, attributeFilter: ["data-ready"]});
"""

_MOVE = """
([slider, value]) => new Promise((answered, failed) => {
  const main = document.querySelector("main");
  const count = () => Number(main.dataset.answered || 0);
  const before = count();
  let moved;
  new MutationObserver((_, watcher) => {
    if (count() > before) {
      watcher.disconnect();
      answered(performance.now() - moved);
    }
  }).observe(main, {attributeFilter: ["data-answered"]});
  setTimeout(() => failed(new Error("no answer within ten seconds")), 10_000);
  const input = document.querySelector(slider);
  input.value = value;
  moved = performance.now();
  input.dispatchEvent(new Event("input", {bubbles: true}));
})
"""


def first_visits(
    browser: Browser, url: str, visits: int = VISITS, *, warm: bool = True
) -> list[float]:
    """Seconds until a page is complete for visitors who were never here; the server is warm.

    Unless it shall not be: then the very first visit counts.
    """
    times = []
    for _ in range(visits + warm):
        context = browser.new_context(viewport=WINDOW)
        times.append(_visit(context, url))
        context.close()
    return times[warm:]


def later_visits(context: BrowserContext, url: str, visits: int = VISITS) -> list[float]:
    """The same for one who was here before: what may be kept is kept, scripts are compiled."""
    # Chromium keeps a compiled script at the second visit, and takes it from the third on.
    return [_visit(context, url) for _ in range(visits + 3)][3:]


def _visit(context: BrowserContext, url: str) -> float:
    page = context.new_page()
    page.add_init_script(_WATCH)
    page.goto(url, wait_until="commit")
    page.wait_for_selector(READY, state="attached")
    milliseconds: float = page.evaluate("window.readyAt")
    page.close()
    return milliseconds / 1000


def answers(page: Page, slider: str, values: Sequence[float]) -> list[float]:
    """Seconds from each move of a slider until the page has counted one more answer."""
    return [page.evaluate(_MOVE, [slider, str(value)]) / 1000 for value in values]


@dataclass(frozen=True)
class Measured:
    """Several times of the same."""

    what: str
    bar: float
    times: list[float]

    @property
    def median(self) -> float:
        """The one that counts."""
        return statistics.median(self.times)

    def __str__(self) -> str:
        low, high = min(self.times), max(self.times)
        spread = f"{low:6.3f} to {high:.3f}"
        return f"{self.what:<52} {self.median:6.3f} s  {spread:<16} bar {self.bar} s"


class Measurements:
    """All times of a run, for its log and a file; they fail a test only where that is asked for."""

    def __init__(self) -> None:
        self.rows: list[Measured] = []

    def __call__(self, what: str, times: list[float], bar: float = PAGE) -> float:
        """Note the times, hold their median against the bar if ``POSTERITY_TIMED`` is set."""
        row = Measured(what, bar, times)
        self.rows.append(row)
        if os.environ.get("POSTERITY_TIMED"):
            assert row.median <= bar, str(row)
        return row.median

    def write(self, path: Path) -> None:
        """As JSON."""
        rows = [{**asdict(row), "median": row.median} for row in self.rows]
        path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
