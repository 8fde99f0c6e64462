"""Explain: why an item's label moved or did not; the words are in ``explanation``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from posterity.engine.inspect.explanation import (
    KEPT,
    TINY,
    DecisiveVote,
    ExplainedDecision,
    Explanation,
    Weighed,
    in_share,
    in_times,
)
from posterity.engine.items.lookup import find_rows, id_array
from posterity.engine.ledger import decide
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.decide import StepPolicy
from posterity.engine.ledger.history import Current, ShardHistory, parts_of, votes_until
from posterity.engine.ledger.steps import Header, live_reviews, reason
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.spec import plain_number
from posterity.method.data.votes import MISSING, ModelVotes
from posterity.method.decide.defaults import DEPENDENT
from posterity.method.decide.rules import (
    Balanced,
    CostRatio,
    MaxBelief,
    Rule,
    TwoVotes,
    inner,
    traits,
)


def explain(context: Context, item: str | int, row: int | None = None) -> Explanation:
    """Why an item has its label: its votes, what each step made of them, and what could come.

    ``row``: its row, where that is known; else it is looked up.
    """
    if row is None:
        (row,) = find_rows(context, id_array([item])).tolist()
    shard = row // context.description.shard_rows
    history = ShardHistory.of_row(context.ledger, shard, row)
    now = history.current([], 0.0)
    live = context.live_updates
    cast = history.votes_of(np.zeros(1, np.int64), live)
    own = [at for at, one in enumerate(cast) if one.hard[0] != MISSING]
    parts = parts_of(context, live)
    steps, votes = [parts[at] for at in own], [cast[at] for at in own]
    names = _Names(context)
    label = int(now.label[0])
    every = [_decided(context, history, header, names) for header in context.headers]
    decisions = [one for one in every if one is not None]
    review = _review(context.headers, history)
    pinned = None if review is None else review.step
    truth_of = None if review is None else review.model
    if label == MISSING or not steps:
        told = (names(label), float(now.belief[0]), None, 0.0, None, None)
        return Explanation(item, *told, [], decisions, [], [], [], pinned, truth_of)
    last = steps[-1]
    believed = _beliefs(last, steps, votes)
    rival = _rival(believed, label)
    against = _odds(believed, label, rival)
    weighed = []
    for at, header in enumerate(live[one] for one in own):
        others = [*steps[:at], *steps[at + 1 :]], [*votes[:at], *votes[at + 1 :]]
        without = _odds(_beliefs(last, *others), label, rival)
        weighed.append(
            Weighed(header.step, header.voter, names(votes[at].hard[0]), against / without)
        )
    newest = StepPolicy(
        last.model, last.rule, parts[-1].fit
    )  # what a next vote could be weighed by
    silent, unplanned = _silent(context, newest, steps) if pinned is None else ([], [])
    return Explanation(
        id=item,
        label=names(label),
        belief=float(now.belief[0]),
        rival=names(rival),
        belief_rival=float(believed[rival]),
        proposed=names(now.proposed[0]),
        rule=str(last.rule),
        votes=weighed,
        decisions=decisions,
        silent=silent,
        unplanned=unplanned,
        changes=_changes(silent, newest, steps, votes, now, believed, names),
        pinned=pinned,
        truth_of=truth_of,
        alike={names(code): many for code, many in _alike(steps, votes)},
    )


def _alike(steps: Sequence[StepPolicy], votes: Sequence[ModelVotes]) -> list[tuple[int, int]]:
    """True classes of labelled items with the same votes, and how many; the most frequent first."""
    fit = steps[-1].fit
    if fit.beliefs != DEPENDENT:
        return []
    who = np.array(fit.who([step.model for step in steps]))
    known = who >= 0  # not of a model that arrived later, whose votes a revert brought back
    cast = np.array([each.hard[0] for each in votes])
    found = fit.dependence.patterns.alike(cast[known], who[known])
    return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))


def _review(headers: Sequence[Header], history: ShardHistory) -> Header | None:
    """The review that decided the label; None: none did."""
    answered = [header for header in live_reviews(headers) if header.step in history.steps]
    return answered[-1] if answered else None


class _Names:
    """Names of classes by their codes; nothing for no class."""

    def __init__(self, context: Context) -> None:
        self._names = context.classes.names

    def __call__(self, code: int) -> Any:
        return None if code == MISSING else self._names[int(code)]


def _decided(
    context: Context,
    history: ShardHistory,
    header: Header,
    names: _Names,
) -> ExplainedDecision | None:
    """What a step made of the item, with the votes that counted then; None: nothing."""
    if header.step not in history.steps:
        return None
    written = history.steps[header.step]
    was = history.before(header.step).current([], 0.0)
    before, after, vote = int(was.label[0]), int(written.label[0]), int(written.vote[0])
    counts = header.step not in context.undone
    common = {
        "step": header.step,
        "kind": header.kind,
        "model": header.model,
        "rule": header.rule,
        "vote": names(vote),
        "before": names(before),
        "after": names(after),
        "counts": counts,
    }
    moved = f": {names(before)} → {names(after)}" if before != after else ""
    if vote == MISSING:
        return ExplainedDecision(**common, why=reason(header, voted=False) + moved)
    steps, votes = votes_until(context, history, header.step)
    believed = _beliefs(steps[-1], steps, votes)
    earlier = _beliefs(steps[-1], steps[:-1], votes[:-1])
    best = _best(steps, votes, was.label)
    numbers = {
        "best": names(best),
        "belief_before": None if before == MISSING else float(earlier[before]),
        "belief_label": None if before == MISSING else float(believed[before]),
        "belief_best": float(believed[best]),
    }
    if before == MISSING:
        why = f"{header.model} says {names(vote)}: the first vote is the label"
        return ExplainedDecision(**common, **numbers, why=why)
    review = _review([one for one in context.headers if one.step < header.step], history)
    if review is not None:
        decided = "its truth is known" if review.gives_truth else "a person has decided"
        why = f"{header.model} says {names(vote)}; {decided}: {names(before)} stays"
        return ExplainedDecision(**common, **numbers, why=why)
    outcome = f"{names(before)} stays"
    if written.proposed[0] != MISSING:
        outcome = f"{names(written.proposed[0])} is proposed, {names(before)} stays for now"
    elif before != after:
        outcome = f"{names(before)} becomes {names(after)}"
    compared = _compared(steps[-1].rule, steps, votes, believed, before, best, names)
    change = f"belief in {names(before)} {in_share(earlier[before])} → {in_share(believed[before])}"
    why = f"{header.model} says {names(vote)}, {change}; {compared}: {outcome}"
    return ExplainedDecision(**common, **numbers, why=why)


def _compared(
    rule: Rule,
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    believed: Floats,
    label: int,
    best: int,
    names: _Names,
) -> str:
    """What the rule looked at, in words."""
    asked = inner(rule)
    uses = traits(asked).uses
    if "majority" in uses:
        counted = Counter(int(cast.hard[0]) for cast in votes)
        told = ", ".join(f"{names(code)} {times}" for code, times in counted.most_common())
        return f"votes so far: {told}"
    if "best" not in uses:
        return f"{rule} takes the new vote"
    if best == label:
        return f"{names(label)} is believed most"
    times = f"{names(best)} is believed {in_times(believed[best], believed[label])} as much"
    if isinstance(asked, Balanced) and not any(cast.hard[0] == best for cast in votes):
        return f"{times}, but no model voted for it"
    if "entropy_before" in uses:
        before, after = (
            _entropy(_beliefs(steps[-1], steps[:some], votes[:some]))
            for some in (len(steps) - 1, len(steps))
        )
        return f"{times}, and the entropy went from {before:.3g} to {after:.3g}"
    threshold = traits(asked).threshold(label)
    if threshold is None:
        return f"{times}, and {rule} asks for two votes" if isinstance(rule, TwoVotes) else times
    if isinstance(asked, CostRatio) and asked.neutral:
        rest = 1 - believed[best] - believed[label]
        worth = believed[best] - threshold * believed[label] - asked.neutral * rest
        return f"{times}, which {rule} values at {worth:+.3g}; it asks for more than 0"
    two = " and two votes" if isinstance(rule, TwoVotes) else ""
    return f"{times}, and {rule} asks for more than {plain_number(threshold)} times{two}"


def _changes(
    silent: Sequence[str],
    newest: StepPolicy,
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    now: Current,
    believed: Floats,
    names: _Names,
) -> list[DecisiveVote]:
    """The votes that would move the label, of the models that could vote; likely ones first."""
    label, pending, found = now.label, now.proposed, []
    each = np.argsort(-believed, kind="stable").astype(np.int32)
    same = np.zeros(len(each), dtype=np.int64)
    for name in silent:
        then = [*steps, StepPolicy(name, newest.rule, newest.fit)]
        cast = [*(one[same] for one in votes), ModelVotes(each)]
        decided = decide.decide_last(then, cast, label[same], pending[same])
        waits = decided.proposed != MISSING
        becomes = np.where(waits, decided.proposed, decided.after)
        for at in np.flatnonzero(becomes != label[0])[:KEPT].tolist():
            told = names(int(each[at])), names(int(becomes[at]))
            found.append(DecisiveVote(name, *told, bool(waits[at])))
    return found


def _silent(
    context: Context, last: StepPolicy, steps: Sequence[StepPolicy]
) -> tuple[list[str], list[str]]:
    """Models without a vote on the item: those the last fit could weigh, and others."""
    voted = {step.model for step in steps}
    waiting = [name for name in context.models if name not in voted]
    known = last.fit.order if last.fit.beliefs == DEPENDENT else waiting
    weighed = [name for name in waiting if name in known and not context.models[name].pending]
    return weighed, [name for name in waiting if name not in weighed]


def _beliefs(last: StepPolicy, steps: Sequence[StepPolicy], votes: Sequence[ModelVotes]) -> Floats:
    """In each class, as the last step's fit has it."""
    if not steps:
        dependent = last.fit.beliefs == DEPENDENT
        return last.fit.dependence.prior if dependent else last.fit.prior
    found: Floats = decide.all_beliefs(last.fit, steps, votes, 1)[0]
    return found


def _best(steps: Sequence[StepPolicy], votes: Sequence[ModelVotes], label: Codes) -> int:
    """The most believed class, which a rule compares with the label."""
    undecided = [*steps[:-1], StepPolicy(steps[-1].model, MaxBelief(), steps[-1].fit)]
    return int(decide.decide_last(undecided, votes, label).best[0])


def _rival(believed: Floats, label: int) -> int:
    others = believed.copy()
    others[label] = -1.0
    return int(others.argmax())


def _odds(believed: Floats, label: int, rival: int) -> float:
    return float(max(believed[label], TINY) / max(believed[rival], TINY))


def _entropy(believed: Floats) -> float:
    possible = believed[believed > 0]
    return -float((possible * np.log(possible)).sum())
