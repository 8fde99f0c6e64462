"""The tools of the tests here, on a page that is simple enough to know what they must find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from posterity import Store
from tests.browser.chromium import missing
from tests.browser.conftest import Shoot
from tests.browser.serving import Servers
from tests.browser.stores import Stores
from tests.browser.timing import READY, Measurements, answers, first_visits, later_visits
from tests.browser.watching import barriers


@pytest.fixture
def url(served: Servers) -> str:
    return served.start(["-m", "tests.browser.trivial"]).url


def test_a_page_without_faults(page: Page, url: str, shoot: Shoot) -> None:
    page.goto(url)
    page.wait_for_selector(READY, state="attached")
    assert barriers(page) == []
    assert shoot(page, "trivial").stat().st_size > 1_000


def test_faults_and_barriers_are_found(page: Page, url: str, faults: list[str]) -> None:
    page.goto(f"{url}/faulty")
    page.evaluate("console.error('loud'); setTimeout(() => { throw new Error('thrown'); }, 0)")
    page.evaluate("fetch('http://example.invalid/').catch(() => null)")
    page.wait_for_timeout(200)
    told = "\n".join(faults)
    for part in ("loud", "thrown", "style-src", "connect-src"):
        assert part in told
    faults.clear()
    found = "\n".join(barriers(page))
    for rule in ("html-has-lang", "label", "landmark-one-main"):
        assert rule in found


def test_every_script_of_the_demo_has_glyphs(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector(READY, state="attached")
    drawn = page.evaluate(_PICTURES)
    boxes = page.evaluate(_PICTURES.replace("[...seen]", "['\\u{10FFFD}']"))
    if set(drawn) & set(boxes):
        missing("no fonts for some of the demo's texts (.ci/browser installs Debian's)")


# Each character alone on a canvas; one without a glyph is drawn as the box of any other such.
_PICTURES = """
() => {
  const seen = new Set(document.querySelector("ul").textContent.replace(/\\s/g, ""));
  const canvas = document.createElement("canvas");
  const pen = canvas.getContext("2d");
  return [...seen].map((character) => {
    canvas.width = canvas.height = 60;
    pen.font = "30px sans-serif";
    pen.fillText(character, 15, 40);
    return canvas.toDataURL();
  });
}
"""


def test_times(
    chromium: Browser, kept_profile: BrowserContext, url: str, page: Page, tmp_path: Path
) -> None:
    measured = Measurements()
    assert 0.1 <= measured("first", first_visits(chromium, url, 2)) < 5
    assert 0.1 <= measured("later", later_visits(kept_profile, url, 2)) < 5
    page.goto(url)
    assert 0.05 <= measured("answer", answers(page, "#slider", [10, 20, 30]), 0.3) < 5
    assert page.locator("#shown").inner_text() == "30"
    measured.write(tmp_path / "times.json")
    rows = json.loads((tmp_path / "times.json").read_text())
    assert [row["what"] for row in rows] == ["first", "later", "answer"]


def test_times_fail_only_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSTERITY_TIMED", raising=False)
    assert Measurements()("slow", [2.0]) == 2.0
    monkeypatch.setenv("POSTERITY_TIMED", "1")
    with pytest.raises(AssertionError, match="slow"):
        Measurements()("slow", [2.0])


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nothing here"):
        Servers(tmp_path).start(["-c", "raise SystemExit('nothing here')"])


def test_servers_end(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    served = servers.start(["-m", "tests.browser.trivial"])
    assert servers.start(["-m", "tests.browser.trivial"]) is served
    servers.stop()
    assert served.process.poll() is not None


def test_a_store_is_built_once_and_copied(stores: Stores, tmp_path: Path) -> None:
    assert stores.demo == stores.demo
    copied = stores.copy(stores.demo, tmp_path)
    assert Store(copied).status()["items"] == 2_400
