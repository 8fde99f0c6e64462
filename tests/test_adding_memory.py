"""Adding and importing hold no more of a large dataset than of a small one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterity import Model, Store
from posterity.engine.items import item_files, lookup, unique_ids
from posterity.engine.items.lookup import rows_or_none
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.reports import Report
from posterity.engine.steps import import_predictions
from posterity.storage import input_files, spool
from posterity.storage.files import open_files

BATCH = 1000
ITEMS = 10_000
WIDTH = 200
TEXT = 300
GROWS = 0.05 * 3 * ITEMS * WIDTH + 2 * BATCH * (WIDTH + TEXT)
"""Bytes that may be held beyond: names of files, and one portion, since which of them are in hand
at the same moment is the scheduler's choice; of 15 MB that three times as many items are."""


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "BATCH", BATCH)
    monkeypatch.setattr(input_files, "PORTION", 2 * BATCH)
    monkeypatch.setattr(item_files, "FILE_ROWS", 2 * BATCH)
    monkeypatch.setattr(lookup, "BATCH", 4 * BATCH)
    monkeypatch.setattr(spool, "HELD", BATCH)
    monkeypatch.setattr(unique_ids, "SMALL", BATCH)
    monkeypatch.setattr(unique_ids, "PART", 2 * BATCH)
    monkeypatch.setattr(lookup, "SLICE", BATCH)
    monkeypatch.setattr(lookup, "FEW", BATCH // 10)
    monkeypatch.setattr(lookup, "WORTH", 2)
    monkeypatch.setattr(spool, "BLOCK", BATCH)


@pytest.fixture(autouse=True)
def own_pool() -> Iterator[None]:
    before = pa.default_memory_pool()
    yield
    pa.set_memory_pool(before)


def peak(work: Callable[[], Any]) -> tuple[int, int]:
    """Bytes of Arrow's, and of Python's and NumPy's, at the worst moment."""
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    POOLS.append(pool)  # what was allocated there may live longer
    pa.set_memory_pool(pool)
    tracemalloc.start()
    work()
    _, python = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return pool.max_memory(), python


POOLS: list[pa.MemoryPool] = []


def write(folder: Path, count: int) -> Path:
    """Predictions in one file, with ids and texts long enough to be what memory is spent on."""
    folder.mkdir()
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("pred", pa.string())])
    with pq.ParquetWriter(folder / "data.parquet", schema) as file:
        for start in range(0, count, BATCH):
            numbers = range(start, start + BATCH)
            ids = [f"{number * 7919 % count:0{WIDTH}}" for number in numbers]
            texts = [f"{number:0{TEXT}}" for number in numbers]
            preds = ["cat" if number % 3 else "dog" for number in numbers]
            file.write_table(pa.table([ids, texts, preds], schema=schema))
    return folder / "data.parquet"


def add(source: Path, path: Path) -> None:
    Store.create(path, classes=["cat", "dog"], shard_rows=4 * BATCH).add(source)


def import_items(source: Path, path: Path) -> None:
    """All of an import but for its steps."""
    store = Store.create(path, classes=["cat", "dog"], shard_rows=4 * BATCH)
    model = Model("old", accuracy=0.7)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("commit_votes", "_plan"):
            patch.setattr(import_predictions, name, lambda *_: Report.nothing("old", ""))
        store.import_predictions(source, {"pred": model})


@pytest.mark.parametrize("work", [add, import_items])
def test_four_times_the_items_take_the_same_memory(
    work: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    # What is compiled and imported at first is no part of it.
    work(write(tmp_path / "warm", 2 * BATCH), tmp_path / "warm-store")
    small, large = (
        peak(partial(work, write(tmp_path / f"{count}", count), tmp_path / f"store-{count}"))
        for count in (ITEMS, 4 * ITEMS)
    )
    for less, more in zip(small, large, strict=True):
        assert more - less < GROWS


def test_looking_up_takes_the_same_memory(tmp_path: Path) -> None:
    taken = []
    for count in (ITEMS, 4 * ITEMS):
        add(write(tmp_path / f"{count}", count), tmp_path / f"store-{count}")
        context = Context(open_files(tmp_path / f"store-{count}"))
        wanted = np.random.default_rng(0).integers(0, count, BATCH).tolist()
        ids = pa.chunked_array([[f"{number:0{WIDTH}}" for number in wanted]])

        def look_up(context: Context = context, ids: pa.ChunkedArray = ids) -> None:
            rows = rows_or_none(context, ids)
            assert rows.null_count == 0
            assert lookup.id_of(context, rows.combine_chunks()).equals(ids)

        look_up()
        taken.append(peak(look_up))
    for less, more in zip(*taken, strict=True):
        assert more - less < GROWS
