"""Redecide: decide labels again from votes already paid for, by a step of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from posterity._text import Result, counted, lines
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.commit import retried
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import Decided, StepPolicy, decide_again, redecided
from posterity.engine.ledger.history import ShardHistory, newest_fit, parts_of
from posterity.engine.ledger.publish import make_step, publish_labels
from posterity.engine.ledger.reports import Tally
from posterity.engine.ledger.steps import DECISIVE, REDECIDE, Header
from posterity.engine.ledger.totals import Total, total_of
from posterity.engine.steps.fold import write_rows
from posterity.errors import InvalidParameter
from posterity.method.data.arrays import Rows
from posterity.method.data.votes import MISSING
from posterity.method.decide import rules
from posterity.method.decide.defaults import DEFAULT_RULE, DEPENDENT
from posterity.method.decide.rules import CAUTIOUS, Balanced, CostRatio, MaxBelief, Rule
from posterity.storage.delta.commits import DataFile

BLOCK = 2**18
"""Items whose votes are held side by side."""
COMPARING = (Balanced, CostRatio, MaxBelief)
"""Rules that need no new vote."""


@dataclass(frozen=True, repr=False)
class Redecided(Result):
    """What a redecide did."""

    step: int | None
    """None: nothing was changed."""
    rule: str
    items: int
    """Items that have a label, and that no person has decided."""
    flips: int
    dropped: int = 0
    """Flips that were pending, and are not made."""
    expected_negative_flips: float = 0.0
    expected_positive_flips: float = 0.0
    labelled_fixed: int | None = None
    """What the same did on the labelled items; None where it could not be tried."""
    labelled_broken: int | None = None
    note: str = ""

    def __str__(self) -> str:
        tried = ""
        if self.labelled_fixed is not None:
            tried = (
                f"on the labelled items the same fixes {self.labelled_fixed:,} and breaks "
                f"{self.labelled_broken:,}"
            )
        if not self.flips and not self.dropped:
            nothing = f"{self.rule} would change none of {counted(self.items, 'label')}"
            return lines((self.note or nothing, tried))
        begin = "dry run" if self.step is None else f"step {self.step}"
        return lines(
            (
                f"{begin}: {self.rule} changes {self.flips:,} of {counted(self.items, 'label')}; "
                f"estimated: {self.expected_positive_flips:,.0f} fixed, "
                f"{self.expected_negative_flips:,.0f} broken; no model was asked",
                tried,
                f"{counted(self.dropped, 'pending flip')} dropped" if self.dropped else "",
                self.note,
            )
        )


def redecide(
    context: Context, rule: Rule | str | None = None, *, dry_run: bool = False
) -> Redecided:
    """Let a rule decide every label again, by the votes there are and the newest fit.

    Without a rule it is the store's policy, where that compares beliefs.
    """
    usual = context.policy.rule
    if not isinstance(usual, COMPARING):
        usual = rules.parse(DEFAULT_RULE[context.description.beliefs])
    asked = rules.parse(usual if rule is None else rule)
    rules.refuse_ratio(asked)
    if not isinstance(asked, COMPARING):
        raise InvalidParameter.of(
            "rule", "balanced, cost-ratio:C or max-belief, which compare beliefs", str(asked)
        )
    return retried(context, lambda now: _redecide(now, asked, dry_run=dry_run))


def _redecide(context: Context, asked: Rule, *, dry_run: bool) -> Redecided:
    live = context.live_updates
    if not live:
        none = "Nothing to do: there is no label yet that could be decided again."
        return Redecided(None, str(asked), 0, 0, note=none)
    steps, rule = parts_of(context, live), context.rule(str(asked))
    fit, prepared, tried = newest_fit(context, steps), Prepared(context, live[-1].voter), None
    if isinstance(rule, Balanced):
        rule = replace(rule, ratio=_ratio_before(context, rule))
    if prepared.dependent and fit.beliefs == DEPENDENT:
        rule, tried = prepared.redecide(rule)
    elif isinstance(rule, Balanced):
        rule = replace(rule, ratio=CAUTIOUS)
    step = context.head + 1
    task = _Redecide(context, step, live, steps, StepPolicy("", rule, fit), dry_run)
    found = sum(context.executor.map(task, context.shards), _RedecidedShards())
    done = Redecided(
        None if dry_run or not found.written else step,
        str(rule),
        found.items,
        found.tally.flips,
        found.tally.dropped,
        found.tally.expected_negative_flips,
        found.tally.expected_positive_flips,
        None if tried is None else tried.fixed,
        None if tried is None else tried.broken,
    )
    if dry_run:
        return done
    if not found.written:
        publish_labels(context)  # killed after its commit, it may have been left undone
        return replace(done, note=f"Nothing to do: no other class is believed enough for {rule}.")
    total = total_of(context) + found.moved
    report = {**done.to_dict(), "pending": 0, "held": total.to_dict()}
    recorded = fit.to_dict([header.voter for header in live])
    make_step(context, REDECIDE, found.files, report, rule=str(rule), fit=recorded)
    return done


def _ratio_before(context: Context, rule: Balanced) -> float | None:
    """The ratio of the last decision, if that was the same redecide: asked twice, it is done once.

    It would be chosen among the flips that are left, and so be lower each time.
    """
    last = next(
        header
        for header in reversed(context.headers)
        if header.kind in DECISIVE and header.step not in context.undone
    )
    if last.kind != REDECIDE:
        return None
    made = context.rule(last.rule or "")
    same = isinstance(made, Balanced) and made.share == rule.share
    return made.ratio if same and isinstance(made, Balanced) else None


@dataclass(frozen=True, eq=False)
class _RedecidedShards:
    """What a redecide makes of some shards."""

    items: int = 0
    written: int = 0
    tally: Tally = field(default_factory=Tally)
    moved: Total = field(default_factory=Total)
    files: list[DataFile] = field(default_factory=list)

    def __add__(self, other: _RedecidedShards) -> _RedecidedShards:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _RedecidedShards(*(own + more for own, more in pairs))


@dataclass(frozen=True, eq=False)
class _Redecide:
    """A redecide, to be made shard by shard."""

    context: Context
    step: int
    live: Sequence[Header]
    steps: Sequence[StepPolicy]
    policy: StepPolicy
    dry_run: bool

    def __call__(self, shard: RowRange) -> _RedecidedShards:
        """Decide the shard's labels again, but those that people decided."""
        context = self.context
        history = ShardHistory.read(context.ledger, *shard)
        now, pins = history.current(self.live, 0.0), history.pins(context.live_reviews)
        here = (now.label != MISSING) & (pins == MISSING)
        rows = np.flatnonzero(here & ~context.removed.among(shard.start, shard.items))
        items, parts, moving = len(rows), list[Decided](), list[Rows]()
        for block in np.array_split(rows, max(1, len(rows) // BLOCK)):
            votes, label = history.votes_of(block, self.live), now.label[block]
            believed = now.belief[block].astype(np.float64)
            decided = decide_again(self.policy, self.steps, votes, label, believed)
            at = redecided(decided, now.proposed[block])
            parts.append(decided[at])
            moving.append(block[at])
        rows, decided = np.concatenate(moving), Decided.joined(parts)
        tally, pending = Tally(), now.proposed[rows]
        tally.count_voted(decided, pending)
        belief = now.belief[rows].astype(np.float64)
        files = []
        if len(rows) and not self.dry_run:
            place = shard.start + rows
            files = [write_rows(context, self.step, shard.number, place, None, decided)]
        moved = Total().moved(now.label[rows], belief, decided)
        return _RedecidedShards(items, len(rows), tally, moved, files)
