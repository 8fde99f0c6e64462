"""Hashes of texts, by which ids are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.method.kernels.compiler import compiled

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_END = np.uint64(0x94D049BB133111EB)


@compiled
def hash_texts(
    offsets: NDArray[np.int32], content: NDArray[np.uint8], seed: np.uint64
) -> NDArray[Any]:
    """A 64-bit hash of each text: eight bytes at a time, mixed as splitmix64 does it."""
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for at in range(len(hashes)):
        start, end = offsets[at], offsets[at + 1]
        # The length goes in first: the last word of a text is filled up with zeros.
        state = (seed ^ np.uint64(end - start)) * _ODD
        while start < end:
            word = np.uint64(0)
            for place in range(min(8, end - start)):
                word |= np.uint64(content[start + place]) << np.uint64(8 * place)
            state = (state ^ word) * _MIX
            state ^= state >> np.uint64(29)
            start += 8
        state = (state ^ (state >> np.uint64(31))) * _END
        hashes[at] = state ^ (state >> np.uint64(32))
    return hashes
