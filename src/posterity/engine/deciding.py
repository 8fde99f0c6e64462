"""Fold and decide: what votes make of labels, the same for an update, a revert and a check."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from posterity._arrays import Codes, Floats, Rows
from posterity.beliefs import Beliefs
from posterity.dense import DenseBeliefs
from posterity.dependent import DependentBeliefs
from posterity.engine.fits import DEPENDENT, Fit
from posterity.products import Votes
from posterity.proposals import propose
from posterity.rules import Evidence, MajorityVote, MaxBeliefMinEntropy, Rule, inner
from posterity.votes import MISSING, Cast, majority

BLOCK_ITEMS = 2**18
"""Items folded at a time, from their votes."""
DENSE_ITEMS = 2**14
"""Items at a time where all classes are written out: with a thousand classes 128 MiB."""


@dataclass(frozen=True)
class Part:
    """One step's model, rule and fit, as folding needs them."""

    model: str
    rule: Rule
    fit: Fit


@dataclass(frozen=True, eq=False)
class Decided:
    """Where items stand after their last vote, or after a pending flip was made."""

    before: Codes
    after: Codes
    belief_before: Floats
    belief: Floats
    entropy: Floats
    best: Codes
    """The most believed class, whatever the rule made of it."""
    proposed: Codes
    """The class of a flip that is pending now; −1 where there is none."""
    belief_proposed: Floats

    @staticmethod
    def joined(parts: Sequence[Decided]) -> Decided:
        """Blocks put together again."""
        return Decided(
            *(
                np.concatenate([getattr(part, field.name) for part in parts])
                for field in fields(Decided)
            )
        )

    @staticmethod
    def settled(
        label: Codes, belief: Floats, entropy: Floats, proposed: Codes, belief_proposed: Floats
    ) -> Decided:
        """Pending flips made, with what was believed when they were proposed."""
        none = np.full(len(label), MISSING, dtype=np.int32)
        return Decided(
            label, proposed, belief, belief_proposed, entropy, proposed, none, np.zeros(len(label))
        )

    @staticmethod
    def answered(before: Codes, belief: Floats, answer: Codes) -> Decided:
        """Labels a person decided: nothing is believed beside them, and no flip is pending."""
        none, sure = np.full(len(answer), MISSING, dtype=np.int32), np.ones(len(answer))
        return Decided(before, answer, belief, sure, 0 * sure, answer, none, 0 * sure)

    def pinned(self, pins: Codes) -> Decided:
        """The same with what people answered (else −1), whatever votes say."""
        if not (pins != MISSING).any():
            return self
        said = Decided.answered(self.before, self.belief_before, pins)
        return Decided(
            *(
                np.where(pins == MISSING, getattr(self, field.name), getattr(said, field.name))
                for field in fields(Decided)
            )
        )

    def __getitem__(self, rows: Rows) -> Decided:
        return Decided(*(getattr(self, field.name)[rows] for field in fields(Decided)))


def decide_last(
    steps: Sequence[Part],
    votes: Sequence[Cast],
    stored: Codes,
    pending: Codes | None = None,
) -> Decided:
    """Fold all votes, then let the last step's rule decide against the stored labels.

    ``votes`` are in the order of ``steps``; every item has a vote in the last one. All are folded
    with the last step's fit. ``pending``: the classes of flips that were pending on the items.
    """
    if pending is None:
        pending = np.full(len(stored), MISSING, dtype=np.int32)
    fit, rule = steps[-1].fit, steps[-1].rule
    parts = []
    for block in _blocks(len(stored), fit):
        labels = stored[block]
        beliefs = _believed(fit, steps, votes, block, labels)
        before = beliefs.of_stored() if isinstance(beliefs, Beliefs) else beliefs.of(labels)
        evidence = _evidence(rule, fit, steps, votes, block, beliefs, labels, before)
        outcome = propose(rule, evidence, pending[block])
        after, proposed = outcome.label, outcome.proposed
        believed = np.where(after == labels, before, beliefs.of_best())
        # Neither the stored label nor the best: rules that do not look at beliefs.
        other = np.flatnonzero((after != labels) & (after != evidence.best))
        believed[other] = beliefs.of(after[other], other)
        best = beliefs.most_believed(stored=after)
        waiting = np.zeros(len(block))
        waits = np.flatnonzero(proposed != MISSING)
        waiting[waits] = beliefs.of(proposed[waits], waits)
        entropy = beliefs.entropy()
        parts.append(Decided(labels, after, before, believed, entropy, best, proposed, waiting))
    return Decided.joined(parts)


def decide_all(
    now: Fit,
    steps: Sequence[Part],
    votes: Sequence[Cast],
    items: int,
    settles: Collection[int] = (),
) -> Decided:
    """Run all steps' rules in order, each with its own fit, as if nothing had been stored.

    What is said of an item is what its last vote made of it; ``now`` tells what is believed of an
    item without any. ``settles``: after how many of the steps all pending flips were made.
    """
    label, proposed = (np.full(items, MISSING, dtype=np.int32) for _ in range(2))
    belief, waiting, entropy = np.zeros(items), np.zeros(items), np.full(items, now.prior_entropy)

    def settle() -> None:
        made = np.flatnonzero(proposed != MISSING)
        label[made], belief[made] = proposed[made], waiting[made]
        proposed[made], waiting[made] = MISSING, 0

    for at in range(len(steps)):
        if at in settles:
            settle()
        seen = np.flatnonzero(votes[at].hard != MISSING)
        so_far = [cast[seen] for cast in votes[: at + 1]]
        decided = decide_last(steps[: at + 1], so_far, label[seen], proposed[seen])
        proposed[seen] = MISSING
        settle()  # what is left has no vote in this step
        label[seen], belief[seen] = decided.after, decided.belief
        entropy[seen] = decided.entropy
        proposed[seen], waiting[seen] = decided.proposed, decided.belief_proposed
    if len(steps) in settles:
        settle()
    return Decided(label, label, belief, belief, entropy, label, proposed, waiting)


