"""The way of an operation through the modules: which it enters, and how often it moves on.

    python -m tests.walk

One ``update --votes``, one ``replay`` and one request to the planner page are traced on made-up
data, each in a new process. A module is *loaded* when its body runs, *called* when one of its
functions does; a *move* is a call, or the run of a body, in another module than the last.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import posterity as pt

ITEMS, LABELLED, CLASSES = 2000, 300, 6
ACCURACIES = {"old": 0.65, "new": 0.9}

TRACER = """
import asyncio, atexit, collections, sys, threading

loaded, called, moves, last, bodies = set(), set(), collections.Counter(), [None], [0]


def follow(frame, event, argument):
    module = frame.f_globals.get("__name__", "")
    if not module.startswith("posterity"):
        return
    if frame.f_code.co_name == "<module>":
        bodies[0] += {"call": 1, "return": -1}.get(event, 0)
        loaded.add(module)
    elif not bodies[0]:  # what a body calls while it is loaded is not the operation's
        called.add(module)
    if event == "call" and module != last[0]:
        moves[last[0], module] += 1
        last[0] = module


def stop():
    sys.setprofile(None)
    print(f"{len(loaded)} loaded, {len(called)} called, {sum(moves.values()):,} moves")


def start():
    atexit.register(stop)
    threading.setprofile(follow)
    sys.setprofile(follow)
"""

COMMAND = """
from posterity.cli import main
main()
"""

REQUEST = """
import posterity
from tests.asgi import ask, site
app = site(sys.argv[1])
start()
assert ask(app, "/planner.json?model=new&budget=30%25").status == 200
"""


def make(folder: Path) -> None:
    """A store with one model's labels, another's votes as a file, and a recording of both."""
    draws = np.random.default_rng(1)
    truth = draws.integers(0, CLASSES, ITEMS + LABELLED, dtype=np.int32)
    votes = {
        name: np.where(
            draws.random(len(truth)) < accuracy,
            truth,
            (truth + draws.integers(1, CLASSES, len(truth), dtype=np.int32)) % CLASSES,
        )
        for name, accuracy in ACCURACIES.items()
    }
    stored, labelled = slice(0, ITEMS), slice(ITEMS, None)
    ids = [f"item-{number}" for number in range(len(truth))]
    store = pt.Store.create(str(folder / "store"), classes=list(range(CLASSES)))
    store.add(pa.table({"id": ids[stored]}))
    for name, cast in votes.items():
        known = {"id": ids[labelled], "truth": truth[labelled], "vote": cast[labelled]}
        store.register(pt.Model(name, labelled=pa.table(known)))
        table = pa.table({"id": ids[stored], "vote": cast[stored]})
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")
    store.update("old", votes=pt.VoteFile(folder / "old.csv"))
    classes = tuple(str(code) for code in range(CLASSES))
    both = pt.Recording(classes, tuple(votes), truth, np.stack(list(votes.values())))
    both.save(folder / "both.npz")


def walk(code: str, *arguments: str) -> str:
    """What the tracer says of it."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()[-1]


def main() -> None:
    """Print a line for each operation."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make(folder)
        store, traced = str(folder / "store"), f"{TRACER}\nstart()\n{COMMAND}"
        request = walk(TRACER + REQUEST, store)
        votes = ["--votes", str(folder / "new.csv"), "--budget", "30%", "--rule", "cost-ratio:2"]
        print("update --votes:", walk(traced, "update", store, "new", *votes))
        print("replay:", walk(traced, "replay", str(folder / "both.npz"), "--budgets", "30%"))
        print("planner request:", request)


if __name__ == "__main__":
    main()
