"""Tune: whole histories on the labelled items under many policies, and which serves a goal best.

How models err is learnt on one half of the labelled items for use on the other, as in any
rehearsal. The choice is checked in the same way: chosen on one half, tried on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, pairwise
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity._progress import Progress
from posterity._text import Result, counted, lines
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import Codes, Counts, Floats, Mask
from posterity.method.decide.policy import AT_MOST, Figures, Goal, Policy
from posterity.method.decide.rules import MaxBelief
from posterity.method.decide.selectors import Value
from posterity.validation.cross_fits import Fits
from posterity.validation.outcome import PastStep, RehearsedStep, Target
from posterity.validation.rehearsal import Rehearsal

CLEARLY = 1.6448536
"""Standard errors beyond which a difference is no accident, 9 times in 10."""
MOST_ROWS = 12
"""Policies that are shown."""


@dataclass(frozen=True, eq=False)
class PolicyTrack:
    """What a policy did on each half of the labelled items, step by step."""

    right: Counts
    """(steps, 2)"""
    fixed: Counts
    broken: Counts
    items: Counts
    """(2,)"""
    last: Mask
    """Which items are right at the end."""

    def figures(self, *halves: int) -> Figures:
        """Of one half, or of both."""
        own = list(halves) or [0, 1]
        items = int(self.items[own].sum())
        accuracies = self.right[:, own].sum(axis=1) / max(1, items)
        return Figures(
            items=items,
            first=float(accuracies[0]),
            final=float(accuracies[-1]),
            mean=float(accuracies.mean()),
            fixed=int(self.fixed[:, own].sum()),
            broken=int(self.broken[:, own].sum()),
        )


@dataclass(eq=False)
class Trial:
    """A history tried on the labelled items: where they stand, and what each step did so far."""

    truth: Codes
    history: Sequence[PastStep]
    items: int
    """How many a promise is about."""
    rehearsal: Rehearsal
    counts: NDArray[np.int64]
    """(3, steps, 2) right labels after each step on each half, fixed and broken ones."""

    @classmethod
    def start(
        cls, truth: Codes, prior: Floats, history: Sequence[PastStep], *, items: int
    ) -> Trial:
        """Before the first step."""
        counts = np.zeros((3, len(history), 2), dtype=np.int64)
        return cls(truth, history, items, Rehearsal(truth, prior, MaxBelief()), counts)

    def step(self, policy: Policy) -> None:
        """The next step, under a policy."""
        number = self.rehearsal.number
        past = self.history[number]
        known = partial(_believed, past.fits, self.rehearsal)
        self.rehearsal.arrive(past.there)
        done = self.rehearsal.step(
            past.fits,
            past.votes,
            RehearsedStep(
                past.model, policy.selector, policy.rule, self.rehearsal.budget(past.share)
            ),
            last=number + 1 == len(self.history),
            target=Target(self.items, known(), known),
        )
        for side, half in enumerate(() if done.trust is None else done.trust.steps[-1]):
            flips = half.flips
            self.counts[:, number, side] = half.labels.right, flips.positive, flips.negative


def follow(policy: Policy, begun: Trial, *, after_each: Callable[[], None]) -> PolicyTrack:
    """The steps that are left of a history under one policy; what was begun stays as it is."""
    own = replace(begun, rehearsal=deepcopy(begun.rehearsal), counts=begun.counts.copy())
    for number in range(len(own.history)):
        if number >= own.rehearsal.number:
            own.step(policy)
        after_each()
    right, fixed, broken = own.counts
    return PolicyTrack(right, fixed, broken, own.rehearsal.sizes, own.rehearsal.right)


def _believed(fits: Fits, rehearsal: Rehearsal) -> Dependence:
    return fits.whole.calibrated(rehearsal.calibrator)


def tune(
    truth: Codes,
    prior: Floats,
    history: Sequence[PastStep],
    *,
    goal: Goal,
    current: Policy,
    items: int,
    known: MutableMapping[str, PolicyTrack] | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Try every policy of the goal's, and the one in force, on the whole history.

    ``known``: tracks of the same history by policy; those that are missing are added.
    """
    tracks = {} if known is None else known
    missing = [one for one in compared(goal, current) if str(one) not in tracks]
    done, total = count(1), len(missing) * len(history)

    def tell() -> None:
        if progress:
            progress(next(done), total)

    begun = Trial.start(truth, prior, history, items=items)
    if missing and history[0].share == 1:
        # All items get their first vote, which is their label: under any policy the same.
        begun.step(Policy(Value(), MaxBelief()))
    for policy in missing:
        tracks[str(policy)] = follow(policy, begun, after_each=tell)
    return chosen(goal, current, tracks)


