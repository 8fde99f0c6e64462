"""Parquet files of a store: nothing is lost, and columns take the encoding that suits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity.storage.delta.table import to_parquet
from posterity.storage.parquet import SAMPLE, distinct_of, write_options

ROWS = 3 * SAMPLE

VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int32()): st.lists(st.integers(0, 9)),
    pa.list_(pa.float32()): st.lists(st.floats(0, 1, width=32)),
    pa.list_(pa.string()): st.lists(st.text(max_size=2)),
    pa.struct([("a", pa.int64())]): st.fixed_dictionaries({"a": st.integers(0, 9)}),
    pa.timestamp("us"): st.integers(0, 2**40),
}


@st.composite
def tables(draw: Any) -> pa.Table:
    count = draw(st.integers(0, 40))
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    columns = {}
    for at, kind in enumerate(kinds):
        values = st.one_of(st.none(), VALUES[kind])
        columns[f"c{at}"] = pa.array(
            draw(st.lists(values, min_size=count, max_size=count)), type=kind
        )
    return pa.table(columns)


@given(tables())
def test_what_is_written_is_read(rows: pa.Table) -> None:
    assert pq.read_table(pa.BufferReader(to_parquet(rows))).equals(rows)


def held(rows: pa.Table) -> dict[str, set[str]]:
    """The encodings of each column's first row group."""
    group = pq.ParquetFile(pa.BufferReader(to_parquet(rows))).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) for column in columns}


def test_few_different_values_take_a_dictionary() -> None:
    rng = np.random.default_rng(0)
    vote = rng.integers(0, 1000, ROWS).astype(np.int32)
    every = rng.random(1000)[vote]
    rows = pa.table(
        {
            "row": np.arange(ROWS),
            "vote": vote,
            "belief": every.astype(np.float32),
            "entropy": every,
            "other": rng.random(ROWS),
            "id": [f"item-{at}" for at in range(ROWS)],
            "label": pa.array([f"class {code}" for code in vote.tolist()]),
            "none": pa.nulls(ROWS, pa.list_(pa.float32())),
            "soft": pa.array(rng.random((ROWS, 2)).tolist(), pa.list_(pa.float32())),
        }
    )
    found = held(rows)
    few = {name for name, encodings in found.items() if "RLE_DICTIONARY" in encodings}
    assert few == {"vote", "belief", "entropy", "label", "none.list.element"}
    assert "DELTA_BINARY_PACKED" in found["row"]
    assert "BYTE_STREAM_SPLIT" in found["other"]
    assert "BYTE_STREAM_SPLIT" in found["soft.list.element"]
    assert "DELTA_BYTE_ARRAY" in found["id"]
    ledger = rows.select(["row", "vote", "belief", "entropy"])
    # Ten bits a column, and what the dictionaries themselves take.
    assert to_parquet(ledger).size < ROWS * 3 * (10 / 8) + 1000 * 17


def test_many_votes_make_many_values_that_still_come_again() -> None:
    rng = np.random.default_rng(0)
    entropy = rng.random(ROWS // 8)[rng.integers(0, ROWS // 8, ROWS)]
    assert write_options(pa.table({"entropy": entropy}))["use_dictionary"] == ["entropy"]


@pytest.mark.parametrize("distinct", [1, 10, 1000, 20_000])
def test_a_sample_tells_how_many_values_there_are(distinct: int) -> None:
    values = np.random.default_rng(distinct).integers(0, distinct, ROWS)
    found = len(np.unique(values[:SAMPLE]))
    assert distinct_of(found, SAMPLE, ROWS) == pytest.approx(distinct, rel=0.05)
