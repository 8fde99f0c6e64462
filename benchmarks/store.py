"""A whole update of a large store: time of each stage, peak memory, bytes on disk."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import PAGES
from benchmarks.speed.timing import machine
from posterity import Model, Store
from posterity.engine.inspect.queries import changes_by_shard, changes_schema
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import labels_by_shard, own_schema
from posterity.storage.files import open_files
from posterity.storage.output import write_stream

CLASSES = 1000
LABELLED = 25_000
CHUNK = 1_000_000


def write_inputs(folder: Path, items: int) -> None:
    """Items and two models' votes as Parquet files, as somebody else would leave them."""
    rng = np.random.default_rng(0)
    names = class_names()
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
                votes = pa.array(names).take(guess(rng, truth, accuracy))
                writer.write_table(pa.table({"id": named, "vote": votes}))
    write_labelled(folder)


def write_labelled(folder: Path) -> None:
    """The classes, and three models' votes on the same labelled items."""
    rng = np.random.default_rng(2)
    names = class_names()
    truth = rng.integers(0, CLASSES, LABELLED)
    for model, accuracy in (("old", 0.6), ("mid", 0.7), ("new", 0.8)):
        votes = names[guess(rng, truth, accuracy)]
        known = {"id": [f"labelled-{at}" for at in range(LABELLED)], "truth": names[truth]}
        pq.write_table(pa.table({**known, "vote": votes}), folder / f"labelled_{model}.parquet")
    (folder / "classes.json").write_text(json.dumps(names.tolist()))


def class_names() -> Any:
    """As many as ImageNet has."""
    return np.array([f"class-{k:04}" for k in range(CLASSES)])


def register_models(store: Store, folder: Path, names: Sequence[str]) -> None:
    """With their labelled votes."""
    for name in names:
        store.register(Model(name, labelled=folder / f"labelled_{name}.parquet"))


