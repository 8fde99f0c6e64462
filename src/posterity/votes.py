"""Votes: a model's predicted classes, hard (one code) or soft (top classes with weights)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posterity._arrays import ArrayLike, Codes, Floats
from posterity.errors import InvalidData, InvalidParameter

MISSING = -1
"""The code of a vote that was not cast, and of a label not given yet."""

SUM_TOLERANCE = 0.01
"""How far class probabilities may sum from one: half-precision recordings lose this much."""


def check_classes(classes: int) -> int:
    """K must allow a choice."""
    if classes < 2:
        raise InvalidParameter.of("classes", "at least 2", classes)
    return classes


def check_codes(codes: ArrayLike, classes: int, name: str, *, allow_missing: bool = True) -> Codes:
    """Codes as int32, or an error that names the argument and the first offender."""
    given = np.asarray(codes)
    if given.ndim != 1:
        raise InvalidData(f"'{name}' must have one dimension; got shape {given.shape}.")
    if given.size and given.dtype.kind not in "iu":
        raise InvalidData(
            f"'{name}' must hold integer class codes; got {given.dtype}.",
            hint="Turn names into codes with Classes.encode.",
        )
    lowest = MISSING if allow_missing else 0
    wrong = (given < lowest) | (given >= classes)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidData(
            f"'{name}' must be between {lowest} and {classes - 1}; got {given[row]} in row {row}"
            f" ({int(wrong.sum())} such rows)."
        )
    return given.astype(np.int32)


def check_same_length(**arrays: int) -> None:
    """All named lengths must agree."""
    if len(set(arrays.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in arrays.items())
        raise InvalidData(f"Lengths must agree: {told}.")


def check_probabilities(
    probabilities: ArrayLike, classes: int, name: str = "probabilities"
) -> Floats:
    """Class probabilities (n, K) as float64 with rows that sum to exactly one.

    A row of zeros is a missing vote and stays as it is.
    """
    given = np.asarray(probabilities, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != classes:
        raise InvalidData(f"'{name}' must have shape (items, {classes}); got {given.shape}.")
    _refuse(np.any(~np.isfinite(given), axis=1), f"'{name}' must be finite numbers", given)
    _refuse(np.any(given < 0, axis=1), f"'{name}' must not be negative", given)
    total = given.sum(axis=1)
    _refuse((total != 0) & (np.abs(total - 1) > SUM_TOLERANCE), f"'{name}' must sum to one", given)
    return given / np.where(total == 0, 1.0, total)[:, None]


def _refuse(bad: Any, rule: str, given: Floats) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        shown = np.array2string(given[row], threshold=6, precision=4)
        raise InvalidData(f"{rule}; row {row} is {shown} ({int(bad.sum())} such rows).")


@dataclass(frozen=True)
class SoftVotes:
    """Votes with class probabilities, kept as each item's top m classes, renormalised.

    >>> soft = SoftVotes.top(np.array([[0.1, 0.6, 0.3], [0.0, 0.0, 0.0]]), 2)
    >>> soft.codes
    array([[ 1,  2],
           [-1, -1]], dtype=int32)
    >>> soft.weights.round(2)
    array([[0.67, 0.33],
           [0.  , 0.  ]])
    """

    codes: Codes
    """(n, m), heaviest first; a row of −1 is a missing vote."""
    weights: Floats
    """(n, m), rows sum to one; zero where missing."""

    @classmethod
    def top(cls, probabilities: ArrayLike, m: int | None = None) -> SoftVotes:
        """Keep the m most probable classes (all by default; ties: the lower code first)."""
        shape = np.shape(probabilities)
        checked = check_probabilities(probabilities, shape[1] if len(shape) == 2 else 0)
        keep = shape[1] if m is None else m
        if not 1 <= keep <= shape[1]:
            raise InvalidParameter.of("m", f"between 1 and {shape[1]}", m)
        codes = np.argsort(-checked, axis=1, kind="stable")[:, :keep].astype(np.int32)
        weights = np.take_along_axis(checked, codes.astype(np.int64), axis=1)
        total = weights.sum(axis=1, keepdims=True)
        codes[total[:, 0] == 0] = MISSING
        return cls(codes, weights / np.where(total == 0, 1.0, total))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: ArrayLike) -> SoftVotes:
        chosen = np.asarray(rows)
        return SoftVotes(self.codes[chosen], self.weights[chosen])

    @property
    def hard(self) -> Codes:
        """The class each vote favours."""
        return self.codes[:, 0]


def majority(votes: Codes) -> Codes:
    """The most frequent vote of each item; a tie goes to the tied class voted for most recently.

    ``votes`` is (T, n) in order of arrival. Counting back from the newest vote makes the most
    recent of the tied classes the first to reach the maximum.

    >>> majority(np.array([[0, 0, 2], [0, 1, -1], [1, -1, -1]], dtype=np.int32))
    array([0, 1, 2], dtype=int32)
    """
    best = np.full(votes.shape[1], MISSING, dtype=np.int32)
    most = np.zeros(votes.shape[1], dtype=np.int64)
    for cast in votes[::-1]:
        count = ((votes == cast) & (cast != MISSING)).sum(axis=0)
        wins = count > most
        best[wins] = cast[wins]
        most[wins] = count[wins]
    return best
