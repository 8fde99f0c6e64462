"""Reports: what a step did, as it is told, kept in its header, and counted on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from posterity import _text
from posterity._text import Result, counted, lines, percent, shown
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.decide import Decided
from posterity.engine.ledger.steps import Header
from posterity.method import metrics
from posterity.method.data.arrays import Codes, Mask
from posterity.method.data.votes import MISSING
from posterity.validation import expectation as validation_expected
from posterity.validation.expectation import Estimate, Sums
from posterity.validation.outcome import Trust


def accuracy_now(context: Context) -> Estimate | None:
    """As it is expected of all labels; None where nothing tells: before the first step, or when
    items were removed since the last.
    """
    last = context.headers[-1] if context.headers else None
    if last is None or last.removed != len(context.removed):
        return None
    return expected_accuracy(last)


def still_expected(context: Context) -> dict[str, Any]:
    """The expected accuracy as the last step reported it, for a step that changes no label."""
    known = last_expected(context)
    return {} if known is None else {"expected": known.to_dict()}


def last_expected(context: Context) -> Expected | None:
    """What labels are worth, as the last step reported it; None where items were removed since."""
    last = context.headers[-1] if context.headers else None
    return expected_of(last) if last and last.removed == len(context.removed) else None


UNIT = 10**6
"""Sums of beliefs are kept in whole millionths."""


@dataclass(frozen=True)
class Report(Result):
    """What a step did."""

    step: int | None
    """None: there was nothing to do."""
    run: str
    model: str
    evaluations: int
    errors: int
    first_labels: int
    flips: int
    expected_negative_flips: float
    expected_positive_flips: float
    note: str = ""
    held_back: int = 0
    """Items evaluated where another label is believed more, but the rule kept the stored one."""
    labelled_evaluations: int = 0
    """Votes asked for on labelled items first, to learn how the model errs."""
    pending: int = 0
    """Flips proposed by the step, that wait for another vote."""
    confirmed: int = 0
    """Flips that were pending, and that the new vote made; among the flips."""
    settled: int = 0
    """Flips that were pending, and made because the item had no vote; among the flips."""
    dropped: int = 0
    """Flips that were pending, and that the new vote spoke against."""
    expected: dict[str, Any] | None = None
    """What the step and all labels are worth, as far as can be told; see ``Expected``."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    """Between the items and the labelled set; see ``shift``."""
    held: dict[str, int] | None = None
    """Beliefs in all labels after it, summed up, for the next step to go on from."""
    adapted: dict[str, float] | None = None
    """By how much beliefs were adapted to the items; see ``Adaptation``."""
    spending: dict[str, Any] | None = None
    """Where a budget over time stood before it; see ``account``."""
    pinned: int = 0
    """Votes on items whose label is an answer or a given truth: they change no label."""

    @classmethod
    def nothing(cls, model: str, *notes: str) -> Report:
        """Of a call that found its work done, and why."""
        return cls(None, "", model, 0, 0, 0, 0, 0.0, 0.0, lines(notes))

    def with_notes(self, *notes: str) -> Report:
        """The same with something told before."""
        return replace(self, note=lines((*notes, self.note)))

    def __str__(self) -> str:
        if self.step is None:
            return self.note
        failed = f", {counted(self.errors, 'error')}" if self.errors else ""
        held = (
            f"\n{counted(self.held_back, 'other label', 'are')} believed less than another; "
            f"the rule keeps {'it' if self.held_back == 1 else 'them'}"
            if self.held_back
            else ""
        )
        if held and self.evaluations and not self.flips and not self.first_labels:
            held += (
                "\nThis step changed no label; `posterity redecide` with a lower cost ratio "
                "decides again with the same votes"
            )
        told = None if self.expected is None else Expected.of(self.expected)
        decided = (
            f"\n{counted(self.pinned, 'vote', 'were')} on items whose label is an answer or a "
            "given truth, and stays"
            if self.pinned
            else ""
        )
        return (
            f"step {self.step}: {self.model} voted on {counted(self.evaluations, 'item')}{failed}"
            f"{decided}\n"
            f"{counted(self.first_labels, 'first label')}, {counted(self.flips, 'flip')}"
            f"{self._worth(told)}{held}"
            f"{self._waiting}"
            + ("" if told is None else f"\n{told}")
            + (f"\n{self.note}" if self.note else "")
        )

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        if self.step is None:
            return _text.html_lines([self.note])
        told = None if self.expected is None else Expected.of(self.expected)
        fixed, broken = (
            (told.positive_flips, told.negative_flips)
            if told is not None and told.checked
            else (Estimate(self.expected_positive_flips), Estimate(self.expected_negative_flips))
        )
        figures = {
            "evaluations": f"{self.evaluations:,}",
            "first labels": f"{self.first_labels:,}",
            "flips": f"{self.flips:,}",
            "fixed, as expected": shown(**fixed.to_dict()) if self.flips else "–",
            "broken, as expected": shown(**broken.to_dict()) if self.flips else "–",
        }
        if told is not None and told.accuracy is not None:
            figures["expected accuracy"] = percent(**told.accuracy.to_dict())
        more = [
            self._waiting.strip(),
            self.note,
            counted(self.errors, "error") if self.errors else "",
        ]
        return _text.html_page(f"Step {self.step}: {self.model}", figures, _text.html_lines(more))

    def _worth(self, told: Expected | None) -> str:
        """What the flips brought."""
        if not self.flips:
            return ""
        if told is None or not told.checked:
            return (
                f"; as the beliefs have it {self.expected_positive_flips:.1f} fixed and "
                f"{self.expected_negative_flips:.1f} broken"
            )
        fixed, broken = told.positive_flips.to_dict(), told.negative_flips.to_dict()
        return f"; about {shown(**fixed)} fixed and {shown(**broken)} broken"

    @property
    def _waiting(self) -> str:
        """What became of pending flips, and what is pending now."""
        told = ""
        if self.confirmed or self.settled or self.dropped:
            told += (
                f"\nof the flips that were pending, {self.confirmed:,} were made with a new vote, "
                f"{self.settled:,} without one, and {self.dropped:,} dropped"
            )
        if self.pending:
            told += (
                f"\n{counted(self.pending, 'flip', 'are')} pending: "
                f"{'it waits' if self.pending == 1 else 'they wait'} for another vote"
            )
        return told


@dataclass(frozen=True)
class Expected(Result):
    """What the labels and the flips of a step are worth, without truth."""

    accuracy: Estimate | None
    """Of all labels; None where there is none."""
    positive_flips: Estimate
    negative_flips: Estimate
    belief: float | None
    """The mean belief in the labels: accuracy as the beliefs alone have it."""
    calibration_error: float | None = None
    """Of beliefs on the labelled set; None: they could not be checked on it."""

    @property
    def checked(self) -> bool:
        """Whether labelled items went through the same steps."""
        return self.calibration_error is not None

    @classmethod
    def by(cls, trust: Trust | None, held: Sums, tally: Tally, *, pinned: int = 0) -> Expected:
        """From beliefs, and what labelled items say of them, if there are any.

        ``pinned``: how many labels there are besides that people decided; they are right.
        """
        every = held.items + pinned
        belief = (held.belief + pinned) / every if every else None
        if trust is None or not trust.checks:
            return cls(
                _with_pinned(validation_expected.accuracy(held), held.items, pinned),
                validation_expected.flips(tally.fixing),
                validation_expected.flips(tally.breaking),
                belief,
            )
        return cls(
            _with_pinned(trust.accuracy(held), held.items, pinned),
            trust.fixed(tally.fixing),
            trust.broken(tally.breaking),
            belief,
            trust.reliability.error,
        )

    @classmethod
    def of(cls, told: dict[str, Any]) -> Expected:
        """What ``to_dict`` made."""
        names = ("accuracy", "positive_flips", "negative_flips")
        read = {name: told[name] and Estimate(**told[name]) for name in names}
        return cls(**{**told, **read})

    def knowing(self, was: Sums, pinned_then: int, now: Sums, pinned: int) -> Expected:
        """The same after more labels are known to be right.

        Of the others (``was`` and ``now``: beliefs in them) as much is right as was before, but for
        what they are believed more or less.
        """
        if self.accuracy is None or not was.items or not now.items:
            return replace(self, accuracy=Estimate(1.0) if pinned else self.accuracy)
        share = was.items / (was.items + pinned_then)
        by = now.belief / now.items - was.belief / was.items

        def of_others(end: float | None) -> float | None:
            return None if end is None else min(1.0, max(0.0, (end - 1 + share) / share + by))

        value, low, high = map(of_others, vars(self.accuracy).values())
        accuracy = _with_pinned(Estimate(value or 0.0, low, high), now.items, pinned)
        belief = (now.belief + pinned) / (now.items + pinned)
        return replace(self, accuracy=accuracy, belief=belief)

    def __str__(self) -> str:
        if self.accuracy is None:
            return "no label to expect anything of"
        told = f"expected accuracy {percent(**self.accuracy.to_dict())}"
        if not self.checked:
            return f"{told} as the beliefs have it, unchecked: no labelled items to check them on"
        off = 100 * (self.calibration_error or 0.0)
        return f"{told}; beliefs are off by {off:.1f} points on the labelled set"


def _with_pinned(of_others: Estimate | None, others: int, pinned: int) -> Estimate | None:
    """The accuracy of all labels, when so many of them are certain."""
    if not pinned:
        return of_others
    if of_others is None:
        return Estimate(1.0)
    share = others / (others + pinned)
    low, high = (
        None if end is None else end * share + 1 - share for end in (of_others.low, of_others.high)
    )
    return Estimate(of_others.value * share + 1 - share, low, high)


def expected_of(header: Header) -> Expected | None:
    """What an update recorded of what it is worth.

    Reverts, settles and reviews have only the beliefs: no labelled items went through them.
    """
    recorded = header.report.get("expected")
    return None if recorded is None else Expected.of(recorded)


def expected_accuracy(header: Header) -> Estimate | None:
    """Of all labels after a step, by what its header tells; None where there are none."""
    expected, held = expected_of(header), header.report["held"]
    if expected is not None:
        return expected.accuracy
    return Estimate(held["belief"] / UNIT / held["labels"]) if held["labels"] else None


@dataclass
class Tally:
    """What a step does, counted while its shards are decided one after the other."""

    first_labels: int = 0
    flips: int = 0
    expected_negative_flips: float = 0.0
    expected_positive_flips: float = 0.0
    held_back: int = 0
    pending: int = 0
    confirmed: int = 0
    settled: int = 0
    dropped: int = 0
    fixing: Sums = field(default_factory=Sums)
    """Beliefs in the new labels of flips."""
    breaking: Sums = field(default_factory=Sums)
    """Beliefs in the old ones."""

    def __add__(self, other: Tally) -> Tally:
        """Of some shards and of others."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Tally(*(own + more for own, more in pairs))

    def told(self) -> dict[str, Any]:
        """What a report has of it."""
        left = ("fixing", "breaking")
        return {name: value for name, value in vars(self).items() if name not in left}

    def count_voted(self, decided: Decided, pending: Codes) -> None:
        """Items with a vote; ``pending``: the flips that were pending on them before."""
        flipped = self._flips(decided)
        waits, waited = decided.proposed != MISSING, pending != MISSING
        held = (decided.after == decided.before) & (decided.best != decided.after) & ~waits
        self.first_labels += int((decided.before == MISSING).sum())
        self.held_back += int(held.sum())
        self.pending += int(waits.sum())
        self.confirmed += int((waited & flipped).sum())
        self.dropped += int((waited & ~flipped).sum())

    def count_settled(self, decided: Decided) -> None:
        """Items without a vote whose pending flip is made."""
        self._flips(decided)
        self.settled += len(decided.after)

    def _flips(self, decided: Decided) -> Mask:
        flipped = metrics.flipped(decided.before, decided.after)
        expected = metrics.expected_flips(decided.belief_before[flipped], decided.belief[flipped])
        self.fixing += Sums.of(decided.belief[flipped])
        self.breaking += Sums.of(decided.belief_before[flipped])
        self.flips += int(flipped.sum())
        self.expected_negative_flips += expected.negative
        self.expected_positive_flips += expected.positive
        return flipped
