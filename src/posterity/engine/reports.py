"""Reports: what a step did, as it is told, kept in its header, and counted on the way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from posterity import metrics
from posterity._arrays import Codes, Mask
from posterity.engine.deciding import Decided
from posterity.votes import MISSING


@dataclass(frozen=True)
class Report:
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

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)

    def with_note(self, note: str) -> Report:
        """The same with something told before."""
        return replace(self, note="\n".join(part for part in (note, self.note) if part))

    def after_learning(self, asked: int) -> Report:
        """The same, when votes on labelled items had to be asked for first."""
        return replace(self, labelled_evaluations=asked)

    def __str__(self) -> str:
        if self.step is None:
            return self.note
        failed = f", {self.errors:,} errors" if self.errors else ""
        held = (
            f"\n{self.held_back:,} other labels are believed less than another; the rule keeps them"
            if self.held_back
            else ""
        )
        return (
            f"step {self.step}: {self.model} voted on {self.evaluations:,} items{failed}\n"
            f"{self.first_labels:,} first labels, {self.flips:,} flips; as the beliefs have it "
            f"{self.expected_positive_flips:.1f} fixed and "
            f"{self.expected_negative_flips:.1f} broken{held}{self._waiting}"
            + (f"\n{self.note}" if self.note else "")
        )

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
            told += f"\n{self.pending:,} flips are pending: they wait for another vote"
        return told


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
        self.flips += int(flipped.sum())
        self.expected_negative_flips += expected.negative
        self.expected_positive_flips += expected.positive
        return flipped
