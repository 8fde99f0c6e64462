"""Commands that are killed at any moment, and given again: they finish what they began.

POSTERITY_KILLS (500 in `make torture`) is the number of kills in all, seven in ten of them in a
folder; a fifth as many processes are terminated, and as many interrupted. POSTERITY_SEED draws
other moments.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from posterity import Store
from posterity.storage import failpoints
from tests.commands import ASKED, OPERATIONS, Ended, Running, asked, run, write_inputs
from tests.invariants import assert_invariants, assert_same, everything, orphans
from tests.killing import durable_votes
from tests.places import Bucket, Folder, Place, bucket

KILLS = os.environ.get("POSTERITY_KILLS")
SEED = os.environ.get("POSTERITY_SEED", "0")
SIGNALS = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM, "interrupted": signal.SIGINT}
BY_ITSELF = {
    "killed": (-signal.SIGKILL, failpoints.EXIT_CODE),
    "terminated": (-signal.SIGTERM, 143),
    "interrupted": (-signal.SIGINT, 130),
}
"""What a process that was stopped in such a way ends with."""


def trials(how: str, place: Place) -> int:
    """How many processes of each operation are stopped so; three in ten on the S3 server."""
    if KILLS is None:
        return 1
    share = (1.0 if how == "killed" else 0.2) * (0.3 if isinstance(place, Bucket) else 0.7)
    return ceil(int(KILLS) * share / len(OPERATIONS))


@dataclass(frozen=True)
class Prepared:
    """A store just before an operation, and all that is to be seen after it, undisturbed."""

    before: Path
    after: dict[str, Any]
    exported: list[dict[str, Any]] | None
    seconds: float
    reached: dict[str, int]


@dataclass(frozen=True)
class Bench:
    """Where operations are tried."""

    scratch: Path
    place: Place

    def command(self, text: str, store: str, out: Path) -> list[str]:
        put = {"{store}": store, "{in}": str(self.scratch), "{out}": str(out)}
        words = text.split()
        for name, value in put.items():
            words = [word.replace(name, value) for word in words]
        return words

    @property
    def log(self) -> Path:
        return Path(self.place.environment[ASKED])

    def run(self, text: str, store: str, out: Path) -> Ended:
        return run(self.command(text, store, out), self.scratch, self.place.environment)


def exported(out: Path, name: str) -> list[dict[str, Any]] | None:
    """What an export has written, as somebody else reads it."""
    if not name:
        return None
    rows: list[dict[str, Any]] = ds.dataset(out / name, format="parquet").to_table().to_pylist()
    return sorted(rows, key=str)


def litter(store: Path) -> None:
    """What killed writers leave behind."""
    for name in (
        "items/shard=0/items-000000000000.parquet",
        "ledger/shard=1/step-000009-000000000000.parquet",
        "ledger/shard=-1/.step-000009-000000000000.parquet.01234567",
        "labels/shard=2/.labels-000000.parquet.01234567",
        "runs/000000000000/.plan.parquet.01234567",
        "fits/.0123.npz.01234567",
        ".posterity.json.01234567",
    ):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"cut short")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    write_inputs(folder)
    return folder


def environment(inputs: Path, place: str) -> dict[str, str]:
    return {ASKED: str(inputs / f"asked-{place}"), "XDG_CONFIG_HOME": str(inputs / "config")}


@pytest.fixture(scope="module")
def folder(inputs: Path) -> Folder:
    return Folder(inputs, environment(inputs, "folder"))


@pytest.fixture(scope="module")
def s3(inputs: Path) -> Iterator[Bucket]:
    with bucket(inputs, environment(inputs, "s3")) as place:
        yield place


FEW = ("init", "add", "remove", "update", "compact")


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.long)])
def bench(request: pytest.FixtureRequest, inputs: Path) -> Bench:
    return Bench(inputs, request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def stores(inputs: Path, folder: Folder) -> Callable[[str], Path]:
    """The store just before each operation; those that begin alike are made from one another."""
    made: dict[tuple[str, ...], Path] = {}
    bench = Bench(inputs, folder)

    def after(commands: tuple[str, ...]) -> Path:
        if commands not in made:
            before = after(commands[:-1]) if commands else None
            path = inputs / f"before-{len(made)}"
            if before is not None:
                if before.exists():
                    shutil.copytree(before, path)
                done = bench.run(commands[-1], str(path), inputs)
                assert done.code == 0, f"{commands[-1]}: {done.output}"
            made[commands] = path
        return made[commands]

    def store(name: str) -> Path:
        path = after(tuple(OPERATIONS[name].before))
        if OPERATIONS[name].litters:
            littered = inputs / f"littered-{name}"
            if not littered.exists():
                shutil.copytree(path, littered)
                litter(littered)
            return littered
        return path

    return store


@pytest.fixture(scope="module")
def undisturbed(stores: Callable[[str], Path], inputs: Path) -> Callable[[str, Place], Prepared]:
    """For each operation its store before it and what there is after it; and how long it takes."""
    known: dict[tuple[str, str], Prepared] = {}

    def prepare(name: str, place: Place) -> Prepared:
        key = name, type(place).__name__
        if key not in known:
            bench, out, operation = Bench(inputs, place), inputs / "undisturbed", OPERATIONS[name]
            out.mkdir(exist_ok=True)
            store = place.copied(stores(name))
            command = bench.command(operation.command, store, out)
            done = Running(command, inputs, place.environment, count=True).ended()
            assert done.code == 0, f"{operation.command}: {done.output}"
            after = everything(place.local(store), files=name == "compact")
            told = exported(out, operation.exports)
            known[key] = Prepared(stores(name), after, told, done.seconds, done.reached)
            place.drop(store)
            shutil.rmtree(out)
        return known[key]

    return prepare


def assert_sound(bench: Bench, store: str) -> set[int]:
    """Whatever happened, a store opens and nothing in it is broken; says whose votes it keeps."""
    path = bench.place.local(store)
    if not (path / "posterity.json").exists():
        return set()
    assert Store(path).check() == []
    return durable_votes(path)


def assert_finished(bench: Bench, name: str, store: str, out: Path, prepared: Prepared) -> None:
    """All is there that an undisturbed run leaves, and nothing else."""
    path = bench.place.local(store)
    assert Store(path).check() == []
    assert_same(everything(path, files=name == "compact"), prepared.after)
    assert exported(out, OPERATIONS[name].exports) == prepared.exported
    assert_invariants(path)
    done = bench.run("vacuum {store} --hours 0", store, out)
    assert done.code == 0, done.output
    path = bench.place.local(store)
    assert orphans(path) == []
    assert_same(everything(path, files=name == "compact"), prepared.after)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_command_given_twice(
    bench: Bench, name: str, undisturbed: Callable[[str, Place], Prepared], tmp_path: Path
) -> None:
    prepared = undisturbed(name, bench.place)
    store = bench.place.copied(prepared.before)
    for _ in range(2):
        done = bench.run(OPERATIONS[name].command, store, tmp_path)
        assert done.code == 0, done.output
    assert_finished(bench, name, store, tmp_path, prepared)
    bench.place.drop(store)


def stopping() -> Iterator[Any]:
    """Signals other than SIGKILL for a few commands only, unless it is `make torture`."""
    for how in SIGNALS:
        for name in OPERATIONS:
            if how != "killed" and name not in FEW and "POSTERITY_KILLS" not in os.environ:
                continue
            yield pytest.param(name, how, marks=[pytest.mark.long] * (how != "killed"))


@pytest.mark.parametrize(("name", "how"), list(stopping()))
def test_a_command_that_was_stopped(
    bench: Bench,
    name: str,
    how: str,
    undisturbed: Callable[[str, Place], Prepared],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    prepared, place = undisturbed(name, bench.place), type(bench.place).__name__
    stopped, wanted = 0, trials(how, bench.place)
    for trial in range(20 * wanted):
        rng = random.Random(f"{SEED} {place} {name} {how} {trial}")
        out = tmp_path / f"{trial}"
        out.mkdir()
        store = bench.place.copied(prepared.before)
        command = bench.command(OPERATIONS[name].command, store, out)
        told = dict(bench.place.environment)
        at = rng.uniform(0, 1.1 * prepared.seconds)
        moment = f"after {at:.4f} s"
        # A third of them where it matters most; the others anywhere.
        if how == "killed" and prepared.reached and rng.random() < 0.33:
            boundary = rng.choice(sorted(prepared.reached))
            moment = f"{boundary}:{rng.randint(1, prepared.reached[boundary])}"
            told[failpoints.VARIABLE] = moment
        running = Running(command, bench.scratch, told)
        if failpoints.VARIABLE not in told:
            running.stop(at, SIGNALS[how])
        done = running.ended()
        case = f"trial {trial}: {' '.join(command)} {how} {moment}"
        assert done.code in (0, *BY_ITSELF[how]), f"{case}: {done.code} {done.output}"
        stopped += done.code != 0
        try:
            kept = assert_sound(bench, store)
            bench.log.unlink(missing_ok=True)
            again = bench.run(OPERATIONS[name].command, store, out)
            assert again.code == 0, f"given again: {again.code} {again.output}"
            assert kept & set(asked(bench.log)) == set(), "a finished batch is asked again"
            assert_finished(bench, name, store, out, prepared)
        except Exception as error:  # which trial it was is worth more than where it failed
            raise AssertionError(f"{case} ({done.code}): {error}") from error
        bench.place.drop(store)
        if stopped >= wanted:
            break
    else:
        raise AssertionError("the command ends before it can be stopped")
    record_property(f"{how} ({place})", stopped)


def test_two_stores_in_one_place(bench: Bench, tmp_path: Path) -> None:
    """One of two that are made at once with other classes is refused, however often it asks."""
    for trial in range(3):
        store = bench.place.copied(tmp_path / "nothing")
        commands = [
            ["init", store, "--classes", classes, "--shard-rows", "25"]
            for classes in ("cat,dog", "cat,fox")
        ]
        at = time.monotonic() + 0.2
        running = [
            Running(command, bench.scratch, bench.place.environment, at=at + 0.01 * trial * late)
            for late, command in enumerate(commands)
        ]
        ended = [one.ended() for one in running]
        assert sorted(done.code for done in ended) == [0, 1], [done.output for done in ended]
        for command, done in zip(commands, ended, strict=True):
            again = run(command, bench.scratch, bench.place.environment)
            assert again.code == done.code, again.output
        path = bench.place.local(store)
        assert Store(path).check() == []
        won = next(command for command, done in zip(commands, ended, strict=True) if not done.code)
        assert assert_invariants(path).classes == won[3].split(",")
        bench.place.drop(store)
