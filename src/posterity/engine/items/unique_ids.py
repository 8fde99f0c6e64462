"""Unique ids: those that are added occur once and are not in the store, however many there are."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from posterity._text import counted
from posterity.engine.items.lookup import ids_in
from posterity.errors import InvalidData
from posterity.method.data.arrays import among
from posterity.method.decide.selectors import row_hash
from posterity.storage.delta.table import RowGroup, Snapshot
from posterity.storage.spool import IdSpool, writing

Hashes = NDArray[np.uint64]

SMALL = 2**20
"""So many ids are compared in memory."""

PART = 2**22
"""About how many hashes are compared at once."""

MOST_PARTS = 512
"""Files that are open at the same time."""

LISTED = 2**16
"""So many equal hashes are followed up to their ids; more are only counted."""

SHOWN = 5


class Distinct:
    """Compares ids with each other and with those of a store.

    Many are compared by a hash, part by part of its values. Where two hashes are equal, the ids
    themselves decide, so that ids that differ are never called equal.
    """

    def __init__(self, ids: IdSpool, folder: Path) -> None:
        self._ids, self._folder = ids, folder
        self._seed = np.uint64(secrets.randbits(64))
        self._bits: int | None = None
        self._compared: set[str] = set()

    @property
    def count(self) -> int:
        """How many ids are added."""
        return len(self._ids)

    def refuse_repeated(self) -> None:
        """An id stands for one item."""
        repeated = self._repeated_few() if len(self._ids) <= SMALL else self._repeated_many()
        if repeated is not None:
            count, shown = repeated
            raise InvalidData(
                f"{counted(count, 'id', 'occur')} more than once: "
                f"{', '.join(map(repr, shown))}; the first in "
                f"{' and '.join(self._places(shown[0]))}. Nothing was added."
            )

    def refuse_known(self, snapshot: Snapshot) -> None:
        """An item is added once; files that were compared before are not read again."""
        kind = snapshot.table.schema.field("id").type
        if self._ids.type != kind:
            raise InvalidData(f"The store's ids are of type {kind}; got {self._ids.type}.")
        files = [file for file in snapshot.data_files() if file.path not in self._compared]
        found = [group for file in files for group in snapshot.groups(file)]
        few = len(self._ids) <= SMALL
        for wanted, others in [(self._ids.whole(), iter(()))] if few else self._doubtful(found):
            count = 0
            named: list[Any] = []
            for group in found:
                ids = ids_in(group)
                known = ids.filter(pc.is_in(ids, value_set=wanted))
                count += len(known)
                named += known[: SHOWN - len(named)].to_pylist()
            if count:
                count += sum(map(len, others))
                shown = ", ".join(repr(value) for value in named)
                raise InvalidData(
                    f"{counted(count, 'id', 'are')} in the store already: {shown}. "
                    "Nothing was added."
                )
        self._compared |= {file.path for file in files}

    def _repeated_few(self) -> tuple[int, list[Any]] | None:
        ids = self._ids.whole()
        if pc.count_distinct(ids).as_py() == len(ids):
            return None
        counted = pc.value_counts(ids)
        repeated = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
        return len(repeated), repeated[:SHOWN].to_pylist()

    def _repeated_many(self) -> tuple[int, list[Any]] | None:
        self._spool()
        equal = (np.unique(part[1:][part[1:] == part[:-1]]) for part in self._sorted_parts())
        for hashes, others in _listed(equal):
            counts: dict[Any, int] = {}
            for ids in self._having(hashes):
                for one in pc.value_counts(ids).to_pylist():
                    counts[one["values"]] = counts.get(one["values"], 0) + one["counts"]
            repeated = [value for value, count in counts.items() if count > 1]
            if repeated:
                return len(repeated) + sum(map(len, others)), repeated[:SHOWN]
        return None

    def _places(self, wanted: Any) -> list[str]:
        """Where an id occurs the first two times."""
        found: list[str] = []
        row = 0
        for ids in self._ids.each():
            at = pc.indices_nonzero(pc.equal(ids, wanted)).to_pylist()
            found += [self._ids.where(row + one) for one in at[: 2 - len(found)]]
            row += len(ids)
            if len(found) == 2:
                break
        return found

    def _doubtful(
        self, found: Iterable[RowGroup]
    ) -> Iterator[tuple[pa.ChunkedArray, Iterator[Hashes]]]:
        """New ids whose hash a stored one has too: some at a time, and the hashes of the rest."""
        self._spool()
        with _Parts(self._folder, "known", self._bits or 0) as known:
            for group in found:
                known.add(self._hashes(ids_in(group)))
        pairs = zip(self._sorted_parts(), known.each(), strict=True)
        equal = (np.unique(held[among(held, new)]) for new, held in pairs)
        for hashes, others in _listed(equal):
            ids = pa.chunked_array(list(self._having(hashes)), self._ids.type)
            yield ids, others
        known.delete()

    def _having(self, hashes: Hashes) -> Iterator[pa.Array]:
        """The ids with any of these hashes, which ascend."""
        for ids in self._ids.each():
            mask = among(self._hashes(ids), hashes)
            if mask.any():
                yield ids.filter(pa.array(mask))

    def _spool(self) -> None:
        if self._bits is None:
            parts = min(MOST_PARTS, -(-len(self._ids) // PART))
            self._bits = max(0, parts - 1).bit_length()
            with _Parts(self._folder, "new", self._bits) as new:
                for ids in self._ids.each():
                    new.add(self._hashes(ids))
            for path in new.paths:
                hashes = np.fromfile(path, dtype=np.uint64)
                hashes.sort()
                with writing():
                    hashes.tofile(path)

    def _sorted_parts(self) -> Iterator[Hashes]:
        return _Parts(self._folder, "new", self._bits or 0).each()

    def _hashes(self, ids: pa.Array) -> Hashes:
        return hashes_of(ids, self._seed)


def hashes_of(ids: pa.Array, seed: np.uint64) -> Hashes:
    """A hash of each id; whoever does not know the seed cannot make two that are equal."""
    if not len(ids):
        return np.zeros(0, dtype=np.uint64)
    if pa.types.is_integer(ids.type):
        return row_hash(row_hash(ids.to_numpy().view(np.uint64)) ^ seed)
    from posterity.method.kernels.hashes import hash_texts

    _, offsets, texts = ids.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    content = np.frombuffer(texts or b"", dtype=np.uint8)
    hashes: Hashes = hash_texts(ends, content, seed)
    return hashes


def _listed(parts: Iterator[Hashes]) -> Iterator[tuple[Hashes, Iterator[Hashes]]]:
    """So many hashes at a time, ascending, with the parts that follow.

    Whoever goes through those has decided: what they hold is only counted.
    """
    held: list[Hashes] = []
    for part in parts:
        for start in range(0, len(part), LISTED):
            held.append(part[start : start + LISTED])
            if sum(map(len, held)) >= LISTED:
                yield np.concatenate(held), chain([part[start + LISTED :]], parts)
                held = []
    if held:
        yield np.concatenate(held), iter(())


class _Parts:
    """Hashes in files by their highest bits."""

    def __init__(self, folder: Path, name: str, bits: int) -> None:
        self._bits = bits
        self.paths = [folder / f"{name}-{part}" for part in range(2**bits)]
        self._files: list[Any] = []

    def __enter__(self) -> _Parts:
        with writing():
            self._files = [path.open("wb") for path in self.paths]
        return self

    def __exit__(self, *_: object) -> None:
        with writing():
            for file in self._files:
                file.close()

    def add(self, hashes: Hashes) -> None:
        """Write each where it belongs."""
        part = hashes >> np.uint64(64 - self._bits) if self._bits else np.zeros_like(hashes)
        order = np.argsort(part.astype(np.uint16), kind="stable")  # a radix sort
        ends = np.searchsorted(part[order], np.arange(len(self.paths) + 1, dtype=np.uint64))
        with writing():
            for file, (start, end) in zip(self._files, pairwise(ends.tolist()), strict=True):
                hashes[order[start:end]].tofile(file)

    def each(self) -> Iterator[Hashes]:
        """Part after part."""
        return (np.fromfile(path, dtype=np.uint64) for path in self.paths)

    def delete(self) -> None:
        """Give the room back."""
        for path in self.paths:
            path.unlink()
