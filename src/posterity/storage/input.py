"""Rows as people have them: frames, columns, records, votes by id, or a file. The one door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from posterity._text import counted
from posterity.errors import InvalidData, PosterityError
from posterity.method.data.arrays import Mask
from posterity.method.data.text_tables import CSV_SUFFIXES, HEAD, delimiter_of, not_utf8
from posterity.storage.files import local_path

SUFFIXES = (".parquet", *CSV_SUFFIXES, ".jsonl", ".ndjson")

Types = dict[str, pa.DataType]
"""What columns of a CSV file hold: there 01 may be a name or a number, and only we know which."""

SHOWN = 20
"""Columns that an error names."""

FEW = 1000
"""Texts that are looked at first."""

SIGNS = r"[=+\-@\t\r\n＝＋－＠]"
"""What a text begins with that a spreadsheet reads as a formula; an apostrophe disarms it."""

_OF_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""What Polars has, and what Arrow can do more with."""

_CSV_TYPES: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def truth_types(kind: type, *columns: str | None) -> Types:
    """Columns of class names, as they must be read from a CSV file."""
    return {name: _CSV_TYPES[kind] for name in columns if name is not None}


def read_rows(
    source: Any,
    name: str = "data",
    *,
    ids: str | None = None,
    values: str | None = None,
    pair: tuple[str, str] | None = None,
    id_kind: pa.DataType | None = None,
    types: Types | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Whatever table was given as an Arrow table.

    ``values`` names the column of what a mapping or a pandas Series holds by id (``ids``), ``pair``
    the two columns of two sequences. ``columns``: all that is needed of it. If a Parquet file has
    these, no others are read: they may be pictures.

    A column of ids in CSV stays as it is written, unless all of them are whole numbers, and what
    they are compared with are not texts (``id_kind``).
    """
    if isinstance(source, (str, Path)):
        path = Path(local_path(str(source)))
        return _checked(_read_file(path, ids, id_kind, types or {}, columns), name)
    return rows_in_memory(
        source, name, ids=ids, values=values, pair=pair, files=f"a file ({', '.join(SUFFIXES)})"
    )


def rows_in_memory(
    source: Any,
    name: str,
    *,
    ids: str | None = None,
    values: str | None = None,
    pair: tuple[str, str] | None = None,
    files: str,
) -> pa.Table:
    """What a program holds; ``files``: what else is accepted where this is called.

    >>> rows_in_memory({"t1": "bug"}, "votes", ids="id", values="vote", files="").to_pylist()
    [{'id': 't1', 'vote': 'bug'}]
    """
    if isinstance(source, pa.Table):
        return _checked(source, name)
    if pair is not None and _is_pair(source):
        source = _paired(source, pair, name)
    elif is_records(source):
        names = dict.fromkeys(key for record in source for key in record)
        source = {key: [record.get(key) for record in source] for key in names}
    elif ids is not None and hasattr(source, "reset_index"):
        frame = source
        source = built(lambda: _with_index(frame, name, ids, values), name)
    elif ids and values and _is_by_id(source):
        source = {ids: list(source), values: list(source.values())}
    if isinstance(source, Mapping) and not _is_record(source):
        held = {key: _plain_column(column) for key, column in source.items()}
        return _checked(built(lambda: pa.table(held), name), name)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return _checked(built(lambda: pa.table(source), name), name)
    accepted = ["an Arrow table", "a pandas or Polars frame", "a dict of columns"]
    accepted.append("a list of records (dicts)")
    if ids is not None:
        accepted.append("a pandas Series with ids as its index")
    if ids is not None and values is not None:
        accepted.append(f"a dict {{id: {values}}}")
    if pair is not None:
        accepted.append(f"a pair ({pair[0]}s, {pair[1]}s)")
    raise InvalidData(
        f"'{name}' must be {', '.join(accepted)}, or {files}; got {type(source).__name__}."
    )


def is_records(source: Any) -> bool:
    """Whether it is a list of rows, not of tables."""
    listed = isinstance(source, (list, tuple))
    return listed and bool(source) and all(_is_record(one) for one in source)


def _is_record(source: Any) -> bool:
    """A mapping to values, of which at least one is no column."""
    return isinstance(source, Mapping) and any(not _is_column(one) for one in source.values())


def _is_by_id(source: Any) -> bool:
    return (
        isinstance(source, Mapping) and bool(source) and not any(map(_is_column, source.values()))
    )


def _is_column(values: Any) -> bool:
    plain = isinstance(values, (str, bytes, Mapping)) or values is None
    return not plain and hasattr(values, "__len__")


def _is_pair(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and len(source) == 2 and all(map(_is_column, source))


def _paired(source: Any, names: tuple[str, str], name: str) -> dict[str, Any]:
    first, second = source
    indexes: list[Any] = [one.index for one in source if hasattr(one, "reset_index")]
    if len(indexes) == 2 and not indexes[0].equals(indexes[1]):
        raise InvalidData(
            f"The {names[0]}s and {names[1]}s in '{name}' have different indexes, so they are not "
            "in the same order.",
            hint="Align them first, or give their .to_numpy() if the order is the same.",
        )
    if len(first) != len(second):
        raise InvalidData(
            f"'{name}' has {len(first):,} {names[0]}s and {len(second):,} {names[1]}s; there must "
            "be one of each for an item."
        )
    return dict(zip(names, source, strict=True))


def _with_index(source: Any, name: str, ids: str, values: str | None) -> Any:
    """A pandas frame or Series whose index holds the ids, unless a column of a frame does."""
    names = list(source.index.names)
    if not hasattr(source, "columns"):
        held = values or source.name
        if held is None:
            raise InvalidData(
                f"'{name}' is a Series without a name, so its column would have none.",
                hint="Name it: series.rename('text').",
            )
        return source.rename(str(held)).rename_axis(ids).reset_index()
    if ids not in source.columns and names == [None]:
        counted_rows = np.array_equal(np.asarray(source.index), np.arange(len(source)))
        return source if counted_rows else source.rename_axis(ids).reset_index()
    return source.reset_index(drop=None in names or not set(names).isdisjoint(source.columns))


def _plain_column(values: Any) -> Any:
    """A column as Arrow reads it: rows of an array with two dimensions are lists."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)) or hasattr(values, "reset_index"):
        return values
    array = np.asarray(values) if hasattr(values, "__array__") else values
    return list(array) if getattr(array, "ndim", 1) > 1 else array


def _checked(rows: pa.Table, name: str) -> pa.Table:
    lowered = [column.lower() for column in rows.column_names]
    twice = [column for column in rows.column_names if lowered.count(column.lower()) > 1]
    if twice:
        raise InvalidData(f"'{name}' has the column '{twice[0]}' twice (case does not count).")
    for at, field in enumerate(rows.schema):
        if field.type in _OF_VIEWS:
            rows = rows.set_column(at, field.name, rows.column(at).cast(_OF_VIEWS[field.type]))
    return rows


def column(rows: pa.Table, name: str, what: str) -> pa.ChunkedArray:
    """A column by name, or an error that lists what there is."""
    if name not in rows.column_names:
        raise InvalidData(
            f"The {what} has no column '{name}'; it has: {', '.join(rows.column_names)}."
        )
    return rows.column(name)


def expanded(names: Iterable[str], there: Sequence[str]) -> list[str]:
    """Names of columns, where a star stands for any text: px* are all that begin so, in order.

    Each comes once. A name without a star is left to whoever looks for the column.

    >>> expanded(["text", "px*"], ["id", "px0", "px1", "text"])
    ['text', 'px0', 'px1']
    """
    found: dict[str, None] = {}
    for name in names:
        matching = [name]
        if "*" in name and name not in there:
            pattern = name.replace("[", "[[]").replace("?", "[?]")
            matching = [one for one in there if fnmatchcase(one, pattern)]
            if not matching:
                few = ", ".join(there[:SHOWN]) + (", …" if len(there) > SHOWN else "")
                raise InvalidData(f"No column matches '{name}'; there are: {few or 'none'}.")
        found |= dict.fromkeys(matching)
    return list(found)


def ids_of(rows: pa.Table, name: str, what: str) -> pa.ChunkedArray:
    """An id column as strings or 64-bit integers, complete."""
    ids = column(rows, name, what)
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if pa.types.is_integer(ids.type):
        ids = built(lambda: ids.cast(pa.int64()), name)
    elif ids.type in (pa.string(), pa.large_string(), pa.string_view()):
        ids = ids.cast(pa.string())
    else:
        raise InvalidData(f"The ids in '{name}' must be strings or integers; got {ids.type}.")
    if ids.null_count:
        first = ids.is_null().index(True).as_py()
        raise InvalidData(
            f"The {what} has {counted(ids.null_count, 'row')} without an id; first row {first}."
        )
    return ids


def _read_file(
    path: Path,
    ids: str | None,
    id_kind: pa.DataType | None,
    types: Types,
    columns: Sequence[str] | None,
) -> pa.Table:
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        rows = built(lambda: pq.read_table(path, columns=_needed(path, columns)), str(path))
    elif suffix in CSV_SUFFIXES:
        options = csv_options(ids, types)
        with path.open("rb") as file:
            parsing = csv_parsing(file, str(path))
        rows = built(
            lambda: named(pa_csv.read_csv(path, parse_options=parsing, convert_options=options)),
            str(path),
        )
        rows = rows if id_kind == pa.string() else with_numbers(rows, ids)
        check_csv(rows, str(path))
    else:
        rows = built(lambda: pa_json.read_json(path), str(path))
    return rows


def _needed(path: Path, columns: Sequence[str] | None) -> list[str] | None:
    """The columns to read of a Parquet file; None: all, for what is wrong with them to be seen."""
    held = pq.read_schema(path).names
    lowered = [name.lower() for name in held]
    complete = columns is not None and all(held.count(name) == 1 for name in columns)
    return list(columns or ()) if complete and len(set(lowered)) == len(held) else None


def check_file(path: Path) -> None:
    """A file there is, with a suffix and a content that can be read."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidData(f"'{path}' must end in one of {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise InvalidData(f"There is no file '{path}'.")
    if path.stat().st_size == 0:
        raise InvalidData(f"'{path}' is empty.")


def is_csv(source: Any) -> bool:
    """Whether a user gave a file of text without types: CSV, whatever separates its cells."""
    named = isinstance(source, (str, Path))
    return named and Path(source).suffix.lower() in CSV_SUFFIXES


def csv_parsing(file: Any, name: str) -> pa_csv.ParseOptions:
    """How a CSV file is cut into cells, by its head; it is then at its beginning again."""
    sign = delimiter_of(file.read(HEAD), name)
    file.seek(0)
    # Texts have lines; without this they work until a file is so long that it is read in blocks.
    return pa_csv.ParseOptions(delimiter=sign, newlines_in_values=True)


def csv_options(ids: str | None, types: Types) -> pa_csv.ConvertOptions:
    """001 is a name, not the number one; NA may be one too, so only an empty cell is nothing."""
    told = dict(types) if ids is None else {**types, ids: pa.string()}
    return pa_csv.ConvertOptions(column_types=told, null_values=[""], strings_can_be_null=True)


def check_csv(rows: pa.Table | pa.RecordBatch, path: str) -> None:
    """The CSV reader calls a column binary when its text is not UTF-8."""
    foreign = [field.name for field in rows.schema if pa.types.is_binary(field.type)]
    if foreign:
        raise not_utf8(path, f"; see its column '{foreign[0]}'")


def named(rows: pa.Table | None) -> pa.Table | None:
    """Look at the column names: those that are not UTF-8 fail only then."""
    return None if rows is None else rows.select(rows.column_names)


def with_numbers(rows: pa.Table, ids: str | None) -> pa.Table:
    """Ids that are all whole numbers, written as such, become numbers."""
    if ids is None or ids not in rows.column_names:
        return rows
    at = rows.column_names.index(ids)
    return rows.set_column(at, ids, as_numbers(rows.column(ids)))


def as_numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that are all whole numbers, written as such, as numbers; else as they are."""
    if len(texts) > FEW and pa.types.is_string(as_numbers(texts[:FEW]).type):
        return texts  # mostly the first ones tell
    plain = pc.match_substring_regex(texts, r"^(0|-?[1-9][0-9]{0,17})$")
    if not len(texts) or texts.null_count or not pc.all(plain).as_py():
        return texts
    return texts.cast(pa.int64())


def as_stored(ids: pa.ChunkedArray, known: Callable[[pa.ChunkedArray], Mask]) -> pa.ChunkedArray:
    """Ids of a CSV file that may be one of ours, come back: without the apostrophe we put there.

    It is taken away where the id without it is known, and the one with it is not. Where both are,
    it is unclear which one is meant, and nothing is guessed.
    """
    if not pa.types.is_string(ids.type) or not pc.any(pc.starts_with(ids, "'")).as_py():
        return ids
    marked = pc.match_substring_regex(ids, f"^'+{SIGNS}")
    at = np.flatnonzero(np.asarray(pc.fill_null(marked, False)))
    if not len(at):
        return ids
    given = ids.take(pa.array(at))
    plain = pc.utf8_slice_codeunits(given, 1)
    with_it, without = known(given), known(plain)
    if (with_it & without).any():
        first = given[int(np.flatnonzero(with_it & without)[0])].as_py()
        raise InvalidData(
            f"The file has the id {first!r}, and the store has {first!r} as well as {first[1:]!r}: "
            "an apostrophe may have been put there to keep a spreadsheet from running it.",
            hint="Write the items as Parquet (or with --exact, on the command line), and give "
            "those ids back as they are.",
        )
    changed = np.zeros(len(ids), dtype=np.bool_)
    changed[at[without]] = True
    restored = plain.filter(pa.array(without)).combine_chunks()
    return pa.chunked_array(
        [pc.replace_with_mask(ids.combine_chunks(), pa.array(changed), restored)]
    )


def built(make: Any, name: str) -> Any:
    """What ``make`` makes, or what was wrong with the data of that name."""
    try:
        return make()
    except PosterityError:
        raise
    except UnicodeDecodeError:
        raise not_utf8(name, "; see the names of its columns") from None
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        # A KeyError puts its message in quotes; it is about a column that is there twice.
        told = str(error.args[0] if isinstance(error, KeyError) else error).splitlines()[0]
        if "invalid UTF8" in told:
            raise not_utf8(name) from None
        raise InvalidData(f"'{name}' cannot be read as a table: {told.rstrip('.')}.") from None
