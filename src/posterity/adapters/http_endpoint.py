"""Votes of a server that speaks the prediction convention of KServe v1 and TensorFlow Serving."""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from posterity.adapters.outputs import AGAIN, shortened, told
from posterity.adapters.payload import named
from posterity.adapters.predictions import Answer, read_votes
from posterity.classes import Name
from posterity.errors import InvalidData, InvalidParameter, MissingExtra, Unavailable

PASSING = (429, 500, 502, 503, 504)
"""Statuses worth another try."""
ABOUT_ITEMS = (400, 413, 422)
"""Statuses that blame what was sent."""


class HttpEndpoint:
    """The URL of a server that is sent ``{"instances": […]}`` and gives ``{"predictions": […]}``.

    Each instance is an item's id and the chosen columns (all by default), bytes as base64, dates
    in ISO 8601. A request holds ``request`` items, ``concurrency`` of them are under way at a
    time, and each is tried again up to ``retries`` times, waiting longer each time from
    ``backoff`` seconds on, or as long as the server asks. ``token`` names the environment
    variable that holds a bearer token.
    """

    def __init__(
        self,
        url: str,
        *,
        columns: Sequence[str] | None = None,
        concurrency: int = 4,
        request: int = 64,
        timeout: float = 30.0,
        retries: int = 5,
        backoff: float = 0.5,
        token: str | None = None,
    ) -> None:
        self._url, self._shown = url, _check_url(url)
        for name, given in (("concurrency", concurrency), ("request", request)):
            if given < 1:
                raise InvalidParameter.of(name, "a count ≥ 1", given)
        if retries < 0:
            raise InvalidParameter.of("retries", "a count ≥ 0", retries)
        if not (math.isfinite(timeout) and timeout > 0):
            raise InvalidParameter.of("timeout", "seconds > 0", timeout)
        if not (math.isfinite(backoff) and backoff >= 0):
            raise InvalidParameter.of("backoff", "seconds ≥ 0", backoff)
        if token is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", token):
            # What was given is not repeated: it may be the secret itself.
            raise InvalidParameter(
                "The parameter 'token' must be the name of an environment variable, in capitals.",
                hint="Put the token itself into that variable, never into a command or a store.",
            )
        self._columns = None if columns is None else tuple(dict.fromkeys(["id", *columns]))
        self._concurrency, self._request, self._token = concurrency, request, token
        self._timeout, self._retries, self._backoff = timeout, retries, backoff
        self.classes: tuple[Name, ...] | None = None

    def __call__(self, batch: pa.Table) -> Any:
        """Votes in the order of the items, whichever request was answered first."""
        items = self._chosen(batch)
        parts = [items.slice(at, self._request) for at in range(0, len(items), self._request)]
        bodies = [_body(part) for part in parts]
        headers = self._headers()
        pool = self._pool  # made here, before threads would each make their own

        def ask(at: int) -> Answer:
            return Answer.read(self._post(pool, bodies[at], headers), len(parts[at]))

        with ThreadPoolExecutor(min(self._concurrency, len(parts)) or 1) as threads:
            answers = list(threads.map(ask, range(len(parts))))
        votes, self.classes = read_votes(answers, self.classes)
        return votes

    def _chosen(self, batch: pa.Table) -> pa.Table:
        for name in self._columns or ():
            if name not in batch.column_names:
                there = ", ".join(batch.column_names)
                raise Unavailable(f"The items have no column {name!r}; they have: {there}.")
        return batch if self._columns is None else batch.select(list(self._columns))

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            secret = os.environ.get(self._token, "").strip()
            if not secret:
                raise Unavailable(
                    f"The environment variable '{self._token}', which should hold the token for "
                    f"{self._shown}, is not set.",
                    hint="Set it and run the same command again; votes so far are kept.",
                )
            headers["Authorization"] = f"Bearer {secret}"
        return headers

    @cached_property
    def _pool(self) -> Any:
        try:
            import urllib3
        except ImportError:
            raise MissingExtra.of("A model behind a URL", "http") from None
        retry = urllib3.Retry(
            total=self._retries,
            redirect=False,
            allowed_methods=None,  # asking for a prediction twice does no harm, although a POST
            status_forcelist=PASSING,
            backoff_factor=self._backoff,
            backoff_jitter=self._backoff,
            raise_on_status=False,
        )
        return urllib3.PoolManager(
            maxsize=self._concurrency,
            timeout=urllib3.Timeout(connect=self._timeout, read=self._timeout),
            retries=retry,
        )

    def _post(self, pool: Any, body: bytes, headers: dict[str, str]) -> bytes:
        from urllib3.exceptions import HTTPError, MaxRetryError

        try:
            # A redirect is not followed: the token is for this server only.
            answer = pool.request("POST", self._url, body=body, headers=headers, redirect=False)
        except HTTPError as error:
            cause = error.reason if isinstance(error, MaxRetryError) and error.reason else error
            raise self._down(told(cause), self._retries + 1) from None
        if 200 <= answer.status < 300:
            content: bytes = answer.data
            return content
        words = answer.data.decode("utf-8", "replace")
        said = shortened(f"{answer.status} {answer.reason or ''}: {words}").rstrip(": .")
        if answer.status in ABOUT_ITEMS:
            raise InvalidData(f"{self._shown} refused the items: {said}.")
        raise self._down(said, len(answer.retries.history) + 1 if answer.retries else 1)

    def _down(self, said: str, tries: int) -> Unavailable:
        times = "1 try" if tries == 1 else f"{tries} tries"
        return Unavailable(
            f"{self._shown} gives no votes, after {times}: {said.rstrip('.')}.", hint=AGAIN
        )


def _check_url(url: str) -> str:
    """The URL as messages show it: without a query, where people put keys."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        hidden = "@" in parts.netloc
    except ValueError:
        parts, host, port = urlsplit(""), None, None
        hidden = "@" in url  # what cannot be taken apart may still hold a password
    if hidden:
        raise InvalidParameter(
            "The URL holds a user name or password, which would be stored with it.",
            hint="Leave it out, and name an environment variable with a token in token=.",
        )
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidParameter.of("url", "http://… or https://…", url)
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path}"


def _body(part: pa.Table) -> bytes:
    items = part.to_pylist()
    try:
        return _encode(items)
    except (TypeError, ValueError):
        for row, item in enumerate(items):
            try:
                _encode([item])
            except (TypeError, ValueError) as error:
                raise InvalidData(
                    f"The {named(part, row)} cannot be sent as JSON: {error}."
                ) from None
        raise


def _encode(instances: list[dict[str, Any]]) -> bytes:
    return json.dumps({"instances": instances}, default=_plain, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
