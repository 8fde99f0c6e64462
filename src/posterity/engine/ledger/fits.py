"""Fits: what beliefs are formed with, as it is now and as each step recorded it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import pyarrow as pa

from posterity.errors import InvalidData, StoreError
from posterity.method.adapt import class_shares
from posterity.method.beliefs import priors
from posterity.method.beliefs.confusion import FLOOR, Cells, Confusion
from posterity.method.beliefs.dependent import Dependence
from posterity.method.beliefs.product import Product
from posterity.method.beliefs.temperature import Temperature, from_arrays, to_arrays
from posterity.method.data.arrays import Counts, Floats
from posterity.method.data.classes import Classes
from posterity.method.data.votes import VoteTable
from posterity.method.decide.defaults import DEPENDENT, PLAIN
from posterity.models.class_map import ModelSettings
from posterity.storage.delta.schema import Description

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Registered:
    """A model the store knows: how it errs, and its settings."""

    name: str
    arrival: int
    settings: ModelSettings
    cells: tuple[Sequence[int], Sequence[int]] = ((), ())
    """Votes and truths of the cells of the confusion that are known."""
    counts: Sequence[int] = ()
    """How often each cell occurred on the labelled set."""
    probabilities: Sequence[float] | None = None
    """What was said of each cell, where a confusion was stated instead of counted."""

    @property
    def pending(self) -> bool:
        """Still to vote on its labelled items, so that nobody knows how it errs."""
        return self.settings.pending

    def counted(self, classes: int) -> Cells:
        """c(i, k) for so many classes; nothing was counted where probabilities were stated."""
        if self.probabilities is None:
            return Cells.of(*self.cells, self.counts, classes)
        return Cells.of((), (), (), classes)

    def confusion(self, estimator: str, classes: int) -> Confusion:
        """How it errs among so many classes; of those appended later it is known to say nothing."""
        known = self._confusion(estimator, classes)
        then = self.settings.classes_then
        return known if then >= classes else known.unknown_from(then)

    def _confusion(self, estimator: str, classes: int) -> Confusion:
        accuracy = self.settings.accuracy
        if accuracy is not None:
            return Confusion.from_accuracy(accuracy, classes=classes)
        if self.probabilities is None:
            return Confusion.from_cells(self.counted(classes), estimator=estimator)
        table = np.full((classes, classes), FLOOR)
        table[tuple(map(list, self.cells))] = self.probabilities
        return Confusion(table / table.sum(axis=0))


KEPT = 4
"""Products of different models that are kept: a step needs one, shard after shard."""


def _path_of(content: bytes) -> str:
    return f"fits/{hashlib.sha256(content).hexdigest()[:24]}.npz"


class Fit:
    """The parameters of a belief: estimator, number of classes, prior, and the models' own."""

    def __init__(
        self,
        models: Mapping[str, Registered],
        *,
        confusion: str,
        classes: int,
        prior: tuple[float, ...] | None,
        beliefs: str = PLAIN,
    ) -> None:
        self.models = models
        self.beliefs = beliefs
        self.estimator = confusion
        self.classes = classes
        self._prior = prior
        self._confusions: dict[str, Confusion] = {}
        self._products: dict[tuple[str, ...], Product] = {}
        self._load: Callable[[str], pa.Buffer] | None = None
        self.order: list[str] = []
        """Of the models whose parameters are kept with the step."""

    def dependent(self, dependence: Dependence, order: Sequence[str]) -> Fit:
        """The same with beliefs that know how these models err together."""
        made = self._with(DEPENDENT, order)
        made.dependence = dependence  # instead of reading what is only to be written
        made.temperatures = {}
        return made

    def tempered(self, temperatures: Mapping[str, Temperature]) -> Fit:
        """The same with what is known of these models' soft votes; itself where nothing is."""
        if not temperatures:
            return self
        made = self._with(self.beliefs, list(temperatures))
        made.temperatures = dict(temperatures)
        return made

    def recorded(self, told: dict[str, Any], load: Callable[[str], pa.Buffer]) -> Fit:
        """The same with the parameters a step recorded; read when first needed."""
        made = self._with(told["beliefs"], told["order"])
        made.path, made._load = told["parameters"], load
        return made

    def _with(self, beliefs: str, order: Sequence[str]) -> Fit:
        made = Fit(
            self.models,
            confusion=self.estimator,
            classes=self.classes,
            prior=self._prior,
            beliefs=beliefs,
        )
        made.order = list(order)
        return made

    @cached_property
    def dependence(self) -> Dependence:
        """How the models err together."""
        if self._load is None:
            raise StoreError("Nothing is known of how the models err together.")
        return self._read(Dependence.from_arrays)

    @cached_property
    def temperatures(self) -> dict[str, Temperature]:
        """How soft votes are to be read; as they are where a model is not among these."""
        if self._load is None:
            return {}
        found = self._read(lambda held: from_arrays(held) if "temperatures" in held else [])
        known = zip(self.order, found, strict=False)  # none where all votes are hard
        return {name: each for name, each in known if each is not None}

    def reads_soft(self, model: str) -> bool:
        """Whether dependent beliefs know what this model's probabilities are worth."""
        (place,), read = self.who([model]), self.dependence.temperatures
        return 0 <= place < len(read) and read[place] is not None

    def _read(self, take: Callable[[Any], T]) -> T:
        if self._load is None:
            raise StoreError("Nothing was recorded.")
        try:
            content = self._load(self.path).to_pybytes()
            if self.path != _path_of(content):
                raise ValueError("its content is not what was written")
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return take(arrays)
        except (OSError, ValueError, KeyError, StoreError) as error:
            raise StoreError(f"The fit '{self.path}' cannot be read: {error}.") from None

    @cached_property
    def path(self) -> str:
        """Where the parameters are kept, if there are any but the models' own."""
        return _path_of(self.packed) if self.order else ""

    @cached_property
    def packed(self) -> bytes:
        """The parameters as a file of NumPy's."""
        content = io.BytesIO()
        arrays = self.dependence.to_arrays() if self.beliefs == DEPENDENT else {}
        if self.temperatures:
            arrays |= to_arrays([self.temperatures.get(name) for name in self.order])
        with ZipFile(content, "w", ZIP_DEFLATED) as file:
            for name, array in arrays.items():
                part = io.BytesIO()
                np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
                # Without a date, so that equal parameters are equal bytes; NumPy writes the time.
                file.writestr(ZipInfo(f"{name}.npy"), part.getvalue(), ZIP_DEFLATED)
        return content.getvalue()

    def who(self, models: Sequence[str]) -> list[int]:
        """The places of models among those known; −1 for one that arrived later."""
        return [self.order.index(name) if name in self.order else -1 for name in models]

    @cached_property
    def prior(self) -> Floats:
        """What is believed of an item's true class before any vote."""
        if self._prior is None:
            return priors.uniform(self.classes)
        return priors.given(self._prior, classes=self.classes)

    @cached_property
    def prior_entropy(self) -> float:
        """The entropy of an item nobody has voted on."""
        nobody = VoteTable.only(np.zeros((1, 0), dtype=np.int32))
        return float(Product(self.prior, ()).fold(nobody).entropy[0])

    def confusion(self, model: str) -> Confusion:
        """How a model errs."""
        if model not in self._confusions:
            known = self.models[model].confusion(self.estimator, self.classes)
            self._confusions[model] = known
        return self._confusions[model]

    def product(self, models: Sequence[str]) -> Product:
        """All these models' votes together, in this order."""
        names = tuple(models)
        if names not in self._products:
            confusions = [self.confusion(name) for name in names]
            if len(self._products) == KEPT:
                del self._products[next(iter(self._products))]
            self._products[names] = Product(self.prior, confusions)
        return self._products[names]

    def to_dict(self, models: Sequence[str]) -> dict[str, Any]:
        """As a step's header records it; counts are the models' own, named by digest."""
        return {
            "beliefs": self.beliefs,
            "confusion": self.estimator,
            "classes": self.classes,
            "prior": None if self._prior is None else list(self._prior),
            "models": {name: self.models[name].settings.digest for name in models},
            **({"order": self.order, "parameters": self.path} if self.order else {}),
        }