def _evidence(
    rule: Rule,
    fit: Fit,
    steps: Sequence[Part],
    votes: Sequence[Cast],
    block: Rows,
    beliefs: Beliefs | DenseBeliefs | DependentBeliefs,
    stored: Codes,
    believed: Floats,
) -> Evidence:
    """What the rule looks at; what only some rules do is not computed for the others."""
    before = frequent = None
    rule = inner(rule)
    if isinstance(rule, MaxBeliefMinEntropy):
        before = _before(fit, steps, votes, block)
    if isinstance(rule, MajorityVote):
        hard = np.array([cast.hard[block] for cast in votes], dtype=np.int32)
        frequent = majority(hard)
    return Evidence.of(
        beliefs,
        label=stored,
        vote=votes[-1].hard[block],
        entropy_before=before,
        majority=frequent,
        belief_label=believed,
    )


def most_believed(
    fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], items: int, top: int
) -> tuple[Codes, Floats]:
    """The most believed classes of each item and the beliefs in them, highest first."""
    codes, beliefs = [], []
    for block in _blocks(items, None):
        believed = all_beliefs(fit, steps, [cast[block] for cast in votes], len(block))
        best = np.argsort(-believed, axis=1, kind="stable")[:, :top]
        codes.append(best.astype(np.int32))
        beliefs.append(np.take_along_axis(believed, best, axis=1))
    return np.concatenate(codes), np.concatenate(beliefs)


def all_beliefs(fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], items: int) -> Floats:
    """(n, K): what is believed of every class of some items."""
    return _believed(fit, steps, votes, np.arange(items)).probabilities()


def _believed(
    fit: Fit,
    steps: Sequence[Part],
    votes: Sequence[Cast],
    block: Rows,
    stored: Codes | None = None,
) -> Beliefs | DenseBeliefs | DependentBeliefs:
    if fit.kernel is None:
        return _dense(fit, steps, votes, block)
    if fit.beliefs == DEPENDENT:
        known, who = _known(fit, steps, votes, block)
        return DependentBeliefs.from_votes(fit.dependence, known, who, stored)
    product = fit.product([step.model for step in steps])
    return Beliefs.from_votes(product, _joined(fit, steps, votes, block), stored)


def _before(fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], block: Rows) -> Floats:
    """The entropies without the last model's votes."""
    if fit.kernel is None:
        return _dense(fit, steps[:-1], votes[:-1], block).entropy()
    if fit.beliefs == DEPENDENT:
        known, who = _known(fit, steps[:-1], votes[:-1], block)
        return fit.dependence.believe(known, who).entropy
    # With the same product: a vote that says nothing must not change one bit.
    product = fit.product([step.model for step in steps])
    return product.fold(_joined(fit, steps, votes, block).without_last()).entropy


def _known(
    fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], block: Rows
) -> tuple[Votes, list[int]]:
    """The votes of the models a fit knows, side by side, and who they are."""
    who = fit.who([step.model for step in steps])
    # One that arrived after the fit was made: its votes count again since a revert was reverted.
    columns = [at for at, place in enumerate(who) if place >= 0]
    known = side_by_side([votes[column][block] for column in columns], len(block))
    return known, [who[column] for column in columns]


def _joined(fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], block: Rows) -> Votes:
    """The models' votes side by side, soft ones read as the fit has it."""
    read = []
    for step, cast in zip(steps, votes, strict=True):
        own, known = cast[block], fit.temperatures.get(step.model)
        if own.soft is not None and known is not None:
            own = Cast(own.hard, known.calibrated(own.soft))
        read.append(own)
    return side_by_side(read, len(block))


def side_by_side(votes: Sequence[Cast], items: int) -> Votes:
    """The votes of several models on the same items, item by item."""
    hard = np.full((items, len(votes)), MISSING, dtype=np.int32)
    for at, cast in enumerate(votes):
        hard[:, at] = cast.hard
    softly = [(at, cast.soft) for at, cast in enumerate(votes) if cast.soft is not None]
    if not softly:
        return Votes.only(hard)
    soft = np.full(hard.shape, MISSING, dtype=np.int64)
    width = max(each.codes.shape[1] for _, each in softly)
    classes, weights, begin = [], [], 0
    for at, each in softly:
        present = np.flatnonzero(each.hard != MISSING)
        soft[present, at] = begin + np.arange(len(present))
        begin += len(present)
        wider = ((0, 0), (0, width - each.codes.shape[1]))
        classes.append(np.pad(each.codes[present], wider, constant_values=MISSING))
        weights.append(np.pad(each.weights[present], wider))
    return Votes(hard, soft, np.concatenate(classes), np.concatenate(weights))


def _dense(fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], block: Rows) -> DenseBeliefs:
    """As earlier versions folded: vote by vote, hard ones first."""
    beliefs = DenseBeliefs(fit.prior, len(block))
    for step, cast in zip(steps, votes, strict=True):
        confusion, own = fit.confusion(step.model), cast[block]
        beliefs.fold(own.only_hard, confusion)
        if own.soft is not None:
            beliefs.fold(replace(own.soft, classes=fit.classes), confusion)
    return beliefs


def _blocks(items: int, fit: Fit | None) -> Iterator[Rows]:
    size = DENSE_ITEMS if fit is None or fit.kernel is None else BLOCK_ITEMS
    # At least one block, so that no items make an empty result and not none.
    for start in range(0, max(items, 1), size):
        yield np.arange(start, min(start + size, items))
