"""The store on the command line: JSON of every command, and bad input with nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from posterity import Store
from tests.stores import World, contents, write_table
from tests.test_cli import run


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store made by commands alone."""
    path = tmp_path / "store"
    write_table(world.table(), tmp_path / "items.csv")
    (tmp_path / "other.csv").write_text("id,number,lang\nitem-3,4,fr\n")
    (tmp_path / "classes.txt").write_text("cat\ndog\nfox\nowl\n")
    run(capsys, "init", path, "--classes", tmp_path / "classes.txt", "--shard-rows", 25)
    run(capsys, "add", path, tmp_path / "items.csv")
    for name in ("old", "new"):
        write_table(world.labelled_table(name), tmp_path / f"labelled_{name}.parquet")
        write_table(world.votes_table(name), tmp_path / f"{name}.parquet")
        labelled = tmp_path / f"labelled_{name}.parquet"
        run(capsys, "model", path, name, "--labelled", labelled, "--cost", 0.5)
    run(capsys, "update", path, "old", "--votes", tmp_path / "old.parquet")
    return path


def test_every_command_speaks_json(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: object, code: int = 0) -> Any:
        out, err = run(capsys, *arguments, "--json", code=code)
        assert err == ""
        return json.loads(out)

    plan = told("plan", store, "new", "--budget", "50%", "--rule", "max-belief")
    assert (plan["evaluations"], plan["eligible"], plan["cost"]) == (30, 60, 15.0)
    votes = ("--votes", tmp_path / "new.parquet")
    report = told("update", store, "new", "--plan", plan["plan"], *votes)
    assert (report["step"], report["evaluations"]) == (1, 30)
    flips = told("flips", store)["flips"]
    assert len(flips) == report["flips"] > 0
    assert told("history", store, flips[0]["id"])["history"][1]["label"] == flips[0]["new"]
    assert [step["model"] for step in told("log", store)["steps"]] == ["old", "new"]
    assert told("revert", store, 1)["changed"] == report["flips"]
    assert len(told("labels", store, "--since", 1)["changes"]) == report["flips"]
    assert told("settle", store)["settled"] == 0
    assert told("remove", store, "item-1") == {"removed": 1}
    assert told("compact", store)["purged"] == 1
    assert told("vacuum", store, "--dry-run")["deleted"] is False
    assert told("check", store) == {"broken": []}
    assert told("status", store)["items"] == 59
    other = told("init", tmp_path / "other", "--classes", "a,b")
    assert other["classes"] == 2


def test_tables_for_people(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "plan", store, "new", "--out", tmp_path / "todo.parquet")
    assert "6 of 60 eligible items (value, default budget)" in out
    assert pq.read_table(tmp_path / "todo.parquet").num_rows == 6
    votes = ("--votes", tmp_path / "new.parquet", "--budget", "100%", "--rule", "replace")
    out, _ = run(capsys, "update", store, "new", *votes)
    assert out.startswith("step 1: new voted on 60 items\n")
    out, _ = run(capsys, "update", store, "new", *votes)
    assert out.startswith("Nothing to do")
    out, _ = run(capsys, "flips", store, "--out", tmp_path / "flips.csv")
    assert "flips" in out
    assert (tmp_path / "flips.csv").read_text().startswith('"id","row","old","new"')
    for command in ("log", "status", "labels", "check", "settle"):
        out, _ = run(capsys, command, store)
        assert out
    out, _ = run(capsys, "history", store, "item-3")
    assert "old" in out
    out, _ = run(capsys, "revert", store, 1)
    assert "reverts step 1" in out
    out, _ = run(capsys, "compact", store)
    assert "files became" in out


