"""Votes: a model's predicted classes, hard (one code) or soft (top classes with weights)."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Mask, Rows

MISSING = -1
"""The code of a vote that was not cast, and of a label not given yet."""

SUM_TOLERANCE = 0.01
"""How far class probabilities may sum from one: half-precision recordings lose this much."""


def check_classes(classes: int | Sized) -> int:
    """K, given as a number or as the classes themselves; it must allow a choice."""
    number = classes if isinstance(classes, Integral) else _length(classes)
    if number is None or number < 2:
        raise InvalidParameter.of("classes", "at least 2, as a number or as names", classes)
    return int(number)


def _length(classes: object) -> int | None:
    return len(classes) if isinstance(classes, Sized) and not isinstance(classes, str) else None


def as_array(given: ArrayLike, name: str) -> NDArray[Any]:
    """Whatever array-like was given as an array, or an error that names it."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InvalidData(f"'{name}' is no array: {error}.") from None
    if array.dtype == object:
        raise InvalidData(f"'{name}' must hold numbers of one kind; got {type(given).__name__}.")
    return array


def check_rows(rows: ArrayLike, items: int) -> Rows:
    """Positions of items, as integers."""
    given = as_array(rows, "rows")
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        hint = "Turn a mask into positions with numpy.flatnonzero." if given.dtype == bool else None
        raise InvalidData(f"'rows' must be integer positions; got {given.dtype}.", hint=hint)
    if given.size and (given.min() < 0 or given.max() >= items):
        raise InvalidData(f"'rows' must be positions from 0 to {items - 1}.")
    return given.astype(np.int64, copy=False)


def check_codes(codes: ArrayLike, classes: int, name: str, *, allow_missing: bool = True) -> Codes:
    """Codes as int32, or an error that names the argument and the first offender."""
    given = as_array(codes, name)
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
    given = as_array(probabilities, name)
    if given.ndim != 2 or given.shape[1] != classes:
        raise InvalidData(f"'{name}' must have shape (items, {classes}); got {given.shape}.")
    if given.dtype.kind not in "fiu":
        raise InvalidData(f"'{name}' must be numbers; got {given.dtype}.")
    given = given.astype(np.float64)
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


