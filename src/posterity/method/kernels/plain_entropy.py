"""Entropy and totals of a batch of items with plain beliefs, from sums relative to the best class.

Those of dependent beliefs are computed with the beliefs themselves, in ``dependent``.

Every operation is rounded as IEEE says and none is reordered: an item gets the same bits in
whichever batch it is, and at whichever place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled

BATCH = 512
"""Items at a time: their scratch stays in the nearest cache."""
ROWS = 6
"""Of the array a batch is kept in; the last two are scratch."""
KEPT = 2.0**-6
"""The least share of a sum that may be left after subtracting: six of 53 bits are lost at most."""
SETTLED = 2.0**50
"""So much heavier than all untouched classes together, and their exact sum is below rounding."""
RANGE = 600.0
"""Weights stay within e^±RANGE, well inside what a float holds."""
_ROOT_HALF = 0x3FE6A09E00000000
"""The bits of √½: from there to √2 a number is its own fraction."""
_FRACTION = 0xFFFFFFFFFFFFF
_LOG_2 = float.fromhex("0x1.62e42feep-1")
"""The first 32 bits of log 2: an exponent times it is exact."""
_LOG_2_REST = float.fromhex("0x1.a39ef35793c76p-33")


@compiled
def finish(batch: Any, size: Any) -> None:
    """Rows of a batch: what all other classes weigh, Σ w·log w of them, the best one's log-joint.

    The first two are relative to the best class. They become the logarithm of the total, and the
    entropy. The fourth is for the label's log-joint.
    """
    bits = batch.view(np.int64)
    for i in range(size):
        batch[4, i] = 1.0 + batch[0, i]
    for i in range(size):
        shifted = bits[4, i] - _ROOT_HALF
        bits[4, i] = (shifted & _FRACTION) + _ROOT_HALF
        batch[5, i] = np.float64(shifted >> 52)
    for i in range(size):
        rest, exponent = batch[0, i], batch[5, i]
        total = 1.0 + rest
        share = 1.0 / total
        # log m = 2·artanh(s) with s = f / (2 + f), as f − f²/2 + s·(f²/2 + r): exact near one.
        f = batch[4, i] - 1.0
        s = f / (2.0 + f)
        z = s * s
        w = z * z
        odd = 2 / 3 + w * (2 / 7 + w * (2 / 11 + w * (2 / 15 + w * (2 / 19))))
        even = 2 / 5 + w * (2 / 9 + w * (2 / 13 + w * (2 / 17 + w * (2 / 21))))
        r = z * odd + w * even
        half = 0.5 * f * f
        log = exponent * _LOG_2 - ((half - (s * (half + r) + exponent * _LOG_2_REST)) - f)
        # The best class's own term is log(1 + rest), with what 1 + rest rounds away: else an
        # entropy below 1e-16 would round to zero and nearly settled items would lose their order.
        log += (rest - (total - 1.0)) * share
        batch[0, i] = batch[2, i] + log
        batch[1, i] = log - batch[1, i] * share
