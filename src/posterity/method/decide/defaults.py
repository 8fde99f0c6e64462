"""Defaults: what stores and replays use where nothing else is asked for."""

from __future__ import annotations

from posterity.errors import InvalidParameter, UnknownName
from posterity.method.beliefs import priors

DEPENDENT, PLAIN = "dependent", "plain"
DEFAULT_CONFUSION = "full"
DEFAULT_SELECTOR = {DEPENDENT: "value", PLAIN: "entropy"}
"""By the kind of beliefs."""
DEFAULT_BUDGET = "10%"
DEFAULT_RULE = {DEPENDENT: "balanced:80%", PLAIN: "cost-ratio:10"}
"""By the kind of beliefs: plain ones are too sure of themselves for a low ratio."""
DEFAULT_PRIOR = {DEPENDENT: priors.ESTIMATED, PLAIN: priors.UNIFORM}
"""By the kind of beliefs: plain ones are the paper's."""


def check_beliefs(name: str, prior: object = None) -> str:
    """A kind of beliefs; refuses one that does not exist, or that cannot have the prior."""
    if name not in (DEPENDENT, PLAIN):
        raise UnknownName.among("kind of beliefs", str(name), (DEPENDENT, PLAIN))
    if name == PLAIN and isinstance(prior, str) and prior == priors.ESTIMATED:
        raise InvalidParameter(
            "The prior 'estimated' needs dependent beliefs.",
            hint="Choose the beliefs 'dependent', or another prior.",
        )
    return name
