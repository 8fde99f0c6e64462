"""Pages of the documentation are run: every block in its order, in one folder, as a reader would.

``python -m tests.transcripts docs/tutorial.md …`` writes what the commands print into the pages.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from markdown_it import MarkdownIt

from posterity.engine.evaluation import consent
from posterity.engine.ledger.context import Context
from posterity.storage.files import open_files

PROMPT, CONTINUED = "$ ", "> "


@dataclass(frozen=True)
class Block:
    """A block of code and where it stands: lines ``first`` to ``last``, without the fence."""

    language: str
    text: str
    first: int
    last: int

    @property
    def commands(self) -> list[str]:
        """What follows a prompt, with the lines that go on with it."""
        found: list[str] = []
        for line in self.text.splitlines():
            if line.startswith(PROMPT):
                found.append(line.removeprefix(PROMPT))
            elif found and found[-1].endswith("\\"):
                found[-1] += "\n" + line.removeprefix(CONTINUED)
        return found

    @property
    def shows_output(self) -> bool:
        """Whether anything stands below a command that is not the rest of it."""
        written = "\n".join(self.commands).count("\n") + 1
        return self.language == "console" and len(self.text.splitlines()) > written


def blocks(page: str) -> list[Block]:
    """All blocks of code; an indented one has the language ''."""
    found = []
    for token in MarkdownIt("commonmark").parse(page):
        if token.type in ("fence", "code_block") and token.map:
            edge = 1 if token.type == "fence" else 0
            first, last = token.map[0] + edge, token.map[1] - edge
            found.append(Block(token.info.strip(), token.content, first, last))
    return found


def shell(script: str, folder: Path, env: dict[str, str] | None = None) -> str:
    """What a script prints, errors too; it must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=folder,
        env=os.environ | {"PATH": path} | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def console(block: Block, folder: Path, env: dict[str, str] | None = None) -> str:
    """The block with what its commands print now."""
    lines = []
    for command in block.commands:
        lines.append(PROMPT + command.replace("\n", "\n" + CONTINUED))
        lines += shell(command, folder, env).splitlines()
    return "".join(f"{line}\n" for line in lines)


def python(
    block: Block, folder: Path, names: dict[str, Any], env: dict[str, str] | None = None
) -> None:
    """The block as a doctest, with the names of those before it."""
    parsed = doctest.DocTestParser().get_doctest(block.text, names, "block", None, block.first)
    parsed.globs = names  # the parser has copied it
    assert parsed.examples, f"no example in:\n{block.text}"
    said = io.StringIO()
    with contextlib.chdir(folder), patch.dict(os.environ, env or {}):
        runner = doctest.DocTestRunner(verbose=False)
        failed, _ = runner.run(parsed, out=said.write, clear_globs=False)
    assert failed == 0, said.getvalue()


def trust(folder: Path) -> None:
    """Allow what copies of stores name as sources: whoever copied them made them."""
    for description in folder.rglob("posterity.json"):
        context = Context(open_files(description.parent))
        for model in context.models.values():
            if source := model.settings.predict:
                consent.allow(context.description.store, context.files.root, source)


def transcript(
    page: str,
    folder: Path,
    *,
    skipped: Callable[[Block], bool] | None = None,
    prepared: Path | None = None,
    env: dict[str, str] | None = None,
    shows: bool | None = None,
) -> str:
    """The page as it should be: run anew, with what its commands print if it shows that at all.

    With ``prepared`` every block of commands begins in a copy of that folder instead of going on
    from the one before.
    """
    if shows is None:
        shows = any(block.shows_output for block in blocks(page))
    lines, names = page.splitlines(), dict[str, Any]()
    shift = 0
    for number, block in enumerate(blocks(page)):
        if skipped is not None and skipped(block):
            continue
        here = folder
        if prepared is not None and block.language != "python":
            here = shutil.copytree(prepared, folder / f"block-{number}")
            trust(here)
        if block.language == "python":
            python(block, here, names, env)
        elif block.language == "sh":
            shell(block.text, here, env)
        elif block.language == "console":
            written = console(block, here, env).splitlines()
            if shows:
                lines[block.first + shift : block.last + shift] = written
                shift += len(written) - (block.last - block.first)
    return "\n".join(lines) + "\n"


def stable(page: str) -> list[str]:
    """Without what differs from run to run: the ids of plans name what a plan has read."""
    return re.sub(r"\b[0-9a-f]{12}-[0-9a-f]{8}\b", "ID", page).splitlines()


if __name__ == "__main__":
    from tests.test_docs import now

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            written = now(Path(name).resolve(), Path(scratch), shows=True)
        Path(name).write_text(written, encoding="utf-8")
