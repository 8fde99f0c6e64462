"""Servers as processes of their own, as users start them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60.0
"""Seconds for a server to start; it may have to compile."""


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    """Without a slash at its end."""
    process: subprocess.Popen[bytes]
    log: Path
    """Everything it wrote."""

    def stop(self) -> None:
        """End it, gently if it lets us."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Servers:
    """Servers that run until the tests are over; the same command is started once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[tuple[str, ...], Served] = {}

    def __call__(self, store: Path, *args: str) -> Served:
        """The store served on a free port, with further arguments for ``posterity serve``."""
        return self.start(["-m", "posterity", "serve", str(store), "--port", "0", *args])

    def start(self, command: Sequence[str]) -> Served:
        """A Python program that says where it answers, once it answers."""
        known = self._running.get(tuple(command))
        if known is None or known.process.poll() is not None:
            log = self.folder / f"server-{len(self._running)}.log"
            known = self._running[tuple(command)] = _start(command, log)
        return known

    def stop(self) -> None:
        """End all of them."""
        for served in self._running.values():
            served.stop()


def _start(command: Sequence[str], log: Path) -> Served:
    # A file and not a pipe, which would fill up and stop the server.
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        said = re.search(r"https?://[^\s'\"]+", log.read_text(encoding="utf-8"))
        if said is not None and _answers(said[0]):
            return Served(said[0].rstrip("/"), process, log)
        time.sleep(0.05)
    process.kill()
    process.wait()
    raise AssertionError(f"No server: {' '.join(command)}\n{log.read_text(encoding='utf-8')}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True  # an answer, if no good one
    except (urllib.error.URLError, ConnectionError):
        return False
