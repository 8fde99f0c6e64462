"""One walk: a sequence of models arriving over a target, under one budget and one selector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from posterity.errors import InvalidData
from posterity.method import step
from posterity.method.adapt.adapt import DEFAULT
from posterity.method.beliefs import temperature as reading
from posterity.method.beliefs.confusion import Confusion
from posterity.method.beliefs.dependent import Dependence
from posterity.method.beliefs.priors import ESTIMATED
from posterity.method.beliefs.temperature import Temperature
from posterity.method.data import arrays
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.votes import MISSING, SoftVotes, VoteTable
from posterity.method.decide.budget import FULL, Account, Budget, Outlook, Spending
from posterity.method.decide.rules import AtMost, Balanced, Rule, traits
from posterity.method.decide.selectors import ByVotes, Selector
from posterity.replay.recording import Recording
from posterity.validation.cross_fits import Fits, SoftReadings
from posterity.validation.expectation import LEAST, Sums
from posterity.validation.outcome import PastStep, Rehearsed, RehearsedStep, Target
from posterity.validation.rehearsal import Rehearsal
from posterity.validation.shift import Seen


@dataclass(frozen=True)
class Step:
    """What one arriving model changed."""

    number: int
    model: str
    rows: Rows
    """The items it evaluated."""
    decisions: list[step.Decision]
    """One per rule."""
    shard: step.Shard
    """All items after the step: beliefs, and labels under each rule."""
    rehearsed: Rehearsed | None = None
    """What the same step did on the labelled set, known before it was spent."""
    seen: Seen | None = None
    """What the votes looked like, beside those on the labelled set."""
    drift: float = 0.0
    """How much more labels are believed by the step's fit than when they were last looked at."""


def walk(
    target: Recording,
    confusions: Sequence[Confusion],
    *,
    prior: Floats,
    selector: Selector,
    budget: Budget,
    rules: Sequence[Rule],
    soft: bool = False,
    temperatures: Sequence[Temperature] = (),
    seed: int = 0,
) -> Iterator[Step]:
    """Let the target's models arrive in order; yields after each step.

    The first model labels everything it has a vote for, outside the budget. ``temperatures``: how
    the soft votes of each are to be read. The truth is passed on for the oracle rule only. Flips
    that are still pending after the last step (``+confirm``) are made, and count in it: nobody
    comes to confirm them.
    """
    shard = step.Shard(prior, len(target), rules)
    for number, model in enumerate(target.models):
        rows = step.choose(
            shard,
            selector=selector,
            budget=FULL if number == 0 else budget,
            eligible=target.votes[number] != MISSING,
            step=number,
            seed=seed,
        )
        votes: Codes | SoftVotes = target.votes[number, rows]
        if soft:
            votes = target.soft_votes(number)[rows]
            if temperatures:
                votes = temperatures[number].calibrated(votes)
        decisions = _decide(shard, target, number, rows, votes, confusions[number])
        yield Step(number, model, rows, decisions, shard)


def _decide(
    shard: step.Shard,
    target: Recording,
    number: int,
    rows: Rows,
    votes: Codes | SoftVotes,
    known: Confusion | Dependence,
) -> list[step.Decision]:
    """Fold the votes of a step and decide; after the last one pending flips are made."""
    decisions = step.update(shard, rows, votes, known, truth=target.truth[rows])
    if number + 1 < len(target.models):
        return decisions
    outstanding = step.settle(shard)
    return [one + more for one, more in zip(decisions, outstanding, strict=True)]


class Fitted:
    """What dependent beliefs learn from a labelled set as models arrive."""

    def __init__(
        self, labelled: Recording, prior: Floats, *, soft: bool = False, learnt: str | None = None
    ) -> None:
        """``learnt``: the kind of prior, if it comes from the labelled set."""
        for model, cast in zip(labelled.models, labelled.votes, strict=True):
            if not (cast != MISSING).any():
                raise InvalidData(f"The model '{model}' has no vote on the labelled set.")
        if len(labelled) < LEAST:
            raise InvalidData(
                f"Dependent beliefs need at least {LEAST} labelled items; got {len(labelled)}.",
                hint="Use more of them, or plain beliefs.",
            )
        self.labelled, self.prior = labelled, prior
        self.follow = learnt == ESTIMATED
        """Whether the prior is to follow the target's votes."""
        self.soft = [labelled.soft_votes(at) for at in range(len(labelled.models))] if soft else []
        """The labelled soft votes of each model; none where votes are hard."""
        readings = [SoftReadings.of(each, labelled.truth, len(prior)) for each in self.soft]
        votes = labelled.votes.T.astype(np.int32)
        self.fits = [
            Fits.of(
                np.ascontiguousarray(votes[:, :some]),
                labelled.truth,
                prior,
                readings[:some],
                learnt=learnt,
            )
            for some in range(1, len(labelled.models) + 1)
        ]
        """With the models up to each one."""

    def history(self, share: float) -> list[PastStep]:
        """The labelled items' steps, to be made under any policy; the first one is of all items."""
        votes = self.soft or [cast.astype(np.int32) for cast in self.labelled.votes]
        return [
            PastStep(fits, votes[number], number, share if number else 1.0)
            for number, fits in enumerate(self.fits)
        ]


