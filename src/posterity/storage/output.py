"""Output: rows too many for memory, to a file that is whole or not there, or to be piped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from posterity.errors import InvalidParameter
from posterity.storage.files import local_path
from posterity.storage.input import SIGNS
from posterity.storage.row_groups import GROUP_BYTES, cut

SUFFIXES = (".parquet", ".csv", ".jsonl")
BATCH = 2**14
"""Rows that become Python objects at a time, on their way to JSON."""


def check_target(path: Path) -> None:
    """Refuse a file whose name does not say how to write it."""
    if _suffix(path) not in SUFFIXES:
        allowed = "a .parquet, .csv or .jsonl file, or - (standard output, CSV)"
        raise InvalidParameter.of("out", allowed, str(path))


def is_standard(out: str | Path) -> bool:
    """Whether a target is standard output: ``-``, which is CSV, or as in ``-.jsonl``."""
    return str(out) in ("-", *(f"-{suffix}" for suffix in SUFFIXES))


def _suffix(path: Path) -> str:
    return ".csv" if str(path) == "-" else path.suffix.lower()


def is_folder(out: str) -> bool:
    """Whether a target is a folder of files: one that is there, or a name that ends as one."""
    path = local_path(out)
    return path.endswith("/") or ("://" not in path and Path(path).is_dir())


def parquet_of(table: pa.Table) -> pa.Buffer:
    """A table as the content of a Parquet file for everybody."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def write_stream(
    path: Path, schema: pa.Schema, tables: Iterable[pa.Table], *, exact: bool = False
) -> int:
    """Write tables one after the other as the file the name asks for, or to standard output;
    returns how many rows.

    They go to a file beside it that takes its place when all are written, so that a failed export
    leaves what was there before. In CSV, texts that a spreadsheet would read as formulas are made
    harmless, unless they are to be ``exact``.
    """
    check_target(path)
    rows = 0
    with _sink(path) as sink, ExitStack() as opened:
        suffix = _suffix(path)
        safe = suffix == ".csv" and not exact
        write = _writer(sink, suffix, harmless_schema(schema) if safe else schema, opened)
        for table in tables:
            rows += table.num_rows
            if table.num_rows:  # an empty one would be a row group of its own
                write(harmless(table) if safe else table)
            del table  # before the next is made, so that there are never two
    return rows


def write_batches(parts: Iterator[pa.Table], path: Path, *, exact: bool = False) -> None:
    """The same of tables whose schema is that of the first."""
    first = [next(parts, pa.table({}))]
    schema = first[0].schema
    # Taken from the list, so that it is not held until the end.
    write_stream(path, schema, chain((first.pop() for _ in range(1)), parts), exact=exact)


@contextmanager
def _sink(path: Path) -> Iterator[pa.NativeFile]:
    if not is_standard(path):
        with written_whole(path) as beside, pa.OSFile(str(beside), "wb") as file:
            yield file
        return
    yield pa.PythonFile(sys.stdout.buffer, "w")  # which is not closed with it
    sys.stdout.flush()


def _writer(
    sink: pa.NativeFile, suffix: str, schema: pa.Schema, opened: ExitStack
) -> Callable[[pa.Table], None]:
    if suffix == ".parquet":
        parquet = opened.enter_context(pq.ParquetWriter(sink, schema, compression="zstd"))

        def write_row_groups(table: pa.Table) -> None:
            for group in cut(table, GROUP_BYTES):
                parquet.write_table(group)

        return write_row_groups
    if suffix == ".csv":
        csv = opened.enter_context(pa_csv.CSVWriter(sink, schema))
        return lambda table: csv.write_table(table)

    def write_lines(table: pa.Table) -> None:
        for batch in table.to_batches(BATCH):
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
            sink.write("".join(lines).encode())

    return write_lines


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place beside ``path`` to write to; it takes the path's place when all went well."""
    beside = path.with_name(f".{path.name}.partial")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
"""Of use to a spreadsheet, and harmless."""


def harmless(table: pa.Table) -> pa.Table:
    """A table whose texts, and names of columns, no spreadsheet reads as formulas."""
    columns = [_harmless(column) for column in table.columns]
    return pa.table(columns, names=harmless_names(table.column_names))


def harmless_names(names: list[str]) -> list[str]:
    """Names of columns, which are cells too."""
    told: list[str] = _harmless(pa.chunked_array([pa.array(names, pa.string())])).to_pylist()
    return told


def harmless_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of such a table."""
    return harmless(schema.empty_table()).schema


def _harmless(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if column.type not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return column
    begins = pc.match_substring_regex(column, f"^'*{SIGNS}")
    formula = pc.and_not(begins, pc.match_substring_regex(column, _NUMBER))
    mark, nothing = (pa.scalar(text).cast(column.type) for text in (b"'", b""))
    marked = pc.binary_join_element_wise(mark, column, nothing)
    return pc.if_else(formula, marked, column)
