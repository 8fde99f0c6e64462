"""Where the labelled set comes from: a split, the recording's own mask, or another recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posterity.errors import InvalidData, InvalidParameter
from posterity.method.adapt import class_shares
from posterity.method.beliefs import priors
from posterity.method.data.arrays import Floats
from posterity.method.data.spec import read_number, read_seed
from posterity.method.data.votes import MISSING
from posterity.replay.recording import Recording
from posterity.validation import shift

Split = float | str
"""A fraction of the items, or ``"is_source"`` for the recording's own mask."""

ORDERS = ("given", "improving", "adversarial", "random:SEED")


GROUPS, WEIGHTS = "groups", "weights"
WEIGHED_BY = (GROUPS, WEIGHTS)
"""The array of a recording that labelled items are weighed by."""


@dataclass(frozen=True)
class Parts:
    """A recording taken apart: what is known, and what is to be kept up to date."""

    labelled: Recording
    target: Recording

    def in_order(self, order: str) -> Parts:
        """The models in their order of arrival, judged on the labelled set alone."""
        models = arrange(self.labelled, order)
        return Parts(self.labelled.pick(models), self.target.pick(models))

    def weighed(self, by: str | None) -> Parts:
        """With as many labelled items of each kind as the target's mix asks for."""
        if by is None:
            return self
        given, wanted = getattr(self.labelled, by), getattr(self.target, GROUPS)
        if given is None or (by == GROUPS and wanted is None):
            part = self.labelled if given is None else self.target
            raise InvalidData(
                f"'{part.name}' has no {by}, so labelled items cannot be weighed by them.",
                hint=f"Give its file an array '{by}'; see docs/reference/replay.md.",
            )
        if by == GROUPS:
            names, codes = np.unique(np.concatenate([given, wanted]), return_inverse=True)
            counts = np.bincount(codes[len(given) :], minlength=len(names)).astype(np.float64)
            given = shift.weights_of_groups(codes[: len(given)], counts, len(names))
        return Parts(self.labelled.take(shift.kept(given)), self.target)


def read_split(given: Split | None, recording: Recording) -> Split:
    """A split as a user writes it; by default the recording's own mask if it has one, else half."""
    if given is None:
        return 0.5 if recording.is_source is None else "is_source"
    if isinstance(given, str) and given == "is_source":
        return given
    allowed = "a fraction above 0 and up to 1 (1: everything is both), or 'is_source'"
    try:
        fraction = read_number(given) if isinstance(given, str) else float(given)
    except (ValueError, TypeError, OverflowError):
        raise InvalidParameter.of("split", allowed, given) from None
    if not 0 < fraction <= 1 or isinstance(given, bool):
        raise InvalidParameter.of("split", allowed, given)
    return fraction


def take_apart(recording: Recording, split: Split, *, seed: int) -> Parts:
    """Labelled set and target from one recording; a fraction is shuffled with the seed."""
    items = len(recording)
    if split == "is_source":
        if recording.is_source is None:
            raise InvalidParameter.of(
                "split", f"a fraction, because '{recording.name}' has no is_source mask", split
            )
        labelled, target = np.flatnonzero(recording.is_source), np.flatnonzero(~recording.is_source)
    elif split == 1:
        labelled = target = np.arange(items)
    else:
        shuffled = np.random.default_rng(seed).permutation(items)
        labelled, target = np.split(shuffled, [math.floor(float(split) * items + 0.5)])
    for part, rows in (("labelled set", labelled), ("target", target)):
        if not len(rows):
            raise InvalidData(
                f"The {part} is empty: split {split} of the {items} items in '{recording.name}'."
            )
    return Parts(recording.take(labelled), recording.take(target))


def from_source(source: Recording, target: Recording) -> Parts:
    """The labelled set from another recording, models and classes matched by name."""
    if not len(source) or not len(target):
        raise InvalidData("A labelled set and a target need at least one item each.")
    return Parts(source.pick(target.models).in_classes_of(target), target)


def check_order(order: object) -> None:
    """Refuse an order that does not exist, before anything is walked."""
    if isinstance(order, str) and order.startswith("random:"):
        read_seed(order.removeprefix("random:"), "order random")
    elif order not in ORDERS[:3]:
        raise InvalidParameter.of("order", f"one of {', '.join(ORDERS)}", order)


def arrange(labelled: Recording, order: str) -> Sequence[str]:
    """The models as they arrive: as given, by accuracy on the labelled set, or shuffled."""
    check_order(order)
    if order == "given":
        return labelled.models
    if order.startswith("random:"):
        seed = int(order.removeprefix("random:"))
        shuffled = np.random.default_rng(seed).permutation(len(labelled.models))
        return [labelled.models[at] for at in shuffled]
    cast = labelled.votes != MISSING
    right = (labelled.votes == labelled.truth) & cast
    accuracy = right.sum(axis=1) / np.maximum(cast.sum(axis=1), 1)
    improving = np.argsort(accuracy, kind="stable")
    return [labelled.models[at] for at in (improving if order == "improving" else improving[::-1])]


def read_prior(given: str | Floats, labelled: Recording) -> Floats:
    """The prior over classes: by its name, weights, or a file of weights.

    An estimated one is that of the labelled set until there are votes to estimate it from.
    """
    classes = len(labelled.classes)
    if not isinstance(given, str):
        return priors.given(given, classes=classes)
    if given == priors.UNIFORM:
        return priors.uniform(classes)
    learnt = class_shares.learnt(given, np.bincount(labelled.truth, minlength=classes))
    if learnt is not None:
        return learnt
    return priors.read(Path(given), labelled.classes)
