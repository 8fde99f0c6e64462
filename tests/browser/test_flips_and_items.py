"""Flips that can be found, and the story of each item behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Page

from posterity import Model, Store
from posterity.web.report.pages import belief, estimate
from tests.browser.pages import ask, complete, figures, item_at, twin, undrawn, visit
from tests.browser.serving import Servers
from tests.browser.stores import Stores
from tests.stores import World

STEP = 5
SIZE = 25


@pytest.fixture(scope="module")
def url(stores: Stores, served: Servers) -> str:
    return served(stores.demo).url


@pytest.fixture(scope="module")
def flips(stores: Stores) -> pa.Table:
    """All flips of a step."""
    return Store(stores.demo).flips(STEP)


def _filter(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        page.locator(f".filters #{name}").fill(value)
    page.get_by_role("button", name="Filter").click()
    complete(page)


def _listed(page: Page) -> list[str]:
    """The ids on all pages of the list."""
    found = page.locator("table.flips tbody th").all_inner_texts()
    while page.locator("a[rel=next]").count():
        page.locator("a[rel=next]").click()
        complete(page)
        found += page.locator("table.flips tbody th").all_inner_texts()
    return found


def test_flips_of_another_step_are_paged_through(page: Page, url: str, flips: pa.Table) -> None:
    visit(page, f"{url}/flips")
    assert page.locator("#step").input_value() == "6"
    page.locator("#step").select_option(str(STEP))
    page.get_by_role("button", name="Filter").click()
    complete(page)
    assert figures(page)["Flips"] == str(flips.num_rows)
    assert page.locator("table.flips tbody tr").count() == SIZE
    believed = [flip["belief"] for flip in twin(page)["flips"]]
    assert believed == sorted(believed, reverse=True)
    assert sorted(_listed(page)) == sorted(flips.column("id").to_pylist())
    pages = -(-flips.num_rows // SIZE)
    assert f"{pages} of {pages}" in page.inner_text(".pager")
    page.locator("a[rel=prev]").click()
    complete(page)
    assert page.locator("#step").input_value() == str(STEP)
    assert f"{pages - 1} of {pages}" in page.inner_text(".pager")


def test_a_page_beyond_the_last_is_the_last(page: Page, url: str) -> None:
    visit(page, f"{url}/flips?step={STEP}&page=999")
    assert page.locator("a[rel=next]").count() == 0
    assert page.locator("table.flips tbody tr").count() > 0


def test_flips_from_one_class_to_another(page: Page, url: str, flips: pa.Table) -> None:
    first = twin_of_pairs(url)
    wanted = [
        flip["id"]
        for flip in flips.to_pylist()
        if (flip["old"], flip["new"]) == (first["old"], first["new"])
    ]
    visit(page, f"{url}/flips?step={STEP}")
    whole = figures(page)
    _filter(page, old=first["old"], new=first["new"])
    shown = figures(page)
    assert sorted(_listed(page)) == sorted(wanted)
    assert shown["Flips"] == str(first["flips"]) == str(len(wanted))
    assert shown["Fixed"] == estimate(first["fixed"]) != whole["Fixed"]
    assert shown["Broke"] == estimate(first["broke"])
    assert " to " in shown["Fixed"]
    assert page.locator("#old").input_value() == first["old"]
    page.get_by_role("link", name="All of this step").click()
    complete(page)
    assert figures(page) == whole


def twin_of_pairs(url: str) -> dict[str, Any]:
    """The most frequent change of the step."""
    pairs: list[dict[str, Any]] = ask(url, f"/flips.json?step={STEP}").json["pairs"]
    return pairs[0]


def test_flips_by_belief(page: Page, url: str, flips: pa.Table) -> None:
    visit(page, f"{url}/flips?step={STEP}")
    _filter(page, low="0.5", high="0.9")
    wanted = [flip["id"] for flip in flips.to_pylist() if 0.5 <= flip["belief"] <= 0.9]
    assert 0 < len(wanted) < flips.num_rows
    assert sorted(_listed(page)) == sorted(wanted)


def test_flips_by_a_part_of_their_id(page: Page, url: str, flips: pa.Table) -> None:
    some = flips.column("id")[0].as_py()
    visit(page, f"{url}/flips?step={STEP}")
    _filter(page, text=some.upper())
    assert _listed(page) == [some]


def test_no_flip_is_like_that(page: Page, url: str) -> None:
    visit(page, f"{url}/flips?step={STEP}")
    _filter(page, old="no such class", text="[.*")
    assert "No flip of this step is like that." in page.inner_text("main")
    assert figures(page)["Flips"] == "0"
    assert undrawn(page) == []


def test_a_flip_leads_to_the_story_of_its_item(page: Page, url: str, stores: Stores) -> None:
    store = Store(stores.demo)
    visit(page, f"{url}/flips?step={STEP}")
    link = page.locator("table.flips tbody th a").first
    item = link.inner_text()
    link.click()
    complete(page)
    assert page.locator("h1").inner_text() == item
    told = store.explain(item)
    votes = page.locator("[aria-labelledby=votes] tbody tr").all_inner_texts()
    assert len(votes) == len(told.to_dict()["votes"])
    for row, vote in zip(votes, told.to_dict()["votes"], strict=True):
        assert row.split("\t")[:3] == [str(vote["step"]), vote["model"], vote["vote"]]
    assert figures(page)["Believed"] == belief(told.to_dict()["belief"])
    drawn = twin(page)["beliefs"]
    assert drawn["steps"] == [vote["step"] for vote in told.to_dict()["votes"]]
    story = page.locator("ol.story li").all_inner_texts()
    assert "first label" in story[0]
    for line, one in zip(story, told.to_dict()["decisions"], strict=True):
        assert one["why"] in line
        if one["before"] is not None:
            assert ("moved" if one["before"] != one["after"] else "stayed") in line
    assert any("moved" in line for line in story)


def test_a_label_that_stayed_has_a_story_too(page: Page, url: str, stores: Stores) -> None:
    store = Store(stores.demo)
    queue = ask(url, "/review.json").json["items"]
    item = next(one["id"] for one in queue if one["why"] == "flip held back")
    visit(page, item_at(url, item))
    assert "stayed" in page.inner_text("ol.story")
    assert figures(page)["Label"] == store.explain(item).to_dict()["label"]


ODD = (
    "plain",
    "a/b//c/../d",
    "two words  and more",
    'it\'s "quoted"',
    "a&b=c&amp;d;e",
    "#fragment?query=1",
    "100%",
    "%2Fencoded%00",
    "+plus+",
    "ünïcödé 你好 ✓ 👩‍🔬",
    "line\nbreak\tand\rtab",
    "\\back\\slash",
    " leading and trailing ",
    ".",
    "null",
    "0",
)


HARDEST = (ODD[1], ODD[4], ODD[7], ODD[9], ODD[10])


@pytest.fixture(scope="module")
def odd(served: Servers, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store whose ids are anything."""
    folder = tmp_path_factory.mktemp("odd") / "store"
    store = Store.create(folder, classes=["cat", "dog"])
    store.add(pa.table({"id": list(ODD), "text": [f"the text of {at}" for at in range(len(ODD))]}))
    rng = np.random.default_rng(0)
    truth = np.array(["cat", "dog"])[rng.integers(0, 2, 80)]
    labelled = pa.table({"id": [f"l{at}" for at in range(80)], "truth": truth})
    for name, right, says in (("old", 0.6, "cat"), ("new", 0.97, "dog")):
        wrong = rng.random(80) > right
        vote = np.where(wrong, np.where(truth == "cat", "dog", "cat"), truth)
        store.register(Model(name, labelled=labelled.append_column("vote", [vote])))
        votes = pa.table({"id": list(ODD), "vote": [says] * len(ODD)})
        store.update(name, votes=votes, budget="100%", rule="cost-ratio:2")
    return served(folder).url


