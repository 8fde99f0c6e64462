"""Answers of people, simulated from the truth: what they bring by the order they are asked in.

Stores are made of recordings: the models arrive with the defaults, then a person answers. Rows have
``kind`` ``asked``, what the answers corrected, or ``learnt``, how the next model's step went after
answers that were, or were not, learnt from.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity import Model, Store
from posterity.method.data.votes import MISSING
from posterity.replay import Recording, take_apart

Row = dict[str, Any]

ANSWERS, FIRST = 500, 100
MOST = 50_000
"""Items of a recording; half of them are labelled."""
BUDGETS = ("10%", "30%")
ORDERS = ("worth", "entropy", "random")
SPLITS = 5
FEW = 500
"""Labelled items beside which as many answers weigh much."""
SEQUENCES = {
    "imagenet_val": ["alexnet", "resnet50", "resnext101_64x4d"],
    "cifar10_test": [
        *("cudaconvnet", "resnet_basic_110", "wrn_28_10"),
        "shake_shake_26_2x64d_SSI_cutout16",
    ],
    "langid": ["language_detector", "guess_language", "eld", "py3langid"],
}
"""Few models each, weak to strong."""


@dataclass(frozen=True)
class Rows:
    """Measured rows, to be kept."""

    rows: list[Row]

    def write(self, path: Path) -> None:
        """As Parquet."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        columns = {name: [row.get(name) for row in self.rows] for name in names}
        pq.write_table(pa.table(columns), path)


def measure(recordings: Path, name: str) -> Rows:
    """One recording under each budget, on random splits."""
    recording = Recording.load(recordings / f"{name}.npz").pick(SEQUENCES[name])
    rows: list[Row] = []
    for seed in range(1, SPLITS + 1):
        some = recording
        if len(recording) > MOST:
            some = recording.take(np.random.default_rng(seed).permutation(len(recording))[:MOST])
        parts = take_apart(some, 0.5, seed=seed)
        few = np.random.default_rng(seed).permutation(len(parts.labelled))[:FEW]
        for budget in BUDGETS:
            common = {"recording": name, "budget": budget, "seed": seed, "n": len(parts.target)}
            for labelled in (parts.labelled, parts.labelled.take(few)):
                with TemporaryDirectory() as folder:
                    case = _Case(Path(folder, "store"), labelled, parts.target, budget)
                    own = common | {"labelled": len(labelled)}
                    rows += [own | row for row in case.measured()]
    return Rows(rows)


class _Case:
    """A store made of a recording."""

    def __init__(self, path: Path, labelled: Recording, target: Recording, budget: str) -> None:
        self._path, self._labelled, self._target = path, labelled, target
        self._names = np.array([str(name) for name in target.classes])
        self._budget = budget
        store = Store.create(path, classes=self._names.tolist())
        store.add({"id": np.arange(len(target))})

    def measured(self) -> Iterator[Row]:
        """Before the last model arrives answers are learnt from, or not; after it, they count."""
        store = Store(self._path)
        for number in range(len(self._target.models) - 1):
            self._update(store, number)
        for order in ("worth", "random"):
            asked = self._answers(store, order)
            for learn in (False, True):
                copy = shutil.copytree(self._path, self._path.parent / "copy")
                yield {"kind": "learnt", "order": order, "learn": learn} | self._learnt(
                    Store(copy), asked, learn
                )
                shutil.rmtree(copy)
        self._update(store, len(self._target.models) - 1)
        before = self._accuracy(store)
        for order in ORDERS:
            queue = store.review_queue(ANSWERS, order=order)
            rows = queue.items["row"].to_numpy()
            wrong = queue.items["label"].to_numpy(zero_copy_only=False) != self._truth(rows)
            yield {
                "kind": "asked",
                "order": order,
                "accuracy": before,
                "corrected": int(wrong.sum()),
                "first": int(wrong[:FIRST].sum()),
                "expected": queue.worth,
            }

    def _learnt(self, store: Store, asked: dict[str, Any], learn: bool) -> Row:
        store.review(asked, learn=learn)
        report = self._update(store, len(self._target.models) - 1)
        return {
            "accuracy": self._accuracy(store),
            "checked": 100 * report.expected["accuracy"]["value"],
        }

    def _answers(self, store: Store, order: str) -> dict[str, Any]:
        rows = store.review_queue(ANSWERS, order=order).items["row"].to_numpy()
        return {"id": rows, "answer": self._truth(rows)}

    def _update(self, store: Store, number: int) -> Any:
        name, own = self._target.models[number], self._labelled.votes[number]
        has, cast = np.flatnonzero(own != MISSING), self._target.votes[number]
        labelled = {
            "id": [f"labelled-{row}" for row in has.tolist()],
            "truth": self._names[self._labelled.truth[has]],
            "vote": self._names[own[has]],
        }
        rows = np.flatnonzero(cast != MISSING)
        return store.update(
            Model(name, labelled=pa.table(labelled)),
            budget="100%" if number == 0 else self._budget,
            votes=pa.table({"id": rows, "vote": self._names[cast[rows]]}),
        )

    def _truth(self, rows: Any) -> Any:
        return self._names[self._target.truth[rows]]

    def _accuracy(self, store: Store) -> float:
        labels = store.labels()["label"].to_numpy(zero_copy_only=False)
        return float(100 * (labels == self._truth(np.arange(len(labels)))).mean())


