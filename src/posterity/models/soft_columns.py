"""Soft votes in files: class probabilities, or each item's top classes with scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.arrays import Codes, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, SUM_TOLERANCE, ModelVotes, SoftVotes
from posterity.models.class_map import Answers
from posterity.storage.input import column

TEMPLATE = "{class}"


@dataclass(frozen=True)
class SoftColumns:
    """Where a file has soft votes, as a user writes it.

    ``probs``: a column of lists, one probability for each class. ``p_{class}``: a column for each
    class. ``classes:scores``: two columns of lists, the top classes and their scores.

    >>> SoftColumns.parse("top5:scores5").scores
    'scores5'
    """

    text: str
    classes: str | None = None
    scores: str | None = None

    @classmethod
    def parse(cls, text: str) -> SoftColumns:
        """Read the form from its spelling."""
        if TEMPLATE in text:
            return cls(text)
        classes, colon, scores = text.partition(":")
        if colon and classes and scores:
            return cls(text, classes.strip(), scores.strip())
        if colon or not text.strip():
            raise InvalidParameter.of(
                "soft", "COLUMN of lists, 'p_{class}' or CLASSES:SCORES", text
            )
        return cls(text.strip())

    def columns(self, answers: Answers) -> list[str]:
        """The columns it needs."""
        if self.classes is not None and self.scores is not None:
            return [self.classes, self.scores]
        if TEMPLATE in self.text:
            return [self.text.replace(TEMPLATE, str(name)) for name in answers.names]
        return [self.text]

    def read(self, rows: pa.Table, answers: Answers, hard: Codes, what: str) -> ModelVotes:
        """Soft votes beside the hard ones; where there is only a soft one, its top class counts."""
        if self.classes is not None and self.scores is not None:
            top = rows.column(self.classes), rows.column(self.scores)
            soft = self._top(*top, answers, what)
        else:
            soft = self._all(rows, answers, what)
        return _beside(hard, soft)

    def _all(self, rows: pa.Table, answers: Answers, what: str) -> ModelVotes:
        names = self.columns(answers)
        if TEMPLATE in self.text:
            table = np.column_stack([_numbers(rows.column(name), what) for name in names])
            present: Mask = np.count_nonzero(~np.isnan(table), axis=1) > 0
        else:
            flat, lengths, present = _lists(rows.column(self.text), what)
            width = len(answers.names)
            odd = np.flatnonzero(present)[lengths[present] != width]
            if len(odd):
                raise InvalidData(
                    f"The {what} must have a probability for each of {width} classes; row "
                    f"{odd[0]} has {lengths[odd[0]]} ({len(odd)} such rows)."
                )
            table = np.zeros((len(present), width))
            table[present] = _numbers(flat, what).reshape(-1, width)
        # So that an error names the row as the file counts it, a row without a vote has one here.
        table[~present] = np.arange(table.shape[1]) == 0
        try:
            cast = answers.probabilities(table, len(table))
        except InvalidData as error:
            raise InvalidData(f"The {what}: {error.message}", hint=error.hint) from None
        return _without(cast, ~present)

    @staticmethod
    def _top(
        classes: pa.ChunkedArray, given: pa.ChunkedArray, answers: Answers, what: str
    ) -> ModelVotes:
        names, lengths, present = _lists(classes, what)
        scores, others, scored = _lists(given, what)
        odd = np.flatnonzero((lengths != others) | (present != scored) | (present & (lengths == 0)))
        if len(odd):
            raise InvalidData(
                f"The {what} must have a score for each class; row {odd[0]} has {lengths[odd[0]]} "
                f"classes and {others[odd[0]]} scores ({len(odd)} such rows)."
            )
        codes = answers.column(names, what)
        weights = _numbers(scores, what)
        owner = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
        wrong = ~np.isfinite(weights) | (weights < 0) | (codes == MISSING)
        sums = np.bincount(owner, np.where(wrong, 0.0, weights), minlength=len(lengths))
        bad = np.zeros(len(lengths), dtype=np.bool_)
        bad[owner[wrong]] = True
        bad |= present & ((sums <= 0) | (sums > 1 + SUM_TOLERANCE))
        if bad.any():
            raise InvalidData(
                f"The {what} must be scores from 0 to 1 that sum to at most one; row "
                f"{int(np.flatnonzero(bad)[0])} does not ({int(bad.sum())} such rows)."
            )
        soft = _merged(codes, weights, owner, len(lengths), len(answers.classes), answers.top)
        # As with all probabilities, the vote is the model's own most probable class.
        hard = np.full(len(lengths), MISSING, dtype=np.int32)
        order = np.lexsort((-codes, weights, owner))
        hard[owner[order]] = codes[order]
        return ModelVotes(hard, replace(soft, hard=hard))


def read_soft(text: str, rows: pa.Table, answers: Answers, hard: Codes, what: str) -> ModelVotes:
    """Soft votes of a file, as a user says where they are."""
    columns = SoftColumns.parse(text)
    for name in columns.columns(answers):
        column(rows, name, what)
    return columns.read(rows, answers, hard, f"soft votes of the {what}")


def _merged(
    codes: Codes, weights: Floats, owner: Rows, items: int, classes: int, keep: int
) -> SoftVotes:
    """Several of the model's classes may be one of ours; the heaviest come first, lower first."""
    cells, at = np.unique(owner.astype(np.int64) * classes + codes, return_inverse=True)
    summed = np.bincount(at, weights)
    item, code = cells // classes, (cells % classes).astype(np.int32)
    order = np.lexsort((code, -summed, item))
    item, code, summed = item[order], code[order], summed[order]
    place = np.arange(len(item)) - np.searchsorted(item, item)
    width = min(int(place.max(initial=0)) + 1, keep)
    kept = place < width
    table = np.full((items, width), MISSING, dtype=np.int32)
    heavy = np.zeros((items, width))
    table[item[kept], place[kept]] = code[kept]
    heavy[item[kept], place[kept]] = summed[kept]
    total = heavy.sum(axis=1, keepdims=True)
    heavy /= np.where(total == 0, 1.0, total)
    return SoftVotes(table, heavy, classes, table[:, 0].copy())


