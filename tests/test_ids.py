"""Ids are looked up and compared part by part, exactly as if all were in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posterity import Store
from posterity._text import counted
from posterity.engine.items import item_files, unique_ids
from posterity.engine.items import lookup as items_lookup
from posterity.engine.items.lookup import Lookup, id_of, rows_or_none
from posterity.engine.items.unique_ids import Distinct, hashes_of
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, StoreError
from posterity.method.kernels.hashes import hash_texts
from posterity.storage import input_files, row_groups, spool
from posterity.storage.delta.table import RowGroup
from posterity.storage.files import open_files
from posterity.storage.input_files import Piece
from posterity.storage.spool import IdDigest, IdSpool
from tests import naive

CLASSES = ["a", "b"]
ANY_FIXTURE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def name(number: int, kind: str) -> Any:
    return number if kind == "number" else f"item/{number * 7919 % 1000:03}-{number}"


def store_of(path: Path, ids: list[Any], *, shard_rows: int = 16, file_rows: int = 5) -> Store:
    store = Store.create(path, classes=CLASSES, shard_rows=shard_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_files, "FILE_ROWS", file_rows)
        store.add({"id": ids})
    return store


def context_of(store: Store) -> Context:
    return Context(open_files(store.path))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The row groups that are read."""
    seen: list[str] = []
    whole = RowGroup.read

    def counting(self: RowGroup, columns: Sequence[str]) -> pa.Table:
        seen.append(f"{self.file.path}:{self.number}")
        return whole(self, columns)

    monkeypatch.setattr(RowGroup, "read", counting)
    return seen


# Looking up


