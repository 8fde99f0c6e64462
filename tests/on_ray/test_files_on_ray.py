"""Import, add and export on a cluster of three nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from posterity.cli import cli
from tests.stores import World
from tests.test_executor_files import filled
from tests.test_import import files, nothing_imported, whole

pytestmark = pytest.mark.usefixtures("nodes")


def test_the_same_on_a_cluster(tmp_path: Path) -> None:
    world = World(items=200)
    here = filled(tmp_path / "here", world, tmp_path / "1", None)
    there = filled(tmp_path / "there", world, tmp_path / "2", "ray")
    assert whole(there) == whole(here)
    assert there.check() == []
    before = files(there.path)
    assert there.add(tmp_path / "2" / "items" / "000.parquet") == 0  # done already
    nothing_imported(there, before)
    told = []
    for store, executor in ((here, "local"), (there, "ray")):
        for out in (f"{store.path}.parquet", f"{store.path}-labels/"):
            made = CliRunner().invoke(
                cli, ["labels", store.path, "--out", out, "--executor", executor]
            )
            assert made.exit_code == 0, made.output
        parts = sorted(Path(f"{store.path}-labels").glob("part-*.parquet"))
        told.append([path.read_bytes() for path in (Path(f"{store.path}.parquet"), *parts)])
    assert len(told[0]) == 1 + 4
    assert told[0] == told[1]
