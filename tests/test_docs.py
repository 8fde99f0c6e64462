"""The documentation is run: every block of code of every page, and cli.md from --help."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from benchmarks import PAGES as MEASUREMENTS
from benchmarks import figures

from posterity.cli import cli
from tests.conftest import ROOT
from tests.page_folders import put_models, put_photos, put_tutorial_files
from tests.s3 import serving_s3
from tests.transcripts import Block, blocks, stable, transcript

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CLI_PAGE = ROOT / "docs" / "cli.md"
GUARANTEES = ROOT / "docs" / "reference" / "guarantees.md"
RUN = {"console", "python", "sh"}
ELSEWHERE = {"docs/howto/ray.md": "tests/on_ray"}
"""Pages that other tests run."""
SHOWN = {
    "text": "what a program prints (generated, or compared by a test of its own), or a file holds",
    "{toctree}": "the order of the site's pages",
    "{eval-rst}": "where the site puts docstrings, which are run as doctests",
}
"""Kinds of blocks that hold no code, and what they hold."""
NOT_RUN = {
    ("README.md", "make demo"): "these are the tests themselves",
    ("docs/howto/other-tools.md", ">>> from pyspark"): "PySpark is too large for the tests",
    (
        "docs/explanation/beliefs.md",
        "$ posterity replay emotion_llm.npz",
    ): "minutes, on a recording of its own",
    ("docs/howto/object-store.md", "export AWS"): "credentials are those of the tests' server",
    ("docs/howto/look.md", "posterity serve"): "goes on until it is stopped; see tests/browser",
    ("docs/howto/look.md", "curl"): "asks that server; see tests/browser",
    ("docs/howto/ray.md", "posterity update s3://"): "a cluster of several machines",
    ("docs/models.md", "$ posterity update tickets llm"): "asks a server that is not there",
    ("docs/reference/replay.md", "git clone"): "clones two repositories",
    ("docs/explanation/scale.md", "pip install"): "starts a cluster of several machines",
    ("docs/explanation/scale.md", "posterity plan   s3://"): "a cluster of several machines",
    ("docs/explanation/scale.md", ">>> store"): "a cluster of several machines",
    ("docs/tutorial.md", "posterity serve"): "goes on until it is stopped; see tests/browser",
    ("docs/tutorial.md", "python3 -m venv"): "the tests run in such an environment",
}
"""Blocks that would run, but not here: page, how the block begins, why."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_not_run(page: Path, block: Block) -> bool:
    return any(name_of(page) == name and block.text.startswith(start) for name, start in NOT_RUN)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


PHOTOS = (
    "promise-a-limit cost-per-class compare-models budget-over-steps skewed-classes unlike-data"
)
PREPARED = {
    **{f"docs/howto/{name}.md": put_photos for name in [*PHOTOS.split(), "review", "explain"]},
    "docs/models.md": put_models,
}
"""Pages whose commands are about stores that are there: each block has them anew."""


@contextmanager
def folder_of(page: Path, scratch: Path) -> Iterator[dict[str, Any]]:
    """Where a page is run, and with what."""
    folder, prepared = scratch / "here", scratch / "prepared"
    folder.mkdir()
    given: dict[str, Any] = {"folder": folder}
    if put := PREPARED.get(name_of(page)):
        prepared.mkdir()
        put(prepared)
        given["prepared"] = prepared
    elif page.parent.name == "howto" or page.name == "choosing.md":
        put_tutorial_files(folder)
    if page.name == "object-store.md":
        with serving_s3("bucket") as options:
            yield given | {"env": options}
    else:
        yield given


def now(page: Path, scratch: Path, *, shows: bool | None = None) -> str:
    """The page as it should be."""
    with folder_of(page, scratch) as given:
        return transcript(
            text_of(page), skipped=lambda block: is_not_run(page, block), shows=shows, **given
        )


def is_run_here(page: Path) -> bool:
    return name_of(page) not in ELSEWHERE and any(b.language in RUN for b in blocks(text_of(page)))