def section(folder: Path) -> list[str]:
    """Of the page: what was measured."""
    kept = {
        name: pq.read_table(path).to_pylist()
        for name in SEQUENCES
        if (path := folder / f"review-{name}.parquet").exists()
    }
    return [*_asked(kept), *_learning(kept)] if kept else []


def _asked(kept: dict[str, list[Row]]) -> list[str]:
    told = [
        "## Review\n",
        f"{ANSWERS} answers simulated from the truth after all models have arrived (defaults; "
        f"means of {SPLITS} random halves): how many labels an answer corrected, by the order "
        "items were asked about in. That is the accuracy gained by an answer, times the number of "
        "items; it is 1 at most. *Expected*: what the queue itself says, 1 − belief.\n",
        f"| recording | budget | items | accuracy | worth: first {FIRST} | worth: all | expected | "
        f"entropy: first {FIRST} | entropy: all | random: all | worth beside random, all |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in kept.items():
        most = max(row["labelled"] for row in rows)
        for budget in BUDGETS:
            own = {
                order: _some(rows, kind="asked", budget=budget, order=order, labelled=most)
                for order in ORDERS
            }
            worth = own["worth"]
            gained = {o: mean(row["corrected"] for row in r) / ANSWERS for o, r in own.items()}
            told.append(
                f"| {name} | {budget} | {worth[0]['n']:,} | "
                f"{mean(row['accuracy'] for row in worth):.1f} % | "
                f"{mean(row['first'] for row in worth) / FIRST:.2f} | "
                f"{gained['worth']:.2f} | {mean(r['expected'] for r in worth) / ANSWERS:.2f} | "
                f"{mean(row['first'] for row in own['entropy']) / FIRST:.2f} | "
                f"{gained['entropy']:.2f} | {gained['random']:.2f} | "
                f"{gained['worth'] / max(gained['random'], 1 / ANSWERS):.1f} times |"
            )
    return [*told, ""]


def _learning(kept: dict[str, list[Row]]) -> list[str]:
    told = [
        f"### Learning from answers\n\n{ANSWERS} answers before the last model arrives, its step "
        "after that. Accuracy of all labels, and in brackets expected less true accuracy in points."
        " *Learnt*: the answers were also taken for labelled items (`--learn`).\n",
        "| recording | labelled | budget | asked by worth | … learnt | asked at random | "
        "… learnt |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in kept.items():
        for labelled in sorted({row["labelled"] for row in rows}, reverse=True):
            for budget in BUDGETS:
                cells = []
                for order in ("worth", "random"):
                    for learn in (False, True):
                        own = _some(
                            rows,
                            kind="learnt",
                            budget=budget,
                            order=order,
                            learn=learn,
                            labelled=labelled,
                        )
                        off = mean(row["checked"] - row["accuracy"] for row in own)
                        cells.append(f"{mean(row['accuracy'] for row in own):.2f} ({off:+.1f})")
                told.append(f"| {name} | {labelled:,} | {budget} | {' | '.join(cells)} |")
    return [*told, ""]


def _some(rows: list[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]
