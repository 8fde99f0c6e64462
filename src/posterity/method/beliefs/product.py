"""Product: a prior and the models that have voted, ready to be multiplied for a block of items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posterity.errors import InvalidData
from posterity.method import kernels
from posterity.method.beliefs import priors
from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.model_sets import model_sets
from posterity.method.data.arrays import Codes, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, VoteTable

if TYPE_CHECKING:
    from posterity.method.kernels.sets import Sets, Terms, VoteArrays


SOFT_CELLS = 2**21
"""Cells of soft votes that are written out at a time: 40 MiB."""


class Folded(NamedTuple):
    """Where items stand with all their votes."""

    entropy: Floats
    best: Codes
    """The most believed class; of exactly tied ones any."""
    tied: Mask
    """Whether others may be exactly as likely."""
    log_best: Floats
    log_total: Floats
    """What turns log-joints into logarithms of beliefs."""
    log_stored: Floats
    """The log-joint of the stored label; −inf where there is none, or none was given."""

    @classmethod
    def room(cls, items: int, *, labelled: bool = True) -> Folded:
        """To be filled; log-joints of labels are written only where there are labels."""
        return cls(
            np.empty(items),
            np.empty(items, dtype=np.int32),
            np.empty(items, dtype=np.bool_),
            np.empty(items),
            np.empty(items),
            np.empty(items) if labelled else np.full(items, -np.inf),
        )

    def of_rows(self, rows: Rows | slice) -> Folded:
        """Those of some items; of a slice no copies, to be filled."""
        parts: list[Any] = [array[rows] for array in self]
        return Folded(*parts)

    # By the same function as every other belief: the ratio of two may be exactly what a rule asks
    # for, and must not depend on where they come from.

    @property
    def belief_best(self) -> Floats:
        """p(k̂)."""
        return _exponential(self.log_best, self.log_total)

    @property
    def belief_stored(self) -> Floats:
        """p(l)."""
        return _exponential(self.log_stored, self.log_total)


def _exponential(logs: Floats, totals: Floats) -> Floats:
    found = np.empty(len(logs))

    def work(start: int, stop: int) -> None:
        part = found[start:stop]
        np.subtract(logs[start:stop], totals[start:stop], out=part)
        np.exp(part, out=part)

    kernels.compiler.spread(len(found), work)
    return found


class Product:
    """p(k) ∝ prior(k) · Π_t π^t(ŷ^t, k), for any of the models' votes.

    What depends on the set of models alone is computed once for each set that occurs, and kept.
    """

    def __init__(self, prior: Floats, confusions: Sequence[Confusion]) -> None:
        self.prior, self.confusions = prior, tuple(confusions)
        self.classes = len(prior)
        logs = priors.log(prior)
        logs = logs - logs.max()
        base = np.array([_relative(one) for one in confusions]).reshape(-1, self.classes)
        self.terms = _packed(logs, base, confusions)
        self._sets = model_sets(self.terms)
        self._lock = Lock()

    def fold(self, votes: VoteTable, stored: Codes | None = None) -> Folded:
        """Entropy and most believed class of each item, and what is believed of its label."""
        labels = np.zeros(0, dtype=np.int32) if stored is None else stored
        self._refuse_strange("labels", int(labels.max(initial=MISSING)))
        out = Folded.room(len(votes), labelled=stored is not None)
        for at, cast, sets in self._blocks(votes):
            given = self.terms, cast, sets, labels[at:], out.of_rows(slice(at, None))
            kernels.compiler.spread(len(cast.hard), kernels.fold.fold, *given)
        return out

    def _refuse_strange(self, name: str, highest: int) -> None:
        """Kernels do not look where they read: a code that is no class must not reach them."""
        if highest >= self.classes:
            raise InvalidData(
                f"'{name}' must be between {MISSING} and {self.classes - 1}; got {highest}."
            )

    def prefer(self, votes: VoteTable, stored: Codes, folded: Folded) -> Codes:
        """The most believed class; exactly tied: the stored label, else the most recent vote."""
        best = folded.best.copy()
        rows = np.flatnonzero(folded.tied)
        if len(rows):
            few = votes[rows]
            preferred = np.concatenate([stored[rows, None], few.hard[:, ::-1]], axis=1)
            joint = self.joints(few, np.concatenate([best[rows, None], preferred], axis=1))
            level = joint[:, 1:] == joint[:, :1]
            first = level.argmax(axis=1)
            found = level.any(axis=1)
            best[rows[found]] = preferred[found, first[found]]
        return best

    def joints(self, votes: VoteTable, asked: Codes) -> Floats:
        """(n, m) the log-joints of the classes asked for; −inf where the code is missing."""
        logs = np.empty(asked.shape)
        for at, cast, sets in self._blocks(votes):
            given = self.terms, cast, sets, asked[at:], logs[at:]
            kernels.compiler.spread(len(cast.hard), kernels.fold.joints, *given)
        return logs

    def _blocks(self, votes: VoteTable) -> Iterator[tuple[int, VoteArrays, Sets]]:
        """Where each block begins, its votes and sets; all at once where all votes are hard."""
        size = len(votes)
        if votes.soft.size:
            # As many cells as a soft vote may have, for every vote of an item.
            widest = int(np.diff(self.terms.starts, axis=1).max(initial=1)) * votes.classes.shape[1]
            each = max(1, min(self.classes, widest) * votes.hard.shape[1])
            size = max(1, SOFT_CELLS // each)
        for start in range(0, max(1, len(votes)), max(1, size)):
            block = votes[start : start + size]
            sets = self.sets(block)
            yield start, self._cast(block), sets

    def _cast(self, votes: VoteTable) -> VoteArrays:
        terms = self.terms
        if not votes.soft.size:
            none = np.zeros((0, 2), dtype=np.int64)
            return kernels.sets.VoteArrays(
                votes.hard, votes.soft, none, terms.truths, terms.kinds, terms.ratios
            )
        item, model = np.nonzero((votes.soft >= 0) & (votes.hard >= 0))
        chosen = votes.soft[item, model]
        classes, weights = votes.classes[chosen], votes.weights[chosen]
        counts = np.diff(terms.starts, axis=1)[model[:, None], classes.clip(min=0)]
        room = np.minimum(np.where(classes >= 0, counts, 0).sum(axis=1), self.classes)
        ends = np.cumsum(room)
        ranges = np.stack([ends - room, ends], axis=1)
        truths = np.empty(int(room.sum()), dtype=np.int32)
        ratios = np.empty((len(truths), 2))
        kernels.sets.soften(terms, model, classes, weights, ranges, truths, ratios)
        places = np.full(votes.soft.shape, -1, dtype=np.int64)
        places[item, model] = np.arange(len(item))
        own = len(terms.ratios) + np.arange(len(truths), dtype=np.int32)
        return kernels.sets.VoteArrays(
            votes.hard,
            places,
            ranges + len(terms.truths),
            np.concatenate([terms.truths, truths]),
            np.concatenate([terms.kinds, own]),
            np.concatenate([terms.ratios, ratios]),
        )

    def sets(self, votes: VoteTable) -> Sets:
        """The set of models of each item, with what is known of those that occur."""
        with self._lock:
            sets, highest = self._sets.of(votes.hard)
        self._refuse_strange("votes", highest)
        return sets


def _relative(confusion: Confusion) -> Floats:
    logs: Floats = np.log(confusion.common)
    relative: Floats = logs - logs.max()
    return relative


def _packed(prior: Floats, base: Floats, confusions: Sequence[Confusion]) -> Terms:
    classes, models = len(prior), len(confusions)
    starts = np.zeros((models, classes + 1), dtype=np.int64)
    begin = 0
    for at, one in enumerate(confusions):
        starts[at] = one.starts + begin
        begin += len(one.values)
    truths = np.concatenate([np.zeros(0, np.int32), *(one.truths for one in confusions)])
    kinds, ratios, known = [np.zeros(0, np.int32)], [np.zeros(0)], 0
    for one in confusions:
        own, found = one.kinds
        kinds.append(own + np.int32(known))
        ratios.append(found)
        known += len(found)
    kind, ratio = np.concatenate(kinds), np.concatenate(ratios)
    different = np.stack([np.log(ratio), ratio], axis=-1)
    each = np.arange(classes)
    single = all(
        len(one.truths) == classes
        and (one.truths == each).all()
        and (one.starts[:-1] == each).all()
        for one in confusions
    )
    weight = np.exp(prior)
    near = np.zeros((classes, models + 1, 4))
    near[:, 0, 0], near[:, 0, 1] = prior, weight
    near[:, 1:, 0], near[:, 1:, 1] = base.T, np.exp(base).T
    if single:
        near[:, 1:, 2:] = different[kind].reshape(models, classes, 2).swapaxes(0, 1)
    possible = weight > 0
    return kernels.sets.Terms(
        np.stack([prior, weight], axis=-1),
        base,
        np.exp(base),
        near,
        starts,
        truths,
        kind,
        different,
        # Of the prior the mean itself, which may be far above the mean logarithm.
        np.array([np.log(weight[possible].mean()), *base[:, possible].mean(axis=1)]),
        int(possible.sum()),
        single,
    )
