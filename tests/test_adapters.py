"""Adapters: what they read of a batch, what they make of a model's answer, how they are named."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnx
import pandas
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto, helper
from PIL import Image
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline

from posterity.errors import InvalidData, InvalidParameter, MissingExtra, Unavailable
from posterity.models.adapters import (
    HttpEndpoint,
    HuggingFace,
    Images,
    OnnxRuntime,
    ScikitLearn,
    features,
    open_adapter,
    texts,
)

WORDS = ["a tabby cat", "a barking dog", "cat on a mat", "dog in the fog"]
NUMBERS = np.array([[0.0, 1.0], [1.0, 0.0], [0.2, 0.9], [0.8, 0.1]])
KINDS = ["cat", "dog", "cat", "dog"]


def items(**columns: Any) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({"id": [f"i{row}" for row in range(count)], **columns})


NUMBERED = items(a=NUMBERS[:, 0], b=NUMBERS[:, 1], both=NUMBERS.tolist())


# What is read of a batch


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts(kind: pa.DataType) -> None:
    assert texts(items(text=pa.array(WORDS).cast(kind)), "text") == WORDS


def test_texts_that_are_not_there() -> None:
    with pytest.raises(Unavailable, match="no column 'words'; they have: id, text"):
        texts(items(text=WORDS), "words")
    with pytest.raises(Unavailable, match="'text' must hold texts; it holds int64"):
        texts(items(text=[1, 2]), "text")
    with pytest.raises(InvalidData, match=r"'text' of item 'i1' is empty \(2 such items\)"):
        texts(items(text=["x", None, None]), "text")
    with pytest.raises(InvalidData, match="of item 'i0' is empty"):
        texts(items(text=pa.nulls(1)), "text")


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 2)],
)
def test_features_side_by_side_or_in_lists(kind: pa.DataType) -> None:
    beside = features(NUMBERED, ["a", "b"])
    listed = features(items(x=pa.array(NUMBERS.tolist(), kind)), ["x"])
    assert beside.dtype == listed.dtype == np.float32
    assert_allclose(beside, NUMBERS, rtol=1e-6)
    assert_allclose(listed, NUMBERS, rtol=1e-6)
    part = items(x=pa.array(NUMBERS.tolist(), kind)).slice(1, 2)
    assert_allclose(features(part, ["x"]), NUMBERS[1:3], rtol=1e-6)
    apart = pa.concat_tables([part.slice(1), part.slice(0, 1)])
    assert_allclose(features(apart, ["x"]), NUMBERS[[2, 1]], rtol=1e-6)


def test_features_of_other_kinds_of_number() -> None:
    given = items(whole=[1, 2], flag=[True, False], exact=pa.array([1, 2], pa.decimal128(5, 2)))
    read = features(given, ["whole", "flag", "exact"], dtype=np.int64)
    assert read.tolist() == [[1, 1, 1], [2, 0, 2]]


@pytest.mark.parametrize(
    ("given", "columns", "error", "told"),
    [
        (items(a=[1.0, None]), ["a"], InvalidData, "'a' of item 'i1' is empty"),
        (items(a=[[1.0], None]), ["a"], InvalidData, "'a' of item 'i1' is empty"),
        (items(a=[[1.0], [2.0], [1.0, 2.0]]), ["a"], InvalidData, "item 'i2' has not 1 numbers"),
        (items(a=[[1.0, 2.0], [3.0, None]]), ["a"], InvalidData, "item 'i1' holds a list with a"),
        (
            items(a=pa.array([[1.0, 2.0], [None, 3.0]], pa.list_(pa.float64(), 2))),
            ["a"],
            InvalidData,
            "item 'i1' holds a list with a",
        ),
        (items(a=["x"]), ["a"], Unavailable, "'a' must hold numbers or lists of numbers"),
        (items(a=[[["x"]]]), ["a"], Unavailable, "must hold numbers"),
        (items(a=[1]), ["a", "b"], Unavailable, "no column 'b'"),
        (items(a=[1]), "a", InvalidParameter, "a list of column names"),
    ],
)
def test_features_that_cannot_be_used(
    given: pa.Table, columns: Any, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        features(given, columns)


def test_whole_numbers_are_not_cut_off() -> None:
    with pytest.raises(InvalidData, match="must hold whole numbers"):
        features(items(a=[1.0, 0.7]), ["a"], dtype=np.int64)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for at in range(3):
        Image.new("L", (8, 6), 60 * at).save(tmp_path / f"{at}.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "0.png").read_bytes()[:40])
    return tmp_path


def test_images_are_opened_only_when_asked_for(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    real = Image.open

    def counting(path: Any) -> Any:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(Image, "open", counting)
    batch = items(path=["0.png", "broken.png", "2.png", "absent.png"])
    images = Images(batch, "path", root=pictures)
    assert len(images) == 4
    assert opened == []
    third = images[2]
    assert opened == [pictures / "2.png"]
    assert third.mode == "RGB"
    assert third.getpixel((0, 0)) == (120, 120, 120)
    assert images[-2].getpixel((0, 0)) == (120, 120, 120)
    rest = images[2:]
    assert len(rest) == 2
    assert len(opened) == 2
    with pytest.raises(InvalidData, match=r"image of item 'i1' \('.*broken.png'\) cannot be"):
        images[1]
    with pytest.raises(InvalidData, match=r"image of item 'i3' \('.*absent.png'\) cannot be"):
        rest[1]
    with pytest.raises(IndexError):
        images[4]


def test_images_from_bytes_in_a_mode_and_size(pictures: Path) -> None:
    stored = [(pictures / f"{at}.png").read_bytes() for at in range(3)]
    images = Images(items(image=[*stored, b"no image"]), "image", mode="L", size=(4, 3))
    assert [image.size for image in images[:3]] == [(4, 3)] * 3
    assert images[1].getpixel((0, 0)) == 60
    with pytest.raises(InvalidData, match=r"item 'i3' \(8 bytes\)"):
        images[3]
    with pytest.raises(Unavailable, match="must hold paths or bytes of images"):
        Images(items(image=[1.0]), "image")


# scikit-learn


def test_scikit_learn_with_texts(tmp_path: Path) -> None:
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(WORDS, KINDS)
    joblib.dump(pipeline, tmp_path / "model.joblib")
    adapter = open_adapter(f"scikit-learn:{tmp_path / 'model.joblib'},column=text")
    assert isinstance(adapter, ScikitLearn)
    assert adapter.classes is None  # nothing is loaded yet
    votes = adapter(items(text=WORDS))
    assert adapter.classes == ("cat", "dog")
    assert_allclose(votes, pipeline.predict_proba(WORDS), rtol=1e-9)
    (tmp_path / "model.joblib").unlink()
    assert len(adapter(items(text=WORDS[:1]))) == 1  # loaded once
    with pytest.raises(InvalidData, match="'text' of item 'i1' is empty"):
        adapter(items(text=["a cat", None]))


@pytest.mark.parametrize("options", [{"columns": ["a", "b"]}, {"column": "both"}])
def test_scikit_learn_with_numbers(options: dict[str, Any]) -> None:
    model = LogisticRegression().fit(NUMBERS, KINDS)
    adapter = ScikitLearn(model, **options)
    assert adapter.classes == ("cat", "dog")
    assert_allclose(adapter(NUMBERED), model.predict_proba(NUMBERS), rtol=1e-12)
    assert ScikitLearn(model, probabilities=False, **options)(NUMBERED) == KINDS


def test_scikit_learn_without_probabilities() -> None:
    codes = RidgeClassifier().fit(NUMBERS, [3, 5, 3, 5])
    assert ScikitLearn(codes, columns=["a", "b"]).classes == (3, 5)
    assert ScikitLearn(codes, columns=["a", "b"])(NUMBERED) == [3, 5, 3, 5]
    named = ScikitLearn(codes, columns=["a", "b"], classes=["cat", "dog"])
    assert named.classes == ("cat", "dog")
    assert named(NUMBERED) == KINDS
    truth = RidgeClassifier().fit(NUMBERS, [False, True, False, True])
    assert ScikitLearn(truth, columns=["a", "b"]).classes == (False, True)
    assert ScikitLearn(truth, columns=["a", "b"])(NUMBERED) == [False, True, False, True]


def test_scikit_learn_fitted_on_named_columns() -> None:
    frame = pandas.DataFrame(NUMBERS, columns=["a", "b"])
    model = LogisticRegression().fit(frame, KINDS)
    expected = model.predict_proba(frame)
    for columns in (["a", "b"], ["b", "a"], None):
        assert_allclose(ScikitLearn(model, columns=columns)(NUMBERED), expected)
    assert_allclose(ScikitLearn(model, column="both")(NUMBERED), expected)
    with pytest.raises(Unavailable, match="fitted on the columns a, b; it is to be asked about a"):
        ScikitLearn(model, columns=["a", "both"])(NUMBERED)
    with pytest.raises(Unavailable, match="no column 'b'; they have: id, a"):
        ScikitLearn(model)(NUMBERED.select(["id", "a"]))


def test_scikit_learn_fitted_on_a_frame_of_texts_and_numbers() -> None:
    batch = items(text=WORDS, size=[1.0, 2.0, None, 4.0])
    frame = batch.select(["size", "text"]).to_pandas()
    columns = [("words", TfidfVectorizer(), "text"), ("size", SimpleImputer(), ["size"])]
    model = make_pipeline(ColumnTransformer(columns), LogisticRegression()).fit(frame, KINDS)
    assert_allclose(ScikitLearn(model)(batch), model.predict_proba(frame))


def test_scikit_learn_on_the_only_column_or_a_wildcard() -> None:
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(WORDS, KINDS)
    assert_allclose(ScikitLearn(pipeline)(items(text=WORDS)), pipeline.predict_proba(WORDS))
    model = LogisticRegression().fit(NUMBERS, KINDS)
    pixels = items(px10=NUMBERS[:, 0], px9=NUMBERS[:, 1], shade=[1.0] * 4)
    votes = ScikitLearn(model, columns=["px*"])(pixels)  # in the order of the table
    assert_allclose(votes, model.predict_proba(NUMBERS))
    with pytest.raises(Unavailable, match=r"Which columns .* have: px10, px9, shade"):
        ScikitLearn(model)(pixels)
    with pytest.raises(Unavailable, match=r"No column matches 'q\*'; there are: px10"):
        ScikitLearn(model, columns=["q*"])(pixels)


def test_probabilities_in_the_order_of_named_classes() -> None:
    model = LogisticRegression().fit(NUMBERS, KINDS)
    adapter = ScikitLearn(model, column="both", classes=["dog", "cat"])
    assert adapter.classes == ("dog", "cat")
    assert_allclose(adapter(NUMBERED), model.predict_proba(NUMBERS)[:, ::-1])
    hard = ScikitLearn(model, column="both", classes=["dog", "cat"], probabilities=False)
    assert hard(NUMBERED) == KINDS


def test_objects_of_other_libraries() -> None:
    class Network:
        def predict(self, numbers: np.ndarray) -> np.ndarray:
            return np.column_stack([1 - numbers[:, 0], numbers[:, 0]]).astype(np.float32)

    class Labels:
        def predict(self, numbers: np.ndarray) -> list[list[str]]:
            return [["dog" if first > 0.5 else "cat"] for first, _ in numbers]

    assert ScikitLearn(Network(), column="both").classes is None
    votes = ScikitLearn(Network(), column="both", classes=["cat", "dog"])(NUMBERED)
    assert_allclose(votes, np.column_stack([1 - NUMBERS[:, 0], NUMBERS[:, 0]]), rtol=1e-6)
    assert ScikitLearn(Labels(), column="both")(NUMBERED) == KINDS


PIXELS = items(**{f"px{at}": NUMBERS[:, at % 2] + at for at in (1, 10, 2)}, other=[0.0] * 4)


def test_wildcards_name_columns_in_the_order_of_the_items() -> None:
    wanted = np.column_stack([NUMBERS[:, at % 2] + at for at in (1, 10, 2)])
    assert_allclose(features(PIXELS, ["px*"]), wanted, rtol=1e-6)
    assert_allclose(features(PIXELS, ["other", "px1*"])[:, 1:], wanted[:, :2], rtol=1e-6)
    assert features(PIXELS, ["*"]).shape == (4, 4)  # without the ids
    with pytest.raises(
        Unavailable, match=r"No column matches 'z\*'; there are: px1, px10, px2, oth"
    ):
        features(PIXELS, ["z*"])


def test_scikit_learn_with_a_wildcard(tmp_path: Path) -> None:
    frame = PIXELS.select(["px10", "px2", "px1"]).to_pandas()
    model = LogisticRegression().fit(frame, KINDS)
    joblib.dump(model, tmp_path / "m.joblib")
    for option in ("column", "columns"):
        adapter = open_adapter(f"scikit-learn:{tmp_path}/m.joblib,{option}=px*")
        assert adapter is not None
        # The estimator knows in which order it was fitted on them.
        assert_allclose(adapter(PIXELS), model.predict_proba(frame))
    with pytest.raises(
        Unavailable, match="fitted on the columns px10, px2, px1; it is to be asked"
    ):
        ScikitLearn(model, columns=["*"])(PIXELS)
    plain = LogisticRegression().fit(frame.to_numpy(), KINDS)
    votes = ScikitLearn(plain, columns=["px*"])(PIXELS)
    assert_allclose(
        votes, plain.predict_proba(PIXELS.select(["px1", "px10", "px2"]).to_pandas().to_numpy())
    )


def test_scikit_learn_that_cannot_vote(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="LogisticRegression is no fitted classifier"):
        ScikitLearn(LogisticRegression(), column="both")
    floats = LogisticRegression().fit(NUMBERS, [0.0, 1.0, 0.0, 1.0])
    with pytest.raises(Unavailable, match="all strings, all integers or all booleans"):
        ScikitLearn(floats, column="both")
    with pytest.raises(Unavailable, match="has 2 classes; 3 names were given"):
        ScikitLearn(
            LogisticRegression().fit(NUMBERS, KINDS), column="both", classes=["a", "b", "c"]
        )
    with pytest.raises(Unavailable, match="cannot be loaded: FileNotFoundError"):
        ScikitLearn(tmp_path / "absent.joblib", column="both")(NUMBERED)
    (tmp_path / "text.joblib").write_text("not a model")
    with pytest.raises(Unavailable, match="cannot be loaded"):
        ScikitLearn(tmp_path / "text.joblib", column="both")(NUMBERED)
    model = LogisticRegression().fit(NUMBERS, KINDS)
    with pytest.raises(InvalidData, match=r"failed on this batch: ValueError: .*features"):
        ScikitLearn(model, columns=["a"])(NUMBERED)
    with pytest.raises(InvalidData, match=r"failed on this batch: ValueError: .*NaN"):
        ScikitLearn(model, columns=["a", "b"])(items(a=[1.0], b=[float("nan")]))
    with pytest.raises(InvalidParameter, match="one of 'column' and 'columns'"):
        ScikitLearn(model, column="a", columns=["a"])


# ONNX

LOGITS = NUMBERS @ np.array([[-2.0, 3.0, 1.0], [2.0, -3.0, 0.5]])
SOFT = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def onnx_model(
    path: Path,
    nodes: list[Any],
    outputs: list[Any],
    *,
    reads: int = TensorProto.FLOAT,
    shape: tuple[Any, ...] = ("n", 2),
) -> Path:
    """A graph that begins with the logits of NUMBERS, written to a file."""
    weights = np.array([[-2.0, 3.0, 1.0], [2.0, -3.0, 0.5]], dtype=np.float32)
    first = [
        helper.make_node("Cast", ["x"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["cast"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        [*first, *nodes],
        "graph",
        [helper.make_tensor_value_info("x", reads, shape)],
        outputs,
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return save(path, graph)


def save(path: Path, graph: Any) -> Path:
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def floats(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])


SOFTMAX = helper.make_node("Softmax", ["logits"], ["soft"], axis=1)
CHOOSE = helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0)
LABEL = helper.make_tensor_value_info("label", TensorProto.INT64, ["n"])


def test_onnx_probabilities(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", [SOFTMAX], [floats("soft")])
    adapter = open_adapter(f"onnx-runtime:{path},columns=a+b,classes=cat+dog+fox")
    assert isinstance(adapter, OnnxRuntime)
    votes = adapter(NUMBERED)
    assert adapter.classes == ("cat", "dog", "fox")
    assert_allclose(votes, SOFT, atol=1e-6)
    path.unlink()
    assert_allclose(adapter(NUMBERED.slice(1, 1)), SOFT[1:2], atol=1e-6)  # loaded once


def test_onnx_logits(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", [], [floats("logits")])
    votes = OnnxRuntime(path, column="both", logits=True)(NUMBERED)
    assert_allclose(votes, SOFT, atol=1e-6)
    with pytest.raises(InvalidData, match="say so with logits=True"):
        OnnxRuntime(path, column="both")(NUMBERED)
    with pytest.raises(InvalidData, match="logits that are not finite"):
        OnnxRuntime(path, columns=["a", "b"], logits=True)(items(a=[1.0], b=[float("nan")]))
    with pytest.raises(Unavailable, match="gives 3 probabilities an item for 2 classes"):
        OnnxRuntime(path, column="both", logits=True, classes=["cat", "dog"])(NUMBERED)


def test_onnx_label_and_probabilities(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", [CHOOSE, SOFTMAX], [LABEL, floats("soft")])
    assert_allclose(OnnxRuntime(path, column="both")(NUMBERED), SOFT, atol=1e-6)
    chosen = OnnxRuntime(path, column="both", output="label", classes=["cat", "dog", "fox"])
    assert chosen(NUMBERED) == SOFT.argmax(axis=1).tolist()
    with pytest.raises(Unavailable, match="no output 'soff'; it has: label, soft"):
        OnnxRuntime(path, column="both", output="soff")(NUMBERED)


@pytest.mark.parametrize("keys", ["string", "int64"])
def test_onnx_label_and_maps(tmp_path: Path, keys: str) -> None:
    """The default of sklearn-onnx: a sequence of maps from class to probability."""
    names: list[Any] = ["fox", "cat", "dog"] if keys == "string" else [0, 1, 2]
    kind = TensorProto.STRING if keys == "string" else TensorProto.INT64
    maps = helper.make_node(
        "ZipMap",
        ["soft"],
        ["maps"],
        domain="ai.onnx.ml",
        **{f"classlabels_{keys}s": names},
    )
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    sequence = helper.make_sequence_type_proto(helper.make_map_type_proto(kind, value))
    outputs = [LABEL, helper.make_value_info("maps", sequence)]
    path = onnx_model(tmp_path / "m.onnx", [CHOOSE, SOFTMAX, maps], outputs)
    adapter = OnnxRuntime(path, column="both")
    for _ in range(2):
        votes = adapter(NUMBERED)
        assert adapter.classes is not None
        assert_allclose(votes[:, [adapter.classes.index(name) for name in names]], SOFT, atol=1e-6)
    given = OnnxRuntime(path, column="both", classes=["dog", "cat", "fox"])
    expected = SOFT[:, [2, 1, 0]] if keys == "string" else SOFT
    assert_allclose(given(NUMBERED), expected, atol=1e-6)
    if keys == "string":
        other = OnnxRuntime(path, column="both", classes=["cat", "dog", "newt"])
        with pytest.raises(InvalidData, match="classes that are not its own: 'fox'"):
            other(NUMBERED)


def test_onnx_texts_to_names(tmp_path: Path) -> None:
    encoder = helper.make_node(
        "LabelEncoder",
        ["x"],
        ["label"],
        domain="ai.onnx.ml",
        keys_strings=["meow", "woof"],
        values_strings=["cat", "dog"],
        default_string="fox",
    )
    for shape in (["n"], ["n", 1]):
        graph = helper.make_graph(
            [encoder],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.STRING, shape)],
            [helper.make_tensor_value_info("label", TensorProto.STRING, shape)],
        )
        adapter = OnnxRuntime(save(tmp_path / "m.onnx", graph), column="text")
        assert adapter(items(text=["woof", "meow", "ring"])) == ["dog", "cat", "fox"]


@pytest.mark.parametrize("reads", [TensorProto.DOUBLE, TensorProto.INT64])
def test_onnx_reads_other_types(tmp_path: Path, reads: int) -> None:
    path = onnx_model(tmp_path / "m.onnx", [], [floats("logits")], reads=reads)
    adapter = OnnxRuntime(path, columns=["a", "b"], logits=True)
    assert_allclose(adapter(NUMBERED.slice(0, 2)), SOFT[:2], atol=1e-6)
    if reads == TensorProto.INT64:
        with pytest.raises(InvalidData, match="whole numbers"):
            adapter(NUMBERED)


def test_onnx_reads_lists_in_the_shape_of_its_input(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", [SOFTMAX], [floats("soft")], shape=("n", 1, 2))
    assert_allclose(OnnxRuntime(path, column="both")(NUMBERED), SOFT, atol=1e-6)


def test_onnx_that_cannot_vote(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", [SOFTMAX], [floats("soft")])
    with pytest.raises(InvalidData, match="failed on this batch"):
        OnnxRuntime(path, columns=["a"])(NUMBERED)
    with pytest.raises(Unavailable, match=r"no provider 'Abacus' here; it has: .*CPU"):
        OnnxRuntime(path, column="both", providers=["Abacus"])(NUMBERED)
    with pytest.raises(Unavailable, match=r"absent.onnx' cannot be loaded"):
        OnnxRuntime(tmp_path / "absent.onnx", column="both")(NUMBERED)


# Specs


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("scikit-learn:model.joblib,column=text", ScikitLearn),
        ("scikit-learn:m.joblib, columns=a+b, probabilities=false", ScikitLearn),
        ("hugging-face:./folder,column=text,batch=16", HuggingFace),
        ("hugging-face:m,column=path,task=image-classification,root=photos", HuggingFace),
        ("onnx-runtime:m.onnx,column=features,classes=cat+dog+fox,logits=true", OnnxRuntime),
        ("http://localhost:8000/predict?version=2", HttpEndpoint),
        (
            "https://host/predict,column=text,concurrency=8,timeout=10,retries=5,token=MY_TOKEN",
            HttpEndpoint,
        ),
    ],
)
def test_specs(spec: str, kind: type) -> None:
    assert isinstance(open_adapter(spec), kind)


@pytest.mark.parametrize("spec", ["package.module:predict", "module", "", "ftp://host/x", "C:\\x"])
def test_what_is_no_adapter(spec: str) -> None:
    assert open_adapter(spec) is None


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("scikit-learn:m.joblib,colum=text", "'colum=text' is not .* takes: column, columns, prob"),
        ("scikit-learn:m.joblib,text", "'text' is not understood"),
        ("scikit-learn:m.joblib,column=a,column=b", "'column=b' is given twice"),
        ("scikit-learn:m.joblib,column=", "'column' must be a text that is not empty; got ''"),
        ("scikit-learn:m.joblib,columns=a++b", "'columns' must be names with \\+ between"),
        ("scikit-learn:m.joblib,column=a,probabilities=yes", "must be true or false; got 'yes'"),
        ("scikit-learn:m.joblib,column=a,columns=b+c", "Give one of 'column' and 'columns'"),
        ("scikit-learn", "names no model: write scikit-learn:path"),
        ("hugging-face:m", "'column' is missing in 'hugging-face:m'"),
        ("hugging-face:m,column=t,batch=many", "'batch' must be a whole number; got 'many'"),
        ("hugging-face:m,column=t,batch=0", "'batch' must be a count ≥ 1"),
        ("hugging-face:m,column=t,task=poetry", "'task' must be text-classification or"),
        ("https://host/x,timeout=soon", "'timeout' must be a number of seconds.* takes: column"),
        ("https://host/x,timeout=nan", "'timeout' must be a finite number above 0"),
        ("https://host/x,backoff=-1", "'backoff' must be a finite number ≥ 0"),
        ("https://host/x,retries=-1", "'retries' must be a whole number from 0"),
        ("https://host/x,concurrency=0", "'concurrency' must be a whole number from 1"),
        ("https://", "must be http://… or https://…"),
        ("https://host:port/x", "must be http://… or https://…"),
    ],
)
def test_specs_that_are_wrong(spec: str, told: str) -> None:
    with pytest.raises(InvalidParameter, match=told):
        open_adapter(spec)


def run_python(script: str) -> str:
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_opening_a_spec_imports_no_model_library() -> None:
    specs = ["scikit-learn:m,column=t", "hugging-face:m,column=t", "onnx-runtime:m,column=t"]
    heavy = {"sklearn", "joblib", "transformers", "torch", "onnxruntime", "urllib3", "PIL"}
    script = (
        "import sys; from posterity.models.adapters import open_adapter\n"
        f"for spec in {[*specs, 'http://host']}: open_adapter(spec)\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert run_python(script) == "[]"


@pytest.mark.parametrize(
    ("spec", "library", "extra"),
    [
        ("scikit-learn:m,column=t", "sklearn", "scikit-learn"),
        ("hugging-face:m,column=t", "transformers", "hugging-face"),
        ("onnx-runtime:m,column=t", "onnxruntime", "onnx-runtime"),
        ("http://127.0.0.1:9/x", "urllib3", "http"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    spec: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # what an import of an absent library meets
    adapter: Callable[[pa.Table], Any] | None = open_adapter(spec)
    assert adapter is not None
    with pytest.raises(MissingExtra, match=rf"posterity\[{extra}\]"):
        adapter(items(t=["x"]))


def test_images_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    stored = io.BytesIO()
    with pytest.raises(MissingExtra, match=r"posterity\[images\]"):
        Images(items(image=[stored.getvalue()]), "image")[0]
