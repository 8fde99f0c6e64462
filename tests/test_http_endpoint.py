"""Votes of a server on this machine that fails in all the ways servers do."""

from __future__ import annotations

import base64
import datetime
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from posterity.errors import InvalidData, InvalidParameter, Unavailable
from posterity.models.adapters import HttpEndpoint, open_adapter

Instances = list[dict[str, Any]]
KINDS = ("cat", "dog", "fox")


def kind_of(item: dict[str, Any]) -> str:
    return KINDS[item["number"] % 3]


def by_name(instances: Instances) -> Any:
    return {"predictions": [kind_of(item) for item in instances]}


@dataclass
class Server:
    """What the server does next, and what it was asked."""

    url: str = ""
    answer: Callable[[Instances], Any] = by_name
    """The body of an answer (bytes are sent as they are), or (status, body)."""
    first: list[Any] = field(default_factory=list)
    """What happens to the first requests: a status, 'close', or seconds to stall."""
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[dict[str, str], Instances]] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            instances = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                server.asked.append((dict(self.headers), instances["instances"]))
                server.under_way += 1
                server.most = max(server.most, server.under_way)
                mishap = server.first.pop(0) if server.first else None
            try:
                self.reply(mishap, instances["instances"])
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # nobody waits for the answer any more
            finally:
                with server.lock:
                    server.under_way -= 1

        def reply(self, mishap: Any, instances: Instances) -> None:
            if mishap == "close":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if isinstance(mishap, float):
                time.sleep(mishap)
            status, given = 200, server.answer(instances)
            if isinstance(mishap, int):
                status, given = mishap, b"out of <b>order</b>"
            elif isinstance(given, tuple):
                status, given = given
            body = given if isinstance(given, bytes) else json.dumps(given).encode()
            self.send_response(status)
            for key, value in server.headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(state)) as running:
        running.daemon_threads = True
        state.url = f"http://127.0.0.1:{running.server_address[1]}/v1/models/m:predict"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield state
        running.shutdown()
        thread.join()


def endpoint(server: Server, **options: Any) -> HttpEndpoint:
    quick: dict[str, Any] = {"backoff": 0.01, "timeout": 0.3, "retries": 3}
    return HttpEndpoint(server.url, **quick | options)


def items(count: int, **columns: Any) -> pa.Table:
    ids = [f"i{row}" for row in range(count)]
    return pa.table({"id": ids, "number": list(range(count)), **columns})


def test_names(server: Server) -> None:
    adapter = endpoint(server)
    assert adapter(items(5)) == ["cat", "dog", "fox", "cat", "dog"]
    assert adapter.classes is None
    assert server.asked[0][1][1] == {"id": "i1", "number": 1}


def test_only_the_chosen_columns_are_sent(server: Server) -> None:
    adapter = open_adapter(f"{server.url},column=number,retries=0")
    assert adapter is not None
    adapter(items(2, secret=["x", "y"]))
    assert server.asked[0][1] == [{"id": "i0", "number": 0}, {"id": "i1", "number": 1}]
    adapter = open_adapter(f"{server.url},columns=num*,retries=0")
    assert adapter is not None
    adapter(items(2, text=["a", "b"]))
    assert server.asked[1][1] == server.asked[0][1]
    with pytest.raises(Unavailable, match="no column 'text'; they have: id, number"):
        endpoint(server, columns=["text"])(items(2))


def test_values_json_does_not_know(server: Server) -> None:
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9)
    endpoint(server)(items(1, image=[b"\x00\xff"], at=[moment], on=[moment.date()], parts=[[b"a"]]))
    sent = server.asked[0][1][0]
    assert base64.b64decode(sent["image"]) == b"\x00\xff"
    assert sent["at"] == "2024-05-06T07:08:09"
    assert sent["on"] == "2024-05-06"
    assert sent["parts"] == ["YQ=="]
    with pytest.raises(InvalidData, match="The item 'i1' cannot be sent as JSON"):
        endpoint(server)(items(2, x=[1.0, float("nan")]))
    with pytest.raises(InvalidData, match="The item 'i0' cannot be sent as JSON: timedelta"):
        endpoint(server)(items(1, x=[datetime.timedelta(1)]))


def test_order_is_kept_whichever_request_is_answered_first(server: Server) -> None:
    def slowest_first(instances: Instances) -> Any:
        time.sleep(0.05 if instances[0]["number"] % 2 == 0 else 0.0)
        return by_name(instances)

    server.answer = slowest_first
    votes = endpoint(server, request=3, concurrency=4)(items(32))
    assert votes == [KINDS[number % 3] for number in range(32)]
    assert len(server.asked) == 11
    assert max(len(instances) for _, instances in server.asked) == 3
    assert 1 < server.most <= 4
    server.most = 0
    endpoint(server, request=3, concurrency=1)(items(9))
    assert server.most == 1


