"""Stores written by earlier versions keep opening. ``python -m tests.test_archives`` adds one."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.engine.context import Context
from posterity.errors import InvalidParameter
from posterity.tables.files import open_files
from posterity.tables.layout import FORMAT
from tests.stores import NAMES, World, contents

ARCHIVES = Path(__file__).parent / "archives"


def soft_model(world: World, name: str) -> Model:
    """A model whose votes are class probabilities."""

    def predict(batch: pa.Table) -> np.ndarray:
        votes = world.votes[name][batch["number"].to_numpy()]
        return np.where(votes[:, None] == NAMES, 0.55, 0.15)

    return Model(name, labelled=world.labelled_table(name), predict=predict, soft=2)


def eels(batch: pa.Table) -> list[str]:
    """Votes for a class that was appended."""
    return ["eel" if number % 2 else "owl" for number in batch["number"].to_pylist()]


def write_archive() -> None:
    """The store every format from 2 on has to keep reading.

    Imported labels with the truth of some, an update, soft votes, an appended class, a stated
    confusion, a revert, a removal; from 4 on also flips that were settled, and pending ones; from
    5 on answers of people, one of them taken back, and class shares that votes tell of.
    """
    with tempfile.TemporaryDirectory() as folder:
        world = World()
        store = Store.create(Path(folder, "store"), classes=NAMES, shard_rows=25, prior="estimated")
        truth = {"id": [f"item-{at}" for at in range(30)], "truth": world.truth[:30]}
        predictions = world.table().append_column("pred", pa.array(world.votes["old"]))
        store.import_predictions(predictions, {"pred": Model("old", labelled=truth)})
        store.update(world.model("new"), budget="40%", rule="max-belief")
        store.update(soft_model(world, "best"), budget="20%", rule="cost-ratio:2")
        store.append_classes(["eel"])
        store.update(Model("eels", accuracy=0.8, predict=eels), budget="30%", rule="max-belief")
        store.revert(1)
        store.remove(["item-5"])
        store.update(world.model("mid"), budget="60%", rule="max-belief+confirm")
        store.settle()
        asked = [f"item-{number}" for number in range(20, 40)]
        store.review({"id": asked[:15], "answer": world.truth[20:35]}, learn=True)
        store.review({"id": asked[10:], "answer": world.truth[30:40]})
        store.revert(len(store.log()) - 1)
        dear = Model("dear", accuracy=0.85, predict=eels)
        store.update(dear, budget="50%", rule="cost-ratio:2,of.cat=5")
        late = Model("late", accuracy=0.9, predict=eels)
        store.update(late, budget="50%", rule="max-belief+confirm")
        assert store.check() == []
        assert store.status()["pending"] > 0
        told = {"labels": store.labels().to_pylist(), "steps": len(store.log())}
        Path(folder, "expected.json").write_text(json.dumps(told))
        archive_path = ARCHIVES / f"format-{FORMAT}.tar.gz"
        if archive_path.exists():
            raise FileExistsError(f"{archive_path} is written once and for all")
        with tarfile.open(archive_path, "w:gz") as archive:
            for name in ("store", "expected.json"):
                archive.add(Path(folder, name), name)


def opened(path: Path, folder: Path) -> tuple[Store, dict[str, Any]]:
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return Store(folder / "store"), json.loads((folder / "expected.json").read_text())


def broken(store: Store) -> list[str]:
    """Another kind of CPU may round beliefs differently, labels it must not."""
    return [line for line in store.check() if "entropy" not in line and "belief" not in line]


def files(store: Store) -> dict[str, str]:
    root = Path(store.path)
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_this_format_is_archived() -> None:
    assert (ARCHIVES / f"format-{FORMAT}.tar.gz").exists()


@pytest.mark.parametrize("path", sorted(ARCHIVES.glob("*.tar.gz")), ids=lambda path: path.stem)
def test_archived_stores_open_and_go_on(path: Path, tmp_path: Path) -> None:
    store, expected = opened(path, tmp_path)
    assert store.labels().to_pylist() == expected["labels"]
    assert len(store.log()) == expected["steps"]
    assert broken(store) == []
    report = store.update(World().model("mid"), budget="100%")
    assert report.step == expected["steps"]
    assert broken(store) == []
    cats = Model("cats", accuracy=0.97, predict=lambda batch: ["cat"] * batch.num_rows)
    pending = store.update(cats, budget="30%", rule="max-belief+confirm").pending
    assert pending == store.status()["pending"] > 0
    assert store.settle().settled == pending
    store.revert(expected["steps"])
    assert broken(store) == []


@pytest.fixture
def first(tmp_path: Path) -> Store:
    """A store of format 1."""
    return opened(ARCHIVES / "format-1.tar.gz", tmp_path)[0]


def test_reading_an_older_format_does_not_change_it(first: Store) -> None:
    before = files(first)
    first.labels()
    first.labels(since=0)
    first.flips(2)
    first.history("item-7")
    first.beliefs(top=2)
    first.log()
    assert len(first) == 59
    assert list(first.classes) == NAMES.tolist()
    assert broken(first) == []
    assert first.status()["format"] == 1
    assert first.vacuum(dry_run=True) == 0
    with pytest.raises(InvalidParameter, match="no rule"):
        first.update("new", rule="nonsense", votes=World().votes_table("new"))
    assert files(first) == before


def test_an_update_raises_an_older_format(first: Store) -> None:
    """Then all that the new format can do works on what the old one wrote."""
    before = first.labels().to_pylist()
    world = World()
    report = first.update(soft_model(world, "mid"), budget="50%", rule="max-belief")
    assert first.status()["format"] == FORMAT
    assert report.evaluations == 30
    assert any(row["soft_weights"] for row in contents(first)["rows"] if row["step"] == 4)
    assert broken(first) == []
    first.append_classes(["eel"])
    first.update(Model("eels", accuracy=0.8, predict=eels), budget="100%", rule="max-belief")
    assert "eel" in first.labels()["label"].to_pylist()
    assert broken(first) == []
    first.revert(5)
    first.revert(4)
    now = first.labels().to_pylist()
    assert [row["label"] for row in now] == [row["label"] for row in before]
    first.revert(2)  # steps the old format wrote, one of them a revert
    first.revert(3)
    assert broken(first) == []
    assert sum(header.kind == "revert" for header in first.log()) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.compact(),
        lambda store: store.remove("item-9"),
        lambda store: store.revert(2),
        lambda store: store.add({"id": ["another"]}),
        lambda store: store.register(Model("eels", accuracy=0.8)),
        lambda store: store.append_classes(["eel"]),
    ],
    ids=["compact", "remove", "revert", "add", "register", "append"],
)
def test_any_change_raises_an_older_format(first: Store, change: Callable[[Store], Any]) -> None:
    change(first)
    assert first.status()["format"] == FORMAT
    assert broken(first) == []
    known = World().model("new")
    assert first.register(known).labelled == 80  # as it was registered then
    first.update(known, budget="100%", rule="max-belief")
    first.compact()
    assert broken(first) == []


if __name__ == "__main__":
    write_archive()


def test_a_format_is_raised_once(tmp_path: Path) -> None:
    """Whoever comes late must not take classes appended since for those there were at first."""
    store, _ = opened(ARCHIVES / "format-1.tar.gz", tmp_path)
    late = Context(open_files(store.path))
    store.append_classes(["eel"])
    late.raise_format()
    assert late.description.classes == 4
    assert broken(store) == []


def test_how_many_classes_there_were_at_first_stays_known(first: Store) -> None:
    """Steps of format 1 do not say it themselves, and are decided again with it."""
    first.append_classes(["eel"])
    path = Path(first.path, "posterity.json")
    told = json.loads(path.read_text())
    assert told["classes"] == 4
    path.write_text(json.dumps({**told, "format": 2}))  # as the version before left it
    first.add({"id": ["another"], "number": [99], "lang": ["de"]})
    assert json.loads(path.read_text())["classes"] == 4
    assert broken(first) == []
