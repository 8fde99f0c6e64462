"""A proxy in front of an HTTP server that loses answers: the server has done what it was asked,
and whoever asked never learns of it.

It is a process of its own, so that a client that holds the GIL cannot stop it. Which answers are
lost depends on the seed and on the order of requests.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LARGEST = 2**28
"""No request or answer of a test is larger."""
STATISTICS = "/proxy-statistics"
DOWN, UP = "/proxy-down", "/proxy-up"


class Closed(Exception):
    """The other side has hung up."""


@dataclass
class Stream:
    """A connection, read in lines and in counted bytes."""

    connection: socket.socket
    waiting: bytes = b""

    def _more(self) -> None:
        part = self.connection.recv(2**16)
        if not part:
            raise Closed
        self.waiting += part

    def head(self) -> bytes:
        """Everything up to the empty line, with it."""
        while b"\r\n\r\n" not in self.waiting:
            self._more()
        head, _, self.waiting = self.waiting.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def line(self) -> bytes:
        while b"\r\n" not in self.waiting:
            self._more()
        line, _, self.waiting = self.waiting.partition(b"\r\n")
        return line + b"\r\n"

    def exactly(self, size: int) -> bytes:
        if size > LARGEST:
            raise Closed
        while len(self.waiting) < size:
            self._more()
        part, self.waiting = self.waiting[:size], self.waiting[size:]
        return part

    def chunks(self) -> bytes:
        """A chunked body as it was sent, with its trailer."""
        body = b""
        while True:
            line = self.line()
            body += line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            body += self.exactly(size + 2)
        while (line := self.line()) != b"\r\n":
            body += line
        return body + b"\r\n"

    def rest(self) -> bytes:
        """Until the other side hangs up."""
        with suppress(Closed):
            while len(self.waiting) < LARGEST:
                self._more()
        part, self.waiting = self.waiting, b""
        return part


def headers_of(head: bytes) -> dict[bytes, bytes]:
    """Names in lower case."""
    lines = head.split(b"\r\n")[1:]
    pairs = (line.split(b":", 1) for line in lines if b":" in line)
    return {name.strip().lower(): value.strip() for name, value in pairs}


def body_of(stream: Stream, head: bytes, *, answer_to: bytes | None = None) -> bytes:
    """The body that follows a head; ``answer_to``: the method it answers, if it is an answer."""
    told = headers_of(head)
    if answer_to is not None:
        status = int(head.split()[1])
        if answer_to == b"HEAD" or status in (204, 304) or status < 200:
            return b""
    if told.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
        return stream.chunks()
    if b"content-length" in told:
        return stream.exactly(int(told[b"content-length"]))
    return b"" if answer_to is None else stream.rest()


@dataclass
class Proxy:
    """Hands requests on, and one answer in so many to nobody."""

    host: str
    port: int
    lost_one_in: int
    """0: none is lost."""
    seed: int
    requests: int = 0
    lost: int = 0
    down: bool = False
    """Whether it hangs up on everybody, and hands on nothing."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    conditional: threading.Lock = field(default_factory=threading.Lock)

    def loses(self) -> bool:
        """Whether the answer to the next request is lost."""
        with self.lock:
            self.requests += 1
            drawn = random.Random(self.seed * 1_000_003 + self.requests).random()
            loses = self.lost_one_in > 0 and drawn < 1 / self.lost_one_in
            self.lost += loses
            return loses

    def serve(self, client: socket.socket) -> None:
        """All requests of one connection."""
        with client, suppress(Closed, OSError, ValueError):
            client.settimeout(60)
            stream = Stream(client)
            while self._one(stream):
                pass

    def _one(self, stream: Stream) -> bool:
        """One request; False if the connection ends with it."""
        head = stream.head()
        method, path = head.split()[:2]
        told = headers_of(head)
        if path == STATISTICS.encode():
            text = f"{self.requests} {self.lost}".encode()
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
            stream.connection.sendall(answer % (len(text), text))
            return False
        if path in (DOWN.encode(), UP.encode()):
            self.down = path == DOWN.encode()
            stream.connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            return False
        if self.down:
            return False
        if told.get(b"expect", b"").lower() == b"100-continue":
            stream.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = body_of(stream, head)
        if b"if-none-match" in told and method == b"PUT":
            # S3 compares and writes at once; moto lets another thread in between.
            with self.conditional:
                answer = self._ask(method, head, body)
        else:
            answer = self._ask(method, head, body)
        if self.loses():
            return False
        stream.connection.sendall(answer)
        return told.get(b"connection", b"").lower() != b"close"

    def _ask(self, method: bytes, head: bytes, body: bytes) -> bytes:
        """What the server answers, complete, as an answer that leaves the connection open."""
        with socket.create_connection((self.host, self.port), timeout=60) as server:
            server.sendall(_single(head) + body)
            stream = Stream(server)
            told = stream.head()
            while told.split()[1] == b"100":
                told = stream.head()
            content = body_of(stream, told, answer_to=method)
        framed = headers_of(told).keys() & {b"content-length", b"transfer-encoding"}
        if not framed and method != b"HEAD":
            told = told[:-2] + b"Content-Length: %d\r\n\r\n" % len(content)
        return _without(told, b"connection") + content


def _without(head: bytes, *names: bytes) -> bytes:
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [line for line in lines if line.split(b":")[0].strip().lower() not in names]
    return b"\r\n".join(kept) + b"\r\n\r\n"


def _single(head: bytes) -> bytes:
    """A request that asks for nothing after it; what it expects, the proxy has promised."""
    return _without(head, b"connection", b"expect")[:-2] + b"Connection: close\r\n\r\n"


def main(host: str, port: int, lost_one_in: int, seed: int) -> None:
    """Serve until somebody ends the process."""
    proxy = Proxy(host, port, lost_one_in, seed)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            client, _ = listening.accept()
            threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()


@dataclass(frozen=True)
class Losing:
    """A proxy that runs, and how to reach the server through it."""

    endpoint: str
    options: dict[str, str]

    def counted(self) -> tuple[int, int]:
        """How many requests came, and how many of their answers were lost."""
        with urllib.request.urlopen(self.endpoint + STATISTICS, timeout=60) as answer:
            requests, lost = answer.read().split()
        return int(requests), int(lost)

    def switch(self, path: str) -> None:
        """``DOWN``, and nobody reaches the server any more; ``UP``."""
        urllib.request.urlopen(self.endpoint + path, timeout=60).close()


@contextmanager
def losing(options: dict[str, str], *, one_in: int = 20, seed: int = 0) -> Iterator[Losing]:
    """The options of a server, through a proxy that loses one answer in so many."""
    server = urlsplit(options["AWS_ENDPOINT_URL"])
    told = [str(server.hostname), str(server.port), str(one_in), str(seed)]
    command = [sys.executable, "-m", "tests.proxy", *told]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield Losing(endpoint, options | {"AWS_ENDPOINT_URL": endpoint})
        finally:
            process.terminate()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
