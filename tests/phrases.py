"""Phrases that nobody uses, over README, docs, and the texts, names and comments of src.

    python -m tests.phrases            every place, with what to write instead
    python -m tests.phrases --check    the same; exits 1 if there is one

An exception is a line of ``phrases_allowed.txt``: the path, the phrase as it stands there, and why
it stays.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_name("phrases_allowed.txt")
INSTEAD = {
    r"(as|what) (the )?(beliefs|labelled (set|items)) ha(ve|s|d) (it|them)": (
        "by the current beliefs, on the labelled set"
    ),
    r"reckon(s|ed|ing)?": "calculate, estimate, extrapolate, assume",
    r"dear(er|est)?": "expensive, costs more",
    r"mend(s|ed|ing)?": "fix",
    r"votes tell": "estimated from the votes",
    r"\d+ times in 100": "90 % interval",
    r"(nobody|no one) can tell": "not measured, unknown",
    r"(can|could|to|may) be had": "is available, costs, brings",
    r"(take|takes|taken|taking)( (it|them|these|those))? for (a|an|the|one|another|which|what)": (
        "confuse with, treat as"
    ),
    r"(leave|leaves|left|leaving)( \w+)? as (it is|they are)": "do not change",
    r"(rows|items|files?|tasks?|votes) a (shard|page|task)": "per",
    r"evaluations a step": "per",
    r"drawn( a little)? to": "shrunk towards",
}
"""What is searched, as regular expressions over words, and what to write instead."""
SEARCHED = {".md": ["README.md", "docs"], ".py": ["src"], ".html": ["src"], ".js": ["src"]}


@dataclass(frozen=True)
class Place:
    """A phrase and where it stands."""

    path: str
    line: int
    phrase: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r} (instead: {self.instead})"


def pages(root: Path) -> Iterator[Path]:
    """Every file that is searched."""
    for suffix, places in SEARCHED.items():
        for place in places:
            path = root / place
            yield from sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path]


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, the phrase as it stands there, and what to write instead."""
    for phrase, instead in INSTEAD.items():
        pattern = rf"\b(?:{phrase})\b".replace(" ", r"\s+(?:#\s+)?")
        for match in re.finditer(pattern, text, flags=re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            yield line, " ".join(match[0].replace("#", " ").split()), instead


def allowed(path: Path = ALLOWED) -> set[tuple[str, str]]:
    """Exceptions: a path and a phrase; each has a reason."""
    kept = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, phrase, why = (part.strip() for part in line.split("|"))
            if not why:
                raise ValueError(f"{path.name}: {phrase!r} in {name} has no reason.")
            kept.add((name, phrase))
    return kept


def places(root: Path = ROOT, kept: set[tuple[str, str]] | None = None) -> Iterator[Place]:
    """Every phrase that is no exception, and every exception that is not needed any more."""
    unused = set(allowed() if kept is None else kept)
    exceptions = frozenset(unused)
    for page in pages(root):
        name = page.relative_to(root).as_posix()
        for line, phrase, instead in found(page.read_text(encoding="utf-8")):
            if (name, phrase) in exceptions:
                unused.discard((name, phrase))
            else:
                yield Place(name, line, phrase, instead)
    for name, phrase in sorted(unused):
        yield Place(name, 0, phrase, f"nothing: it is gone, drop it from {ALLOWED.name}")


def main() -> None:
    """Print every place."""
    all_of_them = list(places())
    for place in all_of_them:
        print(place)
    print(f"{len(all_of_them)} phrases to replace")
    sys.exit(bool(all_of_them) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    main()
