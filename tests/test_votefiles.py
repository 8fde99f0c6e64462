"""Votes kept shard by shard, and files of votes read batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Store, VoteFile
from posterity.engine.evaluation import vote_file
from posterity.engine.evaluation.durable_votes import Run, unfinished
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.data.votes import ModelVotes
from posterity.storage import input_files
from posterity.storage.files import open_files
from tests.stores import World, contents, small_store


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path, world: World) -> Store:
    held = small_store(tmp_path / "store", world)
    held.register(world.model("new"))
    return held


@pytest.fixture
def tiny_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows at a time, as if they were very many."""
    monkeypatch.setattr(input_files, "BATCH", 4)
    monkeypatch.setattr(vote_file, "TOGETHER", 7)


def opened(store: Store) -> Context:
    return Context(open_files(store.path))


def votes_of(run: Run, shard: int) -> dict[int, int]:
    rows, cast = run.kept().of(shard)
    assert run.kept().rows_of(shard).tolist() == rows.tolist()
    return dict(zip(rows.tolist(), cast.hard.tolist(), strict=True))


@given(data=st.data())
def test_votes_of_a_shard_are_read_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    store = Store.create(folder / "store", classes=["a", "b"], shard_rows=10)
    run = Run(opened(store), "one")
    wanted: dict[int, int] = {}
    for _ in range(data.draw(st.integers(0, 4))):
        rows = np.array(data.draw(st.lists(st.integers(0, 39), unique=True, max_size=12)))
        rows = rows.astype(np.int64)
        run.keep_votes(rows, ModelVotes((rows % 2).astype(np.int32)))
        wanted |= {row: row % 2 for row in rows.tolist()}
    rows, cast = run.votes()
    assert dict(zip(rows.tolist(), cast.hard.tolist(), strict=True)) == wanted
    for shard in range(4):
        assert votes_of(run, shard) == {r: v for r, v in wanted.items() if r // 10 == shard}


def test_only_a_shards_own_files_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(opened(store), "one")
    run.keep_votes(np.arange(60), ModelVotes(np.zeros(60, dtype=np.int32)))
    assert len(run.batches("votes")) == 3
    kept, read = run.kept(), list[str]()
    files = type(run.context.files)
    plain = files.read

    def counted(self: Any, path: str) -> pa.Buffer:
        read.append(path)
        return plain(self, path)

    monkeypatch.setattr(files, "read", counted)
    assert kept.of(1)[0].tolist() == list(range(25, 50))
    assert len(read) == 1


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize("kind", ["table", "parquet", "csv", "folder"])
def test_a_file_in_batches_is_a_file_at_once(
    store: Store, world: World, tmp_path: Path, kind: str
) -> None:
    order = np.random.default_rng(0).permutation(60)
    votes: Any = world.votes_table("new").take(pa.array(order))
    strangers = pa.table({"id": [f"nobody-{at}" for at in range(9)], "vote": ["cat"] * 9})
    votes = pa.concat_tables([votes, strangers])
    other = small_store(tmp_path / "other", world)
    other.register(world.model("new"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vote_file, "TOGETHER", 10**6)
        patch.setattr(input_files, "BATCH", 10**6)
        once = other.update(world.model("new"), budget="50%", votes=votes)
    if kind == "parquet":
        pq.write_table(votes, tmp_path / "votes.parquet")
        votes = tmp_path / "votes.parquet"
    elif kind == "csv":
        pa_csv.write_csv(votes, tmp_path / "votes.csv")
        votes = str(tmp_path / "votes.csv")
    elif kind == "folder":
        (tmp_path / "votes").mkdir()
        pq.write_table(votes.slice(0, 30), tmp_path / "votes" / "a.parquet")
        pa_csv.write_csv(votes.slice(30), tmp_path / "votes" / "b.csv")
        votes = tmp_path / "votes"
    report = store.update(world.model("new"), budget="50%", votes=votes)
    assert report.note == once.note
    assert "30 votes on items not planned" in report.note
    assert "9 ids are not in the store, such as 'nobody-0'" in report.note
    assert contents(store)["rows"] == contents(other)["rows"]


def test_soft_votes_in_batches_are_soft_votes_at_once(
    store: Store, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows are sure and some have no probabilities, so that batches differ in width."""
    rng = np.random.default_rng(5)
    table = rng.dirichlet(np.ones(4), 60)
    table[::2] = np.eye(4)[rng.integers(0, 4, 30)]
    sure = [None if at % 7 == 0 else row for at, row in enumerate(table.tolist())]
    votes = world.votes_table("new").append_column("probs", [sure])
    other = small_store(tmp_path / "other", world)
    other.update(world.model("new"), budget="90%", votes=VoteFile(votes, soft="probs"))
    monkeypatch.setattr(input_files, "BATCH", 3)
    monkeypatch.setattr(vote_file, "TOGETHER", 5)
    store.update(world.model("new"), budget="90%", votes=VoteFile(votes, soft="probs"))
    rows = contents(store)["rows"]
    assert rows == contents(other)["rows"]
    assert len({len(row["soft_classes"] or []) for row in rows}) == 3


@pytest.mark.usefixtures("tiny_batches")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": {55: "item-0"}}, "1 id more than once"),
        ({"id": {55: "nobody", 1: "nobody"}}, "1 id more than once"),
        ({"id": {55: "item-0"}, "vote": {0: "cow"}}, "1 id more than once"),
        ({"vote": {58: "cow"}}, "unknown classes"),
        ({"vote": {3: None, 58: None}}, "2 rows without a vote; the first is .item-3., row 3"),
        ({"id": {row: f"nobody-{row}" for row in range(60)}}, "None of the 60 ids"),
    ],
)
def test_nothing_is_kept_of_a_file_that_is_refused(
    store: Store, world: World, change: dict[str, dict[int, Any]], message: str
) -> None:
    """Whatever is wrong, even in its last batch, and whatever was right before it."""
    columns = world.votes_table("new").to_pydict()
    for name, cells in change.items():
        for row, value in cells.items():
            columns[name][row] = value
    with pytest.raises(InvalidData, match=message):
        store.update("new", budget="100%", votes=columns)
    assert unfinished(opened(store)) == []


def test_a_strict_file_that_lacks_items_leaves_nothing(store: Store, world: World) -> None:
    votes = world.votes_table("new").slice(20)
    with pytest.raises(InvalidData, match="20 planned items have no row"):
        store.update("new", budget="100%", votes=VoteFile(votes, strict=True))
    assert unfinished(opened(store)) == []


@pytest.mark.usefixtures("tiny_batches")
def test_without_a_budget_all_votes_of_a_file_are_folded(store: Store, world: World) -> None:
    votes = world.votes_table("new")
    report = store.update("new", votes=votes.slice(5, 40))
    assert report.evaluations == 40
    assert "had" not in report.note  # nothing was planned that could lack a vote
    assert store.steps[-1].budget is None
    headers = len(store.steps)
    again = store.update("new", votes=votes.slice(5, 40))
    assert (again.step, len(store.steps)) == (None, headers)
    assert again.note == "Nothing to do: new has voted on 40 items of the file before."
    rest = store.update("new", votes=votes)  # another file for the same call
    assert rest.evaluations == 20
    assert rest.note.startswith("40 items of the file had a vote of it already")
    assert store.update("new", votes=votes, budget="10%").step is None  # of what is left
    rows = [row for row in contents(store)["rows"] if row["step"] > 0]
    assert [row["row"] for row in rows] == [*range(5, 45), *range(5), *range(45, 60)]
    assert store.check() == []


def test_votes_of_a_file_count_again_after_a_revert(store: Store, world: World) -> None:
    votes = world.votes_table("new")
    first = store.update("new", votes=votes)
    store.revert(first.step or 0)
    assert store.update("new", votes=votes).evaluations == 60
    assert unfinished(opened(store)) == []
    assert store.check() == []


def test_a_file_does_not_stand_for_an_update_without_one(store: Store, world: World) -> None:
    store.update("new", votes=world.votes_table("new").slice(0, 20))
    asked: list[int] = []
    assert store.update(world.model("new", asked.extend)).evaluations == 4  # 10 % of what is left
    assert min(asked) >= 20


def test_a_filter_holds_for_a_whole_file(store: Store, world: World) -> None:
    votes = world.votes_table("new").slice(0, 30)
    report = store.update("new", votes=votes, where="lang = 'en'")
    assert report.evaluations == 10
    assert report.note.startswith("20 votes on items not planned were left out")
    none = store.update("new", votes=votes, where="lang = 'en'")
    assert none.note == "Nothing to do: the filter lets none of 20 items of the file through."
    assert store.update("new", votes=votes).evaluations == 20


@pytest.mark.parametrize(
    ("strict", "rule", "what"),
    [(True, None, "strict"), (False, "at-most:50%", "rule 'at-most:50%")],
)
def test_what_is_about_planned_items_needs_a_plan(
    store: Store, world: World, strict: bool, rule: str | None, what: str
) -> None:
    file = VoteFile(world.votes_table("new"), strict=strict)
    with pytest.raises(InvalidParameter, match=f"{what}.* that a plan has chosen"):
        store.update("new", votes=file, rule=rule)
    assert store.update("new", votes=file, rule=rule, budget="100%").step == 1


def test_a_step_in_between_does_not_stop_a_whole_file(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its items were not chosen for what they were before."""
    keep = vote_file.ReadVotes.keep

    def late(self: Any, *given: Any) -> None:
        monkeypatch.setattr(vote_file.ReadVotes, "keep", keep)
        store.update(world.model("mid"), budget="50%")
        keep(self, *given)

    monkeypatch.setattr(vote_file.ReadVotes, "keep", late)
    report = store.update("new", votes=world.votes_table("new"))
    assert (report.step, report.evaluations) == (2, 60)
    assert store.check() == []


@pytest.mark.usefixtures("tiny_batches")
def test_votes_come_in_parts(store: Store, world: World) -> None:
    """What a run has is not asked for again, and completes the plan."""
    plan = store.plan("new", budget="100%")
    votes = world.votes_table("new")
    run = Run(opened(store), plan.id)
    first = vote_file.take_votes(run, plan, VoteFile(votes.slice(0, 40)))
    assert (first.folded, first.without) == (40, 20)
    again = vote_file.take_votes(run, plan, VoteFile(votes.slice(30)))
    assert (again.folded, again.without) == (30, 0)
    held = [pq.read_metadata(f"{store.path}/{path}").num_rows for path in run.batches("votes")]
    assert sum(held) == 60
    assert store.update("new", plan=plan.id, votes=votes).evaluations == 60


def test_planned_items_come_in_batches(store: Store) -> None:
    plan = store.plan("new", budget="50%")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posterity.engine.evaluation.evaluate.WRITTEN", 7)
        parts = list(store.planned_batches(plan))
    assert [part.num_rows for part in parts] == [7, 7, 7, 7, 2]
    numbers = pa.concat_tables(parts).column("number").to_pylist()
    assert numbers == plan.rows.tolist()
    assert store.planned_items(plan).column("number").to_pylist() == numbers
