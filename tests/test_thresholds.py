"""The B lowest of N keys, against sorting them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity.method.decide.selectors import choose, descending, row_hash

# Few values, so that there are ties; neighbours, so that they differ in the last bits only.
finite = st.floats(allow_nan=False, allow_infinity=False)
tight = st.sampled_from([0.0, -0.0, 1.0, np.nextafter(1.0, 2), 5e-324, -5e-324, -1.0, 1e308])


@given(scores=st.lists(finite | tight, min_size=2, max_size=30))
def test_keys_compare_as_scores_do(scores: list[float]) -> None:
    keys = descending(np.array(scores)).tolist()
    for one, other in itertools.pairwise(scores):
        at, after = keys[scores.index(one)], keys[scores.index(other)]
        assert (at < after, at == after) == (one > other, one == other)


@given(
    scores=st.lists(finite | tight, min_size=1, max_size=80),
    count=st.integers(0, 90),
    data=st.data(),
)
def test_the_choice_is_that_of_a_full_sort(
    scores: list[float], count: int, data: st.DataObject
) -> None:
    flags = st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))
    eligible, first = np.array(data.draw(flags)), np.array(data.draw(flags))
    rows = np.arange(len(scores)) * 7 + data.draw(st.integers(0, 2**40))
    given_scores = np.array(scores)
    chosen = choose(given_scores, rows=rows, eligible=eligible, first=first, evaluations=count)
    order = np.lexsort((row_hash(rows), -given_scores, ~first))
    wanted = [at for at in order.tolist() if eligible[at]][:count]
    assert chosen.tolist() == sorted(rows[wanted].tolist())


@pytest.mark.parametrize("count", [0, 1, 5_000, 99_999, 100_000])
def test_as_many_ties_as_items(count: int) -> None:
    rows = np.arange(100_000)
    everyone = np.ones(len(rows), dtype=np.bool_)
    chosen = choose(
        np.zeros(len(rows)), rows=rows, eligible=everyone, first=~everyone, evaluations=count
    )
    assert chosen.tolist() == np.sort(np.argsort(row_hash(rows))[:count]).tolist()
