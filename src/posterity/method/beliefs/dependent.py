"""Dependence: beliefs that know that models are right and wrong on the same items.

A product of votes counts two models that err together as two witnesses. Here an item has a level
of difficulty d, at which model t is right with probability α_td; and a wrong vote often repeats
the wrong label of a model that erred before it. With votes v_1 … v_M in order of arrival, the
candidates are the classes voted for and "none of these":

    raw(k) = π(k) · Σ_d P(d|k) Π_{v_t=k} α_td(k) Π_{v_t≠k} (1 − α_td(k)) · Π_{j: v_j≠k} W_j
    W_j    = R_j + (1 − F_j) · q_j(v_j),   R_j = Σ_{s<j, v_s=v_j} C_js / Z,  F_j = Σ_{s<j} C_js / Z
    Z      = 1 + Σ_{s<j} C_js − max_{s<j} C_js            (all s with v_s ≠ k)

with q_t how often a wrong vote of t names each class, and C_ts the chance that a wrong t repeats a
wrong s. For two votes the chance of agreeing is just C plus coincidence; for many with one C it is
a Chinese restaurant. "None of these" has every vote wrong and P(d) of the classes nobody voted for.
A calibrator of eight numbers makes beliefs of raw scores, shrunk a little towards the plain product
of the votes, and to the classes soft votes lean to; it is fitted on histories as they
occur. Of a soft vote of t, which says s̃_t (see ``temperatures``), the leaning to a candidate is

    log s̃_t(k) − log h_t(k),   h_t(k) = a_t if k is its vote, else (1 − a_t) / (K − 1)

with a_t how often its votes are right: what the probabilities say beyond the vote. Those of all
soft votes are added up; "none of these" has the mean s̃_t of the classes nobody voted for.
The result is shrunk towards what was true of labelled items with the same votes: see
``patterns``. Work is in proportion to an item's votes, whatever the number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from posterity.errors import InvalidData, InvalidParameter
from posterity.method import kernels
from posterity.method.beliefs import temperature
from posterity.method.beliefs.patterns import Patterns
from posterity.method.beliefs.temperature import Temperature
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Rows
from posterity.method.data.votes import MISSING, VoteTable

PLAIN_CALIBRATOR = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Raw scores as they are."""

DULLEST = 1e-3
"""Beliefs are never drawn together more than that: order stays."""
RAREST = 1e-3
"""No model is right or wrong more seldom than that, as the plain product has it."""

ARRAYS = (
    *("prior", "levels", "accuracies", "shifts", "copies", "rates"),
    *("starts", "wrong", "seen", "calibrator"),
)


