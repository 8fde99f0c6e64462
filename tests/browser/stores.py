"""Stores worth looking at in a browser: the demo's, one of ImageNet, one of a million texts.

Nothing is kept from one run of the tests to the next; what a run does not ask for is not built.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.paper.experiments import PAPER_MODELS

from posterity import Model, Recording, Store, replay
from posterity.cli.demo.job import Job, run_job
from posterity.cli.demo.texts import OTHER, read_texts
from tests.conftest import real_recording

BUDGET = "10%"
RULE = "cost-ratio:5"

SKILLS = {"small": 0.62, "distilled": 0.68, "base": 0.74, "large": 0.8, "ensemble": 0.84}
"""Of the models that vote on a million texts; more is right more often."""
LABELLED = 5_000
LANGUAGES = 20

Votes = Mapping[str, tuple[Any, Any]]
"""By model: its votes on the items and on the labelled items, as names of classes."""


def demo_store(folder: Path, items: int | None = None) -> Path:
    """What ``posterity demo`` keeps: real texts, real detectors, a step for each."""
    folder.mkdir(parents=True, exist_ok=True)
    run_job(Job.prepare(items=items), folder, lambda _: None)
    return folder / "store"


def imagenet_store(folder: Path, recording: Recording) -> Path:
    """The paper's models, one after the other, on half of ImageNet's validation set."""
    parts = replay.take_apart(recording.pick(PAPER_MODELS), 0.5, seed=0)
    names = np.array(recording.classes)
    numbers = np.arange(len(parts.target))
    ids = _numbered("img_", numbers)
    items = pa.table({"id": ids, "path": pc.binary_join_element_wise("val/", ids, ".jpg", "")})
    votes = {
        model: (names[parts.target.votes[at]], names[parts.labelled.votes[at]])
        for at, model in enumerate(PAPER_MODELS)
    }
    return _walked(folder, names, items, names[parts.labelled.truth], votes)


def million_store(folder: Path, items: int = 1_000_000) -> Path:
    """Real texts, again and again, with votes made up: models err alike, on the same texts."""
    rng = np.random.default_rng(0)
    texts = read_texts()
    frequent = Counter(name for name in texts.truth if name != OTHER).most_common(LANGUAGES)
    names = np.array(sorted(name for name, _ in frequent))
    usable = np.flatnonzero(np.isin(texts.truth, names))
    # The labelled ones come first, the items after them: both are texts of the same kind.
    chosen = usable[rng.integers(0, len(usable), LABELLED + items)]
    truth = np.searchsorted(names, np.array(texts.truth)[chosen])
    hardness = rng.random(len(chosen))
    votes: dict[str, tuple[Any, Any]] = {}
    for model, skill in SKILLS.items():
        right = (hardness + rng.random(len(chosen))) / 2 < skill
        near = truth + rng.integers(1, 4, len(chosen))
        guessed = names[np.where(right, truth, near) % len(names)]
        votes[model] = guessed[LABELLED:], guessed[:LABELLED]
    payload = pa.array(texts.text).take(pa.array(chosen[LABELLED:]))
    package = pa.array(texts.package).take(pa.array(chosen[LABELLED:]))
    ids = _numbered("text_", np.arange(items))
    table = pa.table({"id": ids, "text": payload, "package": package})
    return _walked(folder, names, table, names[truth[:LABELLED]], votes)


def _walked(folder: Path, names: Any, items: pa.Table, truth: Any, votes: Votes) -> Path:
    """A store in which the first model voted on everything, and each later one on a tenth."""
    store = Store.create(folder / "store", classes=names)
    store.add(items)
    known = pa.table({"id": _numbered("known_", np.arange(len(truth))), "truth": truth})
    for at, (model, (on_items, on_labelled)) in enumerate(votes.items()):
        labelled = known.append_column("vote", [on_labelled])
        store.register(Model(model, labelled=labelled, cost=0.0001 * 1.5**at))
        told = pa.table({"id": items.column("id"), "vote": on_items})
        store.update(model, votes=told, budget=None if at == 0 else BUDGET, rule=RULE)
    return folder / "store"


def _numbered(start: str, numbers: Any) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 7, "0")
    return pc.binary_join_element_wise(start, digits, "")


class Stores:
    """Each store is built when it is first asked for; a test that changes one takes a copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._built: dict[str, Path] = {}

    @property
    def demo(self) -> Path:
        """Of 3,000 texts, for everything but times."""
        return self._once("demo", partial(demo_store, items=3_000))

    @property
    def whole_demo(self) -> Path:
        """As `make demo` has it: every text."""
        return self._once("whole-demo", demo_store)

    @property
    def imagenet(self) -> Path:
        """25,000 items, 1,000 classes and 17 steps; skipped without the recording."""
        recording = real_recording("imagenet_val")
        return self._once("imagenet", partial(imagenet_store, recording=recording))

    @property
    def million(self) -> Path:
        """A million items, 20 classes, 5 steps."""
        return self._once("million", million_store)

    def copy(self, store: Path, to: Path) -> Path:
        """For tests that change it."""
        return Path(shutil.copytree(store, to / store.parent.name))

    def _once(self, name: str, build: Callable[[Path], Path]) -> Path:
        if name not in self._built:
            self._built[name] = build(self.folder / name)
        return self._built[name]
