"""Whether beliefs hold, and more budget helps, under the defaults: docs/measurements/patterns.md.

For every pair (label before, new vote) with at least 50 items of the target in a step: the share of
new votes that are right, beside the 90 % interval that beliefs and the labelled items of the same
pair give. For budgets from 1 to 100 %: net corrections, those that were forecast, and the expected
accuracy beside the true one. The page can be made of parts measured one by one: what is not
measured again stays as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import numpy as np
from tests.problems import characters

from benchmarks import PAGES
from benchmarks.earlier import Sections, rows, sections
from benchmarks.policy import SETTINGS, Setting
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.votes import MISSING, SoftVotes
from posterity.replay import Recording, Results, run
from posterity.replay.walk import walk_dependent
from posterity.validation import expectation
from posterity.validation.expectation import Checked, Sums
from posterity.validation.rehearsal import Rehearsal

ITEMS, COVERED, OFF = 50, 0.85, 1.5
"""Items a pair needs; the bars: share inside the interval, points expected accuracy may be off."""
BUDGETS = ["1%", "2%", "5%", "10%", "20%", "30%", "50%", "70%", "100%"]
PAIRS_AT = ["30%", "100%"]
EXPECTED_AT = (0.05, 0.1, 0.3, 1.0)
CHARACTERS, LABELLED, SPLITS = "characters", 5000, 20
TICKETS = "tutorial"

Pair = tuple[int, int]
Measured = dict[str, Any]


class Watching(Rehearsal):
    """Remembers what was believed of the new votes on labelled items, by pair."""

    latest: dict[Pair, list[tuple[bool, float]]]

    def step(self, fits: Any, votes: Codes | SoftVotes, step: Any, **others: Any) -> Any:
        """As it is, watched."""
        before = [half.labels.label.copy() for half in self._halves]
        voted = [half.voted.get(step.model) for half in self._halves]
        had = [None if one is None else one.copy() for one in voted]
        done = super().step(fits, votes, step, **others)
        found: dict[Pair, list[tuple[bool, float]]] = defaultdict(list)
        cast = votes.hard if isinstance(votes, SoftVotes) else votes
        for half, label, old in zip(self._halves, before, had, strict=True):
            new = half.voted.get(step.model, np.zeros(len(half.own), dtype=np.bool_))
            rows = np.flatnonzero(new if old is None else new & ~old)
            own = cast[half.own[rows]]
            believed = half.shard.dependent.of_each(own[:, None], rows)[:, 0]
            for pair, right, belief in zip(
                zip(label[rows].tolist(), own.tolist(), strict=True),
                (own == half.truth[rows]).tolist(),
                believed.tolist(),
                strict=True,
            ):
                found[pair].append((right, belief))
        type(self).latest = found
        return done


def pairs_of(recording: Recording, setting: Setting, budget: str, seed: int) -> list[bool]:
    """Of each pair with enough items: whether its share lies in the interval."""
    covered: list[bool] = []

    def watched(target: Recording, *given: Any, **options: Any) -> Iterator[Any]:
        for step in walk_dependent(target, *given, **options):
            if step.number:
                covered.extend(_checked(step, target.votes[step.number], target.truth))
            yield step

    with (
        mock.patch("posterity.replay.walk.Rehearsal", Watching),
        mock.patch("posterity.replay.experiment.walk_dependent", watched),
    ):
        run(recording, split=setting.split, seed=seed, order=setting.order, budgets=budget)
    return covered


def _checked(step: Any, votes: Codes, truth: Codes) -> Iterator[bool]:
    rows: Rows = step.rows
    before = step.decisions[0].before[: len(rows)]
    new = votes[rows].astype(np.int32)
    believed: Floats = step.shard.dependent.of_each(new[:, None], rows)[:, 0]
    known = before != MISSING
    cells = before.astype(np.int64) * 10**6 + new
    for cell, many in zip(*np.unique(cells[known], return_counts=True), strict=True):
        if many < ITEMS:
            continue
        own = np.flatnonzero(cells == cell)
        pair = int(cell // 10**6), int(cell % 10**6)
        told = Watching.latest.get(pair, [])
        checked = Checked.of([hit for hit, _ in told], [belief for _, belief in told])
        found = expectation.accuracy(Sums.of(believed[own]), checked)
        share = float((new[own] == truth[rows[own]]).mean())
        if found is None or found.low is None or found.high is None:
            continue
        yield found.low <= share <= found.high


def tickets(tutorial: Path, draw: int) -> Recording:
    """The tickets of the tutorial, and others drawn like them: votes of both models."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    found = re.search(r"make_tickets.py <<'END'\n(.*?)\ndraw = ", tutorial.read_text(), re.DOTALL)
    if found is None:
        raise ValueError(f"{tutorial} has no make_tickets.py.")
    made: dict[str, Any] = {}
    exec(found[1], made)  # the page's own code
    rng = made["random"].Random(draw)
    drawn = [made["ticket"](rng) for _ in range(6000)]
    texts, truths = [text for text, _ in drawn], [truth for _, truth in drawn]
    reader = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts[:1000], truths[:1000])
    classes = sorted(made["PHRASES"])
    votes = [[made["keywords"](text) for text in texts[1000:]], reader.predict(texts[1000:])]
    return Recording(
        classes=classes,
        models=["keywords", "reader"],
        truth=np.searchsorted(classes, truths[1000:]).astype(np.int32),
        votes=np.array([np.searchsorted(classes, each) for each in votes], dtype=np.int32),
    )


