"""Models: a name, how it errs on labelled data, and a way to obtain votes on items."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from posterity.errors import InvalidData, InvalidParameter, Unavailable
from posterity.method.data.classes import Classes
from posterity.method.data.spec import real_number, whole_number
from posterity.method.data.text_tables import read_pairs
from posterity.models.adapters import open_adapter
from posterity.models.class_map import Answers, ModelSettings, typed_name

Predict = Callable[[pa.Table], Any]
"""From a batch of items (id and payload columns) to one vote an item: names, codes of the model's
own classes, or class probabilities, one row an item. An attribute ``classes``, if it has one,
names the model's own classes in the order of its codes."""

HEADER = re.compile(
    r"(?i)class|label|name|model|store|theirs|ours|source|target|pred|\b(from|to)\b"
)
"""What the first line of a class map says if it is a header. One that only names no class of ours
may be a mistake, which must not be passed over."""


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A classifier that arrives.

    How it errs is told by one of ``labelled``, ``confusion`` and ``accuracy``. ``labelled`` is a
    table (or a file) with the truth and this model's vote on labelled items, or a pair
    ``(truths, votes)``; a key column lets the votes of several models on the same items be
    compared. Without a column of votes, and as ``{id: truth}``, it is the truth of stored items:
    the model's stored votes on them are used, or it is asked for them first. ``predict`` may be
    left out where votes come from a file.
    """

    name: str
    labelled: Any = None
    predict: Any = None
    """A callable from a batch to votes (a class is made once); a fitted classifier, which has
    ``predict`` or ``predict_proba``; or the name of a callable as ``package.module:name``, or an
    adapter as in ``onnx-runtime:model.onnx``. The store remembers names."""
    columns: str | Sequence[str] | None = None
    """The payload columns a classifier reads: ``"text"``, or several, also by wildcards such as
    ``["px*"]``; None: those it was fitted on, or the only one there is."""
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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidParameter.of("name", "a text that is not empty", self.name)
        if self.columns is not None and not self._classifies:
            raise InvalidParameter(
                "The parameter 'columns' goes with a classifier in 'predict', which has predict or "
                f"predict_proba; got {type(self.predict).__name__}.",
                hint="A function is given all columns; an adapter has its own, as in "
                "scikit-learn:model.joblib,columns=a+b.",
            )
        if not (self.source is None or callable(self.source) or isinstance(self.source, str)):
            allowed = "a callable, a fitted classifier (with predict or predict_proba), or a name"
            raise InvalidParameter.of("predict", allowed, self.predict)
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
                "How a model errs is told by one of `labelled=`, `confusion=` and `accuracy=`, not "
                "by more."
            )

        if self.weight is not None and self.match is not None:
            raise InvalidParameter(
                "Labelled items are weighed by `weight=` or by `match=`, not by both."
            )
        if (self.weight or self.match) and self.labelled is None:
            raise InvalidParameter(
                "Weights (`weight=`, `match=`) are of labelled items; there are none.",
                hint="Give the labelled table too (`labelled=`).",
            )

    def __repr__(self) -> str:
        told = [repr(self.name)]
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            plain = isinstance(value, (str, int, float))
            if value is None or (plain and value == each.default):
                continue
            told.append(f"{each.name}={value!r}" if plain else f"{each.name}=<{_kind(value)}>")
        return f"Model({', '.join(told)})"

    @property
    def _classifies(self) -> bool:
        """Whether it is asked by its methods; what is callable, too, is so only with columns."""
        methods = hasattr(self.predict, "predict") or hasattr(self.predict, "predict_proba")
        called = callable(self.predict) and self.columns is None
        return methods and not called and not isinstance(self.predict, type)

    @cached_property
    def source(self) -> Predict | str | None:
        """What is asked for votes."""
        if not self._classifies:
            return self.predict  # type: ignore[no-any-return]
        from posterity.models.adapters.scikit_learn import ScikitLearn

        columns = [self.columns] if isinstance(self.columns, str) else self.columns
        own = None if self.classes is None else Classes(self.classes).names
        return ScikitLearn(self.predict, columns=columns, classes=own)

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
        expected = "a JSON object {its class: our class}, or CSV lines its,ours"
        known = {str(name) for name in classes}

        def is_header(first: str, second: str) -> bool:
            return second not in known and bool(HEADER.search(f"{first} {second}"))

        pairs = read_pairs(path, "class map", expected=expected, is_header=is_header)
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


def _kind(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__)


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
