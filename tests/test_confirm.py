"""Decisions with patience: flips that are pending in a store, in memory, and by plain loops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from posterity import Confusion, Model, Store, VoteFile, priors
from posterity.cli import run as run_cli
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.history import Current, ShardHistory
from posterity.engine.ledger.proposals import pending_of, pending_parts
from posterity.engine.ledger.reports import Report
from posterity.engine.maintenance import check
from posterity.engine.steps import commit_votes
from posterity.method import step as method_step
from posterity.method.decide.rules import parse
from posterity.storage.files import LocalFiles, open_files
from tests import naive
from tests.stores import NAMES, World, contents, registered, small_store

CLASSES = ["a", "b", "c"]
ACCURACIES = [0.62, 0.71, 0.55, 0.83, 0.47, 0.91]
"""All different, so that no two beliefs are the same but for rounding."""
RULES = [
    "max-belief+confirm",
    "cost-ratio:2+confirm",
    "max-belief-min-entropy+confirm",
    "majority-vote+confirm",
    "replace+confirm",
    "max-belief",
    "cost-ratio:3",
]
ITEMS = 9


@dataclass
class Move:
    """One step: an update with votes on some items, a settle, a review, or a revert."""

    rule: str | None = None
    votes: dict[int, int] = field(default_factory=dict)
    reverts: int | None = None
    answers: dict[int, int] = field(default_factory=dict)


@dataclass
class Standing:
    """Where one item stands, by plain loops over the steps that count."""

    label: int = naive.NONE
    proposed: int = naive.NONE
    belief: float = 0.0
    belief_proposed: float = 0.0


def stand(moves: Sequence[Move], item: int) -> Standing:
    undone: set[int] = set()
    for at in reversed(range(len(moves))):
        target = moves[at].reverts
        if target is not None and at not in undone:
            undone.add(target)
    now = Standing()
    cast: list[int] = []
    confusions: list[naive.Matrix] = []
    entropy = naive.entropy([1 / 3] * 3)
    answer: int | None = None
    for at, move in enumerate(moves):
        if at in undone or move.reverts is not None or (move.answers and item not in move.answers):
            continue
        if item in move.answers:
            answer = move.answers[item]
            continue
        if item not in move.votes:
            if now.proposed != naive.NONE:
                now = Standing(now.proposed, naive.NONE, now.belief_proposed)
            continue
        assert move.rule is not None
        cast.append(move.votes[item])
        confusions.append(naive.spread([ACCURACIES[at]] * 3))
        joint = naive.log_joint([1 / 3] * 3, cast, confusions)
        believed = naive.belief(joint)
        wanted = naive.decide(
            move.rule,
            label=now.label,
            vote=cast[-1],
            best=naive.most_believed(joint, cast, now.label),
            probabilities=believed,
            entropy_before=entropy,
            entropy_after=naive.entropy(believed),
            votes=cast,
            truth=0,
        )
        entropy = naive.entropy(believed)
        label, proposed = naive.confirmed(move.rule, now.label, wanted, now.proposed)
        waiting = believed[proposed] if proposed != naive.NONE else 0.0
        now = Standing(label, proposed, believed[label], waiting)
    return now if answer is None else Standing(answer, naive.NONE, 1.0)


@st.composite
def stories(draw: st.DrawFn) -> list[Move]:
    everything = st.fixed_dictionaries({item: st.integers(0, 2) for item in range(ITEMS)})
    some = st.dictionaries(st.integers(0, ITEMS - 1), st.integers(0, 2), min_size=1)
    moves = [Move("max-belief", draw(everything))]
    for at in range(1, draw(st.integers(3, 6))):
        kind = draw(st.sampled_from(["update", "update", "update", "settle", "revert", "review"]))
        undone = {move.reverts for move in moves}
        free = [step for step in range(1, at) if step not in undone]
        if kind == "revert" and free:
            moves.append(Move(reverts=draw(st.sampled_from(free))))
        elif kind == "review":
            # Never all items: an update needs one it may look at.
            answers = st.dictionaries(st.integers(0, 5), st.integers(0, 2), min_size=1, max_size=4)
            moves.append(Move(answers=draw(answers)))
            repeated = any(
                move.answers == moves[-1].answers or _said(moves[:-1], moves[-1])
                for move in moves[:-1]
            )
            if repeated:  # then there would be nothing to do
                moves.pop()
                moves.append(Move(draw(st.sampled_from(RULES)), draw(some)))
        elif kind == "settle" and any(stand(moves, item).proposed >= 0 for item in range(ITEMS)):
            moves.append(Move())
        else:
            moves.append(Move(draw(st.sampled_from(RULES)), draw(some)))
    return moves


def _said(moves: Sequence[Move], review: Move) -> bool:
    """Whether some of these answers may be there already."""
    return any(review.answers.items() & move.answers.items() for move in moves)


def carry_out(store: Store, at: int, move: Move) -> None:
    if move.reverts is not None:
        assert store.revert(move.reverts).step == at
        return
    if move.answers:
        answers = {"id": list(move.answers), "answer": [CLASSES[k] for k in move.answers.values()]}
        done = store.review(answers)
        assert (done.step, done.items) == (at, len(move.answers))
        return
    if move.rule is None:
        assert store.settle().step == at
        return
    votes = pa.table(
        {
            "id": list(move.votes),
            "vote": [CLASSES[vote] for vote in move.votes.values()],
        }
    )
    model = Model(f"model-{at}", accuracy=ACCURACIES[at])
    report = store.update(
        model, budget="100%", rule=move.rule, votes=VoteFile(votes, keep_unplanned=True)
    )
    assert (report.step, report.evaluations) == (at, len(move.votes))


def current(store: Store) -> Current:
    context = Context(open_files(store.path))
    parts = [
        ShardHistory.read(context.ledger, shard, start, items).current([], 0.0)
        for shard, start, items in context.shards
    ]
    names = vars(parts[0])
    return Current(*(np.concatenate([vars(part)[name] for part in parts]) for name in names))


@given(stories())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_a_store_equals_naive(moves: list[Move]) -> None:
    """After every step; reverts restore what there would be without the step they undo."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        store = Store.create(Path(folder, "store"), classes=CLASSES, shard_rows=4)
        store.add({"id": list(range(ITEMS))})
        for at, move in enumerate(moves):
            carry_out(store, at, move)
            now = current(store)
            wanted = [stand(moves[: at + 1], item) for item in range(ITEMS)]
            assert now.label.tolist() == [one.label for one in wanted]
            assert now.proposed.tolist() == [one.proposed for one in wanted]
            assert now.belief == pytest.approx([one.belief for one in wanted], rel=1e-4)
            believed = [one.belief_proposed for one in wanted]
            assert now.belief_proposed == pytest.approx(believed, rel=1e-4)
            assert store.status()["pending"] == sum(one.proposed >= 0 for one in wanted)
        assert store.check() == []


