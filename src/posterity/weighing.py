"""Weighing: labelled items that stand for a target of another mix.

Where a labelled set has more of something than the target, each of its items has a weight: how much
more frequent items like it are in the target. Weights are given, or follow from a column both have.
They are obeyed by thinning: an item is kept with a chance in proportion to its weight, so that what
is left has the target's mix. Nothing is kept twice: all that is learnt, rehearsed, counted and
promised afterwards is about as many different items as there are. Weights far above the mean are
clipped, so that a few items do not throw away all others.
"""

from __future__ import annotations

import numpy as np

from posterity._arrays import ArrayLike, Floats, Rows
from posterity.errors import InvalidData

LEAST_FREQUENT = 1e-12
MOST = 10.0
"""No weight counts for more than so many times the mean of all."""


def checked(weights: ArrayLike, name: str = "weights") -> Floats:
    """Weights as numbers; refuses what cannot be weighed by."""
    given = np.asarray(weights)
    if given.ndim != 1 or given.dtype.kind not in "fiu":
        raise InvalidData(f"'{name}' must hold one number an item; got {given.dtype}.")
    each = given.astype(np.float64)
    if not np.isfinite(each).all() or (each < 0).any() or not (each > 0).any():
        wrong = np.flatnonzero(~np.isfinite(each) | (each < 0))
        told = f"{given[wrong[0]]} at item {wrong[0]}" if len(wrong) else "no weight above 0"
        raise InvalidData(
            f"'{name}' must be finite numbers of at least 0, some of them above; got {told}.",
            hint="Give each labelled item how much more frequent such items are in the target.",
        )
    return each


def kept(weights: Floats) -> Rows:
    """The items that are kept, in order: each with a chance in proportion to its weight.

    The highest weight, or what it is clipped to, has chance one. Which ones is settled by adding up
    chances in the order of items, so that items beside each other are thinned evenly. With equal
    weights all are kept.

    >>> kept(np.array([1.0, 1.0, 2.0, 2.0])).tolist()
    [0, 2, 3]
    >>> kept(np.full(4, 0.5)).tolist()
    [0, 1, 2, 3]
    """
    clipped = np.minimum(weights, MOST * weights.mean())
    passed = np.floor(np.cumsum(clipped / clipped.max()) + 0.5)
    return np.flatnonzero(np.diff(passed, prepend=0.0) > 0)
