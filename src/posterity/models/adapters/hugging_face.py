"""Votes of a Hugging Face classifier of texts or images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from posterity.errors import InvalidParameter, MissingExtra, Unavailable
from posterity.method.data.arrays import Floats
from posterity.method.data.classes import Name
from posterity.models.adapters.outputs import asking, loading, own_classes, probabilities, spread
from posterity.models.adapters.payload import Images, texts

TASKS = ("text-classification", "image-classification")


class HuggingFace:
    """A transformers pipeline, or the folder or name of a model to make one from.

    A model is loaded at the first batch. Texts longer than the model reads are cut. ``column``
    holds texts, or for images their bytes or paths, relative ones under ``root``.
    """

    def __init__(
        self,
        pipeline: Any,
        *,
        column: str,
        task: str = "text-classification",
        batch: int = 32,
        root: str | Path | None = None,
        device: str | None = None,
    ) -> None:
        if batch < 1:
            raise InvalidParameter.of("batch", "a count ≥ 1", batch)
        self._column, self._batch, self._root, self._device = column, batch, root, device
        self._path = ""
        self.classes: tuple[Name, ...] | None = None
        if isinstance(pipeline, (str, Path)):
            self._path, self._task = str(pipeline), _check_task(task)
        else:
            self._take(pipeline)

    def __call__(self, batch: pa.Table) -> Floats:
        """Class probabilities in the order of the model's ids."""
        classes = self.classes or self._take(_load(self._path, self._task, self._device))
        # top_k=None means all classes for texts, but five for images: the number says it for both.
        options: dict[str, Any] = {"batch_size": self._batch, "top_k": len(classes)}
        items: Any
        if self._task == "image-classification":
            images = Images(batch, self._column, root=self._root)
            items = (image for image in images)  # opened as the pipeline comes to them
        else:
            items = texts(batch, self._column)
            options["truncation"] = True
        with asking("The model"):
            answers = list(self._pipeline(items, **options))
            scores = [{one["label"]: one["score"] for one in answer} for answer in answers]
        table = spread(scores, classes, "The model")
        return probabilities(table, len(classes), len(batch), "The model")

    def _take(self, pipeline: Any) -> tuple[Name, ...]:
        self._task = _check_task(getattr(pipeline, "task", None))
        config = pipeline.model.config
        if config.problem_type in ("regression", "multi_label_classification"):
            raise Unavailable(
                f"The model is made for {config.problem_type}; a vote is one class an item."
            )
        labels = [label for _, label in sorted(config.id2label.items())]
        self._pipeline = pipeline
        self.classes = own_classes(labels, "The model")
        return self.classes


def _check_task(task: Any) -> str:
    if task not in TASKS:
        raise InvalidParameter.of("task", " or ".join(TASKS), task)
    return str(task)


def _load(path: str, task: str, device: str | None) -> Any:
    try:
        import torch  # noqa: F401  # transformers can be installed without it, but not vote
        import transformers
    except ImportError:
        raise MissingExtra.of("A Hugging Face model", "hugging-face") from None
    with loading(f"'{path}'"):
        if path.startswith((".", "/")) and not Path(path).exists():
            raise FileNotFoundError("there is no such folder")  # rather than look for it online
        return transformers.pipeline(task, model=path, device=device)
