"""Reading a batch near the model: texts, numbers side by side, images opened one at a time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from posterity.errors import InvalidData, InvalidParameter, MissingExtra, Unavailable
from posterity.storage.input import expanded

if TYPE_CHECKING:
    from PIL.Image import Image


def texts(batch: pa.Table, column: str) -> list[str]:
    """A column of texts as a list.

    >>> texts(pa.table({"id": [1, 2], "text": ["a cat", "a dog"]}), "text")
    ['a cat', 'a dog']
    """
    values = _filled(batch, column)
    if not _is_text(values.type):
        raise _unfit(column, "texts", values.type)
    listed: list[str] = values.to_pylist()
    return listed


def features(
    batch: pa.Table, columns: Sequence[str], *, dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Numbers as an array (items, features): columns side by side, or one column of lists.

    >>> features(pa.table({"id": [1, 2], "a": [1, 2], "b": [0.5, 1.5]}), ["a", "b"])
    array([[1. , 0.5],
           [2. , 1.5]], dtype=float32)
    """
    if isinstance(columns, str) or not columns:
        raise InvalidParameter.of("columns", "a list of column names", columns)
    columns = columns_of(batch, columns)
    filled = [_filled(batch, column) for column in columns]
    if len(filled) == 1 and _is_list(filled[0].type):
        given = _from_lists(batch, columns[0], filled[0])
    else:
        given = np.column_stack([_numbers(*pair) for pair in zip(columns, filled, strict=True)])
    cast = given.astype(dtype)
    # A model that reads whole numbers must not be shown 0 where the item says 0.7.
    if cast.dtype.kind in "iu" and not np.array_equal(cast, given):
        raise InvalidData(f"{_listed(columns)} must hold whole numbers for this model.")
    return cast


def inputs(batch: pa.Table, columns: Sequence[str], dtype: DTypeLike) -> list[str] | NDArray[Any]:
    """What a model reads: the texts of one column of texts, otherwise numbers."""
    columns = columns_of(batch, columns)
    if len(columns) == 1 and _is_text(column_of(batch, columns[0]).type):
        return texts(batch, columns[0])
    return features(batch, columns, dtype=dtype)


def columns_of(batch: pa.Table, names: Sequence[str]) -> list[str]:
    """The columns that names mean, of which one may be a wildcard for payload columns: px*."""
    try:
        return expanded(names, [name for name in batch.column_names if name != "id"])
    except InvalidData as error:
        raise Unavailable(error.message) from None  # every batch lacks it alike


def chosen(column: str | None, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns a model reads, given as one name or as several."""
    if (column is None) == (columns is None):
        raise InvalidParameter(
            f"Give one of 'column' and 'columns'; got {column!r} and {columns!r}.",
            hint="column= names texts or lists of numbers, columns= numbers to put side by side "
            "(or a wildcard: 'px*').",
        )
    names = (column,) if columns is None else columns
    if isinstance(names, str) or not names or not all(n and isinstance(n, str) for n in names):
        raise InvalidParameter.of("columns", "names of columns", columns or column)
    return tuple(str(name) for name in names)


class Images(Sequence["Image"]):
    """The images of a column of paths or of bytes, each opened only when it is asked for.

    Relative paths are looked up under ``root``; ``size`` is (width, height).
    """

    def __init__(
        self,
        batch: pa.Table,
        column: str,
        *,
        root: str | Path | None = None,
        mode: str = "RGB",
        size: tuple[int, int] | None = None,
    ) -> None:
        self._values = _filled(batch, column)
        if not (_is_text(self._values.type) or _is_bytes(self._values.type)):
            raise _unfit(column, "paths or bytes of images", self._values.type)
        self._batch, self._column = batch, column
        self._root, self._mode, self._size = root, mode, size

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, at: int) -> Image: ...
    @overload
    def __getitem__(self, at: slice) -> Images: ...
    def __getitem__(self, at: int | slice) -> Image | Images:
        rows = range(len(self))[at]
        if isinstance(rows, range):
            part = self._batch.take(pa.array(rows, pa.int64()))
            root, mode, size = self._root, self._mode, self._size
            return Images(part, self._column, root=root, mode=mode, size=size)
        return self._open(rows)

    def _open(self, row: int) -> Image:
        try:
            from PIL import Image as pillow  # noqa: N813
        except ImportError:
            raise MissingExtra.of("Reading images", "images") from None
        value = self._values[row].as_py()
        path = value if isinstance(value, bytes) else Path(self._root or ".") / value
        try:
            with pillow.open(io.BytesIO(path) if isinstance(path, bytes) else path) as image:
                converted = image.convert(self._mode)
                return converted.resize(self._size) if self._size else converted
        except Exception as error:  # decoders of broken files raise errors of all kinds
            where = f"{len(path)} bytes" if isinstance(path, bytes) else f"'{path}'"
            raise InvalidData(
                f"The image of {named(self._batch, row)} ({where}) cannot be opened: {error}."
            ) from error


def named(batch: pa.Table, row: int) -> str:
    """An item as messages name it: by its id."""
    known = "id" in batch.column_names
    return f"item {batch.column('id')[row].as_py()!r}" if known else f"row {row}"


def column_of(batch: pa.Table, column: str) -> pa.ChunkedArray:
    """A column that must be there, with values instead of a dictionary of them."""
    if batch.column_names.count(column) != 1:
        there = ", ".join(batch.column_names)
        # Every batch lacks it alike: no single item is to blame.
        raise Unavailable(f"The items have no column {column!r}; they have: {there}.")
    values = batch.column(column)
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _filled(batch: pa.Table, column: str) -> pa.ChunkedArray:
    values = column_of(batch, column)
    _refuse(batch, column, values.is_null(), "is empty")
    return values


def _refuse(batch: pa.Table, column: str, wrong: pa.ChunkedArray, told: str) -> None:
    row = pc.index(wrong, value=True).as_py()
    if row >= 0:
        count = pc.sum(wrong).as_py()
        more = f" ({count} such items)" if count > 1 else ""
        raise InvalidData(f"The column {column!r} of {named(batch, row)} {told}{more}.")


def _from_lists(batch: pa.Table, column: str, values: pa.ChunkedArray) -> NDArray[Any]:
    if not len(values):
        return np.zeros((0, 0))
    length = pc.list_value_length(values)
    usual = pc.mode(length)[0]["mode"]
    _refuse(batch, column, pc.not_equal(length, usual), f"has not {usual} numbers like the others")
    numbers = pc.list_flatten(values)
    rows = pc.list_parent_indices(values).filter(numbers.is_null())
    if len(rows):
        who = named(batch, rows[0].as_py())
        raise InvalidData(f"The column {column!r} of {who} holds a list with a gap.")
    return _numbers(column, numbers).reshape(len(values), -1)


def _numbers(column: str, values: pa.ChunkedArray) -> NDArray[Any]:
    kind = values.type
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise _unfit(column, "numbers or lists of numbers", kind)
    array: NDArray[Any] = values.to_numpy()
    return array


def _unfit(column: str, expected: str, kind: pa.DataType) -> Unavailable:
    return Unavailable(f"The column {column!r} must hold {expected}; it holds {kind}.")


def _listed(columns: Sequence[str]) -> str:
    few = ", ".join(repr(column) for column in columns[:5])
    return f"The columns {few}{', …' if len(columns) > 5 else ''}"


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
