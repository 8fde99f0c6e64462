"""Keep a dataset's stored predictions up to date as models improve.

Families are namespaces (``rules.CostRatio``, ``selectors.Entropy``); the nouns used most are here.
"""

from posterity import beliefs, confusion, metrics, priors, replay, rules, selectors, votes
from posterity._version import __version__
from posterity.beliefs import Beliefs
from posterity.budget import Budget
from posterity.classes import Classes, ClassMap
from posterity.confusion import Confusion
from posterity.errors import PosterityError
from posterity.models import Model
from posterity.replay import Recording
from posterity.rules import CostRatio
from posterity.spending import Spending
from posterity.store import Store
from posterity.votes import SoftVotes

__all__ = [
    "Beliefs",
    "Budget",
    "ClassMap",
    "Classes",
    "Confusion",
    "CostRatio",
    "Model",
    "PosterityError",
    "Recording",
    "SoftVotes",
    "Spending",
    "Store",
    "__version__",
    "beliefs",
    "confusion",
    "metrics",
    "priors",
    "replay",
    "rules",
    "selectors",
    "votes",
]
