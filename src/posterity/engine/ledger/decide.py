"""Fold and decide: what votes make of labels, the same for an update, a revert and a check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from posterity.engine.ledger.fits import Fit
from posterity.method.beliefs.dependent_state import DependentBeliefs
from posterity.method.beliefs.plain import Beliefs
from posterity.method.beliefs.state import BeliefState
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.votes import MISSING, ModelVotes, VoteTable, majority
from posterity.method.decide.defaults import DEPENDENT
from posterity.method.decide.rules import Rule, inner, traits
from posterity.method.decide.simple_rules import Evidence
from posterity.method.step import Labels, Verdict, judge

BLOCK_ITEMS = 2**18
"""Items folded at a time, from their votes."""
DENSE_ITEMS = 2**14
DENSE_CELLS = 2**22
"""Items at a time where all classes are written out, and items × classes: 32 MiB of beliefs."""
FEW = 8
"""So many of the most believed classes are found faster one by one than by sorting all."""


@dataclass(frozen=True)
class StepPolicy:
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

    @property
    def verdict(self) -> Verdict:
        """What the rule made of the items."""
        return Verdict(self.after, self.belief, self.proposed, self.belief_proposed)

    def __getitem__(self, rows: Rows) -> Decided:
        return Decided(*(getattr(self, field.name)[rows] for field in fields(Decided)))


def decide_last(
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    stored: Codes,
    pending: Codes | None = None,
) -> Decided:
    """Fold all votes, then let the last step's rule decide against the stored labels.

    ``votes`` are in the order of ``steps``; every item has a vote in the last one. All are folded
    with the last step's fit. ``pending``: the classes of flips that were pending on the items.
    """
    return _decide(steps[-1], steps, votes, votes[-1].hard, stored, pending)


def decide_again(
    policy: StepPolicy,
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    stored: Codes,
    belief: Floats,
) -> Decided:
    """Fold the votes of earlier steps, and let another rule decide, with a fit of its own.

    ``belief``: in the stored labels. They stay where the fit knows none of an item's models, or
    not all classes its label and votes name: those came after the fit was made.
    """
    fit, models = policy.fit, [step.model for step in steps]
    known = fit.who(models) if fit.beliefs == DEPENDENT else range(len(models))
    voted, strange = np.zeros(len(stored), dtype=np.bool_), stored >= fit.classes
    for cast, place in zip(votes, known, strict=True):
        voted |= (cast.hard != MISSING) & (place >= 0)
        strange |= cast.hard >= fit.classes
        if cast.soft is not None:
            strange |= (cast.soft.codes >= fit.classes).any(axis=1)
    at = np.flatnonzero(voted & ~strange)
    none, zeros = np.full(len(stored), MISSING, dtype=np.int32), np.zeros(len(stored))
    kept = Decided(stored, stored, belief, belief, zeros, stored, none, zeros)
    if not len(at):
        return kept
    labels = stored[at]
    # No vote is new: to a rule that asks for one, the label is.
    made = _decide(policy, steps, [cast[at] for cast in votes], labels, labels, None)
    if len(at) == len(stored):
        return made
    others = np.flatnonzero(~voted | strange)
    return Decided.joined([made, kept[others]])[np.argsort(np.concatenate([at, others]))]


def _decide(
    policy: StepPolicy,
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    new: Codes,
    stored: Codes,
    pending: Codes | None,
) -> Decided:
    if pending is None:
        pending = np.full(len(stored), MISSING, dtype=np.int32)
    fit, rule = policy.fit, policy.rule
    parts = []
    for block in _blocks(len(stored), BLOCK_ITEMS):
        labels = stored[block]
        beliefs = _believed(fit, steps, votes, block, labels)
        before = beliefs.of_stored()
        evidence = _evidence(rule, fit, steps, votes, new, block, beliefs, labels, before)
        made = judge(rule, beliefs, evidence, pending[block])
        best, entropy = beliefs.most_believed(stored=made.label), beliefs.entropy()
        waiting = made.proposed, made.belief_proposed
        parts.append(Decided(labels, made.label, before, made.belief, entropy, best, *waiting))
    return Decided.joined(parts)


def decide_all(
    now: Fit,
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    items: int,
    voteless: Sequence[tuple[int, StepPolicy | None]] = (),
) -> Decided:
    """Run all steps' rules in order, each with its own fit, as if nothing had been stored.

    What is said of an item is what its last decision made of it; ``now`` tells what is believed of
    an item without any. ``voteless``: after how many of the steps labels were decided again by
    another policy, or (None) all pending flips were made.
    """
    labels = Labels(items)
    entropy = np.full(items, now.prior_entropy)

    def between(at: int) -> None:
        for policy in [policy for place, policy in voteless if place == at]:
            if policy is None:
                labels.settle()
                continue
            seen = np.flatnonzero(labels.label != MISSING)
            so_far = [cast[seen] for cast in votes[:at]]
            label, belief = labels.label[seen], labels.belief[seen]
            decided = decide_again(policy, steps[:at], so_far, label, belief)
            moved = redecided(decided, labels.proposed[seen])
            labels.take(seen[moved], decided[moved].verdict)
            entropy[seen[moved]] = decided.entropy[moved]

    for at in range(len(steps)):
        between(at)
        seen = np.flatnonzero(votes[at].hard != MISSING)
        so_far = [cast[seen] for cast in votes[: at + 1]]
        decided = decide_last(steps[: at + 1], so_far, labels.label[seen], labels.proposed[seen])
        labels.take(seen, decided.verdict)
        entropy[seen] = decided.entropy
    between(len(steps))
    label, belief = labels.label, labels.belief
    waiting = labels.proposed, np.where(labels.proposed == MISSING, 0.0, labels.belief_proposed)
    return Decided(label, label, belief, belief, entropy, label, *waiting)


def redecided(decided: Decided, pending: Codes) -> Rows:
    """The items that a redecide writes about: whose label changes, or had a flip pending."""
    rows: Rows = np.flatnonzero((decided.after != decided.before) | (pending != MISSING))
    return rows


def _evidence(
    rule: Rule,
    fit: Fit,
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    new: Codes,
    block: Rows,
    beliefs: BeliefState,
    stored: Codes,
    believed: Floats,
) -> Evidence:
    """What the rule looks at; what only some rules do is not computed for the others."""
    before = frequent = cast = None
    uses = traits(inner(rule)).uses
    if "entropy_before" in uses:
        before = _before(fit, steps, votes, block)
    if "majority" in uses:
        hard = np.array([cast.hard[block] for cast in votes], dtype=np.int32)
        frequent = majority(hard)
    if "support" in traits(rule).uses:
        cast = np.stack([one.hard[block] for one in votes], axis=1)
    return Evidence.of(
        beliefs,
        label=stored,
        vote=new[block],
        entropy_before=before,
        majority=frequent,
        cast=cast,
        belief_label=believed,
    )


def most_believed(
    fit: Fit, steps: Sequence[StepPolicy], votes: Sequence[ModelVotes], items: int, top: int
) -> tuple[Codes, Floats]:
    """The most believed classes of each item and the beliefs in them, highest first."""
    codes, beliefs = [], []
    size = max(1, min(DENSE_ITEMS, DENSE_CELLS // fit.classes))
    for block in _blocks(items, size):
        believed = all_beliefs(fit, steps, [cast[block] for cast in votes], len(block))
        best = highest(believed, top)
        codes.append(best.astype(np.int32))
        beliefs.append(np.take_along_axis(believed, best, axis=1))
    return np.concatenate(codes), np.concatenate(beliefs)


def highest(believed: Floats, top: int) -> Rows:
    """The classes believed most, item by item; of equal ones the lowest code first."""
    if top > FEW:
        order: Rows = np.argsort(-believed, axis=1, kind="stable")[:, :top]
        return order
    left, every = believed.copy(), np.arange(len(believed))
    best = np.empty((len(believed), min(top, believed.shape[1])), dtype=np.int64)
    for place in range(best.shape[1]):
        best[:, place] = left.argmax(axis=1)
        left[every, best[:, place]] = -1.0
    return best


def all_beliefs(
    fit: Fit, steps: Sequence[StepPolicy], votes: Sequence[ModelVotes], items: int
) -> Floats:
    """(n, K): what is believed of every class of some items."""
    return _believed(fit, steps, votes, np.arange(items)).probabilities()


def _believed(
    fit: Fit,
    steps: Sequence[StepPolicy],
    votes: Sequence[ModelVotes],
    block: Rows,
    stored: Codes | None = None,
) -> BeliefState:
    if fit.beliefs == DEPENDENT:
        known, who = _known(fit, steps, votes, block)
        return DependentBeliefs.from_votes(fit.dependence, known, who, stored)
    product = fit.product([step.model for step in steps])
    return Beliefs.from_votes(product, _joined(fit, steps, votes, block), stored)


def _before(
    fit: Fit, steps: Sequence[StepPolicy], votes: Sequence[ModelVotes], block: Rows
) -> Floats:
    """The entropies without the last model's votes."""
    if fit.beliefs == DEPENDENT:
        known, who = _known(fit, steps[:-1], votes[:-1], block)
        return fit.dependence.believe(known, who).entropy
    # With the same product: a vote that says nothing must not change one bit.
    product = fit.product([step.model for step in steps])
    return product.fold(_joined(fit, steps, votes, block).without_last()).entropy


def _known(
    fit: Fit, steps: Sequence[StepPolicy], votes: Sequence[ModelVotes], block: Rows
) -> tuple[VoteTable, list[int]]:
    """The votes of the models a fit knows, side by side, and who they are."""
    who = fit.who([step.model for step in steps])
    # One that arrived after the fit was made: its votes count again since a revert was reverted.
    columns = [at for at, place in enumerate(who) if place >= 0]
    known = VoteTable.side_by_side([votes[column][block] for column in columns], len(block))
    return known, [who[column] for column in columns]


def _joined(
    fit: Fit, steps: Sequence[StepPolicy], votes: Sequence[ModelVotes], block: Rows
) -> VoteTable:
    """The models' votes side by side, soft ones read as the fit has it."""
    read = []
    for step, cast in zip(steps, votes, strict=True):
        own, known = cast[block], fit.temperatures.get(step.model)
        if own.soft is not None and known is not None:
            own = ModelVotes(own.hard, known.calibrated(own.soft))
        read.append(own)
    return VoteTable.side_by_side(read, len(block))


def _blocks(items: int, size: int) -> Iterator[Rows]:
    # At least one block, so that no items make an empty result and not none.
    for start in range(0, max(items, 1), size):
        yield np.arange(start, min(start + size, items))
