"""Votes of a server that speaks the prediction convention of KServe v1 and TensorFlow Serving."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from posterity.errors import InvalidData, InvalidParameter, MissingExtra, Unavailable
from posterity.method.data.classes import Name
from posterity.method.data.spec import real_number, whole_number
from posterity.method.data.votes import check_codes
from posterity.models.adapters.outputs import (
    AGAIN,
    own_classes,
    probabilities,
    shortened,
    spread,
    told,
)
from posterity.models.adapters.payload import column_of, columns_of, named

PASSING = (429, 500, 502, 503, 504)
"""Statuses worth another try."""
ABOUT_ITEMS = (400, 413, 422)
"""Statuses that blame what was sent."""
MOST = 10**6
"""Requests, items, tries and seconds."""
SECRETS = re.compile(
    r"(^|[^a-z])(key|code|pass|pwd|auth|sig|sas|jwt|credentials?)$"
    r"|(api|access|auth|secret)[^a-z]?key|token|secret|signature|password|authorization",
    re.IGNORECASE,
)
"""Parameters of a URL that hold keys, by name."""


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
            whole_number(given, name, least=1, most=MOST)
        whole_number(retries, "retries", most=MOST)
        real_number(timeout, "timeout", above=True, most=MOST)
        real_number(backoff, "backoff", most=MOST)
        if token is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", token):
            # What was given is not repeated: it may be the secret itself.
            raise InvalidParameter(
                "The parameter 'token' must be the name of an environment variable, in capitals.",
                hint="Put the token itself into that variable, never into a command or a store.",
            )
        self._columns = None if columns is None else ("id", *columns)
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
        if self._columns is None:
            return batch
        columns = columns_of(batch, self._columns)
        for name in columns:
            column_of(batch, name)
        return batch.select(columns)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            secret = os.environ.get(self._token, "").strip()
            if not secret:
                raise Unavailable(
                    f"The environment variable '{self._token}', which should hold the token for "
                    f"{self._shown}, is not set.",
                    hint="Set it and run the same again; votes so far are kept.",
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
    given = parse_qsl(f"{parts.query}&{parts.fragment}", keep_blank_values=True)
    if secret := next((name for name, _ in given if SECRETS.search(name)), None):
        raise InvalidParameter(
            f"The URL holds a key ('{secret}=' after the '?'), which would be stored with it.",
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


SERVER = "The server"
EXPECTED = (
    'Expected is {"predictions": […]}, one for each instance in order: a class name, a code, a '
    'list of probabilities, {"label": …}, or a list of {"label": …, "score": …}.'
)


@dataclass(frozen=True)
class Answer:
    """What one request brought."""

    predictions: list[Any]
    classes: tuple[Name, ...] | None
    """The server's classes in the order of its codes, if it named them."""

    @classmethod
    def read(cls, body: bytes, items: int) -> Answer:
        """Read a body that ought to hold one prediction an item."""
        try:
            given = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise _nonsense(f"what is not JSON ({error})", body.decode(errors="replace")) from None
        predictions = given.get("predictions") if isinstance(given, dict) else None
        if not isinstance(predictions, list):
            raise _nonsense("no list of predictions", given)
        if len(predictions) != items:
            told = f"{len(predictions)} predictions for {items} items"
            raise Unavailable(f"{SERVER} answered with {told}.", hint=EXPECTED)
        named = given.get("classes")
        if named is None:
            return cls(predictions, None)
        if not isinstance(named, list):
            raise _nonsense("classes that are no list", named)
        return cls(predictions, own_classes(named, SERVER))


def read_votes(
    answers: Sequence[Answer], known: tuple[Name, ...] | None
) -> tuple[Any, tuple[Name, ...] | None]:
    """The votes of all answers in order, and the server's classes as far as it told them."""
    classes = known
    for answer in answers:
        if classes and answer.classes and answer.classes != classes:
            raise Unavailable(
                f"{SERVER}'s classes changed from {_shown(classes)} to {_shown(answer.classes)}.",
                hint="Another model seems to answer now: register it under its own name.",
            )
        classes = classes or answer.classes
    predictions = [one for answer in answers for one in answer.predictions]
    forms = list(dict.fromkeys(_form(one) for one in predictions))
    if len(forms) > 1:
        raise _nonsense(f"a mixture of {' and '.join(forms[:3])}", predictions)
    if forms == ["probabilities"]:
        lengths = {len(one) for one in predictions}
        if len(lengths) > 1:
            raise _nonsense("probabilities of different lengths", predictions)
        return _soft(predictions, classes), classes
    if forms == ["scores"]:
        scores = [{one["label"]: one["score"] for one in scored} for scored in predictions]
        if classes is None:
            if any(row.keys() != scores[0].keys() for row in scores):
                raise _nonsense("scores of some classes only, and no list of classes", predictions)
            classes = tuple(sorted(own_classes(scores[0], SERVER)))
        return _soft(spread(scores, classes, SERVER), classes), classes
    votes = [one["label"] if isinstance(one, dict) else one for one in predictions]
    if classes and isinstance(classes[0], str) and forms == ["codes"]:
        check_codes(votes, len(classes), "predictions", allow_missing=False)
    return votes, classes


def _soft(given: Any, classes: tuple[Name, ...] | None) -> Any:
    return probabilities(
        given, len(classes) if classes else None, len(given), SERVER, hint="Logits are not enough."
    )


def _form(one: Any) -> str:
    forms = {str: "names", int: "codes", bool: "truth values"}
    if type(one) in forms:
        return forms[type(one)]
    if isinstance(one, dict) and type(one.get("label")) in forms:
        return f"labels ({forms[type(one['label'])]})"
    if isinstance(one, list) and one and all(_is_number(value) for value in one):
        return "probabilities"
    if isinstance(one, list) and one and all(_is_scored(value) for value in one):
        return "scores"
    raise _nonsense("a prediction of no known form", one)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_scored(value: Any) -> bool:
    label = value.get("label") if isinstance(value, dict) else None
    return type(label) in (str, int, bool) and _is_number(value.get("score"))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")


def _nonsense(told: str, given: Any) -> InvalidData:
    return InvalidData(f"{SERVER} answered with {told}: {_shown(given)}", hint=EXPECTED)


def _shown(given: Any) -> str:
    return shortened(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