class StoreFits:
    """The fits of a store: that of its models now, and those its steps recorded."""

    def __init__(
        self,
        models: Mapping[str, Registered],
        description: Description,
        classes: Classes,
        weights: Sequence[float],
        load: Callable[[str], pa.Buffer],
    ) -> None:
        """``weights`` are those of the classes, where the prior was given with them."""
        self._models, self._description, self._classes = models, description, classes
        self._weights, self._load = weights, load
        self._made: dict[Any, Fit] = {}

    def now(self, arriving: str | None = None) -> Fit:
        """What plain beliefs are formed with now, when this model arrives."""
        prior = self._prior_now(arriving)
        return self._fit(self._description.confusion, len(self._classes), prior)

    def of(self, recorded: dict[str, Any]) -> Fit:
        """What a step decided with, as its header has recorded it."""
        prior = None if recorded["prior"] is None else tuple(recorded["prior"])
        base = self._fit(recorded["confusion"], recorded["classes"], prior)
        if "parameters" not in recorded:
            return base
        key = (base, recorded["parameters"], *recorded["order"])
        if key not in self._made:
            self._made[key] = base.recorded(recorded, self._load)
        return self._made[key]

    def _fit(self, confusion: str, classes: int, prior: tuple[float, ...] | None) -> Fit:
        # One object for equal parameters: steps that share it need not fold all votes anew.
        key = (confusion, classes, prior)
        if key not in self._made:
            self._made[key] = Fit(self._models, confusion=confusion, classes=classes, prior=prior)
        return self._made[key]

    def class_counts(self, arriving: str | None) -> Counts | None:
        """How many labelled items of each class the arriving model has, or else the newest one."""
        newest = sorted(self._models.values(), key=lambda model: -model.arrival)
        for model in sorted(newest, key=lambda model: model.name != arriving):
            counts = model.counted(len(self._classes)).truth_counts
            if counts.sum():
                return counts
        return None

    def _prior_now(self, arriving: str | None) -> tuple[float, ...] | None:
        kind = self._description.prior
        if kind is None:
            return None
        if kind not in (priors.LABELLED, priors.ESTIMATED):
            return tuple(self._weights)
        counts = self.class_counts(arriving)
        if counts is not None:
            found = class_shares.learnt(kind, counts)
            return None if found is None else tuple(found.tolist())
        if kind == priors.ESTIMATED:
            return None  # nobody knows how frequent classes are
        raise InvalidData(
            "The prior is that of the labelled set, and no model has labelled items.",
            hint="Give labelled data with a model, or make the store with `prior='uniform'`.",
        )
