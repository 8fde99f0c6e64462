"""Rehearse: the labelled items carried through a store's steps, and the fit that comes of it.

When a step is planned or made, the labelled items all its models have voted on walk through the
steps so far as if they were stored. Nothing of that is kept on disk but what a step decided with.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from posterity.engine.labelled.labelled_votes import (
    answered_votes,
    labelled_rows,
    labelled_weights,
    temperatures_of,
)
from posterity.engine.labelled.sample import Sample, VotesOf
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.steps import SETTLE, live_voteless, without_policies
from posterity.engine.ledger.totals import undecided
from posterity.errors import InvalidParameter, StoreError
from posterity.method.adapt.adapt import Adaptation
from posterity.method.beliefs.dependent import Dependence
from posterity.method.beliefs.priors import ESTIMATED
from posterity.method.data.arrays import Codes, Counts, Floats
from posterity.method.data.votes import MISSING, SoftVotes
from posterity.method.decide.balance import RatioOutcome
from posterity.method.decide.budget import FULL, Budget, Outlook
from posterity.method.decide.defaults import DEPENDENT
from posterity.method.decide.rules import MaxBelief, Rule, traits
from posterity.method.decide.selectors import Selector, without_value
from posterity.method.decide.selectors import parse as parse_selector
from posterity.storage import parquet
from posterity.validation import shift
from posterity.validation.cross_fits import Confusions, Fits, SoftReadings
from posterity.validation.expectation import LEAST
from posterity.validation.outcome import PastStep, Rehearsed, RehearsedStep, Target
from posterity.validation.rehearsal import Rehearsal
from posterity.validation.reliability import Reliability

WHY_PLAIN = (
    "plain beliefs: dependent ones need labelled votes with ids, of all models on at least "
    f"{LEAST} items that weights leave"
)


@dataclass(frozen=True, eq=False)
class Labelled:
    """What the models of a store have voted on the same labelled items."""

    truth: Codes
    votes: Codes
    """(n, T) −1 where a model has none."""
    soft: list[SoftVotes | None]
    """Of each model, where all of its votes on these items are soft."""
    keys: list[str]
    given: int
    """How many there were before they were weighed."""


def labelled_of(context: Context, models: Sequence[str], *, dependent: bool) -> Labelled | None:
    """The labelled items of these models; None where too few are known to be the same.

    For dependent beliefs only those that weights leave, and soft votes as they are.
    """
    if not all(context.models[name].settings.keyed for name in models):
        return None  # also where a confusion was stated: nobody knows on which items
    tables = [labelled_rows(context, context.models[name]) for name in models]
    weight_of: dict[str, float] = {}
    rows_of = []
    for own in tables:
        names, cast = own.column("key").to_pylist(), own.column("vote").to_pylist()
        rows_of.append({key: row for row, key in enumerate(names) if cast[row] != MISSING})
        weights = labelled_weights(own)
        if weights is not None:  # the latest that came with any has it
            weight_of = dict(zip(names, weights.tolist(), strict=True))
    keys = sorted(set(rows_of[0]).intersection(*rows_of[1:]))
    places = np.array([[rows[key] for key in keys] for rows in rows_of], dtype=np.int64)
    truths, votes = (
        np.stack(
            [own.column(name).to_numpy()[at] for own, at in zip(tables, places, strict=True)],
            axis=1,
        )
        for name in ("truth", "vote")
    )
    # Models that disagree about the truth of an item cannot be compared on it.
    kept = np.flatnonzero((truths == truths[:, :1]).all(axis=1))
    given = len(kept)
    if weight_of and dependent and given >= LEAST:
        kept = kept[shift.kept(np.array([weight_of[keys[at]] for at in kept.tolist()]))]
    if len(kept) < LEAST:
        return None
    soft: list[SoftVotes | None] = []
    for own, at in zip(tables, places, strict=True):
        each = parquet.from_columns(own, own.column("vote").to_numpy()) if dependent else None
        each = None if each is None else each[at[kept]]
        soft.append(None if each is None or (each.hard == MISSING).any() else each)
    return Labelled(
        truths[kept, 0].astype(np.int32),
        votes[kept].astype(np.int32),
        soft,
        [keys[at] for at in kept.tolist()],
        given,
    )


@dataclass(frozen=True, eq=False)
class Walked:
    """The labelled items after the steps so far, by what is known of the arriving model too."""

    models: list[str]
    labelled: Labelled
    fits: Fits | Confusions
    rehearsal: Rehearsal

    @classmethod
    def of(
        cls,
        context: Context,
        models: list[str],
        prior: Floats,
        *,
        dependent: bool,
        counts: Counts | None = None,
        watched: bool = False,
    ) -> Walked | None:
        """Of a store these models vote on; None with too few labelled items.

        ``counts``: of the labelled items that the prior is learnt from, by class.
        """
        labelled = labelled_of(context, models, dependent=dependent)
        if labelled is None:
            return None
        live = context.live_updates
        first = context.rule(live[0].rule or "") if live else MaxBelief()
        rehearsal = Rehearsal(labelled.truth, prior, first, dependent=dependent, watched=watched)
        fits: Fits | Confusions
        if dependent:
            fits = _fits(context, models, labelled, prior, counts)
        else:
            estimator = context.description.confusion
            fits = Confusions.of(labelled.votes, labelled.truth, len(prior), estimator)
        walked = cls(models, labelled, fits, rehearsal)
        for number, header in enumerate(live):
            walked._between(context, number)
            selector, rule = parse_selector(header.selector or ""), context.rule(header.rule or "")
            walked.step(header.voter, selector, rule, header.share)
        walked._between(context, len(live))
        return walked

    def _between(self, context: Context, number: int) -> None:
        """What steps without votes did after so many updates."""
        if not isinstance(self.fits, Fits):
            return  # with plain beliefs pending flips are made by the next step, or at the end
        for place, header in live_voteless(context.headers):
            if place == number and header.kind == SETTLE:
                self.rehearsal.settle()
            elif place == number:
                self.rehearsal.redecide(self.fits, context.rule(header.rule or ""))

    def step(
        self,
        model: str,
        selector: Selector,
        rule: Rule,
        share: float,
        *,
        last: bool = False,
        target: Target | None = None,
    ) -> Rehearsed:
        """One more step, on the same share of the labelled items as of all items."""
        place, share = self.models.index(model), min(1.0, share)
        if isinstance(self.fits, Fits):
            budget = Budget.of(round(share * len(self.labelled.truth)))
        else:
            selector = without_value(selector)
            budget = Budget.of(share) if self.rehearsal.number else FULL
        step = RehearsedStep(place, selector, rule, budget)
        return self.rehearsal.step(self.fits, self._votes(place), step, last=last, target=target)

    def outlook(self, model: str, selector: Selector, rule: Rule) -> Outlook:
        """What one more step would bring; see ``Rehearsal.outlook``."""
        step = RehearsedStep(self.models.index(model), selector, rule, FULL)
        return self.rehearsal.outlook(self.dependent, self._votes(step.model), step)

    def past(self, model: str, share: float) -> PastStep:
        """A step, to be made again under another policy."""
        place = self.models.index(model)
        return PastStep(self.dependent, self._votes(place), place, share)

    def _votes(self, place: int) -> Codes | SoftVotes:
        soft = self.labelled.soft[place]
        return self.labelled.votes[:, place] if soft is None else soft

    @property
    def dependent(self) -> Fits:
        """How models err together."""
        if not isinstance(self.fits, Fits):
            raise StoreError("Nothing is known of how the models err together.")
        return self.fits

    def copy(self) -> Walked:
        """To go on from here without going on from there."""
        return replace(self, rehearsal=deepcopy(self.rehearsal))


def _fits(
    context: Context,
    models: Sequence[str],
    labelled: Labelled,
    prior: Floats,
    counts: Counts | None,
) -> Fits:
    truth = labelled.truth
    readings = [SoftReadings.of(soft, truth, len(prior)) for soft in labelled.soft]
    more, answers = answered_votes(context, models, labelled.keys)
    votes = np.concatenate([labelled.votes, more])
    truths = np.concatenate([truth, answers])
    learnt = context.description.prior
    return Fits.of(
        *(votes, truths, prior, readings), learnt=learnt, counts=counts, answered=len(answers)
    )


_LAST: dict[Hashable, Walked | None] = {}
"""The last walk by what it was made of: an update plans with it, and commits with it again."""


def voters(context: Context, arriving: str) -> list[str]:
    """The models whose votes count, in order of arrival, and the one that votes next."""
    return list(dict.fromkeys([*(header.voter for header in context.live_updates), arriving]))


def made_of(context: Context, models: Sequence[str], prior: Floats) -> tuple[Hashable, ...]:
    """What the labelled items' steps depend on: where it is the same, so are they."""
    steps = map(repr, without_policies(context.headers))
    snapshots = context.arrivals.data_files(), context.labelled_table.data_files()
    # Names of files are used once in the world: what is made of the same files is the same.
    names = (*steps, *(file.path for files in snapshots for file in files))
    removed = len(context.removed)  # answers may be about items that are gone
    # Of copies of a store one may have more classes, and another prior.
    return (*names, *models, prior.tobytes(), removed)


