"""Random commands by one to six processes at once, some of them killed, against a plain model.

POSTERITY_OPERATIONS (2,000 in `make torture`) is the number of operations in all; POSTERITY_SEED
draws others. A failure tells its seed and every command that led to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from tests.places import Bucket, Folder, bucket
from tests.stateful import Episode

OPERATIONS = int(os.environ.get("POSTERITY_OPERATIONS", "200"))
SEED = os.environ.get("POSTERITY_SEED", "0")
EACH = 50
"""Operations on one store: a longer history only makes each check of it longer."""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Bucket]:
    with bucket(tmp_path, {}) as place:
        yield place


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, {})


def episodes() -> Iterator[Any]:
    """One in eight on an S3 server whose answers get lost; in `make test` only the first."""
    for number in range(ceil(OPERATIONS / EACH)):
        place = "s3" if number % 8 == 3 else "folder"
        yield pytest.param(number, place, marks=[pytest.mark.long] * (number > 0))


@pytest.mark.parametrize(("number", "place"), list(episodes()))
def test_random_commands_of_several_processes(
    number: int,
    place: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    episode = Episode(f"{SEED} {number}", tmp_path, request.getfixturevalue(place))
    episode.run(min(EACH, OPERATIONS - number * EACH))
    record_property(f"operations ({place})", episode.operations)
    record_property(f"operations stopped ({place})", episode.stopped)
    record_property(f"operations that lost to another ({place})", episode.conflicts)
