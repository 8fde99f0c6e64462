"""Advice: Python in Python, flags on the command line, from one text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from posterity import Model, Store
from posterity._text import on_command_line
from posterity.cli import cli, run
from posterity.cli.output import in_flags
from posterity.errors import CommitConflict, InvalidParameter
from tests.conftest import ROOT

SOURCE = ROOT / "src" / "posterity"
LIBRARY = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if path.relative_to(SOURCE).parts[0] not in ("cli", "web", "_text.py")
]


def texts(path: Path) -> Iterator[str]:
    """The texts of a module, whatever is put into them as ``x``; not its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in bare | inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else _put(part)
                for part in node.values
            )


def _put(part: ast.expr) -> str:
    """Something that stands for what is put into a text."""
    return "'x'" if isinstance(part, ast.FormattedValue) and part.conversion == ord("r") else "1"


def test_the_library_names_no_flags() -> None:
    """But one that Python has no parameter for."""
    named = [
        text
        for path in LIBRARY
        for text in texts(path)
        if re.search(r"(^|[\s(`'])--[a-z]", text.replace("`ray start --", ""))
        or "`posterity" in text
    ]
    assert named == [text for text in named if "--exact, on the command line" in text]


def test_all_advice_becomes_commands_and_flags_that_there_are() -> None:
    commands, told = cli.every(), 0
    for path in LIBRARY:
        for text in texts(path):
            for code in re.findall("`[^`]+`", text):
                if on_command_line(code) == code:
                    continue  # no Python: SQL, or the command of another program
                told += 1
                typed = on_command_line(code).strip("`").split()
                named = [typed[1]] if typed[0] == "posterity" else list(commands)
                assert any(_has(commands[name], code) for name in named), (path.name, code)
    assert told > 40


def _has(command: click.Command, code: str) -> bool:
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    return {
        word for word in in_flags(code, command).strip("`").split() if word[:2] == "--"
    } <= flags


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "store", classes=["cat", "dog"])
    made.add({"id": ["a", "b", "c"]})
    made.register(Model("old", accuracy=0.8))
    made.update("old", votes=dict.fromkeys("abc", "cat"))
    return made


def test_an_error_names_what_its_reader_can_type(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.register(Model("new", accuracy=0.9))
    plan = store.plan("new", budget=2)
    store.register(Model("newer", accuracy=0.9))
    store.update("newer", votes={"a": "dog"}, budget="100%")
    with pytest.raises(CommitConflict, match=r"with `rebase=True`\.$"):
        store.update("new", plan=plan.id, votes=dict.fromkeys("abc", "dog"))
    votes = Path(store.path).parent / "votes.csv"
    votes.write_text("id,vote\na,dog\nb,dog\nc,dog\n")
    asked = ["update", store.path, "new", "--plan", plan.id, "--votes", str(votes)]
    assert run(asked) == 1
    assert capsys.readouterr().err.endswith("with `--rebase`.\n")
    assert run([*asked, "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["hint"].endswith("with `--rebase`.")


def test_a_parameter_is_a_flag_of_its_command(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidParameter, match=r"^The parameter 'budget' must be"):
        store.plan("old", budget=-1)
    assert run(["plan", store.path, "old", "--budget", "-1"]) == 2
    assert capsys.readouterr().err.startswith("Error: --budget must be")
    assert run(["revert", store.path, "7"]) == 2
    assert "Error: STEP must be" in capsys.readouterr().err


def test_results_name_flags_too(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.register(Model("new", accuracy=0.9))
    for _ in range(2):
        again = store.update("new", votes=dict.fromkeys("abc", "cat"), budget="100%")
    assert "`more=True` goes on" in str(again)
    votes = Path(store.path).parent / "votes.csv"
    votes.write_text("id,vote\na,cat\nb,cat\nc,cat\n")
    asked = ["update", store.path, "new", "--votes", str(votes), "--budget", "100%"]
    assert run(asked) == 0
    assert "`--more` goes on" in capsys.readouterr().out
    assert run([*asked, "--json"]) == 0
    assert "`--more` goes on" in json.loads(capsys.readouterr().out)["note"]


def test_what_is_no_python_stays() -> None:
    for text in (
        "`is distinct from`",
        "`try_cast` where `cast` fails",
        "`isnan(x)`",
        "`x",
        "``",
        "a=b `c d`",
        "`ray start --head`",
    ):
        assert on_command_line(text) == text
