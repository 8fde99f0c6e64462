"""docs/first-hour.md on other predictions: the same commands, on recorded votes with known truth.

That the page says what happens is in test_docs.py, as for all pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterity import Store
from posterity.replay import Recording
from tests.conftest import ROOT, real_recording
from tests.transcripts import blocks, shell

PAGE = ROOT / "docs" / "first-hour.md"
FIRST = "posterity demo --files ."


def write_recording(recording: Recording, folder: Path) -> None:
    """Recorded votes as the files of the page: eld's stored, pycld2 and py3langid to come."""
    names = np.array(recording.classes)
    cast = {name: names[recording.votes[recording.models.index(name)]] for name in RECORDED}
    order = np.random.default_rng(0).permutation(len(recording))
    ids = np.array([f"text-{row:06}" for row in range(len(recording))])
    (folder / "predictions").mkdir()
    for part, rows in enumerate(np.array_split(order, 4)):
        piece = pa.table({"path": ids[rows], "pred": cast["eld"][rows]})
        pq.write_table(piece, folder / "predictions" / f"part-{part}.parquet")
    for name in RECORDED:
        pq.write_table(pa.table({"id": ids, "vote": cast[name]}), folder / f"{name}.parquet")
        (folder / f"{name}.csv").write_text("zz,other\n")
    truth = [f"{ids[row]},{names[recording.truth[row]]}\n" for row in order[:2000]]
    (folder / "truth.csv").write_text("path,truth\n" + "".join(truth))
    (folder / "classes.txt").write_text("\n".join(recording.classes))
    (folder / "mymodels.py").write_text(RECALL)


RECORDED = ("eld", "pycld2", "py3langid")
RECALL = """
import sys
import pyarrow.parquet as pq

class Detector:
    def __init__(self, name="pycld2"):
        rows = pq.read_table(name + ".parquet").to_pydict()
        self.votes = dict(zip(rows["id"], rows["vote"]))

    def __call__(self, batch):
        return [self.votes[item] for item in batch["id"].to_pylist()]

if __name__ == "__main__":
    todo = pq.read_table(sys.argv[1])
    votes = Detector("py3langid")(todo)
    pq.write_table(todo.select(["id"]).append_column("vote", [votes]), sys.argv[2])
"""


def all_commands() -> Iterator[str]:
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        yield from block.commands


@pytest.mark.long
def test_the_same_on_recorded_predictions(tmp_path: Path) -> None:
    recording = real_recording("langid")
    write_recording(recording, tmp_path)
    kept = {}
    for command in all_commands():
        if command != FIRST:
            shell(command, tmp_path)
        if "changes.parquet" in command:
            kept[command.split("--since ")[1][0]] = pq.read_table(tmp_path / "changes.parquet")
    store = Store(tmp_path / "langs")
    assert len(store) == len(recording)
    assert [header.kind for header in store.steps] == ["update", "update", "update", "revert"]
    truth = dict(
        zip([f"text-{row:06}" for row in range(len(recording))], recording.truth, strict=True)
    )
    codes = {name: code for code, name in enumerate(recording.classes)}
    for changes in kept.values():
        assert changes.column("row").to_pylist() == sorted(changes.column("row").to_pylist())
    made = kept["0"].to_pylist()
    fixed = sum(codes[row["new"]] == truth[row["id"]] for row in made)
    broke = sum(codes[row["old"]] == truth[row["id"]] for row in made)
    assert fixed > 10 * broke  # nobody knew the truth, and yet
    undone = {row["id"]: (row["old"], row["new"]) for row in kept["2"].to_pylist()}
    done = {row["id"]: (row["new"], row["old"]) for row in kept["1"].to_pylist()}
    assert undone == done
