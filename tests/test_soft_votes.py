"""Soft votes: in files, in the ledger, and in the beliefs they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Evaluation, Model, Store, VoteFile
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData, InvalidParameter
from posterity.method.beliefs import temperature as beliefs_temperature
from posterity.method.data.classes import Classes
from posterity.method.data.votes import MISSING, ModelVotes, SoftVotes
from posterity.models.class_map import Answers
from posterity.models.soft_columns import SoftColumns
from posterity.storage import parquet
from posterity.storage.delta.schema import LEDGER
from posterity.storage.files import open_files
from tests import naive, naive_temperatures
from tests.stores import NAMES, World, contents, registered, small_store

OURS = ["cat", "dog", "fox"]
THEIRS = ["tabby", "siamese", "dog", "newt"]
MERGED = naive.Words(OURS, THEIRS, [("tabby", "cat"), ("siamese", "cat")], "fox")
SAME = naive.Words(OURS)


def answers_for(told: naive.Words, soft: int | None = None) -> Answers:
    own = None if told.own is None else tuple(told.own)
    return Answers(Classes(told.classes), own, dict(told.rename), told.other, soft)


def weights_of(cast: ModelVotes, row: int) -> dict[int, float]:
    assert cast.soft is not None
    pairs = zip(cast.soft.codes[row].tolist(), cast.soft.weights[row].tolist(), strict=True)
    return {code: weight for code, weight in pairs if weight}


def only_hard(cast: ModelVotes) -> np.ndarray:
    """The votes that have no soft twin; −1 elsewhere."""
    return cast.hard if cast.soft is None else np.where(cast.soft.hard >= 0, MISSING, cast.hard)


def none_left(hard: list[int]) -> np.ndarray:
    return np.array(hard, dtype=np.int32)


@st.composite
def soft_rows(draw: st.DrawFn) -> tuple[naive.Words, list[list[float] | None], list[int]]:
    """Probabilities of the model's classes, some missing, and hard votes beside them."""
    told = draw(st.sampled_from([SAME, MERGED]))
    width = len(told.own or told.classes)
    # Different numbers, so that the heaviest class is no matter of rounding.
    row = st.permutations(range(width)).map(lambda order: [2.0**at for at in order])
    rows = draw(st.lists(st.none() | row, min_size=1, max_size=6))
    scaled = [None if one is None else [value / sum(one) for value in one] for one in rows]
    hard = draw(st.lists(st.integers(-1, 2), min_size=len(rows), max_size=len(rows)))
    return told, scaled, hard


@given(case=soft_rows(), keep=st.integers(1, 3), form=st.sampled_from(["lists", "fixed", "wide"]))
def test_probabilities_in_files(
    case: tuple[naive.Words, list[list[float] | None], list[int]], keep: int, form: str
) -> None:
    told, rows, hard = case
    names = list(told.own or told.classes)
    if form == "wide":
        table = pa.table(
            {
                f"p_{name}": pa.array(
                    [None if row is None else row[at] for row in rows], pa.float64()
                )
                for at, name in enumerate(names)
            }
        )
        soft = SoftColumns.parse("p_{class}")
    else:
        kind = pa.list_(pa.float64(), len(names)) if form == "fixed" else pa.list_(pa.float64())
        table = pa.table({"probs": pa.array([None, *rows], kind)}).slice(1)  # an offset
        soft = SoftColumns.parse("probs")
    assert soft.columns(answers_for(told)) == table.column_names
    cast = soft.read(table, answers_for(told, keep), none_left(hard), "soft votes")
    for at, row in enumerate(rows):
        if row is None:
            assert cast.hard[at] == hard[at]
            assert weights_of(cast, at) == {}
            assert only_hard(cast)[at] == hard[at]
            continue
        vote, ours = told.probabilities(row)
        assert cast.hard[at] == (vote if hard[at] == MISSING else hard[at])
        expected = {code: weight for code, weight in naive.top(ours, keep).items() if weight}
        assert weights_of(cast, at) == pytest.approx(expected)
        assert only_hard(cast)[at] == MISSING


