"""What people look at: every figure is what the store itself says, however it is looked at."""

from __future__ import annotations

import json
import math
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store
from posterity.cli import run
from posterity.engine.inspect import step_views
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.fits import Registered
from posterity.engine.plan import prospects
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.models.class_map import ModelSettings
from posterity.validation import expectation as validation_expected
from posterity.validation.expectation import Estimate, Sums
from posterity.web.report import entropies, flips, item, markdown, models, pages, payloads
from posterity.web.report.summary import summary
from posterity.web.server.cache import Held
from posterity.web.server.views import Views
from tests.stores import NAMES, World, make, registered, update
from tests.test_cli import run as ran

RULES = ("cost-ratio:2", "max-belief", "cost-ratio:2+confirm", "replace", "majority-vote")


@pytest.fixture(scope="module")
def world() -> World:
    return World(items=240, labelled=300)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, world: World) -> Store:
    made = make(tmp_path_factory.mktemp("report") / "store", world, "old", "mid")
    made.remove(["item-3", "item-77"])
    update(made, world, "new")
    made.register(Model("best", labelled=world.labelled_table("best"), cost=0.25))
    return made


def opened(store: Store) -> Context:
    return store._context()


def test_the_history_is_that_of_the_log(store: Store) -> None:
    told = step_views.overview_view(opened(store), store.status())
    log = store.steps
    assert [step["step"] for step in told["steps"]] == [header.step for header in log]
    for step, header in zip(told["steps"], log, strict=True):
        assert step["evaluations"] == header.report["evaluations"]
        assert step["flips"] == header.report["flips"]
        expected = header.report["expected"]
        assert step["accuracy"] == expected["accuracy"]
        assert (step["fixed"], step["broke"]) == (
            expected["positive_flips"],
            expected["negative_flips"],
        )
    assert told["spent"] == sum(header.report["evaluations"] for header in log)
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_reverts_and_reviews_are_told_without_saying_what_nobody_knows(
    tmp_path: Path, world: World
) -> None:
    store = make(tmp_path / "store", world, "old", "mid")
    store.review({"id": ["item-1", "item-2"], "answer": ["cat", "dog"]})
    store.revert(1)
    told = step_views.steps_view(opened(store))
    assert [step["what"] for step in told] == [
        "old",
        "mid",
        "2 answers of people",
        "revert of step 1",
    ]
    assert [step["counts"] for step in told] == [True, False, True, True]
    assert told[2]["fixed"] is told[3]["broke"] is None
    for number in (2, 3):
        found = flips.flips_of(opened(store), number)
        assert found.num_rows == store.flips(number).num_rows
        assert found.column("belief_old").null_count == found.num_rows


def test_entropies_after_each_step_are_those_of_the_ledger(store: Store) -> None:
    told = entropies.entropies_view(opened(store))
    ledger = opened(store).ledger.read().to_pylist()
    rows = [row for row in ledger if row["header"] is None]
    gone = {3, 77}
    for at, number in enumerate(told["steps"]):
        now: dict[int, float] = {}
        for row in sorted(rows, key=lambda row: row["step"]):
            if row["step"] <= number and row["row"] not in gone:
                now[row["row"]] = row["entropy"]
        counts = [0] * entropies.BINS
        for value in now.values():
            bin_ = int(value / math.log(len(NAMES)) * entropies.BINS)
            counts[min(entropies.BINS - 1, bin_)] += 1
        assert told["items"][at] == counts
        assert told["unseen"][at] == 238 - len(now)
        median = np.median(list(now.values()))
        width = math.log(len(NAMES)) / entropies.BINS
        assert told["quantiles"]["0.5"][at] == pytest.approx(median, abs=2 * width)


