"""Rehearsal: what a selection and a rule would have done on the labelled set.

Beliefs may be far off; this is not. The labelled items are taken as if they were stored items, in
two halves: how models err is learnt on one half for use on the other, so that nobody is judged by
what they learnt from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap

import numpy as np

from posterity.method import metrics
from posterity.method.adapt import adapt as adapt_adapt
from posterity.method.adapt.adapt import Adaptation
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.data.arrays import Codes, Counts, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, SoftVotes, VoteTable
from posterity.method.decide import balance
from posterity.method.decide import promise as decide_promise
from posterity.method.decide.balance import FlipMargins, RatioOutcome
from posterity.method.decide.budget import Budget, Outlook
from posterity.method.decide.rules import (
    AtMost,
    Balanced,
    Rule,
    decide,
)
from posterity.method.step import choose, in_order, settle
from posterity.validation.cross_fits import Confusions, Fits
from posterity.validation.half import Half, flips_tried, margins_of
from posterity.validation.outcome import Rehearsed, RehearsedStep, StepHalf, Target, Trust
from posterity.validation.reliability import Reliability
from posterity.validation.shift import Seen

FRESH = 10.0
"""How hard the calibrator of fresh votes is drawn to that of all histories; in items."""


class Rehearsal:
    """The labelled items carried along as if they were stored: chosen, voted on and decided.

    What is believed of half of them was learnt on the other. The histories they get are those
    that occur under the budget, and the calibrator of dependent beliefs is fitted to them.
    """

    def __init__(
        self,
        truth: Codes,
        prior: Floats,
        rule: Rule,
        *,
        dependent: bool = True,
        watched: bool = False,
    ) -> None:
        """``watched``: remember the most believed classes too; see ``reliability``."""
        self._watched = watched
        self.calibrator: Floats = np.array(PLAIN_CALIBRATOR)
        self._items = len(truth)
        self._halves = [Half(truth, prior, rule, side, dependent) for side in (0, 1)]
        self._steps: list[tuple[StepHalf, StepHalf]] = []
        self.number = 0
        """Steps made so far."""

    @property
    def sizes(self) -> Counts:
        """How many items each half has."""
        return np.array([len(half.own) for half in self._halves])

    @property
    def unlabelled(self) -> int:
        """How many items have no label."""
        return sum(int((half.labels.label == MISSING).sum()) for half in self._halves)

    @property
    def changeable(self) -> int:
        """How many have a label that can change."""
        return sum(int(half.changeable.sum()) for half in self._halves)

    @property
    def right(self) -> Mask:
        """Which items have the right label now, half by half."""
        return np.concatenate([half.labels.label == half.truth for half in self._halves])

    def step(
        self,
        fits: Fits | Confusions,
        votes: Codes | SoftVotes,
        step: RehearsedStep,
        *,
        last: bool = False,
        target: Target | None = None,
    ) -> Rehearsed:
        """One step of a model with its votes on all labelled items.

        Afterwards the calibrator is that of the new histories. ``last``: pending flips are made.
        ``target``: what a rule may promise something about.
        """
        cast = votes.hard if isinstance(votes, SoftVotes) else votes
        known: Sequence[Confusion | Dependence]
        margins: FlipMargins | None = None
        if isinstance(fits, Fits):
            chosen, step = self._calibrate(fits, votes, step, target)
            known = [fit.calibrated(self.calibrator) for fit in fits.halves]
            undecided = isinstance(step.rule, Balanced) and step.rule.ratio is None
            if last or undecided:
                margins = self._flips(known, chosen, votes, step)
            if isinstance(step.rule, Balanced) and undecided and margins is not None:
                step = replace(step, rule=balance.choose(step.rule, margins))
        else:
            chosen = self._choose((None, None), cast, step)
            known = [confusions[step.model] for confusions in fits.halves]
        done, fixed, broken, changeable = [], 0, 0, self.changeable
        right_before, right_after = list[int](), list[int]()
        for half, rows, by in zip(self._halves, chosen, known, strict=True):
            labels, truth = half.labels, half.truth
            half.shard.rules = [step.rule]
            before, believed = labels.label.copy(), labels.belief.copy()
            made = half.update(rows, votes, by, step.model)
            if len(rows) and self._watched:
                beliefs = half.shard.dependent
                half.best[rows] = beliefs.most_believed(rows, stored=labels.label[rows])
                half.belief_best[rows] = beliefs.of_best(rows)
            if last:
                made += settle(half.shard)
            flips = metrics.score_step(truth, before, labels.label, evaluations=len(rows)).flips
            fixed, broken = fixed + flips.positive, broken + flips.negative
            right_before.append(int((before == truth).sum()))
            right_after.append(int((labels.label == truth).sum()))
            if isinstance(by, Dependence):
                seen = Seen.of(before[rows], believed[rows], cast[half.own[rows]], by.classes)
                left = np.where(half.changeable, labels.label, MISSING)
                drift = half.shard.dependent.drift(by, left, labels.belief)
                done.append(StepHalf.of(left, labels.belief, truth, made, flips, seen, drift))
        self.number += 1
        trust = None
        if done:
            self._steps.append((done[0], done[1]))
            trust = Trust(tuple(self._steps))
        return Rehearsed(
            items=self._items,
            evaluations=sum(map(len, chosen)),
            accuracy_before=self._accuracy(right_before, dependent=bool(done)),
            accuracy_after=self._accuracy(right_after, dependent=bool(done)),
            fixed=fixed,
            broken=broken,
            dispersion=1.0 if trust is None else trust.dispersion,
            trust=trust,
            ratio=step.rule.ratio if isinstance(step.rule, (AtMost, Balanced)) else None,
            choices=() if margins is None else tuple(margins.outcomes(balance.SHOWN)),
            labels=changeable,
            answered=sum(int(half.answered.sum()) for half in self._halves),
        )

    def _accuracy(self, right: Sequence[int], *, dependent: bool) -> float:
        """The share of labelled items that are right, from how many are in each half."""
        if dependent:
            return sum(right) / max(self._items, 1)
        # As a mean of both halves: the same but for rounding.
        sizes = [len(half.own) for half in self._halves]
        return float(np.dot(np.divide(sizes, self._items), np.divide(right, sizes)))

    def _calibrate(
        self, fits: Fits, votes: Codes | SoftVotes, step: RehearsedStep, target: Target | None
    ) -> tuple[list[Rows], RehearsedStep]:
        """The rows chosen within each half, and the step with a ratio that keeps its promise.

        The calibrator becomes that of the histories the items are about to have.
        """
        cast = votes.hard if isinstance(votes, SoftVotes) else votes
        chosen = self._choose([fit.calibrated(self.calibrator) for fit in fits.halves], cast, step)
        promise = target if isinstance(step.rule, AtMost) and step.rule.ratio is None else None
        as_target = []
        if promise is not None:
            by = promise.chosen_by
            as_target = self._choose([by] * 2, cast, step, fits.places(by))
        for half, rows in zip(self._halves, chosen, strict=True):
            half.cast = half.shard.dependent.table.with_votes(
                votes[half.own[rows]], rows, step.model
            )
        self.calibrator = _calibrator(
            [
                (fit, half.cast, half.truth, rows)
                for fit, half, rows in zip(fits.halves, self._halves, chosen, strict=True)
            ]
        )
        if promise is not None and isinstance(step.rule, AtMost):
            own = [fit.calibrated(self.calibrator) for fit in fits.halves]
            by = promise.believed_by()
            tried = [(own, chosen, None), ([by] * 2, as_target, fits.places(by))]
            margins = self._margins(tried, votes, step.model)
            items = promise.items
            rule = decide_promise.keep(step.rule, margins, labelled=self._items, items=items)
            step = replace(step, rule=rule)
        return chosen, step

    def outlook(self, fits: Fits, votes: Codes | SoftVotes, step: RehearsedStep) -> Outlook:
        """What such a step would bring, by the share of items it looks at; nothing is changed.

        A correction counts when it is believed: when the right class becomes the most believed. A
        patient rule may make it with a later vote, which would bring nothing without this one.
        """
        cast = votes.hard if isinstance(votes, SoftVotes) else votes
        places, gains = [], []
        for half, fit in zip(self._halves, fits.halves, strict=True):
            known, beliefs = fit.calibrated(self.calibrator), half.shard.dependent
            order = in_order(
                half.shard,
                selector=step.selector,
                eligible=half.eligible(cast, step.model),
                step=self.number,
                value=half.worth(known, step),
            )
            voted = beliefs.table.with_votes(votes[half.own[order]], order, step.model)
            right = [
                known.believe(cast, range(cast.hard.shape[1]), half.labels.label).best == half.truth
                for cast in (beliefs.table, voted)
            ]
            places.append((np.arange(len(order)) + 0.5) / max(1, len(order)))
            gains.append((right[1].astype(np.float64) - right[0])[order])
        return Outlook.of(np.concatenate(places), np.concatenate(gains))

    def answer(self, believed: Floats, picked: Mask) -> None:
        """A review, as a store had it: see ``Half.answer``."""
        for half in self._halves:
            half.answer(believed, picked)

    def settle(self) -> None:
        """Make all pending flips."""
        for half in self._halves:
            settle(half.shard)

    def redecide(self, fits: Fits, rule: Rule) -> tuple[Rule, RatioOutcome]:
        """Decide all labels again from the votes so far; the rule that did it, and what it did."""
        found = [
            half.again(fit.calibrated(self.calibrator))
            for half, fit in zip(self._halves, fits.halves, strict=True)
        ]
        if isinstance(rule, Balanced) and rule.ratio is None:
            flips = [(one, (one.best != one.label) & (one.support > 0)) for one in found]
            rule = balance.choose(rule, FlipMargins.joined(starmap(margins_of, flips)))
        made = []
        for half, one in zip(self._halves, found, strict=True):
            after = decide(rule, one.evidence)
            changed = after != one.label
            made.append(margins_of(one, changed))
            rows = one.rows[changed]
            half.labels.label[rows], half.labels.belief[rows] = after[changed], one.gain[changed]
            half.labels.proposed[:] = MISSING
        return rule, FlipMargins.joined(made).outcome(0.0)

    def _margins(
        self,
        tried: Sequence[tuple[Sequence[Dependence], Sequence[Rows], Rows | None]],
        votes: Codes | SoftVotes,
        model: int,
    ) -> Floats:
        """How much more the new label is believed, of right labels a step could break.

        ``tried``: what each half is believed by, the rows chosen in it, and where each labelled
        item stands among the patterns it is believed by; the highest margin of an item counts. What
        the other half taught is not enough: items with the same votes have the same score and
        margin, and a fit that differs a little would choose others, or lift all of them over the
        ratio at once. So labelled items are also taken just as the target's are, but that none
        counts itself among those with the same votes: its own truth would protect its label.
        """
        found = [np.zeros(0)]
        for side, half in enumerate(self._halves):
            labels, truth, margins = half.labels, half.truth, np.zeros(len(half.own))
            for known, chosen, places in tried:
                rows = chosen[side]
                own = None if places is None else places[half.own[rows]]
                waits = (labels.proposed != MISSING) & (labels.label == truth)
                waits[rows] = False
                margins[waits] = np.inf  # pending flips are made whatever the new rule says
                broken, by = half.breaks(rows, votes, known[side], model, own)
                margins[broken] = np.maximum(margins[broken], by)
            found.append(margins[margins > 0])
        return np.concatenate(found)

    def _flips(
        self,
        known: Sequence[Confusion | Dependence],
        chosen: Sequence[Rows],
        votes: Codes | SoftVotes,
        step: RehearsedStep,
    ) -> FlipMargins:
        """The flips that the rule would make in this step at a cost ratio of 1.

        Flips that are pending on other items are made whatever the cost ratio.
        """
        found = []
        for half, rows, by in zip(self._halves, chosen, known, strict=True):
            for at, flips in flips_tried(half, rows, votes, by, step.model, step.rule):
                margins = np.where(np.isin(at, rows), flips.margins, np.inf)
                found.append(replace(flips, margins=margins))
        return FlipMargins.joined(found)

    def adapted(
        self,
        fits: Fits,
        sample: VoteTable,
        who: Sequence[int],
        *,
        adapt: Sequence[str] = adapt_adapt.DEFAULT,
        follow: bool = False,
    ) -> tuple[Dependence, Adaptation]:
        """What a target is believed by: calibrated, and adapted to a sample of its votes.

        ``follow``: with classes as frequent as these votes tell.
        """
        known, halves = self._as_known(fits)
        return adapt_adapt.adapted(known, halves, sample, who, adapt=adapt, follow=follow)

    def frequencies(self, fits: Fits, sample: VoteTable, who: Sequence[int]) -> Floats:
        """How frequent classes are in a target, estimated from a sample of its votes."""
        known, halves = self._as_known(fits)
        return adapt_adapt.followed(known, halves, sample, who).prior

    def _as_known(self, fits: Fits) -> tuple[Dependence, list[adapt_adapt.LabelledHalf]]:
        halves = [
            adapt_adapt.LabelledHalf(fit.calibrated(self.calibrator), half.cast, half.truth)
            for half, fit in zip(self._halves, fits.halves, strict=True)
        ]
        return fits.whole.calibrated(self.calibrator), halves

    def reliability(self) -> tuple[Reliability, Reliability]:
        """Of the labels, and of the most believed classes, as each item's last vote left them."""
        best = Reliability()
        for half in self._halves:
            has = half.best != MISSING
            best += Reliability.of((half.best == half.truth)[has], half.belief_best[has])
        return Trust(tuple(self._steps)).reliability, best

    def _choose(
        self,
        known: Sequence[Dependence | None],
        votes: Codes,
        step: RehearsedStep,
        places: Rows | None = None,
    ) -> list[Rows]:
        """The rows chosen within each half, which has its share of the budget.

        Chosen among all of them, they could all be of one half, only because the other half
        taught it a little more doubt. ``places``: see ``Half.worth``.
        """
        eligible = [half.eligible(votes, step.model) for half in self._halves]
        first, second = (int(may.sum()) for may in eligible)
        evaluations = step.budget.evaluations(first + second)
        own = round(evaluations * first / max(1, first + second))
        budgets = [Budget.of(own), Budget.of(evaluations - own)]
        if known[0] is None:  # by plain beliefs
            budgets = [step.budget] * 2
        return [
            choose(
                half.shard,
                selector=step.selector,
                budget=budget,
                eligible=may,
                step=self.number,
                value=None if fit is None else half.worth(fit, step, places),
            )
            for half, fit, may, budget in zip(self._halves, known, eligible, budgets, strict=True)
        ]


def _calibrator(histories: Sequence[tuple[Dependence, VoteTable, Codes, Rows]]) -> Floats:
    """First for all histories; then, drawn to that, for those with a vote in this step.

    Beliefs are only made anew where there is a new vote, and selection leaves its mark on those.
    """
    models = histories[0][1].hard.shape[1]
    everything = [(fit, votes, truth) for fit, votes, truth, _ in histories]
    start = beliefs_fit.calibrate(everything, range(models), np.array(PLAIN_CALIBRATOR))
    start[-1] = beliefs_fit.weigh_patterns(_by(start, everything), range(models))
    fresh = [(fit, votes[rows], truth[rows]) for fit, votes, truth, rows in histories]
    numbers = beliefs_fit.calibrate(fresh, range(models), start, drawn=FRESH)
    numbers[-1] = beliefs_fit.weigh_patterns(_by(numbers, fresh), range(models), start[-1])
    return numbers


def _by(
    calibrator: Floats, histories: Sequence[tuple[Dependence, VoteTable, Codes]]
) -> list[tuple[Dependence, VoteTable, Codes]]:
    return [(fit.calibrated(calibrator), votes, truth) for fit, votes, truth in histories]