@st.composite
def scored_rows(draw: st.DrawFn) -> tuple[naive.Words, list[Any], list[Any], list[int]]:
    told = draw(st.sampled_from([SAME, MERGED]))
    names = list(told.own or told.classes)
    classes: list[Any] = []
    scores: list[Any] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            listed = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
            order = draw(st.permutations(range(len(listed))))
            classes.append(listed)
            scores.append([2.0**at / 2.0 ** len(listed) for at in order])
        else:
            classes.append(None)
            scores.append(None)
    hard = draw(st.lists(st.integers(-1, 2), min_size=len(classes), max_size=len(classes)))
    return told, classes, scores, hard


@given(case=scored_rows(), keep=st.none() | st.integers(1, 3))
def test_top_classes_in_files(
    case: tuple[naive.Words, list[Any], list[Any], list[int]], keep: int | None
) -> None:
    told, classes, scores, hard = case
    table = pa.table(
        {
            "top": pa.array(classes, pa.list_(pa.string())),
            "score": pa.array(scores, pa.list_(pa.float32())),
        }
    )
    soft = SoftColumns.parse(" top : score ")
    assert soft.columns(answers_for(told)) == ["top", "score"]
    cast = soft.read(table, answers_for(told, keep), none_left(hard), "soft votes")
    for at, (named, scored) in enumerate(zip(classes, scores, strict=True)):
        if named is None:
            assert (cast.hard[at], weights_of(cast, at)) == (hard[at], {})
            continue
        vote, ours = told.scored(named, scored)
        assert cast.hard[at] == (vote if hard[at] == MISSING else hard[at])
        expected = naive.top(ours, keep or len(OURS))
        assert weights_of(cast, at) == pytest.approx({k: w for k, w in expected.items() if w})


def test_merged_classes_vote_alike_in_every_form() -> None:
    """Dog is the model's first choice, although its two kinds of cat outweigh it together."""
    row = [0.3, 0.3, 0.4, 0.0]
    answers = answers_for(MERGED, 3)
    forms = {
        "probs": pa.table({"probs": [row]}),
        "p_{class}": pa.table({f"p_{name}": [p] for name, p in zip(THEIRS, row, strict=True)}),
        "top:score": pa.table({"top": [THEIRS[:3]], "score": [row[:3]]}),
    }
    for text, table in forms.items():
        cast = SoftColumns.parse(text).read(table, answers, none_left([-1]), "soft votes")
        assert cast.hard.tolist() == [1]
        assert weights_of(cast, 0) == pytest.approx({0: 0.6, 1: 0.4})


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("p", {"p": [None, [0.5, 0.5, 0.5]]}, "x: 'probabilities' must sum to one; row 1 is"),
        ("p", {"p": [None, [0.5, 0.5, None]]}, "finite numbers; row 1"),
        ("p", {"p": [None, [1.5, -0.5, 0]]}, "not be negative; row 1"),
        ("p", {"p": [None, None, [0.0, 0, 0]]}, "row 2 are all zero"),
        ("p", {"p": [None, [1.0, 0]]}, r"each of 3 classes; row 1 has 2 \(1 such rows\)"),
        ("p", {"p": [None, []]}, "row 1 has 0"),
        ("p", {"p": ["0.5", "0.5"]}, "must hold lists; got string"),
        ("p", {"p": [["1", "0", "0"]]}, "must hold numbers; got string"),
        ("p", {"p": [[True, False, False]]}, "must hold numbers; got bool"),
        (
            "p_{class}",
            {"p_cat": [None, 1.0], "p_dog": [None, None], "p_fox": [None, 0.0]},
            "finite numbers; row 1",
        ),
        ("p_{class}", {"p_cat": ["1"], "p_dog": ["0"], "p_fox": ["0"]}, "numbers; got string"),
        ("t:s", {"t": [None, ["cat"]], "s": [None, [1.2]]}, "at most one; row 1 does not"),
        ("t:s", {"t": [["cat", "dog"]], "s": [[0.9, 0.3]]}, "at most one; row 0"),
        ("t:s", {"t": [["cat"]], "s": [[-0.1]]}, "row 0 does not"),
        ("t:s", {"t": [["cat"]], "s": [[0.0]]}, "row 0 does not"),
        ("t:s", {"t": [["cat"]], "s": [[float("nan")]]}, "row 0 does not"),
        ("t:s", {"t": [["cat", None]], "s": [[0.5, 0.1]]}, "row 0 does not"),
        ("t:s", {"t": [["cat"], ["dog"]], "s": [[0.5], [0.5, 0.1]]}, "row 1 has 1 classes and 2"),
        ("t:s", {"t": [["cat"], []], "s": [[0.5], []]}, "row 1 has 0 classes and 0"),
        ("t:s", {"t": [["cat"], None], "s": [[0.5], [0.5]]}, "row 1 has 0 classes and 1"),
        ("t:s", {"t": [["cow"]], "s": [[0.5]]}, r"unknown classes in 1 row: \['cow'\]"),
        ("t:s", {"t": [[0]], "s": [[0.5]]}, "classes of type str"),
        ("t:s", {"t": [["cat"]], "s": [["0.5"]]}, "must hold numbers; got string"),
    ],
)
def test_bad_rows_are_named(text: str, columns: dict[str, Any], message: str) -> None:
    table = pa.table(columns)
    hard = np.full(table.num_rows, MISSING, dtype=np.int32)
    with pytest.raises(InvalidData, match=message):
        SoftColumns.parse(text).read(table, answers_for(SAME, 2), hard, "x")


