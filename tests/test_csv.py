"""CSV as programs write it: what separates cells, encodings, and headers of small files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.cli.data import read_names
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.beliefs import priors
from posterity.method.data import text_tables
from posterity.method.data.text_tables import HEAD, delimiter_of
from posterity.storage.input import read_rows
from posterity.storage.stream import Stream
from tests.stores import NAMES, World, small_store

BOM = "\ufeff"


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("text", "name", "sign"),
    [
        ("id,text\n1,a\n", "a.csv", ","),
        ("id;text\n1;yes, and no\n2;plain\n", "a.csv", ";"),
        ("id\ttext\n1\tyes, and no\n", "a.csv", "\t"),
        ("id\ttext\n1\tyes, and no\n", "a.TSV", "\t"),
        ("id\ttext, text\n1\ta, b\n", "a.tsv", "\t"),
        ("id,text\n1,a\n", "a.tsv", ","),
        ("id,a;b;c\n1,x;y;z\n", "a.csv", ","),
        ('"id;1","b"\n"x;y","z"\n', "a.csv", ","),
        ('id;text\n1;"two\nlines, ""quoted"""\n\n', "a.csv", ";"),
        ("id;text\r\n1;a\r\n", "a.csv", ";"),
        ("id;text\r1;a\r", "a.csv", ";"),
        (f"{BOM}id;text\n1;a\n", "a.csv", ";"),
        ("id;text\n", "a.csv", ";"),
        ("id\n1\n2\n", "a.csv", ","),
        ("id\n1;2\n", "a.csv", ","),
        ("id,text\n1,a\n2,b,c\n", "a.csv", ","),
        ("id;text\n1;a\n2;b;c\n", "a.csv", ","),
        ("", "a.csv", ","),
        ("", "a.tsv", "\t"),
    ],
)
def test_what_separates_cells(text: str, name: str, sign: str) -> None:
    assert delimiter_of(text.encode(), name) == sign