def compared(goal: Goal, current: Policy) -> list[Policy]:
    """The policies of a goal, and the one in force."""
    policies = goal.policies
    # A promise is compared with promises alone: another policy makes none. Of equally good ones
    # the first is chosen: there is no reason to change what is in force.
    if current in policies or goal.name != AT_MOST:
        return [current, *(policy for policy in policies if policy != current)]
    return policies


def chosen(goal: Goal, current: Policy, tracks: Mapping[str, PolicyTrack]) -> Tuned:
    """The policy that serves the goal best, when all have been tried."""
    policies = compared(goal, current)
    return Tuned.of(goal, policies, [tracks[str(policy)] for policy in policies], current)


@dataclass(frozen=True)
class Tried:
    """A policy, and what it did on the labelled items."""

    selector: str
    rule: str
    figures: Figures
    frontier: bool
    """Whether no other policy is better in one respect, and as good in all others."""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        told = {"selector": self.selector, "rule": self.rule, **self.figures.to_dict()}
        return {**told, "frontier": self.frontier}


@dataclass(frozen=True, repr=False)
class Tuned(Result):
    """Which policy serves a goal best, on the labelled items of a store or recording."""

    goal: str
    meaning: str
    steps: int
    tried: list[Tried] = field(repr=False)
    chosen: Tried
    current: Tried | None
    """The policy in force; None where it could not be compared."""
    crossed: Figures
    """What comes of choosing on one half of the labelled items, on the other."""
    difference: float = 0.0
    """By how much the accuracy at the end is higher than under the policy in force, if the policy
    is chosen on one half of the items and tried on the other."""
    error: float = 0.0
    """The standard error of that."""
    head: int | None = None
    """The last step that was there; None: of a recording."""
    step: int | None = None
    """The step that made it the store's policy; None: nothing was changed."""
    note: str = ""

    @classmethod
    def of(
        cls,
        goal: Goal,
        policies: Sequence[Policy],
        tracks: Sequence[PolicyTrack],
        current: Policy,
    ) -> Tuned:
        """From what every policy did."""
        figures = [track.figures() for track in tracks]
        tried = [
            Tried(
                str(policy.selector),
                str(policy.rule),
                own,
                not any(other.beats(own) for other in figures),
            )
            for policy, own in zip(policies, figures, strict=True)
        ]
        best = goal.choose(figures)
        places = [at for at, policy in enumerate(policies) if policy == current]
        gained = _gained(goal, tracks, tracks[places[0]]) if places else np.zeros(1)
        return cls(
            goal=str(goal),
            meaning=goal.meaning,
            steps=len(tracks[0].right),
            tried=tried,
            chosen=tried[best],
            current=tried[places[0]] if places else None,
            crossed=_crossed(goal, tracks),
            difference=float(gained.mean()),
            error=float(gained.std() / sqrt(len(gained))),
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        told = dict(vars(self))
        told |= {"chosen": self.chosen.to_dict(), "crossed": self.crossed.to_dict()}
        told["current"] = None if self.current is None else self.current.to_dict()
        return told | {"tried": [one.to_dict() for one in self.tried]}

    def __str__(self) -> str:
        own = self.chosen.figures
        return lines(
            (
                f"{len(self.tried)} policies tried on {own.items:,} labelled items, over "
                f"{counted(self.steps, 'step')}",
                f"goal {self.goal}: {self.meaning}",
                *self._table(),
                f"choice: {self.chosen.selector}, {self.chosen.rule}"
                + (", the policy in force" if self.chosen == self.current else ""),
                f"checked (chosen on one half of the items, scored on the other): accuracy "
                f"{_percent(self.crossed.final)}, over the history {_percent(self.crossed.mean)}, "
                f"{self.crossed.broken:,} broken",
                self._compared(),
                self.note,
            )
        )

    def _table(self) -> list[str]:
        shown, alike = list[Tried](), set[Figures]()
        for one in sorted(self.tried, key=lambda one: one not in (self.chosen, self.current)):
            named = one in (self.chosen, self.current)
            if named or (one.frontier and one.figures not in alike):
                shown.append(one)
                alike.add(one.figures)
        shown.sort(key=lambda one: (one.figures.broken, one.figures.final))
        while len(shown) > MOST_ROWS:  # those that differ least from the one before
            gaps = [
                (before.figures.apart(after.figures), at + 1)
                for at, (before, after) in enumerate(pairwise(shown))
                if shown[at + 1] not in (self.chosen, self.current)
            ]
            del shown[min(gaps)[1]]
        wide = max(len(one.rule) for one in shown)
        told = [f"    {'selector':<9}  {'rule':<{wide}}   fixed  broken  accuracy  over history"]
        for one in shown:
            mark = "→" if one == self.chosen else "now" if one == self.current else ""
            figures = one.figures
            told.append(
                f"{mark:<3} {one.selector:<9}  {one.rule:<{wide}}  {figures.fixed:>6,}  "
                f"{figures.broken:>6,}  {_percent(figures.final):>8}  {_percent(figures.mean):>12}"
            )
        return told

    def _compared(self) -> str:
        if self.current is None or self.current == self.chosen:
            return ""
        fewer = self.current.figures.broken - self.crossed.broken
        reach = 100 * CLEARLY * self.error
        luck = "" if abs(100 * self.difference) > reach else ", which could be luck"
        than = f"{abs(fewer):,} {'fewer' if fewer >= 0 else 'more'}"
        return (
            f"against the policy in force ({self.current.selector}, {self.current.rule}): "
            f"{100 * self.difference:+.1f} ± {reach:.1f} points at the end{luck}, "
            f"{than} broken"
        )


def _chosen_on_the_other(
    goal: Goal, tracks: Sequence[PolicyTrack]
) -> Iterator[tuple[int, PolicyTrack]]:
    """Each half with the policy that was chosen on the other."""
    for own, other in ((0, 1), (1, 0)):
        yield own, tracks[goal.choose([track.figures(other) for track in tracks])]


def _gained(goal: Goal, tracks: Sequence[PolicyTrack], current: PolicyTrack) -> Floats:
    """By how much each item is right more often than under the policy in force."""
    gained = []
    for own, track in _chosen_on_the_other(goal, tracks):
        first = int(track.items[0]) * own
        half = slice(first, first + int(track.items[own]))
        gained.append(track.last[half].astype(np.float64) - current.last[half])
    return np.concatenate(gained)


def _crossed(goal: Goal, tracks: Sequence[PolicyTrack]) -> Figures:
    """What comes of a choice where it was not made."""
    parts = [track.figures(own) for own, track in _chosen_on_the_other(goal, tracks)]
    items = sum(part.items for part in parts)

    def mean(name: str) -> float:
        return sum(part.items * float(getattr(part, name)) for part in parts) / max(1, items)

    return Figures(
        items=items,
        first=mean("first"),
        final=mean("final"),
        mean=mean("mean"),
        fixed=sum(part.fixed for part in parts),
        broken=sum(part.broken for part in parts),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