@pytest.mark.parametrize("text", ["p", "p_{class}", "t:s"])
@pytest.mark.parametrize("kind", [pa.null(), None])
def test_files_without_any_soft_vote(text: str, kind: pa.DataType | None) -> None:
    """A part of the data may have none, and be written without a type for that."""
    for rows in (0, 2):
        names = SoftColumns.parse(text).columns(answers_for(SAME))
        listed = {"p": pa.list_(pa.float32()), "t": pa.list_(pa.string())}
        listed["s"] = pa.list_(pa.float64())
        table = pa.table(
            {name: pa.nulls(rows, kind or listed.get(name, pa.float64())) for name in names}
        )
        hard = none_left([2, -1][:rows])
        cast = SoftColumns.parse(text).read(table, answers_for(SAME, 2), hard, "x")
        assert cast.hard.tolist() == hard.tolist()
        assert only_hard(cast).tolist() == hard.tolist()


@pytest.mark.parametrize("text", ["", " ", ":", "a:", ":b"])
def test_spellings_that_mean_nothing(text: str) -> None:
    with pytest.raises(InvalidParameter, match="'soft'"):
        SoftColumns.parse(text)


# In the ledger


@st.composite
def casts(draw: st.DrawFn) -> ModelVotes:
    rows, width = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    hard = np.array(draw(st.lists(st.integers(-1, 5), min_size=rows, max_size=rows)), np.int32)
    if draw(st.booleans()):
        return ModelVotes(hard)
    codes = np.full((rows, width), MISSING, dtype=np.int32)
    weights = np.zeros((rows, width))
    for row in range(rows):
        if hard[row] == MISSING or draw(st.booleans()):
            continue
        kept = draw(st.lists(st.integers(0, 5), min_size=1, max_size=width, unique=True))
        given = draw(
            st.lists(st.floats(1e-60, 1), min_size=len(kept), max_size=len(kept)).filter(
                lambda values: max(values) > 0.1
            )
        )
        codes[row, : len(kept)] = kept
        weights[row, : len(kept)] = sorted((value / sum(given) for value in given), reverse=True)
    softly = np.where(codes[:, 0] == MISSING, np.int32(MISSING), hard)
    return ModelVotes(hard, SoftVotes(codes, weights, 6, softly))


def held(cast: ModelVotes, row: int) -> dict[int, float]:
    return {} if cast.soft is None else weights_of(cast, row)


