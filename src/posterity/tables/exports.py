"""Export: rows too many for memory as one file, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from posterity._whole import written_whole
from posterity.errors import InvalidParameter

SUFFIXES = (".parquet", ".csv", ".jsonl")
BATCH = 2**14
"""Rows that become Python objects at a time, on their way to JSON."""


def check_target(path: Path) -> None:
    """Refuse a file whose name does not say how to write it."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter.of("out", "a .parquet, .csv or .jsonl file", str(path))


def is_folder(out: str) -> bool:
    """Whether a target is a folder of files: one that is there, or a name that ends as one."""
    return out.endswith("/") or ("://" not in out and Path(out).is_dir())


def parquet_of(table: pa.Table) -> pa.Buffer:
    """A table as the content of a Parquet file for everybody."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def write_stream(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables one after the other as the file the name asks for; returns how many rows.

    They go to a file beside it that takes its place when all are written, so that a failed export
    leaves what was there before.
    """
    check_target(path)
    rows = 0
    with written_whole(path) as beside, ExitStack() as opened:
        write = _writer(beside, path.suffix.lower(), schema, opened)
        for table in tables:
            rows += table.num_rows
            if table.num_rows:  # an empty one would be a row group of its own
                write(table)
    return rows


def _writer(
    path: Path, suffix: str, schema: pa.Schema, opened: ExitStack
) -> Callable[[pa.Table], None]:
    if suffix == ".parquet":
        parquet = opened.enter_context(pq.ParquetWriter(path, schema, compression="zstd"))
        return lambda table: parquet.write_table(table)
    if suffix == ".csv":
        csv = opened.enter_context(pa_csv.CSVWriter(path, schema))
        return lambda table: csv.write_table(table)
    lines = opened.enter_context(path.open("w", encoding="utf-8"))

    def write_lines(table: pa.Table) -> None:
        for batch in table.to_batches(BATCH):
            lines.writelines(
                json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist()
            )

    return write_lines
