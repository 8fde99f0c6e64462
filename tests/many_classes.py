"""The whole life of a store with very many classes, and the memory each command takes.

``python -m tests.many_classes FOLDER CLASSES LIFE [--apart]`` prints to stderr, for each command,
the peak of the process in MiB and its seconds of CPU; ``--apart``: each in its own process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity import Store
from posterity.cli import run as run_cli
from posterity.errors import InvalidData
from posterity.replay.recording import Recording
from posterity.web.server.app import Site
from posterity.web.server.cache import Held
from posterity.web.server.guard import Guard
from tests.memory import peak_mib

ITEMS = LABELLED = 3000
LIVES: dict[str, list[str]] = {
    "dependent": [],
    "estimated": ["--prior", "estimated", "--adapt", "difficulty,confusions"],
    **{
        confusion: ["--beliefs", "plain", "--confusion", confusion]
        for confusion in ("full", "diagonal", "shrunk", "single")
    },
    "labelled": ["--beliefs", "plain", "--prior", "labelled"],
}
"""What a store may be made with, by name."""
SHORT = ("diagonal", "shrunk", "single", "labelled")
"""Lives that differ from ``full`` only in how beliefs are formed: they end with the first check."""


def write_files(folder: Path, classes: int) -> None:
    """Items with the votes of three models, a labelled set, more classes, and a recording."""
    rng = np.random.default_rng(0)
    names = np.array([f"class {code}" for code in range(classes)])
    (folder / "classes.txt").write_text("\n".join(names) + "\n")

    def guess(truth: np.ndarray, accuracy: float) -> np.ndarray:
        """Errors are mostly the class beside."""
        right = rng.random(len(truth)) < accuracy
        off = np.where(rng.random(len(truth)) < 0.7, 1, rng.integers(1, classes, len(truth)))
        wrong: np.ndarray = np.where(right, truth, (truth + off) % classes)
        return wrong

    accuracies = {"old": 0.6, "mid": 0.75, "new": 0.85, "soft": 0.9}
    for file, count in (("items", ITEMS), ("labelled", LABELLED)):
        truth = rng.integers(0, classes, count)
        votes = {name: guess(truth, accuracy) for name, accuracy in accuracies.items()}
        second = names[(votes["soft"] + 1) % classes]
        table = {
            "id": [f"{file}-{number}" for number in range(count)],
            **{name: names[codes] for name, codes in votes.items()},
            "soft_names": [list(pair) for pair in zip(names[votes["soft"]], second, strict=True)],
            "soft_shares": [[0.8, 0.1]] * count,
        }
        pq.write_table(pa.table(table | {"truth": names[truth]}), folder / f"{file}.parquet")
        if file == "items":
            answered = {"id": table["id"][:20], "answer": names[truth[:20]]}
            pq.write_table(pa.table(answered), folder / "answers.parquet")
            pq.write_table(pa.table({"id": table["id"]}), folder / "ids.parquet")
            known = min(classes, 65535)
            recorded = Recording(
                classes=names[:known].tolist(),
                models=list(votes),
                truth=(truth % known).astype(np.int32),
                votes=np.array([codes % known for codes in votes.values()]),
            )
            recorded.save(folder / "recording.npz")


def life(folder: Path, settings: list[str]) -> Iterator[list[str]]:
    """The commands, in their order."""
    store, labelled = str(folder / "store"), ["--labelled", str(folder / "labelled.parquet")]
    items, soft = str(folder / "items.parquet"), "soft_names:soft_shares"
    yield ["init", store, "--classes", str(folder / "classes.txt"), *settings]
    yield ["import", store, items, "--label", "old", "--model", "old", "--payload", "", *labelled]
    yield ["model", store, "mid", *labelled]
    yield ["model", store, "new", *labelled]
    yield ["model", store, "soft", *labelled, "--labelled-soft", soft, "--cost", "1"]
    yield ["plan", store, "mid", "--budget", "50%"]
    yield ["update", store, "mid", "--budget", "50%", "--votes", items, "--vote", "mid"]
    yield ["update", store, "new", "--budget", "50%", "--votes", items, "--vote", "new"]
    yield ["compare", store, "soft", "--money", "300"]
    yield ["update", store, "soft", "--budget", "10%", "--votes", items, "--soft", soft]
    yield ["explain", store, "items-0"]
    yield ["history", store, "items-0"]
    for command in ("flips", "labels", "log", "status", "classes"):
        yield [command, store]
    if "plain" not in settings:
        yield ["reliability", store]
    yield ["review", store, "--next", str(ITEMS), "--out", str(folder / "todo.csv")]
    yield ["beliefs", store]
    learn = [] if "plain" in settings else ["--learn"]
    yield ["review", store, "--answers", str(folder / "answers.parquet"), *learn]
    yield ["check", store]
    yield ["revert", store, "2"]
    yield ["update", store, "new", "--budget", "5%", "--votes", items, "--vote", "new", "--more"]
    yield ["classes", store, "--append", "one more"]
    yield ["update", store, "mid", "--budget", "10%", "--votes", items, "--vote", "mid", "--more"]
    yield ["check", store]
    yield ["compact", store]
    yield ["report", store, "-o", str(folder / "report.html")]
    yield ["pages", store]
    beliefs = ["--split", "0.5", "--order", "improving"]
    if "plain" in settings:
        beliefs += ["--beliefs", "plain"]
    yield ["replay", str(folder / "recording.npz"), *beliefs]
    if "--prior" in settings:
        return  # of stated accuracies there is no labelled set to take a prior from
    other = f"{store}-stated"
    yield ["init", other, "--classes", str(folder / "classes.txt"), *settings]
    yield ["add", other, str(folder / "ids.parquet")]
    yield ["model", other, "old", "--accuracy", "0.6"]
    yield ["update", other, "old", "--votes", items, "--vote", "old"]
    yield ["model", other, "new", "--accuracy", "0.85"]
    yield ["update", other, "new", "--budget", "50%", "--votes", items, "--vote", "new"]
    yield ["pages", other]


def pages(path: str) -> None:
    """Every page of the server, and its JSON."""
    held = Held(Store(path))
    site = Site(held, Guard(None, writes=False), Path())
    views = site._views
    for name, view in (views.pages | views.parts).items():
        query = {"id": "items-0"} if name == "item" else {}
        try:
            assert json.dumps(view(query))
        except InvalidData:  # stated accuracies and plain beliefs cannot be checked
            assert name == "reliability"
        if name in views.pages:
            assert "<html" in site._rendered(name, view, query)


def run(command: list[str]) -> None:
    """One command, in this process."""
    if command[0] == "pages":
        pages(command[1])
    elif command[0] == "beliefs":
        assert len(Store(command[1]).beliefs()) >= ITEMS
    else:
        code = run_cli(command)
        assert code == 0, (command, code)


def measured(folder: Path, classes: int, name: str, *, apart: bool = False) -> Iterator[str]:
    """Each command with the peak of the process so far, in MiB, and its seconds of CPU."""
    write_files(folder, classes)
    for command in life(folder, LIVES[name]):
        start = time.process_time()
        if apart:
            code = f"import tests.many_classes as m; m.run({command!r}); m.tell_peak()"
            done = subprocess.run(
                [sys.executable, "-c", code], text=True, capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr
            peak, seconds = done.stderr.splitlines()[-1].split()
        else:
            run(command)
            peak, seconds = f"{peak_mib():.0f}", f"{time.process_time() - start:.1f}"
        yield f"{peak} MiB {seconds} s {' '.join(command[:2])}"
        if name in SHORT and command[0] == "check":
            return


def tell_peak() -> None:
    """The peak of this process and its seconds of CPU, on stderr."""
    print(f"{peak_mib():.0f} {time.process_time():.1f}", file=sys.stderr)


if __name__ == "__main__":
    for line in measured(
        Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], apart="--apart" in sys.argv
    ):
        print(line, file=sys.stderr, flush=True)
