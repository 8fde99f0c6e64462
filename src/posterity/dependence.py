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
A calibrator of seven numbers makes beliefs of raw scores, drawn a little to what a plain product
of the votes would say; it is fitted on histories as they occur.
Work is in proportion to an item's votes, whatever the number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from posterity import _kernels
from posterity._arrays import ArrayLike, Codes, Floats, Rows
from posterity.errors import InvalidData, InvalidParameter
from posterity.votes import MISSING, SoftVotes, check_codes, check_rows, check_same_length

PLAIN_CALIBRATOR = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Raw scores as they are."""

RAREST = 1e-3
"""No model is right or wrong more seldom than that, as the plain product has it."""

ARRAYS = (
    *("prior", "levels", "accuracies", "shifts", "copies", "rates"),
    *("starts", "wrong", "seen", "calibrator"),
)


@dataclass(frozen=True, eq=False)
class Dependence:
    """How models err together, learnt on a labelled set; see ``fitting``."""

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
    each further candidate; the weight of the wrong labels seen under a truth, and that of the
    plain product of all votes."""

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
        return replace(self, **single)

    def to_arrays(self) -> dict[str, Any]:
        """To be written to a file."""
        arrays = {name: getattr(self, name) for name in ARRAYS} | {"pull": np.array(self.pull)}
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
        return cls(**wide, pull=float(arrays["pull"]))

    @cached_property
    def parameters(self) -> Any:
        """As kernels take them."""
        odds = self.accuracies / (1 - self.accuracies)
        totals = np.zeros(self.classes)
        truths = np.repeat(np.arange(self.classes), np.diff(self.starts))
        np.add.at(totals, truths, self.seen)
        possible = self.prior[self.prior > 0]
        return _kernels.dependence.Parameters(
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
            # Fits kept by earlier versions have fewer numbers: the later ones change nothing at 0.
            np.pad(self.calibrator, (0, len(PLAIN_CALIBRATOR) - len(self.calibrator))),
        )

    def _alone(self, odds: Floats) -> Floats:
        """(T, K+1) how often a model is right under each truth, over levels; last under any."""
        alone = np.empty((self.models, self.classes + 1))
        for model, shift in enumerate(np.exp(self.shifts)):
            right = odds[model] * shift[:, None]
            alone[model, :-1] = (self.levels * right / (1 + right)).sum(axis=1)
        alone[:, -1] = alone[:, :-1] @ self.prior
        return alone.clip(RAREST, 1 - RAREST)

    def believe(
        self,
        hard: Codes,
        who: Sequence[int],
        stored: Codes | None = None,
        asked: Codes | None = None,
    ) -> Believed:
        """Where items stand with all their votes.

        ``hard`` (n, M): votes in order of arrival, −1 where there is none; ``who``: the model of
        each column; ``stored``: labels that win a tie; ``asked`` (n, m): classes to be told of.
        """
        items, hard = len(hard), _codes(hard)
        labels = np.full(items, MISSING, dtype=np.int32) if stored is None else _codes(stored)
        wanted = np.zeros((items, 0), dtype=np.int32) if asked is None else _codes(asked)
        self._refuse_strange(hard, who, labels, wanted)
        out = Believed(
            np.empty(items),
            np.empty(items, dtype=np.int32),
            np.empty(items),
            np.empty(wanted.shape),
        )
        filled = _kernels.dependence.Believed(*vars(out).values())
        columns, parameters = np.asarray(who, dtype=np.int64), self.parameters

        def work(start: int, stop: int) -> None:
            _kernels.dependence.believe(
                parameters, hard, columns, labels, wanted, start, stop, filled
            )

        _kernels.policy.spread(items, work)
        return out

    def value(
        self, hard: Codes, who: Sequence[int], stored: Codes, *, model: int, ratio: float
    ) -> Floats:
        """What one more vote, of ``model``, is expected to bring, in positive flips.

        A negative flip costs ``ratio`` of them. One vote alone rarely settles anything at a high
        ratio, but more may come: what it could lead to is counted with the ratio's square root.
        """
        if not 0 <= model < self.models:
            raise InvalidParameter.of("model", f"from 0 to {self.models - 1}", model)
        hard, stored = _codes(hard), _codes(stored)
        self._refuse_strange(hard, who, stored, stored[:, None])
        out, columns, parameters = (
            np.empty(len(hard)),
            np.asarray(who, dtype=np.int64),
            self.parameters,
        )
        hope = float(np.sqrt(ratio))

        def work(start: int, stop: int) -> None:
            _kernels.worth.value(
                parameters, hard, columns, stored, model, float(ratio), hope, start, stop, out
            )

        _kernels.policy.spread(len(hard), work)
        return out

    def _refuse_strange(self, hard: Codes, who: Sequence[int], labels: Codes, asked: Codes) -> None:
        """Kernels do not look where they read: a code that is no class must not reach them."""
        for name, codes in (("votes", hard), ("labels", labels), ("classes", asked)):
            highest = int(codes.max(initial=MISSING))
            if highest >= self.classes:
                raise InvalidData(
                    f"'{name}' must be between {MISSING} and {self.classes - 1}; got {highest}."
                )
        if hard.shape[1] != len(who) or not all(0 <= model < self.models for model in who):
            raise InvalidData(
                f"'who' must name one of {self.models} models for each of {hard.shape[1]} columns."
            )


