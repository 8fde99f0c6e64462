"""The planner: every move of a control is answered with what the same plan says."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, Route

from posterity import Store, VoteFile
from posterity.engine.evaluation.plans import Plan
from tests.browser.conftest import Shoot
from tests.browser.pages import (
    answered,
    ask,
    number,
    send,
    told,
    traces,
    twin,
    undrawn,
    until,
    visit,
    whole_curve,
)
from tests.browser.serving import Servers
from tests.browser.stores import Stores
from tests.browser.watching import barriers
from tests.stores import World, small_store

MODEL = "py3langid"
FIGURES = ("evaluations", "accuracy", "fixed", "broke", "net")

Planned = Callable[[str, str], Plan]


@pytest.fixture(scope="module")
def url(stores: Stores, served: Servers) -> str:
    return served(stores.demo).url


@pytest.fixture(scope="module")
def copied(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Where plans may be kept."""
    return Store(stores.copy(stores.demo, tmp_path_factory.mktemp("planned")))


@pytest.fixture(scope="module")
def planned(copied: Store) -> Planned:
    """What `posterity plan` says of a budget and a rule."""
    return lambda budget, rule: copied.plan(MODEL, budget=budget, rule=rule)


def _agrees(page: Page, plan: Plan) -> dict[str, str]:
    """The figures that are shown, if they are those of the plan."""
    answer = twin(page)["answer"]
    assert answer["budget"] == plan.request.budget
    assert answer["rule"] == plan.request.rule
    assert answer["evaluations"] == plan.evaluations
    assert answer["eligible"] == plan.eligible
    assert answer["rehearsed"] == plan.rehearsed
    forecast = plan.forecast
    assert forecast is not None
    assert answer["net"] == {name: forecast[name] for name in ("value", "low", "high")}
    shown = {name: told(page, name) for name in FIGURES}
    assert shown["evaluations"] == f"{plan.evaluations:,}"
    assert shown["accuracy"] == f"{100 * answer['accuracy']['value']:.1f} %"
    for name in ("fixed", "broke", "net"):
        assert shown[name] == number(answer[name]["value"])
        low, high = (number(answer[name][end]) for end in ("low", "high"))
        assert told(page, f"{name}-between") == f"{low} to {high}"
    return shown


def test_moving_the_sliders_by_keyboard_changes_what_a_plan_would_say(
    page: Page, url: str, planned: Planned, shoot: Shoot
) -> None:
    visit(page, f"{url}/planner?model={MODEL}")
    seen = [_agrees(page, planned("10%", "balanced"))]
    assert page.locator("#ratio-told").inner_text().startswith("balanced: ")
    assert page.locator("#confirm").is_disabled()
    page.locator("#ratio").focus()
    answered(page, lambda: page.keyboard.press("ArrowRight"))
    visit(page, page.url)  # what was chosen is in the address
    assert page.locator("#ratio-told").inner_text() == "1"
    seen.append(_agrees(page, planned("10%", "cost-ratio:1")))
    page.locator("#budget").focus()
    answered(page, lambda: page.keyboard.press("ArrowRight"))
    visit(page, page.url)
    assert page.locator("#budget-told").inner_text() == "15%"
    seen.append(_agrees(page, planned("15%", "cost-ratio:1")))
    page.locator("#budget").focus()
    answered(page, lambda: page.keyboard.press("End"))
    visit(page, page.url)
    seen.append(_agrees(page, planned("100%", "cost-ratio:1")))
    for name in FIGURES:
        assert len({figures[name] for figures in seen}) > 1
    whole_curve(page)
    shoot(page, "planner-moved")


def test_moving_the_sliders_otherwise_does_too(page: Page, url: str, planned: Planned) -> None:
    visit(page, f"{url}/planner?model={MODEL}")
    for control, value in (("#budget", "10"), ("#ratio", "1")):
        answered(page, lambda c=control, v=value: page.locator(c).fill(v))  # type: ignore[misc]
    answered(page, lambda: page.get_by_text("wait for a second vote").click())
    assert told(page, "evaluations") == f"{planned('100%', 'cost-ratio:1').evaluations:,}"
    waiting = planned("100%", "cost-ratio:1+confirm")
    visit(page, page.url)
    assert page.locator("#confirm").is_checked()
    assert _agrees(page, waiting)["evaluations"] == told(page, "evaluations")
    answered(page, lambda: page.locator("#model").select_option("langdetect"))
    assert "model=langdetect" in page.url