@given(cast=casts())
def test_columns_and_back(cast: ModelVotes) -> None:
    columns = parquet.to_columns(cast)
    table = pa.table(columns)
    for name in parquet.NAMES:
        assert table.schema.field(name).type == LEDGER.field(name).type
        assert len(table[name]) == len(cast)
    again = ModelVotes(cast.hard, parquet.from_columns(table, cast.hard))
    for row in range(len(cast)):
        before = {code: weight for code, weight in held(cast, row).items() if np.float32(weight)}
        assert held(again, row) == pytest.approx(before, rel=1e-6)
    assert only_hard(again).tolist() == only_hard(cast).tolist()
    # What was rounded once is not rounded again.
    twice = pa.table(parquet.to_columns(again))
    assert twice.equals(table)


@given(parts=st.lists(casts(), max_size=4))
def test_blocks_put_together(parts: list[ModelVotes]) -> None:
    joined = ModelVotes.joined(parts)
    rows = [(part, row) for part in parts for row in range(len(part))]
    assert len(joined) == len(rows)
    for at, (part, row) in enumerate(rows):
        assert joined.hard[at] == part.hard[row]
        assert only_hard(joined)[at] == only_hard(part)[row]
        assert held(joined, at) == held(part, row)


@given(cast=casts(), data=st.data())
def test_other_votes_in_some_rows(cast: ModelVotes, data: st.DataObject) -> None:
    rows = data.draw(st.permutations(range(len(cast)))) if len(cast) else []
    others = data.draw(casts().filter(lambda other: len(other) <= len(cast)))
    where = np.array(rows[: len(others)], dtype=np.int64)
    both = cast.put(where, others)
    for row in range(len(cast)):
        found = np.flatnonzero(where == row)
        source, at = (others, int(found[0])) if len(found) else (cast, row)
        assert both.hard[row] == source.hard[at]
        assert only_hard(both)[row] == only_hard(source)[at]
        assert held(both, row) == held(source, at)


# In a store


class SoftWorld(World):
    """Models that also say how sure they are."""

    def sure(self, name: str) -> np.ndarray:
        """(items, 4) probabilities with the vote on top."""
        rng = np.random.default_rng(len(name) + ord(name[0]))
        codes = np.searchsorted(NAMES, self.votes[name])
        table = rng.dirichlet(np.ones(4), size=self.items)
        rows = np.arange(self.items)
        best = table.argmax(axis=1)
        table[rows, best], table[rows, codes] = table[rows, codes].copy(), table[rows, best].copy()
        return table

    def soft_model(self, name: str, seen: list[int] | None = None, stop: int = 10**9) -> Model:
        table = self.sure(name)

        def predict(batch: pa.Table) -> np.ndarray:
            numbers = batch.column("number").to_numpy()
            if seen is not None:
                if len(seen) >= stop:
                    raise KeyboardInterrupt
                seen.extend(numbers.tolist())
            votes: np.ndarray = table[numbers]
            return votes

        return Model(name, labelled=self.labelled_table(name), predict=predict, soft=3)

    def confusion(self, name: str) -> list[list[float]]:
        truth, votes = (
            np.searchsorted(NAMES, given).tolist()
            for given in (self.labelled_truth, self.labelled[name])
        )
        return naive.full(naive.count(truth, votes, 4))

    def believed(self, votes: dict[str, Any]) -> list[float]:
        joint = naive.log_joint(
            [0.25] * 4, list(votes.values()), [self.confusion(name) for name in votes]
        )
        return naive.belief(joint)


@pytest.fixture
def world() -> SoftWorld:
    return SoftWorld()


def beliefs(store: Store) -> list[dict[str, float]]:
    rows = store.beliefs(top=4).to_pylist()
    return [dict(zip(row["classes"], row["beliefs"], strict=True)) for row in rows]


