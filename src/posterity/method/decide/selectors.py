"""Selectors: which items the arriving model should look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Mask, Rows
from posterity.method.data.spec import Spec, read_seed
from posterity.method.data.votes import VoteTable, check_same_length

Keys = NDArray[np.uint64]
SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What a selector may look at: items of the dataset before a step."""

    entropy: Floats
    """S_n of each item's belief."""
    rows: Rows
    """The row of each item in the whole dataset."""
    step: int = 0
    seed: int = 0
    value: Callable[[], Floats] | None = None
    """What a vote of the arriving model is expected to bring; computed when asked for."""


@runtime_checkable
class Selector(Protocol):
    """Ranks items for evaluation: the highest score is looked at first."""

    def score(self, candidates: Candidates) -> Floats:
        """One finite score an item."""


@dataclass(frozen=True)
class Entropy:
    """The paper's: the most uncertain belief first."""

    def score(self, candidates: Candidates) -> Floats:
        """S_n."""
        return candidates.entropy

    def __str__(self) -> str:
        return "entropy"


class ByVotes:
    """What selectors have in common that weigh all votes of an item, not its entropy alone.

    They need beliefs that tell how models err together: ``dependent``.
    """

    name: ClassVar[str]

    def score(self, candidates: Candidates) -> Floats:
        """By the current beliefs."""
        if candidates.value is None:
            raise InvalidParameter(
                f"The selector '{self.name}' needs dependent beliefs: they tell how models err "
                "together.",
                hint="Choose the beliefs 'dependent', or the selector 'entropy'.",
            )
        # Single precision, as they are kept between the passes of a selection.
        return candidates.value().astype(np.float32).astype(np.float64)

    def weigh(
        self,
        fit: Dependence,
        votes: VoteTable,
        who: Sequence[int],
        stored: Codes,
        *,
        model: int,
        ratio: float,
        own: Rows | None = None,
    ) -> Floats:
        """Items with votes of the models ``who``, for a vote of ``model``, under a cost ratio.

        ``own``: of labelled items, their places among the patterns, so that none counts itself.
        """
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Value(ByVotes):
    """What a vote could change: the positive flips it is expected to bring, less negative ones.

    Items no vote would settle have no value, however uncertain.
    """

    name = "value"

    def weigh(
        self,
        fit: Dependence,
        votes: VoteTable,
        who: Sequence[int],
        stored: Codes,
        *,
        model: int,
        ratio: float,
        own: Rows | None = None,
    ) -> Floats:
        """See ``Dependence.value``."""
        return fit.value(votes, who, stored, model=model, ratio=ratio, own=own)


@dataclass(frozen=True)
class Contested(ByVotes):
    """Items with few votes, or with votes that contradict each other, first.

    It comes back to an item until one class has clearly more votes, whatever the classes are.
    Labels get better later than with ``value``, and fewer of them break on the way.
    """

    name = "contested"

    def weigh(
        self,
        fit: Dependence,
        votes: VoteTable,
        who: Sequence[int],
        stored: Codes,  # noqa: ARG002
        *,
        model: int,  # noqa: ARG002
        ratio: float,  # noqa: ARG002
        own: Rows | None = None,  # noqa: ARG002
    ) -> Floats:
        """See ``Dependence.contest``."""
        return fit.contest(votes, who)


@dataclass(frozen=True)
class Random:
    """A draw that depends on seed, step and row alone, not on how items are grouped.

    The seed is the run's unless given here.
    """

    seed: int | None = None

    def score(self, candidates: Candidates) -> Floats:
        """A hash of (seed, step, row), as a number from 0 to 1."""
        seed = candidates.seed if self.seed is None else self.seed
        key = row_hash(np.array([seed], dtype=np.uint64)) + np.uint64(candidates.step)
        mixed = row_hash(row_hash(key) ^ row_hash(candidates.rows))
        return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def __str__(self) -> str:
        return "random" if self.seed is None else f"random:{self.seed}"


@dataclass(frozen=True)
class Everything:
    """No preference: with a full budget a backfill, with less a draw that never changes."""

    def score(self, candidates: Candidates) -> Floats:
        """The same for all."""
        return np.zeros(len(candidates.entropy))

    def __str__(self) -> str:
        return "everything"


NAMES = ("value", "contested", "entropy", "random", "everything")