@dataclass(frozen=True, eq=False)
class Dependence:
    """How models err together, learnt on a labelled set; see ``fit``."""

    prior: Floats
    """(K,) π."""
    levels: Floats
    """(K, D) P(d | truth k)."""
    accuracies: Floats
    """(T, D) α."""
    shifts: Floats
    """(T, K) log-odds that a truth adds to those of α."""
    copies: Floats
    """(T, T) C."""
    rates: Floats
    """(T, K) q."""
    starts: Rows
    """(K+1,) where the wrong labels seen under each truth begin."""
    wrong: Codes
    """Those labels, ascending under each truth."""
    seen: Floats
    """How often; an item whose models erred counts once in all."""
    pull: float
    """So many such items q counts for beside them."""
    calibrator: Floats
    """Sharpness, and what log M adds to it; for none of these a constant, what log M adds and what
    each further candidate; the weight of the wrong labels seen under a truth, that of the plain
    product of all votes, that of what soft votes lean to, and what a labelled item with the same
    votes counts for."""
    patterns: Patterns
    """Which votes labelled items have together."""
    temperatures: tuple[Temperature | None, ...] = ()
    """(T) how soft votes are to be read; without one they count by their class."""

    @property
    def classes(self) -> int:
        """K."""
        return len(self.prior)

    @property
    def models(self) -> int:
        """T."""
        return len(self.accuracies)

    def calibrated(self, calibrator: ArrayLike) -> Dependence:
        """The same with another calibrator."""
        return replace(self, calibrator=np.asarray(calibrator, dtype=np.float64))

    def kept(self) -> Dependence:
        """As a store keeps it: in single precision, and used as it is kept."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        single = {
            name: array.astype(np.float32).astype(np.float64)
            for name, array in arrays.items()
            if array.dtype == np.float64
        }
        return replace(self, **single, patterns=self.patterns.kept())

    def to_arrays(self) -> dict[str, Any]:
        """To be written to a file."""
        arrays = {name: getattr(self, name) for name in ARRAYS} | {"pull": np.array(self.pull)}
        arrays |= self.patterns.to_arrays()
        if self._softly:
            arrays |= temperature.to_arrays(self.temperatures)
        return {
            name: array.astype(np.float32) if array.dtype == np.float64 and array.ndim else array
            for name, array in arrays.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Dependence:
        """What ``to_arrays`` made."""
        given = {name: np.asarray(arrays[name]) for name in ARRAYS}
        wide: dict[str, Any] = {
            name: array.astype(np.float64) if array.dtype == np.float32 else array
            for name, array in given.items()
        }
        softly = temperature.from_arrays(arrays) if "temperatures" in arrays else ()
        return cls(
            **wide,
            pull=float(arrays["pull"]),
            patterns=Patterns.from_arrays(arrays),
            temperatures=tuple(softly),
        )

    @property
    def _softly(self) -> bool:
        return any(each is not None for each in self.temperatures)

    @cached_property
    def parameters(self) -> Any:
        """As kernels take them."""
        odds = self.accuracies / (1 - self.accuracies)
        totals = np.zeros(self.classes)
        truths = np.repeat(np.arange(self.classes), np.diff(self.starts))
        np.add.at(totals, truths, self.seen)
        possible = self.prior[self.prior > 0]
        return kernels.dependent.Parameters(
            self.prior,
            np.argsort(-self.prior, kind="stable"),
            float((possible * np.log(possible)).sum()),
            self.levels,
            self.prior @ self.levels,
            odds,
            np.exp(self.shifts),
            self.copies,
            self.rates,
            self.starts,
            self.wrong,
            self.seen,
            totals,
            self.pull,
            self._alone(odds),
            self.calibrator,
            DULLEST,
            self.patterns.arrays(self.prior),
        )

    def _alone(self, odds: Floats) -> Floats:
        """(T, K+1) how often a model is right under each truth, over levels; last under any."""
        alone = np.empty((self.models, self.classes + 1))
        for model, shift in enumerate(np.exp(self.shifts)):
            right = odds[model] * shift[:, None]
            alone[model, :-1] = (self.levels * right / (1 + right)).sum(axis=1)
        alone[:, -1] = alone[:, :-1] @ self.prior
        return alone.clip(RAREST, 1 - RAREST)

    @cached_property
    def _readings(self) -> Any:
        """As kernels take them."""
        told = temperature.to_arrays(self.temperatures)
        numbers, biases = (told[name].astype(np.float64) for name in ("temperatures", "biases"))
        return kernels.soft_votes.ReadingArrays(
            *np.ascontiguousarray(numbers.T), biases, self.classes
        )

    def leaning(self, votes: Codes | VoteTable, who: Sequence[int]) -> Floats:
        """(n, M+1): what soft votes lean to the class of each vote by, and last to none of these.

        Of size 0 where no vote is soft, or nothing is known of those that are.
        """
        if not isinstance(votes, VoteTable) or not votes.soft.size or not self._softly:
            return np.zeros((0, 0))
        highest = int(votes.classes.max(initial=MISSING))
        if highest >= self._readings.biases.shape[1]:
            raise InvalidData(f"Soft votes must be about known classes; got {highest}.")
        hard, columns = _codes(votes.hard), np.asarray(who, dtype=np.int64)
        out = np.empty((len(hard), len(columns) + 1))
        given = self._readings, hard, columns, votes.soft, votes.classes, votes.weights, out
        kernels.compiler.spread(len(hard), kernels.soft_votes.lean, *given)
        return out

    def inputs(
        self, votes: Codes | VoteTable, who: Sequence[int]
    ) -> tuple[Any, Codes, Rows, Floats]:
        """What kernels take first: parameters, votes, their models, and what soft votes lean to.

        ``votes`` (n, M): in order of arrival, −1 where there is none; ``who``: the model of each
        column.
        """
        hard = _codes(votes.hard if isinstance(votes, VoteTable) else votes)
        self._refuse_strange("votes", hard)
        if hard.shape[1] != len(who) or not all(0 <= model < self.models for model in who):
            raise InvalidData(
                f"'who' must name one of {self.models} models for each of {hard.shape[1]} columns."
            )
        return self.parameters, hard, np.asarray(who, dtype=np.int64), self.leaning(votes, who)

    def believe(
        self,
        votes: Codes | VoteTable,
        who: Sequence[int],
        stored: Codes | None = None,
        asked: Codes | None = None,
        own: Rows | None = None,
    ) -> Believed:
        """Where items stand with all their votes.

        ``votes``, ``who``: see ``inputs``; ``stored``: labels that win a tie; ``asked`` (n, m):
        classes to be told of; ``own``: of labelled items, their places among the patterns, so that
        none counts itself.
        """
        given = self.inputs(votes, who)
        items = len(given[1])
        labels = np.full(items, MISSING, dtype=np.int32) if stored is None else _codes(stored)
        wanted = np.zeros((items, 0), dtype=np.int32) if asked is None else _codes(asked)
        self._refuse_strange("labels", labels)
        self._refuse_strange("classes", wanted)
        best = np.empty(items, dtype=np.int32)
        out = Believed(np.empty(items), best, np.empty(items), np.empty(wanted.shape))
        itself = np.zeros(0, dtype=np.int64) if own is None else own
        rest = labels, wanted, itself, out
        kernels.compiler.spread(items, kernels.dependent.believe, *given, *rest)
        return out

    def value(
        self,
        votes: Codes | VoteTable,
        who: Sequence[int],
        stored: Codes,
        *,
        model: int,
        ratio: float,
        own: Rows | None = None,
    ) -> Floats:
        """What one more vote, of ``model``, is expected to bring, in positive flips.

        A negative flip costs ``ratio`` of them. One vote alone rarely settles anything at a high
        ratio, but more may come: what it could lead to is counted with the ratio's square root.
        ``own``: see ``believe``.
        """
        if not 0 <= model < self.models:
            raise InvalidParameter.of("model", f"from 0 to {self.models - 1}", model)
        labels = _codes(stored)
        self._refuse_strange("labels", labels)
        out, costs = np.empty(len(labels)), (float(ratio), float(np.sqrt(ratio)))
        itself = np.zeros(0, dtype=np.int64) if own is None else own
        given = *self.inputs(votes, who), labels, itself, model, *costs, out
        kernels.compiler.spread(len(labels), kernels.vote_value.value, *given)
        return out

    def contest(self, votes: Codes | VoteTable, who: Sequence[int]) -> Floats:
        """How undecided the votes leave it, models and classes taken alike: an entropy.

        That of a product of likelihoods with one accuracy for each model and errors spread evenly.
        Such a product is soon sure of itself, but for items whose votes contradict each other.
        """
        given = self.inputs(votes, who)
        out = np.empty(len(given[1]))
        kernels.compiler.spread(len(out), kernels.vote_value.contest, *given, out)
        return out

    def _refuse_strange(self, name: str, codes: Codes) -> None:
        """Kernels do not look where they read: a code that is no class must not reach them."""
        highest = int(codes.max(initial=MISSING))
        if highest >= self.classes:
            raise InvalidData(
                f"'{name}' must be between {MISSING} and {self.classes - 1}; got {highest}."
            )


def _codes(given: Codes) -> Codes:
    """In the one form kernels are compiled for."""
    return np.ascontiguousarray(given, dtype=np.int32)


class Believed(NamedTuple):
    """Where items stand with all their votes."""

    entropy: Floats
    best: Codes
    belief_best: Floats
    asked: Floats
    """(n, m) what is believed of the classes asked for."""
