"""The report: one file that needs nothing else, on a screen, in the dark and on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from posterity import Store
from posterity.cli import run
from posterity.web.report.pages import estimate, number
from posterity.web.report.summary import summary
from tests.browser import chromium as chromiums
from tests.browser.conftest import SCREENSHOTS, Shoot
from tests.browser.hostile import CLASSES, MODELS, hostile_store, ids
from tests.browser.pages import complete, figures, undrawn, until
from tests.browser.stores import Stores
from tests.browser.test_hostile import harmless
from tests.browser.watching import barriers, dismiss, watch

LARGEST = 6_000_000


@pytest.fixture(scope="module")
def report(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the whole demo, as the command writes it."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert run(["report", str(stores.whole_demo), "-o", str(path)]) == 0
    return path


@pytest.fixture
def alone(chromium: Browser, faults: list[str]) -> Iterator[Page]:
    """A page of somebody who has nothing but the file: no network, no server."""
    context = chromium.new_context(viewport=chromiums.WINDOW, offline=True)
    page = context.new_page()
    watch(page, faults)
    dismiss(page, faults)
    yield page
    context.close()
    assert not faults


def _open(page: Page, path: Path) -> list[str]:
    """The addresses it asked for."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    complete(page)
    return [one for one in asked if not one.startswith("data:")]


def test_a_report_is_one_file_that_asks_for_nothing(
    alone: Page, report: Path, stores: Stores, shoot: Shoot
) -> None:
    assert report.stat().st_size < LARGEST
    assert _open(alone, report) == [report.as_uri()]
    assert undrawn(alone) == []
    assert alone.locator("figure.chart").count() >= 10
    status = Store(stores.whole_demo).status()
    assert figures(alone)["Items"] == number(status["items"])
    assert figures(alone)["Expected accuracy"] == estimate(status["expected_accuracy"], "share")
    assert barriers(alone) == []
    shoot(alone, "report-light")


def test_a_report_in_the_dark_and_on_a_phone(alone: Page, report: Path, shoot: Shoot) -> None:
    alone.emulate_media(color_scheme="dark")
    _open(alone, report)
    assert barriers(alone) == []
    shoot(alone, "report-dark")
    alone.locator("#theme").click()
    assert alone.get_attribute("html", "data-theme") == "light"
    alone.set_viewport_size({"width": 390, "height": 844})
    until(alone, "document.documentElement.scrollWidth <= 390")
    shoot(alone, "report-phone")


def test_a_report_on_paper(alone: Page, report: Path, shoot: Shoot) -> None:
    alone.emulate_media(color_scheme="dark")
    _open(alone, report)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    pdf = alone.pdf(path=SCREENSHOTS / "report.pdf", format="A4", print_background=True)
    assert pdf.startswith(b"%PDF")
    alone.set_viewport_size({"width": 688, "height": 1000})  # A4 within its margins
    alone.emulate_media(media="print", color_scheme="dark")
    alone.evaluate("dispatchEvent(new Event('beforeprint'))")
    alone.wait_for_timeout(300)
    # Dark ink on paper, whatever the screen is like.
    assert alone.evaluate("getComputedStyle(document.body).color") == "rgb(29, 33, 38)"
    assert alone.locator("#theme").is_hidden()
    wide = alone.evaluate(
        "[...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() &&"
        " !one.closest('svg') && one.getBoundingClientRect().right > innerWidth + 1)"
        ".map((one) => one.outerHTML.slice(0, 120))"
    )
    assert wide == []
    cut = alone.evaluate(
        "[...document.querySelectorAll('.chart svg.main-svg')].filter((one) =>"
        " one.getBoundingClientRect().right > one.closest('.chart').getBoundingClientRect().right)"
        ".map((one) => one.closest('.chart').dataset.chart)"
    )
    assert cut == []
    shoot(alone, "report-print")
    alone.evaluate("dispatchEvent(new Event('afterprint'))")
    assert alone.get_attribute("html", "data-theme") is None


def test_a_report_of_one_step(
    alone: Page, stores: Stores, tmp_path: Path, shoot: Shoot, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.html"
    assert run(["report", str(stores.demo), "--step", "5", "-o", str(path)]) == 0
    _open(alone, path)
    assert undrawn(alone) == []
    assert alone.locator("h1").inner_text() == "Step 5: pycld2"
    assert "Can it be trusted?" in alone.inner_text("main")
    assert "Models" not in alone.locator("h2").all_inner_texts()
    shown = figures(alone)
    shoot(alone, "report-step")
    capsys.readouterr()
    assert run(["report", str(stores.demo), "--step", "5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# Step 5 of store: pycld2\n")
    assert f"**{shown['Fixed']}** fixed and **{shown['Broke']}** broken" in said
    assert run(["report", str(stores.demo), "--step", "99", "-o", str(path)]) != 0


def test_a_report_as_markdown(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert run(["report", str(stores.demo), "-o", str(path)]) == 0
    said = path.read_text(encoding="utf-8")
    assert said.startswith("# store\n")
    for part in ("## Steps", "## Next", "### From and to", "| py3langid | balanced:80%,ratio="):
        assert part in said
    assert "nan" not in said.lower().split()


def test_the_report_of_a_hostile_store(alone: Page, tmp_path: Path, shoot: Shoot) -> None:
    store = hostile_store(tmp_path / "hostile")
    path = tmp_path / "report.html"
    pictures = str(store.parent / "pictures")
    assert run(["report", str(store), "-o", str(path), "--pictures", pictures]) == 0
    assert _open(alone, path) == [path.as_uri()]
    assert undrawn(alone) == []
    harmless(alone)
    assert "secret" not in alone.inner_text("main").replace("secret.png", "")
    kinds = {src.split(";")[0] for src in alone.evaluate("[...document.images].map((i) => i.src)")}
    assert kinds == {"data:image/png"}
    assert MODELS[3] in alone.inner_text("main")
    assert alone.locator("table.flips tbody th").first.inner_text() in ids()
    shoot(alone, "hostile-report")
    said = summary(Store(store)).to_markdown()
    for text in (*CLASSES, *MODELS):
        assert text not in said
    assert not re.search(r"(?<!\\)[<>]|&lt;|(?<!\\)\]\(|https?://", said)
