"""Nothing that a store, a file or a server says can command the terminal it is printed in."""

from __future__ import annotations

import json
import re
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.cli import cli, output, run
from posterity.errors import InvalidData
from tests.conftest import ROOT

EVIL = "\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2J\x9b31m\x7f\u202eslip\u2066\r\x00\u2028"
TEXT = f"text{EVIL}".replace("\0", "")
"""The name of a column: Arrow finds none with a null character."""
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _votes(names: list[str], shift: int, batch: pa.Table) -> list[str]:
    return [names[(len(one) + shift) % 3] for one in batch.column("id").to_pylist()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids, classes, models, payload and names of columns with escapes in them."""
    folder = tmp_path_factory.mktemp("evil") / "store"
    names = [f"{kind}{EVIL}" for kind in "abc"]
    made = Store.create(folder, classes=names)
    ids = [f"{at}{EVIL}" for at in range(40)]
    made.add({"id": ids, TEXT: [f"payload{EVIL}"] * 40})
    truth = [names[at % 3] for at in range(60)]
    for model, shift in (("old", 0), ("new", 1)):
        votes = [names[(at + (at % 4 == shift)) % 3] for at in range(60)]
        labelled = {"id": [str(at) for at in range(60)], "truth": truth, "vote": votes}
        made.update(
            Model(
                f"{model}{EVIL}",
                labelled=labelled,
                predict=partial(_votes, names, shift),
            ),
            rule="replace",
            budget=1.0,
        )
    return folder


COMMANDS = (
    *(["status"], ["log"], ["flips"], ["labels"], ["check"], ["review"], ["report"]),
    *(["reliability"], ["history", f"1{EVIL}".replace("\0", "")], ["plan", f"new{EVIL}"]),
    *(["update", f"nobody{EVIL}"], ["explain", f"nobody{EVIL}"], ["flips", "--step", EVIL]),
    *(["plan", "old", "--rule", EVIL], ["labels", "--out", f"{EVIL}.xls"], ["review", EVIL]),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("as_json", [False, True], ids=["people", "json"])
def test_what_is_printed_is_harmless(
    store: Path, command: list[str], as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run([command[0], str(store), *command[1:], *(["--json"] if as_json else [])])
    told = capsys.readouterr()
    assert told.out or told.err
    for text in (told.out, told.err):
        assert not CONTROL.search(text), text
        if as_json and text:
            json.loads(text)


def test_json_says_what_is_there(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["labels", str(store), "--json"]) == 0
    labels = json.loads(capsys.readouterr().out)["labels"]
    assert labels[7]["id"] == f"7{EVIL}"


def test_tables_on_a_terminal_are_harmless_too(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert run(["labels", str(store)]) == 0
    told = capsys.readouterr().out
    styles = re.compile(r"\x1b\[[0-9;]*m")
    assert styles.search(told)  # the terminal is one: Rich makes the head bold
    assert not CONTROL.search(styles.sub("", told))
    assert "\x1b[31m" not in told


def test_what_a_server_answers_is_harmless(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(418)
            self.end_headers()
            self.wfile.write(f"teapot {EVIL}".encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/predict,retries=0"
        command = ["update", str(store), f"new{EVIL}", "--more", "--budget", "3"]
        Store(store).add({"id": ["another"], TEXT: ["x"]})
        code = run([*command, "--predict", url])
        server.shutdown()
        thread.join()
    told = capsys.readouterr()
    assert code == 1
    assert "teapot" in told.err
    assert not CONTROL.search(told.err + told.out)


def test_a_name_in_brackets_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.show("[/nothing] [red]name[/red] :boom:")
    assert capsys.readouterr().out == "[/nothing] [red]name[/red] :boom:\n"


def test_all_is_printed_in_one_place() -> None:
    """Whoever adds a command prints with ``echo``, ``show`` or ``print_json``."""
    assert cli.every()
    for path in sorted((ROOT / "src" / "posterity" / "cli").glob("*.py")):
        if path.name != "output.py":
            found = re.findall(
                r"click\.s?echo|\bprint\(|sys\.std\w+\.write|Console\(", path.read_text("utf-8")
            )
            assert not found, f"{path.name}: {found}"


def test_a_long_message_is_cut(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["flips", str(store), "--step", "x" * 100_000]) == 2
    assert len(capsys.readouterr().err) < 5000


def test_a_null_character_in_the_name_of_a_column_is_told_of(tmp_path: Path) -> None:
    made = Store.create(tmp_path / "store", classes=["a", "b"])
    with pytest.raises(InvalidData, match="null character"):
        made.add({"id": ["x"], "te\0xt": ["y"]})
