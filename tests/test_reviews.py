"""Reviews: whom to ask about, what answers do, and how they are undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterity import Model, Store, VoteFile
from posterity.cli import run as run_cli
from posterity.engine.labelled.labelled_votes import answered_votes
from posterity.engine.ledger.context import Context
from posterity.engine.steps import review_queue
from posterity.errors import InvalidData, InvalidParameter, UnknownName
from posterity.storage.files import open_files
from tests.stores import NAMES, World, contents, make, registered, small_store
from tests.test_checks import context_of


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    """Three shards, two updates."""
    held = small_store(tmp_path / "store", world)
    held.update(world.model("mid"), budget="50%", rule="cost-ratio:2")
    return held


def truths(world: World, ids: list[str]) -> list[str]:
    return [str(world.truth[int(one.split("-")[1])]) for one in ids]


def answered(store: Store, world: World, count: int = 8, **options: Any) -> list[str]:
    """Right answers to the next few; returns whom was asked about."""
    ids: list[str] = store.review_queue(count).items["id"].to_pylist()
    store.review({"id": ids, "answer": truths(world, ids)}, **options)
    return ids


def labels(store: Store) -> dict[str, str]:
    table = store.labels()
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def beliefs(store: Store) -> dict[str, float]:
    table = store.labels()
    return dict(zip(table["id"].to_pylist(), table["belief"].to_pylist(), strict=True))


def test_the_least_believed_labels_come_first(store: Store) -> None:
    queue = store.review_queue(20)
    believed = beliefs(store)
    found = [believed[one] for one in queue.items["id"].to_pylist()]
    assert found == sorted(believed.values())[:20]
    assert queue.items["worth"].to_pylist() == pytest.approx([1 - one for one in found])
    assert queue.eligible == 60
    assert queue.worth == pytest.approx(20 - sum(found))
    assert f"correct {queue.worth:.1f} labels" in str(queue)
    # The first of more are the same: the order does not depend on how many are asked for.
    assert store.review_queue(7).items.equals(queue.items.slice(0, 7))


def test_the_size_of_shards_does_not_matter(tmp_path: Path, world: World) -> None:
    one = make(tmp_path / "one", world, "old", "mid", shard_rows=7)
    other = make(tmp_path / "other", world, "old", "mid", shard_rows=64)
    for order in ("worth", "entropy", "random:3"):
        first, second = (each.review_queue(15, order=order) for each in (one, other))
        assert first.items.equals(second.items), order


def test_a_rival_is_the_best_class_but_for_the_label(store: Store) -> None:
    for row in store.review_queue(60).items.to_pylist():
        believed = store.beliefs(row["id"], top=4).to_pylist()[0]
        others = [
            (p, name)
            for name, p in zip(believed["classes"], believed["beliefs"], strict=True)
            if name != row["label"]
        ]
        assert (row["belief_rival"], row["rival"]) == max(others, key=lambda one: one[0])
        held_back = row["belief_rival"] > row["belief"]
        assert row["why"] == (review_queue.HELD_BACK if held_back else review_queue.DOUBTFUL)


def test_a_pending_flip_is_worth_what_it_would_leave_wrong(tmp_path: Path, world: World) -> None:
    held = small_store(tmp_path / "store", world)
    held.update(world.model("mid"), budget="50%", rule="max-belief+confirm")
    rows = [
        row for row in held.review_queue(60).items.to_pylist() if row["why"] == review_queue.PENDING
    ]
    assert len(rows) == held.status()["pending"] > 0
    for row in rows:
        assert row["worth"] == pytest.approx(1 - row["belief_rival"], abs=1e-3)


def test_a_random_order_is_a_fair_draw(store: Store) -> None:
    one, other = (store.review_queue(60, order=f"random:{seed}") for seed in (1, 2))
    assert one.items["id"].to_pylist() != other.items["id"].to_pylist()
    assert set(one.items["why"].to_pylist()) == {review_queue.DRAWN}
    assert store.review_queue(5, order="random").items.equals(
        store.review_queue(5, order="random:0").items
    )


def test_a_filter(store: Store) -> None:
    queue = store.review_queue(60, where="lang = 'en'")
    assert queue.eligible == len(queue) == 20


def test_items_without_a_label_can_be_answered(tmp_path: Path, world: World) -> None:
    held = Store.create(tmp_path / "store", classes=NAMES)
    assert len(held.review_queue()) == 0
    assert "Nothing to review" in str(held.review_queue())
    held.add(world.table())
    assert str(held.review_queue()).endswith("by worth; 50 without a label")
    assert held.review({"id": ["item-3"], "answer": ["fox"]}).first_labels == 1
    assert labels(held)["item-3"] == "fox"
    assert held.check() == []
    assert "a person said so" in str(held.explain("item-3"))
    held.revert(0)
    assert labels(held)["item-3"] is None
    assert held.check() == []


def test_answers_pin_labels(store: Store, world: World) -> None:
    before = labels(store)
    ids = store.review_queue(10).items["id"].to_pylist()
    done = store.review({"id": ids, "answer": truths(world, ids)})
    now = labels(store)
    assert [now[one] for one in ids] == truths(world, ids)
    assert done.items == 10
    assert done.flips == sum(now[one] != before[one] for one in ids) > 0
    assert {one: label for one, label in now.items() if one not in ids} == {
        one: label for one, label in before.items() if one not in ids
    }
    assert store.status()["reviewed"] == 10
    assert set(store.flips()["reason"].to_pylist()) == {"answer of a person"}
    assert store.flips().num_rows == done.flips
    assert store.labels(since=1).num_rows == done.flips
    assert store.history(ids[0])[-1]["kind"] == "review"
    assert (beliefs(store)[ids[0]], store.history(ids[0])[-1]["entropy"]) == (1.0, 0.0)
    assert contents(store)["published"] == [
        {**row, "shard": row["row"] // 25} for row in store.labels().to_pylist()
    ]
    assert store.check() == []


def test_nobody_is_asked_twice(store: Store, world: World) -> None:
    ids = answered(store, world, 10)
    left = store.review_queue(60)
    assert left.eligible == len(left) == 50
    assert not set(ids) & set(left.items["id"].to_pylist())
    store.remove(left.items["id"][0].as_py())
    assert store.review_queue(60).eligible == 49


def test_models_do_not_look_at_answered_items(store: Store, world: World) -> None:
    ids, asked = answered(store, world, 10), list[int]()
    plan = store.plan(registered(store, world.model("new")), budget="100%")
    assert plan.eligible == 50
    store.update(world.model("new", asked.extend), budget="100%", rule="replace")
    assert len(asked) == 50
    assert not {f"item-{number}" for number in asked} & set(ids)
    assert [labels(store)[one] for one in ids] == truths(world, ids)


def test_votes_on_answered_items_count_but_do_not_move_them(store: Store, world: World) -> None:
    ids = answered(store, world, 10)
    wrong = {"id": [f"item-{at}" for at in range(60)], "vote": ["cat"] * 60}
    store.register(world.model("new"))
    report = store.update(
        "new", budget="100%", rule="replace", votes=VoteFile(wrong, keep_unplanned=True)
    )
    assert report.evaluations == 60
    now = labels(store)
    assert [now[one] for one in ids] == truths(world, ids)
    assert all(now[one] == "cat" for one in now if one not in ids)
    assert store.check() == []
    told = store.explain(ids[0])
    assert told.pinned == 2
    assert "a person has decided" in str(told)
    assert "only another review, or a revert of step 2" in str(told)
    # Without the answer, the last rule holds.
    store.revert(2)
    assert set(labels(store).values()) == {"cat"}
    assert store.status()["reviewed"] == 0
    assert store.check() == []


def test_reverting_an_update_leaves_answers(store: Store, world: World) -> None:
    ids = answered(store, world, 10)
    store.revert(1)
    assert [labels(store)[one] for one in ids] == truths(world, ids)
    store.revert(0)
    now = labels(store)
    assert {one for one, label in now.items() if label is not None} == set(ids)
    assert store.check() == []
    before = contents(store)["labels"]
    store.revert(2)
    assert set(labels(store).values()) == {None}
    store.revert(len(store.log()) - 1)
    assert [row["label"] for row in contents(store)["labels"]] == [row["label"] for row in before]
    assert store.check() == []


def test_a_later_answer_holds(store: Store) -> None:
    store.review({"id": ["item-1", "item-2"], "answer": ["cat", "cat"]})
    done = store.review({"id": ["item-1", "item-2"], "answer": ["dog", "cat"]})
    assert (done.items, done.again) == (1, 1)
    assert (labels(store)["item-1"], store.status()["reviewed"]) == ("dog", 2)
    store.revert(3)
    assert labels(store)["item-1"] == "cat"
    store.revert(4)
    store.revert(2)
    assert (labels(store)["item-1"], store.status()["reviewed"]) == ("dog", 1)
    assert store.check() == []


def test_the_same_answers_twice_do_it_once(store: Store, world: World) -> None:
    ids = answered(store, world)
    answers = {"id": ids, "answer": truths(world, ids)}
    before = contents(store)
    again = store.review(answers)
    assert (again.step, again.again) == (None, len(ids))
    assert "given already" in str(again)
    assert contents(store) == before
    store.revert(2)
    assert store.review(answers).step == 4  # what was undone can be said again


def test_an_answer_may_go_back_to_an_earlier_one(store: Store) -> None:
    first, second = ({"id": ["item-1"], "answer": [name]} for name in ("cat", "dog"))
    for answers in (first, second, first, first):
        store.review(answers)
    assert labels(store)["item-1"] == "cat"
    assert [header.kind for header in store.log()].count("review") == 3
    assert store.check() == []


def test_pending_flips_are_dropped(tmp_path: Path, world: World) -> None:
    held = small_store(tmp_path / "store", world)
    pending = held.update(world.model("mid"), budget="50%", rule="max-belief+confirm").pending
    first = [
        row["id"]
        for row in held.review_queue(60).items.to_pylist()
        if row["why"] == review_queue.PENDING
    ]
    kept = {one: labels(held)[one] for one in first[:3]}
    done = held.review({"id": list(kept), "answer": list(kept.values())})
    assert (done.dropped, done.flips) == (3, 0)
    assert held.status()["pending"] == pending - 3
    assert held.settle().settled == pending - 3
    assert {one: labels(held)[one] for one in kept} == kept
    assert held.check() == []
    # The settle counts, so that without the answers the flips are made by it.
    held.revert(2)
    assert held.status()["pending"] == 0
    assert all(labels(held)[one] != label for one, label in kept.items())
    assert held.check() == []


def test_a_removed_item_takes_its_answer_with_it(store: Store, world: World) -> None:
    ids = answered(store, world)
    store.remove(ids[0])
    assert store.status()["reviewed"] == len(ids) - 1
    assert store.check() == []
    store.compact()
    assert store.check() == []
    store.revert(2)
    assert store.status()["reviewed"] == 0
    assert store.check() == []


def test_answers_survive_compaction(store: Store, world: World) -> None:
    answered(store, world)
    before = contents(store)
    store.compact()
    assert contents(store) == before
    assert store.check() == []
    assert store.review_queue(60).eligible == 52


def test_what_is_expected_counts_answers_as_right(store: Store, world: World) -> None:
    answered(store, world, 40)
    assert store.status()["expected_accuracy"]["value"] == pytest.approx(
        np.mean(list(beliefs(store).values())), abs=1e-6
    )
    report = store.update(world.model("new"), budget="10%")
    assert report.expected is not None
    assert report.expected["accuracy"]["low"] >= 40 / 60  # what people said is not in doubt
    assert report.held is not None
    assert report.held["pinned"] == 40
    assert not any(one["unlike"] for one in report.differences if one["figure"] == "belief")


BAD = {
    "id": ["item-1", "nobody", "item-2", "item-3", "item-3", "item-4", "item-4", "item-5", None],
    "answer": ["cat", "cat", "caat", "dog", "fox", " owl ", "owl", None, "cat"],
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_bad_rows_cost_only_themselves(store: Store, tmp_path: Path, suffix: str) -> None:
    from tests.stores import write_table

    path = tmp_path / f"answers{suffix}"
    write_table(pa.table(BAD), path)
    before = contents(store)
    tried = store.review(path, dry_run=True)
    assert contents(store) == before
    done = store.review(path)
    assert (done.step, done.items, done.empty) == (2, 2, 1)
    assert (tried.step, tried.items, tried.refused) == (None, 2, done.refused)
    assert "tried: 2 answers" in str(tried)
    assert sorted(done.refused.values()) == [1, 1, 1, 1]
    told = str(done)
    for part in ("'caat' (Did you mean 'cat'?)", "'nobody'", "different answers", "no id"):
        assert part in told
    assert (labels(store)["item-1"], labels(store)["item-4"]) == ("cat", "owl")
    assert store.check() == []


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"id": ["nobody"], "answer": ["cat"]}, "No row of the file of answers can be used"),
        ({"id": ["item-1"], "answer": [3]}, "no class of the store is called 3"),
        ({"id": ["item-1"], "answer": [["cat"]]}, "cannot be read"),
        ({"id": [1], "answer": ["cat"]}, "type string; got int64"),
        ({"id": ["item-1"]}, "no column 'answer'"),
        ({"answer": ["cat"]}, "no column 'id'"),
        ("nowhere.csv", "no file"),
        (7, "must be an Arrow table"),
    ],
)
def test_unusable_answers_are_refused(store: Store, answers: Any, message: str) -> None:
    before = contents(store)
    with pytest.raises(InvalidData, match=message):
        store.review(answers)
    assert contents(store) == before


def test_an_unfilled_file_is_nothing_to_do(store: Store) -> None:
    items = store.review_items(store.review_queue(5))
    done = store.review(items)
    assert (done.step, done.empty) == (None, 5)
    assert "none of 5 rows has an answer yet" in str(done)


def test_numbers_as_people_have_them(tmp_path: Path) -> None:
    """Ids and classes that are numbers, in a file where somebody wrote a word."""
    held = Store.create(tmp_path / "store", classes=[1, 2, 3], beliefs="plain")
    held.add({"id": [10, 11, 12, 13]})
    held.update(Model("m", accuracy=0.7), votes={"id": [10, 11, 12, 13], "vote": [1, 1, 1, 1]})
    path = tmp_path / "answers.csv"
    path.write_text("id,answer\n10,2\n11,do not know\nx,2\n12,3.0\n13, 2 \n")
    done = held.review(path)
    assert (done.items, sorted(done.refused.values())) == (3, [1, 1])
    assert held.labels()["label"].to_pylist() == [2, 1, 3, 2]
    assert held.review({"id": [12, 13], "answer": [1.0, float("nan")]}).items == 1
    assert held.labels()["label"].to_pylist() == [2, 1, 1, 2]


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": 1.5}, {"order": "worst"}, {"order": "worth:3"}]
)
def test_queues_are_refused(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidParameter, UnknownName)):
        store.review_queue(**wrong)


def tampered(store: Store, step: int, **columns: Any) -> None:
    """Change what a step has written in its first shard."""
    context = context_of(store)
    ledger = context.ledger
    for file in ledger.files_of(0):
        rows = ledger.read_file(file, ledger.table.schema.names)
        if step not in rows.column("step").to_pylist():
            continue
        for name, value in columns.items():
            at = rows.column_names.index(name)
            changed = pa.array([value] * rows.num_rows, rows.schema.field(name).type)
            rows = rows.set_column(at, name, changed)
        new = ledger.table.write(rows, label=f"step-{step:06}", partition=0)
        ledger.commit([new], removes=[file])
        return
    raise AssertionError("nothing to change")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": 3}, "has other answers than were given"),
        ({"label": 9}, "has more than answers"),
        ({"vote": 1}, "has more than answers"),
        ({"belief": 0.5}, "another belief"),
        ({"proposed": 1, "belief_proposed": 0.5}, "pending flip"),
    ],
)
def test_a_tampered_answer_is_found(store: Store, columns: dict[str, Any], message: str) -> None:
    store.review({"id": ["item-1", "item-2", "item-30"], "answer": ["cat", "cat", "cat"]})
    assert store.check() == []
    tampered(store, 2, **columns)
    assert message in "\n".join(store.check())


def test_a_label_that_does_not_follow_an_answer_is_found(store: Store, world: World) -> None:
    ids = answered(store, world, 60)
    wrong = {"id": ids, "vote": ["cat"] * 60}
    store.add({"id": ["item-60"]})
    store.register(world.model("new"))
    store.update("new", budget="100%", votes=VoteFile(wrong, keep_unplanned=True))
    assert store.check() == []
    tampered(store, 3, label=3)
    assert "another label" in "\n".join(store.check())


def test_answers_are_learnt_from_if_asked_for(tmp_path: Path, world: World) -> None:
    held = make(tmp_path / "store", world, "old", "mid")

    def learnt() -> int:
        context = Context(open_files(held.path))
        return len(answered_votes(context, ["old", "mid", "new"], [])[1])

    first = answered(held, world, 10)
    assert learnt() == 0
    done = held.review({"id": first, "answer": truths(world, first)}, learn=True)
    assert (done.step, done.items) == (3, 10)  # the same answers, now to be learnt from
    assert learnt() == 10
    votes, truth = answered_votes(Context(open_files(held.path)), ["mid", "old"], [])
    rows = sorted(int(one.split("-")[1]) for one in first)
    assert [NAMES[code] for code in truth] == world.truth[rows].tolist()
    assert [NAMES[code] for code in votes[:, 1]] == world.votes["old"][rows].tolist()
    assert ((votes[:, 0] == -1) | (NAMES[votes[:, 0]] == world.votes["mid"][rows])).all()
    assert len(answered_votes(Context(open_files(held.path)), ["old"], first[:4])[1]) == 6
    held.review({"id": first[:1], "answer": ["cat" if truth[0] else "dog"]})
    assert learnt() == 10  # as it was answered last
    held.remove(first[1])
    assert learnt() == 9
    held.revert(3)
    assert learnt() == 0
    assert held.check() == []


def test_what_was_learnt_is_recorded_with_the_step(tmp_path: Path, world: World) -> None:
    fits = []
    for name, learn in (("without", False), ("with", True)):
        held = make(tmp_path / name, world, "old", "mid")
        answered(held, world, 30, learn=learn)
        held.register(Model("new", labelled=world.labelled_table("new")))
        held.update("new", votes=world.votes_table("new"), budget="30%")
        assert held.check() == []
        fits.append(held.log()[-1].fit["parameters"])
        held.revert(2)
        assert held.check() == []  # decided again with what it was decided with
    assert fits[0] != fits[1]


def test_learning_from_items_that_were_picked_is_warned_of(tmp_path: Path) -> None:
    world = World(items=300)
    for order, warned in (("worth", True), ("random", False)):
        held = make(tmp_path / order, world, "old", "mid", "new")
        ids = held.review_queue(60, order=order).items["id"].to_pylist()
        answers = {"id": ids, "answer": truths(world, ids)}
        assert not held.review(answers, dry_run=True).warning  # pins alone do no harm
        done = held.review(answers, learn=True)
        assert bool(done.warning) == ("they were picked" in str(done)) == warned
        held.revert(3)
        held.review(answers)  # pinned first, and learnt from after that: as it was before both
        assert bool(held.review(answers, learn=True).warning) == warned


def test_plain_beliefs_cannot_learn(tmp_path: Path, world: World) -> None:
    held = make(tmp_path / "store", world, "old", beliefs="plain")
    with pytest.raises(InvalidParameter, match="cannot learn"):
        held.review({"id": ["item-1"], "answer": ["cat"]}, learn=True)
    assert held.review({"id": ["item-1"], "answer": ["cat"]}).items == 1


def test_the_command(
    store: Store, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: str) -> str:
        assert run_cli(["review", store.path, *arguments]) == 0
        return capsys.readouterr().out

    assert "flip held back" in told("--next", "5")
    listed = json.loads(told("--next", "5", "--json"))
    assert [len(listed["items"]), listed["eligible"], listed["order"]] == [5, 60, "worth"]
    out = tmp_path / "todo.parquet"
    assert "fill in its column 'answer'" in told(
        "--next", "5", "--out", str(out), "--where", "lang = 'de'"
    )
    items = pq.read_table(out)
    assert items.column_names[:3] == ["id", "number", "lang"]
    assert items["answer"].null_count == 5
    assert items["worth"].to_pylist() == sorted(items["worth"].to_pylist(), reverse=True)
    ids = items["id"].to_pylist()
    done = items.set_column(
        items.column_names.index("answer"), "answer", pa.array(truths(world, ids))
    )
    pq.write_table(done, out)
    assert "tried: 5 answers" in told("--answers", str(out), "--dry-run")
    report = json.loads(told("--answers", str(out), "--json"))
    assert (report["step"], report["items"]) == (2, 5)
    assert "given already" in told("--answers", str(out))
    assert run_cli(["log", store.path]) == 0
    assert "5 answers" in capsys.readouterr().out
    assert run_cli(["status", store.path]) == 0
    assert "reviewed     5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learn"], "--learn needs --answers"),
        (["--answers", "x.csv", "--next", "3"], "--next has no use with --answers"),
        (["--next", "0"], "0"),
        (["--order", "best"], "no order 'best'"),
        (["--out", "x.txt"], ".parquet"),
    ],
)
def test_wrong_usage(
    store: Store, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["review", store.path, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_payload_that_is_called_like_ours(tmp_path: Path, world: World) -> None:
    held = Store.create(tmp_path / "store", classes=NAMES)
    held.add({"id": ["a", "b"], "label": [1, 2], "text": ["x", "y"]})
    held.update(world.model("old"), votes={"id": ["a", "b"], "vote": ["cat", "dog"]})
    items = held.review_items(held.review_queue())
    assert items.column_names == [
        *("id", "text", "label", "belief", "rival", "belief_rival", "why", "worth", "answer")
    ]
    assert set(
        zip(
            items["id"].to_pylist(),
            items["label"].to_pylist(),
            items["text"].to_pylist(),
            strict=True,
        )
    ) == {
        ("a", "cat", "x"),
        ("b", "dog", "y"),
    }
