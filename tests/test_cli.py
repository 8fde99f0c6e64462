from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from posterity import cli
from posterity.method.kernels.compiler import uninterrupted
from tests.digits import record_digits
from tests.test_replay import KEYS


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "digits.npz"
    record_digits().save(path)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    returned = cli.run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert returned == code, captured.err
    return captured.out, captured.err


def test_replay_prints_a_table(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "replay", digits, "--rules", "replace,cost-ratio:10", "--seeds", 2)
    assert "digits: 878 items, 6 models (decision tree … support vectors)" in out
    assert "cost-ratio:10" in out
    assert "mean of 2 seeds" in out
    assert err == ""  # no progress bar when piped


def test_replay_prints_json(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = "max-belief,cost-ratio:10,neutral=1"
    options = ("--rules", rules, "--budgets", "10%,0.3,50", "--selector", "entropy,random")
    out, _ = run(capsys, "replay", digits, *options, "--json")
    rows = json.loads(out)["rows"]
    assert len(rows) == 12
    assert list(rows[0]) == KEYS
    assert rows[1]["rule"] == "cost-ratio:10,neutral=1"
    assert [row["budget"] for row in rows[:6:2]] == [0.1, 0.3, 50 / 878]


def test_every_flag_reaches_the_replay(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prior, out = tmp_path / "prior.csv", tmp_path / "rows.parquet"
    prior.write_text("".join(f"{digit},1\n" for digit in range(10)))
    options = {
        "--models": "support vectors,decision tree",
        "--beliefs": "plain",
        "--confusion": "diagonal",
        "--selector": "random:3",
        "--budgets": "100%",
        "--rules": "oracle",
        "--split": "1",
        "--votes": "hard",
        "--prior": str(prior),
        "--order": "adversarial",
        "--seed": "7",
        "--seeds": "1",
        "--out": str(out),
    }
    flat = [part for pair in options.items() for part in pair]
    text, _ = run(capsys, "replay", digits, *flat, "--json")
    (row,) = json.loads(text)["rows"]
    assert row["models"] == ["support vectors", "decision tree"]
    assert (row["confusion"], row["selector"], row["rule"]) == ("diagonal", "random:3", "oracle")
    assert (row["split"], row["seed"], row["order"]) == (1.0, 7, "adversarial")
    assert row["prior"] == str(prior)
    assert row["n"] == 1528
    assert pq.read_table(out).num_rows == 3  # one run, two steps


def test_source(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "replay", digits, "--source", digits, "--json")
    row = json.loads(out)["rows"][0]
    assert (row["source"], row["split"], row["n"]) == ("digits", None, 1528)


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "message"),
    [
        (["--rules", "cost-ratio:0"], 2, "invalid-parameter", "'cost ratio' must be"),
        (["--rules", "reploce"], 2, "unknown-name", "There is no rule 'reploce'"),
        (["--selector", "x"], 2, "unknown-name", "no selector"),
        (["--budgets", "-1"], 2, "invalid-parameter", "'budget' must be"),
        (["--budgets", "110%"], 2, "invalid-parameter", "got '110%'"),
        (["--budgets", "abc"], 2, "invalid-parameter", "got 'abc'"),
        (["--budgets", ""], 2, "invalid-parameter", "--budgets must be at least one"),
        (["--models", "x"], 2, "unknown-name", "no model in 'digits' called 'x'"),
        (["--models", ""], 2, "invalid-parameter", "--models must be at least one"),
        (["--split", "0"], 2, "invalid-parameter", "--split"),
        (["--seeds", "0"], 2, "invalid-parameter", "--seeds"),
        (["--seed", "x"], 2, "usage", "'x' is not a valid integer"),
        (["--votes", "soft"], 1, "invalid-recording", "no class probabilities"),
        (["--source", "none.npz"], 1, "invalid-recording", "no recording at"),
        (["--out", "no/folder/rows.parquet"], 2, "invalid-parameter", "folder that exists"),
        (["--frobnicate"], 2, "usage", "No such option"),
        (["another.npz"], 2, "usage", "Expected one RECORDING; got 2"),
        (["--set", "val"], 2, "usage", "go with --import"),
        (["--import", "imagenetv2"], 2, "usage", "takes two paths"),
    ],
)
def test_errors_are_one_paragraph_or_one_object(
    digits: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    kind: str,
    message: str,
) -> None:
    out, err = run(capsys, "replay", digits, *arguments, code=code)
    assert out == ""
    assert err.startswith("Error: ")
    assert message in err
    assert len(err.splitlines()) == 1
    out, err = run(capsys, "replay", digits, *arguments, "--json", code=code)
    assert out == ""
    error = json.loads(err)["error"]
    assert list(error) == ["kind", "message", "hint"]
    assert error["kind"] == kind
    assert message in error["message"]


