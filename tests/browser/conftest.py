"""A browser, stores worth looking at, and servers for them, for all tests here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, BrowserType, Page

from tests.browser import chromium as chromiums
from tests.browser.serving import Servers
from tests.browser.stores import Stores
from tests.browser.timing import Measurements
from tests.browser.watching import watch
from tests.conftest import ROOT

SCREENSHOTS = Path(os.environ.get("POSTERITY_SCREENSHOTS") or ROOT / "screenshots")

MEASURED = pytest.StashKey[Measurements]()

Shoot = Callable[[Page, str], Path]


@pytest.fixture(scope="session")
def playwright_chromium() -> Iterator[BrowserType]:
    with chromiums.driver() as driver:
        yield driver


@pytest.fixture(scope="session")
def chromium(playwright_chromium: BrowserType) -> Iterator[Browser]:
    """A browser; a context of it is a visitor who was never here."""
    browser = chromiums.launch(playwright_chromium)
    yield browser
    browser.close()


@pytest.fixture
def kept_profile(playwright_chromium: BrowserType, tmp_path: Path) -> Iterator[BrowserContext]:
    """A browser whose visitor comes again: what it fetched and compiled stays on disk."""
    context = chromiums.launch_kept(playwright_chromium, tmp_path / "profile")
    yield context
    context.close()


@pytest.fixture
def faults() -> list[str]:
    """What ``page`` complained about; a test that expects some clears it."""
    return []


@pytest.fixture
def page(chromium: Browser, faults: list[str]) -> Iterator[Page]:
    """A page that must not complain: no error, nothing its policy forbids, no call elsewhere."""
    context = chromium.new_context(viewport=chromiums.WINDOW)
    page = context.new_page()
    watch(page, faults)
    yield page
    seen = list(faults)  # before the page is closed, which cuts off what it is asking for
    context.close()
    assert not seen


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Built when a test asks for one of them."""
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """``served(store, *args).url`` answers until the tests are over."""
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def shoot() -> Shoot:
    """``shoot(page, name)`` keeps a picture of the whole page for people to look at."""

    def keep(page: Page, name: str) -> Path:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=path, full_page=True, animations="disabled")
        return path

    return keep


@pytest.fixture(scope="session")
def measured(pytestconfig: pytest.Config) -> Measurements:
    """``measured(what, times, bar)``; the log ends with a table of all, where tests run in turn."""
    return pytestconfig.stash.setdefault(MEASURED, Measurements())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    measurements = config.stash.get(MEASURED, None)
    if measurements is None or not measurements.rows:
        return
    terminalreporter.section("times in the browser: median, least to most")
    for row in measurements.rows:
        terminalreporter.line(str(row))
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    measurements.write(SCREENSHOTS / "times.json")
