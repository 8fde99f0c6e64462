"""The policy of a step for which nobody has asked for another one."""

from __future__ import annotations

from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context
from posterity.method.decide.policy import Policy


def policy_for(context: Context, model: str) -> Policy:
    """What a model's step follows where nothing else is asked for.

    A policy that was tuned is one for beliefs that are checked on the labelled items. Where the
    model's step cannot have them, it is that of an untuned store, which is cautious then.
    """
    tuned, registered = context.policy != context.untuned, context.models.get(model)
    if tuned and registered is not None and not registered.pending:
        return context.policy if Prepared(context, model).dependent else context.untuned
    return context.policy
