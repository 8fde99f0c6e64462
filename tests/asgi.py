"""Requests to the page without a server: straight into the application."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from posterity import Store
from posterity.web.server.app import Site
from posterity.web.server.cache import Held
from posterity.web.server.guard import Guard

HOST = "localhost:8000"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def site(path: Path | str, *, writes: bool = False, pictures: Path | None = None) -> Any:
    """The application over a store."""
    return Site(Held(Store(path)), Guard(None, writes), pictures or Path()).app()


async def request(
    app: Any, address: str, headers: dict[str, str] | None = None, *, body: bytes | None = None
) -> Answer:
    """One request: a GET, or with a body a POST."""
    parts = urlsplit(address)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET" if body is None else "POST",
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [
            (name.lower().encode(), value.encode())
            for name, value in ({"host": HOST} | (headers or {})).items()
        ],
        "server": ("localhost", 8000),
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    given = iter([{"type": "http.request", "body": body or b"", "more_body": False}])

    async def receive() -> Any:
        for message in given:
            return message
        return await asyncio.Event().wait()  # nobody leaves before the answer is there

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Answer(
        sent[0]["status"],
        {name.decode(): value.decode() for name, value in sent[0]["headers"]},
        b"".join(message.get("body", b"") for message in sent[1:]),
    )


def ask(app: Any, address: str, headers: dict[str, str] | None = None) -> Answer:
    """One request, alone."""
    return asyncio.run(request(app, address, headers))
