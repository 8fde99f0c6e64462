"""What items are, as a person is shown it. Payload is hostile: it is text, whatever it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posterity.engine.items.payload import Payload
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData
from posterity.method.data.arrays import Rows

LONGEST = 4000
"""Characters of a text that are shown."""
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
    context: Context, rows: Rows, pictures: Path | None = None
) -> dict[int, list[dict[str, Any]]]:
    """The payload of some items, column by column, as it is shown.

    ``pictures``: where relative paths begin; None: what names a picture is shown as text.
    """
    wanted = np.unique(rows)
    return {
        row: [
            _shown(name, table.column(name)[at].as_py(), pictures)
            for name in table.column_names
            if name != "id"
        ]
        for found, table in Payload(context).parts(wanted[~context.removed[wanted]])
        for at, row in enumerate(found.tolist())
    }


def with_payloads(
    context: Context, items: list[dict[str, Any]], pictures: Path | None = None
) -> list[dict[str, Any]]:
    """Rows about items, each with the payload of its item."""
    rows = np.array([one["row"] for one in items], dtype=np.int64)
    cells = payloads_of(context, rows, pictures)
    return [one | {"payload": cells.get(one["row"], [])} for one in items]


def _shown(name: str, value: Any, pictures: Path | None) -> dict[str, Any]:
    """A cell of a payload: what kind it is, its text, and how much of that is left out."""
    if isinstance(value, bytes):
        kind = PICTURE if pictures is not None and media_type(value) else OTHER
        return {"column": name, "kind": kind, "text": f"{len(value):,} bytes", "cut": 0}
    if isinstance(value, str):
        kind = PICTURE if pictures is not None and _is_picture(pictures, value) else TEXT
    else:
        kind = NUMBER if isinstance(value, (bool, int, float)) else OTHER
    text = "" if value is None else str(value)
    return {
        "column": name,
        "kind": kind,
        "text": text[:LONGEST],
        "cut": max(0, len(text) - LONGEST),
    }


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
    _, table = Payload(context).of(np.array([row], dtype=np.int64))
    if column == "id" or column not in table.column_names or not table.num_rows:
        raise InvalidData(f"The items have no payload {column!r}.")
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
