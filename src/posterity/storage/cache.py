"""Caches: arrays in memory-mapped files outside the store, which can be lost at any time.

A file is a magic word, the length of a description, its checksum, the description as JSON, and the
arrays it names. A file that is anything else is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARIABLE = "POSTERITY_CACHE"
OFF = "off"
MAGIC = b"posterity cache\n"
FIXED = len(MAGIC) + 40
"""Bytes before the description: magic word, length, checksum."""
ALIGNED = 64
"""Arrays begin at multiples of it, counted from the end of the description."""
FORGOTTEN = 3600.0
"""Seconds after which a file that somebody began to write is taken to be abandoned."""


@dataclass(frozen=True, eq=False)
class Cached:
    """What a cache file holds; the arrays are mapped, not read."""

    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def cache_folder(store: str) -> Path | None:
    """Where a store's caches are: under ``POSTERITY_CACHE``, or the user's cache directory.

    >>> import os
    >>> os.environ[VARIABLE], kept = "off", os.environ.get(VARIABLE)
    >>> cache_folder("abc")
    >>> _ = os.environ.pop(VARIABLE) if kept is None else os.environ.update({VARIABLE: kept})
    """
    told = os.environ.get(VARIABLE)
    if told == OFF or not store.isalnum():
        return None
    if told:
        return Path(told) / store
    try:
        users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # nobody's home
        return None
    return users / "posterity" / store


def read_cache(path: Path) -> Cached | None:
    """A cache file; None if there is none, or it is not whole."""
    try:
        with path.open("rb") as file:
            magic, size = file.read(len(MAGIC)), int.from_bytes(file.read(8), "little")
            digest = file.read(32)
            if magic != MAGIC or size > path.stat().st_size:
                return None
            told = file.read(size)
            if hashlib.sha256(told).digest() != digest:
                return None
            about = json.loads(told)
            if os.fstat(file.fileno()).st_size != FIXED + size + about["length"]:
                return None
            mapped = np.memmap(file, dtype=np.uint8, mode="r")[FIXED + size :]
        arrays = {
            name: mapped[start : start + count].view(kind)
            for name, (kind, start, count) in about["arrays"].items()
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cached(about["told"], arrays)


def write_cache(path: Path, told: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Put a file in place of the one before it; False where that cannot be, which is no error."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(path)
        with beside.open("wb") as file:
            for part in _parts(told, arrays):
                file.write(part)
            file.flush()
            # Else a file of the right length could be there after a power cut, full of zeros.
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        return False
    return True


def _parts(told: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[bytes | memoryview]:
    places, length = dict[str, tuple[str, int, int]](), 0
    for name, array in arrays.items():
        places[name] = (array.dtype.str, length, array.nbytes)
        length += array.nbytes + -array.nbytes % ALIGNED
    about = json.dumps({"told": dict(told), "arrays": places, "length": length}).encode()
    about += b" " * (-(FIXED + len(about)) % ALIGNED)
    digest = hashlib.sha256(about).digest()
    parts: list[bytes | memoryview] = [MAGIC, len(about).to_bytes(8, "little"), digest, about]
    for array in arrays.values():
        parts += [np.ascontiguousarray(array).view(np.uint8).data, bytes(-array.nbytes % ALIGNED)]
    return parts


def _sweep(path: Path) -> None:
    """Remove what processes that died here have left."""
    for beside in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if time.time() - beside.stat().st_mtime > FORGOTTEN:
                beside.unlink()