def test_items_without_a_vote_are_counted_apart(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    store.add(pa.table({"id": ["late"], "number": [999], "lang": ["de"]}))
    assert entropies.entropies_view(opened(store))["unseen"] == [1]
    store.revert(0)
    assert entropies.entropies_view(opened(store))["unseen"] == [1, 241]
    assert entropies.entropies_view(opened(Store.create(tmp_path / "e", classes=NAMES)))[
        "steps"
    ] == ([])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("beliefs", ["dependent", "plain"])
def test_what_is_left_of_the_old_label_is_what_the_step_saw(
    tmp_path: Path, world: World, rule: str, beliefs: str
) -> None:
    store = make(tmp_path / "store", world, "old", beliefs=beliefs)
    for name in ("mid", "new"):
        update(store, world, name, rule=rule, budget="60%")
    for header in store.steps[1:]:
        found = flips.flips_of(opened(store), header.step)
        assert found.drop_columns(["belief_old", "fixed", "broke"]).equals(store.flips(header.step))
        # The sums are those the step itself made its expected flips of.
        told = header.report["expected_negative_flips"]
        assert sum(found.column("belief_old").to_pylist()) == pytest.approx(told, abs=2e-3)
        told = header.report["expected_positive_flips"]
        assert sum(found.column("belief").to_pylist()) == pytest.approx(told, abs=2e-2)
        # Chances of single flips make up what the report says of the whole step.
        step = step_views.step_of(step_views.steps_view(opened(store)), header.step)
        for name in ("fixed", "broke"):
            chances = found.column(name).to_numpy()
            assert ((chances >= 0) & (chances <= 1)).all()
            assert chances.sum() == pytest.approx(step[name]["value"], rel=1e-3, abs=1e-3)


def test_what_is_left_of_a_step_is_not_worth_the_whole_of_it(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    update(store, world, "best", budget="60%")
    whole = flips.flips_of(opened(store), 1)
    gone = whole.column("id").to_pylist()[3:]
    store.remove(gone)
    left = flips.flips_of(opened(store), 1)
    view = flips.flips_view(opened(store), left, 1, flips.Wanted())
    assert (view["count"], left.num_rows) == (3, 3)
    assert view["fixed"]["value"] + view["broke"]["value"] <= 3
    assert view["fixed"]["value"] == pytest.approx(sum(left.column("fixed").to_pylist()))


def test_classes_that_are_truth_values_are_filtered_as_they_are_shown(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=[False, True])
    numbers = list(range(60))
    truth = [bool(number % 2) for number in numbers]
    store.add({"id": numbers})
    for name, right in (("old", 40), ("new", 60)):
        votes = [one if at < right else not one for at, one in enumerate(truth)]
        store.register(Model(name, labelled={"id": numbers, "truth": truth, "vote": votes}))
        store.update(name, votes={"id": numbers, "vote": votes}, budget="100%", rule="max-belief")
    every = flips.flips_of(opened(store), 1)
    assert every.num_rows == 20
    shown = flips.flips_view(opened(store), every, 1, flips.Wanted(new="True"))
    assert shown["count"] == 10
    assert shown["classes"]["new"] == ["False", "True"]
    told = item.item_view(opened(store), 59)
    assert set(told["beliefs"]["classes"]) == {"False", "True"}


def test_flips_are_filtered_and_paged(store: Store) -> None:
    context = opened(store)
    every = flips.flips_of(context, 2)
    rows = every.to_pylist()
    assert len(rows) > 10
    some = rows[0]
    cases: dict[flips.Wanted, Callable[[dict[str, Any]], bool]] = {
        flips.Wanted(): lambda row: bool(row),
        flips.Wanted(old=some["old"]): lambda row: row["old"] == some["old"],
        flips.Wanted(new=some["new"]): lambda row: row["new"] == some["new"],
        flips.Wanted(low=0.8): lambda row: row["belief"] >= np.float32(0.8),
        flips.Wanted(high=0.8): lambda row: row["belief"] <= np.float32(0.8),
        flips.Wanted(text="ITEM-1"): lambda row: "item-1" in row["id"],
        flips.Wanted(old="unicorn"): lambda row: not row,
    }
    for wanted, keeps in cases.items():
        kept = sorted(row["id"] for row in rows if keeps(row))
        found: list[str] = []
        page = 1
        while True:
            view = flips.flips_view(context, every, 2, wanted, page=page, size=4)
            found += [flip["id"] for flip in view["flips"]]
            beliefs = [flip["belief"] for flip in view["flips"]]
            assert beliefs == sorted(beliefs, reverse=True)
            if page >= view["pages"]:
                break
            page += 1
        assert sorted(found) == kept
        assert view["count"] == len(kept)
        assert sum(view["beliefs"]["flips"]) == len(kept)
    whole = flips.flips_view(context, every, 2, flips.Wanted())
    assert whole["fixed"] == whole["step"]["fixed"]
    assert sum(row["won"] for row in whole["by_class"]) == len(rows)
    assert sum(row["lost"] for row in whole["by_class"]) == len(rows)
    parts = [
        flips.flips_view(context, every, 2, flips.Wanted(new=name))["fixed"]["value"]
        for name in whole["classes"]["new"]
    ]
    assert sum(parts) == pytest.approx(whole["fixed"]["value"])


beliefs_ = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40)


@given(beliefs_, st.data())
def test_a_part_of_a_step_is_worth_a_part_of_it(beliefs: list[float], data: Any) -> None:
    value = data.draw(st.floats(0.01, 0.99)) * len(beliefs)
    chances = validation_expected.corrected(beliefs, value)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert (np.diff(chances[np.argsort(beliefs)]) >= -1e-12).all()
    assert chances.sum() == pytest.approx(value, abs=1e-6)
    every = Sums.of(chances)
    cut = data.draw(st.integers(0, len(beliefs)))
    one, other = Sums.of(chances[:cut]), Sums.of(chances[cut:])
    whole = Estimate(value, 0.5 * value, 1.5 * value)
    parts = [validation_expected.among(whole, every, part) for part in (one, other)]
    assert sum(part.value for part in parts) == pytest.approx(value, abs=1e-6)
    for part, sums in zip(parts, (one, other), strict=True):
        assert part.low is not None
        assert part.high is not None
        assert 0 <= part.low <= part.value + 1e-12 <= part.high + 1e-9 <= sums.items + 1e-6
    unsure = validation_expected.among(Estimate(value), every, one)
    assert unsure.low is None


@given(st.integers(0, 500), st.integers(500, 5000), st.integers(1, 10**9), st.floats(1.0, 20.0))
def test_what_items_can_expect_lies_in_its_interval(
    count: int, labelled: int, items: int, dispersion: float
) -> None:
    told = validation_expected.expect(count, labelled=labelled, items=items, dispersion=dispersion)
    assert told.value == pytest.approx(count * items / labelled)
    assert told.low is not None
    assert told.high is not None
    assert 0 <= told.low <= told.value <= max(told.high, told.value)
    if not count:
        assert told.low == 0
        assert told.high > 0


def test_the_planner_says_what_a_plan_says(store: Store) -> None:
    found = prospects.Prospects(opened(store), "best")
    for budget, rule in (("10%", "cost-ratio:10"), ("50%", "cost-ratio:2"), ("100%", "max-belief")):
        told = found.answer(budget, rule)
        plan = store.plan("best", budget=budget, rule=rule)
        assert told["evaluations"] == plan.evaluations
        assert told["eligible"] == plan.eligible
        assert told["cost"] == plan.cost
        assert told["rehearsed"] == plan.rehearsed
        assert told["net"] == plan.forecast
        assert told["accuracy"]["low"] <= told["accuracy"]["value"] <= told["accuracy"]["high"]
        assert found.answer(budget, rule) is told
    assert prospects.arriving(opened(store))[0] == "best"


def test_the_planner_says_why_it_cannot_say_more(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table())
    store.register(Model("old", labelled=world.labelled_table("old")))
    first = prospects.Prospects(opened(store), "old").answer("100%")
    assert first["evaluations"] == 240
    assert first["accuracy"] is None
    assert "first" in first["note"]
    store.update("old", votes=world.votes_table("old"))
    store.register(Model("said", accuracy=0.9))
    told = prospects.Prospects(opened(store), "said").answer()
    assert told["rehearsed"] is None
    assert "No rehearsal" in told["note"]


def test_nothing_is_corrected_about_items_without_a_label(tmp_path: Path, world: World) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    store.add(world.table(0, 200))
    store.update(world.model("old"))
    store.register(world.model("new"))
    before = store.plan("new", budget="60%")
    assert before.forecast is not None
    store.add(world.table(200, 240))
    found = prospects.Prospects(opened(store), "new")
    few = store.plan("new", budget=30)  # which goes to the new ones
    assert few.affected == {"no label yet": 30}
    assert few.rehearsed is not None
    assert few.forecast is not None
    assert (few.rehearsed["fixed"], few.rehearsed["broken"], few.forecast["value"]) == (0, 0, 0)
    many = store.plan("new", budget=160)  # 120 of 200 are looked at again, as before
    assert many.affected["no label yet"] == 40
    # Of the labelled items as many are new, and of the others as many are looked at.
    assert many.rehearsed is not None
    assert (many.rehearsed["labels"], many.rehearsed["evaluations"]) == (250, 50 + 150)
    assert many.forecast is not None
    assert many.forecast["low"] < before.forecast["value"] < many.forecast["high"]
    for plan in (few, many):
        told = found.answer(str(plan.evaluations))
        assert (told["rehearsed"], told["net"]) == (plan.rehearsed, plan.forecast)
        assert "come first" in told["note"]


def test_models_are_told_by_their_labelled_votes(store: Store, world: World) -> None:
    told = models.models_view(opened(store))
    assert [model["model"] for model in told["models"]] == ["old", "mid", "new", "best"]
    for model in told["models"]:
        right = world.labelled[model["model"]] == world.labelled_truth
        assert model["accuracy"] == pytest.approx(right.mean())
        assert model["low"] < model["accuracy"] < model["high"]
    agreement = told["agreement"]
    one, other = world.labelled["old"], world.labelled["best"]
    assert agreement["agree"][0][3] == pytest.approx((one == other).mean())
    wrong = [votes != world.labelled_truth for votes in (one, other)]
    alike = ((one == other) & wrong[0]).sum() / (wrong[0] | wrong[1]).sum()
    assert agreement["same_errors"][3][0] == pytest.approx(alike)
    view = models.model_view(opened(store), "mid")
    votes, truth = world.labelled["mid"], world.labelled_truth
    shares = np.array(view["confusion"]["shares"])
    for i, vote in enumerate(NAMES):
        for k, true in enumerate(NAMES):
            expected = ((votes == vote) & (truth == true)).sum() / (truth == true).sum()
            assert shares[i, k] == pytest.approx(expected)
    assert sum(row["labelled"] for row in view["classes"]) == 300


def test_many_classes_are_shown_by_what_is_taken_for_what() -> None:
    votes, truths = [*range(60), 7, 41], [*range(60), 50, 2]
    known = Registered("m", 0, ModelSettings(), (votes, truths), [10] * 60 + [9, 8])
    view = models._Cells.of(known, 60).heat_map([str(at) for at in range(60)])
    assert view["classes"][:4] == ["7", "50", "41", "2"]
    assert view["of"] == 60
    assert len(view["classes"]) == models.SHOWN
    assert np.array(view["shares"])[0, 1] == pytest.approx(9 / 19)


def test_the_story_of_an_item_is_that_of_its_history(store: Store) -> None:
    for name in store.flips(2).column("id").to_pylist()[:10]:
        told = item.item_view(opened(store), name)
        history = store.history(name)
        assert told["history"] == history
        assert told["beliefs"]["steps"] == [row["step"] for row in history if row["vote"]]
        total = np.array(told["beliefs"]["beliefs"]).sum(axis=0) + told["beliefs"]["rest"]
        assert total == pytest.approx(np.ones(len(total)))
        for at, row in enumerate(history):
            if row["label"] in told["beliefs"]["classes"]:
                place = told["beliefs"]["classes"].index(row["label"])
                assert told["beliefs"]["beliefs"][place][at] == pytest.approx(
                    row["belief"], abs=1e-4
                )
            assert told["beliefs"]["entropy"][at] == pytest.approx(row["entropy"], abs=1e-3)
    with pytest.raises(InvalidData, match="not in the store"):
        item.item_view(opened(store), "nobody")


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360"
    "000002000001e221bc330000000049454e44ae426082"
)


