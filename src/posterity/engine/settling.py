"""Settle: make all pending flips now, by a step of its own."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from functools import partial

from posterity._version import __version__
from posterity.engine.context import Context
from posterity.engine.folding import Folded, settle_shard
from posterity.engine.pending import pending_parts, pending_shards
from posterity.engine.publishing import publish_labels
from posterity.engine.steps import SETTLE, Header
from posterity.engine.totals import total_of
from posterity.engine.updating import commit_step


@dataclass(frozen=True)
class Settled:
    """What a settle did."""

    step: int | None
    """None: nothing was pending."""
    settled: int
    """Flips that were pending, and are made."""
    expected_negative_flips: float = 0.0
    expected_positive_flips: float = 0.0
    note: str = ""

    def to_dict(self) -> dict[str, int | float | str | None]:
        """As ``--json`` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        if self.step is None:
            return self.note
        return (
            f"step {self.step}: {self.settled:,} pending flips made; as the beliefs had it when "
            f"they were proposed {self.expected_positive_flips:.1f} fixed and "
            f"{self.expected_negative_flips:.1f} broken"
        )


def settle(context: Context) -> Settled:
    """Make all pending flips, with what was believed when they were proposed."""
    if pending_shards(context.headers):
        context.raise_format()
    step, parts = context.head + 1, pending_parts(context)
    found = Folded.joined(context.executor.map(partial(settle_shard, context, step), parts))
    tally = found.tally
    if not found.files:
        publish_labels(context)  # killed after its commit, it may have been left undone
        return Settled(None, 0, note="Nothing to do: no flip is pending.")
    done = Settled(
        step, tally.settled, tally.expected_negative_flips, tally.expected_positive_flips
    )
    total = total_of(context) + found.moved
    header = Header(
        step,
        SETTLE,
        uuid.uuid4().hex[:12],
        items=context.rows,
        report={**done.to_dict(), "flips": tally.flips, "pending": 0, "held": total.to_dict()},
        software=__version__,
    )
    commit_step(context, header, found.files)
    publish_labels(context.again())
    return done
