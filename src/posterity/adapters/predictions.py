"""The answer of a prediction server, ``{"predictions": […]}``, read with suspicion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posterity.adapters.outputs import own_classes, probabilities, shortened, spread
from posterity.classes import Name
from posterity.errors import InvalidData, Unavailable
from posterity.votes import check_codes

SERVER = "The server"
EXPECTED = (
    'Expected is {"predictions": […]}, one for each instance in order: a class name, a code, a '
    'list of probabilities, {"label": …}, or a list of {"label": …, "score": …}.'
)


@dataclass(frozen=True)
class Answer:
    """What one request brought."""

    predictions: list[Any]
    classes: tuple[Name, ...] | None
    """The server's classes in the order of its codes, if it named them."""

    @classmethod
    def read(cls, body: bytes, items: int) -> Answer:
        """Read a body that ought to hold one prediction an item."""
        try:
            given = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise _nonsense(f"what is not JSON ({error})", body.decode(errors="replace")) from None
        predictions = given.get("predictions") if isinstance(given, dict) else None
        if not isinstance(predictions, list):
            raise _nonsense("no list of predictions", given)
        if len(predictions) != items:
            raise _nonsense(f"{len(predictions)} predictions for {items} items", predictions)
        named = given.get("classes")
        if named is None:
            return cls(predictions, None)
        if not isinstance(named, list):
            raise _nonsense("classes that are no list", named)
        return cls(predictions, own_classes(named, SERVER))


def read_votes(
    answers: Sequence[Answer], known: tuple[Name, ...] | None
) -> tuple[Any, tuple[Name, ...] | None]:
    """The votes of all answers in order, and the server's classes as far as it told them."""
    classes = known
    for answer in answers:
        if classes and answer.classes and answer.classes != classes:
            raise Unavailable(
                f"{SERVER}'s classes changed from {_shown(classes)} to {_shown(answer.classes)}.",
                hint="Another model seems to answer now: register it under its own name.",
            )
        classes = classes or answer.classes
    predictions = [one for answer in answers for one in answer.predictions]
    forms = list(dict.fromkeys(_form(one) for one in predictions))
    if len(forms) > 1:
        raise _nonsense(f"a mixture of {' and '.join(forms[:3])}", predictions)
    if forms == ["probabilities"]:
        lengths = {len(one) for one in predictions}
        if len(lengths) > 1:
            raise _nonsense("probabilities of different lengths", predictions)
        return _soft(predictions, classes), classes
    if forms == ["scores"]:
        scores = [{one["label"]: one["score"] for one in scored} for scored in predictions]
        if classes is None:
            if any(row.keys() != scores[0].keys() for row in scores):
                raise _nonsense("scores of some classes only, and no list of classes", predictions)
            classes = tuple(sorted(own_classes(scores[0], SERVER)))
        return _soft(spread(scores, classes, SERVER), classes), classes
    votes = [one["label"] if isinstance(one, dict) else one for one in predictions]
    if classes and isinstance(classes[0], str) and forms == ["codes"]:
        check_codes(votes, len(classes), "predictions", allow_missing=False)
    return votes, classes


def _soft(given: Any, classes: tuple[Name, ...] | None) -> Any:
    return probabilities(
        given, len(classes) if classes else None, len(given), SERVER, hint="Logits are not enough."
    )


def _form(one: Any) -> str:
    forms = {str: "names", int: "codes", bool: "truth values"}
    if type(one) in forms:
        return forms[type(one)]
    if isinstance(one, dict) and type(one.get("label")) in forms:
        return f"labels ({forms[type(one['label'])]})"
    if isinstance(one, list) and one and all(_is_number(value) for value in one):
        return "probabilities"
    if isinstance(one, list) and one and all(_is_scored(value) for value in one):
        return "scores"
    raise _nonsense("a prediction of no known form", one)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_scored(value: Any) -> bool:
    label = value.get("label") if isinstance(value, dict) else None
    return type(label) in (str, int, bool) and _is_number(value.get("score"))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")


def _nonsense(told: str, given: Any) -> InvalidData:
    return InvalidData(f"{SERVER} answered with {told}: {_shown(given)}", hint=EXPECTED)


def _shown(given: Any) -> str:
    return shortened(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
