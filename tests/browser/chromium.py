"""The browser: Debian's Chromium, or what is on the path, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, BrowserContext, BrowserType, ViewportSize, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")

FLAGS = [
    # Tests run as root in CI, and look only at pages of our own.
    "--no-sandbox",
    "--disable-gpu",
    # It asks its makers for nothing, which closed networks refuse again and again.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Whoever drives the browser wants to know where calls come from, for which V8 reads a large
    # script three more times, unless it notes that at once; without a driver nobody asks.
    "--js-flags=--no-enable-lazy-source-positions",
]

WINDOW: ViewportSize = {"width": 1280, "height": 900}


def missing(reason: str) -> NoReturn:
    """Something these tests need is not here: skipped on a developer's machine, never in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def executable() -> Path:
    """Where Chromium is."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    missing("no Chromium on the path (.ci/browser installs Debian's)")


@cache
def axe() -> str:
    """The source of axe-core, as installed beside the packages of this environment."""
    path = Path(sys.prefix) / "node" / "node_modules" / "axe-core" / "axe.min.js"
    if not path.exists():
        missing(f"no axe-core at {path} (`make test-browser` installs it, with npm)")
    return path.read_text(encoding="utf-8")


@contextmanager
def driver() -> Iterator[BrowserType]:
    """Playwright, for Chromium."""
    executable()
    with sync_playwright() as playwright:
        yield playwright.chromium


def launch(chromium: BrowserType) -> Browser:
    """A browser in which each context is a visitor who was never here."""
    return chromium.launch(executable_path=executable(), args=FLAGS)


def launch_kept(chromium: BrowserType, profile: Path) -> BrowserContext:
    """A browser with a profile on disk, as a visitor has who comes again."""
    return chromium.launch_persistent_context(
        profile, executable_path=executable(), args=FLAGS, viewport=WINDOW
    )
