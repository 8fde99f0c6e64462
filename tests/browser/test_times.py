"""How long pages and answers take, on stores of every size; in CI a few visits, timed many."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.pages import addresses, ask, visit
from tests.browser.serving import Servers
from tests.browser.stores import Stores
from tests.browser.timing import (
    ANSWER,
    VISITS,
    Measurements,
    answers,
    first_visits,
    later_visits,
)

STORES: dict[str, Callable[[Stores], Path]] = {
    "demo": lambda stores: stores.whole_demo,
    "ImageNet": lambda stores: stores.imagenet,
    "million": lambda stores: stores.million,
}

COLD = 10.0
"""Seconds for whoever comes before a server has made anything ready."""


@pytest.fixture(scope="module")
def visits() -> int:
    return VISITS if os.environ.get("POSTERITY_TIMED") else 1


@pytest.mark.parametrize("name", STORES)
def test_pages_are_there_within_a_second(
    name: str,
    stores: Stores,
    served: Servers,
    chromium: Browser,
    kept_profile: BrowserContext,
    measured: Measurements,
    visits: int,
) -> None:
    store = STORES[name](stores)
    url = served(store).url
    alone = first_visits(chromium, url, 1, warm=False)
    measured(f"{name}: overview, right after the start", alone, COLD)
    for slow in ("entropies", "reliability", "outlook"):
        assert ask(url, f"/{slow}.json").status == 200  # once they are here, all is ready
    late = []
    for page, address in addresses(url, store).items():
        for kind, times in (
            ("first", first_visits(chromium, address, visits)),
            ("later", later_visits(kept_profile, address, visits)),
        ):
            try:
                measured(f"{name}: {page}, {kind} visit", times)
            except AssertionError as error:  # the other pages are measured too
                late.append(str(error))
    assert not late


@pytest.mark.parametrize("name", STORES)
def test_the_planner_answers_at_once(
    name: str, stores: Stores, served: Servers, page: Page, measured: Measurements
) -> None:
    url = served(STORES[name](stores)).url
    visit(page, f"{url}/planner")
    page.wait_for_timeout(500)
    # A cost ratio nobody has asked for; then budgets, while the curve comes.
    ratios = answers(page, "#ratio", [0, 8, 1, 7, 2, 6, 3, 5])
    budgets = answers(page, "#budget", [10, 0, 9, 1, 8, 2, 7, 4])
    measured(f"{name}: planner, another cost ratio", ratios, ANSWER)
    measured(f"{name}: planner, another budget", budgets, ANSWER)