def test_a_missing_recording_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run(capsys, "replay", tmp_path / "none.npz", code=1)
    assert "There is no recording at" in err
    _, err = run(capsys, "replay", code=2)
    assert "Missing argument" in err
    _, err = run(capsys, "replya", code=2)
    assert "No such command" in err


def test_the_unexpected_is_called_a_bug(
    digits: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("wires crossed")

    monkeypatch.setattr("posterity.cli.replay.run", broken)
    _, err = run(capsys, "replay", digits, "--json", code=1)
    error = json.loads(err)["error"]
    assert error["kind"] == "bug"
    assert "wires crossed" in error["message"]
    monkeypatch.setenv(cli.TRACEBACK, "1")
    with pytest.raises(RuntimeError, match="wires crossed"):
        cli.run(["replay", str(digits)])


def test_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "clone" / "model_predictions"
    for name in ("v6", "v4"):
        (folder / f"{name}_predictions").mkdir(parents=True)
        (folder / f"{name}_predictions" / "nas_predictions.json").write_text("[0, 1]")
    (tmp_path / "clone" / "datasets").mkdir()
    labels = tmp_path / "clone" / "datasets" / "cifar10.1_v6_labels.npy"
    np.save(labels, np.array([0, 2]))
    arguments = ("replay", "--import", "cifar10.1", tmp_path / "clone", tmp_path / "out")
    out, _ = run(capsys, *arguments)
    assert "v6.npz: 2 items, 10 classes, 1 model" in out
    assert "v4 left out: its labels are not in the repository" in out
    out, _ = run(capsys, *arguments, "--json")
    assert json.loads(out)["written"][0]["models"] == ["nas"]
    out, _ = run(capsys, *arguments, "--truth", labels, "--set", "v4")
    assert "v4.npz" in out


def test_the_demo_looks_before_it_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = run(capsys, "demo", "--recording", tmp_path / "no" / "folder.npz", code=2)
    assert "a file in a folder that exists" in err


def test_the_demo_without_its_extra_gives_the_install_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "babel.messages.mofile", None)
    _, err = run(capsys, "demo", code=1)
    assert "pip install 'posterity[demo]'" in err


@pytest.mark.parametrize("arguments", [["--help"], ["replay", "--help"], ["demo", "-h"]])
def test_help_teaches(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, *arguments)
    assert "Usage: posterity" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "--version")
    assert out.startswith("posterity, version ")


def test_a_terminal_gets_a_bar_and_a_table_that_fits(digits: Path) -> None:
    # A real pseudo-terminal of 80 columns: the bar goes to stderr, the table to stdout.
    screen, terminal = pty.openpty()
    environment = os.environ | {"COLUMNS": "80", "TERM": "xterm"}
    command = [sys.executable, "-m", "posterity", "replay", str(digits), "--budgets", "10%,100%"]
    with subprocess.Popen(
        [*command, "--rules", "max-belief-min-entropy,replace"],
        stdout=terminal,
        stderr=terminal,
        env=environment,
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                read = os.read(screen, 65536)
            except OSError:  # Linux says EIO at the end of a pseudo-terminal
                break
            if not read:
                break
            shown += read
    os.close(screen)
    assert process.returncode == 0
    text = shown.decode()
    assert "Replaying" in text
    rows = [line for line in text.splitlines() if "max-belief-min-entropy" in line]
    assert len(rows) == 2  # not folded over several lines
    assert all(len(line) <= 80 for line in rows)


def test_a_reader_that_leaves_is_no_traceback(digits: Path) -> None:
    command = f"{sys.executable} -m posterity replay {digits} --json --seeds 40 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_an_interrupt_while_modules_load_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python wraps what is raised while a class is made: RuntimeError, before 3.12."""

    def stopped(*_: Any, **__: Any) -> None:
        raise RuntimeError("Error calling __set_name__ on 'cached_property'") from (
            KeyboardInterrupt()
        )

    monkeypatch.setattr(cli.cli, "main", stopped)
    assert cli.run(["status", "nowhere"]) == 130
    assert "Interrupted." in capsys.readouterr().err


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also where a shell started the tests in the background, which then ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_kernels_are_made_waits_for_them() -> None:
    """Raised while LLVM calls back, it would crash the process."""
    done = []

    def make() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            done.append("whole")

    with pytest.raises(KeyboardInterrupt):
        make()
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with uninterrupted():
        pass
