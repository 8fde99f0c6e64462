"""A model's own words become our classes: never by accident, never silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store
from posterity.errors import InvalidData, InvalidParameter, Unavailable
from posterity.method.data.classes import Classes, Name
from posterity.models.class_map import TOP, Answers, plain_column, typed_name
from tests import naive

OURS = Classes(["cat", "dog", "other"])
CATS: dict[Name, Name] = {"tabby": "cat", "siamese": "cat"}
ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}

names_of: dict[type, st.SearchStrategy[Any]] = {
    str: st.sampled_from(["a", "b", "c", "d", "1", "True", ""]),
    int: st.integers(-2, 3),
    bool: st.booleans(),
}
kinds = st.sampled_from([str, int, bool])


@st.composite
def words(draw: st.DrawFn) -> naive.Words:
    """What a model may be told of."""
    kind = draw(kinds)
    classes = draw(st.lists(names_of[kind], min_size=2, max_size=4, unique=True))
    theirs = draw(kinds)
    own = None
    if draw(st.booleans()):
        own = draw(st.lists(names_of[theirs], min_size=2, max_size=4, unique=True))
    olds = draw(st.lists(names_of[theirs], max_size=3, unique=True))
    rename = [(old, draw(st.sampled_from(classes))) for old in olds]
    other = draw(st.none() | st.sampled_from(classes))
    told = naive.Words(classes, own, rename, other)
    if own is not None and other is None:
        # A class that stands for nothing is refused; see below.
        lost = [name for name in own if told.code(name) is None]
        told.rename = [*rename, *((name, classes[0]) for name in lost)]
    return told


def answers_for(told: naive.Words, soft: int | None = None) -> Answers:
    own = None if told.own is None else tuple(told.own)
    return Answers(Classes(told.classes), own, dict(told.rename), told.other, soft)


@given(told=words(), data=st.data())
def test_a_column_equals_plain_loops(told: naive.Words, data: st.DataObject) -> None:
    kind = data.draw(kinds)
    values = data.draw(st.lists(st.none() | names_of[kind], max_size=6))
    column: Any = pa.array(values, ARROW[kind])
    form = data.draw(st.sampled_from(["plain", "dictionary", "chunked"]))
    if form == "dictionary":
        column = column.dictionary_encode()
    elif form == "chunked":
        column = pa.chunked_array([column.slice(0, 2), column.slice(2)])
    expected = [told.code(value) for value in values]
    theirs = {type(name) for name in (told.classes if told.own is None else told.own)}
    if told.own is None:
        theirs |= {type(old) for old, _ in told.rename}
    elif str in theirs:
        theirs.add(int)  # codes
    if kind not in theirs or None in expected:
        with pytest.raises(InvalidData, match=r"of type|unknown classes"):
            answers_for(told).column(column, "column 'x'")
        return
    codes = answers_for(told).column(column, "column 'x'")
    assert codes.dtype == np.int32
    assert codes.tolist() == expected


@given(told=words(), data=st.data())
def test_votes_equal_plain_loops(told: naive.Words, data: st.DataObject) -> None:
    """Names, or codes where names are texts and numbers mean nothing else."""
    own = told.classes if told.own is None else told.own
    kind = data.draw(kinds)
    values: list[Any] = data.draw(st.lists(names_of[kind], min_size=1, max_size=6))
    given: Any = np.array(values) if data.draw(st.booleans()) else values
    numbers_are_names = any(type(old) is int for old, _ in told.rename)
    as_code = kind is int and isinstance(own[0], str) and not numbers_are_names
    if as_code:
        expected = [told.code(own[at]) if 0 <= at < len(own) else None for at in values]
    else:
        expected = [told.code(value) for value in values]
    known = {type(name) for name in own}
    if told.own is None:
        known |= {type(old) for old, _ in told.rename}
    if None in expected or (kind not in known and not as_code):
        with pytest.raises(InvalidData):
            answers_for(told).votes(given, len(values))
        return
    cast = answers_for(told).votes(given, len(values))
    assert cast.hard.tolist() == expected
    assert cast.soft is None


@given(told=words(), data=st.data())
def test_probabilities_equal_plain_loops(told: naive.Words, data: st.DataObject) -> None:
    own = told.classes if told.own is None else told.own
    rows = data.draw(
        st.lists(
            st.lists(st.integers(0, 9), min_size=len(own), max_size=len(own)).filter(any),
            max_size=4,
        )
    )
    table = np.array(rows, dtype=float).reshape(-1, len(own))
    table /= table.sum(axis=1, keepdims=True)
    keep = data.draw(st.integers(1, len(told.classes)))
    if told.own is None and told.rename:
        told.rename = []  # columns without names of their own are ours
    usual = answers_for(told).probabilities(table, len(rows))
    cast = answers_for(told, soft=keep).probabilities(table, len(rows))
    assert cast.soft is not None
    assert usual.soft is not None
    assert usual.soft.codes.shape[1] == min(TOP, len(told.classes))
    for at, row in enumerate(table.tolist()):
        vote, ours = told.probabilities(row)
        assert cast.hard[at] == usual.hard[at] == vote
        kept = {
            code: weight
            for code, weight in zip(
                cast.soft.codes[at].tolist(), cast.soft.weights[at].tolist(), strict=True
            )
            if weight
        }
        assert sum(kept.values()) == pytest.approx(1)
        expected = naive.top(ours, keep)
        assert sorted(kept.values()) == pytest.approx(sorted(w for w in expected.values() if w))
        assert all(ours[code] > 0 for code in kept)


def test_true_one_and_the_text_one_are_three_names() -> None:
    for classes in (["1", "0"], [1, 0], [True, False]):
        for value in ("1", 1, True):
            answers = Answers(Classes(classes))
            column = pa.array([value])
            if type(value) is type(classes[0]):
                assert answers.column(column, "x").tolist() == [0]
                assert answers.votes([value], 1).hard.tolist() == [0]
                continue
            with pytest.raises(InvalidData, match=f"type {type(classes[0]).__name__}"):
                answers.column(column, "x")
    flags = Answers(Classes(["no", "yes"]), rename={False: "no", True: "yes"})
    assert flags.column(pa.array([True, None, False]), "x").tolist() == [1, -1, 0]
    assert flags.votes([True, False], 2).hard.tolist() == [1, 0]
    with pytest.raises(InvalidData, match="type bool"):
        Answers(Classes([0, 1]), own=(False, True), rename={False: 0, True: 1}).column(
            pa.array([0, 1]), "x"
        )
    # A map from True says nothing of a model whose classes are numbers.
    with pytest.raises(InvalidData, match="2 of the model's classes are none of ours"):
        Answers(Classes(["no", "yes"]), own=(0, 1), rename={False: "no", True: "yes"}).votes(
            [0, 1], 2
        )


def test_numbers_that_are_renamed_are_names_not_codes() -> None:
    """In a file and from the model itself the same number means the same class."""
    answers = Answers(OURS, rename={0: "dog", 1: "cat"})
    assert answers.column(pa.array([0, 1]), "x").tolist() == [1, 0]
    assert answers.votes([0, 1], 2).hard.tolist() == [1, 0]
    assert Answers(OURS).votes([0, 1], 2).hard.tolist() == [0, 1]
    with pytest.raises(InvalidData, match="unknown classes"):
        answers.votes([2], 1)


def test_what_a_model_says_it_knows_is_all_it_may_say() -> None:
    answers = Answers(OURS, own=("dog", "tabby"), rename=CATS, other="other")
    assert answers.column(pa.array(["tabby", "dog"]), "x").tolist() == [0, 1]
    assert answers.votes([0, 1], 2).hard.tolist() == [1, 0]  # its own codes
    for stranger in ("cat", "siamese", "newt"):
        with pytest.raises(InvalidData, match=rf"x names unknown classes in 1 row: \['{stranger}"):
            answers.column(pa.array(["dog", stranger]), "x")
    swapped = Answers(OURS, own=("cat", "dog"), rename={"cat": "dog", "dog": "cat"})
    assert swapped.column(pa.array(["cat", "dog"]), "x").tolist() == [1, 0]
    assert swapped.votes([[0.9, 0.1]], 1).hard.tolist() == [1]


@pytest.mark.parametrize(
    ("given", "items", "message"),
    [
        (["cat", None], 2, "no vote in row 1"),
        (["cat", float("nan")], 2, "no vote in row 1"),
        (np.array([0.0, np.nan]), 2, "no vote in row 1"),
        (["cat", 1], 2, "one type, codes or probabilities; got int, str"),
        ([0, True], 2, "got bool, int"),
        ([0.0, 1.0], 2, "got float"),
        ([pd.NA], 1, "got NAType"),
        ([b"cat"], 1, "got bytes"),
        ([3], 1, "between 0 and 2"),
        ([-1], 1, "between 0 and 2"),
        ([2**70], 1, "."),
        (["\ud800"], 1, "cannot be class names"),
        (["cow"], 1, "'cow'"),
        ([[0.5, 0.4, 0.0]], 1, "must sum to one; row 0"),
        ([[1, 0, 0], [0.5, 0.5, np.nan]], 2, "finite numbers; row 1"),
        ([[1.5, -0.5, 0]], 1, "must not be negative; row 0"),
        ([[0, 0, 0]], 1, "row 0 are all zero"),
        ([[1, 0], [1]], 2, "as many in each row"),
        ([["a", "b", "c"]], 1, "must be numbers"),
        (np.array([["a", "b", "c"]]), 1, "must be numbers"),
        (np.zeros((1, 3, 1)), 1, "."),
    ],
)
def test_what_a_model_must_not_say(given: Any, items: int, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Answers(OURS).votes(given, items)


@pytest.mark.parametrize(
    ("given", "items", "message"),
    [
        (["cat"], 2, "given 2 items and returned 1 answer"),
        ([[1, 0, 0]], 2, "given 2 items and returned 1 answer"),
        (np.array(["cat"] * 3), 2, "given 2 items and returned 3 answers"),
        (np.array(1), 2, "given 2 items and returned 1 answer"),
        ("cat", 3, "returned one str instead"),
        ({"cat": 1}, 1, "returned one dict instead"),
        (7, 1, "returned one int instead"),
        (None, 1, "returned one NoneType instead"),
        ([[0.5, 0.5]], 1, r"3 classes; got shape \(1, 2\)"),
    ],
)
def test_answers_of_another_shape_are_no_items_fault(given: Any, items: int, message: str) -> None:
    with pytest.raises(Unavailable, match=message):
        Answers(OURS).votes(given, items)


def test_int_classes_too_large_for_a_column() -> None:
    with pytest.raises(InvalidData, match="cannot be class names"):
        Answers(Classes([1, 2])).votes([2**70], 1)
    with pytest.raises(InvalidData, match="cannot be class names"):
        plain_column(pa.array([2**63], pa.uint64()))


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        pl.Series,
        pa.array,
        lambda votes: pa.chunked_array([votes]),
        lambda votes: pa.array(votes).dictionary_encode(),
        iter,
    ],
)
def test_votes_come_in_every_form(make: Any) -> None:
    assert Answers(OURS).votes(make(["dog", "cat"]), 2).hard.tolist() == [1, 0]


@pytest.mark.parametrize(
    "make",
    [
        list,
        np.array,
        lambda rows: [np.array(row) for row in rows],
        lambda rows: np.array(rows, dtype=np.float16),
        lambda rows: pa.array(rows),
        lambda rows: pa.array(rows, pa.list_(pa.float32(), 3)),
        lambda rows: pd.DataFrame(rows, columns=list(OURS)),
        lambda rows: pl.DataFrame(rows, schema=["cat", "dog", "other"], orient="row"),
    ],
)
def test_probabilities_come_in_every_form(make: Any) -> None:
    """As many items as classes: a frame must not be taken for a list of its column names."""
    rows = [[0.0, 1.0, 0.0], [0.5, 0.25, 0.25], [0.0, 0.25, 0.75]]
    cast = Answers(OURS, soft=2).votes(make(rows), 3)
    assert cast.hard.tolist() == [1, 0, 2]
    assert cast.soft is not None


def test_nothing_is_an_answer_for_nobody() -> None:
    nobody: Any
    for nobody in ([], np.zeros((0, 3)), np.array([], dtype=int), pa.array([], pa.string())):
        assert len(Answers(OURS).votes(nobody, 0)) == 0
    assert Answers(OURS).column(pa.nulls(2), "x").tolist() == [-1, -1]


@pytest.mark.parametrize(
    "told",
    [
        {"rename": {"tabby": "cow"}},
        {"rename": {"tabby": 1}},
        {"other": "cow"},
        {"other": 0},
        {"soft": 0},
        {"soft": 4},
    ],
)
def test_what_must_not_be_told(told: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        Answers(OURS, **told)


def test_classes_without_a_place() -> None:
    with pytest.raises(InvalidData, match=r"1 of the model's classes are none of ours: \['newt'\]"):
        Answers(OURS, own=("cat", "newt")).votes([0], 1)


def test_names_in_files_without_types() -> None:
    assert typed_name("01", str) == "01"
    assert typed_name("-7", int) == -7
    assert typed_name("TRUE", bool) is True
    for text, kind in (("01", int), ("1.0", int), ("", int), ("1", bool), ("yes", bool)):
        with pytest.raises(InvalidData, match="is no class name of type"):
            typed_name(text, kind)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("map.csv", "\ufefftabby,cat\nsiamese, cat\n\n"),
        ("map.json", '{"tabby": "cat", "siamese": "cat"}'),
        ("map.txt", '"tabby","cat"\nsiamese,cat\n'),
    ],
)
def test_class_maps_in_files(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    for path in (tmp_path / name, str(tmp_path / name)):
        model = Model("m", accuracy=0.5, class_map=path, other="other")
        assert model.answers(OURS).rename == CATS
        again = model.settings(OURS).answers(OURS)
        assert (again.rename, again.other, again.own) == (CATS, "other", None)
    store = Store.create(tmp_path / "store", classes=OURS)
    store.import_predictions(
        {"id": ["a", "b", "c"], "pred": ["tabby", "dog", "newt"]},
        {"pred": Model("m", accuracy=0.5, class_map=tmp_path / name, other="other")},
    )
    assert store.labels()["label"].to_pylist() == ["cat", "dog", "other"]
    store.add({"id": ["d"]})  # the map is the store's now
    store.update("m", votes={"id": ["d"], "vote": ["siamese"]}, budget="100%")
    assert store.labels()["label"].to_pylist()[-1] == "cat"
    assert store.check() == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("map.csv", "tabby,cat,7\n", "is no class map"),
        ("map.csv", "tabby,cat\ntabby,dog\n", "names a class twice"),
        ("map.json", '{"tabby": "cat", "tabby": "dog"}', "names a class twice"),
        ("map.json", '["tabby"]', "is no class map"),
        ("map.json", "{", "is no class map"),
        ("map.json", "[" * 100_000, "is no class map"),
        ("map.csv", "tabby,cow\n", "a map to our classes"),
        ("gone.csv", None, "no class map"),
    ],
)
def test_bad_class_maps(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises((InvalidData, InvalidParameter), match=message):
        Model("m", accuracy=0.5, class_map=tmp_path / name).answers(OURS)


def test_class_maps_to_numbers(tmp_path: Path) -> None:
    file = tmp_path / "map.csv"
    file.write_text("cat,1\ndog,2\n")
    answers = Model("m", accuracy=0.5, class_map=file).answers(Classes([1, 2]))
    assert answers.rename == {"cat": 1, "dog": 2}
    file.write_text("7,1\n8,2\n")
    own = Model("m", accuracy=0.5, class_map=file, classes=[7, 8]).answers(Classes([1, 2]))
    assert own.rename == {7: 1, 8: 2}
    assert own.column(pa.array([8, 7]), "x").tolist() == [1, 0]
    file.write_text("x,1\n")
    with pytest.raises(InvalidData, match="no class name of type int"):
        Model("m", accuracy=0.5, class_map=file, classes=[7, 8]).answers(Classes([1, 2]))
