"""What goes wrong on a page without being seen, and what bars people from using it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Dialog, Page, Request

from tests.browser.chromium import axe

LOUD = {"error", "warning", "trace", "assert"}

LEFT = "net::ERR_ABORTED"
"""A request that was under way when somebody went to another page."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def watch(page: Page, faults: list[str]) -> None:
    """Collect what the page complains about: errors, a broken policy, calls to anybody else."""

    def told(message: ConsoleMessage) -> None:
        # Chromium says here also what the Content-Security-Policy kept the page from doing.
        if message.type in LOUD:
            faults.append(f"console {message.type}: {message.text}")

    def asked(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https"} and parts.hostname not in {"127.0.0.1", "localhost"}:
            faults.append(f"asked elsewhere: {request.url}")

    def missed(request: Request) -> None:
        if request.failure != LEFT:
            faults.append(f"failed: {request.url}")

    page.on("console", told)
    page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
    page.on("request", asked)
    page.on("requestfailed", missed)


def dismiss(page: Page, said: list[str]) -> None:
    """Note what a page asks in a window of the browser, and say no."""

    def asked(dialog: Dialog) -> None:
        said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", asked)


def barriers(page: Page) -> list[str]:
    """What axe-core finds, one line each; an empty list is a good page."""
    # Evaluated by the driver, so that the page's policy need not allow it.
    page.evaluate(axe())
    found: dict[str, Any] = page.evaluate(
        "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", RULES
    )
    return [
        f"{fault['id']} ({fault['impact']}): {fault['help']}: {fault['nodes'][0]['html']}"
        f" and {len(fault['nodes']) - 1} more"
        for fault in found["violations"]
    ]
