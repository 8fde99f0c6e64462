"""Serve: the page at an address, until somebody stops it; the one module that knows Uvicorn."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from posterity.errors import InvalidParameter, MissingExtra, Unavailable
from posterity.reader import StoreReader
from posterity.web.server.guard import TOKEN, Guard, is_loopback, new_token

HOST, PORT = "127.0.0.1", 8000
SHORTEST = 16
"""Characters of a token that is given."""


def serve(
    store: StoreReader,
    *,
    host: str = HOST,
    port: int = PORT,
    writes: bool = False,
    token: str | None = None,
    pictures: str | os.PathLike[str] = ".",
    columns: Sequence[str] | None = None,
    tell: Callable[[str], None],
) -> None:
    """Serve the pages of a store until interrupted; ``tell`` is called with their address.

    On an address that others can reach a token is needed: the one given, or a new one. It is told
    once, as part of the address.
    """
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra.of("The web page", "web") from None
    # Only now: an extra that is missing is told of above, and a report needs none of it.
    from posterity.web.report import pages
    from posterity.web.server.app import Site
    from posterity.web.server.cache import Held

    pages.check()
    if token is not None and len(token) < SHORTEST:
        raise InvalidParameter(f"The token must have at least {SHORTEST} characters.")
    if token is None and not is_loopback(host):
        token = new_token()
    held = Held(store)
    made = Site(held, Guard(token, writes), Path(pictures), columns).app()
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    with listening:
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        tell(address + (f"?{TOKEN}={token}" if token else ""))
        threading.Thread(target=held.warm, daemon=True).start()
        # Without its access log: addresses hold ids of items, and at first the token.
        settings = uvicorn.Config(
            made, log_level="warning", access_log=False, lifespan="off", server_header=False
        )
        uvicorn.Server(settings).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound now, so that the address that is told is the one that is served."""
    made = None
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
        if made is not None:
            made.close()
        raise Unavailable(
            f"Nothing can be served at {host}:{port}: {getattr(error, 'strerror', None) or error}.",
            hint="Choose another --port (0: any that is free), or another --host.",
        ) from None
    return made
