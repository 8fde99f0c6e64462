"""Worth: what a person's answer about an item brings, and the orders to ask in.

An answer makes a label right. So it corrects as many labels, in the mean, as the label is likely
to be wrong: 1 − p(l). A flip that was held back because it is costly needs no rule of its own:
there the stored label is believed little. One that is pending will be made for nothing, so there l
is the class proposed.
"""

from __future__ import annotations

import numpy as np

from posterity._arrays import Floats, Rows
from posterity.errors import UnknownName
from posterity.selectors import Candidates, Random
from posterity.selectors import parse as parse_selector
from posterity.specs import Spec

WORTH, ENTROPY, RANDOM = "worth", "entropy", "random"
ORDERS = (WORTH, ENTROPY, RANDOM)


def of_answers(belief: Floats) -> Floats:
    """Labels an answer corrects, in the mean, where the label is believed so much.

    >>> of_answers(np.array([0.25, 1.0]))
    array([0.75, 0.  ])
    """
    return np.asarray(1.0 - np.asarray(belief, dtype=np.float64))


def scores(order: str, *, belief: Floats, entropy: Floats, rows: Rows) -> Floats:
    """Who is asked about first: the highest score.

    ``worth`` (the default everywhere), ``entropy``, or ``random[:SEED]``, which depends on the row
    alone, so that items asked about so are a fair sample of all.

    >>> scores("worth", belief=np.array([0.9, 0.4]), entropy=np.zeros(2), rows=np.arange(2))
    array([0.1, 0.6])
    """
    name = check_order(order)
    if name == WORTH:
        return of_answers(belief)
    chosen = parse_selector(order)
    if isinstance(chosen, Random) and chosen.seed is None:
        chosen = Random(0)
    return chosen.score(Candidates(entropy=entropy, rows=rows))


def check_order(order: str) -> str:
    """The name of an order; refuses one that does not exist."""
    spec = Spec.parse(order, "order")
    if spec.name not in ORDERS:
        raise UnknownName.among("order", spec.name, ORDERS)
    spec.refuse_extras("order", value=spec.name == RANDOM)
    if spec.name == RANDOM:
        parse_selector(order)
    return spec.name
