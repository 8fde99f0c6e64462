"""The pages of a store, what they show, and what their JSON twins say."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from playwright.sync_api import Page, ViewportSize

from posterity import Store
from tests.browser.timing import READY

NAMES = ("overview", "planner", "flips", "item", "models", "review")

PATIENCE = 30.0

PHONE: ViewportSize = {"width": 390, "height": 844}


def addresses(url: str, store: Path) -> dict[str, str]:
    """Where each page is; of the items one whose label has moved."""
    moved = Store(store).flips().column("id")[0].as_py()
    paths = {name: f"/{name}" for name in NAMES} | {"overview": "/"}
    return {name: url + path for name, path in paths.items()} | {"item": item_at(url, moved)}


def item_at(url: str, item: str | int) -> str:
    """The page of an item."""
    return f"{url}/item?id={quote(str(item), safe='')}"


def visit(page: Page, address: str) -> None:
    """Open it, and wait until all of it is there."""
    page.goto(address)
    complete(page)


def complete(page: Page) -> None:
    """Wait until all of it is there."""
    page.wait_for_selector(READY, state="attached")


def twin(page: Page) -> Any:
    """What the page says as JSON."""
    where = page.locator("link[rel=alternate][type='application/json']").get_attribute("href")
    assert where is not None
    answer = page.request.get(urljoin(page.url, where))
    assert answer.ok
    return answer.json()


def undrawn(page: Page) -> list[str]:
    """Pictures that are not there, or have traces of a kind that the library did not know."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('figure.chart')].filter((figure) =>"
        " !figure.querySelector('svg.main-svg') || figure.querySelector('.plot').data.some("
        "  (given, at) => (given.type || 'scatter') !=="
        "   figure.querySelector('.plot')._fullData[at].type)).map((f) => f.dataset.chart)"
    )
    return found


def figures(page: Page) -> dict[str, str]:
    """The figures at the top of a page, without the words below them."""
    told: dict[str, str] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.figure')].map((figure) =>"
        " [figure.querySelector('dt').textContent,"
        "  figure.querySelector('dd').firstChild.textContent.trim()]))"
    )
    return told


def told(page: Page, name: str) -> str:
    """A figure of the planner."""
    return page.locator(f"[data-told='{name}']").inner_text()


def number(value: float) -> str:
    """As the planner writes a figure."""
    return f"{floor(value + 0.5):,}" if abs(value) >= 10 else f"{value:.1f}"


def traces(page: Page, chart: str) -> list[Any]:
    """What a picture was drawn from."""
    drawn: list[Any] = page.evaluate(
        "chart => document.querySelector(`[data-chart='${chart}'] .plot`).data"
        ".map(({type, name, x, y, text}) => ({type, name, x: [...x], y: [...y], text}))",
        chart,
    )
    return drawn


def until(page: Page, holds: str) -> None:
    """Wait until something holds on a page, whose policy lets nobody else wait there."""
    late = time.monotonic() + PATIENCE
    while not page.evaluate(holds):
        assert time.monotonic() < late, f"never: {holds}"
        page.wait_for_timeout(20)


def whole_curve(page: Page) -> None:
    """Wait until the planner has drawn what each budget would bring."""
    until(page, "document.querySelector(\"[data-chart='gains'] .plot\").data[0].x.length === 11")


def answered(page: Page, move: Callable[[], object]) -> None:
    """Move a control of the planner, and wait for the answer."""
    before = page.evaluate("Number(document.querySelector('main').dataset.answered)")
    move()
    until(page, f"Number(document.querySelector('main').dataset.answered) > {before}")


@dataclass(frozen=True)
class Answer:
    """What a server answered to a program."""

    status: int
    headers: Mapping[str, str]
    """By names in small letters."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of an error."""
        found: str = self.json["error"]["message"]
        return found


def ask(
    url: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    body: Any = None,
) -> Answer:
    """Ask a server as no browser would: any header, no redirect followed."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers or {}))
        found = connection.getresponse()
        told = {name.lower(): value for name, value in found.getheaders()}
        return Answer(found.status, told, found.read())
    finally:
        connection.close()


def send(url: str, path: str, given: Any, **headers: str) -> Answer:
    """Send a change as JSON."""
    kind = {"Content-Type": "application/json"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(url, path, kind | named, method="POST", body=json.dumps(given))
