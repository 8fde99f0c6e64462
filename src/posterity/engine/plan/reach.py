"""Reach: how much a single vote could change, where no labelled items can be rehearsed."""

from __future__ import annotations

import numpy as np

from posterity.engine.ledger import decide
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.decide import StepPolicy
from posterity.engine.ledger.fits import Fit
from posterity.engine.ledger.history import ShardHistory, votes_until
from posterity.method.data.arrays import Rows
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.method.decide.rules import MaxBelief, Rule

LOOKED_AT = 16
"""Items; each is read on its own."""
TRIED = 2**17
"""Votes that are tried on all of them."""


def best_odds(context: Context, model: str, rule: Rule, fit: Fit, rows: Rows) -> float | None:
    """How many times as likely as the label a vote can make another class, at most.

    Every vote the model could cast is tried on a few of the rows. None: one of them changes a label
    under the rule, or an item has none yet.
    """
    every = np.arange(fit.classes, dtype=np.int32)
    many = max(1, min(LOOKED_AT, TRIED // len(every), len(rows)))
    best = 0.0
    for row in rows[np.linspace(0, len(rows) - 1, many).astype(np.int64)].tolist():
        history = ShardHistory.of_row(context.ledger, row // context.description.shard_rows, row)
        now = history.current([], 0.0)
        if now.label[0] == MISSING:
            return None
        steps, votes = votes_until(context, history, context.head)
        same = np.zeros(len(every), dtype=np.int64)
        cast = [*(one[same] for one in votes), ModelVotes(every)]
        label, pending = now.label[same], now.proposed[same]
        made = decide.decide_last([*steps, StepPolicy(model, rule, fit)], cast, label, pending)
        if (made.after != label).any() or (made.proposed != MISSING).any():
            return None
        tried = [*steps, StepPolicy(model, MaxBelief(), fit)]
        made = decide.decide_last(tried, cast, label)
        odds = made.belief / made.belief_before.clip(1e-300)
        best = max(best, float(odds[made.after != label].max(initial=0.0)))
    return best
