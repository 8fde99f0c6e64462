"""What items are, as a person is shown it. Payload is hostile: it is text, whatever it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from posterity._text import lines
from posterity.engine.items.payload import Payload, items_schema, shown_columns
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData
from posterity.method.data.arrays import Rows

LONGEST = 4000
"""Characters of a text that are shown."""
FEW = 8
"""Values of a list that are shown."""
LARGEST = 32 * 2**20
"""Bytes of a picture."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".avif")
TEXT, PICTURE, NUMBER, OTHER = "text", "picture", "number", "other"

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
"""How files of pixels begin. Drawings that can hold scripts (SVG) are not among them."""


@dataclass(frozen=True)
class Picture:
    """A picture to be shown."""

    kind: str
    """Its media type, by how it begins, whatever it is called."""
    content: bytes


def payloads_of(
    context: Context,
    rows: Rows,
    pictures: Path | None = None,
    columns: Sequence[str] | None = None,
) -> dict[int, list[dict[str, Any]]]:
    """The payload of some items, column by column, as it is shown.

    ``pictures``: where relative paths begin; None: what names a picture is shown as text.
    ``columns``: which are shown, see ``shown_columns``.
    """
    wanted = np.unique(rows)
    names = shown_columns(context.items, columns)
    return {
        row: [_shown(name, table.column(name)[at], pictures) for name in names]
        for found, table in Payload(context, names).parts(wanted[~context.removed[wanted]])
        for at, row in enumerate(found.tolist())
    }


def with_payloads(
    context: Context,
    items: list[dict[str, Any]],
    pictures: Path | None = None,
    columns: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Rows about items, each with the payload of its item."""
    rows = np.array([one["row"] for one in items], dtype=np.int64)
    cells = payloads_of(context, rows, pictures, columns)
    return [one | {"payload": cells.get(one["row"], [])} for one in items]


def _shown(name: str, cell: Any, pictures: Path | None) -> dict[str, Any]:
    """A cell of a payload: what kind it is, its text, and how much of that is left out."""
    value = cell.as_py()
    if isinstance(value, bytes):
        kind = PICTURE if pictures is not None and media_type(value) else OTHER
        shown = {"column": name, "kind": kind, "legible": kind == PICTURE}
        return shown | {"text": f"{len(value):,} bytes", "cut": 0}
    if isinstance(value, str):
        kind = PICTURE if pictures is not None and _is_picture(pictures, value) else TEXT
    else:
        kind = NUMBER if isinstance(value, (bool, int, float)) else OTHER
        kind = TEXT if value is None and pa.types.is_string(cell.type) else kind
    text = _text(value)
    return {
        "column": name,
        "kind": kind,
        "legible": kind in (TEXT, PICTURE),
        "text": text[:LONGEST],
        "cut": max(0, len(text) - LONGEST),
    }


def texts_of(cells: list[dict[str, Any]]) -> dict[str, str]:
    """Cells as texts, by column."""
    return {
        cell["column"]: cell["text"]
        + (f" … {cell['cut']:,} more characters" if cell["cut"] else "")
        for cell in cells
    }


def in_lines(cells: list[dict[str, Any]]) -> str:
    """Cells for a terminal: each text on a line of its own, numbers beside each other."""
    texts = texts_of(cells)
    legible = [cell["column"] for cell in cells if cell["legible"]]
    small = "  ".join(f"{name} {text}" for name, text in texts.items() if name not in legible)
    return lines((*(f"{name}: {texts[name]}" for name in legible), small))


def left_out(context: Context, columns: Sequence[str] | None = None) -> int:
    """How many columns of the payload are not shown."""
    every = items_schema(context.items).names
    return max(0, len(every) - 1) - len(shown_columns(context.items, columns))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, list):
        return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
    # Of an embedding the first numbers are as good as all of them.
    few = ", ".join(
        format(one, ".4g") if isinstance(one, float) else str(one) for one in value[:FEW]
    )
    return few + (f", … ({len(value):,} in all)" if len(value) > FEW else "")


def media_type(content: bytes) -> str | None:
    """What a picture is by how it begins; None: none that is shown."""
    for begin, kind in _MAGIC:
        if content.startswith(begin):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    return None


def picture_of(context: Context, row: int, column: str, root: Path) -> Picture:
    """The picture of an item: bytes of its payload, or the file its payload names.

    Nobody can ask for another file than those a payload names, and what does not begin as a
    picture does is not shown: a payload that names a file of passwords shows nothing of it.
    """
    if not 0 <= row < context.rows or context.removed[np.array([row])][0]:
        raise InvalidData(f"There is no item at row {row}.")
    names = items_schema(context.items).names
    if column == "id" or column not in names:
        raise InvalidData(f"The items have no payload {column!r}.")
    _, table = Payload(context, [column]).of(np.array([row], dtype=np.int64))
    if not table.num_rows:
        raise InvalidData(f"There is no item at row {row}.")
    value = table.column(column)[0].as_py()
    content = value if isinstance(value, bytes) else _read(value, root)
    kind = media_type(content)
    if kind is None:
        raise InvalidData(f"The payload {column!r} of row {row} is no picture that can be shown.")
    return Picture(kind, content)


def _is_picture(root: Path, value: str) -> bool:
    """Whether a text names a file that begins as a picture does."""
    path = _file(root, value)
    try:
        if path is None:
            return False
        with path.open("rb") as file:
            return media_type(file.read(16)) is not None
    except OSError:
        return False


def _read(value: Any, root: Path) -> bytes:
    if not isinstance(value, str) or not value.lower().endswith(SUFFIXES):
        raise InvalidData("The payload names no picture.")
    path = _file(root, value)
    try:
        if path is None or path.stat().st_size > LARGEST:
            raise InvalidData("The picture is not in the folder of pictures, or too large.")
        return path.read_bytes()
    except OSError:
        raise InvalidData("The picture cannot be read.") from None


def _file(root: Path, value: str) -> Path | None:
    """The file of a picture's name that a payload names; None where it is not below ``root``.

    Payload may name any file, or a link to one: what is not below that folder is never opened.
    """
    if not value.lower().endswith(SUFFIXES):
        return None
    try:
        path = (root / value).resolve()
        # To open a pipe would be to wait for whoever writes to it.
        return path if path.is_relative_to(root.resolve()) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a null character; links in a circle
        return None
