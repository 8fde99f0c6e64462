"""Everything can be reached and done without a mouse, and one sees where one is."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.pages import NAMES, addresses, complete, until, visit
from tests.browser.serving import Servers
from tests.browser.stores import Stores

CONTROLS = "a[href], button, input, select, summary, [tabindex='0']"


@pytest.fixture(scope="module")
def pages(stores: Stores, served: Servers) -> dict[str, str]:
    return addresses(served(stores.demo).url, stores.demo)


def test_the_first_key_leads_past_the_menu(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["models"])
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    assert skip.evaluate("link => link === document.activeElement")
    box = skip.bounding_box()
    assert box is not None
    assert box["x"] >= 0  # seen once it is reached
    page.keyboard.press("Enter")
    until(page, "document.activeElement.id === 'main'")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


@pytest.mark.parametrize("name", NAMES)
def test_tab_reaches_every_control_and_shows_where_it_is(
    page: Page, pages: dict[str, str], name: str
) -> None:
    visit(page, pages[name])
    expected = page.evaluate(
        "controls => [...document.querySelectorAll(controls)]"
        ".filter((one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0).length",
        CONTROLS,
    )
    seen, order = set(), []
    for _ in range(expected + 5):
        page.keyboard.press("Tab")
        at, outline, top = page.evaluate(
            "controls => {const one = document.activeElement; const style = getComputedStyle(one);"
            " return [[...document.querySelectorAll(controls)].indexOf(one),"
            " style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),"
            " one.getBoundingClientRect().width]}",
            CONTROLS,
        )
        if at < 0 or at in seen:
            break
        assert outline >= 2
        assert top > 0
        seen.add(at)
        order.append(at)
    assert len(seen) == expected
    assert order == sorted(order)  # as they stand on the page


def test_an_item_is_looked_up_by_enter(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["item"])
    item = page.locator("h1").inner_text()
    visit(page, pages["overview"])
    page.get_by_label("Item", exact=True).focus()
    page.keyboard.type(item)
    page.keyboard.press("Enter")
    page.wait_for_url("**/item?id=*")
    complete(page)
    assert page.locator("h1").inner_text() == item


def test_the_card_of_a_review_has_the_focus(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["review"])
    page.keyboard.press("s")
    card = "document.activeElement.closest('.card')?.dataset.id"
    assert page.evaluate(card) == page.locator("#queue .card:visible").get_attribute("data-id")
    assert page.evaluate("document.activeElement.tagName") == "H2"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.tagName") == "INPUT"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    page.keyboard.press("Control+1")  # a key of the browser is none of ours
    assert page.inner_text("#tally") == "None yet."
    page.keyboard.press("1")
    assert page.inner_text("#tally").startswith("1 answer")


def test_what_happens_is_announced(page: Page, pages: dict[str, str]) -> None:
    visit(page, pages["review"])
    choice = page.locator("#queue .card:visible [data-answer]").first.get_attribute("data-answer")
    page.keyboard.press("1")
    assert page.get_by_role("status").filter(has_text="Answered").inner_text() == (
        f"Answered {choice}"
    )
    visit(page, pages["planner"])
    assert page.locator("#budget").get_attribute("aria-valuetext") == "10%"
    assert page.locator(".answer").get_attribute("aria-live") == "polite"