def _codes(given: Codes) -> Codes:
    """In the one form kernels are compiled for."""
    return np.ascontiguousarray(given, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Believed:
    """Where items stand with all their votes."""

    entropy: Floats
    best: Codes
    belief_best: Floats
    asked: Floats
    """(n, m) what is believed of the classes asked for."""


class DependentBeliefs:
    """The beliefs of a block of items under dependence, built up vote by vote.

    What is folded at a step is believed as that step's fit has it; other items stay as they are.
    """

    def __init__(self, prior: ArrayLike, items: int) -> None:
        self.prior = np.asarray(prior, dtype=np.float64)
        self.items, self.classes = items, len(self.prior)
        self._hard: Codes = np.full((items, 0), MISSING, dtype=np.int32)
        self._who: list[int] = []
        self._fit: Dependence | None = None
        self._known: tuple[Codes, Believed] | None = None
        """What was computed for some labels at once; forgotten with the next vote."""
        possible = self.prior[self.prior > 0]
        self._entropy: Floats = np.full(items, -float((possible * np.log(possible)).sum()))

    @classmethod
    def from_votes(
        cls, fit: Dependence, hard: Codes, who: Sequence[int], stored: Codes | None = None
    ) -> DependentBeliefs:
        """From all votes at once; ``stored``: the labels that win ties, and are asked for first."""
        made = cls(fit.prior, len(hard))
        made._hard, made._who, made._fit = hard, list(who), fit
        labels = np.full(len(hard), MISSING, dtype=np.int32) if stored is None else stored
        believed = fit.believe(hard, who, labels, labels[:, None])
        made._entropy, made._known = believed.entropy, (labels, believed)
        return made

    @property
    def votes(self) -> Codes:
        """(T, n): every vote folded so far, in order of arrival."""
        return self._hard.T.copy()

    @property
    def fitted(self) -> Dependence:
        """The last fit."""
        if self._fit is None:
            raise InvalidData("Nothing was folded yet.")
        return self._fit

    def fold(
        self,
        votes: ArrayLike | SoftVotes,
        fit: Dependence,
        *,
        rows: ArrayLike | None = None,
        model: int | None = None,
    ) -> None:
        """Absorb a model's votes, by default the next one's; soft ones by their class.

        The fit knows all models so far, and is what these rows are believed by.
        """
        where = self._at(rows)
        hard = votes.hard if isinstance(votes, SoftVotes) else votes
        cast = check_codes(hard, self.classes, "votes")
        check_same_length(votes=len(cast), rows=len(where))
        self._hard = self.with_votes(cast, where, len(self._who) if model is None else model)
        self._who = list(range(self._hard.shape[1]))
        self._fit, self._known = fit, None
        self._entropy[where] = fit.believe(self._hard[where], self._who).entropy

    def with_votes(self, votes: Codes, rows: Rows, model: int) -> Codes:
        """(n, T): the votes so far and these, a column a model."""
        more = model + 1 - self._hard.shape[1]
        wider = np.full((self.items, max(more, 0)), MISSING, dtype=np.int32)
        hard = np.concatenate([self._hard, wider], axis=1)
        hard[rows, model] = votes
        return hard

    def entropy(self, rows: ArrayLike | None = None) -> Floats:
        """S_n, as the fit of its last vote has it."""
        return self._entropy[self._at(rows)]

    def most_believed(
        self, rows: ArrayLike | None = None, *, stored: ArrayLike | None = None
    ) -> Codes:
        """k̂; exact ties go to the stored label, else to the class voted for most recently."""
        where = self._at(rows)
        labels = None if stored is None else check_codes(stored, self.classes, "stored")
        if self._known is not None and rows is None and labels is not None:
            asked, believed = self._known
            best = believed.best.copy()
            # Labels matter in a tie only, and then not if they are the best, or those asked for.
            others = np.flatnonzero((labels != asked) & (labels != best))
            if len(others):
                best[others] = self.fitted.believe(
                    self._hard[others], self._who, labels[others]
                ).best
            return best
        return self.fitted.believe(self._hard[where], self._who, labels).best

    def of_best(self, rows: ArrayLike | None = None) -> Floats:
        """p(k̂)."""
        if self._known is not None and rows is None:
            return self._known[1].belief_best
        return self.fitted.believe(self._hard[self._at(rows)], self._who).belief_best

    def of(self, labels: ArrayLike, rows: ArrayLike | None = None) -> Floats:
        """p(y_n = label_n); 0 where there is no label yet."""
        where = self._at(rows)
        if self._known is not None and rows is None and labels is self._known[0]:
            return self._known[1].asked[:, 0]
        codes = check_codes(labels, self.classes, "labels")
        check_same_length(labels=len(codes), rows=len(where))
        return self.of_each(codes[:, None], where)[:, 0]

    def of_each(self, labels: Codes, rows: Rows) -> Floats:
        """(n, m): p(y_n = label) for several labels of each item at once; 0 where there is none."""
        return self.fitted.believe(self._hard[rows], self._who, asked=labels).asked

    def probabilities(self, rows: ArrayLike | None = None) -> Floats:
        """(n, K): the beliefs themselves."""
        where = self._at(rows)
        every = np.broadcast_to(np.arange(self.classes, dtype=np.int32), (len(where), self.classes))
        return self.of_each(np.ascontiguousarray(every), where)

    def entropy_without(self, model: int, rows: Rows) -> Floats:
        """The entropies without a model's votes, under the same fit."""
        others = [at for at in self._who if at != model]
        hard = np.ascontiguousarray(self._hard[rows][:, others])
        return self.fitted.believe(hard, others).entropy

    def value(self, stored: Codes, *, fit: Dependence, model: int, ratio: float) -> Floats:
        """What a vote of the next model could change; see ``Dependence.value``."""
        return fit.value(self._hard, self._who, stored, model=model, ratio=ratio)

    def _at(self, rows: ArrayLike | None) -> Rows:
        return np.arange(self.items) if rows is None else check_rows(rows, self.items)
