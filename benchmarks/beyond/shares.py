"""A target whose classes are not as frequent as those of the labelled set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posterity import priors
from posterity.replay import Recording, Results, run

LABELLED = 20_000
TARGET = 12_000
"""The most frequent language then has a fifth of them, which the recording has."""
BUDGETS = ["10%", "30%", "100%"]
RULES = ["max-belief", "cost-ratio:10"]
KINDS = ("uniform", "estimated", "known")
SEEDS = 5
MODELS = [
    *("language_detector", "tinyld", "franc", "guess_language", "eld", "fasttext176"),
    *("lingua_high", "cld3", "pycld2", "py3langid"),
]
"""One of each kind, so that none stands for several."""


def shifted(recording: Recording, seed: int) -> tuple[Recording, Recording]:
    """A labelled set with as many items of each language, and a target with Zipf frequencies."""
    rng = np.random.default_rng(seed)
    classes = len(recording.classes)
    by_class = [rng.permutation(np.flatnonzero(recording.truth == code)) for code in range(classes)]
    present = [code for code in range(classes) if len(by_class[code])]
    each = LABELLED // len(present)
    labelled = np.concatenate([by_class[code][:each] for code in present])
    rank = rng.permutation(len(present)) + 1
    shares = (1 / rank) / (1 / rank).sum()
    target = np.concatenate(
        [
            by_class[code][each:][: round(TARGET * share)]
            for code, share in zip(present, shares, strict=True)
        ]
    )
    return recording.take(rng.permutation(labelled)), recording.take(rng.permutation(target))


def measure(recordings: Path, seed: int) -> Results:
    """The same walk with equal shares, with those the votes tell of, and with the true ones."""
    recording = Recording.load(recordings / "langid.npz").pick(MODELS)
    labelled, target = shifted(recording, seed)
    counts = np.bincount(target.truth, minlength=len(target.classes))
    known = priors.given(counts + 0.5, classes=len(target.classes))
    found = Results()
    for kind in KINDS:
        prior = known if kind == "known" else kind
        done = run(target, source=labelled, budgets=BUDGETS, rules=RULES, prior=prior, seed=seed)
        found.extend(done)
    return found
