"""Metrics: what a step and a run of steps did, with the truth known and without.

Rates are fractions from 0 to 1. An item without a label yet counts as wrong; getting its first
label is not a flip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.arrays import ArrayLike, Codes, Mask
from posterity.method.data.votes import MISSING, as_array, check_same_length


@dataclass(frozen=True)
class Flips:
    """Label changes by kind: right→wrong, wrong→right, wrong→other wrong."""

    negative: int
    positive: int
    neutral: int


@dataclass(frozen=True)
class StepScore:
    """One step against the truth."""

    items: int
    accuracy: float
    flips: Flips
    btc: float | None
    """Backward trust compatibility, P(right after | right before); None if nothing was right."""
    bec: float | None
    """Backward error compatibility, P(wrong before | wrong after); None if nothing is wrong.

    Divided by the *new* errors, as in the paper; one published library divides by the old ones.
    """
    evaluations: int = 0


@dataclass(frozen=True)
class RunScore:
    """Steps 1..T against the truth; step 0, the first labels, is where they start from."""

    items: int
    steps: int
    evaluations: int
    accuracy: float
    delta_accuracy: float
    mean_accuracy: float | None
    flips: Flips
    nfr: float | None
    """ΣNF / (N·T)."""
    pf_nf: float | None
    """PF/NF; None if there was no negative flip."""
    btc: float | None
    bec: float | None

    def utility(self, cost_ratio: float) -> float:
        """PF − c·ΣNF.

        >>> first = score_step([0, 1], [-1, -1], [0, 0])
        >>> score_run([first, score_step([0, 1], [0, 0], [1, 1])]).utility(10)
        -9
        """
        return self.flips.positive - cost_ratio * self.flips.negative


def accuracy(truth: ArrayLike, labels: ArrayLike) -> float:
    """The share of items whose label is right."""
    known, stored = _arrays(truth=truth, labels=labels)
    return float((known == stored).mean())


def flipped(before: Codes, after: Codes) -> Mask:
    """Where a label changed; a first label is not a flip."""
    changed: Mask = (before != MISSING) & (before != after)
    return changed


def flips(truth: ArrayLike, before: ArrayLike, after: ArrayLike) -> Flips:
    """Count the label changes of a step by kind.

    >>> flips(truth=[0, 0, 0, 0], before=[0, 1, 1, -1], after=[1, 0, 2, 0])
    Flips(negative=1, positive=1, neutral=1)
    """
    return score_step(truth, before, after).flips


def backward_trust(truth: ArrayLike, before: ArrayLike, after: ArrayLike) -> float | None:
    """BTC = P(right after | right before)."""
    return score_step(truth, before, after).btc


def backward_error(truth: ArrayLike, before: ArrayLike, after: ArrayLike) -> float | None:
    """BEC = P(wrong before | wrong after)."""
    return score_step(truth, before, after).bec


def score_step(
    truth: ArrayLike, before: ArrayLike, after: ArrayLike, *, evaluations: int = 0
) -> StepScore:
    """Every metric of one step; for step 0, ``before`` holds no labels (all −1)."""
    known, old, new = _arrays(truth=truth, before=before, after=after)
    was_right, is_right, changed = old == known, new == known, flipped(old, new)
    negative, positive = int((changed & was_right).sum()), int((changed & is_right).sum())
    return StepScore(
        items=len(known),
        accuracy=float(is_right.mean()),
        flips=Flips(negative, positive, int(changed.sum()) - negative - positive),
        btc=_share(is_right, among=was_right),
        bec=_share(~was_right, among=~is_right),
        evaluations=evaluations,
    )


def score_run(steps: Sequence[StepScore]) -> RunScore:
    """Sum up steps 0..T; flips, evaluations and averages are over steps 1..T."""
    if not steps:
        raise InvalidParameter.of("steps", "at least step 0", steps)
    first, later, last = steps[0], steps[1:], steps[-1]
    total = Flips(
        sum(step.flips.negative for step in later),
        sum(step.flips.positive for step in later),
        sum(step.flips.neutral for step in later),
    )
    return RunScore(
        items=first.items,
        steps=len(later),
        evaluations=sum(step.evaluations for step in later),
        accuracy=last.accuracy,
        delta_accuracy=last.accuracy - first.accuracy,
        mean_accuracy=_mean([step.accuracy for step in later]),
        flips=total,
        nfr=total.negative / (first.items * len(later)) if later else None,
        pf_nf=total.positive / total.negative if total.negative else None,
        btc=_mean([step.btc for step in later]),
        bec=_mean([step.bec for step in later]),
    )


def expected_accuracy(belief_in_label: ArrayLike) -> float:
    """E[accuracy] = mean p(l), without truth; as good as the beliefs are calibrated.

    >>> expected_accuracy(np.array([0.9, 0.6]))
    0.75
    """
    if not len(belief_in_label):
        raise InvalidData("There are no items to expect an accuracy of.")
    return float(as_array(belief_in_label, "belief_in_label").mean())


@dataclass(frozen=True)
class ExpectedFlips:
    """The flips a step made, by kind as believed: E[NF] = Σ p(old), E[PF] = Σ p(new)."""

    negative: float
    positive: float
    neutral: float


def expected_flips(belief_in_old: ArrayLike, belief_in_new: ArrayLike) -> ExpectedFlips:
    """Beliefs in the old and new label of each flip, after the step's votes were folded.

    >>> expected_flips(np.array([0.25, 0.125]), np.array([0.5, 0.875]))
    ExpectedFlips(negative=0.375, positive=1.375, neutral=0.25)
    """
    check_same_length(belief_in_old=len(belief_in_old), belief_in_new=len(belief_in_new))
    negative = float(as_array(belief_in_old, "belief_in_old").sum())
    positive = float(as_array(belief_in_new, "belief_in_new").sum())
    return ExpectedFlips(negative, positive, len(belief_in_old) - negative - positive)


def _share(hits: np.ndarray, *, among: np.ndarray) -> float | None:
    return float(hits[among].mean()) if among.any() else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _arrays(**given: ArrayLike) -> list[Codes]:
    arrays = {name: as_array(codes, name) for name, codes in given.items()}
    for name, codes in arrays.items():
        lowest = 0 if name == "truth" else MISSING
        if codes.ndim != 1 or (
            codes.size and (codes.dtype.kind not in "iu" or codes.min() < lowest)
        ):
            raise InvalidData(f"'{name}' must hold class codes, {lowest} or above.")
    check_same_length(**{name: len(codes) for name, codes in arrays.items()})
    if not len(arrays["truth"]):
        raise InvalidData("There are no items to score.")
    return list(arrays.values())