def measure(done: Results, inside: dict[str, list[bool]]) -> Measured:
    """What the page tells of one recording, from its replays and pairs."""
    by_budget = defaultdict(list)
    variance: defaultdict[float, float] = defaultdict(float)
    for row in done.rows:
        by_budget[row["budget"]].append(row)
    for row in done.steps:
        if row["step"]:  # of what is forecast, as its 90 % interval has it
            reach = (row["forecast_high"] - row["forecast_low"]) / (2 * expectation.NORMAL)
            variance[row["budget"]] += reach**2
    told: Measured = {
        "splits": len({row["seed"] for row in done.rows}),
        "pairs": {budget: [sum(own), len(own)] for budget, own in inside.items()},
        "budgets": {},
    }
    for budget, own in sorted(by_budget.items()):
        flips = [row["positive_flips"] + row["negative_flips"] for row in own]
        off = [row["checked_accuracy"] - row["accuracy"] for row in own]
        told["budgets"][str(budget)] = {
            "net": fmean(row["positive_flips"] - row["negative_flips"] for row in own),
            "net error": sqrt(fmean(flips) / len(own)),
            "forecast": fmean(row["forecast"] for row in own),
            "forecast error": sqrt(variance[budget]) / len(own),
            "off": fmean(off),
            "most": max(off, key=abs),
            "covered": sum(
                row["checked_accuracy_low"] <= row["accuracy"] <= row["checked_accuracy_high"]
                for row in own
            ),
        }
    return told


def of_recording(setting: Setting, recordings: Path, most: int) -> Measured:
    """A recording of real classifiers."""
    recording = setting.recording(recordings)
    seeds = min(most, setting.seeds)
    inside = {
        budget: [
            each
            for seed in range(1, seeds + 1)
            for each in pairs_of(recording, setting, budget, seed)
        ]
        for budget in PAIRS_AT
    }
    common: dict[str, Any] = {"split": setting.split, "order": setting.order}
    return measure(run(recording, seed=1, seeds=seeds, budgets=BUDGETS, **common), inside)


def of_characters() -> Measured:
    """Thousands of classes."""
    recording = characters()
    share = LABELLED / len(recording)
    done = run(recording, split=share, budgets=[*EXPECTED_AT], seed=1, seeds=SPLITS)
    return measure(done, {})


def of_tickets(most: int) -> Measured:
    """The tutorial's own, and others like them."""
    done = Results()
    for draw in range(1, most + 1):
        own = tickets(PAGES.parent / "tutorial.md", draw)
        done.extend(run(own, split=0.2, seed=draw, budgets=BUDGETS))
    return measure(done, {})


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, required=True, help="folder of .npz recordings")
    parser.add_argument("--seeds", type=int, default=5, help="splits at most")
    parser.add_argument("--kept", type=Path, default=Path("build/patterns"), help="kept figures")
    parser.add_argument("--docs", type=Path, default=PAGES, help="where the page is written")
    parser.add_argument("--only", nargs="+", help="some recordings; the page has all kept figures")
    options = parser.parse_args()
    options.kept.mkdir(parents=True, exist_ok=True)
    jobs: dict[str, Callable[[], Measured]] = {
        TICKETS: lambda: of_tickets(options.seeds),
        CHARACTERS: of_characters,
    }
    for setting in SETTINGS:
        if setting.path(options.recordings).exists():
            jobs[setting.name] = lambda own=setting: of_recording(  # type: ignore[misc]
                own, options.recordings, options.seeds
            )
        else:
            print(f"{setting.name}: left out, it is not in {options.recordings}", flush=True)
    for name, job in jobs.items():
        if options.only and name not in options.only:
            continue
        started = time.perf_counter()
        (options.kept / f"{name}.json").write_text(json.dumps(job()))
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    names = [*(setting.name for setting in SETTINGS), TICKETS, CHARACTERS]
    paths = {name: options.kept / f"{name}.json" for name in names}
    kept = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    path = options.docs / "patterns.md"
    path.write_text(page(names, kept, sections(path)), encoding="utf-8")
    print(f"wrote {path}")


