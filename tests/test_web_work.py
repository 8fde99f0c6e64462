"""What the server may be set to work by, and what it does when there is too much of it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from posterity.engine.plan.prospects import Prospects
from posterity.errors import InvalidParameter
from posterity.method.data.spec import read_number, read_share, read_whole
from posterity.web.server import cache
from posterity.web.server.cache import Held
from tests import asgi
from tests.stores import World, small_store

NAVIGATION = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "accept": "text/html"}
ENDLESS = ("1e30000000%", "1e30000000", "9" * 10**6, "9" * 10**6 + "%", "1/3%", "1/0%", "٣%", "")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    world = World()
    store = small_store(tmp_path_factory.mktemp("web") / "store", world)
    store.register(world.model("new"))
    return asgi.site(store.path)


@pytest.mark.parametrize("text", ENDLESS)
def test_a_number_is_bounded_before_it_is_parsed(text: str) -> None:
    for read in (read_share, read_number, read_whole):
        with pytest.raises(ValueError, match="is not a"):
            read(text)


def test_a_budget_that_would_take_minutes_is_refused(app: Any) -> None:
    for budget in (
        "1e30000000%25",
        "1e400%25",
        "1/0%25",
        "1e400",
        "9" * 500,
        "total:1e30000000%25",
    ):
        answer = asgi.ask(app, f"/planner.json?model=new&budget={budget}")
        assert answer.status == 400, budget
        assert answer.json["error"]["kind"] == "invalid-parameter"
        assert len(answer.json["error"]["message"]) < 1000
    for rule in ("at-most:1e30000000%25", "at-most:1%25,confidence=1e30000000%25"):
        assert asgi.ask(app, f"/planner.json?model=new&rule={rule}").status == 400


def test_a_long_address_is_refused(app: Any) -> None:
    assert asgi.ask(app, f"/planner.json?rule={'x' * 10_000}").status == 414


def test_another_site_cannot_set_the_server_to_work(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object) -> None:
        raise AssertionError("worked for another site")

    for name in ("answer", "arriving", "queue", "flips", "models", "entropies", "plan"):
        monkeypatch.setattr(Held, name, work)
    for path in ("planner", "flips", "review", "models"):
        answer = asgi.ask(app, f"/{path}?model=new&budget=7%25", NAVIGATION)
        assert answer.status == 200
        assert f'href="{path}?model=new&amp;budget=7%25"' in answer.text
    files = ("planner.json", "curve.json", "review.json", "plan.csv", "plan.json", "picture")
    for path in files:
        answer = asgi.ask(app, f"/{path}?model=new", NAVIGATION)
        assert answer.status == 403, path
        older = {"referer": "http://evil.example/page"}
        assert asgi.ask(app, f"/{path}?model=new", older).status == 403, path
    assert "Show this page" in asgi.ask(app, "/review", {"referer": "http://evil.example/"}).text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
        {"referer": f"http://{asgi.HOST}/"},
    ],
)
def test_visitors_and_programs_are_answered(app: Any, headers: dict[str, str]) -> None:
    assert asgi.ask(app, "/planner.json?model=new&budget=7%25", headers).status == 200
    assert "Show this page" not in asgi.ask(app, "/planner?model=new", headers).text
    assert asgi.ask(app, "/", headers | {"sec-fetch-site": "cross-site"} | NAVIGATION).status == 200


def test_too_much_work_is_answered_with_when_to_come_again(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One calculation takes too long, further ones find no room; pages that need none come."""
    let_go = threading.Event()
    slow = Prospects._answer

    def wait(self: Prospects, *given: str) -> Any:
        assert let_go.wait(60)
        return slow(self, *given)

    monkeypatch.setattr(Prospects, "_answer", wait)
    monkeypatch.setattr(cache, "MOST_WORKERS", 2)
    monkeypatch.setattr(cache, "PATIENCE", 0.05)

    async def all_of_them() -> list[asgi.Answer]:
        asked = [f"/planner.json?model=new&budget={count}" for count in (3, 4, 5)]
        answers = [await asgi.request(app, address) for address in asked]
        answers.append(await asgi.request(app, "/planner?model=new"))
        answers.append(await asgi.request(app, "/overview.json"))
        let_go.set()
        return answers

    *busy, page, overview = asyncio.run(all_of_them())
    for answer in busy:
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json["error"]["kind"] == "busy"
    assert "still being calculated" in busy[0].json["error"]["message"]
    assert "Too many calculations" in busy[2].json["error"]["message"]
    assert page.status == 503
    assert "Try again in" in page.text
    assert overview.status == 200
    monkeypatch.setattr(cache, "PATIENCE", 60.0)
    monkeypatch.setattr(cache, "MOST_WORKERS", 3)
    assert asgi.ask(app, "/planner.json?model=new&budget=3").status == 200  # kept, or done now


def test_a_slip_in_python_is_a_sentence_too(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", World())
    wrong: list[Any] = [10**5000, "1e400%", "1e30000000%", float("nan"), True, 1e400, [], b"1"]
    for budget in wrong:
        with pytest.raises(InvalidParameter, match="'budget' must be"):
            store.plan("old", budget=budget)
