"""Encodings of Parquet columns: which suits a column is told by a sample of its values.

Items with the same votes have the same belief and entropy, so a column of floats may hold a
thousand different values or as many as rows: a dictionary makes the first seven times smaller, and
the second larger.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW_GROUP = 2**20
SAMPLE = 2**14
DICTIONARY_BYTES = 2**22
"""Beyond this a dictionary is given up, and the rest of a row group written as it is."""

FLOATS_LEFT = 0.88
"""What zstd leaves of split floats that are all different: only their first byte compresses."""
TEXTS_LEFT = 0.5
"""What shared prefixes and zstd leave of texts that are all different."""


def write_options(rows: pa.Table) -> dict[str, Any]:
    """How these rows are best written as Parquet, as options of ``pq.write_table``."""
    dictionaries: list[str] = []
    encodings: dict[str, str] = {}
    for field in rows.schema:
        path, kind, sample = field.name, field.type, _sample(rows.column(field.name))
        count: float = rows.num_rows
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            path, kind = f"{path}.list.element", kind.value_type
            flat = pc.list_flatten(sample)
            count, sample = count * len(flat) / max(1, len(sample)), flat
        encoding = _encoding(kind)
        if encoding is None or _few(sample, count, encoding):
            dictionaries.append(path)
        else:
            encodings[path] = encoding
    return {
        "compression": "zstd",
        "use_dictionary": dictionaries,
        "column_encoding": encodings,
        "dictionary_pagesize_limit": DICTIONARY_BYTES,
    }


def _encoding(kind: pa.DataType) -> str | None:
    """What suits values of a type that are mostly different; None: leave it to Parquet."""
    if pa.types.is_integer(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "DELTA_BYTE_ARRAY"
    return None


def _sample(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values from all over the column; all of them if they are few."""
    if len(column) <= SAMPLE:
        return column
    return column.take(pa.array(np.linspace(0, len(column) - 1, SAMPLE).astype(np.int64)))


def _few(sample: pa.ChunkedArray, rows: float, encoding: str) -> bool:
    """Whether a dictionary and numbers into it are smaller than the values."""
    sample = sample.drop_null()
    if not len(sample):
        return True
    found = pc.count_distinct(sample).as_py()
    group = max(min(rows, ROW_GROUP), len(sample))
    distinct = distinct_of(found, len(sample), group)
    if encoding == "DELTA_BYTE_ARRAY":
        width = 4 + pc.mean(pc.binary_length(sample)).as_py()
        plain = width * TEXTS_LEFT
    else:
        width = sample.type.bit_width / 8
        plain = width * FLOATS_LEFT
    if encoding == "DELTA_BINARY_PACKED":
        ends = pc.min_max(sample).as_py()
        plain = (math.log2(1 + ends["max"] - ends["min"]) + 1) / 8
    return bool(width * distinct / group + math.ceil(math.log2(distinct)) / 8 < plain)


def distinct_of(found: int, sampled: int, rows: float) -> float:
    """How many different values rows hold, if a sample holds so many and all are as frequent.

    >>> round(distinct_of(983, 4096, 1_000_000)), distinct_of(10, 10, 10)
    (1000, 10)
    """
    if found >= sampled or sampled >= rows:
        return rows if sampled < rows else found
    low, high = float(found), float(rows)
    for _ in range(40):
        middle = (low + high) / 2
        if middle * -math.expm1(-sampled / middle) < found:
            low = middle
        else:
            high = middle
    return high
