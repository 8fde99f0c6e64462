"""Random commands by several processes at once, some of them killed, beside a plain model.

An episode is one store: rounds of commands until it has seen so many operations. After each round
what was killed, or lost to somebody else, is given again, one command after the other; then the
store must be what the model says, with every invariant of docs/reference/format.md.
"""

from __future__ import annotations

import json
import random
import signal
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity import Store
from posterity.storage import failpoints
from tests.commands import Ended, Running, run
from tests.invariants import Plain, assert_grown, assert_invariants, orphans
from tests.places import Place
from tests.stores import NAMES

MODELS = 8
SHARD_ROWS = 20
STOPPED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, failpoints.EXIT_CODE, 130, 143)


def number_of(item: str) -> int:
    return int(item.removeprefix("item-"))


def truth(number: int) -> str:
    return str(NAMES[zlib.crc32(f"truth {number}".encode()) % len(NAMES)])


def vote(model: str, number: int) -> str:
    """What a model votes on an item: always the same, and mostly right."""
    drawn = zlib.crc32(f"{model} {number}".encode())
    return truth(number) if drawn % 100 < 60 else str(NAMES[drawn // 100 % len(NAMES)])


def _predict(model: str, batch: pa.Table) -> np.ndarray:
    time.sleep(0.002)
    return np.array([vote(model, number) for number in batch.column("number").to_pylist()])


for _number in range(MODELS):  # as `--predict tests.stateful:m3` names them
    globals()[f"m{_number}"] = partial(_predict, f"m{_number}")


class Votes(Mapping[str, str]):
    """What a model votes on each id."""

    def __init__(self, model: str) -> None:
        self.model = model

    def __getitem__(self, item: str) -> str:
        return vote(self.model, number_of(item))

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Command:
    """A command, and what is true of a store where it was done."""

    words: list[str]
    done: Callable[[], None] = lambda: None
    reads: bool = False
    """Whether it changes nothing: then it need not be given again."""
    after_conflict: list[str] = field(default_factory=list)
    """What else is said when it is given again."""
    step: Callable[[dict[str, Any]], bool] | None = None
    """Whether a header is that of the step it makes."""
    impossible: Callable[[Plain], bool] = lambda _: False
    """Whether what others have done in the meantime makes it a mistake, that is refused."""

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass
class Episode:
    """One store and the model of it."""

    seed: str
    scratch: Path
    place: Place
    most: int = 6
    """Processes at once."""
    trail: list[str] = field(default_factory=list)
    """Every command so far, so that a failure can be told."""
    there: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=lambda: set(NAMES.tolist()))
    models: set[str] = field(default_factory=set)
    numbers: int = 0
    """Items made so far."""
    names: int = 0
    """Classes, requests and files made so far."""
    made: list[tuple[Command, int]] = field(default_factory=list)
    """Commands of a round with the steps they say they have made."""
    seen: Plain | None = None
    operations: int = 0
    stopped: int = 0
    conflicts: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.store = self.place.copied(self.scratch / "nothing yet")
        self.environment = self.place.environment | {
            "XDG_CONFIG_HOME": str(self.scratch / "config")
        }
        labelled = range(10**6, 10**6 + 60)
        for model in (f"m{number}" for number in range(MODELS)):
            rows = {
                "id": [f"labelled-{number}" for number in labelled],
                "truth": [truth(number) for number in labelled],
                "vote": [vote(model, number) for number in labelled],
            }
            pq.write_table(pa.table(rows), self.scratch / f"labelled-{model}.parquet")

    def _fresh(self) -> int:
        self.names += 1
        return self.names

    # Each of these draws a command, or says that there is none now.

    def init(self) -> Command:
        words = ["init", self.store, "--classes", ",".join(NAMES)]
        return Command([*words, "--shard-rows", str(SHARD_ROWS)])

    def _items(self) -> tuple[Path, list[int]]:
        start = self.numbers
        self.numbers += self.rng.randint(3, 15)
        return self.scratch / f"items-{start}.parquet", list(range(start, self.numbers))

    def add(self) -> Command:
        path, numbers = self._items()
        ids = [f"item-{number}" for number in numbers]
        pq.write_table(pa.table({"id": ids, "number": numbers}), path)
        return Command(["add", self.store, str(path)], lambda: self.there.update(ids))

    def import_(self) -> Command | None:
        if not self.models:
            return None
        path, numbers = self._items()
        model = self.rng.choice(sorted(self.models))
        ids = [f"item-{number}" for number in numbers]
        votes = [vote(model, number) for number in numbers]
        pq.write_table(pa.table({"id": ids, "number": numbers, "pred": votes}), path)
        words = ["import", self.store, str(path), "--label", "pred", "--model", model]
        return Command(words, lambda: self.there.update(ids))

    def remove(self) -> Command | None:
        if len(self.there) < 10:
            return None
        ids = self.rng.sample(sorted(self.there), self.rng.randint(1, 3))

        def impossible(plain: Plain) -> bool:
            # One that somebody else removed is not known any more once it is purged.
            return not set(ids) <= {item["id"] for item in plain.items.values()}

        words = ["remove", self.store, *ids]
        return Command(words, lambda: self.there.difference_update(ids), impossible=impossible)

    def classes_(self) -> Command:
        name = f"class-{self._fresh()}"
        words = ["classes", self.store, "--append", f"{name},"]
        return Command(words, lambda: self.classes.add(name))

    def register(self) -> Command | None:
        unknown = sorted({f"m{number}" for number in range(MODELS)} - self.models)
        if not unknown:
            return None
        model = self.rng.choice(unknown)
        words = ["model", self.store, model, "--predict", f"tests.stateful:{model}"]
        words += ["--labelled", str(self.scratch / f"labelled-{model}.parquet")]
        return Command(words, lambda: self.models.add(model))

    def update(self) -> Command | None:
        if not self.models or not self.there:
            return None
        model, seed = self.rng.choice(sorted(self.models)), self._fresh()
        budget = self.rng.choice(["10%", "30%", "5", "100%"])
        rule = self.rng.choice(["cost-ratio:2", "max-belief+confirm", "max-belief"])
        words = ["update", self.store, model, "--budget", budget, "--rule", rule]
        words += ["--seed", str(seed), "--batch", "7", "--json"]
        rebase = self.rng.random() < 0.7
        return Command(
            [*words, *["--rebase"] * rebase],
            after_conflict=[] if rebase else ["--rebase"],
            step=lambda header: header["seed"] == seed and header["model"] == model,
        )

    def revert(self) -> Command | None:
        steps = [] if self.seen is None else self.seen.headers
        targets = [header["step"] for header in steps if header["kind"] != "revert"][-4:]
        if not targets:
            return None
        return Command(["revert", self.store, str(self.rng.choice(targets)), "--json"])

    def settle(self) -> Command:
        return Command(["settle", self.store])

    def redecide(self) -> Command:
        rule = self.rng.choice(["balanced", "max-belief", "cost-ratio:3"])
        return Command(["redecide", self.store, "--rule", rule])

    def tune(self) -> Command:
        """Refused where too few labelled items have votes of all models."""
        goal = self.rng.choice(["at-most:40%", "at-most:60%"])
        words = ["tune", self.store, "--goal", goal, "--apply"]
        return Command(words, impossible=lambda _: True)

    def review(self) -> Command | None:
        if len(self.there) < 10:
            return None
        ids = self.rng.sample(sorted(self.there), self.rng.randint(1, 5))
        answers = [truth(number_of(item)) for item in ids]
        path = self.scratch / f"answers-{self._fresh()}.parquet"
        pq.write_table(pa.table({"id": ids, "answer": answers}), path)
        learn = ["--learn"] * (self.rng.random() < 0.3)

        def impossible(plain: Plain) -> bool:
            return not set(ids) & {item["id"] for item in plain.live.values()}

        words = ["review", self.store, "--answers", str(path), *learn]
        return Command(words, impossible=impossible)

    def compact(self) -> Command:
        return Command(["compact", self.store])

    def vacuum(self) -> Command:
        return Command(["vacuum", self.store, "--hours", "0"])

    def plan(self) -> Command | None:
        if not self.models or not self.there:
            return None
        words = ["plan", self.store, self.rng.choice(sorted(self.models)), "--budget", "20%"]
        return Command([*words, "--seed", str(self._fresh())])

    def labels(self) -> Command:
        out = self.scratch / f"labels-{self._fresh()}.parquet"
        return Command(["labels", self.store, "--out", str(out)], reads=True)

    def check(self) -> Command:
        return Command(["check", self.store], reads=True)

    def _draw(self) -> Command:
        weights = {
            self.add: 4,
            self.import_: 1,
            self.remove: 2,
            self.classes_: 1,
            self.register: 2,
            self.update: 6,
            self.revert: 2,
            self.settle: 1,
            self.redecide: 1,
            self.tune: 1,
            self.review: 2,
            self.compact: 3,
            self.vacuum: 3,
            self.plan: 1,
            self.labels: 1,
            self.check: 1,
        }
        while True:
            (drawn,) = self.rng.choices(list(weights), list(weights.values()))
            if (command := drawn()) is not None:
                return command

    def run(self, operations: int) -> None:
        """Rounds until there were so many operations."""
        try:
            self._round([self.init() for _ in range(self.rng.randint(1, self.most))])
            while self.operations < operations:
                self._round([self._draw() for _ in range(self.rng.randint(1, self.most))])
        except Exception as error:
            told = "\n".join(self.trail)
            raise AssertionError(f"seed {self.seed!r}: {error}\nAll commands:\n{told}") from error

    def _round(self, commands: list[Command]) -> None:
        self.operations += len(commands)
        ended = self._at_once(commands)
        again = [
            command
            for command, done in zip(commands, ended, strict=True)
            if not self._accepted(command, done, commands)
        ]
        # Repeatable: also some of those that were done.
        again += [command for command in commands if command not in again and self._chance(0.2)]
        self.rng.shuffle(again)
        for command in again:
            self._again(command)
        self._assert_equal()

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _at_once(self, commands: list[Command]) -> list[Ended]:
        start = time.monotonic() + 0.05 * len(commands)
        running = []
        for command in commands:
            environment, how, at = dict(self.environment), None, 0.0
            if self._chance(0.4):
                how = self.rng.choice(
                    [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
                )
                at = self.rng.uniform(0, 0.3)
                if self._chance(0.4):
                    boundary = self.rng.choice(failpoints.NAMES)
                    environment[failpoints.VARIABLE] = f"{boundary}:{self.rng.randint(1, 4)}"
                    how = None
            running.append((Running(command.words, self.scratch, environment, at=start), how, at))
        for process, how, at in sorted(running, key=lambda one: one[2]):
            if how is not None:
                process.stop(at, how)
        ended = [process.ended() for process, _, _ in running]
        self.trail.append("at once:")
        for command, done in zip(commands, ended, strict=True):
            self.trail.append(f"  {command} -> {done.code} {done.output.strip()[-300:]!r}")
        return ended

    def _accepted(self, command: Command, done: Ended, beside: list[Command]) -> bool:
        """Whether a command was done; else it was killed, or lost to another."""
        if done.code == 0:
            self._acknowledge(command, done)
            return True
        if done.code in STOPPED:
            self.stopped += 1
            return command.reads
        vacuums = any(other.words[0] == "vacuum" for other in beside)
        if command.reads and vacuums:
            return True  # its files may be deleted while it reads
        assert done.code == 1, f"{command}: {done.code} {done.output}"
        if self._is_impossible(command):
            return True
        told = done.output
        signs = ["meantime", "run it again", "run the same command again", "--rebase"]
        signs += ["conflict", "changes too often"]
        lost = any(sign in told for sign in signs)
        assert lost, f"{command}: {told}"
        self.conflicts += 1
        command.words += command.after_conflict
        return command.reads

    def _acknowledge(self, command: Command, done: Ended) -> None:
        command.done()
        if command.step is not None:
            made = json.loads(done.output[done.output.index("{") :])["step"]
            if made is not None:
                self.made.append((command, made))

    def _is_impossible(self, command: Command) -> bool:
        plain = Plain(self.place.local(self.store))
        if not command.impossible(plain):
            return False
        if command.words[0] == "remove" and not set(command.words[2:]) & {
            item["id"] for item in plain.live.values()
        }:
            command.done()  # before it was killed, or somebody else has
        return True

    def _again(self, command: Command) -> None:
        done = run(command.words, self.scratch, self.environment)
        self.trail.append(f"  again {command} -> {done.code} {done.output.strip()[-300:]!r}")
        if done.code == 1 and self._is_impossible(command):
            return
        if done.code == 1 and command.after_conflict and "--rebase" not in command.words:
            command.words += command.after_conflict  # somebody made a step since it was planned
            self._again(command)
            return
        assert done.code == 0, f"given again, {command}: {done.code} {done.output}"
        self._acknowledge(command, done)

    def _assert_equal(self) -> None:
        """The store is what the model says."""
        path = self.place.local(self.store)
        assert Store(path).check() == []
        plain = assert_invariants(
            path, {f"m{number}": Votes(f"m{number}") for number in range(MODELS)}
        )
        assert {item["id"] for item in plain.live.values()} == self.there
        assert set(plain.classes) == self.classes
        assert set(plain.models) == self.models
        if self.seen is not None:
            assert_grown(self.seen, plain)
        self.seen = plain
        for command, step in self.made:
            assert command.step is not None
            assert command.step(plain.headers[step]), f"{command} says it made step {step}"
        self.made.clear()
        if self._chance(0.3):
            done = run(["vacuum", self.store, "--hours", "0"], self.scratch, self.environment)
            assert done.code == 0, done.output
            assert orphans(self.place.local(self.store)) == []
