"""Settle: make all pending flips now, by a step of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from posterity._text import Result
from posterity.engine.ledger.commit import retried
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.proposals import pending_parts
from posterity.engine.ledger.publish import make_step, publish_labels
from posterity.engine.ledger.steps import SETTLE
from posterity.engine.ledger.totals import total_of
from posterity.engine.steps.fold import FoldedShards, settle_shard


@dataclass(frozen=True, repr=False)
class Settled(Result):
    """What a settle did."""

    step: int | None
    """None: nothing was pending."""
    settled: int
    """Flips that were pending, and are made."""
    expected_negative_flips: float = 0.0
    expected_positive_flips: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        if self.step is None:
            return self.note
        return (
            f"step {self.step}: {self.settled:,} pending flips made; estimated when "
            f"proposed: {self.expected_positive_flips:.1f} fixed and "
            f"{self.expected_negative_flips:.1f} broken"
        )


def settle(context: Context) -> Settled:
    """Make all pending flips, with what was believed when they were proposed."""
    return retried(context, _settle)


def _settle(context: Context) -> Settled:
    step, parts = context.head + 1, pending_parts(context)
    found = FoldedShards.joined(context.executor.map(partial(settle_shard, context, step), parts))
    tally = found.tally
    if not found.files:
        publish_labels(context)  # killed after its commit, it may have been left undone
        return Settled(None, 0, note="Nothing to do: no flip is pending.")
    done = Settled(
        step, tally.settled, tally.expected_negative_flips, tally.expected_positive_flips
    )
    total = total_of(context) + found.moved
    report = {**done.to_dict(), "flips": tally.flips, "pending": 0, "held": total.to_dict()}
    make_step(context, SETTLE, found.files, report)
    return done
