"""A whole update of a large store: time of each stage, peak memory, bytes on disk."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity import Model, Store

CLASSES = 1000
LABELLED = 25_000
CHUNK = 1_000_000


def write_inputs(folder: Path, items: int) -> None:
    """Items and two models' votes as Parquet files, as somebody else would leave them."""
    rng = np.random.default_rng(0)
    names = np.array([f"class-{k:04}" for k in range(CLASSES)])
    id_schema = pa.schema([("id", pa.string())])
    vote_schema = pa.schema([("id", pa.string()), ("vote", pa.string())])
    with (
        pq.ParquetWriter(folder / "items.parquet", id_schema) as ids,
        pq.ParquetWriter(folder / "old.parquet", vote_schema) as old,
        pq.ParquetWriter(folder / "new.parquet", vote_schema) as new,
    ):
        for start in range(0, items, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, items))
            truth = rng.integers(0, CLASSES, len(numbers))
            named = pa.array([f"img_{number:09}" for number in numbers.tolist()])
            ids.write_table(pa.table({"id": named}))
            for writer, accuracy in ((old, 0.6), (new, 0.8)):
                votes = names[_guess(rng, truth, accuracy)]
                writer.write_table(pa.table({"id": named, "vote": votes}))
    truth = rng.integers(0, CLASSES, LABELLED)
    for model, accuracy in (("old", 0.6), ("new", 0.8)):
        votes = names[_guess(rng, truth, accuracy)]
        known = {"id": [f"labelled-{at}" for at in range(LABELLED)], "truth": names[truth]}
        pq.write_table(pa.table({**known, "vote": votes}), folder / f"labelled_{model}.parquet")
    (folder / "classes.json").write_text(json.dumps(names.tolist()))


def _guess(rng: np.random.Generator, truth: Any, accuracy: float) -> Any:
    right = rng.random(len(truth)) < accuracy
    return np.where(right, truth, rng.integers(0, CLASSES, len(truth)))


def measure(folder: Path) -> dict[str, Any]:
    """Every stage, timed; run in a process of its own, so that the peak is its own."""
    stages: dict[str, float] = {}
    peaks: dict[str, float] = {}

    def stage(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        stages[name] = time.perf_counter() - started
        peaks[name] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return result

    classes = json.loads((folder / "classes.json").read_text())
    store = Store.create(folder / "store", classes=classes)
    items = stage("add items", lambda: store.add(folder / "items.parquet"))
    for name in ("old", "new"):
        model = Model(name, labelled=folder / f"labelled_{name}.parquet")
        stage(f"register {name}", partial(store.register, model))
    stage("first update", lambda: store.update("old", votes=folder / "old.parquet"))
    on_disk = _bytes(folder / "store" / "ledger")
    plan = stage("plan 10 %", lambda: store.plan("new", budget="10%"))
    votes = folder / "new.parquet"
    report = stage("update 10 %", lambda: store.update("new", plan=plan.id, votes=votes))
    stage("labels", store.labels)
    return {
        "items": items,
        "evaluations": report.evaluations,
        "flips": report.flips,
        "stages": stages,
        "peaks": peaks,
        "item_bytes": _bytes(folder / "store" / "items") / items,
        "vote_bytes": on_disk / items,
        "label_bytes": _bytes(folder / "store" / "labels") / 2 / items,
    }


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def report(told: dict[str, Any]) -> str:
    """The measurements as Markdown."""
    lines = ["| stage | seconds | µs an item | peak memory so far |", "|---|---:|---:|---:|"]
    for name, seconds in told["stages"].items():
        each = seconds / told["items"] * 1e6
        lines.append(f"| {name} | {seconds:.1f} | {each:.2g} | {told['peaks'][name]:.2f} GiB |")
    return f"""## A store of {told["items"]:,} items

{CLASSES} classes, {LABELLED:,} labelled items, votes from Parquet files; the first model labels
everything, the second votes on 10 % ({told["evaluations"]:,} items, {told["flips"]:,} flips).
`update` includes reading the votes, folding, deciding, committing and publishing all labels. The
whole thing peaks at **{max(told["peaks"].values()):.2f} GiB**. On disk: {told["item_bytes"]:.1f}
bytes an item, {told["vote_bytes"]:.1f} bytes a vote in the ledger (with label, belief and entropy),
{told["label_bytes"]:.1f} bytes a published label.

{chr(10).join(lines)}
"""


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("docs/store-performance.md"))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    folder = Path(tempfile.mkdtemp(prefix="posterity-bench-"))
    try:
        write_inputs(folder, options.items)
        command = [sys.executable, "-m", "benchmarks.store", "--measure", str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        page = report(json.loads(done.stdout))
    finally:
        shutil.rmtree(folder)
    head = (
        "# The store at scale\n\nGenerated by `make bench-store` (`python -m benchmarks.store`); "
    )
    options.out.write_text(f"{head}do not edit.\n\n{page}", encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
