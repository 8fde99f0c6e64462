"""Rehearse: the labelled items carried through a store's steps, and the fit that comes of it.

When a step is planned or made, the labelled items all its models have voted on walk through the
steps so far as if they were stored. Nothing of that is kept on disk but what a step decided with.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace

import numpy as np

from posterity.engine.labelled.labelled_file import labelled_weights
from posterity.engine.labelled.labelled_votes import answered_votes, labelled_rows, temperatures_of
from posterity.engine.labelled.sample import Sample, VotesOf
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.fits import DEPENDENT, Fit
from posterity.engine.ledger.steps import live_settles
from posterity.errors import InvalidParameter, StoreError
from posterity.method.adapt.adapt import Adaptation
from posterity.method.beliefs.dependent import Dependence
from posterity.method.beliefs.priors import ESTIMATED
from posterity.method.data.arrays import Codes
from posterity.method.data.votes import MISSING, SoftVotes
from posterity.method.decide.budget import Budget, Outlook
from posterity.method.decide.rules import AtMost, MaxBelief, Rule
from posterity.method.decide.selectors import Selector, without_value
from posterity.method.decide.selectors import parse as parse_selector
from posterity.storage import parquet
from posterity.storage.delta.schema import HEADER_SHARD
from posterity.validation import shift
from posterity.validation.expectation import LEAST
from posterity.validation.outcome import Rehearsed, Target
from posterity.validation.plain_rehearsal import RehearsedStep, rehearse
from posterity.validation.rehearsal import Fits, Rehearsal, SoftReadings
from posterity.validation.reliability import Reliability

WHY_PLAIN = (
    "plain beliefs: dependent ones need labelled votes with ids, of all models on at least "
    f"{LEAST} items that weights leave"
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
    keys: list[str]
    given: int
    """How many there were before they were weighed."""


def labelled_of(
    context: Context, models: Sequence[str], *, weighed: bool = True
) -> Labelled | None:
    """The labelled items of these models; None where too few are known to be the same.

    ``weighed``: only those that weights leave.
    """
    if not all(context.models[name].settings["keyed"] for name in models):
        return None  # also where a confusion was stated: nobody knows on which items
    by_model, softly = [], []
    weight_of: dict[str, float] = {}
    for name in models:
        own = labelled_rows(context, context.models[name])
        columns = (own.column(column).to_pylist() for column in ("key", "truth", "vote"))
        listed = enumerate(zip(*columns, strict=True))
        by_model.append(
            {key: (truth, vote, at) for at, (key, truth, vote) in listed if vote != MISSING}
        )
        weights = labelled_weights(own)
        if weights is not None:  # the latest that came with any has it
            weight_of = dict(zip(own.column("key").to_pylist(), weights.tolist(), strict=True))
        softly.append(parquet.from_columns(own, own.column("vote").to_numpy()))
    common = set.intersection(*map(set, by_model))
    # Models that disagree about the truth of an item cannot be compared on it.
    agreed = [key for key in common if len({rows[key][0] for rows in by_model}) == 1]
    if len(agreed) < LEAST:
        return None
    keys, given = sorted(agreed), len(agreed)
    if weight_of and weighed:
        rows = shift.kept(np.array([weight_of[key] for key in keys]))
        keys = [keys[row] for row in rows.tolist()]
        if len(keys) < LEAST:
            return None
    truth = np.array([by_model[0][key][0] for key in keys], dtype=np.int32)
    votes = np.array([[rows[key][1] for rows in by_model] for key in keys], dtype=np.int32)
    soft: list[SoftVotes | None] = []
    for rows_of, each in zip(by_model, softly, strict=True):
        own = None if each is None else each[np.array([rows_of[key][2] for key in keys])]
        soft.append(None if own is None or (own.hard == MISSING).any() else own)
    return Labelled(list(models), truth, votes, soft, keys, given)


@dataclass(frozen=True, eq=False)
class Walked:
    """The labelled items after the steps so far, by fits that know the arriving model too."""

    models: list[str]
    labelled: Labelled
    fits: Fits
    rehearsal: Rehearsal

    @classmethod
    def of(
        cls, context: Context, models: list[str], *, arriving: str, watched: bool
    ) -> Walked | None:
        """Of a store these models vote on, one of them next; None with too few labelled items."""
        labelled = labelled_of(context, models)
        if labelled is None:
            return None
        truth, prior = labelled.truth, context.fits.now(arriving).prior
        readings = [SoftReadings.of(soft, truth, len(prior)) for soft in labelled.soft]
        more, known = answered_votes(context, models, labelled.keys)
        fits = Fits.of(
            np.concatenate([labelled.votes, more]), np.concatenate([truth, known]), prior, readings
        )
        live = context.live_updates
        first = context.rule(live[0].rule or "") if live else MaxBelief()
        walked = cls(models, labelled, fits, Rehearsal(truth, prior, first, watched=watched))
        settles = live_settles(context.headers)
        for number, header in enumerate(live):
            if number in settles:
                walked.rehearsal.settle()
            selector, rule = parse_selector(header.selector or ""), context.rule(header.rule or "")
            walked.step(header.voter, selector, rule, header.share, number)
        if len(live) in settles:
            walked.rehearsal.settle()
        return walked

    def step(
        self,
        model: str,
        selector: Selector,
        rule: Rule,
        share: float,
        number: int,
        *,
        last: bool = False,
        target: Target | None = None,
    ) -> Rehearsed:
        """One more step; see ``Rehearsal.step``."""
        place = self.models.index(model)
        soft = self.labelled.soft[place]
        return self.rehearsal.step(
            self.fits,
            self.labelled.votes[:, place] if soft is None else soft,
            model=place,
            selector=selector,
            rule=rule,
            # A share of all labelled items, as the step had one of all items.
            budget=Budget.of(round(min(1.0, share) * len(self.labelled.truth))),
            number=number,
            last=last,
            target=target,
        )

    def outlook(self, model: str, selector: Selector, rule: Rule, number: int) -> Outlook:
        """What one more step would bring; see ``Rehearsal.outlook``."""
        place = self.models.index(model)
        soft = self.labelled.soft[place]
        return self.rehearsal.outlook(
            self.fits,
            self.labelled.votes[:, place] if soft is None else soft,
            model=place,
            selector=selector,
            rule=rule,
            number=number,
        )

    def copy(self) -> Walked:
        """To go on from here without going on from there."""
        return replace(self, rehearsal=deepcopy(self.rehearsal))


_LAST: dict[Hashable, Walked | None] = {}
"""The last walk by what it was made of: an update plans with it, and commits with it again."""


def _walked(context: Context, models: list[str], *, arriving: str, watched: bool) -> Walked | None:
    snapshots = context.ledger.files_of(HEADER_SHARD), context.arrivals.data_files()
    labelled = context.labelled_table.data_files()
    # Names of files are used once in the world: what is made of the same files is the same.
    names = (file.path for files in (*snapshots, labelled) for file in files)
    removed = len(context.removed)  # answers may be about items that are gone
    # Of copies of a store one may have more classes.
    prior = context.fits.now(arriving).prior.tobytes()
    made_of = (*names, *models, arriving, prior, watched, removed)
    kept = _LAST.get(made_of)
    if kept is None:
        kept = Walked.of(context, models, arriving=arriving, watched=watched)
        _LAST.clear()
        _LAST[made_of] = kept
    return None if kept is None else kept.copy()


class Prepared:
    """A step that is about to be planned or made, with what the labelled set says of it."""

    def __init__(self, context: Context, arriving: str, *, watched: bool = False) -> None:
        """``watched``: the most believed classes are looked at too, which takes longer."""
        self._context, self._live = context, context.live_updates
        self.models = list(dict.fromkeys([*(header.voter for header in self._live), arriving]))
        self.model = self.models.index(arriving)
        self.base = context.fits.now(arriving)
        self._walked, self.why_plain = None, ""
        if context.description.beliefs == DEPENDENT:
            self._walked = _walked(context, self.models, arriving=arriving, watched=watched)
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
        if not self.dependent:
            self.refuse_promise(rule)
            return self._rehearse_plain(selector, rule, share)
        return self.rehearse(selector, rule, share, last=True)

    def _rehearse_plain(self, selector: Selector, rule: Rule, share: float) -> Rehearsed | None:
        """The steps so far and the one planned, on what all their models have labelled votes on."""
        context = self._context
        labelled = labelled_of(context, self.models, weighed=False)
        if labelled is None:
            return None
        parts = [
            RehearsedStep(
                self.models.index(header.voter),
                header.share,
                without_value(parse_selector(header.selector or "")),
                context.rule(header.rule or ""),
            )
            for header in self._live
        ]
        parts.append(RehearsedStep(self.model, share, without_value(selector), rule))
        return rehearse(
            labelled.truth,
            labelled.votes.T,
            parts,
            prior=self.base.prior,
            estimator=context.description.confusion,
        )

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
        model, number = self.models[self.model], len(self._live)

        def chosen_by() -> Dependence:
            return self.adapted(self.sample())[0].dependence

        def believed_by() -> Dependence:
            return chosen_by() if sample is None else self.adapted(sample)[0].dependence

        target = Target(self._context.there, chosen_by, believed_by)
        return self._known.step(model, selector, rule, share, number, last=last, target=target)

    def outlook(self, selector: Selector, rule: Rule) -> Outlook:
        """What the step would bring, by the share of items it looks at."""
        return self._known.outlook(self.models[self.model], selector, rule, len(self._live))

    @property
    def _known(self) -> Walked:
        if self._walked is None:
            raise StoreError("Nothing is known of how the models err together.")
        return self._walked

    def refuse_promise(self, rule: Rule) -> None:
        """A promise is kept by what the labelled set went through, or not at all."""
        if isinstance(rule, AtMost):
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
        return Sample.of(self._context, self._live, self.models[self.model], new)

    def fit(self) -> Fit:
        """As the steps rehearsed so far have it."""
        if self._walked is None:
            return self.base.tempered(temperatures_of(self._context, self.models))
        dependence = self._walked.fits.whole.calibrated(self._walked.rehearsal.calibrator)
        return self.base.dependent(dependence.kept(), self.models)

    def adapted(self, sample: Sample) -> tuple[Fit, Adaptation]:
        """The same, adapted to a sample of the store; and how much that changed."""
        who = [self.models.index(name) for name in sample.models]
        described = self._context.description
        dependence, changed = self._known.rehearsal.adapted(
            self._known.fits,
            sample.votes,
            who,
            adapt=described.adapt,
            follow=described.prior == ESTIMATED,
        )
        labelled = self._known.labelled
        changed = replace(changed, labelled=len(labelled.truth) / labelled.given)
        return self.base.dependent(dependence.kept(), self.models), changed


def keep_fit(context: Context, fit: Fit) -> None:
    """Write what a step decides with where its header says it is: before the header, durably."""
    if fit.path and context.files.size(fit.path) is None:
        context.files.write(fit.path, fit.packed)
