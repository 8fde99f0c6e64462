"""Priors: what is believed of an item's true class before any vote."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from pathlib import Path

import numpy as np

from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.arrays import ArrayLike, Floats
from posterity.method.data.text_tables import read_pairs
from posterity.method.data.votes import as_array, check_classes, check_codes

UNIFORM, LABELLED, ESTIMATED = "uniform", "labelled", "estimated"
NAMES = (UNIFORM, LABELLED, ESTIMATED)
"""Estimated: from the target's votes, see ``class_shares``."""

LOG_ZERO = -1e300
"""Stands for log 0: finite, so that 0·log 0 is 0 and not NaN, yet no evidence can reach it."""


def uniform(classes: int | Sized) -> Floats:
    """p(y=k) = 1/K, the paper's."""
    number = check_classes(classes)
    return np.full(number, 1 / number)


def labelled(truth: ArrayLike, *, classes: int | Sized) -> Floats:
    """The class frequencies of the labelled set.

    A class that does not occur counts as half an item: a little labelled data cannot show that
    a class does not exist.

    >>> labelled([0, 0, 1, 1], classes=3).round(3)
    array([0.444, 0.444, 0.111])
    """
    number = check_classes(classes)
    known = check_codes(truth, number, "truth", allow_missing=False)
    if not len(known):
        raise InvalidData("The labelled set is empty: its class frequencies are unknown.")
    counts: Floats = np.bincount(known, minlength=number).astype(np.float64)
    counts[counts == 0] = 0.5
    frequencies: Floats = counts / counts.sum()
    return frequencies


def given(weights: ArrayLike, *, classes: int | Sized) -> Floats:
    """Weights as probabilities; a weight of 0 rules a class out."""
    number, prior = check_classes(classes), as_array(weights, "prior")
    if prior.shape != (number,) or prior.dtype.kind not in "fiu":
        raise InvalidData(
            f"'prior' must hold {number} weights, one a class; got {prior.dtype} {prior.shape}."
        )
    if not np.isfinite(prior).all() or (prior < 0).any() or prior.sum() == 0:
        raise InvalidData("'prior' must be finite weights ≥ 0, at least one above 0.")
    normalised: Floats = prior / prior.sum()
    return normalised


def read(path: Path, classes: Sequence[object]) -> Floats:
    """Weights from a file: a JSON object {class: weight}, or CSV lines class,weight.

    Classes left out get 0.
    """
    return given(read_weights(path, classes), classes=len(classes))


def read_weights(path: Path, classes: Sequence[object]) -> list[float]:
    """Weights from a file as they are written there."""
    if not path.is_file():
        allowed = f"{', '.join(NAMES)}, or a file of class weights"
        raise InvalidParameter.of("prior", allowed, str(path))
    expected = "a JSON object {class: weight}, or CSV lines class,weight"
    names = [str(name) for name in classes]

    def is_header(first: str, second: str) -> bool:
        return first not in names and not _is_number(second)

    told = read_pairs(path, "prior", expected=expected, is_header=is_header)
    weights: dict[str, float] = {}
    for name, text in told.items():
        try:
            weights[name] = float(text)
        except ValueError:
            raise InvalidData(f"'{path}' is no prior.", hint=f"Expected {expected}.") from None
        if name not in names:
            raise InvalidData(f"The prior in '{path}' names {name!r}, which is no class here.")
        if not (math.isfinite(weights[name]) and weights[name] >= 0):
            raise InvalidData(f"The prior in '{path}' gives {name!r} the weight {text}.")
    listed = [weights.get(name, 0.0) for name in names]
    given(listed, classes=len(names))
    return listed


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def weights_of(prior: ArrayLike | str | Path | None, names: Sequence[object]) -> list[float] | None:
    """The weights a user gave, or a file of them; None where the prior is known by a name."""
    if prior is None or (isinstance(prior, str) and prior in NAMES):
        return None
    if isinstance(prior, (str, Path)):
        return read_weights(Path(prior), names)
    given(prior, classes=names)
    # As they were said, so that those of classes appended later compare with them.
    return [float(weight) for weight in np.asarray(prior).tolist()]


def log(prior: Floats) -> Floats:
    """Log p(y=k), with ``LOG_ZERO`` where p is 0."""
    ruled_out = prior == 0
    return np.where(ruled_out, LOG_ZERO, np.log(np.where(ruled_out, 1.0, prior)))


def kind_of(prior: object, weights: list[float] | None) -> str | None:
    """What a store remembers of how its prior was given; None: uniform."""
    if isinstance(prior, str) and prior in (LABELLED, ESTIMATED):
        return prior
    return None if weights is None else "given"