SOFT = [[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]


@pytest.mark.parametrize(
    ("body", "classes"),
    [
        ({"predictions": SOFT}, None),
        ({"predictions": SOFT, "classes": ["cat", "dog", "fox"]}, ("cat", "dog", "fox")),
        (
            {
                "predictions": [
                    [{"label": name, "score": score} for name, score in scored]
                    for scored in (
                        [("cat", 0.5), ("fox", 0.25), ("dog", 0.25)],
                        [("dog", 0.8), ("cat", 0.1), ("fox", 0.1)],
                    )
                ]
            },
            ("cat", "dog", "fox"),
        ),
    ],
)
def test_probabilities(server: Server, body: Any, classes: Any) -> None:
    server.answer = lambda _: body
    adapter = endpoint(server)
    for _ in range(2):
        assert_allclose(adapter(items(2)), SOFT)
        assert adapter.classes == classes


def test_scores_may_leave_out_classes_the_server_names(server: Server) -> None:
    scored = [[{"label": "dog", "score": 0.75}, {"label": "cat", "score": 0.25}]]
    server.answer = lambda _: {"predictions": scored, "classes": ["cat", "dog", "fox"]}
    assert_allclose(endpoint(server)(items(1)), [[0.25, 0.75, 0.0]])


@pytest.mark.parametrize(
    ("predictions", "votes"),
    [
        ([2, 0], [2, 0]),
        ([True, False], [True, False]),
        ([{"label": "dog", "score": 0.9}, {"label": "cat"}], ["dog", "cat"]),
        ([{"label": 1}, {"label": 0}], [1, 0]),
    ],
)
def test_other_forms(server: Server, predictions: Any, votes: Any) -> None:
    server.answer = lambda _: {"predictions": predictions}
    assert endpoint(server)(items(2)) == votes


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<html>hello</html>", "what is not JSON .*<html>hello"),
        (b"\xff\xfe\x00", "what is not JSON"),
        (b'{"predictions": [[NaN, 1.0], [0.5, 0.5]]}', "what is not JSON .it holds NaN"),
        (b"[" * 100_000, "what is not JSON"),
        (["cat", "dog"], "no list of predictions"),
        ({"outputs": ["cat", "dog"]}, "no list of predictions"),
        ({"predictions": "cat"}, "no list of predictions"),
        ({"predictions": ["cat", 1]}, "a mixture of names and codes"),
        ({"predictions": ["cat", [0.5, 0.5]]}, "a mixture of names and probabilities"),
        ({"predictions": [[0.5, 0.5], [0.2, 0.3, 0.5]]}, "probabilities of different lengths"),
        ({"predictions": [[3.5, -1.0], [0.5, 0.5]]}, "must not be negative.*Logits"),
        ({"predictions": [[3.5, 1.0], [0.5, 0.5]]}, "must sum to one"),
        ({"predictions": [[0.0, 0.0], [0.5, 0.5]]}, "only zeros"),
        (b'{"predictions": [[1e999, 0.0], [0.5, 0.5]]}', "must be finite"),
        ({"predictions": [None, "cat"]}, "no known form: null"),
        ({"predictions": [0.5, 0.5]}, "no known form: 0.5"),
        ({"predictions": [[], []]}, "no known form"),
        ({"predictions": [{"score": 1}, {"score": 1}]}, "no known form"),
        ({"predictions": [3, 0], "classes": ["cat", "dog"]}, "between 0 and 1; got 3"),
        ({"predictions": ["cat", "dog"], "classes": "cat"}, "classes that are no list"),
        (
            {"predictions": [[{"label": "cat", "score": 1}], [{"label": "dog", "score": 1}]]},
            "scores of some classes only",
        ),
        (
            {
                "predictions": [[{"label": "emu", "score": 1}]] * 2,
                "classes": ["cat", "dog"],
            },
            "classes that are not its own: 'emu'",
        ),
    ],
)
def test_nonsense(server: Server, body: Any, told: str) -> None:
    server.answer = lambda _: body
    with pytest.raises(InvalidData, match=told) as caught:
        endpoint(server)(items(2))
    assert len(str(caught.value)) < 700
    assert len(server.asked) == 1  # nonsense is not asked for again
    server.answer = by_name
    assert endpoint(server)(items(2)) == ["cat", "dog"]


