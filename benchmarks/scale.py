"""A step on a Ray cluster beside one on this machine alone: its time, and the driver's memory."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import PAGES
from benchmarks.billion import build
from benchmarks.scale_model import Constants, table
from benchmarks.speed.timing import machine
from benchmarks.store import CLASSES, bytes_of
from posterity import Evaluation, Model, Store
from posterity.engine.evaluation.evaluate import BATCH as DEFAULT
from posterity.engine.executors import Executor, Pool, Replicas, open_executor

BATCH = 2**16
BUDGET = "10%"
REPETITIONS = 3
TASKS = 500
"""That do nothing, to see what one costs."""
LOCAL, RAY = "local", "ray://local"


def predict(batch: pa.Table) -> Any:
    """Votes that cost nothing, so that what is measured is everything else."""
    mixed = batch.column("id").to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(40)).astype(np.int64) % CLASSES


def _nothing(part: int) -> int:
    return part


@dataclass
class Timed:
    """An executor that writes down what it was asked for and how long that took."""

    inner: Executor
    laps: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def _lap(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.laps.append({"name": name, "seconds": time.perf_counter() - started, "peak": _peak()})

    def map(self, task: Callable[..., Any], *parts: Iterable[Any]) -> Iterator[Any]:
        """As the inner one, until the last result is taken."""
        with self._lap(_name(task)):
            yield from self.inner.map(task, *parts)

    def hold(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """As the inner one; on a cluster what is held may not be made yet."""
        with self._lap(_name(task)):
            return self.inner.hold(task, parts)

    @contextmanager
    def pool(self, make: Callable[[], Any], replicas: Replicas) -> Iterator[Pool]:
        """As the inner one, from the first replica to the last vote."""
        with self._lap("evaluate"), self.inner.pool(make, replicas) as pool:
            yield pool


def _name(task: Any) -> str:
    while isinstance(task, partial):
        seen = [one for one in task.args if callable(one)] if task.func.__name__ == "see" else []
        task = seen[0] if seen else task.func
    return str(getattr(task, "__name__", type(task).__name__)).strip("_").lower()


def measure(folder: Path, where: str, batch: int) -> dict[str, Any]:
    """One plan and its update, in a process of its own."""
    started = time.perf_counter()
    timed = Timed(open_executor(where))
    ready = time.perf_counter() - started
    started = time.perf_counter()
    for _ in timed.inner.map(_nothing, range(TASKS)):
        pass
    task = (time.perf_counter() - started) / TASKS
    model = Model("new", predict=predict)
    store = Store(folder / "store", executor=timed)
    started = time.perf_counter()
    plan = store.plan(model, budget=BUDGET).id
    planned = time.perf_counter()
    report = store.update(model, plan=plan, evaluation=Evaluation(batch=batch))
    updated = time.perf_counter()
    return {
        "items": len(store),
        "evaluations": report.evaluations,
        "flips": report.flips,
        "start": ready,
        "task": task,
        "plan": planned - started,
        "update": updated - planned,
        "laps": timed.laps,
        "peak": _peak(),
    }


def _peak() -> float:
    """The most memory this process ever held, in MiB."""
    # Not from getrusage, which after a fork goes on from what the parent held.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**10


def run(folder: Path, where: str, batch: int) -> dict[str, Any]:
    """Measure on a copy, so that the store stays as it was."""
    copy = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    try:
        # Files of a store are never written again, so that links will do.
        shutil.copytree(folder / "store", copy / "store", copy_function=os.link)
        command = [sys.executable, "-m", "benchmarks.scale", "--folder", str(copy)]
        command += ["--on", where, "--batch", str(batch)]
        env = {**os.environ, "POSTERITY_CACHE": str(copy / "cache")}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told
    finally:
        shutil.rmtree(copy)


def _tables(folder: Path) -> dict[str, int]:
    """The bytes of each table, with labels published."""
    copy = folder / "published"
    shutil.copytree(folder / "store", copy, copy_function=os.link)
    Store(copy).remove([1])  # which publishes what is left
    return {name: bytes_of(copy / name) for name in ("ledger", "items", "labels")}


def spread(values: Sequence[float]) -> str:
    """The median, and the lowest and highest."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def stages(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of each stage the median of its seconds, and what is left over as the driver's own."""
    sums: list[dict[str, float]] = []
    for told in runs:
        own: dict[str, float] = {}
        for lap in told["laps"]:
            own[lap["name"]] = own.get(lap["name"], 0.0) + lap["seconds"]
        own["the driver itself"] = told["plan"] + told["update"] - sum(own.values())
        sums.append(own)
    names = list(dict.fromkeys(name for own in sums for name in own))
    return {name: statistics.median(own.get(name, 0.0) for own in sums) for name in names}