def test_only_the_head_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The last row of a head may be cut anywhere, in the middle of a character too."""
    monkeypatch.setattr(text_tables, "HEAD", 64)
    text = ("id;text\n" + "1;é\n" * 100).encode()
    assert {delimiter_of(b"x" * at + text[: 64 - at], "a.csv") for at in range(20)} == {";"}
    file = tmp_path / "long.csv"
    file.write_text("id;text\n" + "".join(f"{at};x, y\n" for at in range(HEAD)))
    assert read_rows(file).num_rows == HEAD


@pytest.mark.parametrize("form", ["semicolons", "tabs", "bom", "all"])
def test_every_file_may_be_written_otherwise(form: str, world: World, tmp_path: Path) -> None:
    """Items, labelled items, votes, answers, classes, class maps and priors."""
    sign = {"tabs": "\t", "bom": ","}.get(form, ";")
    suffix = ".tsv" if form == "tabs" else ".csv"
    encoding = "utf-8-sig" if form in ("bom", "all") else "utf-8"

    def file(name: str, *columns: Any) -> Path:
        path = tmp_path / f"{name}{suffix}"
        rows = zip(*columns, strict=True)
        text = "".join(sign.join(map(str, row)) + "\n" for row in rows)
        path.write_text(text, encoding=encoding)
        return path

    ids = [f"item-{at}" for at in range(world.items)]
    kinds = file("kinds", ["class", *NAMES], ["note", *"abcd"])
    classes = read_names(str(kinds), column_name="class")
    prior = file("prior", ["class", *NAMES], ["weight", 1, 2, 3, 4])
    store = Store.create(tmp_path / "store", classes=classes, shard_rows=25, prior=prior)
    weights = store._context().class_table.read().sort_by("code")["weight"]
    assert weights.to_pylist() == [1, 2, 3, 4]
    items = file("items", ["id", *ids], ["text", *["x y"] * 60], ["label", *world.votes["old"]])
    truth = file(
        "truth",
        ["id", *(f"l-{at}" for at in range(80))],
        ["truth", *world.labelled_truth],
        ["vote", *world.labelled["old"]],
    )
    store.import_predictions(items, {"label": Model("old", labelled=truth)})
    assert store.labels()["label"].to_pylist() == world.votes["old"].tolist()
    matrix = file(
        "matrix",
        ["truth", *NAMES],
        *([n, *np.eye(4, dtype=int)[i] * 9 + 1] for i, n in enumerate(NAMES)),
    )
    words = file("map", ["model", "tom", "hound"], ["store", "cat", "dog"])
    store.register(Model("mid", confusion=matrix, class_map=words))
    cast = {"cat": "tom", "dog": "hound"}
    votes = file("votes", ["id", *ids], ["vote", *(cast.get(v, v) for v in world.votes["mid"])])
    assert store.update("mid", votes=votes, budget="100%").evaluations == 60
    answers = file("answers", ["id", *ids[:9]], ["answer", *world.truth[:9]])
    store.review(answers)
    assert store.labels()["label"].to_pylist()[:9] == world.truth[:9].tolist()
    assert store.check() == []


def test_files_of_a_folder_may_differ(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "b.csv").write_text("id;text\n2;b, c\n")
    (tmp_path / "c.tsv").write_text("id\ttext\n3\td, e\n")
    stream = Stream(tmp_path)
    rows = pa.concat_tables(batch for _, batch in stream.batches(ids="id"))
    assert rows["text"].to_pylist() == ["a", "b, c", "d, e"]


FOREIGN = "id;text\n1;plain\n2;caf\xe9 cr\xe8me\n"


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize("rows", [0, 10_000])
def test_another_encoding_is_named(encoding: str, rows: int, tmp_path: Path) -> None:
    """In the head with the line, after it with the column; nothing is guessed."""
    file = tmp_path / "votes.csv"
    file.write_text(FOREIGN.replace("1;", "1;plain\n" * rows + "1;"), encoding=encoding)
    line = r": see line 3, in Windows-1252 '2;café crème'\." if not rows else ""
    for read in (
        lambda: read_rows(file),
        lambda: list(Stream(file).batches(ids="id")),
        lambda: list(Stream(file).batches(["id", "text"], ids="id", types={"text": pa.string()})),
        lambda: read_rows(file, types={"text": pa.string()}),
    ):
        with pytest.raises(InvalidData, match=r"votes.csv' is not UTF-8 text" + line) as caught:
            read()
        assert "iconv -f WINDOWS-1252 -t UTF-8" in str(caught.value.hint)


def test_an_encoding_of_names_and_small_files(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("caf\xe9\nbar\n", encoding="cp1252")
    with pytest.raises(InvalidData, match=r"see line 1, in Windows-1252 'café'"):
        read_names(str(file))
    with pytest.raises(InvalidData, match="is not UTF-8 text"):
        priors.read(file, ["caf\xe9", "bar"])
    with pytest.raises(InvalidData, match="is not UTF-8 text"):
        Model("m", accuracy=0.5, class_map=file).answers(
            Store.create(tmp_path / "s", classes=NAMES).classes
        )
    file = tmp_path / "unicode.csv"
    file.write_text("id;text\n1;a\n", encoding="utf-16")
    with pytest.raises(InvalidData, match="those of UTF-16") as caught:
        read_rows(file)
    assert "iconv -f UTF-16" in str(caught.value.hint)


def test_a_header_of_a_class_map_is_no_class(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["cat", "dog"])
    file = tmp_path / "map.csv"
    for header in ("model,store", "Prediction,Class", "from,to", "their_name,ours"):
        file.write_text(f"{header}\ntom,cat\nhound,dog\n")
        answers = Model("m", accuracy=0.5, class_map=file).answers(store.classes)
        assert answers.rename == {"tom": "cat", "hound": "dog"}
    # A line that only maps to no class of ours is a mistake; passed over, it would be lost.
    file.write_text("tomcat,cow\nhound,dog\n")
    with pytest.raises(InvalidParameter, match="a map to our classes") as caught:
        Model("m", accuracy=0.5, class_map=file).answers(store.classes)
    assert "such as 'model,store'" in str(caught.value)
    # A class of ours may be called like a header.
    named = Store.create(tmp_path / "named", classes=["class", "label"]).classes
    file.write_text("model,class\nname,label\n")
    answers = Model("m", accuracy=0.5, class_map=file).answers(named)
    assert answers.rename == {"model": "class", "name": "label"}


def test_a_header_of_a_prior_is_no_class(tmp_path: Path) -> None:
    file = tmp_path / "prior.csv"
    file.write_text("class,weight\ncat,1\ndog,3\n")
    assert priors.read(file, ["cat", "dog"]).tolist() == [0.25, 0.75]
    file.write_text("cat,many\ndog,3\n")
    with pytest.raises(InvalidData, match="is no prior"):
        priors.read(file, ["cat", "dog"])


# Rows without a vote


@pytest.mark.parametrize("dry_run", [True, False])
def test_missing_labels_are_told(dry_run: bool, world: World, tmp_path: Path) -> None:
    table = world.table()
    old: list[Any] = world.votes["old"].tolist()
    old[7] = old[9] = old[40] = None
    table = table.append_column("old", pa.array(old)).append_column("new", [world.votes["new"]])
    store = Store.create(tmp_path / "store", classes=NAMES)
    models = {"old": Model("old", accuracy=0.6), "new": Model("new", accuracy=0.7)}
    done = store.import_predictions([table[:30], table[30:]], models, dry_run=dry_run)
    assert (
        "3 items have no label in column 'old'; the first is 'item-7', row 7 of 'the table'"
    ) in str(done)
    assert "'new'" not in str(done)
    (missing,) = done.to_dict()["missing"]
    assert (missing["model"], missing["rows"], missing["first"]) == ("old", 3, "item-7")


def test_labels_that_are_all_there_need_no_word(world: World, tmp_path: Path) -> None:
    table = world.table().append_column("old", [world.votes["old"]])
    store = Store.create(tmp_path / "store", classes=NAMES)
    done = store.import_predictions(table, {"old": Model("old", accuracy=0.6)})
    assert done.missing == []
    assert "no label in column" not in str(done)


def test_a_missing_vote_names_its_row(world: World, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", world)
    store.register(world.model("new"))
    votes: list[Any] = world.votes["new"].tolist()
    votes[17] = votes[20] = None
    table = world.votes_table("new").set_column(1, "vote", pa.array(votes))
    for given in (table, [table[:10], table[10:]]):
        with pytest.raises(
            InvalidData, match=r"2 rows without a vote; the first is 'item-17', row 17"
        ):
            store.update("new", votes=given, budget="100%")
