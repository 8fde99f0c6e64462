"""How sure the beliefs of all items are after each step: the paper's picture of a store."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from posterity.engine.ledger.context import Context, RowRange
from posterity.method.data.arrays import Counts

BINS = 40
QUANTILES = (0.1, 0.5, 0.9)


def entropies_view(context: Context) -> dict[str, Any]:
    """Items by the entropy of their belief, after each step.

    Items nobody has voted on are counted apart: what is believed of them is the prior.
    """
    most = float(np.log(max(2, len(context.classes))))
    numbers = [header.step for header in context.headers]
    total = np.zeros((len(numbers), BINS + 1), dtype=np.int64)
    for part in context.executor.map(partial(_counts, context, numbers, most), context.shards):
        total += part
    edges = np.linspace(0.0, most, BINS + 1)
    return {
        "steps": numbers,
        "edges": edges.tolist(),
        "items": total[:, :BINS].tolist(),
        "unseen": total[:, BINS].tolist(),
        "quantiles": {
            f"{share:g}": [_quantile(row[:BINS], edges, share) for row in total]
            for share in QUANTILES
        },
    }


def _counts(context: Context, numbers: list[int], most: float, part: RowRange) -> Counts:
    """Of one shard: items by entropy after each step; in the last column those without a vote."""
    shard, start, items = part
    table = context.ledger.read(["row", "step", "label", "entropy"], shard)
    step, row, entropy = (table.column(name).to_numpy() for name in ("step", "row", "entropy"))
    place = np.minimum((entropy / most * BINS).astype(np.int64).clip(0), BINS - 1)
    # Whose votes were all reverted has none again.
    place[table.column("label").is_null().to_numpy()] = BINS
    there = ~context.removed.among(start, items)
    now = np.full(items, BINS, dtype=np.int64)
    counts = np.bincount(now[there], minlength=BINS + 1)
    found = np.zeros((len(numbers), BINS + 1), dtype=np.int64)
    for at, number in enumerate(numbers):
        mine = np.flatnonzero(step == number)
        rows = row[mine] - start
        kept = there[rows]
        rows, new = rows[kept], place[mine][kept]
        counts = counts - np.bincount(now[rows], minlength=BINS + 1)
        counts = counts + np.bincount(new, minlength=BINS + 1)
        now[rows] = new
        found[at] = counts
    return found


def _quantile(counts: Counts, edges: Any, share: float) -> float | None:
    """The entropy that this share of items is below, within a bin as if they lay evenly."""
    total = int(counts.sum())
    if not total:
        return None
    below = np.concatenate([[0], np.cumsum(counts)])
    return float(np.interp(share * total, below, edges))
