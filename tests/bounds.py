"""The dependencies of the core, as old or as new as pyproject.toml allows, as pip takes them.

``python -m tests.bounds oldest`` is what `make test-oldest` installs.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def requirements(kind: str) -> list[str]:
    """The core's dependencies: ``oldest`` at their lower bounds, ``newest`` whatever there is."""
    listed: list[str] = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    if kind == "newest":
        return listed
    if kind != "oldest":
        raise SystemExit("Usage: python -m tests.bounds oldest|newest")
    return [one.replace(">=", "==") for one in listed]


if __name__ == "__main__":
    print(*requirements(sys.argv[1]))