@pytest.fixture
def pictured(tmp_path: Path) -> Store:
    (tmp_path / "good.png").write_bytes(PIXEL)
    (tmp_path / "words.png").write_text("root:x:0:0", encoding="utf-8")
    (tmp_path / "drawn.png").write_text("<svg onload='alert(1)'/>", encoding="utf-8")
    (tmp_path / "secret.txt").write_bytes(PIXEL)
    store = Store.create(tmp_path / "store", classes=["a", "b"])
    names = ["good.png", "words.png", "drawn.png", "secret.txt", "absent.png", "nul\0.png"]
    store.add({"id": names, "path": names, "raw": [PIXEL, b"no", b"", b"<svg/>", None, b"x"]})
    return store


def test_pictures_are_only_files_of_pixels_that_a_payload_names(
    pictured: Store, tmp_path: Path
) -> None:
    context = opened(pictured)
    shown = payloads.payloads_of(context, np.arange(6), tmp_path)
    kinds = [[cell["kind"] for cell in shown[row]] for row in range(6)]
    assert kinds[0] == ["picture", "picture"]
    assert all("picture" not in both for both in kinds[1:])
    assert payloads.payloads_of(context, np.arange(1))[0][0]["kind"] == "text"
    assert payloads.picture_of(context, 0, "path", tmp_path).kind == "image/png"
    assert payloads.picture_of(context, 0, "raw", tmp_path).content == PIXEL
    for row, column in [
        *((row, "path") for row in range(1, 6)),
        (0, "id"),
        (0, "none"),
        (9, "path"),
    ]:
        with pytest.raises(InvalidData):
            payloads.picture_of(context, row, column, tmp_path)
    pictured.remove(["good.png"])
    with pytest.raises(InvalidData, match="no item"):
        payloads.picture_of(opened(pictured), 0, "path", tmp_path)


