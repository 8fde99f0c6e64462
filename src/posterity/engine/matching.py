"""Matching: how frequent the values of a payload column are among the stored items."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from posterity._arrays import Floats
from posterity.engine.context import Context
from posterity.errors import InvalidData
from posterity.tables.layout import WEIGHT


def values_of(context: Context, column: str) -> dict[Any, int]:
    """How many items there are with each value; those that were removed do not count."""
    items = context.items
    if items is None:
        raise InvalidData(
            f"There are no items yet whose '{column}' labelled items could be matched with.",
            hint="Add the items first; or give weights yourself.",
        )
    known = [name for name in items.table.schema.names if name not in ("shard", "row")]
    if column not in known:
        raise InvalidData(
            f"The items have no column '{column}' to match labelled ones with; they have: "
            f"{', '.join(known)}."
        )
    found: Counter[Any] = Counter()
    for _, part in items.each(["row", column]):
        there = ~context.removed[part.column("row").to_numpy()]
        values = part.column(column).filter(pa.array(there))
        for each in pc.value_counts(values).to_pylist():
            found[each["values"]] += each["counts"]
    return dict(found)


def labelled_weights(rows: pa.Table) -> Floats | None:
    """The weights of labelled items, where they came with any."""
    if WEIGHT not in rows.column_names or rows.column(WEIGHT).null_count:
        return None
    weights: Floats = rows.column(WEIGHT).to_numpy()
    return weights