@dataclass(frozen=True, eq=False)
class SoftVotes:
    """Votes with class probabilities, kept as each item's top m classes, renormalised.

    The vote itself is the most probable class, unless the model said otherwise (``hard``).

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
    classes: int
    """K, how many classes the probabilities were about."""
    hard: Codes
    """(n,) the vote itself."""

    def __post_init__(self) -> None:
        if not (self.codes.shape == self.weights.shape and self.codes.ndim == 2):
            raise InvalidData("'codes' and 'weights' must both be (items, m).")
        check_same_length(codes=len(self.codes), hard=len(self.hard))
        if not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise InvalidData("'weights' must be finite numbers ≥ 0.")
        check_codes(self.codes.ravel(), self.classes, "codes")
        if ((self.codes[:, 0] == MISSING) != (self.hard == MISSING)).any():
            raise InvalidData("A soft vote needs its hard vote, and a missing one has none.")

    @classmethod
    def top(
        cls, probabilities: ArrayLike, m: int | None = None, *, hard: Codes | None = None
    ) -> SoftVotes:
        """Keep the m most probable classes (all by default; ties: the lower code first)."""
        given = as_array(probabilities, "probabilities")
        if given.ndim != 2:
            raise InvalidData(f"'probabilities' must be (items, classes); got shape {given.shape}.")
        classes = check_classes(given.shape[1])
        checked = check_probabilities(given, classes)
        keep = classes if m is None else m
        if not 1 <= keep <= classes:
            raise InvalidParameter.of("m", f"between 1 and {classes}", m)
        codes = np.argsort(-checked, axis=1, kind="stable")[:, :keep].astype(np.int32)
        weights = np.take_along_axis(checked, codes.astype(np.int64), axis=1)
        total = weights.sum(axis=1, keepdims=True)
        codes[total[:, 0] == 0] = MISSING
        weights = weights / np.where(total == 0, 1.0, total)
        return cls(codes, weights, classes, codes[:, 0] if hard is None else hard)

    @classmethod
    def unchecked(cls, codes: Codes, weights: Floats, classes: int, hard: Codes) -> SoftVotes:
        """From parts of votes that were checked already."""
        made = cls.__new__(cls)
        vars(made).update(codes=codes, weights=weights, classes=classes, hard=hard)
        return made

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> SoftVotes:
        return SoftVotes.unchecked(
            self.codes[rows], self.weights[rows], self.classes, self.hard[rows]
        )


@dataclass(frozen=True, eq=False)
class ModelVotes:
    """One model's votes on a block of items: hard, and for some of them or all of them soft."""

    hard: Codes
    """(n,) −1 where there is no vote."""
    soft: SoftVotes | None = None
    """Of the same items; missing where the vote is only hard."""

    def __len__(self) -> int:
        return len(self.hard)

    def __getitem__(self, rows: Any) -> ModelVotes:
        return ModelVotes(self.hard[rows], None if self.soft is None else self.soft[rows])

    @staticmethod
    def joined(parts: Sequence[ModelVotes]) -> ModelVotes:
        """Blocks put together again; the widest soft vote gives the number of classes kept."""
        hard = _below([part.hard for part in parts])
        softly = [part.soft for part in parts if part.soft is not None]
        if not any(soft.codes.shape[1] for soft in softly):
            return ModelVotes(hard)
        all_soft = [_no_soft(len(part)) if part.soft is None else part.soft for part in parts]
        return ModelVotes(
            hard,
            SoftVotes.unchecked(
                _stacked([soft.codes for soft in all_soft], MISSING),
                _stacked([soft.weights for soft in all_soft], 0.0),
                max(soft.classes for soft in softly),
                _below([soft.hard for soft in all_soft]),
            ),
        )

    def at(self, places: Rows) -> ModelVotes:
        """The votes at these places; none where a place is −1."""
        absent = places < 0
        votes = self[places]
        votes.hard[absent] = MISSING
        if votes.soft is not None:
            votes.soft.codes[absent] = MISSING
            votes.soft.weights[absent] = 0.0
            votes.soft.hard[absent] = MISSING
        return votes

    def where(self, kept: Mask) -> ModelVotes:
        """The same votes, missing where not kept."""
        return self.at(np.where(kept, np.arange(len(self)), MISSING))

    def put(self, rows: Rows, votes: ModelVotes) -> ModelVotes:
        """The same with other votes in some rows."""
        at = np.arange(len(self))
        at[rows] = len(self) + np.arange(len(votes))
        return ModelVotes.joined([self, votes])[at]


def _no_soft(items: int) -> SoftVotes:
    none = np.full(items, MISSING, dtype=np.int32)
    return SoftVotes.unchecked(np.zeros((items, 0), np.int32), np.zeros((items, 0)), 0, none)


def _below(parts: Sequence[Codes]) -> Codes:
    return np.concatenate([np.zeros(0, dtype=np.int32), *parts])


