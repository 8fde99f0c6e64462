"""A grid of walks over a recording: estimators × selectors × budgets × seeds, all rules at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from posterity._arrays import Floats
from posterity.budget import Budget
from posterity.confusion import estimate
from posterity.errors import InvalidParameter, UnknownName
from posterity.replay.recording import Recording
from posterity.replay.results import Results
from posterity.replay.scores import Scores
from posterity.replay.split import Parts, Split, from_source, read_prior, read_split, take_apart
from posterity.replay.walk import fit, walk
from posterity.rules import Rule
from posterity.rules import parse as parse_rule
from posterity.selectors import Selector
from posterity.selectors import parse as parse_selector

BELIEFS = ("plain",)
VOTES = ("hard", "soft")

DEFAULT_CONFUSION = "full"
DEFAULT_SELECTOR = "entropy"
DEFAULT_BUDGET = "10%"
DEFAULT_RULE = "cost-ratio:10"

Progress = Callable[[int, int], None]
"""Called with the steps done and the steps in all."""


@dataclass(frozen=True)
class Experiment:
    """What to replay, checked; ``run`` below is the way in."""

    recording: Recording
    source: Recording | None
    split: Split | None
    seeds: Sequence[int]
    order: str
    beliefs: str
    confusions: Sequence[str]
    prior: str | Floats
    votes: str
    selectors: Sequence[str | Selector]
    budgets: Sequence[Budget]
    rules: Sequence[str | Rule]
    _parsed_rules: list[Rule] = field(init=False)

    def __post_init__(self) -> None:
        for name, given, allowed in (
            ("beliefs", self.beliefs, BELIEFS),
            ("votes", self.votes, VOTES),
        ):
            if given not in allowed:
                raise UnknownName.among(name, given, allowed)
        for name in ("seeds", "confusions", "selectors", "budgets", "rules"):
            if not len(getattr(self, name)):
                raise InvalidParameter.of(name, "at least one", [])
        for estimator in self.confusions:
            estimate(estimator)
        object.__setattr__(self, "_parsed_rules", [parse_rule(rule) for rule in self.rules])

    def run(self, progress: Progress | None = None) -> Results:
        """All walks, one after the other."""
        results = Results()
        grid = len(self.seeds) * len(self.confusions) * len(self.selectors) * len(self.budgets)
        total, done = grid * len(self.recording.models), 0
        for seed in self.seeds:
            parts = self._parts(seed).in_order(self.order)
            prior = read_prior(self.prior, parts.labelled)
            for estimator in self.confusions:
                fitted = fit(parts.labelled, estimator)
                for selector in self.selectors:
                    for budget in self.budgets:
                        scores = Scores(parts.target.truth, len(self.rules))
                        clock = time.perf_counter()
                        for step in walk(
                            parts.target,
                            fitted,
                            prior=prior,
                            selector=parse_selector(selector),
                            budget=budget,
                            rules=self._parsed_rules,
                            soft=self.votes == "soft",
                            seed=seed,
                        ):
                            scores.add(step)
                            done += 1
                            if progress:
                                progress(done, total)
                        seconds = time.perf_counter() - clock
                        setting = self._describe(parts, seed, estimator, selector, budget)
                        for rule, of_rule in zip(self.rules, scores.by_rule, strict=True):
                            results.add(setting | {"rule": str(rule)}, of_rule, seconds)
        return results

    def _parts(self, seed: int) -> Parts:
        if self.source is not None:
            return from_source(self.source, self.recording)
        return take_apart(self.recording, read_split(self.split, self.recording), seed=seed)

    def _describe(
        self,
        parts: Parts,
        seed: int,
        estimator: str,
        selector: str | Selector,
        budget: Budget,
    ) -> dict[str, Any]:
        return {
            "recording": self.recording.name,
            "source": None if self.source is None else self.source.name,
            "models": list(parts.target.models),
            "order": self.order,
            "split": None if self.source is not None else read_split(self.split, self.recording),
            "seed": seed,
            "beliefs": self.beliefs,
            "confusion": estimator,
            "prior": self.prior if isinstance(self.prior, str) else "given",
            "votes": self.votes,
            "selector": str(selector),
            "budget": budget.share(len(parts.target)),
        }


def run(
    recording: Recording,
    *,
    models: Sequence[str] | None = None,
    source: Recording | None = None,
    split: Split | None = None,
    seed: int = 0,
    seeds: int = 1,
    order: str = "given",
    beliefs: str = BELIEFS[0],
    confusion: str | Sequence[str] = DEFAULT_CONFUSION,
    prior: str | Floats = "uniform",
    votes: str = VOTES[0],
    selector: str | Selector | Sequence[str | Selector] = DEFAULT_SELECTOR,
    budgets: Budget | float | str | Sequence[Budget | float | str] = DEFAULT_BUDGET,
    rules: str | Rule | Sequence[str | Rule] = DEFAULT_RULE,
    progress: Progress | None = None,
) -> Results:
    """Replay a model sequence over a recording; every combination of the lists is one run.

    The labelled set is part of the recording (``split``) or all of another one (``source``).
    ``seeds`` repeats everything with the seeds ``seed``, ``seed + 1``, …: each shuffles its own
    split and draws its own random selections. The truth is hidden from everything but the
    metrics and the oracle.
    """
    if models is not None and not models:
        raise InvalidParameter.of("models", "at least one", [])
    if seeds < 1:
        raise InvalidParameter.of("seeds", "at least 1", seeds)
    if seed < 0:
        raise InvalidParameter.of("seed", "a whole number ≥ 0", seed)
    if source is not None and split is not None:
        raise InvalidParameter(
            "The labelled set comes from 'source' or from 'split', not from both."
        )
    return Experiment(
        recording=recording if models is None else recording.pick(models),
        source=source,
        split=split,
        seeds=range(seed, seed + seeds),
        order=order,
        beliefs=beliefs,
        confusions=_listed(confusion),
        prior=prior,
        votes=votes,
        selectors=_listed(selector),
        budgets=[Budget.of(budget) for budget in _listed(budgets)],
        rules=_listed(rules),
    ).run(progress)


def _listed(given: Any) -> list[Any]:
    """One value or many, as a list: strings and family members are single values."""
    return list(given) if isinstance(given, (list, tuple)) else [given]