def report(told: dict[str, Any]) -> str:
    """The measurements as Markdown."""
    local, ray = told["runs"][LOCAL], told["runs"][RAY]
    here, there = stages(local), stages(ray)
    rows = "\n".join(
        f"| {name} | {here.get(name, 0.0):.2f} | {there.get(name, 0.0):.2f} |"
        for name in dict.fromkeys([*here, *there])
    )
    whole = [[one["plan"] + one["update"] for one in runs] for runs in (local, ray)]
    ratio = statistics.median(whole[1]) / statistics.median(whole[0])
    memory = "\n".join(
        f"| {one['items']:,} | {one['evaluations']:,} | {one['peak']:.0f} MiB "
        f"| {one['plan']:.0f} s | {one['update']:.0f} s |"
        for one in told["memory"]
    )
    task = statistics.median(one["task"] for one in ray)
    constants = {**local[0], "bytes": told["tables"], "task": task}
    more = told["memory"][-1]["items"] / told["memory"][0]["items"]
    grown = told["memory"][-1]["peak"] / told["memory"][0]["peak"]
    return f"""# A step on Ray, measured

Generated by `make bench-scale` (`python -m benchmarks.scale`); do not edit.
Machine: {machine()}. Ray runs on the same cores.

{CLASSES} classes, default beliefs and selector. One model has voted on everything, a second on a
tenth; a third is planned on a tenth and votes, in batches of {BATCH:,}, at no cost of its own.
Nothing is cached. On disk {told["bytes"]:.1f} bytes an item.

## Time of a step at {local[0]["items"]:,} items

Seconds, median of {len(local)} repetitions (lowest to highest); Ray was started before
({spread([one["start"] for one in ray])} s).

| | local | Ray |
|---|---:|---:|
| plan | {spread([one["plan"] for one in local])} | {spread([one["plan"] for one in ray])} |
| update | {spread([one["update"] for one in local])} | {spread([one["update"] for one in ray])} |
| both | {spread(whole[0])} | {spread(whole[1])} |

Ray takes {ratio:.2f} times as long on these cores. Where it goes, median seconds of each stage (a
stage that waits for what is held includes making it):

| stage | local | Ray |
|---|---:|---:|
{rows}

## Larger than this machine

{table(Constants.of(constants, here, os.cpu_count() or 1))}
## Memory of the driver

The peak of the process that plans and commits; shards are in the memory of workers. Here batches
have the default size, {DEFAULT:,}, and so there are more files of votes.

| items | evaluations | peak of the driver | plan | update |
|---:|---:|---:|---:|---:|
{memory}

With {more:.0f} times the items: **{grown:.2f} times** the memory.
"""


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000, help="of the time of a step")
    parser.add_argument("--memory", type=int, nargs=2, default=(1_000_000, 100_000_000))
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--on", default=LOCAL, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=BATCH, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=PAGES / "scale.md")
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(measure(options.folder, options.on, options.batch)))
        return
    told: dict[str, Any] = {"runs": {LOCAL: [], RAY: []}, "memory": []}
    for size in (options.items, *options.memory):
        folder = Path(tempfile.mkdtemp(prefix="posterity-scale-"))
        try:
            build(folder, size, "dependent")
            if size == options.items:
                told["bytes"] = bytes_of(folder / "store") / size
                told["tables"] = _tables(folder)
                for _ in range(options.repetitions):
                    for where in (LOCAL, RAY):
                        told["runs"][where].append(run(folder, where, BATCH))
            else:
                told["memory"].append(run(folder, RAY, DEFAULT))
        finally:
            shutil.rmtree(folder)
        print(f"{size:,} items measured", flush=True)
    page = report(told)
    options.out.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