def _stacked(parts: Sequence[NDArray[Any]], empty: float) -> Any:
    """Rows below each other; the narrower are filled up."""
    width = max(part.shape[1] for part in parts)
    stacked = np.full((sum(map(len, parts)), width), empty, dtype=parts[0].dtype)
    start = 0
    for part in parts:
        stacked[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return stacked


@dataclass(frozen=True, eq=False)
class VoteTable:
    """The votes of several models on a block of items, item by item."""

    hard: Codes
    """(n, T) −1 where there is none; a soft vote by its own code."""
    soft: Rows
    """(n, T) the place of the soft vote, −1 where a vote is only hard; of size 0 if all are."""
    classes: Codes
    """(places, m) of the soft votes; −1 where there are fewer."""
    weights: Floats

    @classmethod
    def only(cls, hard: Codes) -> VoteTable:
        """Hard votes only."""
        return cls(hard, np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int32), np.zeros((0, 0)))

    @classmethod
    def side_by_side(cls, votes: Sequence[ModelVotes], items: int) -> VoteTable:
        """The votes of several models on the same items."""
        hard = np.full((items, len(votes)), MISSING, dtype=np.int32)
        for model, cast in enumerate(votes):
            hard[:, model] = cast.hard
        rows = np.arange(items)
        softly = [(rows, at, cast.soft) for at, cast in enumerate(votes) if cast.soft is not None]
        return cls.only(hard)._with_soft(softly)

    def with_votes(self, votes: Codes | SoftVotes, rows: Rows, model: int) -> VoteTable:
        """These votes and those of a model on some of the items."""
        more = ((0, 0), (0, max(model + 1 - self.hard.shape[1], 0)))
        hard = np.pad(self.hard, more, constant_values=MISSING)
        hard[rows, model] = votes.hard if isinstance(votes, SoftVotes) else votes
        places = np.pad(self.soft, more, constant_values=MISSING) if self.soft.size else self.soft
        wider = VoteTable(hard, places, self.classes, self.weights)
        return wider._with_soft([(rows, model, votes)] if isinstance(votes, SoftVotes) else [])

    def _with_soft(self, votes: Sequence[tuple[Rows, int, SoftVotes]]) -> VoteTable:
        """The same where some votes are soft, each time those of a model on some of the items."""
        if not votes:
            return self
        places = np.full(self.hard.shape, MISSING, dtype=np.int64)
        if self.soft.size:
            places[:] = self.soft
        classes, weights, number = [self.classes], [self.weights], len(self.classes)
        for rows, model, soft in votes:
            present = np.flatnonzero(soft.hard != MISSING)
            places[rows[present], model] = number + np.arange(len(present))
            number += len(present)
            classes.append(soft.codes[present])
            weights.append(soft.weights[present])
        return VoteTable(self.hard, places, _stacked(classes, MISSING), _stacked(weights, 0.0))

    def __len__(self) -> int:
        return len(self.hard)

    def __getitem__(self, rows: Rows | slice) -> VoteTable:
        hard = np.ascontiguousarray(self.hard[rows])
        soft = self.soft[rows] if self.soft.size else self.soft
        return VoteTable(hard, soft, self.classes, self.weights)

    def of(self, models: Sequence[int]) -> VoteTable:
        """Those of some of the models."""
        hard = np.ascontiguousarray(self.hard[:, models])
        soft = np.ascontiguousarray(self.soft[:, models]) if self.soft.size else self.soft
        return VoteTable(hard, soft, self.classes, self.weights)

    def without_last(self) -> VoteTable:
        """The same before the last model voted."""
        hard = self.hard.copy()
        hard[:, -1:] = MISSING
        return VoteTable(hard, self.soft, self.classes, self.weights)


def majority(votes: ArrayLike) -> Codes:
    """The most frequent vote of each item; a tie goes to the tied class voted for most recently.

    ``votes`` is (T, n) in order of arrival. Counting back from the newest vote makes the most
    recent of the tied classes the first to reach the maximum.

    >>> majority(np.array([[0, 0, 2], [0, 1, -1], [1, -1, -1]], dtype=np.int32))
    array([0, 1, 2], dtype=int32)
    """
    given = as_array(votes, "votes")
    if given.ndim != 2 or given.dtype.kind not in "iu":
        raise InvalidData(
            f"'votes' must be codes (models, items); got {given.dtype} {given.shape}."
        )
    best = np.full(given.shape[1], MISSING, dtype=np.int32)
    most = np.zeros(given.shape[1], dtype=np.int64)
    for cast in given[::-1]:
        count = ((given == cast) & (cast != MISSING)).sum(axis=0)
        wins = count > most
        best[wins] = cast[wins]
        most[wins] = count[wins]
    return best
