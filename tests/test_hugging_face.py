"""Votes of transformers pipelines: tiny models made here, with random weights, never downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from numpy.testing import assert_allclose
from PIL import Image

from posterity.errors import InvalidData, InvalidParameter, Unavailable
from posterity.models.adapters import HuggingFace, open_adapter

WORDS = ["a cat", "the dog on the mat", "fox", "a fox on a cat", "dog", "mat " * 100]
LABELS = {0: "fox", 1: "cat", 2: "dog"}


def items(**columns: Any) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({"id": [f"i{row}" for row in range(count)], **columns})


def make_reader(folder: Path) -> None:
    """A classifier of texts."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "on", "cat", "dog", "fox"]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder, model_max_length=32)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        initializer_range=1.0,
        id2label=LABELS,
        label2id={name: code for code, name in LABELS.items()},
    )
    transformers.BertForSequenceClassification(config).eval().save_pretrained(folder)


def make_viewer(folder: Path) -> None:
    """A classifier of images with seven classes, more than a pipeline's top five."""
    torch.manual_seed(7)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
        initializer_range=1.0,
        num_labels=7,
    )
    transformers.ViTForImageClassification(config).eval().save_pretrained(folder)
    size = {"height": 8, "width": 8}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    make_reader(folder)
    return folder


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    make_viewer(folder)
    return folder


def ask_directly(folder: Path) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        rows = [
            model(**tokenizer(text, truncation=True, return_tensors="pt")).logits for text in WORDS
        ]
    return torch.softmax(torch.cat(rows), dim=1).numpy()


def test_texts_by_folder(reader: Path) -> None:
    adapter = open_adapter(f"hugging-face:{reader},column=text,batch=4")
    assert isinstance(adapter, HuggingFace)
    assert adapter.classes is None  # nothing is loaded yet
    votes = adapter(items(text=WORDS))
    assert adapter.classes == ("fox", "cat", "dog")
    assert_allclose(votes, ask_directly(reader), atol=1e-5)
    assert len(set(votes.argmax(axis=1))) > 1
    assert_allclose(adapter(items(text=WORDS[2:3])), votes[2:3], atol=1e-5)
    with pytest.raises(InvalidData, match="'text' of item 'i1' is empty"):
        adapter(items(text=["a cat", None]))


def test_a_ready_pipeline(reader: Path) -> None:
    pipeline = transformers.pipeline("text-classification", model=str(reader))
    adapter = HuggingFace(pipeline, column="text")
    assert adapter.classes == ("fox", "cat", "dog")
    assert_allclose(adapter(items(text=WORDS)), ask_directly(reader), atol=1e-5)


def test_images(viewer: Path, tmp_path: Path) -> None:
    shades = np.random.default_rng(0).integers(0, 256, size=(3, 8, 8, 3), dtype=np.uint8)
    for at, shade in enumerate(shades):
        Image.fromarray(shade).save(tmp_path / f"{at}.png")
    spec = f"hugging-face:{viewer},column=image,task=image-classification,root={tmp_path},batch=2"
    adapter = open_adapter(spec)
    assert isinstance(adapter, HuggingFace)
    votes = adapter(items(image=["0.png", "1.png", "2.png"]))
    assert adapter.classes == tuple(f"LABEL_{code}" for code in range(7))
    model = transformers.AutoModelForImageClassification.from_pretrained(viewer).eval()
    pixels = torch.tensor((shades / 255 - 0.5) / 0.5, dtype=torch.float32).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = torch.softmax(model(pixels).logits, dim=1).numpy()
    assert_allclose(votes, expected, atol=1e-4)
    stored = [(tmp_path / f"{at}.png").read_bytes() for at in range(3)]
    assert_allclose(adapter(items(image=stored)), votes, atol=1e-6)
    with pytest.raises(InvalidData, match=r"image of item 'i1' \(.*absent.png'\) cannot be opened"):
        adapter(items(image=["0.png", "absent.png"]))


def test_models_that_cannot_vote(reader: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"absent' cannot be loaded: .*there is no such folder"):
        HuggingFace(tmp_path / "absent", column="text")(items(text=WORDS))
    pipeline = transformers.pipeline("text-classification", model=str(reader))
    pipeline.model.config.problem_type = "multi_label_classification"
    with pytest.raises(Unavailable, match="made for multi_label_classification"):
        HuggingFace(pipeline, column="text")
    pipeline.model.config.problem_type = None
    pipeline.model.config.id2label = {0: "cat", 1: "cat", 2: "dog"}
    with pytest.raises(Unavailable, match="different names; got \"'cat' twice\""):
        HuggingFace(pipeline, column="text")
    pipeline.model.config.id2label = LABELS
    pipeline.task = "fill-mask"
    with pytest.raises(InvalidParameter, match="'task' must be text-classification or image"):
        HuggingFace(pipeline, column="text")


def test_a_model_that_fails_on_a_batch(reader: Path) -> None:
    pipeline = transformers.pipeline("text-classification", model=str(reader))
    pipeline.tokenizer.model_max_length = 512  # longer than the model has places for
    adapter = HuggingFace(pipeline, column="text")
    with pytest.raises(InvalidData, match="failed on this batch"):
        adapter(items(text=WORDS))
    assert len(adapter(items(text=WORDS[:2]))) == 2