def walk_dependent(
    target: Recording,
    fitted: Fitted,
    *,
    selector: Selector,
    budget: Budget | Spending,
    rules: Sequence[Rule],
    seed: int = 0,
    adapt: Sequence[str] = DEFAULT,
) -> Iterator[Step]:
    """The same with dependent beliefs: the labelled items are carried along under the same rule.

    There is only one, since which items are chosen depends on it.
    How models err together is learnt anew when one arrives, from those that have. Soft votes count
    with what their probabilities say beyond the vote, calibrated on the labelled ones. ``adapt``:
    to what in the target, by its votes; see ``adapt``. A budget over time counts each
    evaluation as one.
    """
    prior, labelled = fitted.prior, fitted.labelled
    (rule,) = rules
    shard = step.Shard(prior, len(target), rules, dependent=True)
    rehearsal = Rehearsal(labelled.truth, prior, rule)
    labels, beliefs, ratio = shard.labels[0], shard.dependent, traits(rule).cost
    weigh = selector.weigh if isinstance(selector, ByVotes) else None
    purse = _Purse(budget, len(target))
    for number, model in enumerate(target.models):
        fits = fitted.fits[number]
        known = _adapted(fits, rehearsal, beliefs.table, fitted.follow, adapt)
        labelled_votes = fitted.soft[number] if fitted.soft else labelled.votes[number]
        planned = RehearsedStep(number, selector, rule, FULL)
        eligible = target.votes[number] != MISSING
        share = FULL
        if number:
            outlook = partial(rehearsal.outlook, fits, labelled_votes, planned)
            share = purse.share(int(eligible.sum()), outlook)
        rows = step.choose(
            shard,
            selector=selector,
            budget=share,
            eligible=eligible,
            step=number,
            seed=seed,
            value=partial(
                weigh, known, beliefs.table, beliefs.who, labels.label, model=number, ratio=ratio
            )
            if weigh
            else None,
        )
        cast = target.votes[number, rows].astype(np.int32)
        new = target.soft_votes(number)[rows] if fitted.soft else cast
        votes = beliefs.table.with_votes(new, rows, number)
        believed_by = partial(_adapted, fits, rehearsal, votes, fitted.follow, adapt)
        rehearsed = rehearsal.step(
            fits,
            labelled_votes,
            replace(planned, budget=Budget.of(min(1.0, share.share(len(target))))),
            last=number + 1 == len(target.models),
            target=Target(len(target), known, believed_by),
        )
        if isinstance(rule, (AtMost, Balanced)):
            shard.rules = [replace(rule, ratio=rehearsed.ratio)]
        seen = Seen.of(labels.label[rows], labels.belief[rows], cast, len(prior))
        known = believed_by()
        decisions = _decide(shard, target, number, rows, new, known)
        has = labels.label != MISSING
        seen = seen.with_held(Sums.of(labels.belief[has]))
        drift = beliefs.drift(known, labels.label, labels.belief)
        yield Step(number, model, rows, decisions, shard, rehearsed, seen, drift)


class _Purse:
    """What the steps after the first may spend, one after the other."""

    def __init__(self, budget: Budget | Spending, items: int) -> None:
        self._budget, self._past = budget, list[Outlook]()
        self._left = None if isinstance(budget, Budget) else budget.total(items)

    def share(self, eligible: int, outlook: Callable[[], Outlook]) -> Budget:
        """The next step's share of the eligible items."""
        if isinstance(self._budget, Budget):
            return self._budget
        now, steps = outlook(), self._budget.steps_left(len(self._past))
        account = Account(self._left, steps, now, self._past, self._budget.price)
        spent = account.evaluations(eligible)
        self._past.append(now)
        if self._left is not None:
            self._left -= spent
        return Budget(fraction=spent / max(1, eligible))


def _adapted(
    fits: Fits, rehearsal: Rehearsal, votes: VoteTable, follow: bool, adapt: Sequence[str]
) -> Dependence:
    """What the target is believed by, from its votes so far."""
    if not adapt and not follow:
        return fits.whole.calibrated(rehearsal.calibrator)
    sample = votes[arrays.evenly(len(votes))]
    who = range(votes.hard.shape[1])
    known, _ = rehearsal.adapted(fits, sample, who, adapt=adapt, follow=follow)
    return known


def fit(labelled: Recording, estimator: str) -> list[Confusion]:
    """Each model's confusion, estimated on the labelled set."""
    classes, fitted = len(labelled.classes), []
    for model, cast in zip(labelled.models, labelled.votes, strict=True):
        try:
            fitted.append(
                Confusion.from_pairs(labelled.truth, cast, classes=classes, estimator=estimator)
            )
        except InvalidData as error:
            raise InvalidData(f"The model '{model}': {error.message}", hint=error.hint) from None
    return fitted


def fit_temperatures(labelled: Recording) -> list[Temperature]:
    """How each model's soft votes are to be read, learnt on the labelled set."""
    return [
        reading.fit(labelled.soft_votes(at), labelled.truth, classes=len(labelled.classes))
        for at in range(len(labelled.models))
    ]