def test_other_cost_ratios_are_shown_beside_the_choice(
    page: Page, url: str, planned: Planned, shoot: Shoot
) -> None:
    visit(page, f"{url}/planner?model={MODEL}&rule=cost-ratio:5")
    plan = planned("10%", "cost-ratio:5")
    assert plan.rehearsed is not None
    rows = page.locator("#by-ratio-rows tr").all_inner_texts()
    shown = [row.split("\t") for row in rows]
    expected = [*plan.rehearsed["choices"], plan.rehearsed | {"ratio": "this plan"}]
    assert shown == [
        [
            str(one["ratio"]).removesuffix(".0"),
            f"{one['fixed']:,}",
            f"{one['broken']:,}",
            f"{100 * one['accuracy_after']:.1f} %",
        ]
        for one in expected
    ]
    assert shown[2][1:] == shown[-1][1:]  # the plan's own ratio is among them
    shoot(page, "planner-ratios")


def test_the_curve_fills_up(page: Page, url: str) -> None:
    visit(page, f"{url}/planner?model={MODEL}&rule=cost-ratio:2")
    whole_curve(page)
    assert undrawn(page) == []
    known = ask(url, f"/curve.json?model={MODEL}&rule=cost-ratio:2").json
    assert known["done"]
    points = known["points"]
    assert len(points) == 11
    line = next(trace for trace in traces(page, "curve") if len(trace["x"]) == 11)
    assert line["y"] == [point["accuracy"]["value"] for point in points]
    fixed, broke = traces(page, "gains")
    assert fixed["y"] == [point["fixed"]["value"] for point in points]
    assert broke["y"] == [-point["broke"]["value"] for point in points]


def test_both_ways_to_move_are_drawn_through_the_choice(
    page: Page, url: str, planned: Planned, shoot: Shoot
) -> None:
    visit(page, f"{url}/planner?model={MODEL}&rule=cost-ratio:5")
    whole_curve(page)
    assert undrawn(page) == []
    by_budget, by_ratio, mark = traces(page, "trade")
    tried = [
        point["rehearsed"]
        for point in ask(url, f"/curve.json?model={MODEL}&rule=cost-ratio:5").json["points"]
    ]
    assert by_budget["name"] == "by budget (cost-ratio:5)"
    assert _places(by_budget) == [(one["broken"], one["fixed"]) for one in tried]
    before = _by_ratio(planned("10%", "cost-ratio:5"), 5.0)
    assert by_ratio["name"] == "by cost ratio (budget 10%)"
    assert _places(by_ratio) == list(before.values())
    assert _places(mark) == [before[5.0]]
    assert before[5.0] in _places(by_budget)
    said = page.locator("[data-chart=trade] .textpoint text").all_text_contents()
    assert said.count("your choice") == 1
    assert {"100%", "1"} <= set(said)  # the ends have room for their names
    shoot(page, "planner-trade")

    page.locator("[data-chart=trade] summary").click()
    words = page.locator("[data-chart=trade] li")
    broken, fixed = before[5.0]
    words.filter(has_text=f"your choice: {fixed} fixed, {broken} broken; ").wait_for()
    page.locator("#ratio").focus()
    answered(page, lambda: page.keyboard.press("End"))
    after = _by_ratio(planned("10%", "cost-ratio:200"), 200.0)
    _, by_ratio, mark = traces(page, "trade")
    assert _places(by_ratio) == list(after.values())
    assert _places(mark) == [after[200.0]] != [before[5.0]]
    broken, fixed = after[200.0]
    words.filter(has_text=f"your choice: {fixed} fixed, {broken} broken; ").wait_for()


def test_without_other_cost_ratios_one_way_is_drawn(
    page: Page, served: Servers, tmp_path: Path
) -> None:
    world = World(items=100, labelled=200)
    store = small_store(tmp_path / "plain", world, beliefs="plain")
    store.register(world.model("new"))
    visit(page, f"{served(tmp_path / 'plain').url}/planner?rule=cost-ratio:2")
    whole_curve(page)
    by_budget, mark = traces(page, "trade")
    assert by_budget["name"] == "by budget (cost-ratio:2)"
    assert _places(mark)[0] in _places(by_budget)
    assert barriers(page) == []


def _places(trace: Any) -> list[tuple[int, int]]:
    return list(zip(trace["x"], trace["y"], strict=True))


def _by_ratio(plan: Plan, own: float) -> dict[float, tuple[int, int]]:
    """What each cost ratio breaks and fixes, with the plan's own."""
    assert plan.rehearsed is not None
    tried = [*plan.rehearsed["choices"], plan.rehearsed | {"ratio": own}]
    return dict(sorted((one["ratio"], (one["broken"], one["fixed"])) for one in tried))


