"""Who may look, who may change something, and what browsers are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page

from posterity import Store
from tests.browser.hostile import png
from tests.browser.pages import Answer, ask, complete, send, visit
from tests.browser.serving import Served, Servers
from tests.stores import World, small_store

KINDS = (
    "/",
    "/flips.json",
    "/static/style.css",
    "/static/plotly.min.js",
    "/picture?row=0&column=p",
)
CHANGES: dict[str, Any] = {
    "/plans": {"model": "new", "budget": "10%", "rule": "cost-ratio:10"},
    "/reverts": {"step": 0},
    "/answers": {"answers": [{"id": "item-0", "answer": "owl"}]},
}

WRONG: list[Any] = [None, [], "text", 7, {}, {"step": "0"}, {"step": True}, {"step": -1}]
WRONG += [{"answers": given} for given in ([], [1], [{"id": 1.5, "answer": "owl"}], "owl")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small, with a picture in its first row."""
    folder = tmp_path_factory.mktemp("guarded") / "store"
    world = World()
    made = Store.create(folder, classes=["cat", "dog", "fox", "owl"])
    made.add(world.table().append_column("p", [[png()] * world.items]))
    made.update(world.model("old"))
    made.register(world.model("new"))
    return folder


@pytest.fixture(scope="module")
def url(store: Path, served: Servers) -> str:
    return served(store).url


@pytest.fixture(scope="module")
def open_to_others(store: Path, served: Servers) -> tuple[str, str]:
    """An address others can reach, as we reach it, and its token."""
    return _reached(served(store, "--host", "0.0.0.0"))


def _reached(server: Served) -> tuple[str, str]:
    told = urlsplit(server.url)
    return f"http://127.0.0.1:{told.port}", parse_qs(told.query)["token"][0]


@pytest.fixture
def writable(tmp_path: Path, served: Servers) -> tuple[str, Store]:
    world = World()
    store = small_store(tmp_path / "store", world)
    store.register(world.model("new"))
    return served(tmp_path / "store", "--allow-writes").url, store


@pytest.mark.parametrize("path", KINDS)
def test_without_the_token_nobody_sees_anything(open_to_others: tuple[str, str], path: str) -> None:
    url, token = open_to_others
    assert len(token) >= 32
    joined = "&" if "?" in path else "?"
    refused = [
        ask(url, path),
        ask(url, f"{path}{joined}token={token[:-1]}"),
        ask(url, f"{path}{joined}token="),
        ask(url, path, {"Authorization": f"Bearer {token}x"}),
        ask(url, path, {"Authorization": f"Basic {token}"}),
        ask(url, path, {"Cookie": f"posterity={token}"}),
        ask(url, f"{path}{joined}token={token}", method="HEAD"),
    ]
    assert {answer.status for answer in refused} == {401}
    for answer in refused:
        assert "posterity serve" in answer.body.decode() or not answer.body
        assert "set-cookie" not in answer.headers
    assert ask(url, path, {"Authorization": f"Bearer {token}"}).status == 200