def test_no_picture_outside_its_folder_is_read(tmp_path: Path) -> None:
    jail, out = tmp_path / "pictures", tmp_path / "private"
    (jail / "deep").mkdir(parents=True)
    out.mkdir()
    for file in (jail / "own.png", jail / "deep" / "own.png", out / "secret.png"):
        file.write_bytes(PIXEL)
    (jail / "link.png").symlink_to(out / "secret.png")
    (jail / "folder").symlink_to(out)
    (jail / "near.png").symlink_to(jail / "own.png")
    (jail / "loop.png").symlink_to(jail / "loop.png")
    inside = ["own.png", "deep/own.png", "deep/../own.png", "near.png", str(jail / "own.png")]
    outside = ["link.png", "folder/secret.png", "../private/secret.png", "loop.png"]
    outside += [str(out / "secret.png"), "deep/../../private/secret.png", f"{jail}2/own.png"]
    (tmp_path / "pictures2").mkdir()
    (tmp_path / "pictures2" / "own.png").write_bytes(PIXEL)
    paths = inside + outside
    store = Store.create(tmp_path / "store", classes=["a", "b"])
    store.add({"id": list(range(len(paths))), "path": paths})
    context = opened(store)
    shown = payloads.payloads_of(context, np.arange(len(paths)), jail)
    for row, path in enumerate(paths):
        assert shown[row][0]["kind"] == ("picture" if path in inside else "text"), path
        if path in inside:
            assert payloads.picture_of(context, row, "path", jail).content == PIXEL
        else:
            with pytest.raises(InvalidData, match="not in the folder"):
                payloads.picture_of(context, row, "path", jail)