def test_what_it_costs_is_told_where_it_is_known(
    page: Page, served: Servers, tmp_path: Path
) -> None:
    world = World(items=400, labelled=300)
    store = small_store(tmp_path / "priced", world)
    store.register(world.model("new"))
    url = served(tmp_path / "priced").url
    visit(page, f"{url}/planner")
    assert told(page, "cost") == "20"
    page.locator("#budget").focus()
    answered(page, lambda: page.keyboard.press("End"))
    assert told(page, "cost") == "200"
    assert store.plan("new", budget="100%").cost == 200


def test_a_plan_is_downloaded_and_nothing_is_kept(
    page: Page, url: str, stores: Stores, copied: Store, planned: Planned
) -> None:
    before = _files(stores.demo)
    visit(page, f"{url}/planner?model={MODEL}")
    page.locator("#budget").focus()
    answered(page, lambda: page.keyboard.press("ArrowLeft"))
    plan = planned("5%", "balanced")
    items = copied.planned_items(plan)
    assert items.num_rows == plan.evaluations == 96
    found: dict[str, bytes] = {}
    for kind in ("parquet", "csv", "jsonl", "json"):
        with page.expect_download() as download:
            page.locator(f"#{kind}").click()
        assert download.value.suggested_filename == f"plan-{plan.id}.{kind}"
        found[kind] = Path(download.value.path()).read_bytes()
    assert pq.read_table(io.BytesIO(found["parquet"])).equals(items)
    everything_as_text = pa.csv.ConvertOptions(column_types={"id": pa.string()})
    as_csv = pa.csv.read_csv(
        io.BytesIO(found["csv"]),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=everything_as_text,
    )
    assert as_csv.column("id").to_pylist() == items.column("id").to_pylist()
    as_lines = [json.loads(line) for line in found["jsonl"].decode().splitlines()]
    assert as_lines == items.to_pylist()
    assert json.loads(found["json"]) == json.loads(json.dumps(plan.to_dict()))
    assert _files(stores.demo) == before


def _files(store: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in sorted(store.rglob("*"))}


def test_a_plan_that_is_kept_can_be_carried_out(
    page: Page, stores: Stores, served: Servers, tmp_path: Path
) -> None:
    store = Store(stores.copy(stores.demo, tmp_path))
    url = served(Path(store.path), "--allow-writes").url
    visit(page, f"{url}/planner?model={MODEL}")
    page.locator("#budget").focus()
    answered(page, lambda: page.keyboard.press("ArrowLeft"))
    page.get_by_role("button", name="Keep this plan in the store").click()
    until(page, "document.querySelector('#kept').textContent.includes('Kept as')")
    said = page.inner_text("#kept")
    assert f"update {store.path} {MODEL} --plan" in said
    kept = said.split("--plan ")[1].strip()
    assert (Path(store.path) / "runs" / kept).is_dir()
    again = store.plan(MODEL, budget="5%", rule="balanced")
    assert again.id == kept
    ids = store.planned_items(again).column("id")
    votes = pa.table({"id": ids, "vote": ["de"] * len(ids)})
    report = store.update(MODEL, plan=kept, votes=VoteFile(votes, strict=True))
    assert report.to_dict()["evaluations"] == 96
    assert store.steps[-1].budget == "5%"


def test_the_command_is_one_a_shell_takes(page: Page, served: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    world = World(items=60, labelled=80)
    small_store(folder / "store", world).register(world.model("new"))
    url = served(folder / "store").url
    visit(page, f"{url}/planner")
    quoted = str(folder / "store").replace("'", "'\\''")
    assert page.inner_text("#command") == (
        f"posterity update '{quoted}' new --budget 10% --rule balanced:80%"
    )


def test_an_answer_that_is_late_is_not_shown(page: Page, url: str) -> None:
    visit(page, f"{url}/planner?model={MODEL}")
    held: list[str] = []

    def slowly(route: Route) -> None:
        held.append("")
        if len(held) == 1:
            page.wait_for_timeout(400)
        route.continue_()

    page.route("**/planner.json*", slowly)
    page.evaluate(
        "for (const value of [10, 0]) {const slider = document.querySelector('#budget');"
        " slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true}))}"
    )
    page.wait_for_timeout(800)
    assert len(held) == 2
    assert told(page, "evaluations") == "19"


def test_what_is_sent_to_be_planned_must_be_a_choice(
    stores: Stores, served: Servers, tmp_path: Path
) -> None:
    store = stores.copy(stores.demo, tmp_path)
    url = served(store, "--allow-writes").url
    assert send(url, "/plans", ["no choice"]).status == 400
    assert send(url, "/plans", {"model": "nobody"}).status == 404
    assert send(url, "/plans", {"model": MODEL, "budget": "lots"}).status == 400
    assert send(url, "/plans", {"model": MODEL, "rule": "cost-ratio:x"}).status in (400, 404)
