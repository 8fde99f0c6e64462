"""Defaults beside fixed policies on every recording: write docs/measurements/policy.md.

Each recording is replayed with the defaults, with policies tuned on the labelled set, and under a
grid of selectors and rules with the same prior. The page can be made of parts measured one by one:
what is not measured again stays as it is.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, mode
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import PAGES
from benchmarks.earlier import sections
from benchmarks.paper.experiments import PAPER_MODELS
from posterity.method.decide.defaults import DEFAULT_RULE, DEPENDENT
from posterity.replay import Recording, Results, run

BUDGETS = ["5%", "10%", "30%", "100%"]
DEFAULT = DEFAULT_RULE[DEPENDENT]
REPLACE, MAJORITY = "replace", "majority-vote"
GRID = [
    *("max-belief", "cost-ratio:1.5", "cost-ratio:2", "cost-ratio:3", "cost-ratio:5"),
    *("cost-ratio:10", "cost-ratio:2+confirm", "cost-ratio:5+confirm", "cost-ratio:2+two-votes"),
]
SELECTORS = ["value", "contested", "entropy"]
GOALS = ["final:95%", "soon:95%"]
FIGURES = ["accuracy", "mean_accuracy"]
"""What each goal is about."""
BEFORE: dict[str, Any] = {"prior": "uniform", "rules": "cost-ratio:10"}
"""What the defaults were before they were learnt from the labelled set."""
GAIN, NEGATIVE, BELOW = 0.8, 0.5, 0.3
"""The bars: share of the best gain, share of the negative flips of replace, points below it."""

Row = dict[str, Any]


def pascal_cells(path: Path) -> Recording:
    """Tags of pictures, each picture and tag an item that is yes or no."""
    with np.load(path) as held:
        votes, truth = held["votes"], held["truth"]
        names = [str(name) for name in held["models"]]
    return Recording(
        classes=["no", "yes"],
        models=names,
        truth=truth.reshape(-1).astype(np.int32),
        votes=votes.reshape(len(names), -1).astype(np.int32),
    )


@dataclass(frozen=True)
class Setting:
    """A recording, and how it is replayed."""

    name: str
    split: float
    models: tuple[str, ...] = ()
    every: int = 1
    """Of the recorded models, as they are sorted by accuracy, every so many arrive."""
    load: Callable[[Path], Recording] = Recording.load
    seeds: int = 5
    """Splits at most: larger recordings vary less."""
    order: str = "improving"
    """How models arrive."""
    file: str = ""
    """Of the recording, where several settings share one."""
    most: int | None = None
    """Items at most, drawn at random: each of a hundred walks takes time for every one."""

    def path(self, folder: Path) -> Path:
        """Where the recording is."""
        return folder / f"{self.file or self.name}.npz"

    def recording(self, folder: Path) -> Recording:
        """The models that arrive."""
        found = self.load(self.path(folder))
        if self.most is not None:
            found = found.take(np.random.default_rng(0).permutation(len(found))[: self.most])
        return found.pick(self.models or [str(name) for name in found.models[:: self.every]])


SETTINGS = [
    Setting("expw_apis", 0.2),
    Setting("babe_llm", 0.3, every=9),
    Setting("babe_llm, random order", 0.3, every=9, order="random:1", file="babe_llm"),
    Setting("pascal_tags", 0.05, load=pascal_cells),
    Setting("emotion_llm", 0.3),
    Setting("model_vs_human", 0.5),
    Setting("cifar10_test", 0.5, seeds=1),
    Setting("cifar10_1_v6", 0.5, every=3),
    Setting("langid", 0.2, every=2, most=40_000),
    Setting("imagenet_val", 0.5, models=tuple(PAPER_MODELS), seeds=1),
    Setting("imagenetv2_matchedfreq", 0.5, models=tuple(PAPER_MODELS), seeds=1),
]


def measure(recording: Recording, setting: Setting, seeds: int) -> Results:
    """The defaults, policies tuned to each goal, the grid, and what the defaults were."""
    common: dict[str, Any] = {"split": setting.split, "seed": 1, "seeds": min(seeds, setting.seeds)}
    common |= {"order": setting.order, "budgets": BUDGETS}
    found = run(recording, rules=[DEFAULT, REPLACE, MAJORITY], tune=GOALS, **common)
    found.extend(run(recording, rules=GRID, selector=SELECTORS, **common))
    found.extend(run(recording, **BEFORE, **common))
    return found


@dataclass(frozen=True)
class Cells:
    """Means over splits, by budget."""

    named: dict[tuple[float, str], Row]
    """Defaults, replace, majority and tuned policies."""
    fixed: dict[float, dict[str, Row]]
    """The grid."""

    @classmethod
    def of(cls, rows: list[Row]) -> Cells:
        """Of all runs on a recording."""
        named, fixed = defaultdict(list), defaultdict(list)
        for row in rows:
            goal = re.search(r"\(tuned: (.*)\)$", row["rule"])
            if row["prior"] == BEFORE["prior"]:
                named[row["budget"], "before"].append(row)
            elif goal or row["rule"] in (DEFAULT, REPLACE, MAJORITY):
                named[row["budget"], goal[1] if goal else row["rule"]].append(row)
            else:
                fixed[row["budget"], f"{row['selector']}, {row['rule']}"].append(row)
        grid: dict[float, dict[str, Row]] = defaultdict(dict)
        for (budget, policy), some in fixed.items():
            grid[budget][policy] = _mean(some)
        return cls({key: _mean(some) for key, some in named.items()}, grid)


def _mean(rows: list[Row]) -> Row:
    names = ("accuracy", "delta_accuracy", "mean_accuracy", "negative_flips")
    chosen = [f"{row['selector']}, {row['rule'].split(' ')[0]}" for row in rows]
    return {name: fmean(row[name] for row in rows) for name in names} | {"chosen": mode(chosen)}


@dataclass(frozen=True)
class Bars:
    """What a policy did beside the bars."""

    share: float
    """Of the best gain."""
    broken: float
    """Beside ``replace``."""
    behind: float
    """Accuracy less that of the better of ``replace`` and ``majority-vote``."""
    level: bool
    """Whether it is not too far behind, where that counts."""

    @classmethod
    def of(cls, row: Row, *, gained: float, replace: Row, most: Row, last: bool) -> Bars:
        """``gained``: the best gain; ``last``: at a full budget."""
        behind = row["accuracy"] - max(replace["accuracy"], most["accuracy"])
        return cls(
            share=row["delta_accuracy"] / gained if gained > 0 else 1.0,
            broken=row["negative_flips"] / max(1.0, replace["negative_flips"]),
            behind=behind,
            level=not last or behind >= -BELOW,
        )

    @property
    def met(self) -> bool:
        """Whether it is within all of them."""
        return self.share >= GAIN and self.broken <= NEGATIVE and self.level


def lines_of(rows: list[Row]) -> Iterator[str]:
    """Two tables of one recording, a line per budget: defaults, and tuned policies."""
    found = Cells.of(rows)
    yield (
        "| budget | defaults: gain / broken | before | replace | majority | best of the grid | "
        "share of its gain | broken ÷ replace's | − replace | meets all bars |"
    )
    yield "|---:|---:|---:|---:|---:|---|---:|---:|---:|---|"
    for budget, grid in sorted(found.fixed.items()):
        own, before, other, most = (
            found.named[budget, name] for name in (DEFAULT, "before", REPLACE, MAJORITY)
        )
        best = max(grid, key=lambda policy: grid[policy]["delta_accuracy"])
        gained = grid[best]["delta_accuracy"]
        bars = partial(Bars.of, gained=gained, replace=other, most=most, last=budget >= 1)
        mine = bars(own)
        marks = [
            f"{100 * mine.share:.0f} %" + ("" if mine.share >= GAIN else " ✗"),
            f"{mine.broken:.2f}" + ("" if mine.broken <= NEGATIVE else " ✗"),
            f"{mine.behind:+.1f}" + ("" if mine.level else " ✗"),
        ]
        meeting = {row["delta_accuracy"]: name for name, row in grid.items() if bars(row).met}
        marks.append("the default" if mine.met else meeting[max(meeting)] if meeting else "none")
        pairs = [_pair(one, "delta_accuracy", "+.1f") for one in (own, before, other, most)]
        pairs.append(f"{best}: {_pair(grid[best], 'delta_accuracy', '+.1f')}")
        yield "| " + " | ".join([f"{100 * budget:.0f} %", *pairs, *marks]) + " |"
    yield ""
    yield (
        "| budget | goal | choice | tuned: accuracy / broken | best fixed with no more broken | "
        "difference | default |"
    )
    yield "|---:|---|---|---:|---|---:|---:|"
    for budget, grid in sorted(found.fixed.items()):
        for goal, figure in zip(GOALS, FIGURES, strict=True):
            own = found.named[budget, goal]
            few = [name for name in grid if grid[name]["negative_flips"] <= own["negative_flips"]]
            told, apart = "none", ""
            if few:
                best = max(few, key=lambda policy: grid[policy][figure])
                ahead = grid[best][figure] - own[figure]
                told = f"{best}: {_pair(grid[best], figure, '.1f')}"
                apart = f"{-ahead:+.1f}" + (" ✗" if ahead > BELOW else "")
            usual = _pair(found.named[budget, DEFAULT], figure, ".1f")
            cells = [f"{100 * budget:.0f} %", goal, own["chosen"], _pair(own, figure, ".1f")]
            yield "| " + " | ".join([*cells, told, apart, usual]) + " |"


def _pair(row: Row, figure: str, form: str) -> str:
    return f"{row[figure]:{form}} / {row['negative_flips']:,.0f}"


def write_page(folder: Path, docs: Path) -> None:
    """The page, from all rows that are kept."""
    told = [
        "# Defaults beside fixed policies",
        "",
        "Generated by `make policy`. Each recording is replayed with the defaults (prior "
        f"`estimated`, selector `value`, rule `{DEFAULT}`), and under {len(GRID)} fixed rules with "
        f"each of the selectors {', '.join(SELECTORS)}; "
        "*before* is the uniform prior with `cost-ratio:10`. Models arrive in their order of "
        "accuracy on the labelled set, unless the title says otherwise. *Gain*: points of accuracy "
        "since the first model; *broken*: negative flips over all steps; means over splits. *Best "
        "of the grid*: the "
        "fixed policy with the highest gain, known only afterwards. *− replace*: accuracy less "
        "that of the better of `replace` and `majority-vote`.",
        "",
        f"✗ marks what misses its bar: at least {100 * GAIN:.0f} % of the best gain, at most "
        f"{NEGATIVE:g} times the negative flips of `replace`, and at 100 % no more than {BELOW:g} "
        "points below both. *Meets all bars*: the default, or else the fixed policy that does, "
        "known only afterwards; *none* where no policy of the grid does.",
        "",
        "The second tables are of policies that `tune` chose on the labelled set, over the whole "
        "sequence of models: accuracy at the end (`final`) or averaged over the steps (`soon`). "
        "*Best fixed with no more broken*: of the grid, known only afterwards; ✗ where it is more "
        f"than {BELOW:g} points better. *Choice*: the most frequent one over splits.",
        "",
        "The constants of the default rule (its share, the lowest ratio, the one where nothing is "
        "clear) were chosen by looking at some of these recordings, on the first split. So these "
        "are not figures of data it has not seen; see decision 0015.",
    ]
    page = docs / "policy.md"
    earlier = sections(page)
    for setting in SETTINGS:
        kept = folder / f"{setting.name}.parquet"
        told += ["", f"## {setting.name}", ""]
        if not kept.exists():
            told += earlier.get(setting.name, ["Not measured."])
            continue
        rows = [row for row in pq.read_table(kept).to_pylist() if row["kind"] == "run"]
        about = rows[0]
        splits = len({row["seed"] for row in rows})
        told.append(
            f"{about['n']:,} items, {about['steps'] + 1} models, labelled share {setting.split}, "
            f"{splits} split{'s' if splits > 1 else ''}."
        )
        told += ["", *lines_of(rows)]
    page.write_text("\n".join(told) + "\n", encoding="utf-8")


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, required=True, help="folder of .npz recordings")
    parser.add_argument("--seeds", type=int, default=5, help="splits to average")
    parser.add_argument("--rows", type=Path, default=Path("build/policy"), help="kept rows")
    parser.add_argument("--docs", type=Path, default=PAGES, help="where the page is written")
    parser.add_argument("--only", nargs="+", help="some recordings; the page has all kept rows")
    options = parser.parse_args()
    options.rows.mkdir(parents=True, exist_ok=True)
    for setting in SETTINGS:
        if options.only and setting.name not in options.only:
            continue
        if not setting.path(options.recordings).exists():
            print(f"{setting.name}: left out, it is not in {options.recordings}", flush=True)
            continue
        started = time.perf_counter()
        results = measure(setting.recording(options.recordings), setting, options.seeds)
        results.write(options.rows / f"{setting.name}.parquet")
        print(f"{setting.name}: {time.perf_counter() - started:.0f} s", flush=True)
    write_page(options.rows, options.docs)
    print(f"wrote {options.docs / 'policy.md'}")


if __name__ == "__main__":
    main()
