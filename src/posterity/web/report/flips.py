"""The labels a step changed: how many it fixed and broke, of which classes, and each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posterity.engine.inspect.queries import changes_schema, flips_by_shard
from posterity.engine.inspect.step_views import step_of, steps_view
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import StepPolicy, decide_last
from posterity.engine.ledger.history import ShardHistory, parts_of
from posterity.engine.ledger.steps import REVERT, REVIEW, TUNE, Header, live_updates
from posterity.method.data.votes import MISSING
from posterity.validation import expectation
from posterity.validation.expectation import Estimate, Sums

OLD = "belief_old"
"""The column with the belief in the label an item had; nothing where no vote says."""
FIXED, BROKE = "fixed", "broke"
"""Columns with the chance that a flip is positive or negative, as the step's report has it: its
beliefs, corrected by what they missed on the labelled set."""
BINS = 20
PAIRS = 12
SIZE = 25
"""Flips of a page."""


@dataclass(frozen=True)
class Wanted:
    """Which flips of a step are looked at; None: whatever it is."""

    old: str | None = None
    new: str | None = None
    low: float | None = None
    high: float | None = None
    """The least and the highest belief in the new label."""
    text: str | None = None
    """In the id, anywhere."""

    def among(self, flips: pa.Table) -> pa.Table:
        """Those of some flips that are wanted."""
        kept = pa.array(np.ones(flips.num_rows, dtype=np.bool_))
        for column, name in (("old", self.old), ("new", self.new)):
            if name is not None:
                kept = pc.and_(kept, pc.equal(_as_text(flips.column(column)), name))
        belief = pc.fill_null(flips.column("belief"), 1.0)
        if self.low is not None:
            kept = pc.and_(kept, pc.greater_equal(belief, pa.scalar(self.low, pa.float32())))
        if self.high is not None:
            kept = pc.and_(kept, pc.less_equal(belief, pa.scalar(self.high, pa.float32())))
        if self.text:
            found = pc.match_substring(_as_text(flips.column("id")), self.text, ignore_case=True)
            kept = pc.and_(kept, found)
        return flips.filter(pc.fill_null(kept, False))


def flips_of(context: Context, step: int) -> pa.Table:
    """The flips of a step by row, with the belief in the label each item had."""
    known = flips_by_shard(context, step)
    header = next(one for one in context.headers if one.step == step)
    empty = changes_schema(context).append(pa.field(OLD, pa.float32())).empty_table()
    told = step_of(steps_view(context), step)
    if header.kind in (REVERT, REVIEW, TUNE):
        unknown = pa.concat_tables([empty, *(_unknown(table) for table in known.each())])
        return _with_chances(told, unknown)
    live = live_updates([one for one in context.headers if one.step <= step])
    doubt = partial(_with_doubt, context, header, live, parts_of(context, live), known.of)
    doubted = pa.concat_tables([empty, *context.executor.map(doubt, context.shards)])
    return _with_chances(told, doubted)


def _with_chances(told: dict[str, Any], flips: pa.Table) -> pa.Table:
    """The same with the chances that each fixed or broke a label; nothing where no report says."""
    for name, column in ((FIXED, "belief"), (BROKE, OLD)):
        chance = pa.nulls(flips.num_rows, pa.float64())
        if told[name] is not None and not flips.column(column).null_count:
            believed = flips.column(column).to_numpy().astype(np.float64)
            # Of flips that are still there: items may have been removed since.
            whole = told["believed"][name]
            left = believed.sum() / whole if whole > expectation.FEWEST else 0.0
            chance = pa.array(expectation.corrected(believed, told[name]["value"] * left))
        flips = flips.append_column(name, chance)
    return flips


def flips_view(
    context: Context,
    flips: pa.Table,
    step: int,
    wanted: Wanted,
    *,
    page: int = 1,
    size: int = SIZE,
) -> dict[str, Any]:
    """A page of the flips that are wanted, and what all of these are worth."""
    told = step_of(steps_view(context), step)
    found = wanted.among(flips)
    pages = max(1, -(-found.num_rows // size))
    page = min(max(1, page), pages)
    order = pc.sort_indices(found, sort_keys=[("belief", "descending"), ("row", "ascending")])
    shown = found.take(order.slice((page - 1) * size, size))
    return {
        "step": told,
        "wanted": vars(wanted),
        "count": found.num_rows,
        "of": flips.num_rows,
        **_worth(told, flips, found),
        "classes": {name: _names(flips.column(name)) for name in ("old", "new")},
        "pairs": _pairs(told, flips, found),
        "by_class": _by_class(told, flips, found),
        "beliefs": _histogram(found),
        "page": page,
        "pages": pages,
        "size": size,
        "flips": shown.to_pylist(),
    }


def _worth(told: dict[str, Any], every: pa.Table, some: pa.Table) -> dict[str, Any]:
    """How many of some flips fixed a label and how many broke one, as the step's report has it."""
    if told[FIXED] is None or every.column(FIXED).null_count:
        return {FIXED: None, BROKE: None}
    if some.num_rows == told["flips"]:
        return {FIXED: told[FIXED], BROKE: told[BROKE]}
    return {
        name: expectation.among(
            Estimate(**told[name]), _sums(every, name), _sums(some, name)
        ).to_dict()
        for name in (FIXED, BROKE)
    }


