from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Classes, ClassMap
from posterity.errors import InvalidData, InvalidParameter

names = st.one_of(
    st.lists(st.text(), min_size=2, unique=True),
    st.lists(st.integers(), min_size=2, unique=True),
    st.permutations([False, True]),
)


@given(names, st.data())
def test_codes_go_back_to_names(listed: list[Any], data: st.DataObject) -> None:
    classes = Classes(listed)
    chosen = data.draw(st.lists(st.sampled_from(listed)))
    codes = classes.encode(chosen)
    assert codes.dtype == np.int32
    assert classes.decode(codes) == chosen
    assert [type(name) for name in classes.decode(codes)] == [type(name) for name in chosen]


@pytest.mark.parametrize(
    "array",
    [np.array(["b", "a"]), np.array([3, 1], dtype=np.uint8), np.array([True, False])],
)
def test_numpy_arrays_are_names_too(array: np.ndarray) -> None:
    assert Classes(array).encode(array).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("listed", "value"),
    [(["0", "1"], 1), ([0, 1], "1"), ([0, 1], True), ([False, True], 1), ([0, 1], 1.0)],
)
def test_types_are_never_converted_silently(listed: list[Any], value: Any) -> None:
    with pytest.raises(InvalidData, match="convert one to the other"):
        Classes(listed).encode([value])


def test_an_unknown_name_is_named_with_its_row() -> None:
    with pytest.raises(InvalidData, match=r"Row 1 holds 'cow'.*'cat', 'dog'"):
        Classes(["cat", "dog"]).encode(["cat", "cow"])


def test_missing_values_only_where_allowed() -> None:
    classes = Classes(["cat", "dog"])
    assert classes.encode(["dog", None, float("nan")], allow_missing=True).tolist() == [1, -1, -1]
    with pytest.raises(InvalidData, match="Row 0 holds None"):
        classes.encode([None])


@pytest.mark.parametrize(
    "listed", [[], ["only"], ["a", 1], [0, True], ["a", "a"], [1.5, 2.5], [None, "a"]]
)
def test_impossible_classes_are_refused(listed: list[Any]) -> None:
    with pytest.raises(InvalidParameter, match="'classes'"):
        Classes(listed)


def test_appending_keeps_codes() -> None:
    grown = Classes(["b", "a"]).extend(["c"])
    assert grown.encode(["b", "a", "c"]).tolist() == [0, 1, 2]
    with pytest.raises(InvalidParameter, match="twice"):
        grown.extend(["a"])


@pytest.mark.parametrize("code", [-2, 2, 0.5, True])
def test_codes_out_of_range_are_refused(code: Any) -> None:
    with pytest.raises(InvalidData, match=r"between|integer"):
        Classes(["a", "b"]).decode([code])


def test_one_text_is_not_a_list_of_names() -> None:
    with pytest.raises(InvalidParameter, match="not one text"):
        Classes("abc")
    with pytest.raises(InvalidData, match="not one text"):
        Classes(["a", "b"]).encode("ab")


def test_a_model_with_fewer_classes_maps_by_name() -> None:
    mapped = ClassMap.between(Classes(["fox", "cat"]), Classes(["cat", "dog", "fox"]))
    assert mapped.votes(np.array([0, 1, -1], dtype=np.int32)).tolist() == [2, 0, -1]
    assert mapped.probabilities(np.array([[0.25, 0.75]])).tolist() == [[0.75, 0.0, 0.25]]


def test_classes_without_a_home_are_named() -> None:
    theirs, ours = Classes(["cat", "newt"]), Classes(["cat", "dog"])
    with pytest.raises(InvalidData, match="newt"):
        ClassMap.between(theirs, ours)
    with pytest.raises(InvalidData, match="other"):
        ClassMap.between(theirs, ours, other="other")
    with pytest.raises(InvalidParameter, match="from the model's classes; got 'eft'"):
        ClassMap.between(theirs, ours, rename={"eft": "dog"})
    with pytest.raises(InvalidParameter, match="to our classes; got 'dgo'"):
        ClassMap.between(theirs, ours, rename={"newt": "dgo"}, other="dog")


def test_booleans_are_not_taken_for_integers() -> None:
    with pytest.raises(InvalidData, match="none of ours"):
        ClassMap.between(Classes([False, True]), Classes([0, 1]))
    mapped = ClassMap.between(Classes([False, True]), Classes([0, 1]), rename={False: 0, True: 1})
    assert mapped.codes.tolist() == [0, 1]


def test_a_models_votes_out_of_range_are_refused() -> None:
    mapped = ClassMap.between(Classes(["a", "b"]), Classes(["a", "b", "c"]))
    with pytest.raises(InvalidData, match="between"):
        mapped.votes([2])
    with pytest.raises(InvalidData, match="integer class codes"):
        mapped.votes([True])
    with pytest.raises(InvalidData, match=r"shape \(items, 2\)"):
        mapped.probabilities([[0.2, 0.3, 0.5]])
