"""Class map: what a model says, in its own words, as votes for our classes; kept as settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity._text import counted
from posterity.errors import InvalidData, InvalidParameter, Unavailable
from posterity.method.data.arrays import Codes
from posterity.method.data.classes import Classes, ClassMap, Name
from posterity.method.data.spec import is_whole
from posterity.method.data.votes import MISSING, ModelVotes, SoftVotes, check_codes

_ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
_NONE: Codes = np.zeros(0, dtype=np.int32)
SHOWN = 5
TOP = 5
"""Classes of a soft vote that are kept, where nobody says how many."""
ONE_EACH = (
    "Answers are one per item, in the order of the items. Fix the model and run the same again; "
    "votes so far are kept."
)


@dataclass(frozen=True, eq=False)
class Answers:
    """How a model's own classes become ours: by equal name, renamed, merged, or as ``other``.

    >>> ours = Classes(["cat", "dog", "other"])
    >>> answers = Answers(ours, rename={"tabby": "cat", "siamese": "cat"}, other="other")
    >>> answers.column(pa.array(["tabby", "dog", "newt", None]), "column 'vote'")
    array([ 0,  1,  2, -1], dtype=int32)
    >>> Answers(ours, own=("dog", "cat"), soft=2).votes([[0.9, 0.1]], 1).soft.codes
    array([[1, 0]], dtype=int32)
    """

    classes: Classes
    own: tuple[Name, ...] | None = None
    """The model's classes in the order of its codes and probabilities; None: the same as ours."""
    rename: Mapping[Name, Name] = field(default_factory=dict)
    """What some of its classes are called here; several may become one."""
    other: Name | None = None
    """Our class for what the model knows and we do not."""
    soft: int | None = None
    """How many classes of a soft vote are kept; None: ``TOP``."""

    def __post_init__(self) -> None:
        ours = set(self.classes)
        strange = [
            new
            for new in self.rename.values()
            if type(new) is not self.classes.kind or new not in ours
        ]
        if strange:
            hint = "The header of a file, if it has one, is a line such as 'model,store'."
            raise InvalidParameter.of("class map", "a map to our classes", strange[0], hint=hint)
        if self.other is not None and not _within(self.other, self.classes):
            raise InvalidParameter.of("other", "one of our classes", self.other)
        if self.soft is not None and not (
            is_whole(self.soft) and 1 <= self.soft <= len(self.classes)
        ):
            raise InvalidParameter.of("soft", f"between 1 and {len(self.classes)}", self.soft)

    @property
    def kind(self) -> type:
        """The type of the model's own names."""
        renamed = next(iter(self.rename), None)
        return self._theirs.kind if self.own is not None or renamed is None else type(renamed)

    @property
    def top(self) -> int:
        """How many classes of a soft vote are kept."""
        return min(TOP, len(self.classes)) if self.soft is None else self.soft

    @property
    def names(self) -> tuple[Name, ...]:
        """The model's classes, in the order of its codes and probabilities."""
        return self._theirs.names

    @cached_property
    def _theirs(self) -> Classes:
        return self.classes if self.own is None else Classes(self.own)

    @cached_property
    def _map(self) -> ClassMap:
        kind, known = self._theirs.kind, set(self._theirs)
        rename = {k: new for k, new in self.rename.items() if type(k) is kind and k in known}
        return ClassMap.between(self._theirs, self.classes, rename=rename, other=self.other)

    def refuse_unmapped(self) -> None:
        """Classes of the model that are none of ours: no single item is to blame for them."""
        try:
            _ = self._map
        except InvalidData as error:
            raise Unavailable(
                error.message,
                hint="Say what they stand for (`class_map=`), collect them (`other=`), or name the "
                "model's classes in its order (`classes=`).",
            ) from None

    def _known(self, kind: type) -> tuple[list[Name], Codes]:
        """The names of one type the model may give, and our codes for them."""
        if self.own is not None:
            # What the model says it knows; anything else it gives is a mistake.
            return (list(self.own), self._map.codes) if self._theirs.kind is kind else ([], _NONE)
        targets: dict[Name, Name] = {name: name for name in self.classes if type(name) is kind}
        targets |= {old: new for old, new in self.rename.items() if type(old) is kind}
        return list(targets), self.classes.encode(targets.values())

    def column(self, values: pa.Array | pa.ChunkedArray, what: str) -> Codes:
        """Names in a column as codes, by one look-up for all; null becomes −1."""
        plain = plain_column(values)
        kind = next((kind for kind, arrow in _ARROW.items() if arrow == plain.type), None)
        if kind is None:
            if plain.null_count == len(plain):
                return np.full(len(plain), MISSING, dtype=np.int32)
            raise InvalidData(f"The {what} must hold class names; got {values.type}.")
        names, codes = self._known(kind)
        if not names and kind is int and self.own is not None and self._theirs.kind is str:
            # Only a model that says what its codes stand for may give them in a file.
            names, codes = list(range(len(self.own))), self._map.codes
        if not names:
            raise InvalidData(
                f"The {what} must hold classes of type {self.kind.__name__}; got {values.type}.",
                hint="Names are not converted silently; `class_map=` may rename them. If these are "
                "codes, list the model's own classes in their order (`classes=`).",
            )
        found = pc.index_in(plain, value_set=pa.array(names, plain.type))
        strange = pc.and_(found.is_null(), plain.is_valid())
        if pc.any(strange).as_py() and (self.other is None or self.own is not None):
            self._refuse(plain, strange, what)
        at = np.asarray(found.fill_null(MISSING))
        cast = np.where(at == MISSING, np.int32(MISSING), codes[at])
        if self.other is not None:
            cast[np.asarray(strange)] = self.classes.encode([self.other])[0]
        return cast.astype(np.int32)

    def _refuse(self, values: Any, strange: Any, what: str) -> None:
        named = values.filter(strange).unique()[:SHOWN].to_pylist()
        count = pc.sum(strange).as_py()
        first = pc.index(strange, True).as_py()
        raise InvalidData(
            f"The {what} names unknown classes in {counted(count, 'row')}: {named}, first in "
            f"row {first}.",
            hint="Rename them (`class_map=`), collect them (`other=`), or append them "
            "(`store.append_classes(names)`).",
        )

    def votes(self, given: Any, items: int) -> ModelVotes:
        """A model's answer: names, codes or class probabilities, one for every item."""
        if isinstance(given, (pa.Array, pa.ChunkedArray)):
            given = given.to_pylist()
        probabilities = _table(given)
        if probabilities is not None:
            return self.probabilities(probabilities, items)
        values = np.atleast_1d(given).tolist() if isinstance(given, np.ndarray) else _listed(given)
        _refuse_count(len(values), items)
        empty = [at for at, value in enumerate(values) if value is None or _is_nan(value)]
        if empty:
            raise InvalidData(f"The model gave no vote in row {empty[0]} ({len(empty)} such rows).")
        named = any(type(old) is int for old in self.rename)  # then a number is a name
        kinds = {type(value) for value in values}
        if self._theirs.kind is str and kinds == {int} and not named:
            codes = check_codes(values, len(self._theirs), "votes", allow_missing=False)
            return ModelVotes(self._map.votes(codes))
        if len(kinds) > 1 or not kinds <= set(_ARROW):
            told = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InvalidData(
                f"Votes must be names of one type, codes or probabilities; got {told}."
            )
        (kind,) = kinds or {self.classes.kind}
        try:
            column = pa.array(values, _ARROW[kind])
        except (OverflowError, UnicodeError) as error:
            raise InvalidData(f"The model's answer cannot be class names: {error}.") from None
        return ModelVotes(self.column(column, "model's answer"))

    def probabilities(self, given: Any, items: int) -> ModelVotes:
        """Class probabilities, one row an item; the vote is the model's own most probable class."""
        _refuse_count(len(given), items)
        try:
            theirs = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidData(f"Probabilities must be numbers: {error}.") from None
        width = len(self._theirs)
        if theirs.ndim != 2 or theirs.shape[1] != width:
            raise Unavailable(
                f"Probabilities must be one row an item and one column for each of the model's "
                f"{width} classes; got shape {theirs.shape}.",
                hint="Name its own classes in the order of its probabilities (`classes=`).",
            )
        ours = self._map.probabilities(theirs)
        none = np.flatnonzero(ours.sum(axis=1) == 0)
        if len(none):
            raise InvalidData(f"The probabilities in row {none[0]} are all zero.")
        hard = self._map.votes(theirs.argmax(axis=1).astype(np.int32))
        return ModelVotes(hard, SoftVotes.top(ours, self.top, hard=hard))


