"""The nightly job of docs/howto/cron.md: data grow, models and object stores fail, and in the end
every item has a label and every change was handed on once."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.cli import run as cli
from posterity.errors import StoreError
from tests.conftest import ROOT
from tests.page_folders import put_tutorial_files
from tests.proxy import DOWN, UP, losing
from tests.s3 import serving_s3
from tests.stores import World, small_store
from tests.transcripts import blocks, shell

PAGE = ROOT / "docs" / "howto" / "cron.md"
READER = """
import pathlib
import urllib.request

import joblib

reader = joblib.load("reader.joblib")


def predict(batch):
    texts = batch["text"].to_pylist()
    if pathlib.Path("model-is-down").exists():
        raise RuntimeError("out of memory")
    if pathlib.Path("some-fail").exists() and "unreadable" in texts:
        raise ValueError("unreadable")
    if pathlib.Path("store-dies").exists():
        urllib.request.urlopen(pathlib.Path("store-dies").read_text()).close()
    else:
        with open("asked", "a") as file:
            file.writelines(f"{one}\\n" for one in batch["id"].to_pylist())
    return reader.predict(texts)
"""


@dataclass
class Downstream:
    """Who applies what the job hands on: a change of a label it does not have is an error."""

    labels: dict[str, str | None]
    changes: int = 0
    exported: list[int] = field(default_factory=list)

    def apply(self, path: Path) -> None:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            assert self.labels.get(row["id"]) == (row["old"] or None), row
            assert row["new"] != row["old"], row
            self.labels[row["id"]] = row["new"]
        self.exported.append(len(rows))


def arrive(folder: Path, name: str, items: int, *, unreadable: bool = False) -> None:
    """A file of new tickets, with texts like those of the others."""
    with (folder / "tickets.csv").open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    rows = [(f"{name}-{at}", texts[(37 * at + len(name)) % len(texts)]) for at in range(items)]
    if unreadable:
        rows[0] = (rows[0][0], "unreadable")
    with (folder / "incoming" / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *rows])


@pytest.mark.long
def test_ten_nights(tmp_path: Path) -> None:
    put_tutorial_files(tmp_path)
    (tmp_path / "night_reader.py").write_text(READER)
    setup, job = (block.text for block in blocks(PAGE.read_text()) if block.language == "sh")
    with serving_s3("bucket") as direct, losing(direct, one_in=0) as proxy:
        address = "s3://bucket/nightly-desk"
        there = {
            "nightly-desk": address,
            "scikit-learn:reader.joblib,column=text": "night_reader:predict",
        }
        for old, new in there.items():
            setup, job = setup.replace(old, new), job.replace(old, new)
        shell(setup, tmp_path, proxy.options)
        shell(job, tmp_path)
        store = Store(address, direct)
        known = store.labels(since=-1).to_pylist()
        downstream = Downstream({row["id"]: row["new"] for row in known})

        def night(*, code: int) -> str:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["./nightly.sh"],
                cwd=tmp_path,
                env=os.environ | {"PATH": path} | proxy.options,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == code, done.stdout
            if not code:
                downstream.apply(tmp_path / "changes.csv")
            return done.stdout

        def unlabelled() -> int:
            count: int = store.status()["unlabelled"]
            return count

        night(code=0)  # 1: two tickets, and a share of the others
        arrive(tmp_path, "second", 60)
        night(code=0)
        assert unlabelled() == 0
        arrive(tmp_path, "third", 4, unreadable=True)
        (tmp_path / "some-fail").touch()
        night(code=0)
        assert unlabelled() == 1
        arrive(tmp_path, "fourth", 120)
        (tmp_path / "model-is-down").touch()
        assert "The model failed on" in night(code=1)
        assert "The model failed on" in night(code=1)  # nobody has mended it
        assert unlabelled() == 121
        (tmp_path / "model-is-down").unlink()
        arrive(tmp_path, "fifth", 30)
        night(code=0)
        assert unlabelled() == 1
        night(code=0)  # 6: nothing came, and one fails again
        assert "failed again on 1 item without a label" in (tmp_path / "report.json").read_text()
        assert downstream.exported[-1] == 0
        arrive(tmp_path, "seventh", 25)
        (tmp_path / "store-dies").write_text(proxy.endpoint + DOWN)
        night(code=1)
        arrive(tmp_path, "late", 3)
        night(code=1)
        assert (tmp_path / "incoming" / "late.csv").exists()
        proxy.switch(UP)
        (tmp_path / "store-dies").unlink()
        assert unlabelled() == 26
        arrive(tmp_path, "eighth", 10)
        night(code=0)
        assert unlabelled() == 1
        (tmp_path / "some-fail").unlink()
        arrive(tmp_path, "ninth", 5)
        night(code=0)
        assert unlabelled() == 0
        arrive(tmp_path, "tenth", 40)
        night(code=0)
        labels = {row["id"]: row["label"] for row in store.labels().to_pylist()}
        assert None not in labels.values()
        assert labels == downstream.labels
        assert store.runs() == []
        assert store.check() == []
        asked = (tmp_path / "asked").read_text().split()
        assert len(asked) == len(set(asked))
        added = {one for one in labels if "-" in one}
        assert len(added) == 60 + 4 + 120 + 30 + 25 + 3 + 10 + 5 + 40
        assert added <= set(asked)


def test_three_nights(tmp_path: Path) -> None:
    """The same in one process and a folder: the second night the model is down."""
    world = World(items=100)
    store = small_store(tmp_path / "store", World(items=60))
    downstream = Downstream({row["id"]: row["label"] for row in store.labels().to_pylist()})
    asked, applied = list[int](), 0

    def predict(batch: pa.Table) -> list[str]:
        if down:
            raise RuntimeError("out of memory")
        asked.extend(batch["number"].to_pylist())
        return [world.votes["new"][number] for number in batch["number"].to_pylist()]

    model = Model("new", labelled=world.labelled_table("new"), predict=predict)
    store.register(model)
    for start, stop, down in ((60, 64, False), (64, 90, True), (90, 94, False)):
        store.add(world.table(start, stop))
        if down:
            with pytest.raises(StoreError, match="failed on all 26 items"):
                store.update(model, budget="5%")
            continue
        store.update(model, budget="5%")
        out = tmp_path / "changes.csv"
        assert cli(["labels", store.path, "--since", str(applied), "--out", str(out)]) == 0
        downstream.apply(out)
        applied = store.status()["step"]
    labels = {row["id"]: row["label"] for row in store.labels().to_pylist()}
    assert None not in labels.values()
    assert labels == downstream.labels
    assert sorted(asked)[-34:] == list(range(60, 94))
    assert len(asked) == len(set(asked)) == 34 + 3
    assert downstream.exported[-1] == 30
    assert store.check() == []
