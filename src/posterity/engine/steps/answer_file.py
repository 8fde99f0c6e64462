"""Files of answers: what people said of items, read with patience. A bad row costs itself only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.engine.items.lookup import Lookup, id_of, rows_or_none
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, UnknownName
from posterity.method.data.arrays import Codes, Rows
from posterity.method.data.classes import Classes
from posterity.method.data.votes import MISSING
from posterity.models.class_map import typed_name
from posterity.storage.input import as_stored, built, column, ids_of, is_csv, read_rows

WHAT = "file of answers"
UNKNOWN = -2
"""Stands for an answer that is no class."""
SHOWN = 3
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"


@dataclass(frozen=True, eq=False)
class Given:
    """The answers that can be used, by row, and what is to be said of the others."""

    rows: Rows
    """Ascending."""
    answers: Codes
    empty: int
    """Rows without an answer: not filled in yet."""
    refused: dict[str, int]
    """How many rows were left out, by what is wrong with them."""


def read_answers(context: Context, source: Any, *, id_column: str, answer_column: str) -> Given:
    """Ids and answers; of rows that cannot be used is told how many there are, and some of them."""
    # As texts: of a column of numbers, one word would make the whole file unreadable.
    table = read_rows(
        source,
        WHAT,
        ids=id_column,
        values=answer_column,
        id_kind=pa.string(),
        types={answer_column: pa.string()},
        columns=[id_column, answer_column],
    )
    column(table, id_column, WHAT)
    codes, strange = _codes(column(table, answer_column, WHAT), context.classes)
    empty = int((codes == MISSING).sum())
    kept = np.flatnonzero(codes != MISSING)
    refused: dict[str, int] = {}
    unknown = kept[codes[kept] == UNKNOWN]
    if len(unknown):
        named = f"{_some(strange)}{_guess(strange[0], context.classes)}"
        refused[f"no class of the store is called {named}"] = len(unknown)
    kept = kept[codes[kept] != UNKNOWN]
    table, codes = table.take(pa.array(kept)), codes[kept]
    given = table.column(id_column)
    if given.null_count:
        refused["they have no id"] = given.null_count
        has = np.asarray(given.is_valid())
        table, codes = table.filter(pa.array(has)), codes[has]
    ids = ids_of(table, id_column, WHAT)
    if is_csv(source):
        ids = as_stored(ids, Lookup(context).has)
    rows = _rows(ids, context)
    lost = np.flatnonzero(rows < 0)
    if len(lost):
        named = table.column(id_column).take(pa.array(lost)).unique()[:SHOWN].to_pylist()
        refused[f"no item of the store has the id {_some(named)}"] = len(lost)
    codes, rows = codes[rows >= 0], rows[rows >= 0]
    rows, codes, torn = _once(rows, codes)
    if len(torn):
        (first,) = id_of(context, pa.array(torn[:1])).to_pylist()
        refused[f"an item has different answers, such as {first!r}"] = len(torn)
    if refused and not len(rows):
        raise InvalidData(
            f"No row of the {WHAT} can be used: "
            + "; ".join(f"of {count:,} rows {what}" for what, count in refused.items())
            + ".",
            hint="It needs the ids of stored items and names of the store's classes.",
        )
    return Given(rows, codes, empty, refused)


def _codes(values: pa.ChunkedArray, classes: Classes) -> tuple[Codes, list[Any]]:
    """Answers as codes (−1: none), and some that are no class."""
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    each = built(plain.unique, WHAT)
    known = {name: code for code, name in enumerate(classes.names)}
    codes, strange = [], list[Any]()
    for value in each.to_pylist():
        code = _code(value, known, classes.kind)
        codes.append(code)
        if code == UNKNOWN and len(strange) < SHOWN:
            strange.append(value)
    at = np.asarray(pc.index_in(plain, value_set=each), dtype=np.int64)
    return np.array([*codes, MISSING], dtype=np.int32)[at], strange


def _code(value: Any, known: dict[Any, int], kind: type) -> int:
    """The class an answer names; people leave spaces, and spreadsheets make numbers of numbers."""
    if value is None or (isinstance(value, float) and value != value):
        return MISSING
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is kind and value in known:
        return known[value]
    if not isinstance(value, str):
        return UNKNOWN
    text = value.strip()
    if not text:
        return MISSING
    if kind is int:
        text = re.sub(r"\.0+$", "", text)
    try:
        # A name copied from a CSV file may have an apostrophe that keeps it from being a formula.
        told = (typed_name(text, kind), typed_name(text.removeprefix("'"), kind))
        return next((known[name] for name in told if name in known), UNKNOWN)
    except InvalidData:
        return UNKNOWN


def _rows(ids: pa.ChunkedArray, context: Context) -> Rows:
    """The rows of ids, whole numbers in a file of texts included; −1 where there is no item."""
    rows = np.full(len(ids), -1, dtype=np.int64)
    at = np.arange(len(ids))
    if context.id_kind == pa.int64() and ids.type == pa.string():
        at = np.flatnonzero(pc.match_substring_regex(ids, WHOLE))
        ids = ids.take(pa.array(at)).cast(pa.int64())
    if len(at):
        rows[at] = np.asarray(rows_or_none(context, ids).fill_null(-1))
    return rows


def _once(rows: Rows, codes: Codes) -> tuple[Rows, Codes, Rows]:
    """Each item once, by row; and those with different answers, which are left out."""
    order = np.lexsort((codes, rows))
    rows, codes = rows[order], codes[order]
    unique, first, count = np.unique(rows, return_index=True, return_counts=True)
    same = codes[first] == codes[first + count - 1] if len(first) else np.zeros(0, np.bool_)
    return unique[same], codes[first][same], unique[~same]


def _some(values: list[Any]) -> str:
    return ", ".join(repr(value) for value in values)


def _guess(strange: Any, classes: Classes) -> str:
    hint = UnknownName.among("class", str(strange), map(str, classes.names)).hint
    return f" ({hint})" if hint else ""
