"""Priors and promises that come from the labelled set: write docs/measurements/learnt.md.

Class frequencies: accuracy under the uniform prior, that of the labelled set, the default one and
the true one, also where a labelled set is balanced on purpose and the target is not. Promises: in
how many steps over many random splits more labels broke than promised, also where `tune` chose
among several promises. The page can be made of parts measured one by one: what is not measured
again stays as it is.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import PAGES
from benchmarks.earlier import Sections, block, sections
from benchmarks.earlier import rows as rows_of
from posterity import priors
from posterity.method.decide.defaults import DEFAULT_PRIOR, DEFAULT_RULE, DEPENDENT
from posterity.replay import Recording, Results, run

Row = dict[str, Any]
Parts = tuple[Recording, Recording]
"""A labelled set and a target."""

DRAWS = 5
BUDGETS = ["10%", "30%", "100%"]
RULES = [DEFAULT_RULE[DEPENDENT], "max-belief"]
KNOWN = "known"
KINDS = (priors.UNIFORM, priors.LABELLED, DEFAULT_PRIOR[DEPENDENT], KNOWN)
LABELLED, TARGET = 20_000, 12_000
"""Texts; the most frequent language then has a fifth of the target, as many as there are."""
EACH = 250
"""Faces of each class in a balanced labelled set; of the rarest one 398 are recorded."""
DETECTORS = [
    *("language_detector", "tinyld", "franc", "guess_language", "eld", "fasttext176"),
    *("lingua_high", "cld3", "pycld2", "py3langid"),
]
"""One of each kind, so that none stands for several."""

CONFIDENCE, BUDGET, SPLITS, FEW = 0.9, "30%", 200, 20
RATES = ("0.5%", "2%")
PROMISES = [f"at-most:{rate},confidence={CONFIDENCE}" for rate in RATES]
BESIDE = ["max-belief", "cost-ratio:10"]
"""They promise nothing, and show what a promise costs; fewer splits suffice."""
SEQUENCES = {
    "imagenet_val": ["alexnet", "resnet50", "resnext101_64x4d"],
    "cifar10_test": [
        *("cudaconvnet", "resnet_basic_110", "wrn_28_10"),
        "shake_shake_26_2x64d_SSI_cutout16",
    ],
    "model_vs_human": ["bagnet33", "resnet50", "swag_vit_b16_in1k", "swag_vit_l16_in1k"],
    "emotion_llm": ["falcon-7b", "Llama-2-7b-hf", "Qwen-7B", "Qwen-14B"],
}
"""Few models each, weak to strong: two hundred splits have to be walked."""


@dataclass(frozen=True)
class Mix:
    """How often classes occur in a labelled set and in its target."""

    recording: str
    told: str
    draw: Callable[[Recording, int], Parts]
    models: list[str] | None = None

    def load(self, folder: Path) -> Recording:
        """The recording with the models that arrive."""
        found = Recording.load(folder / f"{self.recording}.npz")
        return found if self.models is None else found.pick(self.models)


def alike(recording: Recording, seed: int) -> Parts:
    """A fifth of the items, at random."""
    rows = np.random.default_rng(seed).permutation(len(recording))
    labelled, target = np.split(rows, [len(rows) // 5])
    return recording.take(labelled), recording.take(target)


def balanced(recording: Recording, seed: int) -> Parts:
    """As many labelled items of each class; the target is what is left."""
    rng = np.random.default_rng(seed)
    labelled = np.concatenate([rows[:EACH] for rows in _by_class(recording, rng)])
    target = np.setdiff1d(np.arange(len(recording)), labelled)
    return recording.take(rng.permutation(labelled)), recording.take(rng.permutation(target))


def zipf(recording: Recording, seed: int) -> Parts:
    """As many labelled items of each class, and a target with Zipf frequencies in random order."""
    rng = np.random.default_rng(seed)
    by_class = [rows for rows in _by_class(recording, rng) if len(rows)]
    each = LABELLED // len(by_class)
    shares = 1 / (rng.permutation(len(by_class)) + 1)
    wanted = np.round(TARGET * shares / shares.sum()).astype(int)
    target = [rows[each:][:many] for rows, many in zip(by_class, wanted, strict=True)]
    labelled = np.concatenate([rows[:each] for rows in by_class])
    return (
        recording.take(rng.permutation(labelled)),
        recording.take(rng.permutation(np.concatenate(target))),
    )


def _by_class(recording: Recording, rng: np.random.Generator) -> list[np.ndarray]:
    classes = range(len(recording.classes))
    return [rng.permutation(np.flatnonzero(recording.truth == code)) for code in classes]


MIXES = {
    "faces": Mix("expw_apis", "a fifth of the items, drawn at random", alike),
    "faces-balanced": Mix("expw_apis", f"{EACH} items of each class", balanced),
    "languages-balanced": Mix(
        "langid", "as many texts of each language, Zipf frequencies in the target", zipf, DETECTORS
    ),
}


def measure_prior(mix: Mix, recordings: Path) -> Results:
    """The same walks under each prior."""
    recording, found = mix.load(recordings), Results()
    for seed in range(1, DRAWS + 1):
        labelled, target = mix.draw(recording, seed)
        counts = np.bincount(target.truth, minlength=len(target.classes))
        known = priors.given(counts + 0.5, classes=len(target.classes))
        for kind in KINDS:
            prior: Any = known if kind == KNOWN else kind
            common: dict[str, Any] = {"budgets": BUDGETS, "rules": RULES, "seed": seed}
            found.extend(run(target, source=labelled, prior=prior, **common))
    return found


def measure_promises(recordings: Path, name: str, splits: int) -> Results:
    """Promises asked for, and promises that tune chose among several, on random halves."""
    recording = Recording.load(recordings / f"{name}.npz").pick(SEQUENCES[name])
    common: dict[str, Any] = {"budgets": BUDGET, "seed": 1}
    found = run(recording, rules=PROMISES, tune=PROMISES, seeds=splits, **common)
    found.extend(run(recording, rules=BESIDE, seeds=min(FEW, splits), **common))
    return found


def page(folder: Path, earlier: Sections) -> str:
    """All that was measured, now or earlier, as Markdown."""
    return "\n".join(
        [
            "# What is learnt from the labelled set, measured",
            "",
            "Made from the recordings of `docs/reference/replay.md` by `make learnt`.",
            "",
            *_priors(folder, earlier.get("Class frequencies", [])),
            *_promises(folder, earlier.get("Promises", [])),
        ]
    )


def _read(path: Path) -> list[Row]:
    return pq.read_table(path).to_pylist() if path.exists() else []


def _priors(folder: Path, earlier: list[str]) -> Iterator[str]:
    yield "## Class frequencies"
    yield ""
    yield (
        "Accuracy / negative flips, and in brackets expected less true accuracy in points, under "
        "equal class frequencies (*uniform*), those of the labelled set, the default prior "
        f"(*{KINDS[2]}*: shrunk, and followed by the target's votes) and the target's own "
        f"(*{KNOWN}*). Means of {DRAWS} draws. *Default − uniform*: in points of accuracy."
    )
    for name, mix in MIXES.items():
        rows = [row for row in _read(folder / f"priors-{name}.parquet") if row["kind"] == "run"]
        title = f"**{mix.recording}**, labelled: {mix.told}."
        yield ""
        if not rows:
            yield from "\n".join(block(earlier, title)).rstrip("\n").split("\n")
            continue
        yield title
        yield ""
        yield f"| budget | rule | {' | '.join(KINDS)} | default − uniform |"
        yield "|---:|---|" + "---:|" * (len(KINDS) + 1)
        for budget in BUDGETS:
            for rule in RULES:
                cells, accuracies = [], dict[str, float]()
                for kind in KINDS:
                    prior = "given" if kind == KNOWN else kind
                    own = [row for row in rows if _is(row, budget, rule) and row["prior"] == prior]
                    accuracies[kind] = fmean(row["accuracy"] for row in own)
                    off = fmean(row["checked_accuracy"] - row["accuracy"] for row in own)
                    broken = fmean(row["negative_flips"] for row in own)
                    cells.append(f"{accuracies[kind]:.1f} / {broken:,.0f} ({off:+.1f})")
                gained = accuracies[KINDS[2]] - accuracies[priors.UNIFORM]
                yield f"| {budget} | `{rule}` | {' | '.join(cells)} | {gained:+.1f} |"
    yield ""


def _is(row: Row, budget: str, rule: str) -> bool:
    share = float(budget.rstrip("%")) / 100
    return bool(row["rule"] == rule and abs(row["budget"] - share) < 1e-3)


def _promises(folder: Path, earlier: list[str]) -> Iterator[str]:
    yield "## Promises"
    yield ""
    yield (
        f"The rule `at-most:SHARE,confidence={CONFIDENCE}` with a budget of {BUDGET}, on random "
        "halves: one labelled, one the target. *Tuned*: `tune` chose among three promises. "
        "*Broken*: steps in which a larger share of all items was broken than promised, on the "
        f"target itself; at most {100 * (1 - CONFIDENCE):.0f} % may be. Two standard errors allow "
        "for the number of splits; steps of one split are not independent, so it is those of "
        "splits that count. ✗: more than that."
    )
    yield ""
    yield (
        "| recording | rule | splits | steps broken | most allowed | mean share broken per step | "
        "final accuracy |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name in SEQUENCES:
        rows = _read(folder / f"promises-{name}.parquet")
        if not rows:
            yield from rows_of(earlier, name)
            continue
        asked = {rule: (rule, rule) for rule in (*PROMISES, *BESIDE)}
        tuned = {f"{rule}, tuned": (f"(tuned: {rule})", rule) for rule in PROMISES}
        for told, (ending, rule) in (asked | tuned).items():
            own = [row for row in rows if row["rule"].endswith(ending)]
            if ending == rule:
                own = [row for row in own if row["rule"] == rule]
            runs = [row for row in own if row["kind"] == "run"]
            shares = [row["negative_flips"] / row["n"] for row in own if row["step"]]
            cells = [name, f"`{told}`", str(len(runs)), *_broken(rule, shares, len(runs))]
            cells += [f"{100 * fmean(shares):.2f} %"]
            cells += [f"{fmean(row['accuracy'] for row in runs):.1f} %"]
            yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "The other two rules promise nothing; they show what a promise costs."
    yield ""


def _broken(rule: str, shares: list[float], splits: int) -> tuple[str, str]:
    promised = re.match(r"at-most:([\d.]+)%", rule)
    if promised is None:
        return "–", "–"
    doubt = 1 - CONFIDENCE
    most = doubt + 2 * (doubt * (1 - doubt) / splits) ** 0.5
    share = fmean(one > float(promised[1]) / 100 for one in shares)
    mark = " ✗" if share > most else ""
    return f"{100 * share:.1f} % of {len(shares)}{mark}", f"{100 * most:.1f} %"


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, required=True, help="folder of .npz recordings")
    parser.add_argument("--splits", type=int, default=SPLITS, help="of a promise")
    parser.add_argument("--rows", type=Path, default=Path("build/learnt"), help="where rows are")
    parser.add_argument("--docs", type=Path, default=PAGES, help="where the page is written")
    parser.add_argument("--only", default="", help="only parts whose name has this in it")
    options = parser.parse_args()
    options.rows.mkdir(parents=True, exist_ok=True)
    jobs: dict[str, tuple[str, Callable[[], Results]]] = {
        f"priors-{name}": (mix.recording, partial(measure_prior, mix, options.recordings))
        for name, mix in MIXES.items()
    }
    for name in SEQUENCES:
        make = partial(measure_promises, options.recordings, name, options.splits)
        jobs[f"promises-{name}"] = name, make
    for part, (name, measure) in jobs.items():
        if options.only not in part:
            continue
        if not (options.recordings / f"{name}.npz").exists():
            print(f"{part}: left out, {name} is not in {options.recordings}", flush=True)
            continue
        started = time.perf_counter()
        measure().write(options.rows / f"{part}.parquet")
        print(f"{part}: {time.perf_counter() - started:.0f} s", flush=True)
    path = options.docs / "learnt.md"
    path.write_text(page(options.rows, sections(path)), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
