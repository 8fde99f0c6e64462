"""Names for the few kinds of array that travel between modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int32]
"""Class codes; ``votes.MISSING`` (−1) stands for none."""

Rows = NDArray[np.int64]
"""Positions of items within a block."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

ArrayLike = Sequence[Any] | NDArray[Any]
"""What the functions at the door accept before they validate it."""
