"""The house: how the package is built, measured on its own source.

    python -m tests.house            the floors, and each measure beside its bar
    python -m tests.house --check    the same without the floors; exits 1 if a bar is missed

A module stands one floor above the highest module it imports, wherever in its code it does so.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "posterity"
VERBAL = re.compile(r"(?<!str)ing$|[^e]ed$|^(asked|given|held|known|told|found|kept)$")
"""Gerunds and participles; not nouns such as ``string`` and ``feed``."""
TERMS = {"labelled", "recording", "hugging"}
"""Terms of the glossary (the labelled set, a recording) and a name (Hugging Face)."""


class House:
    """The modules of a package and what they import."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.source = source
        self.files = {self._name(path): path for path in sorted(source.rglob("*.py"))}
        self.trees = {name: ast.parse(path.read_text("utf-8")) for name, path in self.files.items()}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.source.parent).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """For each module, those it imports."""
        return {name: set(self._imports(name)) - {name} for name in self.files}

    def _imports(self, name: str) -> Iterator[str]:
        for node in ast.walk(self.trees[name]):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.files)
            elif isinstance(node, ast.ImportFrom) and node.module in self.files:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in self.files else str(node.module)

    @cached_property
    def floors(self) -> dict[str, int]:
        """The floor of each module; the lowest is 1."""
        found: dict[str, int] = {}

        def floor(name: str) -> int:
            if name not in found:
                found[name] = 0  # a circle would otherwise go on for ever
                found[name] = 1 + max(map(floor, self.imports[name]), default=0)
            return found[name]

        for name in self.files:
            floor(name)
        return found

    @cached_property
    def lines(self) -> dict[str, int]:
        """How long each module is."""
        return {
            name: len(path.read_text("utf-8").splitlines()) for name, path in self.files.items()
        }

    @property
    def with_code(self) -> list[str]:
        """Modules that hold more than the description of their package."""
        return [name for name, tree in self.trees.items() if len(tree.body) > 1]

    @property
    def classes(self) -> Counter[str]:
        """How often each class name is used."""
        return Counter(
            node.name
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        )

    @property
    def verbal(self) -> list[str]:
        """Modules and packages named by a gerund or a participle."""
        return [
            name
            for name in self.files
            for word in name.rpartition(".")[2].split("_")
            if VERBAL.search(word) and word not in TERMS
        ]

    def measures(self) -> Iterator[tuple[str, int, int]]:
        """What is measured, how much there is, and how much there may be."""
        folders = Counter(path.parent for path in self.files.values())
        packages = [path for path in self.source.iterdir() if (path / "__init__.py").exists()]
        yield "floors", max(self.floors.values()), 20
        yield "modules with code", len(self.with_code), 180
        yield "packages at the root", len(packages), 8
        yield "files at the root", folders[self.source], 8
        yield "modules in the fullest folder", max(folders.values()), 13
        yield "lines of the longest module", max(self.lines.values()), 400
        yield "class names used twice", sum(count > 1 for count in self.classes.values()), 0
        yield "modules named by a verb's form", len(self.verbal), 0

    def drawn(self) -> str:
        """The floors from the top, each with its modules and their lines."""
        storeys = defaultdict(list)
        for name, floor in self.floors.items():
            storeys[floor].append(f"{name.partition('.')[2] or name} ({self.lines[name]})")
        return "\n".join(
            f"{floor:3}  " + "  ".join(storeys[floor]) for floor in sorted(storeys, reverse=True)
        )


def main() -> None:
    """Print the house; with ``--check`` only whether its bars hold."""
    house, check = House(), "--check" in sys.argv[1:]
    if not check:
        print(house.drawn(), end="\n\n")
    missed = 0
    for what, there, most in house.measures():
        missed += there > most
        print(f"{what}: {there:,} (at most {most:,})" + ("" if there <= most else "  MISSED"))
    print(f"modules with package descriptions: {len(house.files):,}")
    print(f"lines: {sum(house.lines.values()):,}")
    sys.exit(missed > 0 and check)


if __name__ == "__main__":
    main()
