"""The invariants of docs/reference/format.md, asserted on a folder by Delta Lake and PyArrow.

Nothing here is shared with the store's own `check`, so that neither can hide a slip of the other.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

TABLES = ("classes", "items", "removed", "models", "labelled", "ledger", "labels")
Rows = list[dict[str, Any]]


def _written(row: Any) -> str:
    return json.dumps(row, sort_keys=True, default=str)


@dataclass(frozen=True)
class Plain:
    """A store as somebody without Posterity reads it."""

    path: Path

    def _table(self, name: str) -> DeltaTable | None:
        there = (self.path / name / "_delta_log").is_dir()
        return DeltaTable(str(self.path / name)) if there else None

    def rows(self, name: str) -> Rows:
        """All rows of a table, in an order of their own."""
        table = self._table(name)
        if table is None:
            return []
        listed: Rows = pa.table(table.to_pyarrow_table()).to_pylist()
        return sorted(listed, key=_written)

    def files(self, name: str) -> dict[str, int]:
        """The data files a table names, with their sizes."""
        table = self._table(name)
        if table is None:
            return {}
        listed = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return {action["path"]: action["size_bytes"] for action in listed}

    def transactions(self, name: str, application: str) -> list[int]:
        """The numbers an application's commits carry, in the order of the commits."""
        numbers = []
        for path in sorted((self.path / name / "_delta_log").glob("*.json")):
            for line in path.read_text().splitlines():
                told = json.loads(line).get("txn", {})
                if told.get("appId") == application:
                    numbers.append(int(told["version"]))
        return numbers

    @cached_property
    def description(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.path / "posterity.json").read_text())
        return told

    @cached_property
    def ledger(self) -> Rows:
        """What steps have written about items, by step and row."""
        rows = [row for row in self.rows("ledger") if row["header"] is None]
        return sorted(rows, key=lambda row: (row["step"], row["row"]))

    @cached_property
    def headers(self) -> Rows:
        told = [row["header"] for row in self.rows("ledger") if row["header"] is not None]
        return sorted((json.loads(text) for text in told), key=lambda header: header["step"])

    @cached_property
    def items(self) -> dict[int, dict[str, Any]]:
        """By row, removed ones among them until they are purged."""
        listed = self.rows("items")
        found = {item["row"]: item for item in listed}
        assert len(found) == len(listed), "a row is given to two items"
        return found

    @cached_property
    def removed(self) -> set[int]:
        return {row["row"] for row in self.rows("removed")}

    @cached_property
    def classes(self) -> list[str]:
        listed = sorted(self.rows("classes"), key=lambda row: row["code"])
        assert [row["code"] for row in listed] == list(range(len(listed)))
        names = [row["name"] for row in listed]
        assert len(set(names)) == len(names)
        return names

    @cached_property
    def live(self) -> dict[int, dict[str, Any]]:
        """The items that are there, by row."""
        return {row: item for row, item in self.items.items() if row not in self.removed}

    @cached_property
    def models(self) -> dict[str, dict[str, Any]]:
        """The last revision of each."""
        last: dict[str, dict[str, Any]] = {}
        for row in self.rows("models"):
            told = json.loads(row["settings"])
            known = last.get(row["name"])
            if known is None or told.get("revision", 0) > known["settings"].get("revision", 0):
                last[row["name"]] = row | {"settings": told}
        return last

    @cached_property
    def labelled(self) -> Rows:
        """What models are registered with; a registration that was begun twice is there twice."""
        named = {(name, told["settings"]["digest"]) for name, told in self.models.items()}
        rows = [row for row in self.rows("labelled") if (row["model"], row["digest"]) in named]
        return list({_written(row): row for row in rows}.values())

    @cached_property
    def labels(self) -> dict[int, tuple[str | None, float | None]]:
        """The label of each item that is there and the belief in it: of its last ledger row."""
        last = {row["row"]: row for row in self.ledger}
        found: dict[int, tuple[str | None, float | None]] = {}
        for row in self.live:
            told = last.get(row, {})
            code = told.get("label")
            found[row] = (None, None) if code is None else (self.classes[code], told["belief"])
        return found


def undone(headers: Rows) -> set[int]:
    """Steps that a revert which counts has taken back."""
    gone: set[int] = set()
    for header in sorted(headers, key=lambda header: -header["step"]):
        if header["kind"] == "revert" and header["step"] not in gone:
            gone.add(header["reverts"])
    return gone