def test_items_are_found_whatever_their_ids_are(page: Page, odd: str) -> None:
    visit(page, f"{odd}/flips")
    links = page.locator("table.flips tbody th a")
    assert links.count() == len(ODD)
    found = {}
    for where in links.evaluate_all("links => links.map((link) => link.getAttribute('href'))"):
        view = ask(odd, f"/{where}".replace("/item?", "/item.json?")).json
        found[view["id"]] = view["payload"][0]["text"]
    assert found == {item: f"the text of {at}" for at, item in enumerate(ODD)}
    for item in HARDEST:
        links.filter(has_text=item.split("\n")[0]).click()
        complete(page)
        # A browser takes each kind of line end for the same.
        assert page.locator("h1").text_content() == item.replace("\r", "\n")
        assert twin(page)["id"] == item
        page.go_back()
        complete(page)


def test_items_are_looked_up_by_the_field_of_every_page(page: Page, odd: str) -> None:
    for item in HARDEST[:-1]:  # nobody can type the last into a field of one line
        visit(page, f"{odd}/review")
        page.locator("#find").fill(item)
        page.locator("#find").press("Enter")
        complete(page)
        assert page.locator("h1").text_content() == item


def test_ids_that_are_numbers(page: Page, served: Servers, tmp_path: Path) -> None:
    world = World(items=60)
    long = [2**53 + 1 + at for at in range(59)] + [-7]
    store = Store.create(tmp_path / "numbers", classes=["cat", "dog", "fox", "owl"])
    store.add(world.table().drop_columns("id").append_column("id", [long]))
    store.update(world.model("old"))
    url = served(tmp_path / "numbers").url
    for item in (-7, 2**53 + 1):
        visit(page, item_at(url, item))
        assert page.locator("h1").inner_text() == str(item)
    for wrong, said in (("x", "are integers"), ("9" * 19, ""), ("1" * 30, "are integers")):
        answer = ask(url, f"/item.json?id={wrong}")
        assert answer.status == 404
        assert said in answer.message


def test_the_number_of_an_item_stays_whole_in_a_review(
    page: Page, served: Servers, tmp_path: Path
) -> None:
    world = World(items=20)
    numbers = Store.create(tmp_path / "long", classes=["cat", "dog", "fox", "owl"])
    long = [2**53 + 1 + 2 * at for at in range(20)]
    numbers.add(world.table().drop_columns("id").append_column("id", [long]))
    numbers.update(world.model("old"))
    url = served(tmp_path / "long", "--allow-writes").url
    visit(page, f"{url}/review")
    first = int(page.locator("#queue .card").first.get_attribute("data-id") or 0)
    page.keyboard.press("1")
    page.locator("#save").click()
    page.locator("#saved", has_text="1").wait_for()
    assert numbers.explain(first).to_dict()["pinned"] is not None
