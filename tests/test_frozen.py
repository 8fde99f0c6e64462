"""What is frozen comes out the same twice, and a number that changes is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import frozen
from tests.frozen_digests import clean

FEW = ("replay/plain/labelled prior", "store/plain given prior")


def test_the_same_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path in paths:
        found = frozen.freeze({name: frozen.CASES[name] for name in FEW})
        path.write_text(json.dumps(found))
    assert all(any(key.startswith(f"{name}/") for key in found) for name in FEW)
    compared = ["--compare", *map(str, paths)]
    assert frozen.main(compared) == 0
    accuracy = f"{FEW[0]}/runs/0/expected_accuracy"
    ledger = f"{FEW[1]}/contents/ledger/digest"
    changed = {**found, accuracy: found[accuracy] * (1 + 2**-52), ledger: "another"}
    del changed[f"{FEW[1]}/contents/labels/rows"]
    paths[1].write_text(json.dumps(changed))
    capsys.readouterr()
    assert frozen.main(compared) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in told] == sorted(
        [accuracy, ledger, f"{FEW[1]}/contents/labels/rows"]
    )
    assert told[1].endswith("→ nothing")
    assert told[2].endswith('→ "another"')


def test_what_time_changes_is_left_out() -> None:
    said = {"run": "x", "format": 5, "label": "cat", "note": "run 029f47193d32-389e72b4 at /a/b"}
    assert clean(said, Path("/a")) == {"label": "cat", "note": "run RUN at FOLDER/b"}
