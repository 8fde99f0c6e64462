"""Tables written as text: what separates cells, whether they are UTF-8, and pairs of names."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path

from posterity.errors import InvalidData

CSV_SUFFIXES = (".csv", ".tsv")

HEAD = 2**16
"""Bytes of a file that show how it is written; the rest may be larger than memory."""

SHOWN = 60
"""Characters of a line that an error repeats."""


def delimiter_of(head: bytes, name: str) -> str:
    """What separates the cells of a file, by its first ``HEAD`` bytes, which must be UTF-8.

    A comma if that gives every row as many cells as the header, and more than one; else a
    semicolon or a tab, if that does. In a .tsv file the tab is tried first.

    >>> delimiter_of(b"id;text\\n1;yes, no\\n2;no\\n", "a.csv"), delimiter_of(b"id\\n1\\n", "a.csv")
    (';', ',')
    """
    whole = len(head) < HEAD
    _refuse_foreign(head, name, whole)
    text = head.decode("utf-8-sig", "ignore")
    order = "\t,;" if name.lower().endswith(".tsv") else ",;\t"
    return next((sign for sign in order if _separates(sign, text, whole)), order[0])


def _separates(sign: str, text: str, whole: bool) -> bool:
    try:
        rows = [row for row in csv.reader(StringIO(text, newline=""), delimiter=sign) if row]
    except csv.Error:
        return False
    if len(rows) > 1 and not whole:
        rows.pop()  # cut somewhere
    return bool(rows) and len(rows[0]) > 1 and {len(row) for row in rows} == {len(rows[0])}


def _refuse_foreign(content: bytes, name: str, whole: bool) -> None:
    """Name the first line that is not UTF-8."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise not_utf8(name, "; its first bytes are those of UTF-16", encoding="UTF-16")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content, final=whole)
    except UnicodeDecodeError as error:
        begin, number = (
            content.rfind(b"\n", 0, error.start) + 1,
            content.count(b"\n", 0, error.start),
        )
        line = content[begin:].split(b"\n", 1)[0].decode("cp1252", "replace").strip()
        raise not_utf8(name, f": see line {number + 1}, in Windows-1252 {line[:SHOWN]!r}") from None


def not_utf8(name: str, where: str = "", encoding: str = "WINDOWS-1252") -> InvalidData:
    """The error for a text in another encoding, which is not guessed: it would change names."""
    return InvalidData(
        f"'{name}' is not UTF-8 text{where}.",
        hint=f"Save it as UTF-8, or convert it: iconv -f {encoding} -t UTF-8 OLD > NEW",
    )


def read_text(path: Path) -> str:
    """The whole of a small file, without a byte-order mark."""
    content = path.read_bytes()
    _refuse_foreign(content, str(path), whole=True)
    return content.decode("utf-8-sig")


def read_pairs(
    path: Path, what: str, *, expected: str, is_header: Callable[[str, str], bool]
) -> dict[str, str]:
    """From JSON (an object) or CSV (two columns); a name must not occur twice.

    ``is_header``: whether the first line of a CSV file names its columns.
    """
    text = read_text(path)
    try:
        in_json = path.suffix.lower() == ".json"
        given = _object(text) if in_json else _lines(text, path.name)
        pairs = [(str(name).strip(), str(value).strip()) for name, value in given]
    except (ValueError, TypeError, RecursionError, csv.Error):
        raise InvalidData(f"'{path}' is no {what}.", hint=f"Expected {expected}.") from None
    if not in_json and len(pairs) > 1 and is_header(*pairs[0]):
        del pairs[0]
    told = dict(pairs)
    if len(told) < len(pairs):
        raise InvalidData(f"The {what} in '{path}' names a class twice.")
    return told


def _lines(text: str, name: str) -> Iterator[Sequence[object]]:
    sign = delimiter_of(text.encode()[:HEAD], name)
    return filter(None, csv.reader(StringIO(text, newline=""), delimiter=sign))


def _object(text: str) -> Sequence[Sequence[object]]:
    pairs = json.loads(text, object_pairs_hook=list)
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise ValueError("not an object")
    return pairs
