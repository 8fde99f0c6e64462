"""What pages take for granted: files of the tutorial, stores and models that are there already."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.conftest import ROOT
from tests.transcripts import blocks, shell

TUTORIAL = ROOT / "docs" / "tutorial.md"
MADE_BY = ("cat > make_tickets.py", "cat > train.py")


@cache
def tutorial_files() -> dict[str, bytes]:
    """The files of the tutorial's first part: tickets, some truth, a better model."""
    page = TUTORIAL.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        for block in blocks(page):
            if block.language == "sh" and block.text.startswith(MADE_BY):
                shell(block.text, Path(scratch))
                if "make_tickets" in block.text:
                    shell("python make_tickets.py", Path(scratch))
        return {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


def put_tutorial_files(folder: Path) -> None:
    for name, content in tutorial_files().items():
        (folder / name).write_bytes(content)
