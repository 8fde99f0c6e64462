"""Guard: who may look at the page, who may change something, and what a page may load."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

COOKIE = "posterity"
TOKEN = "token"  # noqa: S105 the name of a parameter
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Nothing from another host, no script that is not a file of ours, no frame around the page."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
ALONE = "default-src 'none'; sandbox"
"""The policy of a picture that somebody opens by itself."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _equal(given: str | None, right: str) -> bool:
    return given is not None and hmac.compare_digest(
        given.encode("utf-8", "replace"), right.encode()
    )


def new_token() -> str:
    """A token nobody guesses."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Guard:
    """Decides about requests; knows nothing of how they come."""

    token: str | None
    """Who has it may look; None: whoever is on this machine."""
    writes: bool = False

    def host_allowed(self, host: str) -> bool:
        """Whether a request is meant for us.

        Without a token only loopback names are: a page of another site whose name was made to
        point here would otherwise be read by that site.

        >>> Guard(None).host_allowed("localhost:8000"), Guard(None).host_allowed("evil.example")
        (True, False)
        """
        if self.token is not None:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name)

    def token_right(self, given: str | None) -> bool:
        """Whether a token is the right one; how long that takes does not tell how near it was."""
        return self.token is None or _equal(given, self.token)

    @property
    def cookie(self) -> str:
        """What a browser that has shown the token keeps instead of it."""
        key = (self.token or "").encode()
        return hmac.new(key, b"posterity cookie", hashlib.sha256).hexdigest()

    def cookie_right(self, given: str | None) -> bool:
        """Whether a browser has shown the token before."""
        return self.token is None or _equal(given, self.cookie)

    def bearer_right(self, header: str | None) -> bool:
        """Whether a program has the token in its ``Authorization``."""
        if self.token is None:
            return True
        kind, _, given = (header or "").partition(" ")
        return kind.lower() == "bearer" and self.token_right(given.strip())

    @staticmethod
    def same_origin(headers: Mapping[str, str]) -> bool:
        """Whether a change was asked for by our own page, or by no page at all.

        Browsers say where a request comes from; programs do not. A form of another site can send
        no JSON without being asked first, and we never allow that.

        >>> Guard.same_origin({"host": "localhost:8000", "origin": "http://localhost:8000",
        ...                    "content-type": "application/json"})
        True
        >>> Guard.same_origin({"host": "localhost:8000", "origin": "http://evil.example",
        ...                    "content-type": "application/json"})
        False
        """
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            return False
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        try:
            return origin is None or urlsplit(origin).netloc == headers.get("host")
        except ValueError:
            return False

    @staticmethod
    def is_cross_site(headers: Mapping[str, str]) -> bool:
        """Whether another site has sent the visitor's browser here.

        Where a browser does not say so itself (it does for this machine, and over HTTPS), its
        Origin and Referer tell. Our own pages send no Referer.

        >>> Guard.is_cross_site({"host": "localhost:8000", "referer": "http://evil.example/a"})
        True
        """
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site not in ("same-origin", "none")
        try:
            return any(
                urlsplit(headers[name]).netloc != headers.get("host")
                for name in ("origin", "referer")
                if name in headers
            )
        except ValueError:
            return True

    @staticmethod
    def from_elsewhere(headers: Mapping[str, str]) -> bool:
        """Whether a page of another site asks for a part of ours; a link to a page is none.

        >>> Guard.from_elsewhere({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})
        True
        """
        mode = headers.get("sec-fetch-mode")
        linked = mode == "navigate" if mode is not None else "origin" not in headers
        return Guard.is_cross_site(headers) and not linked