def test_beliefs_from_soft_votes(world: SoftWorld, tmp_path: Path) -> None:
    """Hard, soft, hard again: every belief and entropy as the formula has it."""
    store = small_store(tmp_path / "store", world, beliefs="plain")
    store.update(world.soft_model("mid"), budget="100%", rule="max-belief")
    store.update(world.model("best"), budget="50%", rule="cost-ratio:2")
    rows = contents(store)["rows"]
    soft = [naive.top(row, 3) for row in world.sure("mid").tolist()]
    for row in rows:
        if row["step"] != 1:
            assert row["soft_classes"] is row["soft_weights"] is None
            continue
        listed = dict(zip(row["soft_classes"], row["soft_weights"], strict=True))
        assert listed == pytest.approx(soft[row["row"]], abs=1e-6)
        assert next(iter(listed)) == row["vote"]
    asked = {row["row"] for row in rows if row["step"] == 2}
    told = beliefs(store)
    for number in range(60):
        votes: dict[str, Any] = {
            "old": int(np.searchsorted(NAMES, world.votes["old"][number])),
            "mid": soft[number],
        }
        if number in asked:
            votes["best"] = int(np.searchsorted(NAMES, world.votes["best"][number]))
        expected = world.believed(votes)
        assert told[number] == pytest.approx(
            dict(zip(NAMES.tolist(), expected, strict=True)), abs=1e-6
        )
        last = [row for row in rows if row["row"] == number][-1]
        assert last["entropy"] == pytest.approx(naive.entropy(expected), rel=2**-12)
    assert store.check() == []


def test_soft_and_hard_votes_in_one_step(world: SoftWorld, tmp_path: Path) -> None:
    """An import where only some votes have probabilities; the vote itself may differ from them."""
    sure: list[Any] = world.sure("mid").tolist()
    sure[::2] = [None] * 30
    table = world.table().append_column("old", [world.votes["old"]])
    table = table.append_column("mid", [world.votes["new"]])
    table = table.append_column("sure", pa.array(sure))
    for suffix in ("parquet", "jsonl"):
        store = Store.create(tmp_path / suffix, classes=NAMES, beliefs="plain", shard_rows=25)
        source = tmp_path / f"preds.{suffix}"
        if suffix == "parquet":
            pq.write_table(table, source, row_group_size=7)
        else:
            source.write_text("\n".join(json.dumps(row, default=str) for row in table.to_pylist()))
        models = {
            "old": Model("old", labelled=world.labelled_table("old")),
            "mid": Model("mid", labelled=world.labelled_table("mid"), soft=3),
        }
        store.import_predictions(source, models, soft={"mid": "sure"}, rule="max-belief")
        told = beliefs(store)
        for number in range(60):
            vote = int(np.searchsorted(NAMES, world.votes["new"][number]))
            softly = sure[number] and naive.top(sure[number], 3)
            old = int(np.searchsorted(NAMES, world.votes["old"][number]))
            expected = world.believed({"old": old, "mid": softly or vote})
            assert told[number] == pytest.approx(
                dict(zip(NAMES.tolist(), expected, strict=True)), abs=1e-6
            )
        voted = [row["vote"] for row in contents(store)["rows"] if row["step"] == 1]
        assert NAMES[voted].tolist() == world.votes["new"].tolist()
        assert (
            "sure"
            not in store.planned_items(
                store.plan(registered(store, world.model("best")))
            ).column_names
        )
        assert store.check() == []


def sure_model(world: SoftWorld, name: str, soft: int | None = None) -> Model:
    """It returns probabilities; the truth of every other item is known."""
    ids = [f"item-{number}" for number in range(0, 60, 2)]
    truth = pa.table({"id": ids, "truth": world.truth[::2]})
    return Model(name, labelled=truth, predict=world.soft_model(name).predict, soft=soft)


