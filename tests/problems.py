"""Random problems for property tests: confusions, votes and priors, edge cases included."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from posterity import Confusion
from posterity.method.data.arrays import Codes, Floats
from posterity.replay import Recording


@dataclass(frozen=True)
class Problem:
    prior: Floats
    confusions: list[Confusion]
    votes: Codes
    """(T, n), some missing."""

    @property
    def classes(self) -> int:
        return len(self.prior)

    @property
    def items(self) -> int:
        return int(self.votes.shape[1])


@st.composite
def problems(
    draw: st.DrawFn, *, max_classes: int = 12, max_models: int = 8, max_items: int = 12
) -> Problem:
    classes = draw(st.integers(2, max_classes))
    models = draw(st.integers(1, max_models))
    items = draw(st.integers(1, max_items))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Small concentrations make confusions with entries near 0 and 1.
    spread = draw(st.sampled_from([0.01, 0.3, 1.0, 30.0]))
    missing = draw(st.sampled_from([0.0, 0.3, 1.0]))
    confusions = [
        Confusion.from_matrix(_columns(rng, classes, spread), truth="columns")
        for _ in range(models)
    ]
    votes = rng.integers(0, classes, (models, items))
    votes[rng.random((models, items)) < missing] = -1
    prior = rng.dirichlet(np.full(classes, 1.0))
    if draw(st.booleans()) and classes > 2:
        prior[rng.integers(classes)] = 0.0
    return Problem(prior / prior.sum(), confusions, votes.astype(np.int32))


def _columns(rng: np.random.Generator, classes: int, spread: float) -> Floats:
    columns = rng.dirichlet(np.full(classes, spread), size=classes).T
    # A very small concentration can underflow to a column of zeros or NaN.
    columns = np.where(np.isfinite(columns), columns, 0.0) + 1e-12
    normalised: Floats = columns / columns.sum(axis=0)
    return normalised


def synthetic_recording(
    *, items: int, classes: int, models: int, missing: float, seed: int
) -> Recording:
    """Models of rising accuracy with their own confusions, and votes missing at random."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, items)
    votes = np.empty((models, items), dtype=np.int32)
    for model in range(models):
        accuracy = 0.4 + 0.5 * model / models
        wrong = rng.dirichlet(np.ones(classes), size=classes)
        right = rng.random(items) < accuracy
        guesses = np.array([rng.choice(classes, p=wrong[true]) for true in truth])
        votes[model] = np.where(right, truth, guesses)
    votes[rng.random((models, items)) < missing] = -1
    return Recording(
        classes=tuple(f"class {k}" for k in range(classes)),
        models=tuple(f"model {t}" for t in range(models)),
        truth=truth.astype(np.int32),
        votes=votes,
        name="synthetic",
    )


def characters() -> Recording:
    """Characters and the first two words of their names, by four classifiers that remember some.

    28,547 items of 4,194 classes; each says the class of the nearest character it has seen.
    """
    drawn = ("CJK UNIFIED", "CJK COMPATIBILITY", "HANGUL SYLLABLE", "TANGUT", "NUSHU", "KHITAN")
    others = ("EGYPTIAN", "ANATOLIAN", "BAMUM", "SIGNWRITING")
    named = {code: unicodedata.name(chr(code), "") for code in range(0x20, 0x30000)}
    kept = {code: name for code, name in named.items() if name}
    kept = {code: name for code, name in kept.items() if not name.startswith(drawn + others)}
    words = [" ".join(name.split()[:2]) for name in kept.values()]
    classes, truth = np.unique(words, return_inverse=True)
    codes, rng, votes = np.array(list(kept)), np.random.default_rng(0), list[Codes]()
    for known in (1500, 3000, 5000, 8000):
        seen = np.sort(rng.choice(len(codes), known, replace=False))
        after = np.searchsorted(codes[seen], codes).clip(1, known - 1)
        below, above = seen[after - 1], seen[after]
        nearer = codes - codes[below] <= codes[above] - codes
        votes.append(truth[np.where(nearer, below, above)].astype(np.int32))
    names = ["a", "b", "c", "d"]
    return Recording(
        classes=classes.tolist(), models=names, truth=truth.astype(np.int32), votes=np.array(votes)
    )