@pytest.fixture(scope="module", params=["text", "number"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store with removed items, in files of several sizes, one of them of several row groups."""
    kind = request.param
    numbers = np.random.default_rng(0).permutation(60).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "ROW_GROUP", 3)
        store = store_of(
            tmp_path_factory.mktemp("ids") / kind, [name(at, kind) for at in numbers[:40]]
        )
        store.remove([name(numbers[at], kind) for at in (0, 17)])
        store.compact()
        store.add({"id": [name(at, kind) for at in numbers[40:]]})
    store.remove([name(numbers[at], kind) for at in (1, 30, 45)])
    left = [(row, name(at, kind)) for row, at in enumerate(numbers)]
    return store, kind, [pair for pair in left if pair[0] not in (0, 1, 17, 30, 45)]


@given(
    batches=st.lists(st.lists(st.integers(-3, 63), max_size=30), max_size=4),
    size=st.sampled_from([1, 4, 2**17]),
    few=st.sampled_from([0, 2**16]),
    many=st.sampled_from([1, 2**12]),
    runs=st.lists(
        st.tuples(st.integers(0, 59), st.integers(0, 40), st.integers(-3, 63)), max_size=4
    ),
)
@ANY_FIXTURE
def test_the_rows_of_ids(
    batches: list[list[int]],
    size: int,
    few: int,
    many: int,
    runs: list[tuple[int, int, int]],
    stored: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, kind, pairs = stored
    # Stretches in the order of the store, each followed by something else.
    order = np.random.default_rng(0).permutation(60).tolist()
    batches = batches + [[*order[start : start + count], other] for start, count, other in runs]
    batches += [order[start : start + count] for start, count, _ in runs]
    monkeypatch.setattr(items_lookup, "MANY", many)
    monkeypatch.setattr(items_lookup, "SLICE", size)
    monkeypatch.setattr(items_lookup, "FEW", few)
    lookup = Lookup(context_of(store))
    arrow = pa.int64() if kind == "number" else pa.string()
    for batch in batches:
        wanted = [name(number, kind) for number in batch]
        cut = len(wanted) // 3
        ids = pa.chunked_array([wanted[:cut], wanted[cut:]], arrow)
        assert lookup.rows(ids).to_pylist() == naive.find(wanted, pairs)
    everything = pa.chunked_array([[key for _, key in pairs]], arrow)
    assert lookup.rows(everything).to_pylist() == [row for row, _ in pairs]


@given(rows=st.lists(st.integers(0, 59), max_size=12))
@ANY_FIXTURE
def test_the_ids_of_rows(rows: list[int], stored: Any) -> None:
    store, _, pairs = stored
    context = context_of(store)
    known = dict(pairs)
    kept = [row for row in rows if row in known]
    for given_rows in (pa.array(kept, pa.int64()), pa.chunked_array([kept], pa.int64())):
        assert id_of(context, given_rows).to_pylist() == [known[row] for row in kept]
    own = [row for row in kept if row // 16 == 1]
    assert id_of(context, pa.array(own, pa.int64()), 1).to_pylist() == [known[row] for row in own]
    assert id_of(context, pa.array([17])).to_pylist() == [None]  # purged


def test_ids_in_the_order_of_the_store_read_it_once(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_lookup, "SLICE", 50)
    numbers = np.random.default_rng(1).permutation(1000).tolist()
    ids = [name(at, "text") for at in numbers]
    context = context_of(store_of(tmp_path / "s", ids, shard_rows=400, file_rows=100))
    for step, chosen in ((70, ids), (70, ids[::3]), (300, ids[::10]), (7, ["x", *ids, "y"])):
        read.clear()
        lookup = Lookup(context)
        for start in range(0, len(chosen), step):
            lookup.rows(pa.chunked_array([chosen[start : start + step]]))
        # Strangers are looked for everywhere; their batches are two.
        assert len(read) <= (10 if "x" not in chosen else 30)
    read.clear()
    shuffled = np.random.default_rng(2).permutation(ids).tolist()
    assert rows_or_none(context, pa.chunked_array([shuffled])).null_count == 0
    assert len(read) <= 12  # whatever the order, a batch costs one pass


def test_no_more_than_two_row_groups_are_held(tmp_path: Path) -> None:
    context = context_of(store_of(tmp_path / "s", list(range(100)), file_rows=10))
    lookup = Lookup(context)
    for start in (0, 50, 20, 90):
        lookup.rows(pa.chunked_array([list(range(start, start + 10))]))
        assert len(lookup._held) <= items_lookup.HELD


@pytest.mark.parametrize("few", [0, 2**16])
def test_files_that_cannot_hold_an_id_are_not_read(
    few: int, tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_lookup, "FEW", few)
    store = store_of(tmp_path / "s", list(range(0, 2000, 2)), shard_rows=400, file_rows=100)
    context = context_of(store)
    for wanted, count in (([1802], 1), ([1801], 1), ([-1], 0), ([5000], 0), ([1802, 1804], 1)):
        read.clear()
        rows_or_none(context, pa.chunked_array([wanted]))
        assert len(read) == count
    read.clear()
    assert id_of(context, pa.array([901, 5])).to_pylist() == [1802, 10]
    assert len(read) == 2
    with pytest.raises(InvalidData, match="ids are of type int64; got string"):
        rows_or_none(context, pa.chunked_array([["5"]]))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", list(range(20)))
    (path, *_) = sorted(Path(store.path, "items").rglob("*.parquet"))
    path.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(StoreError, match=r"The file 'items/shard=0/.*' of the store is damaged"):
        store.history(3)


# Comparing


def spool_of(parts: list[list[Any]], folder: Path, kind: pa.DataType) -> IdSpool:
    ids = IdSpool(folder)
    for at, part in enumerate(parts):
        ids.add(Piece(f"file {at}"), pa.chunked_array([part], kind), numbers=False)
    ids.finish(None)
    return ids


def small_parts(patch: pytest.MonkeyPatch) -> None:
    """Everything that is done for many ids is done for a few."""
    patch.setattr(spool, "HELD", 3)
    patch.setattr(unique_ids, "SMALL", 0)
    patch.setattr(unique_ids, "PART", 4)
    patch.setattr(unique_ids, "LISTED", 2)


@given(
    parts=st.lists(st.lists(st.integers(0, 60), max_size=9), min_size=1, max_size=4),
    kind=st.sampled_from(["text", "number"]),
    collide=st.booleans(),
    many=st.booleans(),
)
@ANY_FIXTURE
def test_repeated_ids(
    parts: list[list[int]],
    kind: str,
    collide: bool,
    many: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Named exactly, also where different ids have the same hash."""
    named = [[name(number, kind) for number in part] for part in parts]
    everything = [one for part in named for one in part]
    twice = naive.repeated(everything)
    with pytest.MonkeyPatch.context() as patch:
        if many:
            small_parts(patch)
        if collide:
            patch.setattr(unique_ids, "hashes_of", colliding)
        folder = tmp_path_factory.mktemp("repeated")
        arrow = pa.int64() if kind == "number" else pa.string()
        ids = spool_of(named, folder, arrow)
        assert ids.whole().to_pylist() == everything
        held = Distinct(ids, folder)
        if not twice:
            held.refuse_repeated()
            held.refuse_repeated()
            return
        with pytest.raises(InvalidData) as caught:
            held.refuse_repeated()
    told = str(caught.value)
    shown = told.split("more than once: ")[1].split("; the first in")[0].split(", ")
    assert set(shown) <= {repr(one) for one in twice}
    if not many:
        assert shown[0] == repr(twice[0])
    if not (many and collide):  # where ids are very many, the rest is counted by hash
        assert told.startswith(counted(len(twice), "id", "occur"))
    first, second = [at for at, one in enumerate(everything) if repr(one) == shown[0]][:2]
    assert f"the first in {ids.where(first)} and {ids.where(second)}. Nothing" in told


def colliding(ids: pa.Array, seed: np.uint64) -> Any:
    """Few different hashes."""
    return hashes_of(ids, seed) & np.uint64(3 << 62)


@given(
    numbers=st.lists(st.integers(0, 80), min_size=1, max_size=20, unique=True),
    collide=st.booleans(),
    many=st.booleans(),
)
@ANY_FIXTURE
def test_ids_the_store_has(
    numbers: list[int], collide: bool, many: bool, stored: Any, tmp_path_factory: Any
) -> None:
    store, kind, _ = stored
    context = context_of(store)
    assert context.items is not None
    unpurged = set(context.items.read(["id"]).column("id").to_pylist())  # removed ones too
    named = [name(number, kind) for number in numbers]
    known = [key for key in named if key in unpurged]
    folder = tmp_path_factory.mktemp("known")
    with pytest.MonkeyPatch.context() as patch:
        if many:
            small_parts(patch)
        if collide:
            patch.setattr(unique_ids, "hashes_of", colliding)
        ids = spool_of([named], folder, pa.int64() if kind == "number" else pa.string())
        held = Distinct(ids, folder)
        held.refuse_repeated()
        if not known:
            held.refuse_known(context.items)
            return
        with pytest.raises(InvalidData, match="in the store already") as caught:
            held.refuse_known(context.items)
    if not (many and collide):
        told = counted(len(known), "id", "are")
        assert str(caught.value).startswith(f"{told} in the store already: ")
    shown = str(caught.value).split(": ")[1]
    assert any(repr(key) in shown for key in known)


def test_files_are_compared_once(tmp_path: Path, read: list[str]) -> None:
    store = store_of(tmp_path / "s", list(range(20)))
    held = Distinct(spool_of([[100, 101]], tmp_path, pa.int64()), tmp_path)
    snapshot = context_of(store).items
    assert snapshot is not None
    held.refuse_known(snapshot)
    assert len(read) == 5
    store.add({"id": [50]})
    again = context_of(store).items
    assert again is not None
    read.clear()
    held.refuse_known(again)
    assert len(read) == 1


@given(texts=st.lists(st.text(max_size=30)), seed=st.integers(0, 2**64 - 1), skip=st.integers(0, 3))
@settings(deadline=None)
def test_the_hash_of_texts(texts: list[str], seed: int, skip: int) -> None:
    ids = pa.array(texts, pa.string()).slice(skip)
    expected = [naive.text_hash(text.encode(), seed) for text in texts[skip:]]
    assert hashes_of(ids, np.uint64(seed)).tolist() == expected
    assert hash_texts.signatures  # type: ignore[attr-defined]


def test_the_place_of_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "HELD", 4)
    ids = spool_of([[1, 2], [3], [], [4, 5, 6], [7]], tmp_path, pa.int64())
    assert ids.whole().to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    assert ids.where(4) == "row 1 of 'file 3'"


@given(
    ids=st.lists(st.text(max_size=5)) | st.lists(st.integers(-(2**63), 2**63 - 1)),
    cuts=st.lists(st.integers(0, 10), max_size=4),
)
def test_ids_are_named_by_what_they_are(ids: list[Any], cuts: list[int]) -> None:
    """However they are cut, and by nothing but themselves."""
    kind = pa.int64() if ids and isinstance(ids[0], int) else pa.string()

    def named(given: list[Any], ends: list[int]) -> bytes:
        whole, digest = pa.array(given, kind), IdDigest()
        for low, high in pairwise([0, *sorted(ends), 10**6]):
            digest.add(pa.chunked_array([whole.slice(low, high - low)], kind))
        return digest.value()

    assert named(ids, cuts) == named(ids, [])
    for other in (ids[1:], ids[::-1], ids + ids[-1:]):
        assert (named(other, cuts) == named(ids, [])) == (other == ids)


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "HELD", 0)
    ids = IdSpool(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="temporary folder cannot be written") as caught:
        ids.add(Piece("x"), pa.chunked_array([[1]]), numbers=True)
    assert "TMPDIR" in str(caught.value.hint)


