"""Operations on a store, run in processes that may be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posterity import Beliefs, Confusion, Evaluation, Model, Store, priors
from posterity.engine.evaluation.durable_votes import Run, unfinished
from posterity.engine.ledger.context import Context
from posterity.method.beliefs import fit
from posterity.storage import failpoints
from posterity.storage.files import open_files
from tests.stores import NAMES, World, small_store

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.killing", "tests.commands", "tests.stateful"])

# Loaded once in the server, instead of in each of the hundreds of processes it makes.
_warm = Beliefs(priors.uniform(2), items=1)
_warm.fold([0], Confusion.from_accuracy(0.9, classes=2))
_warm.of([0])
_few, _truth = np.array([[0, 0], [1, 1]], dtype=np.int32), np.array([0, 1], dtype=np.int32)
_fit = fit.fit(_few, _truth, priors.uniform(2))
fit.calibrate([(_fit, _few, _truth)], [0, 1], _fit.calibrator)
_fit.believe(_few, [0, 1], _truth, _truth[:, None])
_fit.value(_few, [0, 1], _truth, model=1, ratio=1)
_fit.contest(_few, [0, 1])
fit.weigh_patterns([(_fit, _few, _truth)], [0, 1])

OPERATIONS = (
    "add",
    "update",
    "votes",
    "truth",
    "revert",
    "settle",
    "redecide",
    "tune",
    "review",
    "compact",
)


def prepared(path: Path, operation: str) -> World:
    """A store just before the operation."""
    world = World(items=60)
    store = small_store(path, world)
    if operation in ("revert", "compact"):
        store.update(world.model("mid"), budget="50%", rule="max-belief")
    if operation in (
        "update",
        "votes",
        "truth",
        "settle",
        "redecide",
        "tune",
        "review",
    ):  # with flips pending, that the update makes or drops
        report = store.update(world.model("mid"), budget="50%", rule="max-belief+confirm")
        assert report.pending > 0
    if operation == "compact":
        store.remove(["item-7"])
    return world


def perform(path: str, operation: str, log: str, pause: float = 0.0) -> None:
    """The operation itself, always the same; the model writes down whom it was asked about."""
    world = World(items=60)
    if operation in ("init", "init other"):
        Store.create(path, classes=NAMES if operation == "init" else ["a", "b"])
        return
    store = Store(path)

    def seen(numbers: list[int]) -> None:
        with Path(log).open("a") as file:
            file.write("".join(f"{number}\n" for number in numbers))
        time.sleep(pause)

    if operation == "add":
        more = World(items=80)
        if len(store) == 60:
            store.add(more.table(60, 80))
    elif operation == "update":
        store.update(
            world.model("new", seen),
            budget="50%",
            rule="cost-ratio:2",
            evaluation=Evaluation(batch=6),
        )
    elif operation == "votes":
        store.register(Model("new", labelled=world.labelled_table("new")))
        store.update("new", votes=world.votes_table("new").slice(10, 45))
    elif operation == "truth":
        ids = [f"item-{number}" for number in range(0, 60, 4)]
        known = {"id": ids, "truth": world.truth[::4]}
        store.register(Model("old 2", labelled=known, predict=world.model("old").predict))
    elif operation == "add first":
        store.add(world.table())
    elif operation == "remove":
        store.remove(["item-3", "item-30"])
    elif operation == "revert":
        store.revert(1)
    elif operation == "settle":
        store.settle()
    elif operation == "redecide":
        store.redecide("max-belief")
    elif operation == "tune":
        store.tune(goal="at-most:50%", apply=True)
    elif operation == "review":
        answers = [f"item-{number}" for number in range(0, 60, 4)]
        store.review({"id": answers, "answer": world.truth[::4]})
    elif operation == "import":
        table = world.table().append_column("old", [world.votes["old"]])
        table = table.append_column("new", [world.votes["new"]])
        for name in NAMES.tolist():  # what the new model is not sure of
            weights = np.where(world.votes["new"] == name, 0.7, 0.1)
            table = table.append_column(f"p_{name}", [weights])
        accuracies = {name: Model(name, accuracy=world.accuracies[name]) for name in ("old", "new")}
        store.import_predictions(table, accuracies, rule="max-belief", soft={"new": "p_{class}"})
    else:
        store.compact()


def _child(failpoint: str, *given: Any) -> None:
    if failpoint:
        os.environ[failpoints.VARIABLE] = failpoint
    perform(*given)


def run_until(failpoint: str, path: Path, operation: str, log: Path) -> int:
    """Run an operation in a process that stops at a failpoint; returns its exit code."""
    process = _processes.Process(target=_child, args=(failpoint, str(path), operation, str(log)))
    process.start()
    process.join(60)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


def _together(barrier: Any, *given: Any) -> None:
    barrier.wait(60)
    perform(*given)


def at_once(operations: Sequence[tuple[str, Path]]) -> list[int]:
    """Begin operations at the same moment, each in a process of its own; their exit codes."""
    barrier = _processes.Barrier(len(operations))
    processes = [
        _processes.Process(target=_together, args=(barrier, str(path), operation, f"{path}.log"))
        for operation, path in operations
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    return [-1 if process.exitcode is None else process.exitcode for process in processes]


def run_and_kill(path: Path, log: Path, seed: int) -> bool:
    """Run an update and kill -9 it at a random moment; True if it was killed."""
    process = _processes.Process(target=_child, args=("", str(path), "update", str(log), 0.004))
    process.start()
    deadline = time.monotonic() + 20
    # Past its start-up: the first batch is being evaluated.
    while not log.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(random.Random(seed).uniform(0, 0.12))
    # It may end by itself between the look and the shot.
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.join(60)
    return process.exitcode == -signal.SIGKILL


def durable_votes(path: Path) -> set[int]:
    """The rows whose votes a killed run has kept."""
    context = Context(open_files(path))
    return {row for run in unfinished(context) for row in Run(context, run).votes()[0].tolist()}


def asked(log: Path) -> list[int]:
    """Whom the model was asked about since the log was last removed."""
    return [int(line) for line in log.read_text().split()] if log.exists() else []
