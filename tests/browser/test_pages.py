"""Every page of a store: it opens without a fault, says what its twin says, and bars nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from posterity import Store
from posterity.web.report.pages import belief, estimate, number, percent
from tests.browser.conftest import Shoot
from tests.browser.pages import (
    NAMES,
    PHONE,
    addresses,
    ask,
    complete,
    figures,
    told,
    traces,
    twin,
    undrawn,
    visit,
    whole_curve,
)
from tests.browser.pages import number as as_planned
from tests.browser.serving import Servers
from tests.browser.stores import Stores
from tests.browser.watching import barriers


@pytest.fixture(scope="module")
def url(stores: Stores, served: Servers) -> str:
    return served(stores.demo).url


@pytest.fixture(scope="module")
def pages(url: str, stores: Stores) -> dict[str, str]:
    return addresses(url, stores.demo)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_without_a_fault_and_bars_nobody(
    page: Page, pages: dict[str, str], name: str, shoot: Shoot
) -> None:
    visit(page, pages[name])
    if name == "planner":
        whole_curve(page)
    assert undrawn(page) == []
    assert barriers(page) == []
    shoot(page, f"{name}-light")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(228, 231, 234)"
    shoot(page, f"{name}-dark")
    page.set_viewport_size(PHONE)
    page.wait_for_timeout(300)  # pictures are drawn anew when a window has another size
    assert barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.emulate_media(color_scheme="light")
    shoot(page, f"{name}-phone")


def test_the_overview_says_what_its_twin_says(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["overview"])
    view = twin(page)
    status, shown = view["status"], figures(page)
    assert shown == {
        "Items": number(status["items"]),
        "Expected accuracy": estimate(status["expected_accuracy"], "share"),
        "Fixed": number(view["fixed"]),
        "Broke": number(view["broke"]),
        "Evaluations": number(view["spent"]),
        "Waiting": number(status["pending"]),
    }
    rows = page.locator("main table tbody tr")
    assert rows.count() == len(view["steps"]) == 7
    last = view["steps"][-1]
    for part in (last["what"], estimate(last["fixed"]), estimate(last["accuracy"], "share")):
        assert part in rows.first.inner_text()
    (line,) = [trace for trace in traces(page, "accuracy") if trace["text"]]
    assert line["y"] == [step["accuracy"]["value"] for step in view["steps"]]
    asked = ask(pages["overview"], "/outlook.json").json["outlook"]
    assert f"would fix about {as_planned(asked['fixed']['value'])}" in page.inner_text("#outlook")


def test_the_flips_say_what_their_twin_says(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["flips"])
    view = twin(page)
    assert figures(page) == {
        "Flips": number(view["count"]),
        "Fixed": estimate(view["fixed"]),
        "Broke": estimate(view["broke"]),
    }
    ids = page.locator("table.flips tbody th").all_inner_texts()
    assert ids == [flip["id"] for flip in view["flips"]]
    assert sum(traces(page, "beliefs")[0]["y"]) == view["count"]


def test_the_item_says_what_its_twin_says(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["item"])
    view = twin(page)
    told_of = view["explanation"]
    shown = figures(page)
    assert shown["Label"] == told_of["label"]
    assert shown["Believed"] == belief(told_of["belief"])
    drawn = [trace["y"] for trace in traces(page, "story") if trace.get("type") == "bar"]
    whole = [sum(bars) for bars in zip(*drawn, strict=True)]
    assert whole == pytest.approx([1.0] * len(view["beliefs"]["steps"]))


def test_the_models_say_what_their_twin_says(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["models"])
    view = twin(page)
    rows = page.locator("main table").first.locator("tbody tr").all_inner_texts()
    assert len(rows) == len(view["models"]) == 7
    for row, model in zip(rows, view["models"], strict=True):
        assert model["model"] in row
        assert percent(model["accuracy"]) in row
    page.get_by_role("link", name=view["models"][0]["model"]).click()
    complete(page)
    chosen = twin(page)["model"]
    assert chosen["model"] == page.locator("#one").inner_text() == view["models"][0]["model"]
    drawn = traces(page, "classes")[-1]["y"]  # before it their band, where classes are many
    assert drawn == [row["accuracy"] for row in chosen["classes"]]


def test_the_planner_and_the_review_say_what_their_twins_say(
    page: Page, pages: dict[str, str]
) -> None:
    visit(page, pages["planner"])
    answer = twin(page)["answer"]
    assert told(page, "evaluations") == f"{answer['evaluations']:,}"
    assert told(page, "fixed") == as_planned(answer["fixed"]["value"])
    visit(page, pages["review"])
    view = twin(page)
    listed = page.locator("#queue .card").evaluate_all("cards => cards.map((c) => c.dataset.id)")
    assert [json.loads(one) for one in listed] == [item["id"] for item in view["items"]]
    assert number(view["worth"]) in page.inner_text(".lead")


def test_a_choice_of_light_or_dark_stays(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["overview"])
    line = "document.querySelector(\"[data-chart='evaluations'] .plot\").data[0].marker.color"
    light = page.evaluate(line)
    page.locator("#theme").click()
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate(line) != light
    visit(page, pages["models"])
    assert page.get_attribute("html", "data-theme") == "dark"


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/nothing", 404, "There is no page '/nothing'"),
        ("/item?id=nobody", 404, "not in the store"),
        ("/flips?step=99", 400, "99"),
        ("/flips?step=x", 400, "a whole number"),
        ("/flips?low=2", 400, "a number from 0 to 1"),
        ("/models?model=nobody", 404, "nobody"),
        ("/planner?model=nobody", 404, "nobody"),
        ("/planner?budget=lots", 400, "lots"),
        ("/planner?rule=none", 404, "none"),
        ("/review?next=-1", 400, "a whole number"),
        ("/review?order=no", 404, "no"),
    ],
)
def test_what_cannot_be_shown_is_said_in_words(
    page: Page, url: str, faults: list[str], path: str, status: int, said: str
) -> None:
    answer = page.goto(url + path)
    assert answer is not None
    assert answer.status == status
    complete(page)
    assert said in page.get_by_role("alert").inner_text()
    page.get_by_role("link", name="Back to the overview").wait_for()
    (fault,) = faults
    assert f"status of {status}" in fault
    faults.clear()
    name, _, query = path.partition("?")
    as_json = ask(url, f"{name}.json?{query}")
    assert as_json.status == status
    assert said in as_json.message or name == "/nothing"


def test_the_page_of_what_is_missing_bars_nobody(
    page: Page, url: str, faults: list[str], shoot: Shoot
) -> None:
    visit(page, f"{url}/item?id=nobody")
    faults.clear()
    assert barriers(page) == []
    shoot(page, "missing")


def test_a_store_that_is_new_has_pages_too(
    page: Page, served: Servers, tmp_path: Path, shoot: Shoot
) -> None:
    Store.create(tmp_path / "new", classes=["cat", "dog"])
    url = served(tmp_path / "new").url
    said: dict[str, Any] = {}
    for name in NAMES:
        visit(page, f"{url}/{'' if name == 'overview' else name}")
        assert undrawn(page) == []
        said[name] = page.inner_text("main")
    shoot(page, "new")
    assert "No steps yet" in said["overview"]
    assert "No model is left" in said["planner"]
    assert "No step has changed a label yet" in said["flips"]
    assert "No model is registered yet" in said["models"]
    assert "Nothing to review" in said["review"]
