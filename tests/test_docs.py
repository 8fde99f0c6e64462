"""The documentation is run: Python blocks as doctests, commands in a shell, cli.md from --help."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from posterity.cli import cli
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = ("first-hour.md",)
"""Pages with a test of their own, since each command needs what the one before has printed."""
CLI_PAGE = ROOT / "docs" / "cli.md"


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language) and page.name not in ELSEWHERE]


@pytest.mark.parametrize("page", with_blocks("python"), ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = "\n".join(blocks(page, "python"))
    parsed = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    assert parsed.examples
    failed, _ = doctest.DocTestRunner(verbose=False).run(parsed)
    assert failed == 0


@pytest.mark.parametrize("page", with_blocks("console"), ids=lambda page: page.name)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = re.findall(r"^\$ (.*)$", "\n".join(blocks(page, "console")), flags=re.MULTILINE)
    assert commands
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_the_readme_shows_what_the_demo_prints() -> None:
    command = [sys.executable, "-m", "posterity", "demo"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (shown,) = blocks(ROOT / "README.md", "text")
    assert [line.rstrip() for line in shown.splitlines() if line.strip()] == [
        line.rstrip() for line in printed.splitlines() if line.strip()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def cli_page() -> str:
    """docs/cli.md as --help tells it."""
    parts = ["# Command line", "", "Generated from `--help` by `python -m tests.test_docs`.", ""]
    parts += [
        "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted. Errors are one",
        'paragraph on stderr, or with `--json` an object `{"error": {"kind", "message", "hint"}}`.',
        "",
    ]
    parent = click.Context(cli, info_name="posterity", **cli.context_settings)
    for name, command in sorted(cli.commands.items()):
        context = click.Context(command, info_name=name, parent=parent, terminal_width=100)
        parts += [f"## posterity {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def test_the_command_line_page_is_current() -> None:
    assert CLI_PAGE.read_text(encoding="utf-8") == cli_page(), "run python -m tests.test_docs"


if __name__ == "__main__":
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")
