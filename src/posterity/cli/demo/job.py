"""The demo's job: real language detectors arrive over the stored labels of interface texts.

Everything is real: texts from the catalogues of installed packages, detectors with the models
their packages bring along, and a store on disk. Needs the ``demo`` extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity.cli.demo.detectors import Detector, available, to_class
from posterity.cli.demo.texts import CLASSES, OTHER, Texts, read_texts
from posterity.errors import InvalidParameter, MissingExtra
from posterity.method.data.arrays import Codes, Rows
from posterity.method.data.classes import Classes
from posterity.method.data.spec import read_seed, whole_number
from posterity.method.decide.defaults import DEFAULT_RULE, DEPENDENT
from posterity.models.model import Model
from posterity.replay import Recording
from posterity.store import Store

LABELLED_SHARE = 0.2
"""Of the texts, those whose language is known; on the rest the detectors arrive."""
BUDGET = "20%"
RULE = DEFAULT_RULE[DEPENDENT]
LEAST_ITEMS = 500

Told = Callable[[dict[str, Any]], None]
"""Called with what each step did."""


@dataclass(frozen=True, eq=False)
class Job:
    """Texts, which of them are labelled, and the detectors in their order of arrival."""

    texts: Texts
    is_labelled: np.ndarray
    detectors: list[Detector]
    missing: dict[str, str]
    """Detectors that cannot be used here, and why."""

    @classmethod
    def prepare(cls, *, seed: int = 0, items: int | None = None) -> Job:
        """Read the texts, and sort the detectors by how many labelled ones they get right."""
        seed = read_seed(seed, "seed")
        if items is not None:  # told at once: to read the texts takes a while
            whole_number(items, "items", least=LEAST_ITEMS)
        texts = read_texts()
        detectors, missing = available()
        if len(detectors) < 2:
            raise MissingExtra.of("The demo", "demo")
        rng = np.random.default_rng(seed)
        if items is not None:
            if not LEAST_ITEMS <= items <= len(texts):
                allowed = f"a count from {LEAST_ITEMS} to {len(texts)}"
                raise InvalidParameter.of("items", allowed, items)
            texts = texts[np.sort(rng.permutation(len(texts))[:items])]
        is_labelled = np.zeros(len(texts), dtype=np.bool_)
        is_labelled[rng.permutation(len(texts))[: int(LABELLED_SHARE * len(texts))]] = True
        job = cls(texts, is_labelled, detectors, missing)
        right = [job.accuracy(detector) for detector in detectors]
        arriving = [detectors[at] for at in np.argsort(right, kind="stable")]
        return cls(texts, is_labelled, arriving, missing)

    @property
    def labelled(self) -> Rows:
        """The texts with known truth."""
        return np.flatnonzero(self.is_labelled)

    @property
    def stored(self) -> Rows:
        """The texts the store holds, whose truth serves only for the final score."""
        return np.flatnonzero(~self.is_labelled)

    @cached_property
    def truth(self) -> Codes:
        """Of all texts."""
        return Classes(CLASSES).encode(self.texts.truth)

    def accuracy(self, detector: Detector) -> float:
        """The share of labelled texts a detector gets right."""
        return float((self.votes(detector, self.labelled) == self.truth[self.labelled]).mean())

    def votes(self, detector: Detector, rows: Rows) -> Codes:
        """A detector's votes on texts, as our classes."""
        answers = self.model(detector).answers(Classes(CLASSES))
        return answers.votes(detector(self._texts(rows)), len(rows)).hard

    def model(self, detector: Detector, *, labelled: bool = False) -> Model:
        """A detector as a model; with the votes on labelled texts that tell how it errs."""
        return Model(
            detector.name,
            labelled=self._labelled_table(detector) if labelled else None,
            predict=lambda batch: detector(batch.column("text").to_pylist()),
            classes=detector.codes,
            class_map=to_class(detector.name),
            other=OTHER,
        )

    def _labelled_table(self, detector: Detector) -> pa.Table:
        rows = self.labelled
        return pa.table(
            {
                "id": [self.texts.id[row] for row in rows],
                "truth": [self.texts.truth[row] for row in rows],
                "vote": detector(self._texts(rows)),
            }
        )

    def _texts(self, rows: Rows) -> list[str]:
        return [self.texts.text[row] for row in rows]

    def write_predictions(self, path: Path) -> None:
        """The first detector's labels as somebody would have them: a file with ids and texts."""
        rows = self.stored
        table = {
            "id": [self.texts.id[row] for row in rows],
            "text": self._texts(rows),
            "label": self.detectors[0](self._texts(rows)),
        }
        pq.write_table(pa.table(table), path)

    def record(self) -> Recording:
        """Every detector on every text: what a full backfill asks for, and replay needs."""
        everybody = np.arange(len(self.texts))
        return Recording(
            classes=tuple(CLASSES),
            models=tuple(detector.name for detector in self.detectors),
            truth=self.truth,
            votes=np.array([self.votes(detector, everybody) for detector in self.detectors]),
            is_source=self.is_labelled,
            name="languages",
        )


