"""Thousands of hostile values, through every parameter there is: none breaks or stops anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests import hostile_values
from tests.conftest import ROOT

COUNT = int(os.environ.get("POSTERITY_HOSTILE", "300"))
TORTURE = "POSTERITY_HOSTILE" in os.environ
SECONDS = 2.0 if TORTURE else 20.0
"""For one answer. Tests run beside others; only what is frozen is a fault in them."""
MEBIBYTES = 1024


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("hostile")
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile_values", str(folder), str(COUNT)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, object] = json.loads(done.stdout)
    print({name: told[name] for name in ("slowest", "slowest_was", "peak_mib", "codes")})
    return told


def test_no_value_shows_a_fault(seen: dict[str, object]) -> None:
    """No traceback, no exit code but 0, 1 and 2, no control character in what is printed."""
    assert not seen["count"], json.dumps(seen["faults"], indent=1)


def test_no_value_takes_long(seen: dict[str, object]) -> None:
    assert float(str(seen["slowest"])) < SECONDS, seen["slowest_was"]


def test_no_value_takes_much_memory(seen: dict[str, object]) -> None:
    assert float(str(seen["peak_mib"])) < MEBIBYTES


def test_every_parameter_has_its_turn(seen: dict[str, object]) -> None:
    wanted = {
        f"{command.name} {parameter.name}" for command, parameter in hostile_values.commands()
    }
    assert len(wanted) > 100
    assert wanted <= set(json.loads(json.dumps(seen["parameters"])))


def test_the_addresses_are_those_the_page_reads() -> None:
    """A parameter of an address that is read by name is drawn for, too."""
    read = (ROOT / "src" / "posterity" / "web").rglob("*.py")
    code = "".join(path.read_text("utf-8") for path in sorted(read))
    named = re.findall(r"(?:query|given)\.get\(\"(\w+)\"|(?:asked\.)?whole\(query, \"(\w+)\"", code)
    named += re.findall(r"(?:share|whole)\(given, \"(\w+)\"()", code)
    found = {one or other for one, other in named} - {"answers"}
    assert {"budget", "rule", "step", "low"} <= found
    assert found <= set(hostile_values.ADDRESSES)