def _walked(
    context: Context, models: list[str], prior: Floats, counts: Counts | None, *, watched: bool
) -> Walked | None:
    known = None if counts is None else counts.tobytes()
    key = (*made_of(context, models, prior), known, watched)
    kept = _LAST.get(key)
    if kept is None:
        kept = Walked.of(context, models, prior, dependent=True, counts=counts, watched=watched)
        _LAST.clear()
        _LAST[key] = kept
    return None if kept is None else kept.copy()


class Prepared:
    """A step that is about to be planned or made, with what the labelled set says of it."""

    def __init__(self, context: Context, arriving: str, *, watched: bool = False) -> None:
        """``watched``: the most believed classes are looked at too, which takes longer."""
        self._context, self._live, self.arriving = context, context.live_updates, arriving
        self.models = voters(context, arriving)
        self.model = self.models.index(arriving)
        self.base = context.fits.now(arriving)
        self._walked, self.why_plain = None, ""
        if context.description.beliefs == DEPENDENT:
            counts = context.fits.class_counts(arriving)
            self._walked = _walked(context, self.models, self.base.prior, counts, watched=watched)
            self.why_plain = "" if self._walked else WHY_PLAIN

    def again(self) -> Prepared:
        """The same before it is rehearsed, to be rehearsed otherwise."""
        other = copy(self)
        other._walked = None if self._walked is None else self._walked.copy()
        return other

    @property
    def dependent(self) -> bool:
        """Whether beliefs can be; else they are plain."""
        return self._walked is not None

    def outcome(self, selector: Selector, rule: Rule, share: float) -> Rehearsed | None:
        """What the step did on the labelled set, with the beliefs it will decide with."""
        if self.dependent:
            return self.rehearse(selector, rule, share, last=True)
        self.refuse_promise(rule)
        walked = Walked.of(self._context, self.models, self.base.prior, dependent=False)
        if walked is None:
            return None
        return walked.step(self.arriving, selector, rule, share, last=True)

    def rehearse(
        self,
        selector: Selector,
        rule: Rule,
        share: float,
        *,
        sample: Sample | None = None,
        last: bool = False,
    ) -> Rehearsed:
        """The step itself; afterwards the fit is the one it decides with.

        ``sample``: of the store with the step's votes; ``last``: what the step proposes is judged
        as if it were made.
        """
        target = None
        if traits(rule).promises:
            believed_by = partial(self._believed, sample)
            target = Target(undecided(self._context), self._believed(None), believed_by)
        known = self._known
        return known.step(self.arriving, selector, rule, share, last=last, target=target)

    def _believed(self, sample: Sample | None) -> Dependence:
        return self.adapted(self.sample() if sample is None else sample)[0].dependence

    def redecide(self, rule: Rule) -> tuple[Rule, RatioOutcome]:
        """All labels decided again: the rule with its ratio, and what it did on labelled items."""
        return self._known.rehearsal.redecide(self._known.dependent, rule)

    def history(self, share: float | None) -> tuple[Codes, Floats, list[PastStep]]:
        """The labelled items' truths, the prior, and the steps so far with the arriving model's.

        ``share``: of the items it would look at; None: it has had its step.
        """
        known, told = self._known, [(one.voter, one.share) for one in self._live]
        if share is not None:
            told.append((self.arriving, share))
        steps = [known.past(name, min(1.0, part)) for name, part in told]
        return known.labelled.truth, self.base.prior, steps

    def outlook(self, selector: Selector, rule: Rule) -> Outlook:
        """What the step would bring, by the share of items it looks at."""
        return self._known.outlook(self.arriving, selector, rule)

    @property
    def _known(self) -> Walked:
        if self._walked is None:
            raise StoreError("Nothing is known of how the models err together.")
        return self._walked

    def refuse_promise(self, rule: Rule) -> None:
        """A promise is kept by what the labelled set went through, or not at all."""
        if traits(rule).promises:
            raise InvalidParameter(
                f"The rule '{rule}' needs dependent beliefs: labelled votes with ids, of all "
                f"models on the same items, at least {LEAST}.",
                hint="Register them, or choose a cost ratio yourself.",
            )

    def reliability(self) -> tuple[Reliability, Reliability] | None:
        """Of the labels and of the most believed classes after the steps so far."""
        return None if self._walked is None else self._walked.rehearsal.reliability()

    def sample(self, new: VotesOf | None = None) -> Sample:
        """Some items of the store; ``new``: with the votes the step is to be made of."""
        return Sample.of(self._context, self._live, self.arriving, new)

    def fit(self) -> Fit:
        """As the steps rehearsed so far have it."""
        if self._walked is None:
            return self.base.tempered(temperatures_of(self._context, self.models))
        dependence = self._walked.dependent.whole.calibrated(self._walked.rehearsal.calibrator)
        return self.base.dependent(dependence.kept(), self.models)

    def adapted(self, sample: Sample) -> tuple[Fit, Adaptation]:
        """The same, adapted to a sample of the store; and how much that changed."""
        who = [self.models.index(name) for name in sample.models]
        described = self._context.description
        dependence, changed = self._known.rehearsal.adapted(
            self._known.dependent,
            sample.votes,
            who,
            adapt=described.adapt,
            follow=described.prior == ESTIMATED,
        )
        labelled = self._known.labelled
        changed = replace(changed, labelled=len(labelled.truth) / labelled.given)
        return self.base.dependent(dependence.kept(), self.models), changed

    def frequencies(self, sample: Sample) -> Floats:
        """How frequent classes are in the store, estimated from a sample of its votes."""
        who = [self.models.index(name) for name in sample.models]
        return self._known.rehearsal.frequencies(self._known.dependent, sample.votes, who)


def keep_fit(context: Context, fit: Fit) -> None:
    """Write what a step decides with where its header says it is: before the header, durably."""
    if fit.path and context.files.size(fit.path) is None:
        context.files.write(fit.path, fit.packed)
