"""What models put out, brought into one shape; and failures sorted by who is to blame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.errors import InvalidData, InvalidParameter, PosterityError, Unavailable
from posterity.method.data.arrays import Floats
from posterity.method.data.classes import Classes, Name
from posterity.method.data.votes import check_probabilities

AGAIN = "Fix it and run the same command again; votes so far are kept."


@contextmanager
def loading(what: str) -> Iterator[None]:
    """A model that cannot be loaded cannot be asked about any item."""
    try:
        yield
    except PosterityError:
        raise
    except Exception as error:
        raise Unavailable(f"{what} cannot be loaded: {told(error)}.", hint=AGAIN) from error


@contextmanager
def asking(what: str) -> Iterator[None]:
    """A model that fails on a batch may still answer for its items one by one."""
    try:
        yield
    except PosterityError:
        raise
    except Exception as error:
        raise InvalidData(f"{what} failed on this batch: {told(error)}.") from error


def told(error: BaseException) -> str:
    """An error in one short line."""
    return f"{type(error).__name__}: {shortened(str(error))}".rstrip(".: ")


def shortened(text: str, most: int = 200) -> str:
    """Text on one line and not longer than messages should be.

    >>> shortened("a long\\n  story", most=9)
    'a long s…'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def own_classes(names: Iterable[Any], what: str) -> tuple[Name, ...]:
    """A model's classes as plain Python values, in its order."""
    try:
        return Classes(names).names
    except InvalidParameter as error:
        raise Unavailable(f"{what} is no classifier that can vote: {error}") from None


def check_count(given: int, items: int, what: str) -> None:
    """One answer an item."""
    if given != items:
        raise InvalidData(f"{what} gave {given} answers for {items} items.")


def probabilities(
    given: Any, classes: int | None, items: int, what: str, *, hint: str | None = None
) -> Floats:
    """Class probabilities (items, classes), checked and with rows that sum to exactly one."""
    array = np.asarray(given)
    if array.ndim != 2 or array.shape[1] < 2:
        raise Unavailable(
            f"{what} must give probabilities of shape (items, classes); got {array.shape}."
        )
    check_count(len(array), items, what)
    if classes is not None and array.shape[1] != classes:
        raise Unavailable(
            f"{what} gives {array.shape[1]} probabilities an item for {classes} classes."
        )
    try:
        checked = check_probabilities(array, array.shape[1])
    except InvalidData as error:
        raise InvalidData(f"{what} gave what cannot be used: {error}", hint=hint) from None
    if not checked.any(axis=1).all():
        raise InvalidData(f"{what} gave only zeros for an item.", hint=hint)
    return checked


def softmax(logits: NDArray[Any]) -> Floats:
    """Probabilities from logits: exp(zₖ) / Σⱼ exp(zⱼ), without overflow."""
    if not np.isfinite(logits).all():
        raise InvalidData("The model gave logits that are not finite numbers.")
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    spread: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return spread


def spread(scores: Sequence[Mapping[Any, float]], classes: Sequence[Name], what: str) -> Floats:
    """Scores by class name as an array in the order of the classes; a class left out has none.

    >>> spread([{"dog": 0.75, "cat": 0.25}], ["cat", "dog"], "The model")
    array([[0.25, 0.75]])
    """
    known = set(classes)
    for row in scores:
        if not row.keys() <= known:
            strange = sorted(map(repr, row.keys() - known))[:5]
            raise InvalidData(f"{what} named classes that are not its own: {', '.join(strange)}.")
    return np.array([[row.get(name, 0.0) for name in classes] for row in scores], dtype=np.float64)
