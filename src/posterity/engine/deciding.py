"""Fold and decide: what votes make of labels, the same for an update, a revert and a check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from posterity._arrays import Codes, Floats, Rows
from posterity.beliefs import Beliefs
from posterity.engine.fits import Fit
from posterity.rules import Evidence, Rule, decide
from posterity.votes import MISSING, Cast, majority

BLOCK_ITEMS = 2**14
"""Items folded at a time: with a thousand classes 128 MiB of log-joints."""


@dataclass(frozen=True)
class Part:
    """One step's model, rule and fit, as folding needs them."""

    model: str
    rule: Rule
    fit: Fit


@dataclass(frozen=True, eq=False)
class Decided:
    """Where items stand after their last vote."""

    before: Codes
    after: Codes
    belief_before: Floats
    belief: Floats
    entropy: Floats
    best: Codes
    """The most believed class, whatever the rule made of it."""

    @staticmethod
    def joined(parts: Sequence[Decided]) -> Decided:
        """Blocks put together again."""
        return Decided(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("before", "after", "belief_before", "belief", "entropy", "best")
            )
        )

    def __getitem__(self, rows: Rows) -> Decided:
        return Decided(
            self.before[rows],
            self.after[rows],
            self.belief_before[rows],
            self.belief[rows],
            self.entropy[rows],
            self.best[rows],
        )


def decide_last(steps: Sequence[Part], votes: Sequence[Cast], stored: Codes) -> Decided:
    """Fold all votes, then let the last step's rule decide against the stored labels.

    ``votes`` are in the order of ``steps``; every item has a vote in the last one. All are folded
    with the last step's fit.
    """
    first, alike = _distinct(votes, stored)
    votes, stored = [cast[first] for cast in votes], stored[first]
    fit, rule = steps[-1].fit, steps[-1].rule
    parts = []
    for block in _blocks(len(stored)):
        beliefs = _folded(fit, steps[:-1], votes[:-1], block)
        before = beliefs.entropy()
        _fold(beliefs, fit, steps[-1], votes[-1][block])
        evidence = Evidence.of(
            beliefs,
            label=stored[block],
            vote=votes[-1].hard[block],
            entropy_before=before,
            majority=majority(_hard(votes, block)),
        )
        after = decide(rule, evidence)
        labels, best = stored[block], beliefs.most_believed(stored=after)
        believed = beliefs.of(labels), beliefs.of(after)
        parts.append(Decided(labels, after, *believed, beliefs.entropy(), best))
    return Decided.joined(parts)[alike]


def decide_all(now: Fit, steps: Sequence[Part], votes: Sequence[Cast], items: int) -> Decided:
    """Run all steps' rules in order, each with its own fit, as if nothing had been stored.

    What is said of an item is what its last vote made of it; ``now`` tells what is believed of an
    item without any.
    """
    parts = []
    for block in _blocks(items):
        label = np.full(len(block), MISSING, dtype=np.int32)
        belief, entropy = np.zeros(len(block)), np.full(len(block), now.prior_entropy)
        beliefs, fit = Beliefs(now.prior, 0), None
        for at, (step, cast) in enumerate(zip(steps, votes, strict=True)):
            if step.fit is not fit:
                beliefs, fit = _folded(step.fit, steps[:at], votes[:at], block), step.fit
            before = beliefs.entropy()
            _fold(beliefs, fit, step, cast[block])
            seen = np.flatnonzero(cast.hard[block] != MISSING)
            if not len(seen):
                continue
            evidence = Evidence.of(
                beliefs,
                rows=seen,
                label=label[seen],
                vote=cast.hard[block[seen]],
                entropy_before=before[seen],
                majority=majority(_hard(votes[: at + 1], block[seen])),
            )
            label[seen] = decide(step.rule, evidence)
            belief[seen], entropy[seen] = beliefs.of(label[seen], seen), beliefs.entropy(seen)
        parts.append(Decided(label, label, belief, belief, entropy, label))
    return Decided.joined(parts)


def most_believed(
    fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], items: int, top: int
) -> tuple[Codes, Floats]:
    """The most believed classes of each item and the beliefs in them, highest first."""
    codes, beliefs = [], []
    for block in _blocks(items):
        believed = _folded(fit, steps, votes, block).probabilities()
        best = np.argsort(-believed, axis=1, kind="stable")[:, :top]
        codes.append(best.astype(np.int32))
        beliefs.append(np.take_along_axis(believed, best, axis=1))
    return np.concatenate(codes), np.concatenate(beliefs)


def _folded(fit: Fit, steps: Sequence[Part], votes: Sequence[Cast], block: Rows) -> Beliefs:
    beliefs = Beliefs(fit.prior, len(block))
    for step, cast in zip(steps, votes, strict=True):
        _fold(beliefs, fit, step, cast[block])
    return beliefs


def _fold(beliefs: Beliefs, fit: Fit, step: Part, cast: Cast) -> None:
    confusion = fit.confusion(step.model)
    beliefs.fold(cast.only_hard, confusion)
    if cast.soft is not None:
        beliefs.fold(replace(cast.soft, classes=fit.classes), confusion)


def _hard(votes: Sequence[Cast], rows: Rows) -> Codes:
    return np.array([cast.hard[rows] for cast in votes], dtype=np.int32)


def _distinct(votes: Sequence[Cast], stored: Codes) -> tuple[Rows, Rows]:
    """Items with the same label and hard votes are decided alike, so one of them is enough.

    The first item of each kind, and the kind of each item. With a few votes there are far fewer
    kinds than items; soft votes are nearly all different, and are not compared.
    """
    if any(cast.soft is not None for cast in votes):
        everybody = np.arange(len(stored))
        return everybody, everybody
    kinds = stored.astype(np.int64) - MISSING
    for cast in votes:
        width = int(cast.hard.max(initial=MISSING)) - MISSING + 1
        kinds = kinds * width + (cast.hard - MISSING)
        _, kinds = np.unique(kinds, return_inverse=True)  # small again: no product overflows
    _, first, alike = np.unique(kinds, return_index=True, return_inverse=True)
    return first, alike


def _blocks(items: int) -> Iterator[Rows]:
    # At least one block, so that no items make an empty result and not none.
    for start in range(0, max(items, 1), BLOCK_ITEMS):
        yield np.arange(start, min(start + BLOCK_ITEMS, items))
