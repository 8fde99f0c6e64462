"""Soft votes as two list columns: each item's classes, and their weights."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from posterity.votes import MISSING, Cast, SoftVotes

NAMES = ("soft_classes", "soft_weights")

ANY_NUMBER = 2**31 - 1
"""How many classes a stored soft vote is about: whoever folds it says, since classes may come."""


def to_columns(cast: Cast) -> dict[str, pa.Array]:
    """Nulls where a vote is hard; classes without weight are left out."""
    if cast.soft is None:
        return {
            name: pa.nulls(len(cast), pa.list_(kind))
            for name, kind in zip(NAMES, (pa.int32(), pa.float32()), strict=True)
        }
    # Rounded first: a weight that single precision calls zero is no weight.
    weights = cast.soft.weights.astype(np.float32)
    held = (cast.soft.codes != MISSING) & (weights > 0)
    counts = held.sum(axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    none = pa.array(counts == 0)
    return {
        name: pa.ListArray.from_arrays(offsets, pa.array(values[held]), mask=none)
        for name, values in zip(NAMES, (cast.soft.codes, weights), strict=True)
    }


def from_columns(rows: pa.Table, hard: np.ndarray) -> SoftVotes | None:
    """The soft votes among rows; None if all votes are hard."""
    codes, weights = (rows.column(name).combine_chunks() for name in NAMES)
    if codes.null_count == len(codes):
        return None
    counts = np.asarray(codes.value_lengths().fill_null(0))
    most = int(counts.max())
    held = np.arange(most) < counts[:, None]
    padded_codes = np.full((len(counts), most), MISSING, dtype=np.int32)
    padded_weights = np.zeros((len(counts), most))
    padded_codes[held] = codes.flatten().to_numpy()
    padded_weights[held] = weights.flatten().to_numpy()
    softly = np.where(counts > 0, hard, np.int32(MISSING))
    return SoftVotes(padded_codes, padded_weights, ANY_NUMBER, softly)
