"""A grid of walks over a recording: estimators × selectors × budgets × seeds, all rules at once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any, TypeVar

from posterity._progress import ShowProgress, progress_line
from posterity.errors import InvalidParameter, UnknownName
from posterity.method.adapt.adapt import NONE, Adapt, to_keep
from posterity.method.beliefs.confusion import estimate
from posterity.method.data.arrays import Floats
from posterity.method.data.spec import MOST_SEED, read_seed
from posterity.method.decide.budget import Budget, Spending, read_budget
from posterity.method.decide.defaults import (
    DEFAULT_BUDGET,
    DEFAULT_CONFUSION,
    DEFAULT_PRIOR,
    DEFAULT_RULE,
    DEFAULT_SELECTOR,
    DEPENDENT,
    PLAIN,
    check_beliefs,
)
from posterity.method.decide.policy import Goal, Policy
from posterity.method.decide.rules import Rule, among, refuse_ratio, traits
from posterity.method.decide.rules import parse as parse_rule
from posterity.method.decide.selectors import ByVotes, Selector
from posterity.method.decide.selectors import parse as parse_selector
from posterity.replay.recording import Recording, load
from posterity.replay.results import Results, Scores
from posterity.replay.split import (
    WEIGHED_BY,
    Parts,
    Split,
    check_order,
    from_source,
    read_prior,
    read_split,
    take_apart,
)
from posterity.replay.walk import Fitted, Step, fit, fit_temperatures, walk, walk_dependent
from posterity.validation.tune import PolicyTrack, Tuned
from posterity.validation.tune import tune as tune_history

HARD, SOFT, CALIBRATED = "hard", "soft", "calibrated"
VOTES = (HARD, SOFT, CALIBRATED)
"""Soft ones as recorded, as the paper has them, or with what the labelled set says of them."""

T = TypeVar("T")

Spent = Budget | Spending | float | str
"""A budget: of a step, or over time."""


def run(
    recording: Recording | str | Path,
    *,
    models: Sequence[str] | None = None,
    source: Recording | str | Path | None = None,
    split: Split | None = None,
    seed: int = 0,
    seeds: int = 1,
    order: str = "given",
    beliefs: str | None = None,
    confusion: str | Sequence[str] | None = None,
    prior: str | Floats | None = None,
    votes: str = HARD,
    adapt: Adapt = True,
    weigh: str | None = None,
    selector: str | Selector | Sequence[str | Selector] | None = None,
    budgets: Spent | Sequence[Spent] = DEFAULT_BUDGET,
    rules: str | Rule | Sequence[str | Rule] | None = None,
    tune: str | Sequence[str] = (),
    progress: ShowProgress = None,
) -> Results:
    """Replay a model sequence over a recording; every combination of the lists is one run.

    Beliefs are dependent unless asked to be plain, or something only plain ones have is asked for;
    ``adapt`` tells what of a target they follow: ``"difficulty"`` (if ``True``), ``"confusions"``,
    both, or nothing (``False``). ``weigh``: labelled items by the recordings' ``"groups"``, so that
    these are as frequent as in the target, or by the labelled recording's ``"weights"``.
    ``tune``: goals, for each of which the labelled set chooses selector and rule; see ``tune``.
    The labelled set is part of the recording (``split``) or all of another one (``source``).
    ``seeds`` repeats everything with the seeds ``seed``, ``seed + 1``, …: each shuffles its own
    split and draws its own random selections. The truth is hidden from everything but the
    metrics and the oracle.
    """
    # All options are read before the first walk, so that no mistake shows only hours later.
    if beliefs is None:  # what only plain ones have asks for them
        beliefs = PLAIN if confusion is not None else DEPENDENT
    dependent = check_beliefs(beliefs, prior) == DEPENDENT
    if dependent and confusion is not None:
        raise InvalidParameter(
            "Dependent beliefs learn how models err by themselves; 'confusion' is for plain ones.",
            hint="Leave it out, or choose the beliefs 'plain'.",
        )
    prior = DEFAULT_PRIOR[beliefs] if prior is None else prior
    rules = DEFAULT_RULE[beliefs] if rules is None else rules
    if selector is None:
        selector = DEFAULT_SELECTOR[beliefs]
    settings = Settings(
        dependent=dependent,
        estimators=list(_read_each("confusion", confusion or DEFAULT_CONFUSION, estimate)),
        prior=prior,
        votes=votes,
        order=order,
        adapt=to_keep(adapt, dependent=dependent),
        weigh=weigh,
        selectors=_read_each("selector", selector, parse_selector),
        budgets=list(_read_each("budgets", budgets, read_budget).values()),
        rules=_read_each("rules", rules, parse_rule),
        goals=_read_each("tune", tune, Goal.parse) if tune else {},
    )
    first = read_seed(seed, "seed")
    if type(seeds) is not int or not 1 <= seeds <= MOST_SEED - first + 1:
        raise InvalidParameter.of("seeds", "at least 1", seeds)
    replayed = load(recording)
    if models is not None:
        replayed = replayed.pick(_listed_models(models))
    deciding = {name: among(rule, replayed.classes) for name, rule in settings.rules.items()}
    taken_from = None if source is None else load(source, "source")
    if taken_from is not None and split is not None:
        raise InvalidParameter(
            "The labelled set comes from 'source' or from 'split', not from both."
        )
    share = read_split(split, replayed) if taken_from is None else None

    results = Results()
    # Under dependent beliefs what is chosen depends on the rule: a walk of its own for each.
    together = [[rule] for rule in deciding] if dependent else [list(deciding)]
    kinds: list[str | None] = [None] if dependent else [*settings.estimators]
    grid = list(product(kinds, settings.selectors.items(), settings.budgets, together))
    tunings = list(product(settings.goals.items(), settings.even_budgets))
    done, total = count(1), seeds * (len(grid) + len(tunings)) * len(replayed.models)
    with progress_line(progress, "Replaying", "steps") as report:
        for draw in range(first, first + seeds):
            if taken_from is None:
                parts = take_apart(replayed, share or 1.0, seed=draw)
            else:
                parts = from_source(taken_from, replayed)
            parts = parts.weighed(weigh).in_order(order)
            _check_shares(settings.budgets, len(parts.target))
            walks = _walks(parts, settings)
            for kind, (choice, by), budget, named in grid:
                scores, clock = Scores(parts.target.truth, len(named)), time.perf_counter()
                decided_by = [deciding[rule] for rule in named]
                for step in walks[kind](selector=by, budget=budget, rules=decided_by, seed=draw):
                    scores.add(step)
                    if report:
                        report(next(done), total)
                seconds = time.perf_counter() - clock
                setting = {
                    "recording": replayed.name,
                    "source": None if taken_from is None else taken_from.name,
                    "models": list(parts.target.models),
                    "order": order,
                    "split": share,
                    "seed": draw,
                    "beliefs": beliefs,
                    "confusion": kind,
                    "prior": prior if isinstance(prior, str) else "given",
                    "votes": votes,
                    "adapt": (",".join(settings.adapt) or NONE) if dependent else None,
                    "weigh": weigh,
                    "selector": choice,
                    **_spent(budget, len(parts.target)),
                }
                for rule, scored in zip(named, scores.by_rule, strict=True):
                    results.add(setting | {"rule": rule}, scored, seconds)
            tracks = defaultdict[str, dict[str, PolicyTrack]](dict)  # goals have policies in common
            for (goal, wanted), budget in tunings:
                scores, clock = Scores(parts.target.truth, 1), time.perf_counter()
                known = tracks[str(budget)]
                chosen = tuned(walks[None], wanted, budget, len(parts.target), known).chosen
                how = parse_selector(chosen.selector), [parse_rule(chosen.rule)]
                for step in walks[None](selector=how[0], rules=how[1], budget=budget, seed=draw):
                    scores.add(step)
                    if report:
                        report(next(done), total)
                told = setting | {"selector": chosen.selector, **_spent(budget, len(parts.target))}
                rule = f"{chosen.rule} (tuned: {goal})"
                results.add(told | {"rule": rule}, scores.by_rule[0], time.perf_counter() - clock)
    return results


def tuned(
    walked: Walk,
    goal: Goal,
    budget: Budget,
    items: int,
    known: dict[str, PolicyTrack] | None = None,
) -> Tuned:
    """The policy that serves a goal best on the labelled set; ``known``: those already tried."""
    fitted: Fitted = walked.args[1]
    share = budget.share(items)
    usual = Policy(parse_selector(DEFAULT_SELECTOR[DEPENDENT]), parse_rule(DEFAULT_RULE[DEPENDENT]))
    truth, history = fitted.labelled.truth, fitted.history(min(1.0, share))
    return tune_history(
        truth, fitted.prior, history, goal=goal, current=usual, items=items, known=known
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a recording is replayed; each of the lists may hold several, by the names they have."""

    dependent: bool
    estimators: list[str]
    prior: str | Floats
    votes: str
    order: str
    adapt: list[str]
    weigh: str | None
    selectors: dict[str, Selector]
    budgets: list[Budget | Spending]
    rules: dict[str, Rule]
    goals: dict[str, Goal]

    def __post_init__(self) -> None:
        _among("kind of votes", self.votes, VOTES)
        check_order(self.order)
        if self.weigh is not None:
            _among("array to weigh by", self.weigh, WEIGHED_BY)
        for rule in self.rules.values():
            refuse_ratio(rule)
        if self.goals and len(self.even_budgets) < len(self.budgets):
            raise InvalidParameter(
                "Policies cannot be tuned for a budget over time, which they would change.",
                hint="Choose a budget for each step, as in 10%.",
            )
        if not self.dependent:
            self._check_plain()

    @property
    def even_budgets(self) -> list[Budget]:
        """Those that are the same for each step."""
        return [budget for budget in self.budgets if isinstance(budget, Budget)]

    def _check_plain(self) -> None:
        """Plain beliefs tell neither what a vote could change nor what a step would bring."""
        for goal in self.goals:
            raise InvalidParameter(
                f"The goal '{goal}' needs dependent beliefs, rehearsed on the labelled set.",
                hint="Choose the beliefs 'dependent', or a rule.",
            )
        for by in self.selectors.values():
            if isinstance(by, ByVotes):
                raise InvalidParameter(
                    f"The selector '{by}' needs dependent beliefs: they tell how models err "
                    "together.",
                    hint="Choose the beliefs 'dependent', or another selector.",
                )
        for budget in self.budgets:
            if isinstance(budget, Spending):
                raise InvalidParameter(
                    f"The budget '{budget}' needs dependent beliefs, rehearsed on the labelled "
                    "set.",
                    hint="Choose the beliefs 'dependent', or a budget for each step.",
                )
        for rule in self.rules.values():
            if traits(rule).rehearsed:
                raise InvalidParameter(
                    f"The rule '{rule}' needs dependent beliefs, rehearsed on the labelled set.",
                    hint="Choose the beliefs 'dependent', or another rule.",
                )


