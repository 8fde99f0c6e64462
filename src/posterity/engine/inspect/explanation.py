"""Explanations: why an item's label moved or did not, as values and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posterity._text import Result

SHOWN = 3
"""Votes of a model that are told of, if more would change the label."""
KEPT = 100
"""Votes of a model that are listed: with very many classes nearly every one may change a label."""
TINY = 1e-300


@dataclass(frozen=True)
class Weighed:
    """A vote that counts, and what it says."""

    step: int
    model: str
    vote: Any
    weight: float
    """How many times as likely it makes the label beside its strongest rival; below 1: less."""


@dataclass(frozen=True, kw_only=True)
class ExplainedDecision:
    """What a step made of the label."""

    step: int
    kind: str
    model: str | None
    rule: str | None
    vote: Any
    before: Any
    after: Any
    best: Any = None
    """The most believed class with the new vote."""
    belief_before: float | None = None
    """In the label before the step, without the new vote; None where there was none."""
    belief_label: float | None = None
    """In the same label, with it."""
    belief_best: float | None = None
    counts: bool
    """Whether the step was not undone since."""
    why: str


@dataclass(frozen=True)
class DecisiveVote:
    """A vote that would change the label, if a model that has not voted yet cast it."""

    model: str
    vote: Any
    label: Any
    """What the label would become, or be proposed to become."""
    proposed: bool


@dataclass(frozen=True)
class Explanation(Result):
    """Why an item's label is what it is."""

    id: Any
    label: Any
    belief: float
    """As the last vote left it."""
    rival: Any
    """The most believed class but for the label."""
    belief_rival: float
    proposed: Any
    """The class of a pending flip."""
    rule: str | None
    """By which the last vote was decided, and the next is taken to be."""
    votes: list[Weighed]
    decisions: list[ExplainedDecision]
    silent: list[str]
    """Models that could still vote."""
    unplanned: list[str]
    """Models that were registered after the last vote: what theirs would do is not known yet."""
    changes: list[DecisiveVote]
    """Of each silent model at most the 100 likeliest votes."""
    pinned: int | None = None
    """The review in which a person decided the label, or its truth was given; None: votes did."""
    truth_of: str | None = None
    """The model the truth was given with."""
    alike: dict[Any, int] = field(default_factory=dict)
    """How many labelled items have just these votes, by their true class, most first."""

    def __str__(self) -> str:
        if self.label is None:
            told = [f"{self.id}: nobody has voted on this item yet"]
            if self.decisions:
                told = [f"{self.id}: no vote on this item counts any more", "", *self._steps()]
            return "\n".join(told)
        told = [f"{self.id} is labelled {self.label}, believed {in_share(self.belief)}."]
        if self.pinned is not None:
            why = f"a person said so in step {self.pinned}"
            if self.truth_of is not None:
                why = f"the truth, given with {self.truth_of} (step {self.pinned})"
            told = [f"{self.id} is labelled {self.label}: {why}."]
        if self.proposed is not None:
            told.append(f"A flip to {self.proposed} is pending.")
        if self.votes:
            told += ["", f"Votes, and what each says of {self.label} beside {self.rival}:"]
        told += [
            f"  step {one.step}  {one.model}: {one.vote}, {_said(one.weight, self)}"
            for one in self.votes
        ]
        if self.alike:
            told += ["", self._labelled_alike()]
        told += ["", *self._steps(), "", "What would change it:"]
        told += [f"  {line}" for line in self._outlook()]
        return "\n".join(told)

    def _labelled_alike(self) -> str:
        """What was true of labelled items with the same votes."""
        total, first = sum(self.alike.values()), list(self.alike.items())[:SHOWN]
        if len(first) < len(self.alike):
            first.append(("other classes", total - sum(many for _, many in first)))
        found = ", ".join(f"{many:,} {name}" for name, many in first)
        items = "labelled item has" if total == 1 else "labelled items have"
        return f"{total:,} {items} the same votes; the true class is: {found}."

    def _steps(self) -> list[str]:
        undone = {True: "", False: "(undone) "}
        return [
            "Steps:",
            *(f"  step {one.step}  {undone[one.counts]}{one.why}" for one in self.decisions),
        ]

    def _outlook(self) -> list[str]:
        """What a next vote could do, in words."""
        if self.pinned is not None:
            return [f"no vote: only another review, or a revert of step {self.pinned}"]
        lines = []
        if self.proposed is not None:
            lines.append("the pending flip: `settle`, or the next update without a vote on it")
        for name in self.silent:
            found = [change for change in self.changes if change.model == name][:SHOWN]
            told = [
                f"{change.vote} {'proposes' if change.proposed else 'makes it'} {change.label}"
                for change in found
            ]
            lines.append(
                f"a vote of {name} for " + ", one for ".join(told)
                if told
                else f"no vote of {name} would, alone"
            )
        lines += [
            f"{name} has not voted; what its vote would do is known once it was planned"
            for name in self.unplanned
        ]
        if not self.silent and not self.unplanned:
            times = in_times(self.belief_rival, self.belief)
            lines.append(
                f"every model known has voted; {self.rival} is believed {times} as much as "
                f"{self.label} ({in_share(self.belief_rival)})"
            )
        return lines


def _said(weight: float, told: Explanation) -> str:
    if 0.995 < weight < 1.005:
        return "which says nothing here"
    side, factor = (told.label, weight) if weight > 1 else (told.rival, 1 / weight)
    return f"for {side} by {_number(factor)} times"


def in_times(one: float, other: float) -> str:
    """How many times as much the one is believed as the other."""
    return f"{_number(one / max(other, TINY))} times"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def in_share(value: float) -> str:
    """A belief."""
    return f"{value:.2g}" if value < 0.1 else f"{value:.2f}"