@pytest.mark.parametrize("answers", [["cat"], ["cat", "dog", "fox"]])
def test_a_wrong_number_of_predictions_is_the_servers_fault(
    server: Server, answers: list[str]
) -> None:
    server.answer = lambda _: {"predictions": answers}
    with pytest.raises(Unavailable, match=f"{len(answers)} predictions for 2 items"):
        endpoint(server)(items(2))
    assert len(server.asked) == 1


def test_classes_must_stay(server: Server) -> None:
    server.answer = lambda _: {"predictions": [0, 1], "classes": ["cat", "dog"]}
    adapter = endpoint(server)
    adapter(items(2))
    server.answer = lambda _: {"predictions": [0, 1], "classes": ["dog", "cat"]}
    with pytest.raises(Unavailable, match="classes changed from"):
        adapter(items(2))
    server.answer = lambda _: {"predictions": [0, 1], "classes": ["dog", "dog"]}
    with pytest.raises(Unavailable, match="'dog' twice"):
        adapter(items(2))


@pytest.mark.parametrize(
    "mishaps",
    [[503, 503], [429], [500, 502, 504], ["close", "close"], [1.0], [503, "close", 1.0]],
    ids=str,
)
def test_a_server_that_recovers(server: Server, mishaps: list[Any]) -> None:
    server.first = list(mishaps)
    assert endpoint(server)(items(2)) == ["cat", "dog"]
    assert len(server.asked) == len(mishaps) + 1


def test_retry_after_is_respected(server: Server) -> None:
    server.first = [503]
    server.headers = {"Retry-After": "1"}
    began = time.monotonic()
    assert endpoint(server)(items(1)) == ["cat"]
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    ("mishap", "told"),
    [
        (503, "after 3 tries: 503 Service Unavailable: out of <b>order</b>"),
        ("close", "after 3 tries: .*(closed|reset|aborted)"),
        (1.0, "after 3 tries: ReadTimeoutError: .*timed out"),
        (401, "after 1 try: 401 Unauthorized"),
        (403, "after 1 try: 403"),
        (404, "after 1 try: 404"),
        (302, "after 1 try: 302"),
    ],
)
def test_a_server_that_does_not_recover(server: Server, mishap: Any, told: str) -> None:
    server.first = [mishap] * 10
    server.headers = {"Location": server.url} if mishap == 302 else {}
    with pytest.raises(Unavailable, match=told) as caught:
        endpoint(server, retries=2, timeout=0.15)(items(2))
    assert "run the same again; votes so far are kept" in str(caught.value)
    assert len(server.asked) == (1 if isinstance(mishap, int) and mishap < 500 else 3)


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x?hour=hidden"
        with pytest.raises(Unavailable, match="after 2 tries: NewConnectionError") as caught:
            HttpEndpoint(url, retries=1, backoff=0.01)(items(1))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_poisoned_item_costs_one_item(server: Server, status: int) -> None:
    def picky(instances: Instances) -> Any:
        if any(item["number"] == 2 for item in instances):
            return status, {"error": "number 2 is poison"}
        return by_name(instances)

    server.answer = picky
    adapter = endpoint(server)
    with pytest.raises(InvalidData, match=f"refused the items: {status} .*number 2 is poison"):
        adapter(items(4))
    for row in (0, 1, 3):
        assert adapter(items(4).slice(row, 1)) == [KINDS[row % 3]]
    with pytest.raises(InvalidData, match="poison"):
        adapter(items(4).slice(2, 1))


def test_the_token_comes_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POSTERITY_TEST_TOKEN", raising=False)
    adapter = endpoint(server, token="POSTERITY_TEST_TOKEN")
    with pytest.raises(Unavailable, match=r"'POSTERITY_TEST_TOKEN', .* is not set"):
        adapter(items(1))
    assert not server.asked
    monkeypatch.setenv("POSTERITY_TEST_TOKEN", "s3cret\n")
    adapter(items(1))
    assert server.asked[0][0]["Authorization"] == "Bearer s3cret"
    server.first = [401]
    with pytest.raises(Unavailable) as caught:
        adapter(items(1))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InvalidParameter, match="name of an environment variable") as refused:
        endpoint(server, token="sk-s3cret")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://me:s3cret@host/x", "https://s3cret@host", "https://me:s3/cret@host/x"]
)
def test_secrets_in_a_url_are_refused(url: str) -> None:
    with pytest.raises(InvalidParameter, match="holds a user name or password") as caught:
        HttpEndpoint(url)
    assert "s3" not in str(caught.value)
