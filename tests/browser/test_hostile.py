"""A store that attacks whoever looks at it: on every page, and in its report, text stays text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page

from posterity import Store
from tests.browser.conftest import Shoot
from tests.browser.hostile import CLASSES, MODELS, PASSWORDS, TEXTS, hostile_store, ids, png
from tests.browser.pages import (
    answered,
    ask,
    complete,
    item_at,
    twin,
    undrawn,
    until,
    visit,
    whole_curve,
)
from tests.browser.serving import Servers
from tests.browser.watching import dismiss

PATHS = ("/", "/planner", "/flips", "/flips?step=1", "/item", "/models", "/review")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_store(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def url(store: Path, served: Servers) -> str:
    return served(store, "--pictures", str(store.parent / "pictures")).url


@pytest.fixture
def wary(page: Page, faults: list[str]) -> Iterator[Page]:
    """A page on which nothing may happen but what we do; pictures that are none are 404."""
    dismiss(page, faults)
    page.on("popup", lambda popup: faults.append(f"popup: {popup.url}"))
    page.on("frameattached", lambda frame: faults.append(f"frame: {frame.url}"))
    yield page
    faults[:] = [one for one in faults if "status of 404" not in one]


def harmless(page: Page) -> None:
    """Fail where a name or a text has become more than text."""
    assert page.evaluate("window.__hacked") is None
    injected = page.evaluate(
        "[...document.querySelectorAll('main b, main i, main iframe, main object, main textarea,"
        " main style, svg a, svg script, [onerror], [onload], [onfocus], [autofocus], base,"
        ' script:not([src]):not([type="application/json"])\')]'
        ".filter((found) => document.documentElement.dataset.page !== 'report' ||"
        " found.parentElement !== document.body).map((found) => found.outerHTML.slice(0, 200))"
    )
    assert injected == []
    assert page.evaluate("[...document.images].filter((i) => i.getAttribute('src') === 'x')") == []
    leading = page.evaluate(
        "[...document.querySelectorAll('a[href]')].map((link) => link.href)"
        ".filter((href) => !/^(http:..127\\.0\\.0\\.1:|blob:|file:)/.test(href))"
    )
    assert leading == []
    bold = page.evaluate(
        "[...document.querySelectorAll('svg tspan')]"
        ".filter((t) => /bold|italic|underline/.test(t.getAttribute('style') || ''))"
        ".map((t) => t.textContent)"
    )
    assert bold == []


@pytest.mark.parametrize("path", PATHS)
def test_on_every_page_text_stays_text(wary: Page, url: str, path: str, shoot: Shoot) -> None:
    visit(wary, url + path)
    if path == "/planner":
        whole_curve(wary)
        answered(wary, lambda: wary.locator("#model").select_option(MODELS[2]))
    assert undrawn(wary) == []
    harmless(wary)
    _hover_over_everything(wary)
    harmless(wary)
    assert "49" not in wary.inner_text("h1, h2 >> nth=0")
    shoot(wary, f"hostile-{path.strip('/').replace('?step=', '-') or 'overview'}")
    twin(wary)


def _hover_over_everything(page: Page) -> None:
    page.evaluate(
        """() => Promise.all([...document.querySelectorAll(".js-plotly-plot")].map(async (plot) => {
          for (const [curveNumber, trace] of plot.data.entries()) {
            if (trace.hoverinfo === "skip" || !trace.text || !trace.x.length) continue;
            const pointNumber = trace.type === "heatmap" ? [0, 1] : 0;
            Plotly.Fx.hover(plot, [{curveNumber, pointNumber}]);
            await new Promise((done) => setTimeout(done, 80));  // more often it does not look
          }
        }))"""
    )


def test_names_are_shown_as_they_are(wary: Page, url: str, store: Path) -> None:
    visit(wary, f"{url}/models?{urlencode({'model': MODELS[1]})}")
    assert wary.locator("#one").inner_text() == MODELS[1]
    rows = wary.locator("main table").first.locator("tbody th").all_inner_texts()
    assert rows == list(MODELS)
    drawn = wary.locator("[data-chart=agreement] .ytick text").all_text_contents()
    assert [name[:17] for name in MODELS] == [text.rstrip("…") for text in drawn[: len(MODELS)]]
    classes = wary.locator("[data-chart=confusion] .ytick text").all_text_contents()
    assert sorted(text.rstrip("…")[:13] for text in classes) == sorted(n[:13] for n in CLASSES)
    visit(wary, f"{url}/flips")
    moves = Store(store).flips()
    shown = wary.locator("table.flips tbody tr").first.locator("td").all_text_contents()
    assert shown[0] in moves.column("old").to_pylist()
    assert shown[1] in moves.column("new").to_pylist()


def test_hovering_shows_a_name_as_it_is(wary: Page, url: str) -> None:
    visit(wary, f"{url}/models?{urlencode({'model': MODELS[0]})}")
    classes = wary.evaluate(
        """async () => {
          const plot = document.querySelector("[data-chart=classes] .plot"), said = [];
          for (const pointNumber of plot.data[0].x) {
            Plotly.Fx.hover(plot, [{curveNumber: 0, pointNumber}]);
            await new Promise((done) => setTimeout(done, 80));
            said.push(plot.querySelector(".hoverlayer").textContent);
          }
          return said;
        }"""
    )
    for name in CLASSES:
        assert any(told.startswith(f"{name}: ") for told in classes), (name, classes)


def test_the_story_of_an_item_stays_text(wary: Page, url: str, shoot: Shoot) -> None:
    for at, item in enumerate(ids()[: len(TEXTS)]):
        if at % 4 and TEXTS[at] not in (None, ""):
            told = ask(url, item_at("", item).replace("/item?", "/item.json?"))
            assert told.json["id"] == item
            continue
        visit(wary, item_at(url, item))
        assert undrawn(wary) == []
        harmless(wary)
        assert wary.locator("h1").inner_text() == item
        assert wary.locator(".payload dt").first.inner_text() == "<b>text</b>"
    visit(wary, item_at(url, ids()[7]))
    assert "more characters" in wary.locator(".payload-text").first.inner_text()
    shoot(wary, "hostile-item")
    visit(wary, item_at(url, f"<script>{CLASSES[1]}"))
    harmless(wary)
    assert "not in the store" in wary.get_by_role("alert").inner_text()


def test_a_filter_is_shown_as_it_was_typed(wary: Page, url: str) -> None:
    asked = {"old": CLASSES[1], "new": CLASSES[3], "text": '"><b>x'}
    visit(wary, f"{url}/flips?{urlencode(asked)}")
    harmless(wary)
    for field, value in asked.items():
        assert wary.locator(f"#{field}").input_value() == value
    visit(wary, f"{url}/flips?{urlencode({'old': CLASSES[0]})}")
    harmless(wary)
    assert twin(wary)["count"] > 0


def test_only_a_real_picture_is_shown(wary: Page, url: str, store: Path) -> None:
    rows = {path: row for row, path in reversed(list(enumerate(_named(store))))}
    visit(wary, item_at(url, ids()[rows["real.png"]]))
    shown = wary.locator("img[src*='column=picture']")
    until(wary, "[...document.images].every((image) => image.complete)")
    assert shown.evaluate("image => image.naturalWidth") == 8
    assert ask(url, f"/picture?row={rows['real.png']}&column=picture").body == png()
    thumb = ask(url, "/picture?row=0&column=thumb")
    assert (thumb.status, thumb.headers["content-type"]) == (200, "image/png")
    assert "sandbox" in thumb.headers["content-security-policy"]
    for path, row in rows.items():
        if path == "real.png":
            continue
        answer = ask(url, f"/picture?row={row}&column=picture")
        assert answer.status == 404, path
        assert b"secret" not in answer.body
        visit(wary, item_at(url, ids()[row]))
        until(wary, "![...document.images].some((i) => i.src.includes('column=picture'))")
        harmless(wary)


def _named(store: Path) -> list[str]:
    from tests.browser.hostile import ITEMS

    paths = ["real.png", PASSWORDS, str(store.parent / "secret.png"), "drawn.png"]
    paths += ["missing.png", "\u0001.png", "."]
    return [paths[at % len(paths)] for at in range(ITEMS)]


@pytest.mark.parametrize(
    "query",
    [
        "row=100000&column=picture",
        "row=0&column=id",
        "row=0&column=nothing",
        "row=0&column=",
        "row=0",
        "row=1&column=thumb",
        "row=0&column=%3Cb%3Etext%3C/b%3E",
        "column=../real.png",
    ],
)
def test_nothing_else_is_a_picture(url: str, query: str) -> None:
    assert ask(url, f"/picture?{query}").status == 404


def test_only_files_of_the_page_are_static(url: str) -> None:
    for name in ("../templates/base.html", "..%2f..%2fstore.py", "base.html", "%2e%2e/app.py", ""):
        assert ask(url, f"/static/{name}").status == 404
    for row in ("-1", "x", "1e3", "9" * 30):
        assert ask(url, f"/picture?row={row}&column=picture").status == 400


def test_answers_of_a_review_stay_what_they_are(wary: Page, url: str, tmp_path: Path) -> None:
    visit(wary, f"{url}/review")
    wary.keyboard.press("1")
    wary.keyboard.press("/")
    wary.keyboard.insert_text(CLASSES[0])
    wary.keyboard.press("Enter")
    harmless(wary)
    assert "2 answers" in wary.inner_text("#tally")
    with wary.expect_download() as download:
        wary.locator("#download").click()
    taken = tmp_path / "answers.csv"
    download.value.save_as(taken)
    assert CLASSES[0] in taken.read_text(encoding="utf-8")
    visit(wary, f"{url}/review")
    complete(wary)
    harmless(wary)
