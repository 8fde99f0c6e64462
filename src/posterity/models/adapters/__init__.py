"""Adapters: votes from models as people have them — in a file, in a library, behind a URL.

A source of votes is any callable from a batch of items (``id`` and payload columns) to one
vote an item: class names, codes, or class probabilities (items, classes). Its attribute
``classes``, if it has one, names its own classes in the order of codes and columns. It raises
``InvalidData`` where a batch cannot be voted on, and ``Unavailable`` where nothing can.

Each adapter is loaded when it is used. It needs the extra of its own name (``http`` for URLs), and
imports it, like the model itself, no sooner than at the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from posterity.errors import InvalidParameter
from posterity.method.data.spec import read_number, read_whole

if TYPE_CHECKING:
    from posterity.models.adapters.http import HttpEndpoint
    from posterity.models.adapters.hugging_face import HuggingFace
    from posterity.models.adapters.onnx_runtime import OnnxRuntime
    from posterity.models.adapters.payload import Images, features, texts
    from posterity.models.adapters.scikit_learn import ScikitLearn

__all__ = [
    "HttpEndpoint",
    "HuggingFace",
    "Images",
    "OnnxRuntime",
    "Predict",
    "ScikitLearn",
    "features",
    "open_adapter",
    "texts",
]

_HOMES = {
    "HttpEndpoint": "http",
    "HuggingFace": "hugging_face",
    "Images": "payload",
    "OnnxRuntime": "onnx_runtime",
    "ScikitLearn": "scikit_learn",
    "features": "payload",
    "texts": "payload",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


Predict = Callable[[pa.Table], Any]
"""From a batch of items to one vote an item: names, codes, or class probabilities."""


@dataclass(frozen=True)
class OptionReader:
    """How the text of an option becomes the value of a parameter."""

    expects: str
    read: Callable[[str], Any]


@dataclass(frozen=True)
class Adapter:
    """What stands behind the name of an adapter."""

    made_by: str
    """The name of the class."""
    takes: Mapping[str, OptionReader]
    needs: tuple[str, ...] = ()


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(_text(name.strip()) for name in text.split("+"))


TEXT = OptionReader("a text that is not empty", _text)
NAMES = OptionReader("names with + between them", _names)
COUNT = OptionReader("a whole number", read_whole)
SECONDS = OptionReader("a number of seconds", read_number)
FLAG = OptionReader("true or false", _flag)

ADAPTERS: Mapping[str, Adapter] = {
    "scikit-learn": Adapter(
        "ScikitLearn",
        {"column": TEXT, "columns": NAMES, "probabilities": FLAG, "classes": NAMES},
    ),
    "hugging-face": Adapter(
        "HuggingFace",
        {"column": TEXT, "task": TEXT, "batch": COUNT, "root": TEXT, "device": TEXT},
        needs=("column",),
    ),
    "onnx-runtime": Adapter(
        "OnnxRuntime",
        {"column": TEXT, "columns": NAMES, "classes": NAMES}
        | {"output": TEXT, "logits": FLAG, "providers": NAMES},
    ),
    "http": Adapter(
        "HttpEndpoint",
        {"column": TEXT, "columns": NAMES, "concurrency": COUNT, "request": COUNT}
        | {"timeout": SECONDS, "retries": COUNT, "backoff": SECONDS, "token": TEXT},
    ),
}


def open_adapter(spec: str) -> Predict | None:
    """The adapter a spec such as ``scikit-learn:model.joblib,column=text`` names, or None.

    >>> open_adapter("package.module:predict") is None
    True
    """
    head, *parts = (part.strip() for part in spec.split(","))
    name, _, value = head.partition(":")
    if name in ("http", "https"):
        name, value = "http", head
    if name not in ADAPTERS:
        return None
    adapter = ADAPTERS[name]
    takes = f"{name} takes: {', '.join(adapter.takes)}."
    if not value:
        raise InvalidParameter(f"{spec!r} names no model: write {name}:path,option=value.")
    options: dict[str, Any] = {}
    for part in parts:
        key, equals, text = (piece.strip() for piece in part.partition("="))
        if key not in adapter.takes or not equals or key in options:
            wrong = "is given twice" if key in options else "is not understood"
            raise InvalidParameter(f"The option {part!r} {wrong}.", hint=takes)
        reader = adapter.takes[key]
        try:
            options[key] = reader.read(text)
        except (ValueError, KeyError):
            raise InvalidParameter.of(key, reader.expects, text, hint=takes) from None
    for key in adapter.needs:
        if key not in options:
            raise InvalidParameter(f"The option '{key}' is missing in {spec!r}.", hint=takes)
    if name == "http" and "column" in options:  # it reads columns, one or several
        options["columns"] = (options.pop("column"), *options.get("columns", ()))
    made: Predict = __getattr__(adapter.made_by)(value, **options)
    return made
