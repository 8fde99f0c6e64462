"""Cross-fits: how models err, learnt on each half of the labelled items for use on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from posterity.method.adapt import class_shares
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs import temperature
from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.dependent import Dependence
from posterity.method.beliefs.patterns import Patterns
from posterity.method.beliefs.temperature import Temperature
from posterity.method.data.arrays import Codes, Counts, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, SoftVotes


@dataclass(frozen=True, eq=False)
class SoftReadings:
    """How a model's soft votes are to be read: as all labelled ones say, and each half of them."""

    whole: Temperature | None
    halves: tuple[Temperature | None, Temperature | None]
    """For use on one half, learnt on the other."""

    @classmethod
    def of(cls, soft: SoftVotes | None, truth: Codes, classes: int) -> SoftReadings:
        """From its labelled soft votes; without any, its soft votes count by their class."""
        halves = _other_halves(len(truth))
        # A half without any cannot tell of the other.
        if soft is None or not all((soft.hard[rows] != MISSING).any() for rows in halves):
            return cls(None, (None, None))
        first, second = (
            temperature.fit(soft[rows], truth[rows], classes=classes) for rows in halves
        )
        return cls(temperature.fit(soft, truth, classes=classes), (first, second))


@dataclass(frozen=True, eq=False)
class Fits:
    """How models err together: on all labelled items, and on each half for use on the other."""

    whole: Dependence
    halves: tuple[Dependence, Dependence]
    votes: Codes
    """(n, T) of the labelled items, without those that were chosen for a review."""
    truth: Codes

    def places(self, fit: Dependence) -> Rows:
        """Where the labelled items stand among the patterns of a fit to all of them."""
        return fit.patterns.places(self.votes, self.truth)

    @classmethod
    def of(
        cls,
        votes: Codes,
        truth: Codes,
        prior: Floats,
        readings: Sequence[SoftReadings] = (),
        *,
        learnt: str | None = None,
        counts: Counts | None = None,
        answered: int = 0,
    ) -> Fits:
        """From the votes (n, T) of the models so far, and how soft ones of each are to be read.

        ``learnt``: the kind of prior, if it comes from the labelled set; each half then has that of
        all other labelled items, for among many classes an item's own truth would speak for it.
        ``counts``: of how many labelled items each class is the truth, where there are more than
        these. ``answered``: so many of the items, the last ones, were chosen for a review by all
        their votes: among those with some of these votes they are not a fair sample.
        """
        labelled = np.arange(len(truth)) < len(truth) - answered
        everywhere = _counted(truth[labelled], len(prior)) if counts is None else counts

        def fitted(rows: Mask) -> Dependence:
            others = everywhere - _counted(truth[~rows & labelled], len(prior))
            own = None if rows.all() else class_shares.learnt(learnt, others.clip(0))
            patterns = Patterns.of(votes[rows & labelled], truth[rows & labelled])
            believed = prior if own is None else own
            return beliefs_fit.fit(votes[rows], truth[rows], believed, patterns=patterns)

        first, second = (
            replace(fitted(rows), temperatures=tuple(each.halves[side] for each in readings))
            for side, rows in enumerate(_other_halves(len(truth)))
        )
        whole = fitted(np.ones(len(truth), dtype=np.bool_))
        read = tuple(each.whole for each in readings)
        return cls(
            replace(whole, temperatures=read), (first, second), votes[labelled], truth[labelled]
        )


@dataclass(frozen=True, eq=False)
class Confusions:
    """How each model errs by itself, for plain beliefs: on each half for use on the other."""

    halves: tuple[list[Confusion], list[Confusion]]

    @classmethod
    def of(cls, votes: Codes, truth: Codes, classes: int, estimator: str) -> Confusions:
        """From the votes (n, T) of the models."""
        estimate = partial(Confusion.from_pairs, classes=classes, estimator=estimator)
        first, second = (
            [estimate(truth[rows], cast) for cast in votes[rows].T]
            for rows in _other_halves(len(truth))
        )
        return cls((first, second))


def _counted(truth: Codes, classes: int) -> Counts:
    return np.bincount(truth, minlength=classes)


def _other_halves(items: int) -> tuple[Mask, Mask]:
    """What is learnt on for use on the first half, which has every other item, and the second."""
    second: Mask = np.arange(items) % 2 == 1
    return second, ~second