@pytest.mark.long
@given(stories(), st.integers(1, 3), st.integers(0, ITEMS - 1))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_a_store_equals_naive_without_an_item(moves: list[Move], after: int, gone: int) -> None:
    """One is removed after some steps, and purged before the last; nobody else notices."""
    for move in moves[after:]:
        assume(move.votes.keys() != {gone} and move.answers.keys() != {gone})
    for at, move in enumerate(moves[after:], start=after):
        settling = move.reverts is None and move.rule is None and not move.answers
        others = (stand(moves[:at], item).proposed for item in range(ITEMS) if item != gone)
        assume(not settling or any(one != naive.NONE for one in others))
        move.votes.pop(gone, None)
        move.answers.pop(gone, None)
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        store = Store.create(Path(folder, "store"), classes=CLASSES, shard_rows=4)
        store.add({"id": list(range(ITEMS))})
        for at, move in enumerate(moves):
            if at == after:
                store.remove(gone)
            if at == len(moves) - 1 and at > after:
                store.compact()
            carry_out(store, at, move)
        left = [item for item in range(ITEMS) if item != gone or after >= len(moves)]
        wanted = [stand(moves, item) for item in left]
        assert store.labels()["label"].to_pylist() == [
            None if one.label == naive.NONE else CLASSES[one.label] for one in wanted
        ]
        assert store.status()["pending"] == sum(one.proposed >= 0 for one in wanted)
        pinned = store.status()["reviewed"]
        assert pinned == sum(one.belief == 1.0 for one in wanted)
        assert store.check() == []


