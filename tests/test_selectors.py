from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import selectors
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.method.decide.selectors import (
    Candidates,
    Entropy,
    Everything,
    Random,
    choose,
    row_hash,
)
from tests import naive


@given(st.data())
def test_choice_equals_naive(data: st.DataObject) -> None:
    items = data.draw(st.integers(0, 30))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(values, min_size=items, max_size=items))

    # Few different scores, so that ties are common.
    score = column(st.sampled_from([0.0, 0.1, 0.5, 2.0]))
    eligible = column(st.booleans())
    first = column(st.booleans())
    evaluations = data.draw(st.integers(0, items + 2))
    rows = choose(
        np.array(score),
        rows=np.arange(items),
        eligible=np.array(eligible, dtype=bool),
        first=np.array(first, dtype=bool),
        evaluations=evaluations,
    )
    assert rows.tolist() == naive.choose(score, eligible, first, evaluations)
    assert len(rows) == min(evaluations, sum(eligible))


@given(st.integers(0, 2**62))
def test_hash_equals_naive(row: int) -> None:
    assert int(row_hash(np.array([row]))[0]) == naive.row_hash(row)


def test_random_depends_on_seed_and_step_alone() -> None:
    def drawn(selector: Random, items: int, start: int = 0, **which: Any) -> np.ndarray:
        rows = np.arange(start, start + items)
        return selector.score(Candidates(entropy=np.zeros(items), rows=rows, **which))

    usual = drawn(Random(), 1000, step=1, seed=7)
    assert usual.tolist() == [naive.random_score(7, 1, row) for row in range(1000)]
    assert (drawn(Random(), 10, step=1, seed=7) == usual[:10]).all()  # a growing dataset
    assert (drawn(Random(), 10, start=500, step=1, seed=7) == usual[500:510]).all()  # a shard
    assert (drawn(Random(7), 1000, step=1, seed=99) == usual).all()  # its own seed wins
    for other in (drawn(Random(), 1000, step=2, seed=7), drawn(Random(), 1000, step=1, seed=8)):
        assert abs(np.corrcoef(usual, other)[0, 1]) < 0.1
    assert ((usual >= 0) & (usual < 1)).all()
    assert abs(usual.mean() - 0.5) < 0.05


def test_members_score_as_they_say() -> None:
    candidates = Candidates(entropy=np.array([0.3, 0.1]), rows=np.arange(2))
    assert Entropy().score(candidates).tolist() == [0.3, 0.1]
    assert Everything().score(candidates).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("text", ["entropy", "random", "random:3", "everything"])
def test_names_read_back(text: str) -> None:
    assert str(selectors.parse(text)) == text
    assert isinstance(selectors.parse(text), selectors.Selector)


def test_members_pass_through() -> None:
    assert selectors.parse(Random(2)) == Random(2)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("entrpy", UnknownName, "Did you mean 'entropy'"),
        ("", UnknownName, "known are: value, contested, entropy, random, everything"),
        ("random:x", InvalidParameter, "whole number"),
        ("random:²", InvalidParameter, "whole number"),
        ("random:99999999999999999999999", InvalidParameter, "whole number"),
        (Random, InvalidParameter, "a selector object"),
        (5, InvalidParameter, "a name or a selector object"),
        ("random:-1", InvalidParameter, "whole number"),
        ("entropy:3", InvalidParameter, "takes no value"),
        ("entropy+confirm", InvalidParameter, "takes no modifier"),
        ("random:1,k=2", InvalidParameter, "takes no options"),
    ],
)
def test_unknown_names_are_refused(text: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        selectors.parse(text)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_must_be_finite(bad: Any) -> None:
    everyone = np.ones(2, dtype=bool)
    with pytest.raises(InvalidData, match="finite"):
        choose(
            np.array([0.0, bad]),
            rows=np.arange(2),
            eligible=everyone,
            first=everyone,
            evaluations=1,
        )


def test_the_choice_goes_by_rows_not_by_positions() -> None:
    everyone = np.ones(3, dtype=bool)
    rows = np.array([70, 71, 72])
    chosen = choose(
        np.zeros(3), rows=rows, eligible=everyone, first=~everyone, evaluations=1
    ).tolist()
    assert chosen == [min(rows.tolist(), key=naive.row_hash)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"evaluations": -1}, "count ≥ 0"), ({"eligible": np.ones(1, dtype=bool)}, "eligible has 1")],
)
def test_impossible_choices_are_refused(changes: dict[str, Any], message: str) -> None:
    everyone = np.ones(2, dtype=bool)
    given: dict[str, Any] = {
        "rows": np.arange(2),
        "eligible": everyone,
        "first": everyone,
        "evaluations": 1,
    }
    with pytest.raises(ValueError, match=message):
        choose(np.zeros(2), **(given | changes))
