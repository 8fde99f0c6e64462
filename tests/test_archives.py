"""Stores written by earlier versions keep opening. ``python -m tests.test_archives`` adds one."""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path

import pytest

from posterity import Store
from posterity.tables.layout import FORMAT
from tests.stores import World, small_store

ARCHIVES = Path(__file__).parent / "archives"


def write_archive() -> None:
    """The store every format has to keep reading: two updates, a removal, a revert."""
    with tempfile.TemporaryDirectory() as folder:
        world = World()
        store = small_store(Path(folder, "store"), world)
        store.update(world.model("new"), budget="40%", rule="max-belief")
        store.update(world.model("best"), budget="20%", rule="cost-ratio:2")
        store.revert(1)
        store.remove(["item-5"])
        told = {"labels": store.labels().to_pylist(), "steps": len(store.log())}
        Path(folder, "expected.json").write_text(json.dumps(told))
        with tarfile.open(ARCHIVES / f"format-{FORMAT}.tar.gz", "w:gz") as archive:
            for name in ("store", "expected.json"):
                archive.add(Path(folder, name), name)


def test_this_format_is_archived() -> None:
    assert (ARCHIVES / f"format-{FORMAT}.tar.gz").exists()


@pytest.mark.parametrize("path", sorted(ARCHIVES.glob("*.tar.gz")), ids=lambda path: path.stem)
def test_archived_stores_open_and_go_on(path: Path, tmp_path: Path) -> None:
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / "expected.json").read_text())
    store = Store(tmp_path / "store")
    assert store.labels().to_pylist() == expected["labels"]
    assert len(store.log()) == expected["steps"]
    broken = [line for line in store.check() if "entropy" not in line and "belief" not in line]
    assert broken == []  # another kind of CPU may round beliefs differently, labels it must not
    report = store.update(World().model("mid"), budget="100%")
    assert report.step == expected["steps"]


if __name__ == "__main__":
    write_archive()
