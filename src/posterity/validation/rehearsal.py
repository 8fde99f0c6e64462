"""Rehearsal: what a selection and a rule would have done on the labelled set.

Beliefs may be far off; this is not. The labelled items are taken as if they were stored items, in
two halves: each half's confusions are estimated on the other, so that nobody is judged by what
they learnt from.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from posterity.method import metrics
from posterity.method.adapt import adapt as adapt_adapt
from posterity.method.adapt.adapt import Adaptation
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs import temperature
from posterity.method.beliefs.dependent import PLAIN_CALIBRATOR, Dependence
from posterity.method.beliefs.temperature import Temperature
from posterity.method.data.arrays import Codes, Floats, Mask, Rows
from posterity.method.data.votes import MISSING, SoftVotes, VoteTable
from posterity.method.decide import promise as decide_promise
from posterity.method.decide.budget import Budget, Outlook
from posterity.method.decide.rules import AtMost, MaxBelief, Rule, cost_of
from posterity.method.decide.selectors import Selector
from posterity.method.metrics import Flips
from posterity.method.step import Decision, Labels, Shard, choose, in_order, settle, update
from posterity.validation.expectation import Checked, Sums
from posterity.validation.outcome import Rehearsed, StepHalf, Target, Trust
from posterity.validation.reliability import Reliability
from posterity.validation.shift import Seen

TINY = 1e-300
FRESH = 10.0
"""How hard the calibrator of fresh votes is drawn to that of all histories; in items."""


@dataclass(frozen=True, eq=False)
class Fits:
    """How models err together: on all labelled items, and on each half for use on the other."""

    whole: Dependence
    halves: tuple[Dependence, Dependence]

    @classmethod
    def of(
        cls, votes: Codes, truth: Codes, prior: Floats, readings: Sequence[SoftReadings] = ()
    ) -> Fits:
        """From the votes (n, T) of the models so far, and how soft ones of each are to be read."""
        half = np.arange(len(truth)) % 2
        first, second = (
            replace(
                beliefs_fit.fit(votes[half != side], truth[half != side], prior),
                temperatures=tuple(each.halves[side] for each in readings),
            )
            for side in (0, 1)
        )
        whole = beliefs_fit.fit(votes, truth, prior)
        read = tuple(each.whole for each in readings)
        return cls(replace(whole, temperatures=read), (first, second))


@dataclass(frozen=True, eq=False)
class SoftReadings:
    """How a model's soft votes are to be read: as all labelled ones say, and each half of them."""

    whole: Temperature | None
    halves: tuple[Temperature | None, Temperature | None]
    """For use on one half, learnt on the other."""

    @classmethod
    def of(cls, soft: SoftVotes | None, truth: Codes, classes: int) -> SoftReadings:
        """From its labelled soft votes; without any, its soft votes count by their class."""
        if soft is None:
            return cls(None, (None, None))
        half, cast = np.arange(len(truth)) % 2, soft.hard != MISSING
        if not all(cast[half == side].any() for side in (0, 1)):
            return cls(None, (None, None))  # a half without any cannot tell of the other
        first, second = (
            temperature.fit(soft[half != side], truth[half != side], classes=classes)
            for side in (0, 1)
        )
        return cls(temperature.fit(soft, truth, classes=classes), (first, second))


