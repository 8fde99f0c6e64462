"""Row sets, against sets of Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posterity.engine.plan.score import Taken
from posterity.method.data.row_sets import RowSet, packed


@given(
    parts=st.lists(st.sets(st.integers(0, 99), max_size=30), max_size=4),
    start=st.integers(0, 120),
    items=st.integers(0, 120),
)
def test_a_row_set_is_a_set_of_rows(parts: list[set[int]], start: int, items: int) -> None:
    rows, wanted = RowSet(100), set[int]()
    for part in parts:
        rows.mark(np.array(sorted(part, key=lambda row: row % 7), dtype=np.int64))
        wanted |= part
        assert len(rows) == len(wanted)
    assert rows.all().tolist() == sorted(wanted)
    assert rows.all().dtype == np.int64
    own = [row for row in range(start, start + items) if row in wanted]
    assert rows.between(start, items).tolist() == own
    assert (np.flatnonzero(rows.among(start, items)) + start).tolist() == own
    asked = np.arange(200)[::-1]
    assert rows[asked].tolist() == [row in wanted for row in asked.tolist()]
    assert RowSet.of(np.array([*wanted, *wanted], dtype=np.int64)).all().tolist() == sorted(wanted)


def test_nothing_is_held_of_nothing() -> None:
    empty = RowSet(0)
    assert len(empty) == 0
    assert empty.all().tolist() == []
    assert empty[np.array([0, 5])].tolist() == [False, False]
    assert empty.between(0, 10).tolist() == []


@given(
    parts=st.lists(st.tuples(st.integers(0, 60), st.lists(st.booleans(), max_size=70)), max_size=4),
)
def test_rows_are_marked_by_bits_as_by_numbers(parts: list[tuple[int, list[bool]]]) -> None:
    bits, numbers = RowSet(131), RowSet(131)
    for start, mask in parts:
        bits.mark_among(start, packed(np.array(mask, dtype=np.bool_)), len(mask))
        numbers.mark(np.flatnonzero(np.array(mask, dtype=np.bool_)) + start)
        assert len(bits) == len(numbers)
    assert bits.all().tolist() == numbers.all().tolist()


@given(rows=st.sets(st.one_of(st.integers(0, 200), st.integers(0, 10**6)), max_size=50))
def test_chosen_rows_travel_as_bits_or_as_numbers(rows: set[int]) -> None:
    given_ = np.array(sorted(rows, key=lambda row: row % 11), dtype=np.int64)
    labels = (given_ % 4 - 1).astype(np.int32)
    found = RowSet(10**6 + 1)
    taken = Taken.of(given_, labels, classes=3)
    taken.mark(found)
    assert found.all().tolist() == sorted(rows)
    assert taken.counts.tolist() == [int((labels == code).sum()) for code in (-1, 0, 1, 2)]
