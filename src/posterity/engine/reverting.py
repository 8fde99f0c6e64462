"""Revert: undo a step by a new one. Nothing is deleted, and a revert can be reverted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from posterity._arrays import Mask
from posterity._version import __version__
from posterity.engine.context import Context
from posterity.engine.deciding import decide_all
from posterity.engine.history import ShardHistory
from posterity.engine.publishing import publish_labels
from posterity.engine.steps import REVERT, Header, live_updates, masked
from posterity.engine.updating import commit_step, parts_of, write_rows
from posterity.errors import InvalidParameter


@dataclass(frozen=True)
class Reverted:
    """What a revert did."""

    step: int
    reverts: int
    items: int
    """Items the undone step had touched."""
    changed: int
    """Labels that are different now."""
    note: str = ""

    def to_dict(self) -> dict[str, int | str]:
        """As ``--json`` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        return self.note or (
            f"step {self.step}: reverts step {self.reverts}; of {self.items:,} items it had "
            f"touched, {self.changed:,} labels changed"
        )


def revert(context: Context, target: int) -> Reverted:
    """Mask the votes of a step and decide anew the items it touched."""
    context.check_step(target)
    if target in masked(context.headers):
        # Asked twice, or killed after its commit: the step is there, what follows it may not be.
        publish_labels(context)
        last = max(header.step for header in context.headers if header.reverts == target)
        return Reverted(last, target, 0, 0, f"Nothing to do: step {last} reverts step {target}.")
    step = context.head + 1
    header = Header(step, REVERT, uuid.uuid4().hex[:12], reverts=target, items=context.rows)
    live = live_updates([*context.headers, header])
    steps, now = parts_of(context, live), context.fit()
    files, touched, changed = [], 0, 0
    for shard, start, items in context.shards:
        history = ShardHistory.read(context.ledger, shard, start, items)
        written = history.steps.get(target)
        if written is None:
            continue
        _refuse_two_votes(history, live)
        rows = written.rows
        stored = history.current(live, 0.0).label[rows]
        decided = decide_all(now, steps, history.votes_of(rows, live), len(rows))
        files.append(write_rows(context, step, shard, start + rows, None, decided))
        touched += len(rows)
        changed += int((stored != decided.after).sum())
    done = Reverted(step, target, touched, changed)
    report = {"items": touched, "changed": changed}
    commit_step(
        context,
        Header(
            step,
            REVERT,
            header.run,
            reverts=target,
            items=context.rows,
            fit=now.to_dict([]),
            report=report,
            software=__version__,
        ),
        files,
    )
    publish_labels(Context(context.files))
    return done


def _refuse_two_votes(history: ShardHistory, live: Sequence[Header]) -> None:
    """An item has at most one vote of a model that counts."""
    voted: dict[str | None, Mask] = {}
    for header in live:
        voters = history.voters(header.step)
        own = voted.setdefault(header.model, np.zeros(history.items, dtype=np.bool_))
        if own[voters].any():
            raise InvalidParameter(
                f"With that, '{header.model}' would have two votes on the same item; "
                f"revert step {header.step} first."
            )
        own[voters] = True