def test_the_token_goes_from_the_address_into_a_cookie(
    page: Page, open_to_others: tuple[str, str]
) -> None:
    url, token = open_to_others
    visit(page, f"{url}/flips?token={token}&step=0")
    assert page.url == f"{url}/flips?step=0"
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    assert token not in cookie["value"]
    assert page.evaluate("document.cookie") == ""
    for path in ("/", "/planner", "/review"):
        visit(page, url + path)
        assert token not in page.content()
    answer = ask(url, f"/?token={token}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert answer.headers["cache-control"] == "no-store"


def test_nobody_is_sent_to_another_host(open_to_others: tuple[str, str]) -> None:
    url, token = open_to_others
    for path in ("//elsewhere.invalid/", "/\\elsewhere.invalid", "///elsewhere.invalid/%2f.."):
        answer = ask(url, f"{path}?token={token}")
        where = answer.headers.get("location", "/")
        assert where.startswith("/")
        assert not where.startswith(("//", "/\\"))


def test_a_browser_without_the_token_is_told_what_to_do(
    page: Page, open_to_others: tuple[str, str], faults: list[str]
) -> None:
    answer = page.goto(f"{open_to_others[0]}/")
    assert answer is not None
    assert answer.status == 401
    assert "A token is needed" in page.inner_text("body")
    page.wait_for_timeout(100)  # the browser says so, too
    faults.clear()


def test_a_token_of_ones_own(store: Path, served: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "correct-horse-battery"
    monkeypatch.setenv("POSTERITY_TOKEN", own)
    url, token = _reached(served(store, "--host", "127.0.0.1"))
    monkeypatch.delenv("POSTERITY_TOKEN")
    assert token == own
    assert ask(url, "/overview.json").status == 401
    assert ask(url, "/overview.json", {"Authorization": f"bearer {own}"}).status == 200
    # Whoever has a token may come by any name, as through a proxy.
    through = {"Authorization": f"Bearer {own}", "Host": "store.example.org"}
    assert ask(url, "/overview.json", through).status == 200


def test_a_token_that_is_guessed_soon_is_refused(store: Path) -> None:
    short = subprocess.run(
        [sys.executable, "-m", "posterity", "serve", str(store), "--port", "0"],
        env={**os.environ, "POSTERITY_TOKEN": "too-short"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert short.returncode == 2
    assert "at least 16 characters" in short.stderr
    assert "too-short" not in short.stderr + short.stdout


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "0.0.0.0"]
)
def test_a_page_made_to_point_here_is_refused(url: str, host: str) -> None:
    for path in ("/", "/overview.json", "/static/style.css"):
        answer = ask(url, path, {"Host": host})
        assert answer.status in (400, 421)
        assert b"item" not in answer.body


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:99", "[::1]:80"])
def test_names_of_this_machine_are_served(url: str, host: str) -> None:
    assert ask(url, "/overview.json", {"Host": host}).status == 200


def _is_guarded(answer: Answer) -> None:
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy or "sandbox" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers
    assert "server" not in answer.headers


def test_every_answer_says_what_a_page_may_do(url: str, open_to_others: tuple[str, str]) -> None:
    paths = [*KINDS, "/planner", "/item?id=item-0", "/plan.csv", "/plan.json", "/nothing"]
    paths += ["/nothing.json", "/item?id=nobody", "/item.json?id=nobody", "/flips?step=x"]
    for path in paths:
        _is_guarded(ask(url, path))
    _is_guarded(ask(url, "/", {"Host": "evil.example"}))
    _is_guarded(ask(url, "/", method="DELETE"))
    _is_guarded(ask(url, "/plans", method="POST"))
    _is_guarded(ask(url, "/overview.json", method="OPTIONS"))
    reached, token = open_to_others
    _is_guarded(ask(reached, "/"))
    _is_guarded(ask(reached, f"/?token={token}"))


def test_pages_cannot_be_framed(page: Page, url: str, faults: list[str]) -> None:
    outer = f"<!doctype html><title>outer</title><iframe src='{url}/'></iframe>"
    page.route(
        "http://127.0.0.1:1/outer", lambda r: r.fulfill(body=outer, content_type="text/html")
    )
    page.goto("http://127.0.0.1:1/outer")
    page.wait_for_timeout(300)
    assert f"failed: {url}/" in faults
    assert page.frames[1].locator("main").count() == 0
    faults.clear()


@pytest.mark.parametrize("path", CHANGES)
def test_nothing_is_changed_where_that_was_not_allowed(url: str, store: Path, path: str) -> None:
    before = _state(Store(store))
    answer = send(url, path, CHANGES[path])
    assert answer.status == 403
    assert "read-only" in answer.message
    assert ask(url, path).status == 405
    assert _state(Store(store)) == before


@pytest.mark.parametrize("path", CHANGES)
def test_only_the_page_itself_may_ask_for_changes(writable: tuple[str, Store], path: str) -> None:
    url, store = writable
    before = _state(store)
    given = CHANGES[path]
    own = f"http://{urlsplit(url).netloc}"
    refused = [
        send(url, path, given, Origin="http://evil.example"),
        send(url, path, given, Origin="null"),
        send(url, path, given, Origin=f"{own}0"),
        send(url, path, given, Sec_Fetch_Site="cross-site"),
        send(url, path, given, Sec_Fetch_Site="same-site", Origin=own),
        send(url, path, given, Content_Type="text/plain"),
        send(url, path, given, Content_Type="application/x-www-form-urlencoded"),
        send(url, path, given, Content_Type="multipart/form-data; boundary=x"),
        ask(url, path, method="POST", body=b"{}"),
    ]
    assert [answer.status for answer in refused] == [403] * len(refused)
    assert _state(store) == before
    allowed = send(url, path, given, Origin=own, Sec_Fetch_Site="same-origin")
    assert allowed.status == 200
    assert _state(store) != before


def test_what_is_sent_must_be_short_json_of_the_right_kind(writable: tuple[str, Store]) -> None:
    url, store = writable
    before = _state(store)
    kind = {"Content-Type": "application/json"}
    for path in CHANGES:
        for body in (b"", b"{", b"\xff", b"[" * 100_000):
            assert ask(url, path, kind, method="POST", body=body).status == 400
        for given in WRONG:
            if path != "/plans" or not isinstance(given, dict):
                assert send(url, path, given).status == 400, given
        long = ask(url, path, kind, method="POST", body=b" " * (2**22 + 1))
        assert long.status == 413
    assert send(url, "/reverts", {"step": 99}).status in (400, 404)
    assert send(url, "/answers", {"answers": [{"id": "nobody", "answer": "owl"}]}).status == 400
    assert _state(store) == before


def _state(store: Store) -> tuple[int, list[str], list[Any]]:
    runs = sorted(str(path) for path in (Path(store.path) / "runs").rglob("*"))
    return len(store.steps), runs, store.labels().to_pylist()


def test_another_site_in_the_same_browser_changes_nothing(
    page: Page, writable: tuple[str, Store], faults: list[str]
) -> None:
    url, store = writable
    before = _state(store)
    outer = "<!doctype html><title>outer</title>"
    page.route("http://localhost:1/**", lambda r: r.fulfill(body=outer, content_type="text/html"))
    page.goto("http://localhost:1/")
    for kind in ("application/json", "text/plain"):
        done = page.evaluate(
            "([url, kind]) => fetch(`${url}/reverts`, {method: 'POST', mode: kind === 'text/plain'"
            " ? 'no-cors' : 'cors', headers: {'Content-Type': kind}, body: '{\"step\": 0}'})"
            ".then((answer) => answer.type, () => 'refused')",
            [url, kind],
        )
        assert done in ("opaque", "refused")
    read = page.evaluate("url => fetch(`${url}/overview.json`).then(() => 1, () => 0)", url)
    assert read == 0
    assert _state(store) == before
    faults.clear()


def test_a_store_that_others_change_is_shown_as_it_is(
    page: Page, writable: tuple[str, Store]
) -> None:
    url, store = writable
    visit(page, url)
    assert page.locator("main tbody tr").count() == 1
    store.review({"id": ["item-0"], "answer": ["owl"]})
    page.wait_for_timeout(1_100)  # for a second the page does not look again
    page.reload()
    complete(page)
    assert page.locator("main tbody tr").count() == 2


def test_the_log_of_the_server_tells_the_token_once(store: Path, served: Servers) -> None:
    server = served(store, "--host", "0.0.0.0")
    _, token = _reached(server)
    assert server.log.read_text(encoding="utf-8").count(token) == 1
