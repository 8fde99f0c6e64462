"""docs/first-hour.md as a new user would: each command, in order, and what it printed.

``python -m tests.test_first_hour`` writes the outputs into the page anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity import Store
from posterity.replay import Recording
from tests.conftest import ROOT, real_recording

PAGE = ROOT / "docs" / "first-hour.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
FIRST = "posterity demo --files ."


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def commands(block: str) -> list[str]:
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def transcript(page: str, folder: Path) -> str:
    """The page with the outputs of its commands as they are now."""

    def block(found: re.Match[str]) -> str:
        lines = []
        for command in commands(found.group(1)):
            lines.append(f"$ {command}")
            lines += run(command, folder).splitlines()
        return "```console\n" + "\n".join(lines) + "\n```"

    return BLOCK.sub(block, page)


def stable(page: str) -> list[str]:
    """Without the ids of plans, which name what a plan has read."""
    return re.sub(r"plan [0-9a-f]{12}-[0-9a-f]{8}", "plan ID", page).splitlines()


def test_the_page_says_what_happens(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert stable(transcript(page, tmp_path)) == stable(page), "run python -m tests.test_first_hour"


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
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        yield from commands(block)


def test_the_same_on_recorded_predictions(tmp_path: Path) -> None:
    recording = real_recording("langid")
    write_recording(recording, tmp_path)
    kept = {}
    for command in all_commands():
        if command != FIRST:
            run(command, tmp_path)
        if "changes.parquet" in command:
            kept[command.split("--since ")[1][0]] = pq.read_table(tmp_path / "changes.parquet")
    store = Store(tmp_path / "langs")
    assert len(store) == len(recording)
    assert [header.kind for header in store.log()] == ["update", "update", "update", "revert"]
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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        written = transcript(PAGE.read_text(encoding="utf-8"), Path(folder))
    PAGE.write_text(written, encoding="utf-8")