def write_predictions(folder: Path, items: int) -> None:
    """Stored predictions in files of a million, with a payload, and the truth of a few by id."""
    rng = np.random.default_rng(1)
    names = class_names()
    (folder / "predictions").mkdir()
    truths = []
    for start in range(0, items, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, items)).tolist()
        truth = rng.integers(0, CLASSES, len(numbers))
        table = {
            "path": [f"photos/{number % 997:03}/img_{number:09}.jpg" for number in numbers],
            "size": rng.integers(1_000, 9_000_000, len(numbers)),
            "pred": names[guess(rng, truth, 0.6)],
        }
        pq.write_table(pa.table(table), folder / "predictions" / f"part-{start:010}.parquet")
        known = rng.permutation(len(numbers))[: max(1, LABELLED * len(numbers) // items)]
        truths += [(table["path"][at], names[truth[at]]) for at in known]
    paths, classes = zip(*truths, strict=True)
    pq.write_table(pa.table({"path": paths, "truth": classes}), folder / "truth.parquet")


def _numbered(start: str, numbers: Any) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise(start, digits, "")


def guess(rng: np.random.Generator, truth: Any, accuracy: float) -> Any:
    """Votes that are right so often, and else anything."""
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
    store = Store.create(folder / "imported", classes=classes, beliefs="plain")
    old = Model("old", labelled=folder / "truth.parquet", key="path")
    done = stage(
        "import",
        lambda: store.import_predictions(folder / "predictions", {"pred": old}, id="path"),
    )
    context = Context(open_files(store.path))
    changed = folder / "changes.parquet"
    stage(
        "export labels since the start",
        lambda: write_stream(
            changed, changes_schema(context), changes_by_shard(context, -1).each()
        ),
    )
    return {
        "items": done.items,
        "stages": stage.seconds,
        "peaks": stage.peaks,
        "input_bytes": bytes_of(folder / "predictions") / done.items,
        **{
            f"{table}_bytes": bytes_of(folder / "imported" / table) / done.items
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
    store = Store.create(folder / "store", classes=classes, beliefs="plain")
    items = stage("add items", lambda: store.add(folder / "items.parquet"))
    stage("register", lambda: register_models(store, folder, ("old", "new")))
    stage("first update", lambda: store.update("old", votes=folder / "old.parquet"))
    plan = stage("plan 10 %", lambda: store.plan("new", budget="10%"))
    votes = folder / "new.parquet"
    report = stage("update 10 %", lambda: store.update("new", plan=plan.id, votes=votes))
    exported = folder / "labels.parquet"
    context = Context(open_files(store.path))
    stage(
        "export labels",
        lambda: write_stream(exported, own_schema(context), labels_by_shard(context).each()),
    )
    return {
        "items": items,
        "evaluations": report.evaluations,
        "flips": report.flips,
        "stages": stage.seconds,
        "peaks": stage.peaks,
        "item_bytes": bytes_of(folder / "store" / "items") / items,
        "vote_bytes": bytes_of(folder / "store" / "ledger") / (items + report.evaluations),
        "label_bytes": exported.stat().st_size / items,
    }


@dataclass(frozen=True)
class Kind:
    """How a store believes, chooses and decides."""

    options: dict[str, Any] = field(default_factory=dict)
    rule: str | None = None
    budget: str = "10%"
    learn: bool | None = None
    """Whether answers, given before the plan, are learnt from; None: there are none."""


KINDS = {
    "plain beliefs": Kind({"beliefs": "plain"}),
    "defaults: dependent beliefs, prior `estimated`, selector `value`, rule `balanced`": Kind(),
    "the same with `--prior uniform` and `cost-ratio:10`": Kind(
        {"prior": "uniform"}, rule="cost-ratio:10"
    ),
    "the same with a promise, `at-most:1%`": Kind(rule="at-most:1%"),
    "the same with `--adapt difficulty,confusions`": Kind({"adapt": ["difficulty", "confusions"]}),
    "the same with a budget over time, `total:20%,horizon=2`": Kind(budget="total:20%,horizon=2"),
    "the defaults after a review": Kind(learn=False),
    "the same, answers learnt from": Kind(learn=True),
}
REVIEWED = "the defaults after a review"
ANSWERS = 500


def measure_kinds(folder: Path) -> dict[str, Any]:
    """A step of a store as each kind of beliefs and rule has it."""
    classes, told = json.loads((folder / "classes.json").read_text()), {}
    votes = folder / "new.parquet"
    for at, (name, kind) in enumerate(KINDS.items()):
        stage = Stages()
        store = Store.create(folder / f"store-{at}", classes=classes, **kind.options)
        items = store.add(folder / "items.parquet")
        register_models(store, folder, ("old", "new"))
        stage("first update", partial(store.update, "old", votes=folder / "old.parquet"))
        if kind.learn is not None:
            queue = stage("queue", partial(store.review_queue, ANSWERS))
            answers = queue.items.select(["id", "label"])
            review = partial(store.review, answers, answer="label", learn=kind.learn)
            stage("review", review)
        plan = stage("plan 10 %", partial(store.plan, "new", budget=kind.budget, rule=kind.rule))
        stage("update 10 %", partial(store.update, "new", plan=plan.id, votes=votes))
        told[name] = {"items": items, "stages": stage.seconds, "peaks": stage.peaks}
    return told


def report_kinds(told: dict[str, Any]) -> str:
    """The kinds side by side as Markdown."""
    usual = told[list(KINDS)[1]]
    stages = list(usual["stages"])
    lines = ["| | " + " | ".join(stages) + " | plan and update, beside the defaults |"]
    lines.append("|---|" + "---:|" * (len(stages) + 1))

    def step(kind: dict[str, Any]) -> float:
        return float(kind["stages"]["plan 10 %"] + kind["stages"]["update 10 %"])

    for kind, measured in told.items():
        cells = [f"{measured['stages'][name]:.1f} s" for name in stages]
        lines.append(f"| {kind} | {' | '.join(cells)} | {step(measured) / step(usual):.2f} |")
    peak = max(max(measured["peaks"].values()) for measured in told.values())
    asked = told[REVIEWED]["stages"]
    return f"""## Kinds of beliefs, {usual["items"]:,} items

The same two models under other settings, one store after the other in one process, one run; what is
above has plain beliefs. Whatever the number of items, dependent beliefs walk {LABELLED:,} labelled
items through all steps, for a plan and again for its step where these are two commands; here they
are one process. A queue of {ANSWERS} items to review took {asked["queue"]:.1f} s, taking the
answers {asked["review"]:.1f} s. Peak memory of all: {peak:.2f} GiB.

{chr(10).join(lines)}
"""


def bytes_of(folder: Path) -> int:
    """Of all Parquet files below a folder."""
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


def report_updates(sizes: Sequence[dict[str, Any]]) -> str:
    """The measurements as Markdown."""
    largest = sizes[-1]
    lines = ["| stage | " + " | ".join(f"{told['items']:,} items" for told in sizes) + " |"]
    lines.append("|---|" + "---:|" * len(sizes))
    for name in largest["stages"]:
        cells = [
            f"{told['stages'][name]:.1f} s, {told['stages'][name] / told['items'] * 1e6:.2g} µs"
            for told in sizes
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    peaks = [f"{max(told['peaks'].values()):.2f} GiB" for told in sizes]
    lines.append("| peak memory of it all | " + " | ".join(peaks) + " |")
    table = "\n".join(lines)
    return f"""## An update of {largest["items"]:,} items

{CLASSES} classes, {LABELLED:,} labelled items, plain beliefs, votes from Parquet files with text
ids; the first model labels everything, the second votes on 10 % ({largest["evaluations"]:,} items,
{largest["flips"]:,} flips). `update` includes reading the file of votes on all items, folding,
deciding, committing and publishing labels. Seconds, and microseconds for each item of the store;
each size in a process of its own, one run.

{table}

On disk, at the largest size: {largest["item_bytes"]:.1f} bytes an item,
**{largest["vote_bytes"]:.1f} bytes a vote** in the ledger (row, vote, label, belief and entropy),
{largest["label_bytes"]:.1f} an exported label. A dense belief of an item is {4 * CLASSES:,} bytes.
"""


MEASURES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "import": measure_import,
    "updates": measure_updates,
    "kinds": measure_kinds,
}


def run(measure: str, folder: Path) -> dict[str, Any]:
    """In a process of its own, so that the peak is its own, with a cache of its own."""
    command = [sys.executable, "-m", "benchmarks.store", "--measure", measure]
    cached = {**os.environ, "POSTERITY_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [*command, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=cached,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--imports", type=int, default=10**7)
    parser.add_argument("--kinds", type=int, default=10**7)
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=PAGES / "store-performance.md")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options.folder)))
        return
    sizes = []
    for items in options.items:
        with tempfile.TemporaryDirectory(prefix="posterity-bench-") as folder:
            write_inputs(Path(folder), items)
            sizes.append(run("updates", Path(folder)))
    with tempfile.TemporaryDirectory(prefix="posterity-bench-") as folder:
        write_inputs(Path(folder), options.kinds)
        kinds = run("kinds", Path(folder))
    with tempfile.TemporaryDirectory(prefix="posterity-bench-") as folder:
        write_labelled(Path(folder))
        write_predictions(Path(folder), options.imports)
        imported = run("import", Path(folder))
    page = f"""# The store at scale

Generated by `make bench-store` (`python -m benchmarks.store`); do not edit.
Machine: {machine()}. A billion items: [docs/measurements/billion.md](billion.md).

{report_updates(sizes)}
{report_kinds(kinds)}
{report_import(imported)}"""
    options.out.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