def test_a_model_is_asked_by_its_name(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mymodels.py").write_text("def owls(batch):\n    return ['owl'] * batch.num_rows\n")
    out, _ = run(capsys, "update", store, "new", "--predict", "mymodels:owls", "--budget", 5)
    assert "new voted on 5 items" in out
    _, err = run(capsys, "update", store, "new", "--predict", "mymodels:cats", "--more", code=2)
    assert "cannot be imported" in err
    for nowhere in ("nonsense", ".:owls", "..mymodels:owls"):
        _, err = run(capsys, "update", store, "new", "--predict", nowhere, "--more", code=2)
        assert "package.module:name" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["history", "STORE", "nobody"], 1, "'nobody'"),
        (["remove", "STORE", "nobody"], 1, "'nobody'"),
        (
            ["model", "STORE", "new", "--labelled", "labelled_old.parquet"],
            1,
            "other labelled votes",
        ),
        (["model", "STORE", "x", "--labelled", "cows.csv"], 1, "unknown classes in 1 row"),
        (["add", "STORE", "empty.csv"], 1, "is empty"),
        (["add", "STORE", "other.csv"], 1, "1 id is in the store already"),
        (["add", "STORE", "twice.csv"], 1, "1 id occurs more than once: 'a'"),
        (["add", "STORE", "corrupt.parquet"], 1, "cannot be read as a table"),
        (["add", "STORE", "latin.csv"], 1, "UTF"),
        (["add", "STORE", "header.csv"], 1, "is not UTF-8 text: see line 1"),
        (["add", "STORE", "nothing.csv"], 1, "There is no file"),
        (["add", "STORE", "items.xlsx"], 1, "must end in one of"),
        (["add", "STORE", "cows.csv", "--id", "path"], 1, "has no column 'path'; it has: "),
        (
            ["update", "STORE", "new", "--votes", "cows.csv", "--id", "truth"],
            1,
            "None of the 1 id",
        ),
        (["update", "STORE", "new", "--votes", "old.parquet", "--vote", "pred"], 1, "'pred'"),
        (["update", "STORE", "new", "--votes", "repeated.csv"], 1, "more than once"),
        (["update", "STORE", "new", "--votes", "strange.csv"], 1, "unknown classes"),
        (["update", "STORE", "new"], 2, "--predict"),
        (["update", "STORE", "nwe", "--votes", "new.parquet"], 2, "Did you mean 'new'"),
        (["update", "STORE", "new", "--plan", "x", "--votes", "new.parquet"], 2, "no plan 'x'"),
        (["plan", "STORE", "new", "--where", "lang ="], 2, "filter 'lang =' cannot be used"),
        (["plan", "STORE", "new", "--where", "number / 0 = 1"], 2, "it divides by zero"),
        (["plan", "STORE", "new", "--rule", "oracle"], 2, "for replay only"),
        (["plan", "STORE", "new", "--budget", "110%"], 2, "--budget"),
        (["plan", "STORE", "new", "--out", "todo.xlsx"], 2, ".parquet, .csv or .jsonl"),
        (["revert", "STORE", "7"], 2, "0 to 0"),
        (["flips", "STORE", "--step", "7"], 2, "0 to 0"),
        (["status", "nowhere"], 1, "There is no store"),
        (["init", "STORE", "--classes", "a,b"], 1, "made with other settings: classes"),
        (["init", "other", "--classes", "a"], 2, "a file of names"),
        (["init", "other", "--classes", "a,a"], 2, "twice"),
        (["init", "other", "--classes", "a,b", "--confusion", "x"], 2, "no confusion estimator"),
        (["vacuum", "STORE", "--hours", "x"], 2, "not a valid float"),
    ],
)
def test_bad_input_is_named_and_nothing_is_lost(
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_bytes(b"")
    Path("twice.csv").write_text("id\na\na\n")
    Path("corrupt.parquet").write_bytes(b"PAR1 nonsense PAR1")
    Path("latin.csv").write_bytes("id\ncaf\xe9\n".encode("latin-1"))
    Path("items.xlsx").write_bytes(b"x")
    Path("header.csv").write_bytes(b"\x80\n")
    Path("cows.csv").write_text("truth,vote\ncat,cow\n")
    Path("repeated.csv").write_text("id,vote\nitem-1,cat\nitem-1,dog\n")
    Path("strange.csv").write_text("id,vote\n" + "".join(f"item-{at},cow\n" for at in range(60)))
    before = contents(Store(store))
    given = [str(store) if argument == "STORE" else argument for argument in arguments]
    out, err = run(capsys, *given, code=code)
    assert out == ""
    assert err.startswith("Error: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert contents(Store(store)) == before
    assert Store(store).check() == []
