"""Commands of `posterity`, each run in a process of its own that may be killed at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import obstore.store  # noqa: F401 loaded once in the server of processes, as those below
import pandas as pd  # noqa: F401
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from posterity.cli import run as run_cli
from posterity.storage import failpoints
from tests.killing import _processes
from tests.stores import NAMES, World

ASKED = "POSTERITY_TEST_ASKED"
"""Names the file in which the model writes down which items it was asked about."""
ITEMS, MORE = 60, 80
BOUND = 120.0
"""Seconds after which a command hangs."""


def new(batch: pa.Table) -> np.ndarray:
    """The model of the updates: it votes from memory, a little at a time."""
    numbers = batch.column("number").to_numpy()
    with Path(os.environ[ASKED]).open("a") as file:
        file.write("".join(f"{number}\n" for number in numbers))
    time.sleep(0.004)
    votes: np.ndarray = World(items=ITEMS).votes["new"][numbers]
    return votes


def asked(log: Path) -> list[int]:
    """The items the model was asked about since the log was last removed."""
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def write_inputs(folder: Path) -> None:
    """The files that commands are given."""
    world = World(items=ITEMS)
    pq.write_table(world.table(), folder / "items.parquet")
    pq.write_table(World(items=MORE).table(ITEMS, MORE), folder / "more.parquet")
    wide = world.labelled_table("old").rename_columns(["id", "truth", "old"])
    for name in world.accuracies:
        pq.write_table(world.labelled_table(name), folder / f"labelled-{name}.parquet")
        pq.write_table(world.votes_table(name), folder / f"votes-{name}.parquet")
    pq.write_table(wide.append_column("new", [world.labelled["new"]]), folder / "wide.parquet")
    predictions = world.table()
    for name in ("old", "new"):
        predictions = predictions.append_column(name, [world.votes[name]])
    pq.write_table(predictions, folder / "predictions.parquet")
    answers = {"id": [f"item-{at}" for at in range(0, ITEMS, 4)], "answer": world.truth[::4]}
    pq.write_table(pa.table(answers), folder / "answers.parquet")


OLD = ["model {store} old --labelled {in}/labelled-old.parquet"]
BEGIN = [
    f"init {{store}} --classes {','.join(NAMES)} --shard-rows 25",
    "add {store} {in}/items.parquet",
    *OLD,
    "update {store} old --votes {in}/votes-old.parquet",
]
MID = [*BEGIN, "model {store} mid --labelled {in}/labelled-mid.parquet"]
STEP = "update {store} mid --votes {in}/votes-mid.parquet --budget 50% --rule max-belief"
PENDING = [*MID, f"{STEP}+confirm"]
REGISTER = "model {store} new --labelled {in}/labelled-new.parquet"
NEW = f"{REGISTER} --predict tests.commands:new --cost 0.5"


@dataclass(frozen=True)
class Operation:
    """A command that is killed, and those that make the store it is given."""

    command: str
    before: Sequence[str] = ()
    exports: str = ""
    """What it writes outside the store."""
    litters: bool = field(default=False, kw_only=True)
    """Whether the store holds what killed writers have left."""


OPERATIONS = {
    "init": Operation(BEGIN[0]),
    "add": Operation("add {store} {in}/more.parquet", BEGIN),
    "first add": Operation(BEGIN[1], BEGIN[:1]),
    "remove": Operation("remove {store} item-7 item-30", BEGIN),
    "classes": Operation("classes {store} --append emu,yak", BEGIN),
    "register": Operation(REGISTER, BEGIN),
    "import": Operation(
        "import {store} {in}/predictions.parquet --label old --model old --label new --model new"
        " --labelled {in}/wide.parquet --rule max-belief",
        BEGIN[:1],
    ),
    "plan": Operation(
        "plan {store} mid --budget 50% --out {out}/plan.parquet", MID, "plan.parquet"
    ),
    "update": Operation(
        "update {store} new --budget 50% --rule cost-ratio:2 --batch 6 --trust",
        [*PENDING, NEW],
    ),
    "votes": Operation(STEP, MID),
    "settle": Operation("settle {store}", PENDING),
    "redecide": Operation("redecide {store} --rule max-belief", PENDING),
    "tune": Operation("tune {store} --goal at-most:50% --apply", PENDING),
    "revert": Operation("revert {store} 1", [*MID, STEP]),
    "review": Operation("review {store} --answers {in}/answers.parquet", PENDING),
    "learn": Operation("review {store} --answers {in}/answers.parquet --learn", PENDING),
    "compact": Operation("compact {store}", [*MID, STEP, "remove {store} item-7"]),
    "vacuum": Operation(
        "vacuum {store} --hours 0",
        [*MID, STEP, "remove {store} item-7", "compact {store}"],
        litters=True,
    ),
    "labels": Operation("labels {store} --out {out}/labels.parquet", BEGIN, "labels.parquet"),
    "export": Operation("labels {store} --out {out}/labels/", BEGIN, "labels"),
}


@dataclass(frozen=True)
class Ended:
    """How a process has ended."""

    code: int
    """What the command line returned, or the negative number of the signal."""
    seconds: float
    output: str
    reached: dict[str, int] = field(default_factory=dict)
    """How often it came by each failpoint, where that was asked for."""


def _count(name: str) -> None:
    # Stands in for the code of failpoints.reach, in whose module its names are looked up.
    _reached[name] += 1  # type: ignore[name-defined]  # noqa: F821


def _child(
    arguments: list[str],
    environment: dict[str, str],
    output: str,
    at: float,
    begun: Any,
    counts: Any,
) -> None:
    # Shells start what runs in the background with interrupts ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = (open(at, "w", closefd=False) for at in (1, 2))  # noqa: SIM115
    if counts is not None:
        failpoints.reach.__code__ = _count.__code__
    code = 130
    try:
        begun.send(True)
        time.sleep(max(0.0, at - time.monotonic()))
        code = run_cli(arguments)
        if counts is not None:
            counts.send(dict(failpoints._reached))
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:
        pass  # just before the command begins, or after its end
    os._exit(code)


class Running:
    """A command in a process of its own."""

    def __init__(
        self,
        arguments: Sequence[str],
        scratch: Path,
        environment: dict[str, str] | None = None,
        *,
        at: float = 0.0,
        count: bool = False,
    ) -> None:
        """``at``: the moment it begins at, if that is still to come; ``count``: failpoints."""
        self.output = scratch / f"output-{random.randrange(2**48):012x}"
        self._begun, begun = _processes.Pipe(duplex=False)
        counted, counts = _processes.Pipe(duplex=False)
        self._counted = counted if count else None
        given = (list(arguments), dict(environment or {}), str(self.output), at, begun)
        self.process = _processes.Process(target=_child, args=(*given, counts if count else None))
        self.process.start()
        begun.close()
        counts.close()
        with contextlib.suppress(EOFError):
            assert self._begun.poll(BOUND), "the process does not start"
            self._begun.recv()
        self.since = max(at, time.monotonic())

    def stop(self, after: float, how: signal.Signals) -> None:
        """Send a signal so many seconds after the command began, unless it has ended."""
        self.process.join(max(0.0, self.since + after - time.monotonic()))
        if self.process.is_alive() and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it may end just now
                os.kill(self.process.pid, how)

    def ended(self) -> Ended:
        """Wait for it."""
        self.process.join(BOUND)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"a process hangs; it said: {self.output.read_text()}")
        seconds = time.monotonic() - self.since
        reached = {}
        if self._counted is not None and self._counted.poll():
            reached = self._counted.recv()
        output = self.output.read_text() if self.output.exists() else ""
        self.output.unlink(missing_ok=True)
        return Ended(self.process.exitcode, seconds, output, reached)


def run(arguments: Sequence[str], scratch: Path, environment: dict[str, str]) -> Ended:
    """Run a command to its end."""
    return Running(arguments, scratch, environment).ended()
