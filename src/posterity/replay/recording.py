"""Recordings: votes of several models on the same items, with truth, for replay."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity.errors import InvalidData, InvalidRecording, UnknownName
from posterity.method.data.arrays import Codes, Floats, Mask, Rows
from posterity.method.data.votes import (
    MISSING,
    SoftVotes,
    as_array,
    check_codes,
    check_probabilities,
)
from posterity.validation.shift import checked

MISSING_IN_FILE = 65535
"""A vote that was not recorded, in a file's unsigned codes."""

_FILE: dict[str, tuple[str, str]] = {
    "classes": ("U", "text"),
    "models": ("U", "text"),
    "y_true": ("iu", "integers"),
    "y_pred": ("iu", "integers"),
    "probs": ("f", "floats"),
    "is_source": ("b", "booleans"),
    "groups": ("U", "text"),
    "weights": ("fiu", "numbers"),
}
"""The arrays of a file: which kinds of dtype they may have, and what to call that."""


@dataclass(frozen=True, eq=False)
class Recording:
    """Votes of T models on N items whose truth is known.

    >>> recording = Recording(
    ...     classes=("cat", "dog"), models=("old", "new"),
    ...     truth=[0, 1, 1], votes=[[0, 0, 1], [0, 1, -1]],
    ... )
    >>> recording
    Recording(3 items, 2 classes, 2 models)
    """

    classes: Sequence[str]
    models: Sequence[str]
    truth: Codes
    """(N,) the true class of each item; ``y_true`` in files."""
    votes: Codes
    """(T, N) each model's vote on each item, −1 where none was recorded; ``y_pred`` in files."""
    probabilities: NDArray[np.floating[Any]] | None = None
    """(T, N, K) class probabilities, in the precision they were recorded in; ``probs`` in files."""
    is_source: Mask | None = None
    """(N,) which items the recording itself sets apart as labelled set."""
    groups: NDArray[np.str_] | None = None
    """(N,) what kind of item each is, where labelled set and target may have another mix."""
    weights: Floats | None = None
    """(N,) how much more frequent items like it are in a target; of labelled items."""
    name: str = "recording"

    def __post_init__(self) -> None:
        for what in ("classes", "models"):
            object.__setattr__(self, what, self._names(what))
        if len(self.classes) < 2 or not self.models:
            raise InvalidRecording(f"'{self.name}' needs two classes and one model at least.")
        try:
            self._check_arrays()
        except InvalidData as error:
            raise InvalidRecording(f"'{self.name}': {error.message}", hint=error.hint) from None

    def _names(self, what: str) -> tuple[str, ...]:
        given = getattr(self, what)
        names = () if isinstance(given, str) else tuple(given)
        if not all(isinstance(name, str) for name in names):
            raise InvalidRecording(
                f"'{self.name}': {what} must be texts; got {names[:3]}.",
                hint="Write numbers and booleans as text.",
            )
        plain = tuple(str(name) for name in names)
        if len(set(plain)) < len(plain):
            raise InvalidRecording(f"'{self.name}' names some of its {what} twice.")
        return plain

    def _check_arrays(self) -> None:
        classes, models = len(self.classes), len(self.models)
        truth = check_codes(self.truth, classes, "truth (y_true)", allow_missing=False)
        votes = as_array(self.votes, "votes (y_pred)")
        self._expect("votes (y_pred)", votes, (models, len(truth)))
        cast = [
            check_codes(each, classes, f"votes (y_pred) of {model}")
            for model, each in zip(self.models, votes, strict=True)
        ]
        object.__setattr__(self, "truth", truth)
        object.__setattr__(self, "votes", np.array(cast, dtype=np.int32))
        for field, name, shape, kinds in (
            ("probabilities", "probabilities (probs)", (models, len(truth), classes), "f"),
            ("is_source", "is_source", (len(truth),), "b"),
            ("groups", "groups", (len(truth),), "U"),
            ("weights", "weights", (len(truth),), "f"),
        ):
            given = getattr(self, field)
            if given is not None:
                array = checked(given) if field == "weights" else as_array(given, name)
                self._expect(name, array, shape, kinds)
                object.__setattr__(self, field, array)

    @staticmethod
    def _expect(name: str, array: NDArray[Any], shape: tuple[int, ...], kinds: str = "iu") -> None:
        if array.shape != shape:
            raise InvalidData(
                f"'{name}' must have shape {shape}, from the numbers of models, items and classes; "
                f"got {array.shape}."
            )
        if array.size and array.dtype.kind not in kinds:
            what = {"iu": "integers", "f": "floats", "b": "booleans", "U": "text"}[kinds]
            raise InvalidData(f"'{name}' must hold {what}; got {array.dtype}.")

    def __repr__(self) -> str:
        sizes = (len(self), len(self.classes), len(self.models))
        return "Recording({} items, {} classes, {} models)".format(*sizes)

    def __len__(self) -> int:
        return len(self.truth)

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read an ``.npz`` file of the arrays in docs/reference/replay.md. Pickles are refused."""
        where = Path(path)
        fields = _read_npz(where)
        absent = [key for key in ("classes", "models", "y_true", "y_pred") if key not in fields]
        if absent:
            raise InvalidRecording(f"'{where}' has no array {', '.join(absent)}.")
        for key, (kinds, what) in _FILE.items():
            if key in fields and fields[key].dtype.kind not in kinds:
                raise InvalidRecording(
                    f"'{where}': {key} must hold {what}; got dtype {fields[key].dtype}."
                )
        for key in ("classes", "models"):
            if fields[key].ndim != 1:
                raise InvalidRecording(f"'{where}': {key} must have one dimension.")
        if fields["classes"].size > MISSING_IN_FILE:
            raise InvalidRecording(
                f"'{where}' has {fields['classes'].size:,} classes; a recording in a file can have "
                f"up to {MISSING_IN_FILE:,}, because the code {MISSING_IN_FILE:,} in y_pred means "
                "a missing vote.",
                hint="Leave out classes that occur neither in y_true nor in y_pred.",
            )
        cast = fields["y_pred"]
        return cls(
            classes=fields["classes"].tolist(),
            models=fields["models"].tolist(),
            truth=fields["y_true"],
            votes=np.where(cast == MISSING_IN_FILE, MISSING, cast.astype(np.int64)),
            probabilities=fields.get("probs"),
            is_source=fields.get("is_source"),
            groups=fields.get("groups"),
            weights=fields.get("weights"),
            name=where.stem,
        )

    def save(self, path: str | Path) -> None:
        """Write an ``.npz`` file that ``load`` reads."""
        if len(self.classes) > MISSING_IN_FILE:
            raise InvalidRecording(
                f"'{self.name}' has {len(self.classes):,} classes; a recording in a file can have "
                f"up to {MISSING_IN_FILE:,}."
            )
        cast = np.where(self.votes == MISSING, MISSING_IN_FILE, self.votes)
        fields: dict[str, Any] = {
            "classes": np.array(self.classes),
            "models": np.array(self.models),
            "y_true": self.truth.astype(np.uint16),
            "y_pred": cast.astype(np.uint16),
            "probs": self.probabilities,
            "is_source": self.is_source,
            "groups": self.groups,
            "weights": self.weights,
        }
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **{k: v for k, v in fields.items() if v is not None})

    def take(self, rows: Rows) -> Recording:
        """The same models on some of the items, in the order given."""
        optional: dict[str, Any] = {}
        for name in ("is_source", "groups", "weights"):
            each = getattr(self, name)
            optional[name] = None if each is None else each[rows]
        return replace(
            self,
            truth=self.truth[rows],
            votes=self.votes[:, rows],
            probabilities=None if self.probabilities is None else self.probabilities[:, rows],
            **optional,
        )

    def pick(self, models: Sequence[str]) -> Recording:
        """Some of the models, in the order given."""
        unknown = [model for model in models if model not in self.models]
        if unknown:
            raise UnknownName.among(f"model in '{self.name}' called", unknown[0], self.models)
        at = [self.models.index(model) for model in models]
        return replace(
            self,
            models=tuple(models),
            votes=self.votes[at],
            probabilities=None if self.probabilities is None else self.probabilities[at],
        )

    def in_classes_of(self, other: Recording) -> Recording:
        """The same recording with its classes in the order of another's."""
        if self.classes == other.classes:
            return self
        if set(self.classes) != set(other.classes):
            differ = sorted(set(self.classes) ^ set(other.classes))
            raise InvalidRecording(
                f"'{self.name}' and '{other.name}' must have the same classes; "
                f"{len(differ)} are in one alone, such as {differ[0]!r}."
            )
        place = {name: code for code, name in enumerate(other.classes)}
        code = np.array([place[name] for name in self.classes], dtype=np.int32)
        back = np.argsort(code)
        return replace(
            self,
            classes=other.classes,
            truth=code[self.truth],
            votes=np.where(self.votes == MISSING, MISSING, code[self.votes]),
            probabilities=None if self.probabilities is None else self.probabilities[..., back],
        )

    def soft_votes(self, model: int) -> SoftVotes:
        """One model's votes with their probabilities; missing where the vote is missing."""
        if self.probabilities is None:
            raise InvalidRecording(
                f"'{self.name}' has no class probabilities (probs), so there are no soft votes.",
                hint="Use hard votes.",
            )
        cast = self.votes[model]
        name = f"probabilities (probs) of {self.models[model]}"
        recorded = check_probabilities(
            np.where((cast == MISSING)[:, None], 0.0, self.probabilities[model]),
            len(self.classes),
            name,
        )
        if (recorded.sum(axis=1)[cast != MISSING] == 0).any():
            raise InvalidRecording(f"'{self.name}': '{name}' are all 0 for an item with a vote.")
        return SoftVotes.top(recorded, hard=cast)


def load(given: Recording | str | Path, name: str = "recording") -> Recording:
    """A recording, or the path of one."""
    if isinstance(given, Recording):
        return given
    if isinstance(given, (str, Path)):
        return Recording.load(given)
    raise InvalidRecording(f"'{name}' must be a recording or a path; got {type(given).__name__}.")


def _read_npz(where: Path) -> Mapping[str, NDArray[Any]]:
    try:
        # Opened here: NumPy leaves the file open when it turns out not to be an archive.
        with where.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise InvalidRecording(f"'{where}' is not a readable recording: no .npz archive.")
            file.seek(0)
            archive: Any = np.load(file, allow_pickle=False)
            return {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise InvalidRecording(f"There is no recording at '{where}'.") from None
    except InvalidRecording:
        raise
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise InvalidRecording(f"'{where}' is not a readable recording: {error}.") from None
        raise InvalidRecording(
            f"'{where}' holds pickled objects; a recording holds plain arrays only.",
            hint="Pickles run code when read. Save classes and models as text arrays (dtype U).",
        ) from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise InvalidRecording(f"'{where}' is not a readable recording: {error}.") from None