def plain_column(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Dictionaries and wide or narrow types as plain strings and 64-bit integers."""
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    if plain.type in (pa.large_string(), pa.string_view()):
        return plain.cast(pa.string())
    if pa.types.is_integer(plain.type):
        try:
            return plain.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InvalidData(f"These cannot be class names: {error}.") from None
    return plain


def typed_name(text: str, kind: type) -> Name:
    """A name written in a file without types, as the type it must have."""
    if kind is int and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text):
        return int(text)
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is not str:
        raise InvalidData(f"{text!r} is no class name of type {kind.__name__}.")
    return text


def _within(name: Any, classes: Classes) -> bool:
    return type(name) is classes.kind and name in set(classes)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _listed(given: Any) -> list[Any]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise Unavailable(
            f"The model returned one {type(given).__name__} instead of one answer per item.",
            hint=ONE_EACH,
        )
    return [value.item() if isinstance(value, np.generic) else value for value in given]


def _refuse_count(answers: int, items: int) -> None:
    """Another number of answers than of items is the model's fault, not that of any item."""
    if answers != items:
        raise Unavailable(
            f"The model was given {counted(items, 'item')} and returned "
            f"{counted(answers, 'answer')}.",
            hint=ONE_EACH,
        )


def _table(given: Any) -> np.ndarray | None:
    """Probabilities, if that is what was given: a float array with two dimensions, or lists."""
    if isinstance(given, np.ndarray):
        return given if given.ndim == 2 else None
    if len(getattr(given, "shape", ())) == 2:  # a frame, whose rows are not what it iterates over
        return np.asarray(given)
    if (
        isinstance(given, Sequence)
        and len(given)
        and isinstance(given[0], (list, tuple, np.ndarray))
    ):
        try:
            return np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidData(
                f"Probabilities must be numbers, as many in each row: {error}."
            ) from None
    return None


@dataclass(frozen=True)
class ModelSettings:
    """What a store keeps of a model, besides its name and its confusion."""

    classes: list[Any] | None = None
    class_map: list[list[Any]] = field(default_factory=list)
    """Pairs, since JSON has no keys but texts."""
    other: Any = None
    soft: int | None = None
    cost: float | None = None
    predict: str | None = None
    digest: str = ""
    """Names the labelled votes, or what was stated instead."""
    keyed: bool = False
    labelled: int = 0
    """How many labelled items there are."""
    stored: bool = False
    """The labelled items are stored ones."""
    pending: bool = False
    """Still to vote on its labelled items, so that nobody knows how it errs."""
    accuracy: float | None = None
    classes_then: int = 0
    """How many classes there were when its votes were counted."""
    revision: int = 0
    checksum: str | None = None
    """Of the labelled votes; None where there are none."""

    @classmethod
    def from_json(cls, text: str) -> ModelSettings:
        """As the store keeps it."""
        kept = {"checksum": None} | json.loads(text)
        return cls(**{each.name: kept[each.name] for each in fields(cls)})

    def to_json(self) -> str:
        """As the store keeps it."""
        kept = asdict(self)
        if self.checksum is None:
            del kept["checksum"]
        return json.dumps(kept)

    def revised(self, stated: ModelSettings) -> ModelSettings:
        """With what a user states anew; what is not stated stays as it is."""
        names = ("classes", "class_map", "other", "soft", "cost", "predict")
        values = {name: getattr(stated, name) for name in names}
        return replace(self, **{k: value for k, value in values.items() if value not in (None, [])})

    def cost_of(self, evaluations: int) -> float | None:
        """What so many evaluations cost; None: unknown."""
        return None if self.cost is None else self.cost * evaluations

    def answers(self, classes: Classes) -> Answers:
        """How the model's words become the store's classes."""
        own = None if self.classes is None else tuple(self.classes)
        return Answers(classes, own, dict(self.class_map), self.other, self.soft)
