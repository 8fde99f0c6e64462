"""What an earlier run wrote on a generated page, for the parts that are not measured again."""

from __future__ import annotations

import re
from pathlib import Path

Sections = dict[str, list[str]]


def sections(page: Path) -> Sections:
    """The lines under each heading of the second level, without blank lines around them."""
    if not page.exists():
        return {}
    _, *parts = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    split = [part.partition("\n") for part in parts]
    return {title.strip(): body.strip("\n").split("\n") for title, _, body in split}


def rows(lines: list[str], name: str) -> list[str]:
    """The rows of a table whose first cell is this name."""
    return [line for line in lines if line.startswith(f"| {name} |")]


def block(lines: list[str], first: str) -> list[str]:
    """The lines from the one that starts like this up to the next bold heading."""
    starts = [at for at, line in enumerate(lines) if line.startswith(first)]
    if not starts:
        return []
    ends = [at for at, line in enumerate(lines) if at > starts[0] and line.startswith("**")]
    return lines[starts[0] : ends[0] if ends else None]
