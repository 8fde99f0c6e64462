"""Keep a dataset's stored predictions up to date as models improve.

Families are namespaces (``rules.CostRatio``, ``selectors.Entropy``); the nouns used most are here.
All are loaded when they are first used: ``import posterity`` alone loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from posterity._version import __version__

if TYPE_CHECKING:
    from posterity import errors, replay
    from posterity.engine import executors
    from posterity.engine.evaluation.evaluate import Evaluation
    from posterity.engine.evaluation.plans import Plan
    from posterity.engine.evaluation.vote_file import VoteFile
    from posterity.engine.inspect.explanation import Explanation
    from posterity.engine.labelled.register import Registration
    from posterity.engine.ledger.reports import Report
    from posterity.errors import PosterityError
    from posterity.method import metrics
    from posterity.method.beliefs import confusion, fit, priors
    from posterity.method.beliefs import plain as beliefs
    from posterity.method.beliefs.confusion import Confusion
    from posterity.method.beliefs.plain import Beliefs
    from posterity.method.data import votes
    from posterity.method.data.classes import Classes, ClassMap
    from posterity.method.data.votes import SoftVotes
    from posterity.method.decide import rules, selectors
    from posterity.method.decide.budget import Budget, Spending
    from posterity.method.decide.rules import CostRatio
    from posterity.models import adapters
    from posterity.models.model import Model
    from posterity.replay import Recording
    from posterity.store import Store
    from posterity.web.report.summary import summary

_HOMES = {
    "Beliefs": "method.beliefs.plain",
    "Budget": "method.decide.budget",
    "ClassMap": "method.data.classes",
    "Classes": "method.data.classes",
    "Confusion": "method.beliefs.confusion",
    "CostRatio": "method.decide.rules",
    "Evaluation": "engine.evaluation.evaluate",
    "Explanation": "engine.inspect.explanation",
    "Model": "models.model",
    "Plan": "engine.evaluation.plans",
    "PosterityError": "errors",
    "Recording": "replay",
    "Registration": "engine.labelled.register",
    "Report": "engine.ledger.reports",
    "SoftVotes": "method.data.votes",
    "Spending": "method.decide.budget",
    "Store": "store",
    "VoteFile": "engine.evaluation.vote_file",
    "summary": "web.report.summary",
}
"""Where each name lives."""

_FAMILIES = {
    "adapters": "models.adapters",
    "beliefs": "method.beliefs.plain",
    "confusion": "method.beliefs.confusion",
    "errors": "errors",
    "executors": "engine.executors",
    "fit": "method.beliefs.fit",
    "metrics": "method.metrics",
    "priors": "method.beliefs.priors",
    "replay": "replay",
    "rules": "method.decide.rules",
    "selectors": "method.decide.selectors",
    "votes": "method.data.votes",
}
"""Namespaces."""

__all__ = [
    "Beliefs",
    "Budget",
    "ClassMap",
    "Classes",
    "Confusion",
    "CostRatio",
    "Evaluation",
    "Explanation",
    "Model",
    "Plan",
    "PosterityError",
    "Recording",
    "Registration",
    "Report",
    "SoftVotes",
    "Spending",
    "Store",
    "VoteFile",
    "__version__",
    "adapters",
    "beliefs",
    "confusion",
    "errors",
    "executors",
    "fit",
    "metrics",
    "priors",
    "replay",
    "rules",
    "selectors",
    "summary",
    "votes",
]


def __getattr__(name: str) -> Any:
    """Loads what is asked for, and what that needs."""
    if name in _FAMILIES:
        value = import_module(f"posterity.{_FAMILIES[name]}")
    elif name in _HOMES:
        value = getattr(import_module(f"posterity.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'posterity' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
