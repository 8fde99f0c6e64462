"""Changes made on the page: steps undone, items reviewed; and answers taken away as a file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page

from posterity import Store
from posterity.cli import run
from tests.browser.conftest import Shoot
from tests.browser.pages import complete, figures, item_at, twin, until, visit
from tests.browser.serving import Servers
from tests.browser.stores import Stores
from tests.browser.watching import barriers, dismiss

Changed = tuple[str, Store]


@pytest.fixture
def writable(stores: Stores, served: Servers, tmp_path: Path) -> Changed:
    store = Store(stores.copy(stores.demo, tmp_path))
    return served(Path(store.path), "--allow-writes").url, store


@pytest.fixture(scope="module")
def url(stores: Stores, served: Servers) -> str:
    return served(stores.demo).url


def test_a_step_is_undone_after_a_question(page: Page, writable: Changed, shoot: Shoot) -> None:
    url, store = writable
    visit(page, url)
    assert "Changes can be made here." in page.inner_text("footer")
    button = page.locator("[data-revert='4']")
    button.click()
    asking = page.get_by_role("dialog", name="Revert a step")
    assert "Step 4 will no longer count" in asking.inner_text()
    assert barriers(page) == []
    shoot(page, "revert")
    asking.get_by_role("button", name="Keep it").click()
    button.click()
    page.keyboard.press("Escape")
    page.wait_for_timeout(200)
    assert len(store.steps) == 7
    button.click()
    with page.expect_navigation():
        asking.get_by_role("button", name="Revert").click()
    complete(page)
    last = store.steps[-1]
    assert (last.kind, last.reverts) == ("revert", 4)
    rows = page.locator("main tbody tr")
    assert rows.count() == 8
    assert "revert of step 4" in rows.first.inner_text()
    undone = rows.nth(3)
    assert "undone" in undone.inner_text()
    assert undone.locator("[data-revert]").count() == 0
    assert [step["counts"] for step in twin(page)["steps"]] == [True] * 4 + [False] + [True] * 3
    shoot(page, "reverted")
    visit(page, f"{url}/flips")
    assert figures(page)["Fixed"] == "–"
    assert "nothing tells which of its flips fixed" in page.inner_text("main")


def test_a_revert_that_fails_is_said(page: Page, writable: Changed, faults: list[str]) -> None:
    url, store = writable
    visit(page, url)
    page.evaluate("document.querySelector(\"[data-revert='6']\").dataset.revert = '99'")
    said: list[str] = []
    dismiss(page, said)
    page.locator("[data-revert='99']").click()
    page.get_by_role("dialog").get_by_role("button", name="Revert").click()
    until(page, "document.querySelector('#announce').textContent !== ''")
    assert "99" in said[0]
    assert page.locator("[data-revert='99']").is_enabled()
    assert len(store.steps) == 7
    faults[:] = [fault for fault in faults if "status of 4" not in fault]


def _id(page: Page) -> str:
    return page.locator("#queue .card:visible h2 a").inner_text()


def _progress(page: Page) -> str | None:
    return page.get_by_role("progressbar").get_attribute("aria-valuenow")


def test_items_are_reviewed_by_keys_and_saved_as_one_step(
    page: Page, writable: Changed, shoot: Shoot
) -> None:
    url, store = writable
    visit(page, f"{url}/review")
    save = page.locator("#save")
    assert save.is_disabled()
    view = twin(page)
    first, second, third, fourth = (item["id"] for item in view["items"][:4])
    choices = [[choice["class"] for choice in item["choices"]] for item in view["items"]]
    assert _id(page) == first
    page.keyboard.press("2")
    assert _id(page) == second
    assert page.evaluate("document.activeElement.closest('.card') !== null")
    page.keyboard.press("s")
    assert _id(page) == third
    page.keyboard.press("5")
    page.keyboard.press("/")
    page.keyboard.type("no such class")
    page.keyboard.press("Enter")
    assert _id(page) == fourth
    assert "There is no class" in page.inner_text("#announce")
    field = page.locator("#queue .card:visible input")
    field.fill("")
    page.keyboard.type("s1")  # keys typed into a field are text
    assert _id(page) == fourth
    field.fill("de")
    page.keyboard.press("Enter")
    assert page.inner_text("#tally") == "3 answers, not saved yet."
    assert _progress(page) == "3"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert _id(page) == third
    pressed = page.locator("#queue .card:visible [aria-pressed=true]")
    assert pressed.get_attribute("data-answer") == choices[2][4]
    shoot(page, "review-answered")
    page.keyboard.press("u")
    assert (page.inner_text("#tally"), pressed.count()) == ("2 answers, not saved yet.", 0)
    page.reload()
    complete(page)
    assert page.inner_text("#tally") == "2 answers, not saved yet."  # they wait here
    with page.expect_navigation():
        save.click()
        until(page, "document.querySelector('#saved').textContent.includes('2')")
    complete(page)
    step = store.steps[-1]
    assert (step.kind, step.report["items"]) == ("review", 2)
    assert len(store.steps) == 8
    labels = {row["id"]: row["label"] for row in store.labels().to_pylist()}
    assert (labels[first], labels[fourth]) == (choices[0][1], "de")
    asked = [item["id"] for item in twin(page)["items"]]
    assert first not in asked
    assert third in asked
    assert page.inner_text("#tally") == "None yet."
    visit(page, item_at(url, first))
    assert "decided by a person in step 7" in page.inner_text("main")


def test_answers_are_chosen_by_mouse_and_forgotten(page: Page, url: str) -> None:
    visit(page, f"{url}/review?next=2")
    assert page.locator("#queue .card").count() == 2
    page.locator("#queue .card:visible [data-answer]").first.click()
    page.locator("#queue .card:visible [data-answer]").nth(1).click()
    assert page.inner_text("#tally") == "2 answers, not saved yet."
    page.locator("#forget").click()
    assert page.inner_text("#tally") == "None yet."
    assert page.locator("#download").is_hidden()


def test_answers_of_a_page_that_is_read_only_are_taken_as_a_file(
    page: Page, url: str, stores: Stores, tmp_path: Path
) -> None:
    visit(page, f"{url}/review")
    assert page.locator("#save").count() == 0
    assert f"posterity review {stores.demo} --answers" in page.inner_text("main")
    items = twin(page)["items"]
    for key in ("1", "2", "s", "3"):
        page.keyboard.press(key)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download answers.csv").click()
    taken = tmp_path / "answers.csv"
    download.value.save_as(taken)
    with taken.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [(0, 0), (1, 1), (3, 2)]
    assert rows == [
        {"id": items[at]["id"], "answer": items[at]["choices"][key]["class"]}
        for at, key in expected
    ]
    copied = Store(stores.copy(stores.demo, tmp_path))
    assert run(["review", copied.path, "--answers", str(taken)]) == 0
    assert copied.steps[-1].report["items"] == 3