def run_job(job: Job, folder: Path, tell: Told) -> Store:
    """Import the first detector's labels, then let each better one update the store."""
    predictions = folder / "predictions.parquet"
    job.write_predictions(predictions)
    store = Store.create(folder / "store", classes=CLASSES)
    first = job.detectors[0]
    done = store.import_predictions(predictions, {"label": job.model(first, labelled=True)})
    tell(done.steps[0])
    for detector in job.detectors[1:]:
        model = job.model(detector, labelled=True)
        store.register(model)
        plan = store.plan(model, budget=BUDGET, rule=RULE)
        report = store.update(model, plan=plan.id)
        tell(report.to_dict())
    return store


def score(job: Job, store: Store) -> dict[str, Any]:
    """How the store stands against the truth that it never saw."""
    truth = {job.texts.id[row]: job.texts.truth[row] for row in job.stored}
    labels = store.labels()
    pairs = zip(labels.column("id").to_pylist(), labels.column("label").to_pylist(), strict=True)
    right = sum(truth[key] == label for key, label in pairs)
    fixed = broke = spent = 0
    for header in store.steps[1:]:
        spent += header.report["evaluations"]
        for flip in store.flips(header.step).to_pylist():
            fixed += flip["new"] == truth[flip["id"]]
            broke += flip["old"] == truth[flip["id"]]
    return {
        "evaluations": spent,
        "positive_flips": fixed,
        "negative_flips": broke,
        "accuracy": 100 * right / labels.num_rows,
    }


OLD, NEW, ELSEWHERE = "eld", "pycld2", "py3langid"
PARTS = 4
TRUTHS = 2000

MODELS = f'''\
"""Two language detectors, as somebody would wrap models of their own."""

import sys

from posterity.cli.demo.detectors import available


class Detector:
    """Loaded once; votes on a batch of items."""

    def __init__(self, name="{NEW}"):
        self.detector = {{found.name: found for found in available()[0]}}[name]

    def __call__(self, batch):
        return self.detector(batch["text"].to_pylist())


if __name__ == "__main__":  # votes made elsewhere: python mymodels.py todo.parquet votes.parquet
    import pyarrow.parquet as pq

    todo = pq.read_table(sys.argv[1])
    votes = Detector("{ELSEWHERE}")(todo)
    pq.write_table(todo.select(["id"]).append_column("vote", [votes]), sys.argv[2])
'''


def write_files(job: Job, folder: Path) -> list[str]:
    """Stored predictions in several files, some truth, class maps, and models to come."""
    by_name = {detector.name: detector for detector in job.detectors}
    if not {OLD, NEW, ELSEWHERE} <= set(by_name):
        raise MissingExtra.of("The demo's files", "demo")
    if folder.exists() and any(folder.iterdir()):
        raise InvalidParameter.of("files", "an empty or a new folder", str(folder))
    (folder / "predictions").mkdir(parents=True)
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n", encoding="utf-8")
    (folder / "mymodels.py").write_text(MODELS, encoding="utf-8")
    everybody = np.random.default_rng(0).permutation(len(job.texts))
    names = Classes(CLASSES).decode(job.votes(by_name[OLD], everybody))
    table = pa.table(
        {
            "path": [job.texts.id[row] for row in everybody],
            "text": [job.texts.text[row] for row in everybody],
            "pred": names,
        }
    )
    size = -(-len(everybody) // PARTS)
    for part in range(PARTS):
        piece = table.slice(part * size, size)
        pq.write_table(piece, folder / "predictions" / f"part-{part}.parquet")
    known = [f"{job.texts.id[row]},{job.texts.truth[row]}" for row in everybody[:TRUTHS]]
    (folder / "truth.csv").write_text("\n".join(["path,truth", *known]) + "\n", encoding="utf-8")
    for name in (NEW, ELSEWHERE):
        pairs = [f"{old},{new}" for old, new in to_class(name).items() if old != new]
        (folder / f"{name}.csv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    return sorted(path.name for path in folder.iterdir())
