"""What a page was asked for: parameters of its address, read and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from posterity.errors import InvalidData, InvalidParameter
from posterity.report.flips import Wanted
from posterity.web.guard import TOKEN


def whole(given: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """A whole number of at least 0."""
    text = given.get(name, "").strip()
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidParameter.of(name, "a whole number", text)
    return int(text)


def share(given: Mapping[str, str], name: str) -> float | None:
    """A number from 0 to 1."""
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidParameter.of(name, "a number from 0 to 1", text)
    return value


def wanted(given: Mapping[str, str]) -> Wanted:
    """Which flips are looked at."""
    return Wanted(
        old=given.get("old") or None,
        new=given.get("new") or None,
        low=share(given, "low"),
        high=share(given, "high"),
        text=given.get("text") or None,
    )


def pages_of(given: Mapping[str, str]) -> str:
    """The address of a list without its page, to which one is added."""
    kept = {name: value for name, value in given.items() if name not in ("page", TOKEN) and value}
    return f"flips?{urlencode(kept | {'page': ''})}"


def item_id(text: str, kind: pa.DataType | None) -> str | int:
    """An id as an address has it, in the type the store's ids have."""
    if kind is None or not pa.types.is_integer(kind):
        return text
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise InvalidData(f"The store's ids are integers; got {text!r}.")
    return int(text)


def step_to_revert(given: Any) -> int:
    """What is sent to have a step reverted."""
    step = given.get("step") if isinstance(given, dict) else None
    if type(step) is not int:
        raise InvalidParameter.of("step", "the number of a step", step)
    return step


def answers(given: Any) -> dict[str, list[Any]]:
    """What people answered, as the columns of a table."""
    listed = given.get("answers") if isinstance(given, dict) else None
    if not isinstance(listed, list) or not listed:
        raise InvalidParameter.of("answers", "a list of ids and answers", listed)
    for one in listed:
        known = isinstance(one, dict) and type(one.get("id")) in (str, int)
        known = known and (isinstance(one["id"], str) or -(2**63) <= one["id"] < 2**63)
        if not known or not isinstance(one.get("answer"), str):
            raise InvalidParameter.of("answers", "objects with an id and an answer", one)
    return {name: [one[name] for one in listed] for name in ("id", "answer")}