# Adding


def test_items_from_several_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.stores import write_table

    (tmp_path / "parts").mkdir()
    table = pa.table({"key": list(range(30)), "x": [n / 2 for n in range(30)]})
    for at, form in enumerate(("parquet", "csv", "jsonl")):
        write_table(table.slice(10 * at, 10), tmp_path / "parts" / f"{at}.{form}")
    whole = store_of(tmp_path / "whole", list(range(30)))
    expected = whole.labels()
    monkeypatch.setattr(input_files, "BATCH", 4)
    monkeypatch.setattr(item_files, "FILE_ROWS", 7)
    sources: list[Callable[[], Any]] = [
        lambda: tmp_path / "parts",
        lambda: str(tmp_path / "parts" / "*"),
        lambda: [tmp_path / "parts" / "0.parquet", table.slice(10)],
    ]
    for at, source in enumerate(sources):
        store = Store.create(tmp_path / f"{at}", classes=CLASSES, shard_rows=16)
        assert store.add(source(), id="key") == 30
        assert store.labels().equals(expected)
        held = context_of(store).items
        assert held is not None
        assert held.read(["x"]).num_rows == 30
        assert store.check() == []
        before = sorted(Path(store.path).rglob("*"))
        with pytest.raises(InvalidData, match=r"10 ids occur more than once: 0.*parts/0.parquet"):
            store.add([tmp_path / "parts", tmp_path / "parts" / "0.parquet"], id="key")
        assert store.add(source(), id="key") == 0  # as they are: done already
        other = table.slice(0, 3).set_column(1, "x", pa.array([0.0, 0.5, 7.0]))
        with pytest.raises(InvalidData, match="3 ids are in the store already: 0, 1, 2"):
            store.add(other, id="key")
        assert sorted(Path(store.path).rglob("*")) == before
