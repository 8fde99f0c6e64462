"""Beside: our beliefs and those of other packages, from the same votes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.speed.history import History, Setting
from benchmarks.speed.timing import Timing, on_threads, table, timed
from posterity import Beliefs
from posterity.method.data.arrays import Floats
from posterity.method.data.votes import VoteTable

SIZES = {
    Setting(100, 16, 0.1, "full"): 10_000,
    Setting(1000, 16, 0.1, "full"): 10_000,
}
PATIENCE = 180
"""Seconds after which a peer is given up."""


@dataclass(frozen=True)
class Meeting:
    """One size, measured here and there."""

    setting: Setting
    items: int
    step: Timing
    every_belief: Timing
    """All classes of all items written out, as crowd-kit does it."""
    told: dict[str, dict[str, Any]]
    difference: float | None
    """Between crowd-kit's beliefs and ours, at most."""


def measure(python: Path) -> Iterator[Meeting]:
    """Each size with our beliefs, and with the peers where their environment is there."""
    for setting, items in SIZES.items():
        history = History.draw(setting, items)

        def written_out(history: History = history) -> Floats:
            return Beliefs.from_votes(
                history.product(), VoteTable.only(history.hard)
            ).probabilities()

        with on_threads(1):
            step, every = timed(history.step, items), timed(written_out, items)
        with tempfile.TemporaryDirectory(prefix="posterity-bench-") as name:
            told, posterior = _ask(python, history, Path(name))
        difference = None if posterior is None else float(np.abs(posterior - written_out()).max())
        yield Meeting(setting, items, step, every, told, difference)


def _ask(
    python: Path, history: History, folder: Path
) -> tuple[dict[str, dict[str, Any]], Floats | None]:
    if not python.exists():
        reason = "their environment is not there"
        return {name: {"error": reason} for name in peers.MEASURES}, None
    np.savez(
        folder / "problem.npz",
        hard=history.hard,
        prior=history.prior,
        errors=np.array([confusion.probabilities for confusion in history.confusions]),
    )
    command = [str(python), peers.__file__, str(folder)]
    try:
        subprocess.run(command, check=True, timeout=PATIENCE)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return {name: {"error": type(error).__name__} for name in peers.MEASURES}, None
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    path = folder / "posterior.npy"
    return told, np.load(path) if path.exists() else None


def report(meetings: list[Meeting]) -> str:
    """The measurements as Markdown."""
    heads = ["votes", "what", "an item", "times a step of ours", "times all beliefs of ours"]
    rows: list[list[object]] = []
    for met in meetings:
        size = f"{met.items:,} items, {met.setting}"
        ours = "Posterity, a step"
        rows += [
            [size, ours, met.step, 1, ""],
            [size, "Posterity, all beliefs", met.every_belief, "", 1],
        ]
        for name, one in met.told.items():
            if "error" in one:
                rows.append([size, name, f"not measured: {one['error']}", "", ""])
                continue
            timing = Timing([seconds / met.items for seconds in one["seconds"]])
            same = timing / met.every_belief if name.startswith("crowd-kit") else ""
            what = f"{name} ({one['version']})"
            rows.append([size, what, timing, timing / met.step, same])
    apart = [met.difference for met in meetings if met.difference is not None]
    said = (
        f"Crowd-kit's beliefs and ours differ by at most {max(apart):.1g}."
        if apart
        else "Whether crowd-kit's beliefs agree with ours was not measured."
    )
    return f"{table(heads, rows, left=2)}\n\n{said}"