def test_probabilities_a_model_returns_are_kept_and_calibrated(
    world: SoftWorld, tmp_path: Path
) -> None:
    """Without soft= as with it, where the model votes on labelled items by itself."""
    stores = []
    for soft in (None, 4):
        store = Store.create(tmp_path / f"{soft}", classes=NAMES, shard_rows=25)
        store.add(world.table())
        store.update(sure_model(world, "mid", soft), budget="100%")
        stores.append(store)
    rows, others = (contents(store)["rows"] for store in stores)
    assert rows == others
    assert all(len(row["soft_classes"]) == 4 for row in rows)
    context = Context(open_files(stores[0].path))
    assert context.fits.of(context.headers[-1].fit).reads_soft("mid")
    assert "calibrate" not in context.headers[-1].report["note"]
    assert stores[0].check() == []


def test_probabilities_that_cannot_be_calibrated_are_told_of(
    world: SoftWorld, tmp_path: Path
) -> None:
    store = Store.create(tmp_path / "store", classes=NAMES, shard_rows=25)
    store.add(world.table())
    model = world.soft_model("mid")
    told = "probabilities of mid are kept but not used: none of its labelled votes"
    assert told in store.register(model).warning
    report = store.update(model, budget="100%")
    assert f"warning: the {told}" in report.note
    hard = store.labels()
    # With the same labelled votes and their probabilities they count, those of earlier steps too.
    labelled = world.labelled_table("mid")
    codes = np.searchsorted(NAMES, world.labelled["mid"])
    sure = np.random.default_rng(0).uniform(0.4, 1, (80, 1)) * (np.eye(4)[codes] - 0.25) + 0.25
    softly = labelled.append_column("probs", [sure.tolist()])
    again = Model("mid", labelled=softly, labelled_soft="probs", predict=model.predict)
    assert "calibrate" not in store.register(again).warning
    store.register(again)
    assert store.status()["models"] == ["mid"]
    store.register(world.model("best"))
    last = store.update("best", votes=world.votes_table("best").slice(0, 30), rule="max-belief")
    context = Context(open_files(store.path))
    assert context.fits.of(context.headers[-1].fit).reads_soft("mid")
    assert "calibrate" not in last.note
    assert store.labels()["belief"].to_pylist() != hard["belief"].to_pylist()
    assert store.check() == []


def test_plain_beliefs_take_probabilities_as_they_are(world: SoftWorld, tmp_path: Path) -> None:
    beliefs_of = []
    for soft in (None, 4, 1):
        store = Store.create(tmp_path / f"{soft}", classes=NAMES, beliefs="plain")
        store.add(world.table())
        predict = world.soft_model("mid").predict
        report = store.update(Model("mid", accuracy=0.7, predict=predict, soft=soft))
        assert "calibrate" not in report.note
        beliefs_of.append(store.labels()["belief"].to_pylist())
    assert beliefs_of[0] == beliefs_of[1] != beliefs_of[2]


