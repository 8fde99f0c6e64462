"""The plotting library's script, as its installed package has it, made to start sooner."""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from importlib.resources import files

from posterity.errors import MissingExtra

DRAWN = frozenset({b"bar", b"heatmap"})
"""Kinds of traces our pictures are made of, besides lines and points, which always are there."""


@cache
def script() -> bytes:
    """The library, where a page may keep it; nothing in it is ours but what is left out.

    Most of what a first visit takes is this script being read and run. So of its kinds of traces
    only those that are drawn are started, and it is compiled while it is loaded.
    """
    try:
        found = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    except ModuleNotFoundError:
        raise MissingExtra.of("A page with pictures", "web") from None
    return compiled_at_once(started(found))


@cache
def packed() -> bytes:
    """The script as a server sends it to browsers that unpack it: a third of the bytes."""
    return gzip.compress(script(), mtime=0)


@cache
def stamp() -> str:
    """Names what the script says, so that a browser may keep it as long as it says it."""
    return hashlib.sha256(script()).hexdigest()[:12]


@cache
def maps_id() -> str:
    """The id of the styles for maps that the library adds unless something has it."""
    found = re.search(
        rb'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)\{var \w+=document', script()
    )
    return "" if found is None else found[1].decode()


def started(script: bytes, kinds: frozenset[bytes] = DRAWN) -> bytes:
    """The script with only these kinds of traces started; as it is where they are not all found.

    A bundle names each part by a few letters, and starts all kinds in one list of calls. What a
    part is, is told where it is made: `moduleType:"trace",name:"bar"`.
    """
    lists = list(re.finditer(rb"register\(\[((?:[\w$]+\(\),){9,}[\w$]+\(\))\]\)", script))
    if len(lists) != 1:
        return script
    kept: dict[bytes, bytes] = {}
    for part in lists[0][1].replace(b"()", b"").split(b","):
        if (kind := _kind(script, part)) in kinds:
            kept[kind] = part + b"()"
        if kept.keys() == kinds:
            start, end = lists[0].span(1)
            return script[:start] + b",".join(kept.values()) + script[end:]
    return script


def _kind(script: bytes, part: bytes) -> bytes:
    """Which kind of traces a part of a bundle is; empty where that is not to be seen."""
    inner = re.match(rb'"use strict";[\w$]+\.exports=([\w$]+)\(\)\}', _made(script, part))
    if inner is None:
        return b""
    told = re.search(rb'moduleType:"trace",name:"(\w+)"', _made(script, inner[1]))
    return b"" if told is None else told[1]


def _made(script: bytes, part: bytes) -> bytes:
    """How a part of a bundle is made, or as much of it as tells what it is."""
    found = re.search(rb"\bvar " + re.escape(part) + rb"=[\w$]+\(\([\w$]*,?[\w$]*\)=>\{", script)
    return b"" if found is None else script[found.end() : found.end() + 4000]


def compiled_at_once(script: bytes) -> bytes:
    """Its whole is one function; in parentheses, browsers compile it at once and beside the page.

    Otherwise they skip it first and come back: the first picture is there later.
    """
    begin, end = b" : this, () => {", b"return Plotly;\n}));"
    if script.count(begin) != 1 or script.count(end) != 1:
        return script  # made otherwise by another version
    return script.replace(begin, b" : this, (() => {").replace(end, b"return Plotly;\n})));")
