"""Proposals: flips a rule wants that wait for the item's next vote (the modifier ``+confirm``).

Flipping at every vote is hasty: one dissenting vote is acted on although the next may come for
free. So under ``+confirm`` a change is proposed first. The item's next vote makes it if the rule
then still wants a change, and drops it if not; a step without a vote on the item makes it too,
because nobody is looking at the item any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posterity._arrays import Codes
from posterity.rules import Confirm, Evidence, Rule, decide
from posterity.votes import MISSING


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where items with a new vote stand after a rule has decided."""

    label: Codes
    proposed: Codes
    """The class a pending proposal names; −1 where none is pending."""


def propose(rule: Rule, evidence: Evidence, pending: Codes) -> Outcome:
    """Decide items with a new vote, of which some have a proposal pending (else −1).

    >>> from posterity.rules import Replace
    >>> evidence = Evidence(label=np.array([0, 0, 0, -1]), vote=np.array([1, 1, 0, 1]))
    >>> rule = Confirm(Replace())
    >>> propose(rule, evidence, np.array([-1, 2, 1, -1]))
    Outcome(label=array([0, 1, 0, 1], dtype=int32), proposed=array([ 1, -1, -1, -1], dtype=int32))
    """
    wanted = decide(rule, evidence)
    none = np.full(len(wanted), MISSING, dtype=np.int32)
    if not isinstance(rule, Confirm):
        return Outcome(wanted, none)
    # A first label is no flip: there is nothing it could break.
    change = (evidence.label != MISSING) & (wanted != evidence.label)
    waits = change & (pending == MISSING)
    label = np.where(waits, evidence.label, wanted).astype(np.int32)
    return Outcome(label, np.where(waits, wanted, none))
