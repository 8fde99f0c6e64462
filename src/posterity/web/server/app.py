"""The pages over HTTP, each with its JSON twin: the one module that knows Starlette."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import pyarrow as pa

import posterity
from posterity._text import advice_on_command_line, json_text
from posterity.engine.evaluation import evaluate
from posterity.engine.items.payload import items_schema
from posterity.errors import (
    CommitConflict,
    InvalidData,
    MissingExtra,
    PosterityError,
    StoreError,
    UnknownName,
)
from posterity.storage.output import write_stream
from posterity.web.report import pages, plotly
from posterity.web.server import guard
from posterity.web.server import views as server_views
from posterity.web.server.cache import Busy, Held, Workers
from posterity.web.server.guard import Guard
from posterity.web.server.views import Query, View, Views

try:
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import MutableHeaders
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise MissingExtra.of("The web page", "web") from None

T = TypeVar("T")
PAGES = (
    ("Overview", "./"),
    ("Planner", "planner"),
    ("Flips", "flips"),
    ("Item", "item"),
    ("Models", "models"),
    ("Review", "review"),
)
LONGEST = 2**22
"""Bytes of what is sent to us."""
LONGEST_QUERY = 2**13
"""Bytes of the parameters of an address."""
SLOW = ("planner", "curve", "outlook", "entropies", "reliability", "review")
"""Views that walk over many items: calculated by few at a time."""
AGAIN = 5
"""Seconds after which whoever was sent away may ask again."""
DOWNLOAD = 3600.0
"""Seconds a file is waited for: unlike a view it is not kept, so asking again does not help."""
FOREVER = "public, max-age=31536000, immutable"


class HarmlessJson(JSONResponse):
    """JSON that may be looked at in a terminal, whatever names are in it."""

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return json_text(content, compact=True).encode()


class Site:
    """All pages over one store."""

    def __init__(
        self, held: Held, given: Guard, pictures: Path, columns: Sequence[str] | None = None
    ) -> None:
        self._held, self._guard = held, given
        # Who comes from elsewhere need not know where on this machine a store is.
        told = held.store.path if given.token is None else _name(held.store.path)
        self._views = Views(held, pictures, told, columns)
        self._writing = threading.Lock()
        self._workers = Workers()

    def app(self) -> ASGIApp:
        """The whole of it, guarded."""
        views = self._views
        routes = [
            *(
                Route("/" if name == "overview" else f"/{name}", partial(self._page, name, view))
                for name, view in views.pages.items()
            ),
            *(
                Route(f"/{name}.json", partial(self._json, name, view))
                for name, view in (views.pages | views.parts).items()
            ),
            Route("/picture", partial(self._file, self.picture)),
            *(
                Route(f"/plan.{kind}", partial(self._download, kind))
                for kind in ("parquet", "csv", "jsonl", "json")
            ),
            Route("/static/{name}", partial(self._file, self.static)),
            *(
                Route(f"/{name}", partial(self._write, change), methods=["POST"])
                for name, change in views.changes.items()
            ),
        ]
        handlers: Any = {404: self._not_found, Exception: self._broken}
        made = Starlette(routes=routes, exception_handlers=handlers)
        return Guarded(made, self._guard)

    # Files.

    def picture(self, request: Request) -> Response:
        """A picture of an item, from where its payload says."""
        found = self._views.picture(dict(request.query_params))
        headers = {"Content-Security-Policy": guard.ALONE, "Cache-Control": "private, max-age=60"}
        return Response(found.content, media_type=found.kind, headers=headers)

    def static(self, request: Request) -> Response:
        """A script or the sheet of the pages; the plotting library from its own package."""
        name = request.path_params["name"]
        kinds = {".js": "text/javascript", ".css": "text/css"}
        kept = {"Cache-Control": FOREVER if request.url.query else "no-cache"}
        if name == "plotly.min.js":
            packed = "gzip" in request.headers.get("accept-encoding", "")
            content = plotly.packed() if packed else plotly.script()
            kept |= {"Vary": "Accept-Encoding"} | ({"Content-Encoding": "gzip"} if packed else {})
        elif name in pages.STATIC:
            content = pages.static(name)
        else:
            raise InvalidData(f"There is no {name!r}.")
        return Response(content, media_type=kinds[Path(name).suffix], headers=kept)

    def download(self, kind: str, request: Request) -> Response:
        """A plan, or its items; nothing is kept."""
        made = self._views.plan(dict(request.query_params), keep=False)
        name = f"plan-{made.id or 'empty'}.{kind}"
        if kind == "json":
            headers = {"Content-Disposition": f'attachment; filename="{name}"'}
            return HarmlessJson(made.to_dict(), headers=headers)
        context = self._held.context
        folder = tempfile.TemporaryDirectory()
        path = Path(folder.name) / name
        schema = items_schema(context.items)
        try:
            with self._writing:
                write_stream(path, schema, evaluate.planned_batches(context, made))
        except (pa.ArrowException, TypeError) as error:  # lists in CSV, bytes in JSON
            folder.cleanup()
            raise InvalidData(
                f"The items cannot be written as {kind}: {error}.", hint="Take them as Parquet."
            ) from None
        return FileResponse(path, filename=name, background=BackgroundTask(folder.cleanup))

    # How they are sent.

    async def _sent(
        self, making: Awaitable[Response], *, as_json: bool, missing: int = 404
    ) -> Response:
        """An answer, or why there is none."""
        try:
            return await making
        except PosterityError as error:
            return self._failed(error, as_json=as_json, missing=missing)
        except Busy as busy:
            return self._busy(busy, as_json=as_json)

    async def _file(self, make: Callable[[Request], Response], request: Request) -> Response:
        return await self._sent(run_in_threadpool(make, request), as_json=True)

    async def _download(self, kind: str, request: Request) -> Response:
        making = self._workers.run(partial(self.download, kind, request), patience=DOWNLOAD)
        return await self._sent(making, as_json=True)

    def _made(self, name: str, make: Callable[[], T]) -> Awaitable[T]:
        return self._workers.run(make) if name in SLOW else run_in_threadpool(make)

    async def _json(self, name: str, view: Callable[[Query], View], request: Request) -> Response:
        query = dict(request.query_params)
        return await self._sent(self._made(name, lambda: HarmlessJson(view(query))), as_json=True)

    async def _page(self, name: str, view: Callable[[Query], View], request: Request) -> Response:
        query = dict(request.query_params)

        async def made() -> Response:
            if name != "overview" and self._guard.is_cross_site(request.headers):
                text = self._linked(name, query)
            else:
                text = await self._made(name, partial(self._rendered, name, view, query))
            kept = {"Cache-Control": "private, no-cache"}
            return Response(text, media_type="text/html", headers=kept)

        return await self._sent(made(), as_json=False)

    def _rendered(self, name: str, view: Callable[[Query], View], query: Query) -> str:
        if name == "planner":  # the page asks for its answer itself, and shows its controls now
            view = self._views.choices
        values = self._frame(name, query) | {"view": view(query)}
        values["head"] = self._held.context.head
        if name == "flips":
            told = self._views.steps_with_flips()
            values |= {"steps": told, "at_page": server_views.pages_of(query)}
        if name == "item":
            values |= {"some": [] if values["view"] else self._views.some_items()}
        return pages.render(f"{name}.html", **values)

    def _linked(self, name: str, query: Query) -> str:
        """The page for who follows a link of another site: that site must not set us to work."""
        frame = self._frame(name, query)
        return pages.render("linked.html", here=frame["twin"].replace(".json", "", 1), **frame)

    def _busy(self, busy: Busy, *, as_json: bool) -> Response:
        told = {"kind": "busy", "message": f"{busy} Try again in {AGAIN} seconds.", "hint": None}
        answer = self._told(503, told, as_json=as_json)
        answer.headers["Retry-After"] = str(AGAIN)
        return answer

    def _frame(self, name: str, query: Query) -> View:
        """What every page has, also where the store cannot be read."""
        store = self._views.path
        kept = {key: value for key, value in query.items() if key != guard.TOKEN}
        twin = f"{name}.json" + (f"?{urlencode(kept)}" if kept else "")
        return {
            "page": name,
            "pages": PAGES,
            "store": _name(store),
            "path": store,
            "twin": twin,
            "writes": self._guard.writes,
            "head": None,
            "version": posterity.__version__,
            "stamp": pages.stamp(),
            "plotly": plotly.stamp(),
            "maps": plotly.maps_id(),
        }

    async def _write(self, change: Callable[[Any], View], request: Request) -> Response:
        if not self._guard.writes:
            return _refused(403, "This page is read-only.", "Start serve with --allow-writes.")
        if not self._guard.same_origin(request.headers):
            return _refused(403, "A change must be asked for by this page itself, as JSON.")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST:  # told before all of it has come
                return _refused(413, f"At most {LONGEST:,} bytes can be sent.")
        try:
            given = json.loads(body)
            json.dumps(given, ensure_ascii=False).encode()  # halves of characters are no text
        except (ValueError, RecursionError):
            return _refused(400, "What was sent is no JSON.")
        try:
            making = run_in_threadpool(lambda: HarmlessJson(advice_on_command_line(change(given))))
            return await self._sent(making, as_json=True, missing=400)
        finally:
            await run_in_threadpool(self._held.forget)

    def _failed(self, error: PosterityError, *, as_json: bool, missing: int = 404) -> Response:
        status = 400
        if isinstance(error, StoreError):
            status = 409 if isinstance(error, CommitConflict) else 503
        elif isinstance(error, InvalidData):
            status = missing
        elif isinstance(error, UnknownName):
            status = 404
        told = advice_on_command_line(error.to_dict())
        return self._told(status, told, as_json=as_json)

    def _told(self, status: int, error: View, *, as_json: bool) -> Response:
        if as_json:
            return HarmlessJson({"error": error}, status)
        values = self._frame("error", {}) | {"twin": "overview.json", "status": status}
        told = {"message": error["message"], "hint": error["hint"]}
        return Response(
            pages.render("error.html", **values, **told), status, media_type="text/html"
        )

    async def _broken(self, request: Request, error: Exception) -> Response:
        """A fault of ours; the server's own log has the rest."""
        message = f"Unexpected {type(error).__name__}; whoever has started the server sees more."
        told = {"kind": "bug", "message": message, "hint": None}
        page = "text/html" in request.headers.get("accept", "")
        return self._told(500, told, as_json=not page)

    async def _not_found(self, request: Request, _: Exception) -> Response:
        missing = InvalidData(f"There is no page {request.url.path!r}.")
        return self._failed(missing, as_json=request.url.path.endswith(".json"))