def _beside(hard: Codes, cast: ModelVotes) -> ModelVotes:
    """The hard votes as given, the soft ones beside them."""
    if cast.soft is None:
        return ModelVotes(np.where(hard == MISSING, cast.hard, hard))
    both = np.where(hard == MISSING, cast.soft.hard, hard)
    soft = cast.soft
    softly = np.where(soft.codes[:, 0] == MISSING, np.int32(MISSING), both)
    return ModelVotes(both, SoftVotes(soft.codes, soft.weights, soft.classes, softly))


def _without(cast: ModelVotes, absent: Mask) -> ModelVotes:
    """Votes but for the rows that have none."""
    hard = np.where(absent, np.int32(MISSING), cast.hard)
    if cast.soft is None:
        return ModelVotes(hard)
    codes = np.where(absent[:, None], np.int32(MISSING), cast.soft.codes)
    weights = np.where(absent[:, None], 0.0, cast.soft.weights)
    return ModelVotes(hard, SoftVotes(codes, weights, cast.soft.classes, hard))


def _numbers(values: pa.Array | pa.ChunkedArray, what: str) -> Floats:
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_null)
    if not any(kind(values.type) for kind in kinds):
        raise InvalidData(f"The {what} must hold numbers; got {values.type}.")
    given = pc.fill_null(values.cast(pa.float64(), safe=False), float("nan"))
    numbers: Floats = np.asarray(given)
    return numbers


def _lists(column: pa.ChunkedArray, what: str) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The values of lists one after the other, how many each row has, and which rows have one."""
    if pa.types.is_null(column.type):  # a file, or a part of one, without any
        column = column.cast(pa.list_(pa.null()))
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.chunk(0) if lists.num_chunks else pa.array([], column.type)
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(kind(lists.type) for kind in kinds):
        raise InvalidData(f"The {what} must hold lists; got {lists.type}.")
    if pa.types.is_fixed_size_list(lists.type):
        lists = lists.cast(pa.list_(lists.type.value_type))
    lengths = np.asarray(lists.value_lengths().fill_null(0))
    return lists.flatten(), lengths, np.asarray(lists.is_valid())
