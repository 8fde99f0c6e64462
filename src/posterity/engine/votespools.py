"""A model's votes too many for memory: kept in a local folder until they are votes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity._arrays import Codes, Floats, Rows
from posterity.engine.idspools import writing
from posterity.votes import MISSING, Cast, SoftVotes

BLOCK = 2**20
"""Votes read at once where all of them are gone through."""


class VoteSpool:
    """The votes of one model on all rows, in order; those on any rows can be read again."""

    def __init__(self, folder: Path, name: str, width: int) -> None:
        """``width``: so many classes of a soft vote are kept; 0 where all votes are hard."""
        self._width, self._held, self._classes = width, 0, 0
        self.count = 0
        """How many rows there are."""
        self.cast = 0
        """How many of them have a vote."""
        kinds: dict[str, Any] = {"hard": np.int32}
        if width:
            kinds |= {"codes": np.int32, "weights": np.float64}
        self._kinds = kinds
        self._paths = {kind: folder / f"{name}-{kind}" for kind in kinds}
        with writing():
            self._files = {kind: path.open("wb") for kind, path in self._paths.items()}

    def add(self, votes: Cast) -> None:
        """Take the votes on the next rows."""
        columns: dict[str, NDArray[Any]] = {"hard": votes.hard}
        if self._width:
            codes = np.full((len(votes), self._width), MISSING, dtype=np.int32)
            weights = np.zeros((len(votes), self._width))
            if votes.soft is not None:
                held = votes.soft.codes.shape[1]
                codes[:, :held], weights[:, :held] = votes.soft.codes, votes.soft.weights
                self._held = max(self._held, held)
                self._classes = max(self._classes, votes.soft.classes)
            columns |= {"codes": codes, "weights": weights}
        with writing():
            for kind, file in self._files.items():
                np.ascontiguousarray(columns[kind], dtype=self._kinds[kind]).tofile(file)
        self.count += len(votes)
        self.cast += int(np.count_nonzero(votes.hard != MISSING))

    def finish(self) -> None:
        """All rows are there."""
        with writing():
            for file in self._files.values():
                file.close()

    def read(self, start: int, stop: int) -> Cast:
        """The votes on some rows."""
        hard = self._part("hard", start, stop)
        if not self._held:
            return Cast(hard)
        return self._beside(hard, *(self._part(kind, start, stop) for kind in ("codes", "weights")))

    def at(self, rows: Rows) -> Cast:
        """The votes on a few rows anywhere."""
        if not self.count:
            return Cast(np.zeros(0, dtype=np.int32))
        hard: Codes = np.array(self._anywhere("hard")[rows])
        if not self._held:
            return Cast(hard)
        return self._beside(hard, *(self._anywhere(kind)[rows] for kind in ("codes", "weights")))

    def _beside(self, hard: Codes, codes: Codes, weights: Floats) -> Cast:
        # A soft vote stands beside a hard one, which is the vote itself.
        softly = np.where(codes[:, 0] == MISSING, np.int32(MISSING), hard)
        return Cast(hard, SoftVotes(codes, weights, self._classes, softly))

    def _anywhere(self, kind: str) -> NDArray[Any]:
        held = np.memmap(self._paths[kind], dtype=self._kinds[kind], mode="r")
        return held if kind == "hard" else held.reshape(-1, self._width)[:, : self._held]

    def bytes(self) -> Iterator[NDArray[Any]]:
        """What the votes consist of: all hard ones, then classes and weights of soft ones."""
        for kind in self._kinds if self._held else ("hard",):
            for start in range(0, self.count, BLOCK):
                yield self._part(kind, start, min(start + BLOCK, self.count))

    def _part(self, kind: str, start: int, stop: int) -> NDArray[Any]:
        dtype = np.dtype(self._kinds[kind])
        width = 1 if kind == "hard" else self._width
        size = dtype.itemsize * width
        values = np.fromfile(
            self._paths[kind], dtype, count=(stop - start) * width, offset=start * size
        )
        if kind == "hard":
            return values
        return np.ascontiguousarray(values.reshape(-1, width)[:, : self._held])
