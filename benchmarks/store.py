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
import pyarrow.compute as pc
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
            named = _numbered("img_", numbers)
            ids.write_table(pa.table({"id": named}))
            for writer, accuracy in ((old, 0.6), (new, 0.8)):
                votes = pa.array(names).take(_guess(rng, truth, accuracy))
                writer.write_table(pa.table({"id": named, "vote": votes}))
    truth = rng.integers(0, CLASSES, LABELLED)
    for model, accuracy in (("old", 0.6), ("new", 0.8)):
        votes = names[_guess(rng, truth, accuracy)]
        known = {"id": [f"labelled-{at}" for at in range(LABELLED)], "truth": names[truth]}
        pq.write_table(pa.table({**known, "vote": votes}), folder / f"labelled_{model}.parquet")
    (folder / "classes.json").write_text(json.dumps(names.tolist()))


def write_predictions(folder: Path, items: int) -> None:
    """Stored predictions in files of a million, with a payload, and the truth of a few by id."""
    rng = np.random.default_rng(1)
    names = np.array(json.loads((folder / "classes.json").read_text()))
    (folder / "predictions").mkdir()
    truths = []
    for start in range(0, items, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, items)).tolist()
        truth = rng.integers(0, CLASSES, len(numbers))
        table = {
            "path": [f"photos/{number % 997:03}/img_{number:09}.jpg" for number in numbers],
            "size": rng.integers(1_000, 9_000_000, len(numbers)),
            "pred": names[_guess(rng, truth, 0.6)],
        }
        pq.write_table(pa.table(table), folder / "predictions" / f"part-{start:010}.parquet")
        known = rng.permutation(len(numbers))[: max(1, LABELLED * len(numbers) // items)]
        truths += [(table["path"][at], names[truth[at]]) for at in known]
    paths, classes = zip(*truths, strict=True)
    pq.write_table(pa.table({"path": paths, "truth": classes}), folder / "truth.parquet")


def _numbered(start: str, numbers: Any) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise(start, digits, "")


def _guess(rng: np.random.Generator, truth: Any, accuracy: float) -> Any:
    right = rng.random(len(truth)) < accuracy
    return np.where(right, truth, rng.integers(0, CLASSES, len(truth)))


class Stages:
    """Time and peak memory of one thing after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """Do it, and remember what it took."""
        started = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - started
        self.peaks[name] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return result


def measure_import(folder: Path) -> dict[str, Any]:
    """Stored predictions become a store; beside it, the same files read and written once."""
    stage = Stages()
    classes = json.loads((folder / "classes.json").read_text())
    stage("plain copy of the files", lambda: _copy(folder / "predictions", folder / "copy"))
    store = Store.create(folder / "imported", classes=classes)
    old = Model("old", labelled=folder / "truth.parquet", key="path")
    done = stage(
        "import",
        lambda: store.import_predictions(folder / "predictions", {"pred": old}, id="path"),
    )
    stage("labels since the start", lambda: store.labels(since=-1))
    return {
        "items": done.items,
        "stages": stage.seconds,
        "peaks": stage.peaks,
        "input_bytes": _bytes(folder / "predictions") / done.items,
        **{
            f"{table}_bytes": _bytes(folder / "imported" / table) / done.items
            for table in ("items", "ledger", "labels")
        },
    }


def _copy(source: Path, target: Path) -> None:
    """Read and write the same rows with the same compression: what nobody can do without."""
    target.mkdir()
    for path in sorted(source.iterdir()):
        file = pq.ParquetFile(path)
        with pq.ParquetWriter(target / path.name, file.schema_arrow, compression="zstd") as out:
            for batch in file.iter_batches(2**17):
                out.write_batch(batch)


def measure_updates(folder: Path) -> dict[str, Any]:
    """Every stage, timed; run in a process of its own, so that the peak is its own."""
    stage = Stages()
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
        "stages": stage.seconds,
        "peaks": stage.peaks,
        "item_bytes": _bytes(folder / "store" / "items") / items,
        "vote_bytes": on_disk / items,
        "label_bytes": _bytes(folder / "store" / "labels") / 2 / items,
    }


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def report_import(told: dict[str, Any]) -> str:
    """The import as Markdown."""
    seconds = told["stages"]
    ratio = seconds["import"] / seconds["plain copy of the files"]
    return f"""## Import of {told["items"]:,} stored predictions

{CLASSES} classes, files of a million rows with a path, a size and a prediction; the truth of
{LABELLED:,} items by id tells how the model errs. The import reads everything twice, checks it, and
writes items, votes with beliefs and entropies, and labels. It takes **{ratio:.0f} times** as long
as reading and writing the same files once, and peaks at
**{max(told["peaks"].values()):.2f} GiB**.
On disk: {told["input_bytes"]:.1f} bytes a row in the files; {told["items_bytes"]:.1f} an item with
its payload, {told["ledger_bytes"]:.1f} a vote, {told["labels_bytes"]:.1f} a published label.

{_table(told)}
"""


def _table(told: dict[str, Any]) -> str:
    lines = ["| stage | seconds | µs an item | peak memory so far |", "|---|---:|---:|---:|"]
    for name, seconds in told["stages"].items():
        each = seconds / told["items"] * 1e6
        lines.append(f"| {name} | {seconds:.1f} | {each:.2g} | {told['peaks'][name]:.2f} GiB |")
    return "\n".join(lines)


def report_updates(told: dict[str, Any]) -> str:
    """The measurements as Markdown."""
    return f"""## A store of {told["items"]:,} items

{CLASSES} classes, {LABELLED:,} labelled items, votes from Parquet files; the first model labels
everything, the second votes on 10 % ({told["evaluations"]:,} items, {told["flips"]:,} flips).
`update` includes reading the votes, folding, deciding, committing and publishing all labels. The
whole thing peaks at **{max(told["peaks"].values()):.2f} GiB**. On disk: {told["item_bytes"]:.1f}
bytes an item, {told["vote_bytes"]:.1f} bytes a vote in the ledger (with label, belief and entropy),
{told["label_bytes"]:.1f} bytes a published label.

{_table(told)}
"""


MEASURES: dict[str, tuple[Callable[[Path], dict[str, Any]], Callable[[dict[str, Any]], str]]] = {
    "import": (measure_import, report_import),
    "updates": (measure_updates, report_updates),
}


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("docs/store-performance.md"))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(MEASURES[options.measure][0](options.folder)))
        return
    folder = Path(tempfile.mkdtemp(prefix="posterity-bench-"))
    try:
        write_inputs(folder, options.items)
        parts = []
        for name, (_, report) in MEASURES.items():
            command = [sys.executable, "-m", "benchmarks.store", "--measure", name]
            command += ["--folder", str(folder)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            parts.append(report(json.loads(done.stdout)))
        page = "\n".join(parts)
    finally:
        shutil.rmtree(folder)
    head = (
        "# The store at scale\n\nGenerated by `make bench-store` (`python -m benchmarks.store`); "
    )
    options.out.write_text(f"{head}do not edit.\n\n{page}", encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
