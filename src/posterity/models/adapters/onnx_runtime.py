"""Votes of a model in the ONNX format, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from posterity.errors import MissingExtra, Unavailable
from posterity.method.data.classes import Name
from posterity.models.adapters.outputs import (
    asking,
    check_count,
    loading,
    own_classes,
    probabilities,
    softmax,
    spread,
)
from posterity.models.adapters.payload import chosen, columns_of, features, texts

READS: dict[str, type] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}
SOFT = ("tensor(float)", "tensor(float16)", "tensor(double)")


class OnnxRuntime:
    """The path of a model with one input, of numbers or of texts; loaded at the first batch.

    Votes come from the output named, otherwise from the first with probabilities, otherwise
    from the first. ``classes`` names the columns of probabilities, or the codes, in order.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        column: str | None = None,
        columns: Sequence[str] | None = None,
        classes: Sequence[Name] | None = None,
        output: str | None = None,
        logits: bool = False,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        self._path = Path(path)
        self._columns = chosen(column, columns)
        self._output, self._logits, self._providers = output, logits, tuple(providers)
        self._session: Any = None
        self.classes = None if classes is None else own_classes(classes, "The model")

    def __call__(self, batch: pa.Table) -> Any:
        """Class probabilities where the model gives them, otherwise names or codes."""
        if self._session is None:
            self._session = _load(self._path, self._providers)
            self._input = _only_input(self._session)
            self._output = _choose(self._session, self._output)
        given = self._read(batch)
        with asking("The model"):
            (answer,) = self._session.run([self._output], {self._input.name: given})
        if isinstance(answer, list):
            answer = self._from_maps(answer)
        if answer.dtype.kind == "f":
            return self._soft(answer, len(batch))
        check_count(len(answer), len(batch), "The model")
        if answer.size != len(answer):
            raise Unavailable(f"The output '{self._output}' gives {answer.shape}, not one label.")
        return answer.ravel().tolist()

    def _read(self, batch: pa.Table) -> NDArray[Any]:
        kind, shape = self._input.type, self._input.shape
        columns = columns_of(batch, self._columns)
        if kind == "tensor(string)" and len(columns) == 1:
            words = np.array(texts(batch, columns[0]), dtype=object)
            return words.reshape(-1, 1) if len(shape) == 2 else words
        if kind not in READS:
            raise Unavailable(
                f"The model reads {kind}; the adapter gives numbers ({', '.join(READS)}) or, "
                "from one column, tensor(string)."
            )
        numbers = features(batch, columns, dtype=READS[kind])
        # An image model says (items, 3, 32, 32): its items are lists of 3072 numbers.
        if len(shape) > 2 and all(isinstance(length, int) for length in shape[1:]):
            with asking("The model"):
                return numbers.reshape(len(batch), *shape[1:])
        return numbers

    def _soft(self, answer: NDArray[Any], items: int) -> Any:
        hint = None
        if self._logits and answer.ndim == 2:
            answer = softmax(answer)
        elif not self._logits:
            hint = "If the model gives logits, say so with logits=True."
        known = None if self.classes is None else len(self.classes)
        return probabilities(answer, known, items, "The model", hint=hint)

    def _from_maps(self, answer: list[Mapping[Any, float]]) -> NDArray[Any]:
        """A sequence of maps from class to probability, as sklearn-onnx writes by default."""
        theirs = tuple(answer[0]) if answer else ()
        if self.classes is None:
            self.classes = own_classes(theirs, "The model")
        elif set(theirs) != set(self.classes) and set(theirs) == set(range(len(self.classes))):
            answer = [{self.classes[code]: one for code, one in row.items()} for row in answer]
        return spread(answer, self.classes, "The model")


def _load(path: Path, providers: tuple[str, ...]) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra.of("An ONNX model", "onnx-runtime") from None
    there = onnxruntime.get_available_providers()
    for provider in providers:
        if provider not in there:  # it would fall back to another without a word
            raise Unavailable(
                f"ONNX Runtime has no provider {provider!r} here; it has: {', '.join(there)}."
            )
    with loading(f"'{path}'"):
        return onnxruntime.InferenceSession(str(path), providers=list(providers))


def _only_input(session: Any) -> Any:
    there = session.get_inputs()
    if len(there) != 1:
        names = ", ".join(one.name for one in there)
        raise Unavailable(
            f"The model has {len(there)} inputs ({names}); the adapter feeds one.",
            hint="Export it with one input of shape (items, features).",
        )
    return there[0]


def _choose(session: Any, wanted: str | None) -> str:
    there = {one.name: one.type for one in session.get_outputs()}
    if wanted is not None and wanted not in there:
        raise Unavailable(f"The model has no output {wanted!r}; it has: {', '.join(there)}.")
    soft = [name for name, kind in there.items() if kind in SOFT or kind.startswith("seq(map(")]
    return wanted or (soft or list(there))[0]
