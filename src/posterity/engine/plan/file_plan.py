"""File plan: a file of votes that comes without a budget or a plan chooses its items itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from posterity._text import counted
from posterity.engine.evaluation.durable_votes import Run
from posterity.engine.evaluation.plans import Plan, Request
from posterity.engine.evaluation.vote_file import Evaluate, FromFile, VoteFile, read_file
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.state import state_of
from posterity.engine.plan.score import satisfying
from posterity.errors import InvalidParameter
from posterity.method.data.row_sets import RowSet, unpacked
from posterity.method.decide.rules import traits

OF_FILE = "file-"
"""What the ids of such plans begin with: the same request without a file is other work."""


@contextmanager
def plan_of_file(
    context: Context, request: Request, file: VoteFile
) -> Iterator[tuple[Plan, Evaluate]]:
    """A plan of all items of a file that its model has not voted on, and what fills its run.

    The votes are paid for, and nothing says that any should be left out. The same file given twice
    is folded once, since an item has one vote of a model.
    """
    rule = context.rule(request.rule)
    if traits(rule).promises or file.strict:
        what = f"The rule '{rule}'" if traits(rule).promises else "strict (--strict)"
        raise InvalidParameter(
            f"{what} is about the items that a plan has chosen.",
            hint="Give the plan's id with plan (--plan), or its budget with budget (--budget).",
        )
    with read_file(context, request.model, file) as read:
        chosen, new = _without_vote(context, request, read.taken)
        found = FromFile(
            folded=len(chosen),
            unplanned=new - len(chosen),
            unmatched=read.unmatched,
            strangers=read.strangers,
            again=len(read.taken) - new,
        )

        def fill(run: Run, plan: Plan) -> FromFile:
            read.keep(run, plan.chosen)
            return found

        plan = Plan(
            _id_of(context, request, chosen),
            replace(request, digest=OF_FILE + request.digest),
            context.head,
            context.rows,
            chosen,
            len(chosen),
            affected={},
            cost=None,
            note="" if len(chosen) else _why_nothing(request.model, found),
        )
        yield plan, fill


def _without_vote(context: Context, request: Request, rows: RowSet) -> tuple[RowSet, int]:
    """Those of a file's items that the model has not voted on and the filter lets through; and
    how many there are without the filter.
    """
    found, new = RowSet(context.rows), 0
    satisfied = satisfying(context, request.where)
    for shard, let in zip(context.shards, satisfied, strict=True):
        here = rows.among(shard.start, shard.items)
        if here.any():
            here &= ~state_of(context, *shard).voted_by(request.model)
            new += int(here.sum())
            here &= True if let is None else unpacked(let, shard.items)
            found.mark(np.flatnonzero(here) + shard.start)
    return found, new


def _id_of(context: Context, request: Request, rows: RowSet) -> str:
    """The same for the same work; a step has spent its id, also one that was reverted since."""
    steps = sum(header.voter == request.model for header in context.headers)
    told = hashlib.sha256(str(steps).encode())
    for part in rows.stretches():
        told.update(part.tobytes())
    return f"{OF_FILE}{request.digest}-{told.hexdigest()[:8]}"


def _why_nothing(model: str, found: FromFile) -> str:
    if found.unplanned:
        items = counted(found.unplanned, "item")
        return f"Nothing to do: the filter lets none of {items} of the file through."
    return f"Nothing to do: {model} has voted on {counted(found.again, 'item')} of the file before."