def test_reverting_soft_votes(world: SoftWorld, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", world, beliefs="plain")
    without = beliefs(store)
    store.update(world.soft_model("mid"), budget="100%", rule="max-belief")
    with_it = beliefs(store)
    assert with_it != without
    done = store.revert(1)
    assert beliefs(store) == without
    assert store.check() == []
    store.revert(done.step)
    assert beliefs(store) == with_it
    assert store.check() == []
    store.remove(["item-3"])
    store.compact()
    assert beliefs(store) == with_it[:3] + with_it[4:]
    assert store.check() == []


def test_a_stopped_run_keeps_its_soft_votes(world: SoftWorld, tmp_path: Path) -> None:
    expected = small_store(tmp_path / "expected", world, beliefs="plain")
    expected.update(
        world.soft_model("mid"), budget="100%", rule="max-belief", evaluation=Evaluation(batch=6)
    )
    store = small_store(tmp_path / "store", world, beliefs="plain")
    seen: list[int] = []
    stopped = world.soft_model("mid", seen, stop=24)
    with pytest.raises(KeyboardInterrupt):
        store.update(stopped, budget="100%", rule="max-belief", evaluation=Evaluation(batch=6))
    assert store.check() == []
    (run,) = store.status()["unfinished"]
    kept = [pq.read_table(path) for path in Path(store.path, "runs", run).glob("votes-*")]
    assert sum(part.num_rows for part in kept) == 24
    assert all(part["soft_weights"].null_count == 0 for part in kept)
    store.update(
        world.soft_model("mid", seen),
        budget="100%",
        rule="max-belief",
        evaluation=Evaluation(batch=6),
    )
    assert len(seen) == len(set(seen)) == 60
    assert contents(store) == contents(expected)
    assert store.check() == []


def test_a_plan_carried_out_with_soft_votes(world: SoftWorld, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", world, beliefs="plain")
    model = world.soft_model("mid")
    plan = store.plan(registered(store, model), budget=9, rule="max-belief")
    assert store.update(model, plan=plan.id).evaluations == 9
    rows = [row for row in contents(store)["rows"] if row["step"] == 1]
    assert {row["row"] for row in rows} == set(plan.rows.tolist())
    assert all(len(row["soft_classes"]) <= 3 for row in rows)
    assert store.check() == []


def test_a_file_of_soft_votes(world: SoftWorld, tmp_path: Path) -> None:
    """Made elsewhere, with or without the vote itself, they give what the model itself gives."""
    sure = world.sure("mid").tolist()
    votes = {"id": [f"item-{number}" for number in range(60)], "sure": sure}
    labelled = world.labelled_table("mid")
    told = []
    for name, held in (("bare", votes), ("both", votes | {"vote": world.votes["mid"]})):
        store = small_store(tmp_path / name, world, beliefs="plain")
        model = Model("mid", labelled=labelled, soft=3)
        store.update(model, votes=VoteFile(held, soft="sure"), budget="100%", rule="max-belief")
        assert store.check() == []
        told.append(beliefs(store))
    asked = small_store(tmp_path / "asked", world, beliefs="plain")
    model = Model(
        "mid",
        labelled=labelled,
        soft=3,
        predict=lambda batch: world.sure("mid")[batch["number"].to_numpy()],
    )
    asked.update(model, budget="100%", rule="max-belief")
    assert told[0] == told[1] == beliefs(asked)
    with pytest.raises(InvalidData, match="has no column 'nope'"):
        asked.update(
            Model("new", labelled=labelled), votes=VoteFile(votes, soft="nope"), budget="50%"
        )


def test_codes_in_a_file_need_to_be_explained(world: SoftWorld, tmp_path: Path) -> None:
    own = ["owl", "fox", "dog", "cat"]
    codes = [own.index(vote) for vote in world.votes["mid"].tolist()]
    votes: dict[str, list[Any]] = {"id": [f"item-{n}" for n in range(60)], "vote": codes}
    labelled = world.labelled_table("mid")
    store = small_store(tmp_path / "store", world, beliefs="plain")
    with pytest.raises(InvalidData, match=r"got int64\. .* list the model's own classes"):
        store.update(Model("mid", labelled=labelled), votes=votes, budget="100%", rule="replace")
    explained = Model("explained", labelled=labelled, classes=own)
    store.update(explained, votes=votes, budget="100%", rule="replace")
    assert store.labels()["label"].to_pylist() == world.votes["mid"].tolist()
    votes["vote"][7] = 4
    with pytest.raises(InvalidData, match=r"unknown classes in 1 row: \[4\], first in row 7"):
        store.update(
            Model("again", labelled=labelled, classes=own),
            votes=votes,
            budget="100%",
            rule="replace",
        )


# Calibrated on labelled ones


class LabelledSoftly(SoftWorld):
    """Models whose labelled votes come with probabilities too, and are far too sure."""

    def shown(self, votes: np.ndarray, seed: int) -> np.ndarray:
        """(n, 4) a vote, surer where it is right more often, and much too sure."""
        rng = np.random.default_rng(seed)
        codes = np.searchsorted(NAMES, votes)
        table = 0.02 * rng.dirichlet(np.ones(4), size=len(votes))
        table[np.arange(len(votes)), codes] += 0.98
        return table

    def sure(self, name: str) -> np.ndarray:
        return self.shown(self.votes[name], 1)

    def softly(self, name: str, predict: bool = True) -> Model:
        labelled = self.labelled_table(name)
        table = self.shown(self.labelled[name], 2)
        labelled = labelled.append_column("p", pa.array(table.tolist()))
        model = self.soft_model(name)
        return Model(
            name,
            labelled=labelled,
            predict=model.predict if predict else None,
            soft=3,
            labelled_soft="p",
        )

    def temperature(self, name: str) -> beliefs_temperature.Temperature:
        soft = SoftVotes.top(self.shown(self.labelled[name], 2), 3)
        weights = soft.weights.astype(np.float32).astype(np.float64)
        truth = np.searchsorted(NAMES, self.labelled_truth).astype(np.int32)
        return beliefs_temperature.fit(
            SoftVotes(soft.codes, weights, 4, soft.hard), truth, classes=len(NAMES)
        )


def test_soft_votes_are_calibrated_on_labelled_ones(tmp_path: Path) -> None:
    """Soft and calibrated, soft as given, and hard votes in one history."""
    world = LabelledSoftly()
    store = small_store(tmp_path / "store", world, beliefs="plain")
    store.update(world.softly("mid"), budget="100%", rule="max-belief")
    store.update(world.soft_model("new"), budget="50%", rule="cost-ratio:2")
    known = world.temperature("mid")
    assert known.sharpness < 0.7
    soft = [
        naive_temperatures.calibrated(naive.top(row, 3), known.sharpness, known.biases.tolist())
        for row in world.sure("mid").tolist()
    ]
    asked = {row["row"] for row in contents(store)["rows"] if row["step"] == 2}
    told = beliefs(store)
    for number in range(60):
        votes: dict[str, Any] = {
            "old": int(np.searchsorted(NAMES, world.votes["old"][number])),
            "mid": soft[number],
        }
        if number in asked:
            votes["new"] = naive.top(world.sure("new").tolist()[number], 3)
        expected = dict(zip(NAMES.tolist(), world.believed(votes), strict=True))
        assert told[number] == pytest.approx(expected, abs=1e-5)
    fits = [header["fit"] for header in contents(store)["headers"]]
    assert [fit.get("order") for fit in fits] == [None, ["mid"], ["mid"]]
    assert store.check() == []


def test_each_step_keeps_how_it_read_soft_votes(tmp_path: Path) -> None:
    world = LabelledSoftly()
    store = small_store(tmp_path / "store", world, beliefs="plain")
    before = store.labels().to_pylist()
    store.update(world.softly("mid"), budget="100%", rule="max-belief")
    after = store.labels().to_pylist()
    assert after != before
    done = store.revert(1)
    assert [row["label"] for row in store.labels().to_pylist()] == [row["label"] for row in before]
    store.revert(done.step)
    assert [row["label"] for row in store.labels().to_pylist()] == [row["label"] for row in after]
    assert store.check() == []
    (kept,) = Path(store.path, "fits").iterdir()
    content = kept.read_bytes()
    kept.write_bytes(content[:-1])
    assert any("cannot be read" in line for line in store.check())
    kept.unlink()
    assert any("What step 1 decided with" in line for line in store.check())


def test_labelled_soft_votes_alone_and_other_ones_are_told_apart(tmp_path: Path) -> None:
    """Without a column of votes the most probable class is the vote; a model is registered once."""
    world = LabelledSoftly()
    store = small_store(tmp_path / "store", world, beliefs="plain")
    model = world.softly("mid", predict=False)
    told = store.register(model)
    assert told is not None
    assert told.labelled == 80
    only = Model("mid", labelled=model.labelled.drop_columns("vote"), soft=3, labelled_soft="p")
    store.register(only)  # the same
    other = model.labelled.drop_columns("p").append_column(
        "p", pa.array([[0.4, 0.2, 0.2, 0.2]] * 80)
    )
    with pytest.raises(InvalidData, match="registered with other labelled votes"):
        store.register(Model("mid", labelled=other, soft=3, labelled_soft="p"))
    with pytest.raises(InvalidData, match="no column 'q'"):
        store.register(Model("new", labelled=other, labelled_soft="q"))