def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["a", "b"])
    store.add({"id": ["x"], "text": ["é" * 5000], "count": [7], "none": pa.nulls(1, pa.string())})
    cells = {cell["column"]: cell for cell in payloads.payloads_of(opened(store), np.arange(1))[0]}
    assert len(cells["text"]["text"]) == payloads.LONGEST
    assert cells["text"]["cut"] == 5000 - payloads.LONGEST
    assert (cells["count"]["kind"], cells["count"]["text"]) == ("number", "7")
    assert cells["none"]["text"] == ""


@pytest.fixture
def wide(tmp_path: Path) -> Store:
    """Items with 20 numbers, a text, a list and missing values, and a step with flips."""
    world = World(items=120, labelled=100)
    rng = np.random.default_rng(0)
    items = world.table().drop_columns(["lang"])
    for at in range(20):
        items = items.append_column(f"px{at}", pa.array(rng.integers(0, 17, 120).astype(float)))
    items = items.append_column("note", pa.array([f"note {at}" for at in range(120)]))
    items = items.append_column("vector", pa.array(rng.random((120, 9)).tolist()))
    store = Store.create(tmp_path / "wide", classes=NAMES)
    store.add(items)
    store.update(world.model("old"))
    store.update(world.model("best"), budget="50%", rule="max-belief")
    return store


