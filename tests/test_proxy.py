"""The proxy that loses answers: nothing else than answers, and as many as it says."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tests.proxy import Losing, losing


class _Kept(BaseHTTPRequestHandler):
    """Keeps what is put, and gives it back in the way the path asks for."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            content = self.rfile.read(int(self.headers["Content-Length"]))
        self.objects[self.path] = content
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        content = self.objects[self.path]
        self.send_response(200)
        if "chunked" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
        elif "closed" in self.path:
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.objects[self.path])))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[dict[str, str]]:
    _Kept.objects.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Kept) as held:
        threading.Thread(target=held.serve_forever, daemon=True).start()
        yield {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{held.server_port}"}
        held.shutdown()


def connected(proxy: Losing) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=30)


@pytest.mark.parametrize("path", ["/plain", "/chunked", "/closed"])
def test_requests_and_answers_pass(server: dict[str, str], path: str) -> None:
    with losing(server, one_in=0) as proxy:
        connection = connected(proxy)
        for content in (b"", b"something", b"\r\n\r\n" * 100_000):
            for body in (content, iter([content[:3], content[3:]]) if content[3:] else content):
                chunked = {"Transfer-Encoding": "chunked"} if not isinstance(body, bytes) else {}
                connection.request(
                    "PUT",
                    path,
                    body,
                    chunked | {"Expect": "100-continue"},
                    encode_chunked=bool(chunked),
                )
                answer = connection.getresponse()
                assert (answer.status, answer.read()) == (204, b"")
            connection.request("GET", path)
            assert connection.getresponse().read() == content
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.read(), answer.length) == (b"", 0)
            assert answer.headers["Content-Length"] == str(len(content))
        connection.close()
        assert proxy.counted() == (12, 0)


def test_lost_answers_are_of_requests_that_were_done(server: dict[str, str]) -> None:
    def lost() -> list[int]:
        found = []
        with losing(server, one_in=4, seed=3) as proxy:
            for number in range(60):
                connection = connected(proxy)
                connection.request("PUT", f"/{number}", b"x")
                try:
                    assert connection.getresponse().status == 204
                except http.client.RemoteDisconnected:
                    found.append(number)
                connection.close()
            assert proxy.counted() == (60, len(found))
        assert set(_Kept.objects) == {f"/{number}" for number in range(60)}
        return found

    first = lost()
    assert 5 < len(first) < 30
    assert lost() == first
