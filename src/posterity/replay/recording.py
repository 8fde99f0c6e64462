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

from posterity._arrays import Codes, Mask, Rows
from posterity.errors import InvalidData, InvalidRecording, UnknownName
from posterity.votes import MISSING, SoftVotes, check_codes, check_probabilities

MISSING_IN_FILE = 65535
"""A vote that was not recorded, in a file's unsigned codes."""


@dataclass(frozen=True)
class Recording:
    """Votes of T models on N items whose truth is known.

    >>> recording = Recording(
    ...     classes=("cat", "dog"), models=("old", "new"),
    ...     truth=np.array([0, 1, 1]), votes=np.array([[0, 0, 1], [0, 1, -1]]),
    ... )
    >>> recording
    Recording(3 items, 2 classes, 2 models)
    """

    classes: tuple[str, ...]
    models: tuple[str, ...]
    truth: Codes
    """(N,) the true class of each item."""
    votes: Codes
    """(T, N) each model's vote on each item; −1 where none was recorded."""
    probabilities: NDArray[np.floating[Any]] | None = None
    """(T, N, K) class probabilities, in the precision they were recorded in."""
    is_source: Mask | None = None
    """(N,) which items the recording itself sets apart as labelled set."""
    name: str = "recording"

    def __post_init__(self) -> None:
        for what, names in (("classes", self.classes), ("models", self.models)):
            if len(set(names)) < len(names):
                raise InvalidRecording(f"'{self.name}' names some of its {what} twice.")
        if len(self.classes) < 2 or not self.models:
            raise InvalidRecording(f"'{self.name}' needs two classes and one model at least.")
        items, models, classes = len(self.truth), len(self.models), len(self.classes)
        self._expect("y_pred", self.votes, (models, items))
        self._expect("probs", self.probabilities, (models, items, classes))
        self._expect("is_source", self.is_source, (items,))
        try:
            check_codes(self.truth, classes, "y_true", allow_missing=False)
            for model, cast in zip(self.models, self.votes, strict=True):
                check_codes(cast, classes, f"y_pred of {model}")
        except InvalidData as error:
            raise InvalidRecording(f"'{self.name}': {error.message}", hint=error.hint) from None

    def _expect(self, field: str, array: NDArray[Any] | None, shape: tuple[int, ...]) -> None:
        if array is not None and array.shape != shape:
            raise InvalidRecording(
                f"'{self.name}': {field} must have shape {shape}, from the lengths of models, "
                f"y_true and classes; got {array.shape}."
            )

    def __repr__(self) -> str:
        return (
            f"Recording({len(self)} items, {len(self.classes)} classes, {len(self.models)} models)"
        )

    def __len__(self) -> int:
        return len(self.truth)

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read an ``.npz`` file; see docs/replay.md for its arrays. Pickles are refused."""
        where = Path(path)
        fields = _read_npz(where)
        absent = [key for key in ("classes", "models", "y_true", "y_pred") if key not in fields]
        if absent:
            raise InvalidRecording(f"'{where}' has no array {', '.join(absent)}.")
        for key, kinds, what in (
            ("classes", "U", "text"),
            ("models", "U", "text"),
            ("y_true", "iu", "integers"),
            ("y_pred", "iu", "integers"),
            ("probs", "f", "floats"),
            ("is_source", "b", "booleans"),
        ):
            if key in fields and fields[key].dtype.kind not in kinds:
                raise InvalidRecording(
                    f"'{where}': {key} must hold {what}; got dtype {fields[key].dtype}."
                )
        cast = fields["y_pred"].astype(np.int64)
        return cls(
            classes=tuple(fields["classes"].tolist()),
            models=tuple(fields["models"].tolist()),
            truth=fields["y_true"].astype(np.int32),
            votes=np.where(cast == MISSING_IN_FILE, MISSING, cast).astype(np.int32),
            probabilities=fields.get("probs"),
            is_source=fields.get("is_source"),
            name=where.stem,
        )

    def save(self, path: str | Path) -> None:
        """Write an ``.npz`` file that ``load`` reads."""
        if len(self.classes) > MISSING_IN_FILE:
            raise InvalidRecording(f"A file holds up to {MISSING_IN_FILE} classes.")
        fields: dict[str, NDArray[Any]] = {
            "classes": np.array(self.classes),
            "models": np.array(self.models),
            "y_true": self.truth.astype(np.uint16),
            "y_pred": np.where(self.votes == MISSING, MISSING_IN_FILE, self.votes).astype(
                np.uint16
            ),
        }
        if self.probabilities is not None:
            fields["probs"] = self.probabilities
        if self.is_source is not None:
            fields["is_source"] = self.is_source
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **fields)  # type: ignore[arg-type]

    def take(self, rows: Rows) -> Recording:
        """The same models on some of the items, in the order given."""
        return replace(
            self,
            truth=self.truth[rows],
            votes=self.votes[:, rows],
            probabilities=None if self.probabilities is None else self.probabilities[:, rows],
            is_source=None if self.is_source is None else self.is_source[rows],
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
        code = np.array([other.classes.index(name) for name in self.classes], dtype=np.int32)
        back = np.argsort(code)
        return replace(
            self,
            classes=other.classes,
            truth=code[self.truth],
            votes=np.where(self.votes == MISSING, MISSING, code[self.votes]).astype(np.int32),
            probabilities=None if self.probabilities is None else self.probabilities[..., back],
        )

    def soft_votes(self, model: int) -> SoftVotes:
        """One model's votes with their probabilities; missing where the vote is missing."""
        if self.probabilities is None:
            raise InvalidRecording(
                f"'{self.name}' has no class probabilities (probs), so there are no soft votes.",
                hint="Use hard votes.",
            )
        classes = len(self.classes)
        recorded = check_probabilities(
            np.where((self.votes[model] == MISSING)[:, None], 0.0, self.probabilities[model]),
            classes,
            f"probs of {self.models[model]}",
        )
        return SoftVotes.top(recorded)


def _read_npz(where: Path) -> Mapping[str, NDArray[Any]]:
    try:
        # Opened here: NumPy leaves the file open when it turns out not to be an archive.
        with where.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.lib.npyio.NpzFile):
                return {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise InvalidRecording(f"There is no recording at '{where}'.") from None
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise InvalidRecording(f"'{where}' is not a readable recording: {error}") from None
        raise InvalidRecording(
            f"'{where}' holds pickled objects; a recording holds plain arrays only.",
            hint="Pickles run code when read. Save classes and models as text arrays (dtype U).",
        ) from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise InvalidRecording(f"'{where}' is not a readable recording: {error}") from None
    raise InvalidRecording(f"'{where}' is a single array, not an .npz recording.")
