"""Review: labels people decided, as one step; they stay whatever later votes say.

So is the truth of stored items that a model was given with: as a step of its own, once an item.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from posterity._text import Result, counted
from posterity.engine.labelled.register import given_truths
from posterity.engine.ledger.commit import attempts
from posterity.engine.ledger.context import Context, RowRange
from posterity.engine.ledger.decide import Decided
from posterity.engine.ledger.history import ShardHistory, fingerprint
from posterity.engine.ledger.publish import make_step, publish_labels
from posterity.engine.ledger.reports import Expected, last_expected
from posterity.engine.ledger.state import state_of
from posterity.engine.ledger.steps import REVIEW, Header
from posterity.engine.ledger.totals import Total, total_of
from posterity.engine.steps import ANSWER
from posterity.engine.steps.answer_file import Given, read_answers
from posterity.engine.steps.fold import write_rows
from posterity.errors import CommitConflict, InvalidParameter
from posterity.method.data.arrays import Codes, Mask, Rows
from posterity.method.data.votes import MISSING
from posterity.method.decide.defaults import DEPENDENT
from posterity.method.metrics import flipped
from posterity.models.model import Model
from posterity.storage.delta.commits import DataFile
from posterity.validation.expectation import Sums

CLEAR = 4.0
"""Standard errors beyond which a mean belief is no accident."""


@dataclass(frozen=True)
class Reviewed(Result):
    """What a review did."""

    step: int | None
    """None: nothing was changed."""
    items: int = 0
    """Items whose label is an answer now, and was not before."""
    flips: int = 0
    """Labels that were another class."""
    expected_flips: float = 0.0
    """As many were expected, as the beliefs had it."""
    first_labels: int = 0
    dropped: int = 0
    """Flips that were pending."""
    again: int = 0
    """Answers that were there already."""
    empty: int = 0
    """Rows without an answer."""
    refused: dict[str, int] = field(default_factory=dict)
    """Rows that were left out, by what is wrong with them."""
    learn: bool = False
    """Whether the answers are in the labelled set."""
    note: str = ""
    warning: str = ""
    """Where items that are to be learnt from were not drawn."""
    model: str | None = None
    """The model with which they were given, as the truth of stored items; None: by people."""
    kept: int = 0
    """Truths that are not what a person answered for the item: the answer stays."""
    expected: dict[str, Any] | None = None
    """What all labels are worth after truths were given; see ``Expected``."""

    def __str__(self) -> str:
        told = [self.note] if self.note else []
        if self.items:
            begin = "tried" if self.step is None else f"step {self.step}"
            what = counted(self.items, "answer")
            if self.model is not None:
                what = f"truth given with {self.model} for {counted(self.items, 'item')}"
            told.append(
                f"{begin}: {what}; "
                f"{counted(self.flips, 'label', 'were')} wrong "
                f"({self.expected_flips:.1f} were expected to be), "
                f"{self.items - self.flips - self.first_labels:,} right"
                + (f", {self.first_labels:,} missing" if self.first_labels else "")
            )
        if self.items and self.kept:
            stays = f"{counted(self.kept, 'item')} keep another label that a person gave"
            told.append(stays if self.kept > 1 else "1 item keeps another label that a person gave")
        if self.expected is not None:
            told.append(str(Expected.of(self.expected)))
        if self.items and self.learn:
            told.append("the answers are in the labelled set of the models that voted on them")
        if self.dropped:
            told.append(f"{counted(self.dropped, 'pending flip', 'were')} dropped")
        if self.again and self.items:
            told.append(f"{counted(self.again, 'answer', 'were')} there already")
        if self.empty and self.items:
            told.append(f"{counted(self.empty, 'row', 'have')} no answer yet")
        if self.warning:
            told.append(f"warning: {self.warning}")
        told += [
            f"warning: {counted(count, 'row')} left out: {what}"
            for what, count in self.refused.items()
        ]
        return "\n".join(told)


def review(
    context: Context,
    answers: Any,
    *,
    id_column: str = "id",
    answer_column: str = ANSWER,
    learn: bool = False,
    dry_run: bool = False,
) -> Reviewed:
    """Pin the labels people decided, by one step; the same answers twice do it once."""
    if learn and context.description.beliefs != DEPENDENT:
        raise InvalidParameter(
            "Plain beliefs are formed with what a model was registered with; they cannot learn "
            "from answers.",
            hint="Leave out 'learn' (--learn); the labels are pinned all the same.",
        )
    given = read_answers(context, answers, id_column=id_column, answer_column=answer_column)
    for now in attempts(context.again()):
        # Lost to a step or a compaction: what people said is right after it too.
        with suppress(CommitConflict):
            return _review(now, given, learn=learn, dry_run=dry_run)
    raise CommitConflict("The ledger changes too often; nothing was changed, try again later.")


def give_truths(context: Context, model: Model) -> Reviewed | None:
    """Make the truth of stored items that a model was given with their labels, by one step.

    An item is given the same truth once: a step that is reverted is not made again by the next
    registration. What a person answered stays, whichever came first. None: nothing was to be done.
    """
    for now in attempts(context.again()):
        truths = given_truths(now, model)
        if truths is None:
            return None
        with suppress(CommitConflict):
            done = _review(now, Given(*truths, 0, {}), truth_of=model.name)
            return None if done.step is None else done
    raise CommitConflict("The ledger changes too often; no label was changed, try again later.")


def _review(
    context: Context,
    given: Given,
    *,
    learn: bool = False,
    dry_run: bool = False,
    truth_of: str | None = None,
) -> Reviewed:
    digest = _digest(given, learn=learn, truth=truth_of is not None)
    reviews = context.live_reviews
    plain = Reviewed(None, empty=given.empty, refused=given.refused, learn=learn, model=truth_of)
    # An earlier answer does not count: a later one may have taken its place since.
    before = reviews[-1:] if truth_of is None else context.headers
    if any(header.request == digest for header in before):
        if not dry_run:
            publish_labels(context)  # killed after its commit, it may have been left undone
        note = "Nothing to do: these answers were given already."
        return replace(plain, again=len(given.rows), note=note)
    step, files, total, done = context.head + 1, list[DataFile](), total_of(context), plain
    was, votes, told = total, Sums(), 0
    parts = list(_by_shard(context, given))
    pin = partial(_pin, context, step, reviews, learn, dry_run, truth_of)
    for part in context.executor.map(pin, parts):
        counts = {name: getattr(done, name) + count for name, count in part.counts.items()}
        done = replace(done, **counts)
        total += part.moved
        votes += part.votes
        told = (told + part.told) % 2**64
        files += part.files
    if not done.items:
        return replace(done, note=_nothing(given))
    if learn:
        done = replace(done, warning=_picked(votes, was.sums))
    if dry_run:
        return replace(done, note="Nothing was changed.")
    done = replace(done, step=step)
    if truth_of is not None and (known := last_expected(context)) is not None:
        known = known.knowing(was.sums, was.pinned, total.sums, total.pinned)
        done = replace(done, expected=known.to_dict())
    # Why rows were left out names ids; an item that is removed has to be forgotten.
    refused = {"left out": sum(done.refused.values())} if done.refused else {}
    report = {name: told for name, told in done.to_dict().items() if told is not None}
    report |= {"refused": refused}
    report |= {"answers": f"{told:016x}", "held": total.to_dict()}
    make_step(context, REVIEW, files, report, request=digest, learn=learn, model=truth_of)
    return done


def _by_shard(context: Context, given: Given) -> Iterator[tuple[RowRange, Rows, Codes]]:
    """The shards that answers are about, with rows and answers; removed items have none."""
    for shard in context.shards:
        own = shard.within(given.rows)
        rows, codes = given.rows[own], given.answers[own]
        here = ~context.removed[rows]
        if here.any():
            yield shard, rows[here], codes[here]


@dataclass(frozen=True, eq=False)
class _Pinned:
    """What answers made of one shard."""

    counts: dict[str, Any]
    """What a ``Reviewed`` counts."""
    moved: Total = field(default_factory=Total)
    votes: Sums = field(default_factory=Sums)
    told: int = 0
    """The fingerprint of its answers."""
    files: list[DataFile] = field(default_factory=list)


def _pin(
    context: Context,
    step: int,
    reviews: Sequence[Header],
    learn: bool,
    dry_run: bool,
    truth_of: str | None,
    part: tuple[RowRange, Rows, Codes],
) -> _Pinned:
    shard, given, codes = part
    rows, votes = given - shard.start, Sums()
    state = state_of(context, *shard)
    now, pinned = state.current(0.0), state.pinned
    known = pinned[rows] & (now.label[rows] == codes)
    again = {"again": int(known.sum())}
    if truth_of is not None and not known.all():
        given_before, answered = _settled(context, shard, rows, codes)
        again["kept"] = int((answered & ~given_before & ~known).sum())
        known |= given_before | answered
    if learn:
        history = ShardHistory.read(context.ledger, *shard)
        learnt = history.pins([header for header in reviews if header.learn])
        known &= learnt[rows] == codes
        votes = _by_votes(history, reviews, rows[~known])
        again["again"] = int(known.sum())
    rows, codes = rows[~known], codes[~known]
    if not len(rows):
        return _Pinned(again, votes=votes)
    before, belief = now.label[rows], now.belief[rows].astype(np.float64)
    decided = Decided.answered(before, belief, codes)
    had, place = before != MISSING, rows + shard.start
    counts = again | {
        "items": len(rows),
        "flips": int(flipped(before, codes).sum()),
        "expected_flips": float((1 - belief[had]).sum()),
        "first_labels": int((~had).sum()),
        "dropped": int((now.proposed[rows] != MISSING).sum()),
    }
    moved = Total().moved(before, belief, decided).pins(int((~pinned[rows]).sum()))
    files = [] if dry_run else [write_rows(context, step, shard.number, place, None, decided)]
    return _Pinned(counts, moved, votes, fingerprint(place, codes), files)


def _settled(context: Context, shard: RowRange, rows: Rows, codes: Codes) -> tuple[Mask, Mask]:
    """Of which items these truths were given before, undone since or not; and for which a person
    has answered.
    """
    history, before = ShardHistory.read(context.ledger, *shard), np.zeros(len(rows), np.bool_)
    for header in context.headers:
        if header.gives_truth:
            before |= history.pins([header])[rows] == codes
    answers = [one for one in context.live_reviews if not one.gives_truth]
    return before, history.pins(answers)[rows] != MISSING


def _digest(given: Given, *, learn: bool, truth: bool) -> str:
    """Names the work: the same answers, whatever file they come in."""
    told = hashlib.sha256(b"learn" if learn else b"truth" if truth else b"")
    for part in (given.rows, given.answers):
        told.update(np.ascontiguousarray(part).tobytes())
    return told.hexdigest()[:12]


def _by_votes(history: ShardHistory, reviews: Sequence[Header], rows: Rows) -> Sums:
    """The beliefs in labels of items before people answered."""
    first = min((header.step for header in reviews), default=max(history.steps, default=0) + 1)
    then = history.before(first).current([], 0.0)
    return Sums.of(then.belief[rows][then.label[rows] != MISSING])


def _picked(own: Sums, every: Sums) -> str:
    """What to say where labels of some items were believed unlike those of all."""
    if not own.items or not every.items:
        return ""
    mean, usual = own.belief / own.items, every.belief / every.items
    spread = sqrt(max(0.0, every.squares / every.items - usual**2) / own.items)
    if abs(mean - usual) <= CLEAR * spread:
        return ""
    return (
        f"labels of these items were believed {mean:.2f} in the mean, those of all {usual:.2f}: "
        "they were picked, and models look on them as they do not on others. Beliefs that learn "
        "from many such answers are off; draw the items to learn from (--order random)"
    )


def _nothing(given: Given) -> str:
    if given.empty and not len(given.rows):
        return f"Nothing to do: none of {given.empty:,} rows has an answer yet."
    return "Nothing to do: these answers were given already."
