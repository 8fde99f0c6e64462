"""Fold and decide: what votes make of labels, the same for an update, a revert and a check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from posterity._arrays import Codes, Floats, Rows
from posterity.beliefs import Beliefs
from posterity.confusion import Confusion
from posterity.rules import Evidence, Rule, decide
from posterity.votes import MISSING, majority

BLOCK_ITEMS = 2**14
"""Items folded at a time: with a thousand classes 128 MiB of log-joints."""


@dataclass(frozen=True)
class Vote:
    """One step's model and rule, as folding needs them."""

    confusion: Confusion
    rule: Rule


@dataclass(frozen=True, eq=False)
class Decided:
    """Where items stand after their last vote."""

    before: Codes
    after: Codes
    belief_before: Floats
    belief: Floats
    entropy: Floats

    @staticmethod
    def joined(parts: Sequence[Decided]) -> Decided:
        """Blocks put together again."""
        return Decided(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("before", "after", "belief_before", "belief", "entropy")
            )
        )


def decide_last(prior: Floats, steps: Sequence[Vote], votes: Codes, stored: Codes) -> Decided:
    """Fold all votes, then let the last step's rule decide against the stored labels.

    ``votes`` is (T, n) in the order of ``steps``; every item has a vote in the last one.
    """
    parts = []
    for block in _blocks(votes.shape[1]):
        beliefs = Beliefs(prior, len(block))
        for step, cast in zip(steps[:-1], votes[:-1], strict=True):
            beliefs.fold(cast[block], step.confusion)
        before = beliefs.entropy()
        beliefs.fold(votes[-1, block], steps[-1].confusion)
        parts.append(_decided(beliefs, steps[-1].rule, stored[block], votes[:, block], before))
    return Decided.joined(parts)


def decide_all(prior: Floats, steps: Sequence[Vote], votes: Codes) -> Decided:
    """Run all steps' rules in order, as if nothing had been stored."""
    parts = []
    for block in _blocks(votes.shape[1]):
        beliefs = Beliefs(prior, len(block))
        label = np.full(len(block), MISSING, dtype=np.int32)
        for at, (step, cast) in enumerate(zip(steps, votes[:, block], strict=True)):
            before = beliefs.entropy()
            beliefs.fold(cast, step.confusion)
            seen = np.flatnonzero(cast != MISSING)
            if len(seen):
                evidence = Evidence.of(
                    beliefs,
                    rows=seen,
                    label=label[seen],
                    vote=cast[seen],
                    entropy_before=before[seen],
                    majority=majority(votes[: at + 1, block[seen]]),
                )
                label[seen] = decide(step.rule, evidence)
        belief = beliefs.of(label)
        parts.append(Decided(label, label, belief, belief, beliefs.entropy()))
    return Decided.joined(parts)


def most_believed(
    prior: Floats, steps: Sequence[Vote], votes: Codes, top: int
) -> tuple[Codes, Floats]:
    """The most believed classes of each item and the beliefs in them, highest first."""
    codes, beliefs = [], []
    for block in _blocks(votes.shape[1]):
        folded = Beliefs(prior, len(block))
        for step, cast in zip(steps, votes[:, block], strict=True):
            folded.fold(cast, step.confusion)
        believed = folded.probabilities()
        best = np.argsort(-believed, axis=1, kind="stable")[:, :top]
        codes.append(best.astype(np.int32))
        beliefs.append(np.take_along_axis(believed, best, axis=1))
    return np.concatenate(codes), np.concatenate(beliefs)


def _decided(
    beliefs: Beliefs, rule: Rule, stored: Codes, votes: Codes, entropy_before: Floats
) -> Decided:
    evidence = Evidence.of(
        beliefs,
        label=stored,
        vote=votes[-1],
        entropy_before=entropy_before,
        majority=majority(votes),
    )
    after = decide(rule, evidence)
    return Decided(stored, after, beliefs.of(stored), beliefs.of(after), beliefs.entropy())


def _blocks(items: int) -> Iterator[Rows]:
    # At least one block, so that no items make an empty result and not none.
    for start in range(0, max(items, 1), BLOCK_ITEMS):
        yield np.arange(start, min(start + BLOCK_ITEMS, items))