def _sums(flips: pa.Table, column: str) -> Sums:
    return Sums.of(flips.column(column).to_numpy())


def _pairs(told: dict[str, Any], every: pa.Table, some: pa.Table) -> list[dict[str, Any]]:
    """The most frequent changes from one class to another."""
    grouped = some.group_by(["old", "new"]).aggregate([([], "count_all")])
    listed = grouped.sort_by(
        [("count_all", "descending"), ("old", "ascending"), ("new", "ascending")]
    ).slice(0, PAIRS)
    rows = []
    for row in listed.to_pylist():
        both = pc.and_(
            pc.equal(some.column("old"), row["old"]), pc.equal(some.column("new"), row["new"])
        )
        worth = _worth(told, every, some.filter(both))
        rows.append({"old": row["old"], "new": row["new"], "flips": row["count_all"], **worth})
    return rows


def _by_class(told: dict[str, Any], every: pa.Table, some: pa.Table) -> list[dict[str, Any]]:
    """What was lost and won by each class, those with most flips first."""
    lost, won = (_counts(some.column(name)) for name in ("old", "new"))
    names = sorted({*lost, *won}, key=lambda name: (-lost.get(name, 0) - won.get(name, 0), name))
    rows = []
    for name in names[:PAIRS]:
        mine = some.filter(pc.equal(_as_text(some.column("new")), name))
        left = some.filter(pc.equal(_as_text(some.column("old")), name))
        rows.append(
            {
                "class": name,
                "won": won.get(name, 0),
                "lost": lost.get(name, 0),
                FIXED: _worth(told, every, mine)[FIXED],
                BROKE: _worth(told, every, left)[BROKE],
            }
        )
    return rows


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(pc.drop_null(_as_text(column)))
    return {row["values"]: row["counts"] for row in counted.to_pylist()}


def _histogram(flips: pa.Table) -> dict[str, Any]:
    """Flips by the belief in the new label."""
    belief = flips.column("belief").drop_null().to_numpy()
    counts, edges = np.histogram(belief, bins=BINS, range=(0.0, 1.0))
    return {"edges": edges.tolist(), "flips": counts.tolist()}


def _names(column: pa.ChunkedArray) -> list[str]:
    return sorted(pc.drop_null(pc.unique(_as_text(column))).to_pylist())


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Names and ids may be numbers or truth values; who looks for one types it as it is shown."""
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "True", "False")
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def _unknown(table: pa.Table) -> pa.Table:
    return table.append_column(OLD, pa.nulls(table.num_rows, pa.float32()))


def _with_doubt(
    context: Context,
    header: Header,
    live: Sequence[Header],
    steps: Sequence[StepPolicy],
    of: Any,
    part: RowRange,
) -> pa.Table:
    """A shard's flips, decided again to see what was left of the belief in the old label."""
    flips = of(part)
    if not flips.num_rows:
        return _unknown(flips)
    shard, start, items = part
    history = ShardHistory.read(context.ledger, shard, start, items)
    was = history.before(header.step).current([], 0.0)
    rows = flips.column("row").to_numpy() - start
    # Of a pending flip that is made without a vote: as it was believed when it was proposed.
    believed = was.belief[rows].astype(np.float64)
    votes = history.votes_of(rows, live)
    if live and live[-1].step == header.step:
        voted = np.flatnonzero(votes[-1].hard != MISSING)
        if len(voted):
            own = [cast[voted] for cast in votes]
            decided = decide_last(steps, own, was.label[rows[voted]], was.proposed[rows[voted]])
            believed[voted] = decided.belief_before
    return flips.append_column(OLD, pa.array(believed.astype(np.float32)))
