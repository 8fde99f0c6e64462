"""Keep a dataset's stored predictions up to date as models improve.

Families are namespaces (``rules.CostRatio``, ``selectors.Entropy``); the nouns used most are here.
All are loaded when they are first used: ``import posterity`` alone loads none of them.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from posterity._version import __version__ as __version__

if TYPE_CHECKING:
    from posterity import errors as errors
    from posterity import replay as replay
    from posterity.engine import executors as executors
    from posterity.engine.evaluation.evaluate import Evaluation as Evaluation
    from posterity.engine.evaluation.plans import Plan as Plan
    from posterity.engine.evaluation.vote_file import VoteFile as VoteFile
    from posterity.engine.inspect.explanation import Explanation as Explanation
    from posterity.engine.labelled.register import Registration as Registration
    from posterity.engine.ledger.reports import Report as Report
    from posterity.errors import PosterityError as PosterityError
    from posterity.method import metrics as metrics
    from posterity.method.beliefs import confusion as confusion
    from posterity.method.beliefs import fit as fit
    from posterity.method.beliefs import plain
    from posterity.method.beliefs import priors as priors
    from posterity.method.beliefs.confusion import Confusion as Confusion
    from posterity.method.beliefs.plain import Beliefs as Beliefs
    from posterity.method.data import votes as votes
    from posterity.method.data.classes import Classes as Classes
    from posterity.method.data.classes import ClassMap as ClassMap
    from posterity.method.data.votes import SoftVotes as SoftVotes
    from posterity.method.decide import rules as rules
    from posterity.method.decide import selectors as selectors
    from posterity.method.decide.budget import Budget as Budget
    from posterity.method.decide.budget import Spending as Spending
    from posterity.method.decide.rules import CostRatio as CostRatio
    from posterity.models import adapters as adapters
    from posterity.models.model import Model as Model
    from posterity.replay import Recording as Recording
    from posterity.store import Store as Store
    from posterity.web.report.summary import summary as summary

    beliefs = plain

logging.getLogger(__name__).addHandler(logging.NullHandler())
"""What a job may want to know is logged under ``posterity``, and shown only where handlers are."""

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

__all__ = sorted([*_HOMES, *_FAMILIES, "__version__"])


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