Walk = partial[Iterator[Step]]


def _walks(parts: Parts, settings: Settings) -> dict[str | None, Walk]:
    """A walk for each kind of confusions, or that of dependent beliefs; all is learnt by now."""
    labelled, prior, soft = parts.labelled, settings.prior, settings.votes != HARD
    weights = read_prior(prior, labelled)
    if settings.dependent:
        learnt = prior if isinstance(prior, str) else None
        fitted = Fitted(labelled, weights, soft=soft, learnt=learnt)
        return {None: partial(walk_dependent, parts.target, fitted, adapt=settings.adapt)}
    temperatures = fit_temperatures(labelled) if settings.votes == CALIBRATED else []
    plainly = partial(walk, prior=weights, soft=soft, temperatures=temperatures)
    return {
        kind: partial(plainly, parts.target, fit(labelled, kind)) for kind in settings.estimators
    }


def _among(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise UnknownName.among(what, str(given), known)


def _read_each(name: str, given: Any, read: Callable[[Any], T]) -> dict[str, T]:
    """One value or many, read and named as they were written; what means the same is kept once."""
    single = isinstance(given, (str, Budget, Spending)) or not isinstance(given, Iterable)
    listed = [given] if single else list(given)
    if not listed:
        raise InvalidParameter.of(name, "at least one", listed)
    kept: dict[str, T] = {}
    for value in listed:
        parsed = read(value)
        if parsed not in kept.values():
            kept[str(value)] = parsed
    return kept


def _listed_models(models: Any) -> list[str]:
    listed = [models] if isinstance(models, str) else list(models)
    if not listed or len(set(listed)) < len(listed):
        raise InvalidParameter.of("models", "at least one, and each only once", listed)
    return listed


def _spent(budget: Budget | Spending, items: int) -> dict[str, float | str | None]:
    """How rows tell it."""
    if isinstance(budget, Spending):
        return {"budget": None, "spending": str(budget)}
    return {"budget": budget.share(items), "spending": None}


def _check_shares(budgets: Iterable[Budget | Spending], items: int) -> None:
    """Rows tell budgets apart by their share of the target, so no two may have the same."""
    seen: dict[float, Budget] = {}
    for budget in budgets:
        if isinstance(budget, Spending):
            continue
        other = seen.setdefault(budget.share(items), budget)
        if other is not budget:
            raise InvalidParameter(
                f"The budgets {other} and {budget} are the same share of {items} items.",
                hint="Replay them one at a time.",
            )
