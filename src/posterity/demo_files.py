"""Files for a first hour: what somebody with stored predictions has, made from the demo's job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity.classes import Classes
from posterity.demo import Job
from posterity.errors import InvalidParameter, MissingExtra
from posterity.languages.detectors import Detector, to_class
from posterity.languages.texts import CLASSES

OLD, NEW, ELSEWHERE = "eld", "pycld2", "py3langid"
PARTS = 4
TRUTHS = 2000

MODELS = f'''\
"""Two language detectors, as somebody would wrap models of their own."""

import sys

from posterity.languages.detectors import available


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
        pairs = [f"{old},{new}" for old, new in _renamed(by_name[name]).items()]
        (folder / f"{name}.csv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    return sorted(path.name for path in folder.iterdir())


def _renamed(detector: Detector) -> dict[str, str]:
    known = set(detector.codes)
    pairs = to_class(detector.name).items()
    return {old: new for old, new in pairs if old in known and old != new}
