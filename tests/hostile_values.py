"""Hostile values through every parameter: of all commands, and of all addresses of the page.

    python -m tests.hostile_values FOLDER COUNT

runs in one process, so that its peak of memory is that of all of them, and prints what it saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import click

from posterity import Store
from posterity.cli import cli, run
from tests import asgi
from tests.memory import peak_mib
from tests.stores import World, small_store

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
BUG = re.compile(r"Traceback|Unexpected [A-Z]|\"bug\"")
NUMBERS = (
    *("1e30000000", "1e30000000%", "-1e400", "1e400%", "1e-400", "nan", "inf", "-inf", "NaN%"),
    *(
        "9" * 30,
        "9" * 5000,
        "-1",
        "-0",
        "0",
        "0.0",
        "1_000",
        "0x10",
        "1/0",
        "1/3",
        "1e5",
        "٣٤",
        "²",
    ),
    *(
        "1.5",
        "100.0001%",
        "%",
        "-5%",
        "1e",
        "+",
        "--",
        "1 2",
        "1,2",
        "4294967296",
        "-9223372036854775809",
    ),
    *("9223372036854775807", "9223372036854775808", "1e18", "1e308", "4.9e-324", "0" * 70 + "1"),
)
TEXTS = (
    *("", " ", "\t", "\n", "a" * 10_000, "é" * 5000, "🦉" * 999, "\x1b[2J\x1b]0;x\x07", "\x9b31m"),
    *("\u202eevil\u2066", "\ud800", "a\r\nb", "'; DROP TABLE items; --", "1=1", "id = 'x' OR 1=1"),
    *("number > 1e400", "(" * 2000, "[" * 2000, "{" * 2000, "../" * 30 + "etc/passwd", "/dev/null"),
    *(
        "/proc/self/mem",
        "file://localhost/etc/passwd",
        "s3://",
        "http://[",
        "https://user:pw@host/",
        "~",
        "-",
    ),
    *(
        "a:b:c",
        "os:system",
        ":",
        "a:",
        ":b",
        "%s%n",
        "%00",
        "${HOME}",
        "=cmd()",
        "[/red]",
        "{{7*7}}",
    ),
    *(
        "<script>alert(1)</script>",
        "cost-ratio:1e400",
        "cost-ratio:nan",
        "cost-ratio:" + "1" * 5000,
    ),
    *("cost-ratio:1,of.x=1" * 200, "cost-ratio:10" + "+confirm" * 500, "at-most:1e30000000%"),
    *("at-most:1%,confidence=1e30000000%", "total:1e30000000%", "total:1,horizon=" + "9" * 4000),
    *("price:1e-400", "random:" + "9" * 4000, "random:-1", "random:٣", "1e30000000,cpus=1e400"),
    *("4,memory=1e400GiB", "true", "null", "None", "[]", "\\", "\\x00", '"', "'", "`id`", "$(id)"),
    *(
        "nul",
        "con",
        ".",
        "..",
        "a/b",
        "x.csv",
        "x.parquet",
        "x.html",
        "store",
        "new",
        "old",
    ),
)
VALUES = (*NUMBERS, *TEXTS)
JOINED = tuple(one for one in VALUES if "/" not in one and ".." not in one)
"""Those that can be put together: what looks like a path only comes as it is, where nothing can be
written, so that no command makes a file outside of the folder it runs in."""
FILES = (
    "items.csv",
    "votes.csv",
    "odd.csv",
    "odd.parquet",
    "odd.json",
    "missing.csv",
    "recording.npz",
)
ADDRESSES = (
    *("budget", "rule", "model", "step", "page", "old", "new", "low", "high", "text", "id"),
    *("next", "order", "row", "column", "columns", "token", "confirm", "unknown"),
)
NEVER = {"executor": "it would start a Ray cluster", "open_it": "it would start a browser"}
"""Parameters that are not drawn for, and why."""


def prepare(folder: Path) -> None:
    """A small store, and files that commands can be given."""
    world = World()
    store = small_store(folder / "store", world)
    store.register(world.model("new"))
    (folder / "items.csv").write_text("id,text\nx,=1+1\n")
    (folder / "votes.csv").write_text("id,vote\nitem-1,owl\n")
    (folder / "odd.csv").write_bytes(b"\xff\xfe,\x00\n\x1b[2J,1e400\n" * 3)
    (folder / "odd.parquet").write_bytes(b"PAR1" + b"\0" * 64 + b"PAR1")
    (folder / "odd.json").write_text("[" * 5000)
    (folder / "recording.npz").write_bytes(b"PK\x03\x04 nothing")


def commands() -> Iterator[tuple[click.Command, click.Parameter]]:
    """Every parameter of every command, as the command line has them now."""
    for _, command in sorted(cli.every().items()):
        for parameter in command.params:
            if parameter.name not in NEVER:
                yield command, parameter


def line(draw: random.Random, command: click.Command, hostile: click.Parameter) -> list[str]:
    """A command with a hostile value for one of its parameters, and sometimes for others."""
    told = [command.name or ""]
    for parameter in command.params:
        if parameter.name in NEVER:
            continue
        mean = parameter is hostile or draw.random() < 0.05
        if isinstance(parameter, click.Argument):
            told.append(value(draw) if mean else usual(parameter))
        elif mean or parameter.required:
            flag = max(parameter.opts, key=len)
            plain = not isinstance(parameter, click.Option) or not parameter.is_flag
            told += [flag, *([value(draw) if mean else "cat,dog"] if plain else [])]
    if draw.random() < 0.3 and "--json" not in told:
        told.append("--json")
    return [part.replace("\0", "") for part in told]  # no argument of a process holds one


def usual(argument: click.Parameter) -> str:
    """What an argument is called in the store that was prepared."""
    names = {"store": "store", "model": "new", "models": "new", "name": "another", "item": "item-1"}
    names |= {"items": "item-1", "files": "items.csv", "paths": "recording.npz", "step": "0"}
    return names.get(argument.name or "", "x")


def value(draw: random.Random) -> str:
    """One of the list, two of them joined, or a file."""
    kind = draw.random()
    if kind < 0.08:
        return draw.choice(FILES)
    if kind < 0.2:
        return "".join(
            draw.choice(part) for part in (JOINED, (",", ":", "=", "+", "%", ""), JOINED)
        )
    return draw.choice(VALUES)


class Seen:
    """What came of all of it."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.slowest, self.slowest_was = 0.0, ""
        self.parameters: set[str] = set()
        self.codes: dict[str, int] = {}

    def note(self, what: str, parameter: str, code: int, texts: list[str], began: float) -> None:
        took = time.monotonic() - began
        if took > self.slowest:
            self.slowest, self.slowest_was = took, what[:300]
        self.parameters.add(parameter)
        self.codes[str(code)] = self.codes.get(str(code), 0) + 1
        for text in texts:
            for wrong, found in (("bug", BUG.search(text)), ("control", CONTROL.search(text))):
                if found:
                    self.faults.append(f"{wrong}: {what[:300]!r}: {text[:600]!r}")


