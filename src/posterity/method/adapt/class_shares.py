"""Class shares: how frequent each class is in a target, estimated from its votes.

The labelled set may hold as many items of each class while the target does not. Expected class
shares given the votes become the prior, and so on until they converge (expectation-maximisation;
Saerens et al., 2002). Shares are shrunk towards those of the labelled set, by the one strength at
which they would differ as much from class to class as they do: where that could be chance, nothing
is changed. The same is done on the labelled items, cross-fitted, whose shares are known: what comes
out wrong there is taken off, and shows how far to trust the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posterity.method.beliefs import priors
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import Codes, Counts, Floats, evenly
from posterity.method.data.votes import MISSING, VoteTable

TURNS = 20
STILL = 1e-4
"""Shares that move less than that in all have arrived."""
DOUBT = 4.0
"""At so many times the error there may be half of what is found is believed."""
ERRORS = 3.0
"""Differences within so many standard errors could be chance."""


def drawn(counts: Floats, to: Floats) -> Floats:
    """Class shares from counts, shrunk towards others as far as they could be chance.

    The strength is that of a Dirichlet prior by moments: of counts that vary as much as if each
    item were drawn by those shares it is infinite, and they are returned as they are.

    >>> even = np.full(4, 0.25)
    >>> drawn(np.array([24.0, 27.0, 22.0, 27.0]), even) is even
    True
    >>> drawn(np.array([700.0, 200.0, 80.0, 20.0]), even).round(3)
    array([0.699, 0.2  , 0.08 , 0.02 ])
    """
    possible, total = to > 0, float(counts.sum())
    freedom = int(possible.sum()) - 1
    if freedom < 1 or total < 1:
        return to
    expected = total * to[possible]
    spread = float(((counts[possible] - expected) ** 2 / expected).sum()) / freedom
    if spread < 1 + ERRORS * np.sqrt(2 / freedom):
        return to
    strength = max(1.0, (total - 1) / (spread - 1) - 1)
    shares = np.where(possible, counts + strength * to, 0.0)
    normalised: Floats = shares / shares.sum()
    return normalised


def of_labelled(counts: Counts) -> Floats:
    """The class shares of a labelled set, shrunk towards equal ones as chance allows."""
    return drawn(counts.astype(np.float64), priors.uniform(len(counts)))


def learnt(kind: str | None, counts: Counts) -> Floats | None:
    """The prior from how many labelled items each class has; None if it is not learnt from them."""
    if kind == priors.LABELLED:
        truth = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        return priors.labelled(truth, classes=len(counts))
    if kind == priors.ESTIMATED:  # before there is a target to estimate it from
        return of_labelled(counts)
    return None


def followed(fit: Dependence, votes: VoteTable, who: Sequence[int]) -> Dependence:
    """The same with the prior that a target's votes (n, M) of the models ``who`` tell of."""
    votes = votes[np.flatnonzero((votes.hard != MISSING).any(axis=1))]
    if not len(votes):
        return fit
    named, prior = _named(votes.hard), fit.prior
    for _ in range(TURNS):
        shares = drawn(_counts(replace(fit, prior=prior), votes, who, named), fit.prior)
        moved, prior = float(np.abs(shares - prior).sum()), shares
        if moved < STILL:
            break
    return fit if prior is fit.prior else replace(fit, prior=prior)


def check(fit: Dependence, votes: VoteTable, truth: Codes) -> tuple[Floats, Floats]:
    """The shares that labelled items' votes of all models tell of, and their true ones."""
    rows = evenly(len(votes))
    told = followed(fit, votes[rows], range(votes.hard.shape[1]))
    counts = np.bincount(truth[rows], minlength=fit.classes).astype(np.float64)
    return told.prior, drawn(counts, fit.prior)


def in_doubt(fit: Dependence, votes: VoteTable, who: Sequence[int]) -> float:
    """The share of items whose class is not the likeliest one, by their votes."""
    voted = votes[np.flatnonzero((votes.hard != MISSING).any(axis=1))]
    return float((1 - fit.believe(voted, who).belief_best).mean()) if len(voted) else 1.0


def believed(
    found: Floats, checks: Sequence[tuple[Floats, Floats]], usual: Floats, doubt: float = 0.0
) -> Floats:
    """Shares found on a target, as far as the same on labelled items is to be trusted.

    ``checks``: shares found on labelled items in the same way, and their true ones. What was too
    much there is taken off here; and the further off, the more stays as it is ``usual``: a few
    votes of a weak model tell more of the model than of the items. ``doubt``: the share of items
    whose class is in doubt; by so much shares may be off whatever labelled items say, for these
    have other ones.
    """
    if found is usual:
        return usual
    possible = usual > 0
    bias = np.zeros(len(usual))
    for told, true in checks:
        bias[possible] += np.log(told[possible] / true[possible]) / len(checks)
    corrected = np.where(possible, found * np.exp(-bias), 0.0)
    corrected /= corrected.sum()
    error = sum(apart(told, true) ** 2 for told, true in checks) / len(checks)
    error = max(error, doubt**2)
    size = apart(corrected, usual) ** 2
    trust = size / (size + DOUBT**2 * error) if size else 0.0
    mixed: Floats = (1 - trust) * usual + trust * corrected
    return mixed


def apart(one: Floats, other: Floats) -> float:
    """The share of items by which two priors differ (total variation)."""
    return float(np.abs(one - other).sum()) / 2


def _named(hard: Codes) -> Codes:
    """The classes voted for, each once an item; −1 else."""
    named = np.sort(hard, axis=1)
    named[:, 1:][named[:, 1:] == named[:, :-1]] = MISSING
    return np.ascontiguousarray(named)


def _counts(fit: Dependence, votes: VoteTable, who: Sequence[int], named: Codes) -> Floats:
    """The expected number of items of each class."""
    told = named != MISSING
    codes, prior = named[told], fit.prior
    believed = np.where(told, fit.believe(votes, who, asked=named).asked, 0.0)
    # What is left is spread over the classes nobody voted for, as the prior has it.
    left = 1 - np.where(told, prior[named.clip(min=0)], 0.0).sum(axis=1)
    rest = np.maximum(0.0, 1 - believed.sum(axis=1)) / np.maximum(left, np.finfo(float).tiny)
    items = np.broadcast_to(rest[:, None], named.shape)[told]
    voted = np.bincount(codes, believed[told], minlength=len(prior))
    counts: Floats = voted + prior * (rest.sum() - np.bincount(codes, items, minlength=len(prior)))
    return counts
