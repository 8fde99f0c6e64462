"""Models: a name, how it errs on labelled data, and a way to obtain votes on items."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from posterity.errors import InvalidData, InvalidParameter, Unavailable
from posterity.method.data.classes import Classes, read_pairs
from posterity.method.data.spec import real_number, whole_number
from posterity.models.adapters import open_adapter
from posterity.models.class_map import Answers, ModelSettings, typed_name

Predict = Callable[[pa.Table], Any]
"""From a batch of items (id and payload columns) to one vote an item: names, codes of the model's
own classes, or class probabilities, one row an item. An attribute ``classes``, if it has one,
names the model's own classes in the order of its codes."""


@dataclass(frozen=True, eq=False)
class Model:
    """A classifier that arrives.

    How it errs is told by one of ``labelled``, ``confusion`` and ``accuracy``. ``labelled`` is a
    table (or a file) with the truth and this model's vote on labelled items; a key column lets the
    votes of several models on the same items be compared. Without a column of votes it is the
    truth of stored items by id: the model's stored votes on them are used, or it is asked for them
    first. ``predict`` may be left out where votes come from a file.
    """

    name: str
    labelled: Any = None
    predict: Predict | str | None = None
    """A callable (a class is made once), or its name as ``package.module:name``, or an adapter as
    in ``onnx-runtime:model.onnx``; the store remembers names."""
    cost: float | None = None
    """The price of one evaluation, in whatever unit; None: unknown, which is not zero."""
    truth: str = "truth"
    vote: str | None = None
    """None: the column ``vote``, or the one named like the model."""
    key: str = "id"
    confusion: Any = None
    """A confusion matrix: truths in rows, votes in columns; counts, or probabilities."""
    accuracy: float | None = None
    """One accuracy for all classes, where nothing else is known."""
    classes: Iterable[Any] | None = None
    """Its own classes, in the order of its codes and probabilities; None: the store's."""
    class_map: Mapping[Any, Any] | str | Path | None = None
    """What its classes are called here, where that differs: a mapping, or a file of one."""
    other: Any = None
    """The store's class for what the model knows and the store does not."""
    soft: int | None = None
    """How many classes of each soft vote to keep and fold; None: five."""
    labelled_soft: str | None = None
    """Where the labelled table has soft votes, as ``SoftColumns`` spells it: what the model's are
    worth is learnt from them."""

    weight: str | None = None
    """The labelled table's column of weights: how much more frequent items like it are in the
    store; see ``shift``."""
    match: str | None = None
    """Instead, a column that both the labelled table and the items have: its values are to be as
    frequent among labelled items as they are in the store now."""
    keep_labels: bool = False
    """Where ``labelled`` is the truth of stored items: leave their labels as they are, instead of
    making the truth their labels."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidParameter.of("name", "a text that is not empty", self.name)
        if not (self.predict is None or callable(self.predict) or isinstance(self.predict, str)):
            raise InvalidParameter.of("predict", "a callable or its name", self.predict)
        if isinstance(self.predict, str) and open_adapter(self.predict) is None:
            _module_and_name(self.predict)
        if self.cost is not None:
            real_number(self.cost, "cost")
        if self.soft is not None:
            whole_number(self.soft, "soft", least=1)
        if isinstance(self.accuracy, (str, bool)):
            raise InvalidParameter.of("accuracy", "a number from 0 to 1", self.accuracy)
        known = (self.labelled, self.confusion, self.accuracy)
        if sum(given is not None for given in known) > 1:
            raise InvalidParameter(
                "How a model errs is told by one of labelled, confusion (--confusion-matrix) and "
                "accuracy, not by more."
            )

        if self.weight is not None and self.match is not None:
            raise InvalidParameter("Labelled items are weighed by weight or by match, not by both.")
        about = {"weight": self.weight, "match": self.match, "keep_labels": self.keep_labels}
        if self.labelled is None and (given := [name for name, value in about.items() if value]):
            raise InvalidParameter(
                f"{given[0]} (--{given[0].replace('_', '-')}) is about labelled items; there are "
                "none.",
                hint="Give the labelled table too.",
            )

    @property
    def describes(self) -> bool:
        """Whether it says more than its name and where its votes come from."""
        return any(
            given is not None
            for given in (
                *(self.labelled, self.confusion, self.accuracy, self.cost, self.classes),
                *(self.class_map, self.other, self.soft),
            )
        )

    def answers(self, classes: Classes) -> Answers:
        """How its words become the store's classes."""
        own = None if self.classes is None else Classes(self.classes).names
        return Answers(classes, own, self._rename(classes, own), _plain(self.other), self.soft)

    def settings(self, classes: Classes) -> ModelSettings:
        """What the store keeps of what a user states."""
        answers = self.answers(classes)
        return ModelSettings(
            classes=None if answers.own is None else list(answers.own),
            class_map=[[old, new] for old, new in answers.rename.items()],
            other=answers.other,
            soft=None if answers.soft is None else int(answers.soft),
            cost=None if self.cost is None else float(self.cost),
            predict=self.predict if isinstance(self.predict, str) else None,
        )

    def _rename(self, classes: Classes, own: tuple[Any, ...] | None) -> dict[Any, Any]:
        if self.class_map is None:
            return {}
        if isinstance(self.class_map, Mapping):
            return {_plain(old): _plain(new) for old, new in self.class_map.items()}
        path = Path(self.class_map)
        if not path.is_file():
            raise InvalidData(f"There is no class map '{path}'.")
        expected = "a JSON object {its class: our class}, or CSV lines its,ours without a header"
        pairs = read_pairs(path, "class map", expected=expected)
        # A text file has no types: its names take those of the classes they stand for.
        ours = {old: typed_name(new, classes.kind) for old, new in pairs.items()}
        if own is not None:
            return {typed_name(old, type(own[0])): new for old, new in ours.items()}
        typed = {} if classes.kind is str else _typed_like(ours, classes.kind)
        return typed or ours | _typed_like(ours, int)  # 7 may be a number or a text