def on_the_command_line(draw: random.Random, count: int, seen: Seen) -> None:
    """Values through all parameters in turn."""
    listed = list(commands())
    for at in range(count):
        command, parameter = listed[at % len(listed)]
        arguments = line(draw, command, parameter)
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        began, code = time.monotonic(), -1
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = run(arguments)
            except BaseException as error:  # a traceback, to a user
                seen.faults.append(f"raised {error!r}: {arguments!r:.300}")
        texts = [_text(stream) for stream in (out, err)]
        name = f"{command.name} {parameter.name}"
        seen.note(" ".join(arguments), name, code, texts, began)
        if code not in (0, 1, 2):
            seen.faults.append(f"exit code {code}: {arguments!r:.300}")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8", "surrogateescape")


async def in_addresses(draw: random.Random, count: int, seen: Seen, app: Any) -> None:
    """Values through all parameters of all addresses, and as bodies of what is sent."""
    found = app._app.routes
    paths = sorted({route.path for route in found if "GET" in (route.methods or ())})
    sent = sorted({route.path for route in found if "POST" in (route.methods or ())})
    for at in range(count):
        path, names = paths[at % len(paths)], [ADDRESSES[at // len(paths) % len(ADDRESSES)]]
        names += draw.sample(ADDRESSES, draw.choice((0, 0, 1, 2)))
        path = path.replace("{name}", quote(value(draw), safe="", errors="replace"))
        query = "&".join(f"{n}={quote(value(draw), safe='', errors='replace')}" for n in names)
        began = time.monotonic()
        answer = await asgi.request(app, f"{path}?{query}")
        _judge(seen, f"{path}?{query}", f"{paths[at % len(paths)]} {names[0]}", answer, began)
        if at % 10 == 0:
            posted = draw.choice(sent)
            given: dict[str, Any] = {draw.choice(ADDRESSES): value(draw)}
            given |= {"answers": [{"id": value(draw), "answer": value(draw)}]}
            body = json.dumps(given if draw.random() < 0.8 else {"step": 10**400}).encode()
            body = body if draw.random() < 0.9 else b"[" * 100_000
            began = time.monotonic()
            headers = {"content-type": "application/json"}
            answer = await asgi.request(app, posted, headers, body=body)
            _judge(seen, f"POST {posted} {body[:200]!r}", f"{posted} POST", answer, began)


def _judge(seen: Seen, what: str, name: str, answer: asgi.Answer, began: float) -> None:
    kind = answer.headers.get("content-type", "")
    # What pages show of what was asked for is text in HTML; scripts and pictures are our own.
    texts = [answer.body.decode("utf-8", "replace")] if "json" in kind else []
    seen.note(what, name, answer.status, texts if "plan-" not in what else [], began)
    if answer.status >= 500 and answer.status != 503:
        seen.faults.append(f"status {answer.status}: {what[:300]} {answer.body[:300]!r}")


def main(folder: str, count: str) -> None:
    """Run all of them, and print what was seen as JSON."""
    os.chdir(folder)
    os.environ.pop("POSTERITY_TRACEBACK", None)
    prepare(Path())
    draw, seen = random.Random(20_26), Seen()
    warm = [["plan", "store", "new"], ["review", "store"], ["report", "store", "-o", "x.html"]]
    for arguments in warm:  # kernels are compiled once, whatever the values are
        with contextlib.redirect_stdout(io.StringIO()):
            run(arguments)
    base = peak_mib()
    # A server serves until it is stopped: its parameters are checked, and it ends at once.
    # The demo reads texts and loads detectors for a while before it does anything.
    with (
        patch("uvicorn.Server.run", lambda *_, **__: None),
        patch("webbrowser.open"),
        patch("posterity.cli.demo.job.read_texts", return_value=()),
        patch("posterity.cli.demo.job.available", return_value=([], {})),
    ):
        on_the_command_line(draw, max(int(count) * 3 // 5, len(list(commands()))), seen)
    if not Path("store/posterity.json").exists():
        seen.faults.append("the store is gone")
    app = asgi.site(Store("store").path, writes=True)
    asyncio.run(in_addresses(draw, int(count) * 2 // 5, seen, app))
    told = {
        "faults": seen.faults[:50],
        "count": len(seen.faults),
        "slowest": seen.slowest,
        "slowest_was": seen.slowest_was,
        "peak_mib": peak_mib(),
        "base_mib": base,
        "parameters": sorted(seen.parameters),
        "codes": seen.codes,
    }
    sys.__stdout__.write(json.dumps(told))  # type: ignore[union-attr]


if __name__ == "__main__":
    main(*sys.argv[1:])