class Guarded:
    """Lets only those in who may, and tells browsers what a page may do."""

    def __init__(self, app: ASGIApp, given: Guard) -> None:
        self._app, self._guard = app, given

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in guard.HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope, receive)
        refused = self._refused(request)
        await (refused or self._app)(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        if not self._guard.host_allowed(request.headers.get("host", "")):
            return _refused(421, "This address is not served here.")
        if len(request.url.query) > LONGEST_QUERY:
            return _refused(414, f"An address may have at most {LONGEST_QUERY:,} bytes after '?'.")
        elsewhere = self._guard.from_elsewhere(request.headers)
        if elsewhere or (self._guard.is_cross_site(request.headers) and _is_file(request)):
            return _refused(403, "Another site asks for a part of this page.")
        given = request.query_params.get(guard.TOKEN)
        if given is not None and self._guard.token_right(given) and request.method == "GET":
            return self._let_in(request)
        if self._guard.cookie_right(request.cookies.get(_cookie(request))):
            return None
        if self._guard.bearer_right(request.headers.get("authorization")):
            return None
        what = "The token is wrong." if given is not None else "A token is needed."
        hint = "Open the address that `posterity serve` printed when it was started."
        if "text/html" in request.headers.get("accept", ""):
            return Response(f"{what} {hint}\n", 401, media_type="text/plain")
        return _refused(401, what, hint)

    def _let_in(self, request: Request) -> Response:
        """Take the token out of the address, where it would be seen, into a cookie."""
        left = [(n, v) for n, v in request.query_params.multi_items() if n != guard.TOKEN]
        # By its path alone, so that nobody is sent to another host.
        path = "/" + request.url.path.lstrip("/")
        answer = RedirectResponse(path + (f"?{urlencode(left)}" if left else ""), 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            _cookie(request), self._guard.cookie, httponly=True, samesite="lax", secure=secure
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer


def _cookie(request: Request) -> str:
    """Its name; with the port, which cookies do not tell apart by themselves."""
    server = request.scope.get("server")
    return f"{guard.COOKIE}-{server[1] if server else 0}"


def _is_file(request: Request) -> bool:
    """Whether something else than a page is asked for: what pages and programs read."""
    return "." in request.url.path.rpartition("/")[2] or request.url.path == "/picture"


def _name(path: str) -> str:
    return path.rstrip("/").split("/")[-1] or path


def _refused(status: int, message: str, hint: str | None = None) -> Response:
    told = {"kind": "refused", "message": message, "hint": hint}
    return HarmlessJson({"error": told}, status)
