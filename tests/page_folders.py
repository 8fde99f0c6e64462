"""What pages take for granted: files of the tutorial, stores and models that are there already."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from posterity import Model, Store
from tests.conftest import ROOT
from tests.transcripts import blocks, shell

TUTORIAL = ROOT / "docs" / "tutorial.md"
MADE_BY = ("cat > make_tickets.py", "cat > train.py")


@cache
def tutorial_files() -> dict[str, bytes]:
    """The files of the tutorial's first part: tickets, some truth, a better model."""
    page = TUTORIAL.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        for block in blocks(page):
            if block.language == "sh" and block.text.startswith(MADE_BY):
                shell(block.text, Path(scratch))
                if "make_tickets" in block.text:
                    shell("python make_tickets.py", Path(scratch))
        return {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


def put_tutorial_files(folder: Path) -> None:
    for name, content in tutorial_files().items():
        (folder / name).write_bytes(content)


SCANS = ("benign", "other", "tumour")
VOTERS = """
class Voter:
    def __init__(self, column):
        self.column = column

    def __call__(self, batch):
        return batch[self.column].to_pylist()

vit = Voter("vit")
clip = Voter("clip")
"""


def put_photos(folder: Path) -> None:
    """Photos that resnet18 has labelled, and two models that can look at them."""
    draw = np.random.default_rng(0)
    names = np.array(SCANS)

    def cast(truth: np.ndarray, accuracy: float) -> np.ndarray:
        right = draw.random(len(truth)) < accuracy
        return names[np.where(right, truth, (truth + draw.integers(1, 3, len(truth))) % 3)]

    def known(count: int, prefix: str) -> dict[str, object]:
        truth = draw.integers(0, 3, count)
        return {
            "id": [f"{prefix}_{row:04}" for row in range(count)],
            "truth": names[truth],
            "camera": draw.choice(["old", "new"], count),
            "resnet18": cast(truth, 0.7),
            "vit": cast(truth, 0.9),
            "clip": cast(truth, 0.85),
        }

    stored, labelled = pa.table(known(3000, "img")), pa.table(known(1500, "val"))
    (folder / "mymodels.py").write_text(VOTERS)
    (folder / "classes.txt").write_text("\n".join(SCANS))
    pq.write_table(labelled.append_column("dino", labelled["vit"]), folder / "val.parquet")
    store = Store.create(folder / "photos", classes=SCANS)
    store.import_predictions(
        stored.drop_columns(["truth"]),
        {"resnet18": Model("resnet18", labelled=labelled, vote="resnet18")},
    )
    for name, column in (("vit-l", "vit"), ("clip-large", "clip")):
        source = f"mymodels:{column}"
        store.register(Model(name, labelled=labelled, vote=column, predict=source, cost=0.002))


def put_models(folder: Path) -> None:
    """For models.md: tiny models of each kind, and stores whose items they can look at."""
    import joblib
    from PIL import Image
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from tests.test_adapters import floats, onnx_model
    from tests.test_hugging_face import make_reader, make_viewer

    classes = ["cat", "dog", "fox", "hen", "owl"]
    texts = [f"a {classes[row % 3]} on the mat" for row in range(30)]
    kinds = [classes[row % 3] for row in range(30)]
    points = np.array([[row % 3, row % 5] for row in range(30)], dtype=float)
    joblib.dump(
        make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, kinds),
        folder / "svm.joblib",
    )
    joblib.dump(LogisticRegression().fit(points, kinds), folder / "m.joblib")
    onnx_model(folder / "net.onnx", [], [floats("logits")])
    (folder / "images").mkdir()
    for row in range(30):
        Image.new("RGB", (8, 8), (8 * row, 0, 0)).save(folder / "images" / f"{row}.png")
    for name, make in (("bert", make_reader), ("vit", make_viewer)):
        (folder / name).mkdir()
        make(folder / name)
    labelled = {"id": list(range(30)), "truth": kinds, "vote": kinds}
    shares = {f"p_{name}": [0.8 if kind == name else 0.05 for kind in kinds] for name in classes}
    pq.write_table(pa.table(labelled | shares), folder / "val.parquet")
    payload: dict[str, dict[str, Any]] = {
        "tickets": {"text": texts},
        "flowers": {"length": points[:, 0], "width": points[:, 1]},
        "photos": {
            "path": [f"{row}.png" for row in range(30)],
            "features": pa.array(points.tolist(), type=pa.list_(pa.float32())),
        },
    }
    for name, columns in payload.items():
        items = pa.table({"id": list(range(30)), **columns})
        Store.create(folder / name, classes=classes).add(items)
    Store(folder / "tickets").register(Model("svm", accuracy=0.9))
    Store(folder / "tickets").register(Model("bert", accuracy=0.9))
    Store(folder / "flowers").register(Model("logit", accuracy=0.9))
    Store(folder / "photos").register(Model("net", accuracy=0.9))
    theirs = {f"LABEL_{code}": classes[code % 3] for code in range(7)}
    Store(folder / "photos").register(Model("vit", accuracy=0.9, class_map=theirs))
