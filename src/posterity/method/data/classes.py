"""Classes: the user's names for the K possible labels, and the integer codes used inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.arrays import ArrayLike, Codes, Floats
from posterity.method.data.votes import MISSING, check_codes, check_probabilities

Name = str | int | bool
"""A class name. Booleans and integers are kept apart although Python calls ``True == 1``."""


@dataclass(frozen=True)
class Classes:
    """The possible labels, in the order that gives them their codes.

    Names are all strings, all integers or all booleans. Nothing is converted silently: the
    string ``"1"``, the integer ``1`` and ``True`` are three different names.

    >>> classes = Classes(["cat", "dog", "fox"])
    >>> classes.encode(["fox", "cat"])
    array([2, 0], dtype=int32)
    >>> classes.decode([2, -1])
    ['fox', None]
    """

    names: tuple[Name, ...]

    def __init__(self, names: Iterable[Any]) -> None:
        if isinstance(names, str):
            raise InvalidParameter.of("classes", "a list of names, not one text", names)
        plain = tuple(_plain(name) for name in names)
        kinds = {type(name) for name in plain}
        if len(plain) < 2:
            raise InvalidParameter.of("classes", "at least two names", list(plain))
        if len(kinds) > 1 or not kinds <= {str, int, bool}:
            raise InvalidParameter.of(
                "classes",
                "all strings, all integers or all booleans",
                sorted(kind.__name__ for kind in kinds),
            )
        if len(set(plain)) < len(plain):
            twice = next(name for name in plain if plain.count(name) > 1)
            raise InvalidParameter.of("classes", "different names", f"{twice!r} twice")
        object.__setattr__(self, "names", plain)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Name]:
        return iter(self.names)

    @property
    def kind(self) -> type:
        """The one type all names have."""
        return type(self.names[0])

    @cached_property
    def _code_of(self) -> dict[Name, int]:
        return {name: code for code, name in enumerate(self.names)}

    def encode(self, values: Iterable[Any], *, allow_missing: bool = False) -> Codes:
        """The codes of names; with ``allow_missing``, None and NaN become −1."""
        if isinstance(values, str):
            raise InvalidData(f"Names must be a list, not one text; got {values!r}.")
        listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
        return np.fromiter(
            (self._encode_one(value, row, allow_missing) for row, value in enumerate(listed)),
            dtype=np.int32,
            count=len(listed),
        )

    def _encode_one(self, value: Any, row: int, allow_missing: bool) -> int:
        name: Any = _plain(value)
        if allow_missing and (name is None or name != name):
            return MISSING
        if type(name) is self.kind:
            code = self._code_of.get(cast(Name, name))
            if code is not None:
                return code
        shown = ", ".join(repr(known) for known in self.names[:5])
        more = ", …" if len(self) > 5 else ""
        raise InvalidData(
            f"Row {row} holds {value!r}, which is none of the {len(self)} classes ({shown}{more}).",
            hint=self._hint(name),
        )

    def _hint(self, name: Any) -> str | None:
        if type(name) is self.kind:
            return None
        return (
            f"The classes are of type {self.kind.__name__}, this value is of type "
            f"{type(name).__name__}; convert one to the other first."
        )

    def decode(self, codes: Iterable[int]) -> list[Name | None]:
        """The names of codes; −1 becomes None."""
        decoded: list[Name | None] = []
        for code in check_codes(list(codes), len(self), "codes"):
            decoded.append(None if code == MISSING else self.names[code])
        return decoded

    def extend(self, names: Iterable[Any]) -> Classes:
        """These classes with more appended; the codes of the old ones stay as they are."""
        return Classes([*self.names, *names])


@dataclass(frozen=True, eq=False)
class ClassMap:
    """How a model's own classes become ours: renamed, merged, or put under ``other``.

    >>> ours = Classes(["cat", "dog", "other"])
    >>> theirs = Classes(["tabby", "dog", "siamese", "newt"])
    >>> cats = {"tabby": "cat", "siamese": "cat"}
    >>> to_ours = ClassMap.between(theirs, ours, rename=cats, other="other")
    >>> to_ours.votes(theirs.encode(["siamese", "newt"]))
    array([0, 2], dtype=int32)
    >>> to_ours.probabilities(np.array([[0.25, 0.25, 0.5, 0.0]]))
    array([[0.75, 0.25, 0.  ]])
    """

    codes: Codes
    """For each of the model's classes, the code of ours it stands for."""
    classes: int
    """How many classes we have."""

    @classmethod
    def between(
        cls,
        theirs: Classes,
        ours: Classes,
        *,
        rename: Mapping[Any, Any] | None = None,
        other: Any = None,
    ) -> ClassMap:
        """Map by equal name unless ``rename`` says otherwise; what is left goes to ``other``."""
        # Names go with their type: Classes([0, 1]) must not swallow a model's False and True.
        renamed = {_typed(old): _plain(new) for old, new in (rename or {}).items()}
        known, own = {_typed(name) for name in theirs}, {_typed(name) for name in ours}
        for old, new in renamed.items():
            if old not in known:
                raise InvalidParameter.of("rename", "a map from the model's classes", old[1])
            if _typed(new) not in own:
                raise InvalidParameter.of("rename", "a map to our classes", new)
        targets = {name: renamed.get(_typed(name), name) for name in theirs}
        homeless = [name for name, target in targets.items() if _typed(target) not in own]
        if homeless and other is None:
            raise InvalidData(
                f"{len(homeless)} of the model's classes are none of ours: {homeless[:5]}.",
                hint="Name what they stand for with rename=, or collect them with other=.",
            )
        mapped = [target if _typed(target) in own else other for target in targets.values()]
        return cls(ours.encode(mapped), len(ours))

    def votes(self, codes: ArrayLike) -> Codes:
        """Our codes for a model's hard votes; missing stays missing."""
        theirs = check_codes(codes, len(self.codes), "votes")
        return np.where(theirs == MISSING, np.int32(MISSING), self.codes[theirs])

    def probabilities(self, probabilities: ArrayLike) -> Floats:
        """Our class probabilities for a model's, merged classes summed."""
        theirs = check_probabilities(probabilities, len(self.codes))
        ours = np.zeros((len(theirs), self.classes))
        for their_code, our_code in enumerate(self.codes):
            ours[:, our_code] += theirs[:, their_code]
        return ours


def _typed(value: Any) -> tuple[type, Any]:
    plain = _plain(value)
    return type(plain), plain


def _plain(value: Any) -> Any:
    """A NumPy scalar as the Python value it holds."""
    return value.item() if isinstance(value, np.generic) else value
