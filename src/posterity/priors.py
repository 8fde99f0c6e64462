"""Priors: what is believed of an item's true class before any vote."""

from __future__ import annotations

import numpy as np

from posterity._arrays import ArrayLike, Floats
from posterity.errors import InvalidData
from posterity.votes import check_classes, check_codes

LOG_ZERO = -1e300
"""Stands for log 0: finite, so that 0·log 0 is 0 and not NaN, yet no evidence can reach it."""


def uniform(classes: int) -> Floats:
    """p(y=k) = 1/K, the paper's."""
    return np.full(check_classes(classes), 1 / classes)


def labelled(truth: ArrayLike, *, classes: int) -> Floats:
    """The class frequencies of the labelled set.

    A class that does not occur counts as half an item: a little labelled data cannot show that
    a class does not exist.

    >>> labelled([0, 0, 1, 1], classes=3).round(3)
    array([0.444, 0.444, 0.111])
    """
    known = check_codes(truth, check_classes(classes), "truth", allow_missing=False)
    if not len(known):
        raise InvalidData("The labelled set is empty: its class frequencies are unknown.")
    counts: Floats = np.bincount(known, minlength=classes).astype(np.float64)
    counts[counts == 0] = 0.5
    frequencies: Floats = counts / counts.sum()
    return frequencies


def given(weights: ArrayLike, *, classes: int) -> Floats:
    """Weights as probabilities; a weight of 0 rules a class out."""
    prior = np.asarray(weights, dtype=np.float64)
    if prior.shape != (check_classes(classes),):
        raise InvalidData(
            f"'prior' must hold {classes} weights, one a class; got shape {prior.shape}."
        )
    if not np.isfinite(prior).all() or (prior < 0).any() or prior.sum() == 0:
        raise InvalidData("'prior' must be finite weights ≥ 0, at least one above 0.")
    normalised: Floats = prior / prior.sum()
    return normalised


def log(prior: Floats) -> Floats:
    """Log p(y=k), with ``LOG_ZERO`` where p is 0."""
    ruled_out = prior == 0
    return np.where(ruled_out, LOG_ZERO, np.log(np.where(ruled_out, 1.0, prior)))