FIRST_READ = {"README.md", "docs/tutorial.md"}
"""Pages with commands that are run in `make test`; those of the others are in `make test-long`."""


def run_pages() -> list[Any]:
    found = []
    for page in filter(is_run_here, PAGES):
        commands = any(block.language != "python" for block in blocks(text_of(page)))
        long = commands and name_of(page) not in FIRST_READ
        found.append(pytest.param(page, id=name_of(page), marks=[pytest.mark.long] * long))
    return found


@pytest.mark.parametrize("page", run_pages())
def test_a_page_says_what_happens(page: Path, tmp_path: Path) -> None:
    told = f"run python -m tests.transcripts {name_of(page)}"
    assert stable(now(page, tmp_path)) == stable(text_of(page)), told


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_said_to_be_something_else(page: Path) -> None:
    for block in blocks(text_of(page)):
        where = f"{name_of(page)}:{block.first}"
        assert block.language, f"{where}: an indented block is not run; fence it"
        assert block.language in RUN | set(SHOWN), f"{where}: {block.language}"


def test_what_is_not_run_is_there() -> None:
    for name, start in NOT_RUN:
        assert any(block.text.startswith(start) for block in blocks(text_of(ROOT / name))), name


@pytest.mark.long
def test_the_readme_shows_what_the_demo_prints() -> None:
    command = [sys.executable, "-m", "posterity", "demo"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (shown,) = [b.text for b in blocks(text_of(ROOT / "README.md")) if b.language == "text"]
    assert [line.rstrip() for line in shown.splitlines() if line.strip()] == [
        line.rstrip() for line in printed.splitlines() if line.strip()
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", text_of(page)):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_pages_that_are_mentioned_are_there() -> None:
    sources = [*PAGES, ROOT / "Makefile", *(ROOT / "src").rglob("*.py")]
    for source in sources:
        for name in re.findall(r"\bdocs/[\w/-]+\.md", text_of(source)):
            assert (ROOT / name).exists(), f"{name_of(source)}: {name}"


def cli_page() -> str:
    """docs/cli.md as --help tells it."""
    parts = ["# Command line", "", "Generated from `--help` by `python -m tests.test_docs`.", ""]
    parts += [
        "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted. Errors are one",
        'paragraph on stderr, or with `--json` an object `{"error": {"kind", "message", "hint"}}`.',
        "",
    ]
    parent = click.Context(cli, info_name="posterity", **cli.context_settings)
    for name, command in sorted(cli.every().items()):
        context = click.Context(command, info_name=name, parent=parent, terminal_width=100)
        parts += [f"## posterity {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def test_the_command_line_page_is_current() -> None:
    assert text_of(CLI_PAGE) == cli_page(), "run python -m tests.test_docs"


if __name__ == "__main__":
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")


def test_the_five_figures_are_those_of_the_generated_pages() -> None:
    pages = ROOT / MEASUREMENTS
    assert text_of(pages / "index.md") == figures.page(pages), "run python -m benchmarks.figures"


def test_a_figure_follows_its_page(tmp_path: Path) -> None:
    """What is compared above is read from the pages: another number there is another figure."""
    pages = shutil.copytree(ROOT / MEASUREMENTS, tmp_path / "measurements")
    before = figures.page(pages)
    for name in {figure(pages).page for figure in figures.FIGURES}:
        page = pages / f"{name}.md"
        page.write_text(re.sub(r"(?<=\d)\.(?=\d)", ".9", text_of(page)))
        after = figures.page(pages)
        assert after != before, name
        before = after


def test_every_generated_page_is_listed() -> None:
    there = {page.stem for page in (ROOT / MEASUREMENTS).glob("*.md")} - {"index"}
    assert there == set(figures.OTHERS)


def test_every_guarantee_names_tests_that_exist() -> None:
    named = re.findall(r"`(?:(tests/\w+\.py)(?:::(\w+))?|(test_\w+))`", text_of(GUARANTEES))
    assert named
    file = ""
    for path, first, more in named:
        file = path or file
        source = (ROOT / file).read_text(encoding="utf-8")
        if first or more:
            assert f"def {first or more}(" in source
