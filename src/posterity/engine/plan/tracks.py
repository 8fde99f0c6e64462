"""Tracks: what policies did on a store's labelled items, kept outside the store between calls.

They depend on the files of the ledger, the models and the labelled votes, on the next step and on
the version of this software. Where any of these is another one, they are made anew.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity._version import __version__
from posterity.engine.labelled.rehearse import made_of, voters
from posterity.engine.ledger.context import Context
from posterity.method.data.row_sets import packed, unpacked
from posterity.storage.cache import cache_folder, read_cache, write_cache
from posterity.validation.tune import PolicyTrack

FORMAT = 1
FIGURES = ("right", "fixed", "broken")


class Tracks:
    """Tracks of one history and next step."""

    def __init__(self, context: Context, arriving: str, share: float | None) -> None:
        """``share``: of the items the arriving model would look at; None: it has had its step."""
        models, prior = voters(context, arriving), context.fits.now(arriving).prior
        parts = [FORMAT, __version__, context.there, share, *made_of(context, models, prior)]
        self._whose = hashlib.sha256(repr(parts).encode()).hexdigest()
        folder = cache_folder(context.description.store)
        self._path: Path | None = None if folder is None else folder / "tune.cache"
        self.known: dict[str, PolicyTrack] = {}
        """By the policy, as it is written."""
        self._read()
        self._kept = len(self.known)

    def keep(self) -> None:
        """Write those that are known by now."""
        if self._path is None or len(self.known) == self._kept:
            return
        arrays: dict[str, NDArray[Any]] = {}
        for at, track in enumerate(self.known.values()):
            arrays |= {f"{name}-{at}": getattr(track, name) for name in FIGURES}
            arrays |= {f"items-{at}": track.items, f"last-{at}": packed(track.last)}
        write_cache(self._path, {"whose": self._whose, "policies": [*self.known]}, arrays)

    def _read(self) -> None:
        cached = None if self._path is None else read_cache(self._path)
        if cached is None or cached.about.get("whose") != self._whose:
            return
        for at, policy in enumerate(cached.about["policies"]):
            right, fixed, broken = (
                cached.arrays[f"{name}-{at}"].reshape(-1, 2) for name in FIGURES
            )
            items = np.array(cached.arrays[f"items-{at}"])
            last = unpacked(cached.arrays[f"last-{at}"], int(items.sum()))
            self.known[policy] = PolicyTrack(right, fixed, broken, items, last)