def test_of_a_wide_payload_texts_come_first_and_the_rest_is_counted(wide: Store) -> None:
    context = opened(wide)
    (cells,) = payloads.payloads_of(context, np.arange(1)).values()
    assert [cell["column"] for cell in cells] == ["note", "number", *(f"px{n}" for n in range(6))]
    assert payloads.left_out(context) == 23 - 8
    chosen = ["vector", "px1*", "px10", "note"]
    (cells,) = payloads.payloads_of(context, np.arange(1), None, chosen).values()
    names = ["vector", "px1", *(f"px1{n}" for n in range(10)), "note"]
    assert [cell["column"] for cell in cells] == names
    assert cells[0]["text"].count(",") == 8
    assert cells[0]["text"].endswith(", … (9 in all)")
    assert cells[1]["text"].isdigit()  # 7, not 7.0
    assert payloads.left_out(context, ["*"]) == 0
    with pytest.raises(InvalidData, match="No column matches 'z"):
        payloads.payloads_of(context, np.arange(1), None, ["z*"])
    with pytest.raises(UnknownName, match="no payload column 'px'; known are: number, px0"):
        payloads.payloads_of(context, np.arange(1), None, ["px"])


def test_a_report_shows_numbers_beside_each_other_with_their_names(
    wide: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "wide.html"
    ran(capsys, "report", wide.path, "--step", "1", "-o", str(target))
    page = target.read_text(encoding="utf-8")
    assert "<dt>note</dt>" in page
    line = re.search(r'<div class="payload-line">.*?and 15 more columns', page, re.DOTALL)
    assert line is not None
    shown = re.findall(r"<div><dt>(\w+)</dt> <dd>(\d+)</dd></div>", line[0])
    assert [name for name, _ in shown] == ["number", *(f"px{n}" for n in range(6))]
    assert "\n" not in line[0].split("<dl>")[1].split("</dl>")[0]
    ran(capsys, "report", wide.path, "--step", "1", "--columns", "note,px7", "-o", str(target))
    page = target.read_text(encoding="utf-8")
    assert "<dt>px7</dt>" in page
    assert "<dt>px6</dt>" not in page
    assert "and 21 more columns" in page


def test_the_columns_of_pages_are_those_an_address_names(wide: Store, tmp_path: Path) -> None:
    held = Held(wide)
    views = Views(held, tmp_path, "wide", ["px1*"])
    (flip, *_) = views.flips({})["flips"]
    assert len(flip["payload"]) == 11
    for found in (views.item({"id": flip["id"]}), views.review({})["items"][0]):
        assert [cell["column"] for cell in found["payload"]][:2] == ["px1", "px10"]
    told = views.item({"id": flip["id"], "columns": "*"})
    assert (len(told["payload"]), told["left_out"]) == (23, 0)
    (item, *_) = views.review({"columns": "note, px0"})["items"]
    assert [cell["column"] for cell in item["payload"]] == ["note", "px0"]


def test_commands_show_the_columns_they_are_asked_for(
    wide: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "todo.csv"
    told, _ = ran(capsys, "review", wide.path, "--next", "3", "--out", str(out))
    assert "15 columns of the payload left out; --columns '*' writes all" in told
    head = out.read_text().splitlines()[0].replace('"', "").split(",")
    assert head[:4] == ["id", "note", "number", "px0"]
    assert (len(head), head[-1]) == (1 + 8 + 7, "answer")
    told, _ = ran(capsys, "review", wide.path, "--out", str(out), "--columns", "px*")
    assert "left out" not in told
    head = out.read_text().splitlines()[0].replace('"', "").split(",")
    assert head[1:21] == [f"px{at}" for at in range(20)]
    assert wide.review_items(wide.review_queue(2), ["*"]).num_columns == 1 + 23 + 7
    told, _ = ran(capsys, "review", wide.path, "--next", "2", "--columns", "note,px0")
    assert told.split()[:3] == ["id", "note", "px0"]
    told, _ = ran(capsys, "explain", wide.path, "item-5", "--columns", "px0,note,px1")
    lines = told.splitlines()
    assert lines[0] == "note: note 5"
    assert re.fullmatch(r"px0 \d+  px1 \d+", lines[1])
    assert lines[3].startswith("item-5 is labelled")


def test_a_report_holds_all_it_needs(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert run(["report", store.path, "-o", str(target)]) == 0
    page = target.read_text(encoding="utf-8")
    head = page.split("<body>")[0]
    assert "default-src &#39;none&#39;" in head
    assert "unsafe" not in head.split("<style")[0]
    assert "src=" not in head
    assert len(page.encode()) < 6e6


def test_a_report_of_one_step_says_how_far_to_trust_it(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", store.path, "--step", "2"]) == 0
    told = capsys.readouterr().out
    report = store.steps[2].report
    assert told.startswith("# Step 2 of store: new")
    assert f"**{report['flips']:,}** labels" in told
    assert "Can it be trusted?" in told
    assert "Look at these first" in told
    doubtful = flips.flips_of(opened(store), 2).sort_by([("belief_old", "descending")])
    assert markdown.cell(doubtful.column("id")[0].as_py()) in told
    assert run(["report", store.path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overview"]["status"]["items"] == 238


def test_a_report_is_refused_before_anything_is_reckoned(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", store.path, "-o", str(tmp_path / "report.docx")]) == 2
    assert ".html, .md or .json" in capsys.readouterr().err
    assert run(["report", store.path, "-o", str(tmp_path / "no" / "report.md")]) == 2
    assert "a folder that exists" in capsys.readouterr().err
    assert run(["report", store.path, "--step", "9"]) == 2
    assert "0 to 2" in capsys.readouterr().err
    with pytest.raises(InvalidParameter):
        summary(store, 9)


def test_a_store_without_steps_has_a_report(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES)
    assert "No steps" in summary(store).to_html()
    assert "# store" in str(summary(store))


@given(st.text(max_size=40))
def test_markdown_of_any_text_is_one_line_without_markup(text: str) -> None:
    shown = markdown.cell(text)
    assert "\n" not in shown
    bare = shown.replace("\\\\", "")
    for mark in "`*_[]<>|~":
        assert bare.count(mark) == bare.count(f"\\{mark}")


def test_notebooks_show_plans_reports_and_stores(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "<b>store", world, "old")
    plan = store.plan(
        registered(store, Model("new", labelled=world.labelled_table("new"), cost=0.5)),
        budget="50%",
    )
    shown = plan._repr_html_()
    assert "120 of 240 eligible" in shown
    assert "Plan" in shown
    report = store.update("new", budget="50%", votes=world.votes_table("new"))
    assert f"{report.flips:,}" in report._repr_html_()
    page = store._repr_html_()
    assert "&lt;b&gt;store" in page
    assert "<b>" not in page
    assert "new" in page
    nothing = store.update("new", budget="50%", votes=world.votes_table("new"))
    assert "Nothing to do" in nothing._repr_html_()


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("jinja2", ["report", "-o", "report.html"]),
        ("uvicorn", ["serve", "--port", "0"]),
        ("starlette.applications", ["serve", "--port", "0"]),
    ],
)
def test_an_extra_that_is_missing_is_named(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    package: str,
    command: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "posterity.web.server.app", raising=False)
    pages._environment.cache_clear()
    assert run([command[0], store.path, *command[1:]]) == 1
    assert "pip install 'posterity[web]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    pages._environment.cache_clear()


def test_an_address_that_is_taken_is_told(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert run(["serve", store.path, "--port", str(other.getsockname()[1])]) == 1
    assert "--port" in capsys.readouterr().err
    assert run(["serve", store.path, "--port", "0", "--token", "short"]) == 2
    assert "16 characters" in capsys.readouterr().err


def test_what_is_held_follows_the_store(tmp_path: Path, world: World) -> None:
    store = make(tmp_path / "store", world, "old")
    held = Held(store)
    first = held.overview()
    assert held.overview() is first
    update(store, world, "new")
    held.forget()
    assert [step["step"] for step in held.overview()["steps"]] == [0, 1]
    plan = store.plan("new", budget="10%", more=True)
    held.forget()
    assert held.overview()["status"]["unfinished"] == []
    assert held.answer("new", "50%", "cost-ratio:2")["evaluations"] > 0
    # A log with a checkpoint goes on to tell of commits.
    (tmp_path / "store/ledger/_delta_log/_last_checkpoint").write_text("{}", encoding="utf-8")
    held.forget()
    second = held.overview()
    store.update("new", plan=plan.id, votes=world.votes_table("new"))
    held.forget()
    assert held.overview() is not second
    assert len(held.overview()["steps"]) == 3


def test_views_are_kept_within_bounds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(store)
    monkeypatch.setattr("posterity.web.server.cache.MOST", 3)
    for budget in ("10%", "20%", "30%", "40%"):
        held.answer("best", budget, "max-belief")
    assert len(held._kept) <= 3
    monkeypatch.setattr("posterity.web.server.cache.HEAVY", 0)
    held.flips(1)
    held.flips(2)
    assert sum(isinstance(view, pa.Table) for view in held._kept.values()) <= 1