def page(names: list[str], kept: dict[str, Measured], earlier: Sections) -> str:
    """All that was measured, now or earlier, as Markdown."""
    told = [
        "# Beliefs per pair of votes, expected accuracy, and more budget",
        "",
        "Generated by `make patterns`, with the defaults; models arrive in their order of accuracy "
        "on the labelled set, unless the name says otherwise. Recordings that are not listed were "
        "not measured. *tutorial*: the tickets of the tutorial, and others drawn by the same "
        "script. *characters*: 28,547 "
        f"Unicode characters in 4,194 classes (the first two words of their names), {LABELLED:,} "
        "of them labelled, and four classifiers that say the class of the nearest character they "
        "have seen.",
        "",
        "## Pairs of votes",
        "",
        f"Pairs (label before, new vote) with at least {ITEMS} items of the target in a step: in "
        "how many the share of right votes lies within the 90 % interval given by the beliefs in "
        "the votes and by labelled items of the same pair. ✗: fewer than "
        f"{100 * COVERED:.0f} %.",
        "",
        f"| recording | splits | budget {' | budget '.join(PAIRS_AT)} |",
        "|---|---:|" + "---|" * len(PAIRS_AT),
    ]
    for name in names:
        if name not in kept:
            told += rows(earlier.get("Pairs of votes", []), name)
        elif (own := kept[name])["pairs"]:
            cells = [_covered(*own["pairs"][budget]) for budget in PAIRS_AT]
            told.append("| " + " | ".join([name, str(own["splits"]), *cells]) + " |")
    told += [
        "",
        "## Expected accuracy",
        "",
        "Expected less true accuracy of all labels after the last step, in points: mean over "
        "splits (largest of them), and in how many splits the true one lies within the 90 % "
        f"interval. ✗: a mean off by more than {OFF} points; for *characters*, fewer than "
        f"{100 * COVERED:.0f} % of the splits inside.",
        "",
        f"| recording | splits | {' | '.join(f'{100 * at:.0f} %' for at in EXPECTED_AT)} |",
        "|---|---:|" + "---|" * len(EXPECTED_AT),
    ]
    for name in names:
        if name not in kept:
            told += rows(earlier.get("Expected accuracy", []), name)
            continue
        own = kept[name]
        cells = [_off(name, own, own["budgets"][str(at)]) for at in EXPECTED_AT]
        told.append("| " + " | ".join([name, str(own["splits"]), *cells]) + " |")
    told += [
        "",
        "## More budget",
        "",
        "Net corrections over all steps by the budget of each step, means over splits; below them "
        "those that the plans of these steps forecast, the planner's curve. ✗: more than two "
        "standard errors below a smaller budget.",
        "",
        f"| recording | splits | | {' | '.join(BUDGETS)} |",
        "|---|---:|---|" + "---:|" * len(BUDGETS),
    ]
    for name in names:
        if name not in kept:
            told += rows(earlier.get("More budget", []), name)
        elif name != CHARACTERS:
            own = kept[name]
            for figure in ("net", "forecast"):
                cells = [name, str(own["splits"]), figure, *_falls(own["budgets"], figure)]
                told.append("| " + " | ".join(cells) + " |")
    return "\n".join(told) + "\n"


def _covered(inside: int, every: int) -> str:
    if not every:
        return "–"
    share = inside / every
    mark = "" if share >= COVERED else " ✗"
    return f"{inside:,} of {every:,}: {100 * share:.0f} %{mark}"


def _off(name: str, own: Measured, at: Measured) -> str:
    misses = abs(at["off"]) > OFF
    if name == CHARACTERS:
        misses = at["covered"] < COVERED * own["splits"]
    mark = " ✗" if misses else ""
    return f"{at['off']:+.1f} ({at['most']:+.1f}); {at['covered']} of {own['splits']}{mark}"


def _falls(budgets: dict[str, Measured], figure: str) -> Iterator[str]:
    """The figure by budget; a mark where one is clearly below that of a smaller one."""
    best, spread = -np.inf, 0.0
    for _, at in sorted(budgets.items(), key=lambda one: float(one[0])):
        value, error = at[figure], at[f"{figure} error"]
        falls = value < best - 2 * sqrt(error**2 + spread**2)
        yield f"{value:,.0f}" + (" ✗" if falls else "")
        if value > best:
            best, spread = value, error


if __name__ == "__main__":
    main()
