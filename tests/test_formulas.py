"""CSV files for people run no formula, and come back to the items they were written for."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store
from posterity.cli import run
from posterity.errors import InvalidData
from posterity.storage.input import as_stored
from posterity.storage.output import harmless, write_stream
from tests import asgi

FORMULA = "=cmd|' /C calc'!A0"
IDS = [FORMULA, "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "'=quoted", "''=twice", "＝1"]
IDS += ["plain", "'plain", "-3", "a=b", ""]
NAMES = ["=fox", "cat", "-owl"]


def sets_off(cell: str) -> bool:
    """Whether a spreadsheet would take a cell for a formula."""
    return cell.startswith(tuple("=+-@\t\r\n＝＋－＠")) and cell != "-3"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    made = Store.create(tmp_path / "store", classes=NAMES)
    ids = IDS[:-1]
    made.add({"id": ids, "=text": [FORMULA] * len(ids), "count": [-3] * len(ids)})
    made.update(Model("old", accuracy=0.6, predict=lambda batch: ["=fox"] * len(batch)))
    made.register(Model("new", accuracy=0.9))
    return made


def cells(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(
    "command",
    [
        ["labels", "store", "--out", "out.csv"],
        ["labels", "store", "--since", "-1", "--out", "out.csv"],
        ["review", "store", "--out", "out.csv"],
        ["plan", "store", "new", "--budget", "1.0", "--out", "out.csv"],
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_no_cell_is_a_formula_unless_asked_for(
    store: Store, tmp_path: Path, command: list[str]
) -> None:
    assert run(command) == 0
    rows = cells(tmp_path / "out.csv")
    texts = [
        at for at, name in enumerate(rows[0]) if name not in ("count", "belief", "row", "step")
    ]
    assert not [cell for row in rows for at in texts if sets_off(cell := row[at])]
    assert all(row[rows[0].index("count")] == "-3" for row in rows[1:] if "count" in rows[0])
    assert run([*command, "--exact"]) == 0
    assert {row[rows[0].index("id")] for row in cells(tmp_path / "out.csv")[1:]} <= set(IDS)
    for suffix, read in (("parquet", pq.read_table), ("jsonl", pa.json.read_json)):
        assert run([*command[:-1], f"out.{suffix}"]) == 0
        told = read(tmp_path / f"out.{suffix}").column("id").to_pylist()
        assert set(told) == set(store.labels().column("id").to_pylist())


def test_flips_and_downloads_are_harmless_too(store: Store, tmp_path: Path) -> None:
    app = asgi.site(store.path)
    body = asgi.ask(app, "/plan.csv?model=new&budget=1.0").text
    assert f"'{FORMULA}" in body
    assert not [cell for row in csv.reader(body.splitlines()) for cell in row[:2] if sets_off(cell)]
    own = Model("new", predict=lambda batch: ["cat"] * len(batch))
    store.update(own, budget=1.0, rule="replace")
    assert run(["flips", "store", "--out", "flips.csv"]) == 0
    assert f"'{FORMULA}" in {row[0] for row in cells(tmp_path / "flips.csv")}


@pytest.mark.parametrize("exact", [False, True])
def test_answers_come_back_to_the_right_items(store: Store, tmp_path: Path, exact: bool) -> None:
    flag = ["--exact"] if exact else []
    assert run(["review", "store", "--out", "todo.csv", *flag]) == 0
    head, *rows = cells(tmp_path / "todo.csv")
    told = {}
    for row in rows:
        answer = ("cat", "'-owl" if not exact else "-owl")[len(row[0]) % 2]
        row[head.index("answer")] = answer
        told[row[0]] = answer.removeprefix("'")
    with (tmp_path / "todo.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([head, *rows])
    assert run(["review", "store", "--answers", "todo.csv"]) == 0
    labels = dict(
        zip(*(store.labels().column(name).to_pylist() for name in ("id", "label")), strict=True)
    )
    assert len(told) == len(labels) == len(IDS) - 1
    for written, label in told.items():
        marked = not exact and written.lstrip("'")[:1] in tuple("=+-@\t\r＝") and written != "-3"
        assert labels[written[1:] if marked else written] == label, written


def test_votes_come_back_to_the_right_items(store: Store, tmp_path: Path) -> None:
    assert run(["plan", "store", "new", "--budget", "1.0", "--out", "todo.csv"]) == 0
    head, *rows = cells(tmp_path / "todo.csv")
    with (tmp_path / "votes.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [["id", "vote"], *([row[head.index("id")], "cat"] for row in rows)]
        )
    command = ["update", "store", "new", "--budget", "1.0", "--rule", "replace"]
    assert run([*command, "--votes", "votes.csv", "--strict"]) == 0
    assert set(store.labels().column("label").to_pylist()) == {"cat"}


def test_the_truth_of_stored_items_comes_back(store: Store, tmp_path: Path) -> None:
    assert run(["labels", "store", "--out", "truth.csv"]) == 0
    head, *rows = cells(tmp_path / "truth.csv")
    with (tmp_path / "truth.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [["id", "truth"], *([row[head.index("id")], "cat"] for row in rows)]
        )
    told = store.register(Model("best", labelled="truth.csv"))
    assert told.pending == len(rows)
    assert not told.warning.startswith(f"{len(rows)} labelled ids are not")
    assert "not in the store" not in told.warning


def test_an_id_that_could_be_two_is_not_guessed(store: Store, tmp_path: Path) -> None:
    store.add({"id": ["=quoted"], "=text": ["x"], "count": [1]})
    table = pa.table({"id": ["'=quoted"], "answer": ["cat"]})
    path = tmp_path / "answers.csv"
    pa_csv.write_csv(table, path)
    with pytest.raises(InvalidData, match="as well as '=quoted'"):
        store.review(path)
    pa_csv.write_csv(table.rename_columns(["id", "vote"]), path)
    with pytest.raises(InvalidData, match="--exact"):
        store.update("new", votes=path, budget=1.0)
    # Where nothing was put in front of anything, nothing is taken away.
    pq.write_table(table, tmp_path / "answers.parquet")
    store.review(tmp_path / "answers.parquet")
    labels = dict(
        zip(*(store.labels().column(name).to_pylist() for name in ("id", "label")), strict=True)
    )
    assert labels["'=quoted"] == "cat"
    assert labels.get("=quoted") is None


def knowing(ids: set[str]) -> Callable[[pa.ChunkedArray], np.ndarray]:
    return lambda given: np.array([one in ids for one in given.to_pylist()], dtype=np.bool_)


@given(st.lists(st.text(alphabet="'=-3+@\tax", max_size=5), min_size=1, unique=True))
def test_what_is_written_is_read_back_or_refused(ids: list[str]) -> None:
    written = harmless(pa.table({"id": pa.array(ids, pa.string())})).column("id")
    assert not [cell for cell in written.to_pylist() if sets_off(cell) and not _number(cell)]
    try:
        assert as_stored(written, knowing(set(ids))).to_pylist() == ids
    except InvalidData:
        assert any(f"'{one}" in ids for one in ids)


def _number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def test_numbers_and_bytes(tmp_path: Path) -> None:
    table = pa.table(
        {"n": [-3], "f": [-0.5], "b": [b"=1"], "d": pa.array(["=1"]).dictionary_encode()}
    )
    write_stream(tmp_path / "out.csv", table.schema, [table])
    assert (tmp_path / "out.csv").read_text() == '"n","f","b","d"\n-3,-0.5,"\'=1","\'=1"\n'
