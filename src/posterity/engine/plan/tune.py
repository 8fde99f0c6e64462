"""Tune: which policy serves a goal best on a store's labelled items, and making it the store's."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posterity._text import Progress
from posterity._version import __version__
from posterity.engine.labelled.rehearse import Prepared, made_of, voters
from posterity.engine.ledger.commit import attempts
from posterity.engine.ledger.context import Context
from posterity.engine.ledger.publish import make_step, publish_labels
from posterity.engine.ledger.reports import still_expected
from posterity.engine.ledger.steps import TUNE
from posterity.engine.ledger.totals import total_of, undecided
from posterity.engine.plan.compare import eligible_items
from posterity.engine.plan.prospects import arriving as still_arriving
from posterity.errors import CommitConflict, InvalidData, InvalidParameter
from posterity.method.data.row_sets import packed, unpacked
from posterity.method.decide.budget import Budget
from posterity.method.decide.defaults import DEFAULT_BUDGET
from posterity.method.decide.policy import Goal
from posterity.storage.cache import cache_folder, read_cache, write_cache
from posterity.validation.tune import PolicyTrack, Tuned, chosen, compared
from posterity.validation.tune import tune as tune_history

FORMAT = 1
"""Of the file they are kept in."""
FIGURES = ("right", "fixed", "broken")


def tune(
    context: Context,
    model: str | None = None,
    *,
    goal: Goal | str | None = None,
    budget: Budget | float | str | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """The steps so far and the next one on the labelled items, under many policies.

    ``model``: whose step is next, by default the newest that could look at items; ``budget``: of
    that step.
    """
    live, wanted = context.live_updates, Goal.parse("balance" if goal is None else goal)
    if not live:
        raise InvalidData(
            "There is no label yet, so there is no policy to compare.",
            hint="Give the items their first labels with `posterity update` or `import`.",
        )
    if model is None:
        known = (name for name in still_arriving(context) if not context.models[name].pending)
        model = next(known, None)
    elif context.model(model).pending:
        raise InvalidData(
            f"'{model}' has not voted on its labelled items yet, so how it errs is not known.",
            hint=f"Run `posterity update STORE {model}` first.",
        )
    eligible = 0 if model is None else eligible_items(context, model)
    share = None
    if eligible:
        spent = Budget.of(DEFAULT_BUDGET if budget is None else budget)
        share = spent.evaluations(eligible) / max(1, undecided(context))
    elif budget is not None:
        raise InvalidParameter(
            "No model can vote on more items, so there is no next step to give a budget.",
            hint="Leave out the budget, or register another model and let it vote on its labelled "
            "items.",
        )
    arriving, current = live[-1].voter if model is None else model, context.policy
    tracks = Tracks(context, arriving, share)
    if all(str(policy) in tracks.known for policy in compared(wanted, current)):
        found = chosen(wanted, current, tracks.known)
    else:
        prepared = Prepared(context, arriving)
        if not prepared.dependent:
            raise InvalidData(
                "Policies cannot be compared: the store's models have too few labelled items in "
                "common, labelled votes without ids, or a stated confusion."
            )
        truth, prior, history = prepared.history(share)
        try:
            found = tune_history(
                truth,
                prior,
                history,
                goal=wanted,
                current=current,
                items=undecided(context),
                known=tracks.known,
                progress=progress,
            )
        finally:
            tracks.keep()  # also what was tried before it was interrupted
    found = replace(found, head=context.head)
    if found.chosen == found.current:
        return found
    return replace(found, note="`--apply` makes it the store's policy for later plans and updates")


def apply(context: Context, found: Tuned) -> Tuned:
    """Make the choice the store's policy, by a step of its own; nothing else changes.

    It was chosen for the steps that were there: after another one it may be another choice.
    """
    for now in attempts(context):
        chosen, policy = found.chosen, now.policy
        if (chosen.selector, chosen.rule) == (str(policy.selector), str(policy.rule)):
            publish_labels(now)  # killed after its commit, it may have been left undone
            return replace(found, note="Nothing to do: it is the store's policy.")
        if now.head != found.head:
            raise CommitConflict(
                f"Step {now.head} was made after this choice, which has read step {found.head}; "
                "the store's policy is as it was.",
                hint="Run `posterity tune` again.",
            )
        with suppress(CommitConflict):
            return _apply(now, found)
    raise CommitConflict("The store changes too often; its policy is as it was.")


def _apply(context: Context, found: Tuned) -> Tuned:
    chosen, told = found.chosen, found.to_dict()
    report = {name: told[name] for name in ("goal", "steps", "chosen", "current", "crossed")}
    report |= still_expected(context)
    report["held"] = total_of(context).to_dict()
    step = context.head + 1
    make_step(context, TUNE, [], report, selector=chosen.selector, rule=chosen.rule)
    note = (
        f"step {step}: plans and updates now follow it; `posterity revert STORE {step}` undoes it"
    )
    return replace(found, step=step, note=note)


class Tracks:
    """What policies did with one history and next step, kept outside the store between calls.

    It depends on the files of the ledger, the models and the labelled votes, on the next step and
    on the version of this software. Where any of these is another one, it is made anew.
    """

    def __init__(self, context: Context, arriving: str, share: float | None) -> None:
        """``share``: of the items the arriving model would look at; None: it has had its step."""
        models, prior = voters(context, arriving), context.fits.now(arriving).prior
        # Models that have voted before have the same history, and another next step.
        about = [FORMAT, __version__, undecided(context), arriving, share]
        parts = [*about, *made_of(context, models, prior)]
        self._whose = hashlib.sha256(repr(parts).encode()).hexdigest()
        folder = cache_folder(context.description.store)
        self._path: Path | None = None if folder is None else folder / "tune.cache"
        self.known: dict[str, PolicyTrack] = {}
        """By the policy, as it is written."""
        self._read()
        self._kept = len(self.known)

    def keep(self) -> None:
        """Write those that are known by now."""
        if self._path is None or len(self.known) == self._kept:
            return
        arrays: dict[str, NDArray[Any]] = {}
        for at, track in enumerate(self.known.values()):
            arrays |= {f"{name}-{at}": getattr(track, name) for name in FIGURES}
            arrays |= {f"items-{at}": track.items, f"last-{at}": packed(track.last)}
        write_cache(self._path, {"whose": self._whose, "policies": [*self.known]}, arrays)

    def _read(self) -> None:
        cached = None if self._path is None else read_cache(self._path)
        if cached is None or cached.about.get("whose") != self._whose:
            return
        for at, policy in enumerate(cached.about["policies"]):
            right, fixed, broken = (
                cached.arrays[f"{name}-{at}"].reshape(-1, 2) for name in FIGURES
            )
            items = np.array(cached.arrays[f"items-{at}"])
            last = unpacked(cached.arrays[f"last-{at}"], int(items.sum()))
            self.known[policy] = PolicyTrack(right, fixed, broken, items, last)
