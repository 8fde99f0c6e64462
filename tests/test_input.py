"""Data as programs hold it: records, frames with ids in the index, votes by id, pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.errors import InvalidData
from posterity.storage.input import read_rows

IDS = ["t1", "t2", "t3"]
TEXTS = ["it broke", "how?", "great"]
VOTES = ["bug", "question", "praise"]
CLASSES = ["bug", "praise", "question"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "store", classes=CLASSES)
    made.add({"id": IDS, "text": TEXTS})
    return made


@pytest.mark.parametrize(
    "items",
    [
        [{"id": "t1", "text": "it broke"}, {"text": "how?", "id": "t2"}, {"id": "t3"}],
        {"id": IDS, "text": ["it broke", "how?", None]},
        pandas.DataFrame({"id": IDS, "text": ["it broke", "how?", None]}, index=[7, 5, 3]),
        pandas.DataFrame({"text": ["it broke", "how?", None]}, index=IDS),
        pandas.DataFrame({"text": ["it broke", "how?", None]}, index=pandas.Index(IDS, name="id")),
        pandas.Series(["it broke", "how?", None], index=IDS, name="text"),
        polars.DataFrame({"id": IDS, "text": ["it broke", "how?", None]}),
        ({"id": "t1", "text": "it broke"}, {"id": "t2", "text": "how?"}, {"id": "t3"}),
        [{"id": IDS[:2], "text": TEXTS[:2]}, pa.table({"id": ["t3"], "text": pa.nulls(1)})],
    ],
    ids=lambda items: type(items).__name__,
)
def test_items(items: Any, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=CLASSES)
    assert store.add(items) == 3
    model = Model(
        "length",
        predict=lambda batch: [_class_of(text) for text in batch["text"].to_pylist()],
        accuracy=0.9,
    )
    store.update(model)
    labels = store.labels()
    assert labels["id"].to_pylist() == IDS
    assert labels["label"].to_pylist() == ["bug", "praise", "question"]


def _class_of(text: str | None) -> str:
    return {8: "bug", 4: "praise", 0: "question"}[len(text or "")]


def test_payload_of_records_is_all_they_hold(tmp_path: Path) -> None:
    vectors = np.arange(6.0).reshape(3, 2)
    store = Store.create(tmp_path / "store", classes=CLASSES)
    store.add({"id": IDS, "vector": vectors, "lists": [[1], [2, 3], []]})
    seen: list[Any] = []

    def predict(batch: pa.Table) -> list[str]:
        seen.extend(batch.to_pylist())
        return ["bug"] * len(batch)

    store.update(Model("any", predict=predict, accuracy=0.9))
    assert [row["vector"] for row in seen] == vectors.tolist()
    assert [row["lists"] for row in seen] == [[1], [2, 3], []]


BY_ID = [
    dict(zip(IDS, VOTES, strict=True)),
    pandas.Series(VOTES, index=IDS),
    pandas.Series(VOTES, index=IDS, name="anything", dtype="category"),
]


@pytest.mark.parametrize(
    "votes",
    [
        *BY_ID,
        [{"id": item, "vote": vote} for item, vote in zip(IDS, VOTES, strict=True)],
        {"id": np.array(IDS), "vote": np.array(VOTES)},
        polars.DataFrame({"id": IDS, "vote": VOTES}),
        pandas.DataFrame({"vote": VOTES}, index=IDS),
    ],
)
def test_votes(store: Store, votes: Any) -> None:
    store.register(Model("m", accuracy=0.9))
    assert store.update("m", votes=votes).evaluations == 3
    assert store.labels()["label"].to_pylist() == VOTES


@pytest.mark.parametrize("answers", [*BY_ID, [{"id": "t1", "answer": "bug"}]])
def test_answers(store: Store, answers: Any) -> None:
    store.update(Model("m", accuracy=0.9), votes=dict.fromkeys(IDS, "praise"))
    assert store.review(answers).items == (3 if len(answers) == 3 else 1)
    assert store.labels()["label"].to_pylist()[0] == "bug"


@pytest.mark.parametrize("truth", BY_ID)
def test_the_truth_of_stored_items(store: Store, truth: Any) -> None:
    model = Model("m", labelled=truth, predict=lambda batch: ["bug"] * len(batch))
    assert store.register(model).pending == 3


@pytest.mark.parametrize("kind", [list, np.array, pandas.Series, pa.array, polars.Series])
@pytest.mark.parametrize("together", [list, tuple])
def test_truths_and_votes(store: Store, kind: Any, together: Any) -> None:
    """As metrics of scikit-learn take them."""
    right, cast = VOTES * 10, VOTES[:2] * 15
    found = store.register(Model("m", labelled=together([kind(right), kind(cast)])))
    assert found.labelled == 30
    expected = np.mean([one == other for one, other in zip(right, cast, strict=True)])
    assert found.accuracy == pytest.approx(expected)


def test_pairs_that_do_not_fit(store: Store) -> None:
    with pytest.raises(InvalidData, match="has 3 truths and 2 votes; there must be one of each"):
        store.register(Model("m", labelled=(VOTES, VOTES[:2])))
    series = pandas.Series(VOTES)
    with pytest.raises(InvalidData, match="truths and votes in 'labelled data' have different ind"):
        store.register(Model("m", labelled=(series, series.sort_values())))


@pytest.mark.parametrize("predictions", BY_ID[:2])
def test_imported_predictions(tmp_path: Path, predictions: Any) -> None:
    store = Store.create(tmp_path / "store", classes=CLASSES)
    done = store.import_predictions(predictions, {"pred": Model("m", accuracy=0.9)})
    assert done.items == 3
    assert store.labels()["label"].to_pylist() == VOTES


def test_what_is_accepted_is_listed(store: Store) -> None:
    table = (
        r"must be an Arrow table, a pandas or Polars frame, a dict of columns, a list of records "
        r"\(dicts\), a pandas Series with ids as its index"
    )
    files = r"or a file \(.parquet, .csv, .tsv, .jsonl, .ndjson\), folder, glob or object-store URI"
    with pytest.raises(
        InvalidData, match=rf"'items' {table}, {files}, or a list of these; got set"
    ):
        store.add({"t4"})
    store.register(Model("m", accuracy=0.9))
    with pytest.raises(
        InvalidData, match=rf"'votes' {table}, a dict {{id: vote}}, {files}.*; got int"
    ):
        store.update("m", votes=3)
    with pytest.raises(
        InvalidData, match=rf"{table}, a dict {{id: answer}}, or a file .*got object"
    ):
        store.review(object())
    with pytest.raises(InvalidData, match=r"a pair \(truths, votes\), or a file .*; got list"):
        store.register(Model("n", labelled=["bug", "bug", "bug"]))
    for given in ({"id": "t4", "text": "x"}, [("t4", "x")], {"id": ["t4"], "text": "x"}):
        with pytest.raises(InvalidData, match=table):
            store.add(given)
    with pytest.raises(InvalidData, match=r"a Series without a name.*series.rename\('text'\)"):
        store.add(pandas.Series(["x"], index=["t4"]))
    with pytest.raises(InvalidData, match="has no column 'id'; it has: text"):
        store.add(pandas.DataFrame({"text": TEXTS}))


def test_a_named_index_is_a_column() -> None:
    frame = pandas.DataFrame({"id": IDS}, index=pandas.Index([3, 1, 2], name="page"))
    assert read_rows(frame, ids="id").column_names == ["page", "id"]
    assert read_rows(frame.rename_axis("id"), ids="id").column_names == ["id"]