def parse(text: str | Selector) -> Selector:
    """The selector a name stands for.

    >>> parse("random:7")
    Random(seed=7)
    """
    if isinstance(text, Selector) and not isinstance(text, type):
        return text
    if not isinstance(text, str):
        raise InvalidParameter.of("selector", "a name or a selector object", text)
    spec = Spec.parse(text, "selector")
    if spec.name not in NAMES:
        raise UnknownName.among("selector", spec.name, NAMES)
    spec.refuse_extras("selector", value=spec.name == "random")
    if spec.name == "entropy":
        return Entropy()
    if spec.name == "value":
        return Value()
    if spec.name == "contested":
        return Contested()
    if spec.name == "everything":
        return Everything()
    return Random(None if spec.value is None else read_seed(spec.value, "selector random"))


def choose(score: Floats, *, rows: Rows, eligible: Mask, first: Mask, evaluations: int) -> Rows:
    """The rows to evaluate, ascending: exactly ``evaluations`` of them or all that are eligible.

    Items marked ``first`` (no vote yet) come before all others whatever their score, then the
    highest score; ties go by a fixed hash of the row, so that no part of the data is favoured.

    >>> everyone = np.ones(3, dtype=bool)
    >>> choose(
    ...     np.array([0.1, 0.9, 0.5]),
    ...     rows=np.arange(3), eligible=everyone, first=~everyone, evaluations=2,
    ... )
    array([1, 2])
    """
    check_same_length(score=len(score), rows=len(rows), eligible=len(eligible), first=len(first))
    if evaluations < 0:
        raise InvalidParameter.of("evaluations", "a count ≥ 0", evaluations)
    candidates = np.flatnonzero(eligible)
    if not np.isfinite(np.asarray(score)[candidates]).all():
        raise InvalidData("A selector must give finite scores.")
    preferred = np.asarray(first, dtype=np.bool_)[candidates]
    chosen = []
    for group in (candidates[preferred], candidates[~preferred]):
        scores, numbers = np.asarray(score)[group], np.asarray(rows)[group]
        chosen.append(numbers[_highest(scores, numbers, evaluations)])
        evaluations -= len(chosen[-1])
    return np.sort(np.concatenate(chosen))


def ranked(score: Floats, *, rows: Rows, eligible: Mask, first: Mask) -> Rows:
    """All eligible rows in the order in which ``choose`` takes them.

    >>> everyone = np.ones(3, dtype=bool)
    >>> ranked(np.array([0.1, 0.9, 0.5]), rows=np.arange(3), eligible=everyone, first=~everyone)
    array([1, 2, 0])
    """
    candidates = np.flatnonzero(eligible)
    numbers = np.asarray(rows)[candidates]
    keys = descending(np.asarray(score)[candidates])
    return numbers[np.lexsort((row_hash(numbers), keys, ~np.asarray(first)[candidates]))]


def without_value(selector: Selector) -> Selector:
    """What stands in for the selectors that need dependent beliefs where these are plain."""
    return Entropy() if isinstance(selector, ByVotes) else selector


def _highest(scores: Floats, rows: Rows, count: int) -> Rows:
    """Positions of the ``count`` highest scores, or of all; ties go by the hash of the row."""
    if count >= len(scores):
        return np.arange(len(scores))
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    keys = descending(scores)
    last = _lowest(keys, count)
    below, tied = np.flatnonzero(keys < last), np.flatnonzero(keys == last)
    hashes = row_hash(rows[tied])
    # A hash belongs to one row only, so that the second cut leaves no ties.
    return np.concatenate([below, tied[hashes <= _lowest(hashes, count - len(below))]])


def _lowest(keys: Keys, count: int) -> np.uint64:
    """The highest of the ``count`` lowest keys."""
    found: np.uint64 = np.partition(keys, count - 1)[count - 1]
    return found


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


def row_hash(rows: NDArray[np.int64] | NDArray[np.uint64]) -> Keys:
    """A fixed, well-mixed 64-bit hash of each row (the finaliser of splitmix64).

    >>> [hex(value) for value in row_hash(np.array([0, 1]))]
    ['0xe220a8397b1dcdaf', '0x910a2dec89025cc1']
    """
    mixed = rows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed: Keys = mixed ^ (mixed >> np.uint64(31))
    return hashed