def _typed_like(renamed: dict[str, Any], kind: type) -> dict[Any, Any]:
    """The same with keys of another type; nothing, unless all of them can be."""
    try:
        return {typed_name(old, kind): new for old, new in renamed.items()}
    except InvalidData:
        return {}


def load_predict(spec: str) -> Predict:
    """A source of votes by name: an adapter, or ``package.module:name``.

    The current folder is searched for modules too. A class is made when the first batch comes.
    """
    adapter = open_adapter(spec)
    if adapter is not None:
        return adapter
    module, name = _module_and_name(spec)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidParameter(f"'{spec}' cannot be imported: {error}.") from None
    if not callable(found):
        raise InvalidParameter.of("predict", "a callable", spec)
    predict: Predict = found
    return predict


def _module_and_name(spec: str) -> tuple[str, str]:
    module, colon, name = spec.partition(":")
    if not colon or not module or not name or module.startswith("."):  # relative to what?
        raise InvalidParameter.of(
            "predict", "package.module:name, or an adapter such as onnx-runtime:model.onnx", spec
        )
    return module, name


class Loaded:
    """A source of votes with its state: a class is made once, when the first batch comes."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._ready = not isinstance(predict, type)

    def __call__(self, batch: pa.Table) -> Any:
        """The model's answer."""
        if not self._ready:
            try:
                self._predict = self._predict()  # type: ignore[call-arg]
            except Exception as error:
                raise Unavailable(f"The model cannot be loaded: {error!r}.") from error
            if not callable(self._predict):
                told = type(self._predict).__name__
                raise Unavailable(f"The model cannot be asked: a '{told}' is not callable.")
            self._ready = True
        return self._predict(batch)

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The model's own classes, if it names them."""
        named = getattr(self._predict, "classes", None) if self._ready else None
        return None if named is None else Classes(named).names


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def shown_source(predict: str | None) -> str | None:
    """Where votes come from, as it may be shown: an address without what may be a key to it.

    >>> shown_source("https://user:secret@example.org/predict?key=1#2")
    'https://example.org/predict'
    >>> shown_source("hugging-face:org/model@main,column=text")
    'hugging-face:org/model@main,column=text'
    """
    if predict is None or "://" not in predict:
        return predict
    begin, _, rest = predict.partition("://")
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].rpartition("@")[2].partition("/")
    return f"{begin}://{host}{slash}{path}"