def everything(path: Path, *, files: bool = False) -> dict[str, Any]:
    """All that a store says, without what differs between two runs of the same: ids and times."""
    plain = Plain(path)
    headers = []
    for header in plain.headers:
        told = {key: header[key] for key in header if key not in ("time", "run", "request")}
        headers.append(told | {"report": {**told["report"], "run": None}})
    found: dict[str, Any] = {
        "description": {
            key: value
            for key, value in plain.description.items()
            if key not in ("store", "created")
        },
        "headers": headers,
        "ledger": plain.ledger,
        "labelled": plain.labelled,
        "removed": sorted(plain.removed),
        "plans": sorted(_plans(path), key=_written),
    }
    found |= {name: plain.rows(name) for name in ("classes", "items", "models", "labels")}
    if files:
        found["files"] = {name: len(plain.files(name)) for name in TABLES}
    return found


def assert_same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Two stores say the same; if not, only what one of them says alone is told."""
    for key in expected:
        if found[key] == expected[key]:
            continue
        if not isinstance(expected[key], list):
            raise AssertionError(f"{key}: {found[key]} instead of {expected[key]}")
        here, there = (Counter(map(_written, one[key])) for one in (found, expected))
        more, less = list((here - there).elements()), list((there - here).elements())
        raise AssertionError(
            f"{key}: {len(more)} too many {more[:2]}, {len(less)} too few {less[:2]}"
        )


def _plans(path: Path) -> Iterator[dict[str, Any]]:
    """Plans that are not a step yet; each is one file."""
    for file in (path / "runs").glob("*/plan.parquet"):
        plan = pq.ParquetFile(file)
        told = json.loads(plan.schema_arrow.metadata[b"posterity.plan"])
        rows = plan.read(["row"]).column("row").to_pylist()
        yield {key: told[key] for key in told if key != "id"} | {"rows": rows}


def orphans(path: Path) -> list[str]:
    """Files that nothing refers to."""
    plain = Plain(path)
    named = {f"{name}/{file}" for name in TABLES for file in plain.files(name)}
    done = {header["run"] for header in plain.headers}
    found = []
    for file in sorted(path.rglob("*")):
        told = str(file.relative_to(path))
        parts = told.split("/")
        if file.is_dir():
            continue
        known = (
            told in named
            or told == "posterity.json"
            or (len(parts) > 2 and parts[1] == "_delta_log")
            or parts[0] == "fits"
            or (parts[0] == "runs" and parts[1] not in done)
        )
        if parts[-1].startswith(".") or not known:
            found.append(told)
    return found


def assert_invariants(path: Path, votes: Mapping[str, Mapping[str, str]] | None = None) -> Plain:
    """Every invariant; ``votes``: what each model votes on each id, where that is known."""
    plain = Plain(path)
    _assert_files(plain)
    _assert_steps(plain)
    _assert_items(plain)
    _assert_models(plain)
    _assert_votes(plain, votes or {})
    _assert_reviews(plain)
    _assert_pending(plain)
    _assert_published(plain)
    return plain


def _assert_files(plain: Plain) -> None:
    for name in TABLES:
        for file, size in plain.files(name).items():
            whole = plain.path / name / file
            assert whole.exists(), f"{name}/{file} is missing"
            assert whole.stat().st_size == size, f"{name}/{file} has another size"


def _assert_steps(plain: Plain) -> None:
    """Invariants 1, 4 and 6."""
    numbers = [header["step"] for header in plain.headers]
    assert numbers == list(range(len(numbers)))
    assert {row["step"] for row in plain.ledger} <= set(numbers), "rows of a step without header"
    runs = [header["run"] for header in plain.headers]
    assert len(set(runs)) == len(runs), "a run made two steps"
    heads = plain.transactions("ledger", "posterity.head")
    assert heads == numbers, "each step is one commit that carries its number"
    written = Counter((row["step"], row["row"]) for row in plain.ledger)
    assert set(written.values()) <= {1}, "a step writes an item twice"
    for header in plain.headers:
        parameters = header["fit"].get("parameters")
        assert parameters is None or (plain.path / parameters).exists()


def _assert_items(plain: Plain) -> None:
    """Rows are dense, in their shard, and never used twice."""
    shard_rows = plain.description["shard_rows"]
    assert all(item["shard"] == row // shard_rows for row, item in plain.items.items())
    given = plain.transactions("items", "posterity.rows")
    assert given == sorted(given)
    highest = max(given, default=0)
    lost = set(range(highest)) - set(plain.items) - plain.removed
    assert not lost, f"rows without an item: {sorted(lost)[:5]}"
    assert all(row < highest for row in plain.items)
    ids = Counter(item["id"] for item in plain.live.values())
    assert set(ids.values()) <= {1}, "an id is there twice"
    assert {row["row"] for row in plain.ledger} <= set(range(highest))
    assert all(row["shard"] == row["row"] // shard_rows for row in plain.ledger)


def _assert_models(plain: Plain) -> None:
    arrivals = sorted(told["arrival"] for told in plain.models.values())
    assert arrivals == list(range(len(arrivals)))
    revisions = Counter(
        (row["name"], json.loads(row["settings"]).get("revision", 0))
        for row in plain.rows("models")
    )
    assert set(revisions.values()) <= {1}, "a revision of a model is there twice"
    assert {header["model"] for header in plain.headers if header["model"]} <= set(plain.models)
    labelled = Counter((row["model"], row["key"]) for row in plain.labelled)
    assert set(labelled.values()) <= {1}, "a model has two labelled votes on an item"


def _assert_votes(plain: Plain, votes: Mapping[str, Mapping[str, str]]) -> None:
    """Invariant 5; and each vote is the one that the model cast."""
    gone = undone(plain.headers)
    by_step = {header["step"]: header for header in plain.headers}
    live: Counter[tuple[str, int]] = Counter()
    for row in plain.ledger:
        header = by_step[row["step"]]
        if row["vote"] is None:
            continue
        assert header["kind"] == "update"
        assert 0 <= row["vote"] < len(plain.classes)
        live[header["model"], row["row"]] += header["step"] not in gone
        item = plain.items.get(row["row"])
        if item is not None and header["model"] in votes:
            cast = votes[header["model"]][item["id"]]
            assert plain.classes[row["vote"]] == cast, f"{header['model']} did not vote so"
    assert all(count <= 1 for count in live.values()), "two votes of a model on an item count"


def _assert_reviews(plain: Plain) -> None:
    """Invariant 7."""
    rows_of = defaultdict(list)
    for row in plain.ledger:
        rows_of[row["step"]].append(row)
    answers = {
        header["step"]: {row["row"]: row["label"] for row in rows_of[header["step"]]}
        for header in plain.headers
        if header["kind"] == "review"
    }
    for at, header in enumerate(plain.headers):
        gone = undone(plain.headers[: at + 1])
        for row in rows_of[header["step"]]:
            if header["kind"] == "review":
                assert row["vote"] is None
                assert row["proposed"] is None
                pinned = row["label"]
            else:
                pins = [
                    own[row["row"]]
                    for step, own in answers.items()
                    if step < header["step"] and step not in gone and row["row"] in own
                ]
                if not pins:
                    continue
                pinned = pins[-1]
            told = (row["label"], row["belief"], row["entropy"])
            assert told == (pinned, 1.0, 0.0), "what a person decided has moved"


def _assert_pending(plain: Plain) -> None:
    """Invariant 8."""
    last: dict[int, dict[str, Any]] = {}
    rows_of = defaultdict(list)
    for row in plain.ledger:
        rows_of[row["step"]].append(row)
    for header in plain.headers:
        own = {row["row"]: row for row in rows_of[header["step"]]}
        if header["kind"] in ("update", "settle"):
            for at, before in last.items():
                if before["proposed"] is None or at in plain.removed:
                    continue
                assert at in own, f"step {header['step']} has left a flip pending"
                after = own[at]
                if after["vote"] is None:
                    now = (after["label"], after["belief"], after["entropy"])
                    made = (before["proposed"], before["belief_proposed"], before["entropy"])
                    assert now == made, f"step {header['step']} has not made a pending flip"
        last |= own
    shards = set[int]()
    for header in reversed(plain.headers):
        shards |= set(header["pending"])
        if header["kind"] in ("update", "settle"):
            break
    for at, told in last.items():
        if told["proposed"] is not None and at not in plain.removed:
            assert at // plain.description["shard_rows"] in shards


def _assert_published(plain: Plain) -> None:
    """The derived table: the label of each item's last ledger row, of items that are there."""
    rows = plain.rows("labels")
    if not rows and not plain.headers:
        return
    published = {row["row"]: (row["label"], row["belief"]) for row in rows}
    assert len(published) == len(rows)
    assert all(
        plain.items[row["row"]]["id"] == row["id"] for row in rows if row["row"] in plain.items
    )
    assert published == {row: told for row, told in plain.labels.items() if row in published}
    # Items added since the last step are published with the next one.
    assert all(plain.labels[row] == (None, None) for row in set(plain.labels) - set(published))


def assert_grown(before: Plain, after: Plain) -> None:
    """Invariants 2 and 9: the ledger only grows, and only rows of removed items are purged."""
    steps = len(before.headers)
    assert after.headers[:steps] == before.headers
    kept = [row for row in after.ledger if row["step"] < steps]
    purged = {row["row"] for row in before.ledger} - {row["row"] for row in kept}
    assert purged <= after.removed
    known = {(row["step"], row["row"]): row for row in kept}
    for row in before.ledger:
        if row["row"] not in after.removed:
            assert known[row["step"], row["row"]] == row, "a row of the ledger was changed"
    assert after.removed >= before.removed
    assert after.classes[: len(before.classes)] == before.classes
    for at, item in before.items.items():
        assert at in after.removed or after.items[at] == item
