"""Rehearsing: the labelled items carried through a store's steps, and the fit that comes of it.

Each time a step is planned or made, the labelled items all its models have voted on walk through
the steps so far as if they were stored. Nothing of that is kept but what a step decided with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from posterity._arrays import Codes
from posterity.budget import Budget
from posterity.engine.context import Context
from posterity.engine.fits import DEPENDENT, Fit
from posterity.engine.registering import labelled_rows
from posterity.engine.samples import Sample, VotesOf
from posterity.engine.steps import Header, live_updates
from posterity.engine.tempering import temperatures_of
from posterity.errors import StoreError
from posterity.rehearsal import LEAST, Fits, Readings, Rehearsal, Rehearsed
from posterity.reliability import Reliability
from posterity.rules import Rule
from posterity.rules import parse as parse_rule
from posterity.selectors import Selector
from posterity.selectors import parse as parse_selector
from posterity.tables import softvotes
from posterity.votes import MISSING, SoftVotes

T = TypeVar("T")

WHY_PLAIN = (
    "plain beliefs: dependent ones need labelled votes with ids, of all models on at least "
    f"{LEAST} items"
)


@dataclass(frozen=True, eq=False)
class Labelled:
    """What the models of a store have voted on the same labelled items."""

    models: list[str]
    truth: Codes
    votes: Codes
    """(n, T) −1 where a model has none."""
    soft: list[SoftVotes | None]
    """Of each model, where all of its votes on these items are soft."""


def labelled_of(context: Context, models: Sequence[str]) -> Labelled | None:
    """The labelled items of these models; None where too few are known to be the same."""
    if not all(context.models[name].settings["keyed"] for name in models):
        return None  # also where a confusion was stated: nobody knows on which items
    by_model, softly = [], []
    for name in models:
        own = labelled_rows(context, context.models[name])
        columns = (own.column(column).to_pylist() for column in ("key", "truth", "vote"))
        rows = enumerate(zip(*columns, strict=True))
        by_model.append(
            {key: (truth, vote, at) for at, (key, truth, vote) in rows if vote != MISSING}
        )
        softly.append(softvotes.from_columns(own, own.column("vote").to_numpy()))
    common = set.intersection(*map(set, by_model))
    # Models that disagree about the truth of an item cannot be compared on it.
    agreed = [key for key in common if len({rows[key][0] for rows in by_model}) == 1]
    if len(agreed) < LEAST:
        return None
    keys = sorted(agreed)
    truth = np.array([by_model[0][key][0] for key in keys], dtype=np.int32)
    votes = np.array([[rows[key][1] for rows in by_model] for key in keys], dtype=np.int32)
    soft: list[SoftVotes | None] = []
    for rows_of, each in zip(by_model, softly, strict=True):
        own = None if each is None else each[np.array([rows_of[key][2] for key in keys])]
        soft.append(None if own is None or (own.hard == MISSING).any() else own)
    return Labelled(list(models), truth, votes, soft)


class Prepared:
    """A step that is about to be planned or made, with what the labelled set says of it."""

    def __init__(self, context: Context, arriving: str, *, watched: bool = False) -> None:
        """``watched``: the most believed classes are looked at too, which takes longer."""
        self._watched = watched
        self._context, self._live = context, live_updates(context.headers)
        self.models = list(
            dict.fromkeys([*(header.model or "" for header in self._live), arriving])
        )
        self.model = self.models.index(arriving)
        self.base = context.fit(arriving)
        labelled = None
        if context.description.beliefs == DEPENDENT:
            labelled = labelled_of(context, self.models)
        self.why_plain = "" if labelled or context.description.beliefs != DEPENDENT else WHY_PLAIN
        self._labelled, self._rehearsal = labelled, None
        if labelled is not None:
            truth, prior = labelled.truth, self.base.prior
            readings = [Readings.of(soft, truth, len(prior)) for soft in labelled.soft]
            self._fits = Fits.of(labelled.votes, truth, prior, readings)
            self._rehearsal = self._walked(labelled)

    @property
    def dependent(self) -> bool:
        """Whether beliefs can be; else they are plain."""
        return self._rehearsal is not None

    def _walked(self, labelled: Labelled) -> Rehearsal:
        rehearsal: Rehearsal | None = None
        for number, header in enumerate(self._live):
            rule = parse_rule(header.rule or "")
            rehearsal = rehearsal or Rehearsal(
                labelled.truth, self.base.prior, rule, watched=self._watched
            )
            self._step(rehearsal, header.model or "", header, number, rule)
        if rehearsal is None:
            rehearsal = Rehearsal(labelled.truth, self.base.prior, parse_rule("max-belief"))
        return rehearsal

    def _step(
        self, rehearsal: Rehearsal, model: str, header: Header, number: int, rule: Rule
    ) -> Rehearsed:
        share = min(1.0, header.report["evaluations"] / max(1, header.items))
        return self._rehearse(
            rehearsal, model, parse_selector(header.selector or ""), rule, share, number
        )

    def _rehearse(
        self,
        rehearsal: Rehearsal,
        model: str,
        selector: Selector,
        rule: Rule,
        share: float,
        number: int,
        *,
        last: bool = False,
    ) -> Rehearsed:
        place, labelled = self.models.index(model), _given(self._labelled)
        soft = labelled.soft[place]
        return rehearsal.step(
            self._fits,
            labelled.votes[:, place] if soft is None else soft,
            model=place,
            selector=selector,
            rule=rule,
            # A share of all labelled items, as the step had one of all items.
            budget=Budget.of(round(min(1.0, share) * len(labelled.truth))),
            number=number,
            last=last,
        )

    def rehearse(
        self, selector: Selector, rule: Rule, share: float, *, last: bool = False
    ) -> Rehearsed:
        """The step itself; afterwards the fit is the one it decides with.

        ``last``: what it proposes is judged as if it were made.
        """
        model, number = self.models[self.model], len(self._live)
        return self._rehearse(
            _given(self._rehearsal), model, selector, rule, share, number, last=last
        )

    def reliability(self) -> tuple[Reliability, Reliability] | None:
        """Of the labels and of the most believed classes after the steps so far."""
        return None if self._rehearsal is None else self._rehearsal.reliability()

    def sample(self, new: VotesOf | None = None) -> Sample:
        """Some items of the store; ``new``: with the votes the step is to be made of."""
        return Sample.of(self._context, self._live, self.models[self.model], new)

    def fit(self, sample: Sample | None = None) -> Fit:
        """As the steps rehearsed so far have it, and as hard as a sample of the store looks."""
        if self._rehearsal is None:
            return self.base.tempered(temperatures_of(self._context, self.models))
        if sample is None:
            dependence = self._fits.whole.calibrated(self._rehearsal.calibrator)
        else:
            who = [self.models.index(name) for name in sample.models]
            dependence = self._rehearsal.adapted(self._fits, sample.votes, who)
        return self.base.dependent(dependence.kept(), self.models)


def _given(known: T | None) -> T:
    if known is None:
        raise StoreError("Nothing is known of how the models err together.")
    return known


def keep_fit(context: Context, fit: Fit) -> None:
    """Write what a step decides with where its header says it is: before the header, durably."""
    if fit.path and context.files.size(fit.path) is None:
        context.files.write(fit.path, fit.packed)
