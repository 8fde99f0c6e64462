"""What Posterity does today, written down to the last bit, to be compared with what it does later.

Before the source is moved about, and after it, this script runs every kind of replay and store on
made-up data and writes results and digests as one JSON file. Whoever reorganises the code promises
that nothing a user can do changes, and not one number: two files that are alike show it.

    python -m tests.frozen before.json
    python -m tests.frozen --compare before.json after.json

It knows nothing but the public interface and the tables on disk, so that it runs on both sides.
Times, ids of runs and the number of the format are left out. With ``--ray`` some stores are made
on a Ray cluster of this machine too, and have to be what they are without.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests import frozen_lives, frozen_replays, frozen_stores
from tests.frozen_digests import Frozen, text

CASES: dict[str, Callable[[Path], Frozen]] = {
    **frozen_replays.CASES,
    **frozen_stores.CASES,
    **frozen_lives.CASES,
}
"""Each is given an empty folder."""


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """One entry for each thing that can differ."""
    if isinstance(value, dict) and value:
        parts: Sequence[tuple[str, Any]] = [(str(name), each) for name, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        parts = [(str(at), each) for at, each in enumerate(value)]
    else:
        return {key: value}
    made: dict[str, Any] = {}
    for name, each in parts:
        made |= flat(each, f"{key}/{name}" if key else name)
    return made


def freeze(cases: dict[str, Callable[[Path], Frozen]]) -> Frozen:
    """Run cases; how far it is goes to stderr."""
    found: Frozen = {}
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # many small files are synced
    with tempfile.TemporaryDirectory(prefix="frozen-", dir=memory) as scratch:
        own = {
            "POSTERITY_CACHE": f"{scratch}/cache",
            "XDG_CONFIG_HOME": f"{scratch}/config",
            "COLUMNS": "120",
        }
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            for at, (name, case) in enumerate(cases.items()):
                folder, clock = Path(scratch) / f"case-{at}", time.perf_counter()
                folder.mkdir()
                found |= flat(case(folder), name)
                shutil.rmtree(folder)
                seconds = time.perf_counter() - clock
                print(f"{at + 1}/{len(cases)} {name}: {seconds:.1f} s", file=sys.stderr)
        finally:
            for variable, value in before.items():
                os.environ.pop(variable)
                if value is not None:
                    os.environ[variable] = value
    return found


def compare(before: Frozen, after: Frozen) -> list[str]:
    """A line for each entry that differs."""
    lines = []
    for key in sorted(before.keys() | after.keys()):
        old, new = (text(side[key]) if key in side else "nothing" for side in (before, after))
        if old != new:
            lines.append(f"{key}: {_cut(old)} → {_cut(new)}")
    return lines


def _cut(told: str) -> str:
    return told if len(told) <= 200 else f"{told[:200]}…"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description="Freeze what Posterity does, and compare.")
    parser.add_argument("out", nargs="?", type=Path, help="the JSON file to write")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--ray", action="store_true", help="some stores on Ray too")
    given = parser.parse_args(arguments)
    if given.compare:
        lines = compare(*(json.loads(path.read_text()) for path in given.compare))
        print("\n".join(lines) if lines else "Nothing differs.")
        return 1 if lines else 0
    if given.out is None:
        parser.error("name the file to write, or two with --compare")
    wanted = {**CASES, **(frozen_lives.ON_RAY if given.ray else {})}
    chosen = {name: case for name, case in wanted.items() if given.only in name}
    found = freeze(chosen)
    given.out.write_text(json.dumps(found, indent=0, ensure_ascii=False, sort_keys=True) + "\n")
    print(f"{len(chosen)} cases, {len(found)} entries in {given.out}", file=sys.stderr)
    unlike = frozen_lives.unlike_local(found) if given.ray else []
    for line in unlike:
        print(f"on Ray it is not as it is here: {line}", file=sys.stderr)
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main())