class Rehearsal:
    """The labelled items carried along as if they were stored: chosen, voted on and decided.

    What is believed of half of them was learnt on the other. The histories they get are those
    that occur under the budget, and the calibrator is fitted to them.
    """

    def __init__(self, truth: Codes, prior: Floats, rule: Rule, *, watched: bool = False) -> None:
        """``watched``: remember the most believed classes too; see ``reliability``."""
        self._watched = watched
        self.calibrator: Floats = np.array(PLAIN_CALIBRATOR)
        self._truth = truth
        self._rows = [np.flatnonzero(np.arange(len(truth)) % 2 == side) for side in (0, 1)]
        self._shards = [Shard(prior, len(rows), [rule], dependent=True) for rows in self._rows]
        self._steps: list[tuple[StepHalf, StepHalf]] = []
        self._cast = [shard.dependent.table for shard in self._shards]
        """The votes on each half, those of the step at hand included."""
        self._best = [np.full(len(rows), MISSING, dtype=np.int32) for rows in self._rows]
        self._belief_best = [np.zeros(len(rows)) for rows in self._rows]

    def step(
        self,
        fits: Fits,
        votes: Codes | SoftVotes,
        *,
        model: int,
        selector: Selector,
        rule: Rule,
        budget: Budget,
        number: int,
        last: bool = False,
        target: Target | None = None,
    ) -> Rehearsed:
        """One step of a model (its place among those fitted) with its votes on all labelled items.

        Afterwards the calibrator is that of the new histories. ``last``: pending flips are made.
        ``target``: what a rule may promise something about.
        """
        cast = votes.hard if isinstance(votes, SoftVotes) else votes
        asked = (cast, model, selector, rule, budget, number)
        chosen = self._choose([fit.calibrated(self.calibrator) for fit in fits.halves], *asked)
        promise = target if isinstance(rule, AtMost) and rule.ratio is None else None
        as_target = None if promise is None else self._choose([promise.chosen_by()] * 2, *asked)
        histories = []
        for shard, own, fit, rows in zip(
            self._shards, self._rows, fits.halves, chosen, strict=True
        ):
            beliefs = shard.dependent
            history = beliefs.table.with_votes(votes[own[rows]], rows, model)
            histories.append((fit, history, self._truth[own], rows))
        self.calibrator = _calibrator(histories)
        self._cast = [history for _, history, _, _ in histories]
        if promise is not None and as_target is not None and isinstance(rule, AtMost):
            halves_own = [fit.calibrated(self.calibrator) for fit in fits.halves]
            tried = [(halves_own, chosen), ([promise.believed_by()] * 2, as_target)]
            margins = self._margins(tried, votes, model)
            rule = decide_promise.keep(
                rule, margins, labelled=len(self._truth), items=promise.items
            )
        fixed = broken = right_before = right_after = 0
        halves = []
        for side, (shard, own, fit, rows) in enumerate(
            zip(self._shards, self._rows, fits.halves, chosen, strict=True)
        ):
            labels, truth = shard.labels[0], self._truth[own]
            labels.rule = rule
            before, believed = labels.label.copy(), labels.belief.copy()
            fitted, new = fit.calibrated(self.calibrator), votes[own[rows]]
            made: list[Decision] = []
            if len(rows):
                made += update(shard, rows, new, fitted, truth=truth[rows], model=model)
            if len(rows) and self._watched:
                beliefs = shard.dependent
                self._best[side][rows] = beliefs.most_believed(rows, stored=labels.label[rows])
                self._belief_best[side][rows] = beliefs.of_best(rows)
            if last:
                made += settle(shard)
            flips = metrics.score_step(truth, before, labels.label, evaluations=len(rows)).flips
            fixed, broken = fixed + flips.positive, broken + flips.negative
            right_before += int((before == truth).sum())
            right_after += int((labels.label == truth).sum())
            seen = Seen.of(before[rows], believed[rows], cast[own[rows]], fitted.classes)
            drift = shard.dependent.drift(fitted, labels.label, labels.belief)
            halves.append(_half(labels, truth, made, flips, seen, drift))
        items = max(len(self._truth), 1)
        self._steps.append((halves[0], halves[1]))
        trust = Trust(tuple(self._steps))
        return Rehearsed(
            items=len(self._truth),
            evaluations=sum(map(len, chosen)),
            accuracy_before=right_before / items,
            accuracy_after=right_after / items,
            fixed=fixed,
            broken=broken,
            dispersion=trust.dispersion,
            trust=trust,
            ratio=rule.ratio if isinstance(rule, AtMost) else None,
        )

    def outlook(
        self,
        fits: Fits,
        votes: Codes | SoftVotes,
        *,
        model: int,
        selector: Selector,
        rule: Rule,
        number: int,
    ) -> Outlook:
        """What such a step would bring, by the share of items it looks at; nothing is changed.

        A correction counts when it is believed: when the right class becomes the most believed. A
        patient rule may make it with a later vote, which would bring nothing without this one.
        """
        cast = votes.hard if isinstance(votes, SoftVotes) else votes
        places, gains = [], []
        for shard, own, fit, eligible in zip(
            self._shards, self._rows, fits.halves, self._eligible(cast, model), strict=True
        ):
            known, beliefs = fit.calibrated(self.calibrator), shard.dependent
            label, truth = shard.labels[0].label, self._truth[own]
            value = partial(beliefs.value, label, fit=known, model=model, ratio=cost_of(rule))
            order = in_order(shard, selector=selector, eligible=eligible, step=number, value=value)
            voted = beliefs.table.with_votes(votes[own[order]], order, model)
            right = [_best(known, cast, label) == truth for cast in (beliefs.table, voted)]
            places.append((np.arange(len(order)) + 0.5) / max(1, len(order)))
            gains.append((right[1].astype(np.float64) - right[0])[order])
        return Outlook.of(np.concatenate(places), np.concatenate(gains))

    def _eligible(self, votes: Codes, model: int) -> list[Mask]:
        """Which items of each half the model could vote on."""
        eligible = [votes[own] != MISSING for own in self._rows]
        for shard, may in zip(self._shards, eligible, strict=True):
            voted = shard.dependent.table.hard
            if model < voted.shape[1]:
                may &= voted[:, model] == MISSING
        return eligible

    def settle(self) -> None:
        """Make all pending flips."""
        for shard in self._shards:
            settle(shard)

    def _margins(
        self,
        tried: Sequence[tuple[Sequence[Dependence], Sequence[Rows]]],
        votes: Codes | SoftVotes,
        model: int,
    ) -> Floats:
        """How much more the new label is believed, of right labels a step could break.

        ``tried``: what each half is believed by, and the rows chosen in it; the highest margin of
        an item counts. What the other half taught is not enough: items with the same votes have
        the same score and margin, and a fit that differs a little would choose others, or lift all
        of them over the ratio at once. So labelled items are also taken just as the target's are.
        """
        found = [np.zeros(0)]
        for side, (shard, own) in enumerate(zip(self._shards, self._rows, strict=True)):
            labels, truth, margins = shard.labels[0], self._truth[own], np.zeros(len(own))
            for known, chosen in tried:
                rows = chosen[side]
                waits = (labels.proposed != MISSING) & (labels.label == truth)
                waits[rows] = False
                margins[waits] = np.inf  # pending flips are made whatever the new rule says
                if not len(rows):
                    continue
                trial = deepcopy(shard)
                trial.labels[0].rule = MaxBelief()
                for made in update(trial, rows, votes[own[rows]], known[side], model=model):
                    broken = made.flipped & (made.before == truth[made.rows])
                    margin = made.belief_after[broken] / made.belief_before[broken].clip(TINY)
                    at = made.rows[broken]
                    margins[at] = np.maximum(margins[at], margin)
            found.append(margins[margins > 0])
        return np.concatenate(found)

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
        halves = [
            adapt_adapt.LabelledHalf(fit.calibrated(self.calibrator), votes, self._truth[own])
            for votes, own, fit in zip(self._cast, self._rows, fits.halves, strict=True)
        ]
        known = fits.whole.calibrated(self.calibrator)
        return adapt_adapt.adapted(known, halves, sample, who, adapt=adapt, follow=follow)

    def reliability(self) -> tuple[Reliability, Reliability]:
        """Of the labels, and of the most believed classes, as each item's last vote left them."""
        best = Reliability()
        for own, code, belief in zip(self._rows, self._best, self._belief_best, strict=True):
            has = code != MISSING
            best += Reliability.of((code == self._truth[own])[has], belief[has])
        return Trust(tuple(self._steps)).reliability, best

    def _choose(
        self,
        known: Sequence[Dependence],
        votes: Codes,
        model: int,
        selector: Selector,
        rule: Rule,
        budget: Budget,
        number: int,
    ) -> list[Rows]:
        """The rows chosen within each half, which has its share of the budget.

        Chosen among all of them, they could all be of one half, only because the other half
        taught it a little more doubt.
        """
        eligible = self._eligible(votes, model)
        first, second = (int(may.sum()) for may in eligible)
        evaluations = budget.evaluations(first + second)
        own = round(evaluations * first / max(1, first + second))
        found = []
        for shard, fit, may, share in zip(
            self._shards, known, eligible, (own, evaluations - own), strict=True
        ):
            value = partial(
                shard.dependent.value,
                shard.labels[0].label,
                fit=fit,
                model=model,
                ratio=cost_of(rule),
            )
            found.append(
                choose(
                    shard,
                    selector=selector,
                    budget=Budget.of(share),
                    eligible=may,
                    step=number,
                    value=value,
                )
            )
        return found


