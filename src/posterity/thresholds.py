"""Thresholds: the B lowest of N keys without sorting them, by histograms that can be added.

A key is 64 bits wide and is looked at 16 bits at a time: count how many keys have each value of the
first 16 bits, find the value at which B is reached, and go on with the keys that have it. Four
passes over blocks of keys, whatever their number; between them only a histogram is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posterity._arrays import ArrayLike

Keys = NDArray[np.uint64]
BITS = 16
SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Threshold:
    """Every key below it is among the lowest, and so many of those equal to it."""

    key: int
    equal: int

    @classmethod
    def find(cls, blocks: Callable[[], Iterable[Keys]], count: int) -> Threshold:
        """Of the ``count`` lowest keys, the highest; there must be so many.

        >>> keys = np.array([5, 1, 9, 5, 5], dtype=np.uint64)
        >>> Threshold.find(lambda: [keys[:2], keys[2:]], 3)
        Threshold(key=5, equal=2)
        """
        prefix, left = 0, count
        for shift in range(64 - BITS, -1, -BITS):
            counts = np.zeros(1 << BITS, dtype=np.int64)
            for keys in blocks():
                counts += histogram(keys, prefix, shift)
            reached = int(np.searchsorted(np.cumsum(counts), left))
            left -= int(counts[:reached].sum())
            prefix = (prefix << BITS) | reached
        return cls(prefix, left)


def histogram(keys: Keys, prefix: int, shift: int) -> NDArray[np.int64]:
    """How many of the keys that begin with ``prefix`` have each value of the next bits."""
    if shift + BITS < 64:
        keys = keys[keys >> np.uint64(shift + BITS) == np.uint64(prefix)]
    digits = (keys >> np.uint64(shift)).astype(np.uint16)
    return np.bincount(digits, minlength=1 << BITS)


def descending(scores: ArrayLike) -> Keys:
    """Keys that are lower the higher the score: the bits of a float, made to compare as it does.

    >>> keys = descending(np.array([2.0, 0.0, -0.0, -1.0]))
    >>> bool(keys[0] < keys[1] == keys[2] < keys[3])
    True
    """
    plain = np.asarray(scores, dtype=np.float64) + 0.0  # there is no −0 after that
    bits = plain.view(np.uint64)
    negative = bits >= SIGN
    ascending: Keys = np.where(negative, ~bits, bits | SIGN)
    return ~ascending