@given(stories())
@settings(max_examples=100, deadline=None)
def test_shards_in_memory_equal_naive(moves: list[Move]) -> None:
    shard = method_step.Shard(priors.uniform(3), ITEMS, [parse("replace")])
    (labels,) = shard.labels
    done: list[Move] = []
    for move in moves:
        if move.reverts is not None or move.answers:
            continue
        at = len(done)
        before = [stand(done, item) for item in range(ITEMS)]
        done.append(move)
        after = [stand(done, item) for item in range(ITEMS)]
        if move.rule is None:
            (decision,) = method_step.settle(shard)
        else:
            shard.rules = [parse(move.rule)]
            rows = np.array(sorted(move.votes))
            votes = np.array([move.votes[row] for row in rows.tolist()], dtype=np.int32)
            confusion = Confusion.from_accuracy(ACCURACIES[at], classes=3)
            (decision,) = method_step.update(shard, rows, votes, confusion)
        assert labels.label.tolist() == [one.label for one in after]
        assert labels.proposed.tolist() == [one.proposed for one in after]
        assert labels.belief == pytest.approx([one.belief for one in after])
        flipped = {
            item
            for item in range(ITEMS)
            if before[item].label not in (naive.NONE, after[item].label)
        }
        assert set(decision.rows[decision.flipped].tolist()) == flipped
        for row, was, now in zip(
            decision.rows, decision.belief_before, decision.belief_after, strict=True
        ):
            if row not in move.votes:
                assert was == pytest.approx(before[row].belief)
                assert now == pytest.approx(before[row].belief_proposed)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Items 0 to 5 in shards of two, all labelled a; then b is proposed for 0, 1 and 2."""
    held = Store.create(tmp_path / "store", classes=CLASSES, shard_rows=2)
    held.add({"id": [f"item-{at}" for at in range(6)]})
    vote(held, "first", 0.5, dict.fromkeys(range(6), "a"), "max-belief")
    vote(held, "second", 0.8, dict.fromkeys(range(3), "b"), "max-belief+confirm")
    return held


def vote(store: Store, model: str, accuracy: float, votes: dict[int, str], rule: str) -> Report:
    table = pa.table({"id": [f"item-{at}" for at in votes], "vote": list(votes.values())})
    return store.update(Model(model, accuracy=accuracy), budget="100%", rule=rule, votes=table)


def labels(store: Store) -> str:
    return "".join(store.labels()["label"].to_pylist())


def test_a_flip_waits_for_the_next_vote(store: Store) -> None:
    assert labels(store) == "aaaaaa"
    assert store.status()["pending"] == 3
    told = store.steps[-1].report
    assert (told["flips"], told["pending"], told["held_back"]) == (0, 3, 0)
    report = vote(store, "third", 0.9, {0: "c", 1: "a", 5: "b"}, "max-belief+confirm")
    # 0 flips to what is wanted now, 1 does not, 2 has no vote, and 5 is proposed.
    assert labels(store) == "cabaaa"
    assert (report.flips, report.confirmed, report.settled, report.dropped) == (2, 1, 1, 1)
    assert report.pending == 1
    assert "1 were made with a new vote, 1 without one, and 1 dropped" in str(report)
    assert "1 flip is pending" in str(report)
    assert store.check() == []


def test_flips_made_without_a_vote_are_expected_as_when_they_were_proposed(store: Store) -> None:
    before = current(store)
    report = vote(store, "third", 0.9, {5: "a"}, "max-belief")
    assert report.flips == report.settled == 3
    assert report.expected_positive_flips == pytest.approx(before.belief_proposed[:3].sum())
    assert report.expected_negative_flips == pytest.approx(before.belief[:3].sum())
    assert labels(store) == "bbbaaa"
    assert store.labels()["step"].to_pylist() == [2, 2, 2, 0, 0, 0]
    published = contents(store)["published"]
    assert [row["label"] for row in published] == list("bbbaaa")
    reasons = {"pending flip, no vote of third"}
    assert set(store.flips(2)["reason"].to_pylist()) == reasons
    assert set(store.labels(since=0)["reason"].to_pylist()) == reasons


def test_a_rule_without_patience_decides_at_once(store: Store) -> None:
    vote(store, "third", 0.9, {0: "a", 1: "c"}, "max-belief")
    assert labels(store) == "acbaaa"
    assert store.status()["pending"] == 0
    reasons = store.labels(since=1)["reason"].to_pylist()
    assert reasons == ["vote of third under max-belief", "pending flip, no vote of third"]


def test_settle_makes_all_of_them_once(store: Store) -> None:
    done = store.settle()
    assert (done.step, done.settled) == (2, 3)
    assert labels(store) == "bbbaaa"
    assert "3 pending flips made" in str(done)
    again = store.settle()
    assert (again.step, again.settled) == (None, 0)
    assert "no flip is pending" in str(again)
    assert len(store.steps) == 3
    assert store.check() == []
    assert set(store.flips()["reason"].to_pylist()) == {"pending flip, settled"}
    store.revert(2)
    assert (labels(store), store.status()["pending"]) == ("aaaaaa", 3)
    store.revert(3)
    assert (labels(store), store.status()["pending"]) == ("bbbaaa", 0)
    store.revert(1)  # the votes that proposed them
    assert (labels(store), store.status()["pending"]) == ("aaaaaa", 0)
    assert store.check() == []


def test_a_revert_reaches_what_its_step_never_wrote_about(store: Store) -> None:
    """Item 1 was dropped by step 2, so that step 3 did not touch it; without step 2 it would."""
    vote(store, "third", 0.9, {1: "a"}, "max-belief")
    vote(store, "fourth", 0.7, {5: "a"}, "max-belief")
    store.revert(2)
    assert labels(store) == "bbbaaa"
    store.revert(3)
    assert (labels(store), store.status()["pending"]) == ("aaaaaa", 3)
    vote(store, "fifth", 0.6, {5: "a"}, "max-belief")
    assert labels(store) == "bbbaaa"
    assert store.check() == []


def test_removed_items_are_left_out(store: Store) -> None:
    store.remove(["item-0"])
    assert store.status()["pending"] == 2
    report = vote(store, "third", 0.9, {1: "b"}, "max-belief+confirm")
    assert (report.confirmed, report.settled) == (1, 1)
    assert store.check() == []
    store.compact()
    assert store.check() == []
    assert labels(store) == "bbaaa"


def test_compaction_keeps_what_is_pending(store: Store) -> None:
    store.compact()
    assert store.check() == []
    assert store.settle().settled == 3
    store.compact()
    assert labels(store) == "bbbaaa"
    assert store.check() == []


def test_only_shards_with_pending_flips_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    plain = LocalFiles.read

    def counted(self: LocalFiles, path: str) -> pa.Buffer:
        if path.startswith("ledger/shard=") and "shard=-1/" not in path:
            read.append(path.split("-")[0] + path.split("-")[1])
        return plain(self, path)

    plan = store.plan(registered(store, Model("third", accuracy=0.9)), budget="100%")
    monkeypatch.setattr(LocalFiles, "read", counted)
    # Shards 0 and 1 have some, in the file of their last step; shard 2 is not looked at.
    context = Context(open_files(store.path))
    parts = pending_parts(context)
    assert [(part[0], len(pending_of(context, part))) for part in parts] == [(0, 2), (1, 1)]
    assert read == ["ledger/shard=0/step000001", "ledger/shard=1/step000001"]
    store.update("third", plan=plan.id, votes={"id": ["item-1"], "vote": ["b"]})
    assert not any(path.startswith("ledger/shard=2/") for path in read)
    assert labels(store) == "bbbaaa"


def test_a_plan_tells_what_becomes_of_pending_flips(store: Store) -> None:
    plan = store.plan(registered(store, Model("third", accuracy=0.9)), budget=2)
    again = len(set(plan.rows.tolist()) & {0, 1, 2})
    assert (plan.pending, plan.reconsidered) == (3, again)
    assert f"of 3 pending flips {again} are looked at again" in str(plan)
    assert plan.to_dict()["pending"] == 3


def test_history_shows_what_is_proposed(store: Store) -> None:
    store.settle()
    told = store.history("item-1")
    shown = [(row["vote"], row["label"], row["proposed"], row["kind"]) for row in told]
    assert shown == [
        ("a", "a", None, "update"),
        ("b", "a", "b", "update"),
        (None, "b", None, "settle"),
    ]
    assert told[1]["entropy"] == told[2]["entropy"]


def test_check_finds_flips_that_were_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_votes, "pending_parts", lambda *_, **__: [])
    vote(store, "third", 0.9, {5: "a"}, "max-belief")
    found = "\n".join(store.check())
    assert "neither made nor dropped the pending flip of row 0 of shard 0 (2 such rows)" in found
    assert "pending flip of row 2 of shard 1 (1 such rows)" in found


def test_check_finds_flips_no_header_tells_of(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "pending_shards", lambda _: {0})
    (found,) = store.check()
    assert "Shard 1 has pending flips, and the header" in found


@pytest.mark.parametrize("rows", [7, 25, 1000])
def test_shard_size_changes_nothing(tmp_path: Path, rows: int) -> None:
    told: list[Any] = []
    for size in (25, rows):
        world = World()
        store = Store.create(tmp_path / f"store-{len(told)}", classes=NAMES, shard_rows=size)
        store.add(world.table())
        store.update(world.model("old"))
        for name in ("mid", "new"):
            store.update(world.model(name), budget="40%", rule="max-belief+confirm")
        store.update(world.model("best"), budget="40%", rule="cost-ratio:2")
        store.settle()
        store.revert(2)
        found = contents(store)["rows"]
        told.append([{**row, "shard": 0} for row in found])
        assert store.check() == []
    assert told[0] == told[1]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    path = str(tmp_path / "store")
    store = small_store(path, world)
    store.register(world.model("best"))
    pa.parquet.write_table(world.votes_table("best"), tmp_path / "best.parquet")

    def told(*arguments: str, code: int = 0) -> str:
        assert run_cli([*arguments]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    votes = ["--votes", str(tmp_path / "best.parquet")]
    out = told("update", path, "best", "--rule", "max-belief+confirm", "--budget", "100%", *votes)
    assert "0 flips" in out
    assert "flips are pending: they wait for another vote" in out
    pending = json.loads(told("status", path, "--json"))["pending"]
    assert pending > 0
    assert "pending" in told("log", path)
    assert f"{pending} pending flips made" in told("settle", path)
    assert "no flip is pending" in told("settle", path)
    assert "pending flips" in told("log", path)
    assert json.loads(told("settle", path, "--json"))["step"] is None
    assert "'oracle' takes no '+confirm'" in told(
        "plan", path, "best", "--rule", "oracle+confirm", code=2
    )
    assert told("check", path).strip() == "The store is sound."
