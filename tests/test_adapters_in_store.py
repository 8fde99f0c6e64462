"""Each adapter as users name it, from the command line to labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from posterity import Model, Store, cli
from posterity.engine.evaluation.durable_votes import Run
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter, Unavailable
from posterity.storage.files import open_files
from tests.test_adapters import SOFTMAX, floats, onnx_model
from tests.test_http_endpoint import Instances, Server, server  # noqa: F401 a fixture
from tests.test_hugging_face import LABELS, ask_directly, reader  # noqa: F401 a fixture

WORDS = ["a cat", "the dog on the mat", "fox", "a fox on a cat", "dog", "mat " * 100]


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    given = [str(argument) for argument in arguments]
    assert cli.run([*given, "--json"]) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    return json.loads(captured.err if code else captured.out)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Texts and numbers to vote on, and a model that is right most of the time."""
    made = Store.create(tmp_path / "store", classes=["cat", "dog", "fox"])
    numbers = np.arange(60)
    made.add(
        {
            "id": [f"i{number}" for number in numbers],
            "text": [WORDS[number % 6] for number in numbers],
            "number": numbers,
            "shades": [[float(number % 3), 1.0] for number in numbers],
        }
    )
    return made


def test_scikit_learn(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["cat", "dog", "fox"] * 5
    joblib.dump(
        make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, texts),
        tmp_path / "m.joblib",
    )
    spec = f"scikit-learn:{tmp_path / 'm.joblib'},column=text"
    run(capsys, "model", store.path, "words", "--accuracy", 0.9, "--predict", spec)
    assert run(capsys, "update", store.path, "words")["evaluations"] == 60
    assert store.labels()["label"].to_pylist()[:5] == ["cat", "dog", "fox", "cat", "dog"]


@pytest.mark.parametrize("columns", ["text", ["text"], ["te*"]])
def test_a_classifier_as_it_is(store: Store, columns: Any) -> None:
    """Its classes are in another order than the store's, and one has another name."""
    texts = ["zebra cat", "dog", "fox"] * 5
    names = {"zebra cat": "tabby", "dog": "dog", "fox": "fox"}
    pipeline = make_pipeline(CountVectorizer(), LogisticRegression())
    pipeline.fit(texts, [names[text] for text in texts])
    assert list(pipeline.classes_) == ["dog", "fox", "tabby"]
    model = Model(
        "words", predict=pipeline, columns=columns, accuracy=0.9, class_map={"tabby": "cat"}, soft=2
    )
    assert store.update(model).evaluations == 60
    direct = ["cat" if vote == "tabby" else vote for vote in pipeline.predict(WORDS)]
    assert set(direct) == {"cat", "dog", "fox"}
    assert store.labels()["label"].to_pylist() == direct * 10
    assert store.check() == []


def test_a_classifier_fitted_on_codes_of_named_columns(store: Store) -> None:
    numbers = pandas.DataFrame({"number": np.arange(60)})
    tree = DecisionTreeClassifier().fit(numbers, np.arange(60) // 20)
    unnamed = Model("tree", predict=tree, accuracy=0.9)
    with pytest.raises(
        Unavailable, match=r"3 of the model's classes are none of ours: \[0, 1, 2\]"
    ):
        store.update(unnamed)
    named = Model("tree", predict=tree, accuracy=0.9, classes=["cat", "dog", "fox"])
    assert store.update(named).evaluations == 60
    expected = ["cat"] * 20 + ["dog"] * 20 + ["fox"] * 20
    assert store.labels()["label"].to_pylist() == expected


def test_what_is_no_classifier_is_told_at_once(store: Store) -> None:
    with pytest.raises(Unavailable, match="LogisticRegression is no fitted classifier"):
        Model("words", predict=LogisticRegression(), columns="text", accuracy=0.9)
    with pytest.raises(InvalidParameter, match="'columns' goes with a classifier in 'predict'"):
        Model("words", predict=lambda batch: ["cat"] * len(batch), columns="text", accuracy=0.9)
    with pytest.raises(InvalidParameter, match="a callable, a fitted classifier"):
        Model("words", predict=3, accuracy=0.9)
    fitted = LogisticRegression().fit([[0.0], [1.0]], ["cat", "dog"])
    with pytest.raises(Unavailable, match=r"Which columns .* have: text, number, shades"):
        store.update(Model("words", predict=fitted, accuracy=0.9))


def test_onnx_runtime(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = onnx_model(tmp_path / "net.onnx", [SOFTMAX], [floats("soft")])
    spec = f"onnx-runtime:{path},column=shades,classes=cat+dog+fox"
    options = ("--accuracy", 0.9, "--soft", 2, "--predict", spec)
    run(capsys, "model", store.path, "net", *options)
    assert run(capsys, "update", store.path, "net", "--batch", 7)["evaluations"] == 60
    ledger = pa.table(_ledger(store)).filter(pa.compute.field("vote").is_valid())
    assert set(pa.compute.list_value_length(ledger["soft_classes"]).to_pylist()) <= {1, 2}
    assert store.check() == []


def _ledger(store: Store) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(f"{store.path}/ledger").to_pyarrow_table()


def test_hugging_face(
    store: Store,
    reader: Path,  # noqa: F811 a fixture
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = f"hugging-face:{reader},column=text,batch=16"
    run(capsys, "model", store.path, "bert", "--accuracy", 0.9, "--predict", spec)
    run(capsys, "update", store.path, "bert")
    direct = [LABELS[code] for code in ask_directly(reader).argmax(axis=1)]
    assert store.labels()["label"].to_pylist() == direct * 10


def test_a_server_that_goes_down_costs_nothing(
    store: Store,
    server: Server,  # noqa: F811 a fixture
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It stalls, fails, recovers, dies; the same command goes on, and keeps what it had."""
    answered: list[int] = []

    def dying(instances: Instances) -> Any:
        if len(answered) >= 30:
            return 503, b"out of order"
        answered.extend(item["number"] for item in instances)
        return {"predictions": ["cat" if item["number"] % 2 else "dog" for item in instances]}

    server.answer, server.first = dying, [503, 1.0, "close"]
    options = "column=number,request=5,concurrency=1,timeout=0.3,retries=4,backoff=0.01"
    run(
        *(capsys, "model", store.path, "served", "--accuracy", 0.9),
        *("--predict", f"{server.url},{options}"),
    )
    told = run(capsys, "update", store.path, "served", "--batch", 10, code=1)
    assert told["error"]["kind"] == "unavailable"
    assert "5 tries: 503" in told["error"]["message"]
    assert store.status()["step"] == -1
    (unfinished,) = store.status()["unfinished"]
    kept = len(Run(Context(open_files(store.path)), unfinished).votes()[0])
    assert kept >= 20
    assert store.check() == []
    del answered[:]

    def mended(instances: Instances) -> Any:
        answered.extend(item["number"] for item in instances)
        return {"predictions": ["cat" if item["number"] % 2 else "dog" for item in instances]}

    server.answer = mended
    report = run(capsys, "update", store.path, "served", "--batch", 10)
    assert report["evaluations"] == 60
    late = [number for number in answered if number < kept]  # the stalled one, long given up
    assert len(late) <= 5
    assert sorted(set(answered) - set(late)) == list(range(kept, 60))
    assert store.labels()["label"].to_pylist() == ["dog", "cat"] * 30
