"""Choosing block by block, against choosing among all items at once."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity.errors import InvalidData
from posterity.method.decide.selectors import choose
from posterity.method.decide.top_k import Block, Cut, DigitCounts, Part, chosen, find_cut
from tests import naive

# Few values, so that there are ties; neighbours, so that they differ in the last bits only.
tight = [0.0, -0.0, 1.0, np.nextafter(1.0, 2), 1 + 2**-20, 1 + 2**-35, 5e-324, -1.0, 1e308]


class Blocks:
    """Items in blocks, and how often all of them were asked for."""

    def __init__(self, size: int, **columns: Any) -> None:
        self.size, self.columns, self.passes = size, columns, 0
        self.items = len(columns["rows"])

    def __call__(self, see: Callable[[Iterable[Block]], Part], /) -> Iterator[Part]:
        self.passes += 1
        made = list(self.made())
        # Two blocks in each part, as a shard may have several.
        return (see(made[at : at + 2]) for at in range(0, len(made), 2))

    def made(self) -> Iterator[Block]:
        for start in range(0, self.items, self.size):
            part = {
                name: column[start : start + self.size] for name, column in self.columns.items()
            }
            yield Block.of(part.pop("score"), **part, codes=part["rows"].astype(np.int32) % 7)


def taken(blocks: Blocks, evaluations: int, cap: int) -> tuple[list[int], Cut]:
    cut = find_cut(blocks, lambda *_: evaluations, cap=cap)
    rows = []
    for part, codes in chosen(blocks, cut, lambda rows, codes: (rows, codes)):
        assert codes.tolist() == (part % 7).tolist()
        rows += part.tolist()
    return sorted(rows), cut


@given(data=st.data())
def test_blocks_choose_what_one_block_would(data: st.DataObject) -> None:
    items = data.draw(st.integers(1, 60))

    def column(values: st.SearchStrategy[Any]) -> Any:
        return np.array(data.draw(st.lists(values, min_size=items, max_size=items)))

    score = column(st.sampled_from(data.draw(st.lists(st.sampled_from(tight), min_size=1))))
    eligible = column(st.booleans() if data.draw(st.booleans()) else st.just(True))
    first = column(data.draw(st.sampled_from([st.booleans(), st.just(True), st.just(False)])))
    rows = np.arange(items) + data.draw(st.sampled_from([0, 5, 2**30]))
    evaluations = data.draw(st.integers(0, items + 2))
    blocks = Blocks(
        data.draw(st.integers(1, items)), score=score, rows=rows, eligible=eligible, first=first
    )
    # A small cap makes few items as tedious as very many.
    found, cut = taken(blocks, evaluations, data.draw(st.integers(1, 20)))
    whole = choose(score, rows=rows, eligible=eligible, first=first, evaluations=evaluations)
    assert found == whole.tolist()
    assert cut.available == eligible.sum()
    if not rows[0]:
        listed = score.tolist(), eligible.tolist(), first.tolist()
        assert found == naive.choose(*listed, evaluations)


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 400),
    share=st.floats(0, 1),
    ties=st.booleans(),
)
def test_no_more_candidates_are_held_than_the_cap(
    seed: int, size: int, share: float, ties: bool
) -> None:
    rng, items, cap = np.random.default_rng(seed), 400, 8
    score = rng.integers(0, 3, items) * 0.5 if ties else rng.random(items)
    nobody = np.zeros(items, dtype=np.bool_)
    columns: dict[str, Any]
    columns = {"score": score, "rows": np.arange(items), "eligible": ~nobody, "first": nobody}
    evaluations = int(share * items)
    blocks = Blocks(size, **columns)
    found, cut = taken(blocks, evaluations, cap)
    assert cut.held <= cap or cut.left in (0, cut.held)
    assert blocks.passes <= (4 if ties else 3)
    assert found == choose(**columns, evaluations=evaluations).tolist()


def test_two_passes_where_scores_differ() -> None:
    items = 100_000
    nobody = np.zeros(items, dtype=np.bool_)
    columns: dict[str, Any] = {
        "score": np.random.default_rng(1).random(items),
        "rows": np.arange(items),
        "eligible": ~nobody,
        "first": nobody,
    }
    for evaluations in (0, 1, 10_000, 99_999, items):
        blocks = Blocks(9_000, **columns)
        found, _ = taken(blocks, evaluations, 1_000)
        assert blocks.passes == 2
        assert found == choose(**columns, evaluations=evaluations).tolist()


def test_one_block_is_held_at_a_time() -> None:
    items, alive, most = 5_000, 0, 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def blocks(see: Callable[[Iterable[Block]], Part], /) -> Iterator[Part]:
        yield see(made())

    def made() -> Iterator[Block]:
        nonlocal alive, most
        rng = np.random.default_rng(3)
        for start in range(0, items, 50):
            rows = np.arange(start, start + 50)
            nobody = np.zeros(50, dtype=np.bool_)
            block = Block(rng.random(50), rows, nobody, rows.astype(np.int32))
            weakref.finalize(block, gone)
            alive += 1
            most = max(most, alive)
            yield block

    cut = find_cut(blocks, lambda available, _: available // 3, cap=10)
    assert sum(chosen(blocks, cut, lambda rows, _: len(rows))) == items // 3
    assert cut.held <= 10
    assert most <= 2  # the next one is made before the last one is let go


def test_tallies_of_parts_can_be_added() -> None:
    digits = np.random.default_rng(2).integers(0, 50, 300_000)
    whole, parts = DigitCounts(0), [DigitCounts(0), DigitCounts(0)]
    whole.add(digits)
    parts[0].add(digits[:100])
    parts[1].add(digits[100:])
    parts[0].merge(parts[1])
    assert (parts[0].counts == whole.counts).all()
    assert parts[0].total == whole.total == 300_000
    assert Cut.whole(300_000, 9).narrowed(parts[0]) == Cut.whole(300_000, 9).narrowed(whole)


@pytest.mark.parametrize("values", [1, 50, 2**22])
@pytest.mark.parametrize("keys", [100, 300_000, 600_000])
def test_tallies_that_travelled_can_be_added(values: int, keys: int) -> None:
    digits = np.random.default_rng(values).integers(0, values, keys)
    whole, parts = DigitCounts(0), [DigitCounts(0), DigitCounts(0), DigitCounts(0)]
    whole.add(digits)
    for at, part in enumerate(parts):
        part.add(digits[at::3])
    together = DigitCounts(0)
    for part in parts:
        together.merge(pickle.loads(pickle.dumps(part)))
    assert together.total == whole.total == keys
    for count in (1, keys // 3, keys):
        found = naive_reach(digits, count)
        assert together.reach(count) == whole.reach(count) == found
    assert (together.counts == np.bincount(digits, minlength=2**22)).all()


def naive_reach(digits: np.ndarray, count: int) -> tuple[int, int, int]:
    """The value at which so many are reached, by sorting."""
    value = int(np.sort(digits)[count - 1])
    return value, int((digits < value).sum()), int((digits == value).sum())


def test_scores_must_be_finite_where_they_count() -> None:
    columns: dict[str, Any]
    columns = {"rows": np.arange(2), "first": np.zeros(2, dtype=bool), "codes": np.zeros(2)}
    score = np.array([0.0, np.nan])
    Block.of(score, eligible=np.array([True, False]), **columns)
    with pytest.raises(InvalidData, match="finite"):
        Block.of(score, eligible=np.array([True, True]), **columns)
