"""Pairs in a small text file: class weights, class maps."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from posterity.errors import InvalidData


def read_pairs(path: Path, what: str, *, expected: str) -> dict[str, str]:
    """From JSON (an object) or CSV (two columns, no header); a name must not occur twice."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            pairs = _object(text)
        else:
            pairs = [(name, value) for name, value in filter(None, csv.reader(text.splitlines()))]
    except (ValueError, TypeError):
        raise InvalidData(f"'{path}' is no {what}.", hint=f"Expected {expected}.") from None
    told = {str(name).strip(): str(value).strip() for name, value in pairs}
    if len(told) < len(pairs):
        raise InvalidData(f"The {what} in '{path}' names a class twice.")
    return told


def _object(text: str) -> list[tuple[str, object]]:
    pairs = json.loads(text, object_pairs_hook=list)
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise ValueError("not an object")
    return pairs