def _calibrator(histories: Sequence[tuple[Dependence, VoteTable, Codes, Rows]]) -> Floats:
    """First for all histories; then, drawn to that, for those with a vote in this step.

    Beliefs are only made anew where there is a new vote, and selection leaves its mark on those.
    """
    models = histories[0][1].hard.shape[1]
    everything = [(fit, votes, truth) for fit, votes, truth, _ in histories]
    start = beliefs_fit.calibrate(everything, range(models), np.array(PLAIN_CALIBRATOR))
    fresh = [(fit, votes[rows], truth[rows]) for fit, votes, truth, rows in histories]
    return beliefs_fit.calibrate(fresh, range(models), start, drawn=FRESH)


def _best(known: Dependence, votes: VoteTable, stored: Codes) -> Codes:
    """The most believed classes."""
    return known.believe(votes, range(votes.hard.shape[1]), stored).best


def _half(
    labels: Labels,
    truth: Codes,
    decisions: Sequence[Decision],
    flips: Flips,
    seen: Seen,
    drift: float,
) -> StepHalf:
    """One step: labels after it, what it did, and what its votes looked like.

    ``drift``: how much more the labels are believed by the step's fit than they were.
    """
    has = labels.label != MISSING
    right, belief = (labels.label == truth)[has], labels.belief[has]
    fixing, breaking = Checked(), Checked()
    for made in decisions:
        changed, true = made.flipped, truth[made.rows]
        fixing += Checked.of((made.after == true)[changed], made.belief_after[changed])
        breaking += Checked.of((made.before == true)[changed], made.belief_before[changed])
    return StepHalf(
        Checked.of(right, belief).drifted(drift),
        fixing,
        breaking,
        flips,
        seen.with_held(Sums.of(belief)),
        Reliability.of(right, belief),
    )
