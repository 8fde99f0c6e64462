"""Whether beliefs hold per pair of votes, and more budget helps: docs/patterns-measured.md.

For every pair (label before, new vote) with at least 50 items of the target in a step: the share of
new votes that are right, beside the 90 % interval that beliefs and the labelled items of the same
pair give. And for budgets from 1 to 100 %: net corrections under the defaults.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.policy import SETTINGS, Setting
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.votes import MISSING, SoftVotes
from posterity.replay import Recording, run
from posterity.replay.walk import walk_dependent
from posterity.validation import expectation
from posterity.validation.expectation import Checked, Sums
from posterity.validation.rehearsal import Rehearsal

ITEMS, COVERED = 50, 0.85
BUDGETS = ["1%", "2%", "5%", "10%", "20%", "30%", "50%", "70%", "100%"]
PAIRS_AT = ["30%", "100%"]

Pair = tuple[int, int]


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
        run(recording, split=setting.split, seed=seed, order="improving", budgets=budget)
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


def budgets_of(recording: Recording, setting: Setting, seeds: int) -> list[str]:
    """A line of net corrections by budget; a mark where one is clearly below a smaller one."""
    rows = run(
        recording, split=setting.split, seed=1, seeds=seeds, order="improving", budgets=BUDGETS
    ).rows
    net, noise = defaultdict(list), defaultdict(list)
    for row in rows:
        net[row["budget"]].append(row["positive_flips"] - row["negative_flips"])
        noise[row["budget"]].append(row["positive_flips"] + row["negative_flips"])
    cells, best, spread = [], -np.inf, 0.0
    for budget in sorted(net):
        value = float(np.mean(net[budget]))
        error = sqrt(float(np.mean(noise[budget])) / len(net[budget]))
        falls = value < best - 2 * sqrt(error**2 + spread**2)
        cells.append(f"{value:,.0f}" + (" ✗" if falls else ""))
        if value > best:
            best, spread = value, error
    return cells


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, required=True, help="folder of .npz recordings")
    parser.add_argument("--seeds", type=int, default=5, help="splits")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the page is written")
    parser.add_argument("--only", nargs="+", help="some recordings")
    options = parser.parse_args()
    pairs, budgets = [], []
    for setting in SETTINGS:
        if options.only and setting.name not in options.only:
            continue
        if not (options.recordings / f"{setting.name}.npz").exists():
            print(f"{setting.name}: left out, it is not in {options.recordings}", flush=True)
            continue
        started, recording = time.perf_counter(), setting.recording(options.recordings)
        seeds = 1 if setting.split == "is_source" else min(options.seeds, setting.seeds)
        cells = [setting.name, str(seeds)]
        for budget in PAIRS_AT:
            found = partial(pairs_of, recording, setting, budget)
            inside = [each for seed in range(1, seeds + 1) for each in found(seed)]
            share = sum(inside) / max(1, len(inside))
            mark = "" if not inside or share >= COVERED else " ✗"
            cells.append(f"{sum(inside):,} of {len(inside):,}: {100 * share:.0f} %{mark}")
        pairs.append(cells)
        budgets.append([setting.name, str(seeds), *budgets_of(recording, setting, seeds)])
        print(f"{setting.name}: {time.perf_counter() - started:.0f} s", flush=True)
    (options.docs / "patterns-measured.md").write_text(_page(pairs, budgets), encoding="utf-8")
    print(f"wrote {options.docs / 'patterns-measured.md'}")


def _page(pairs: list[list[str]], budgets: list[list[str]]) -> str:
    told = [
        "# Beliefs per pair of votes, and more budget",
        "",
        "Generated by `make patterns`, with the defaults; models arrive in their order of accuracy "
        "on the labelled set. Recordings that are not listed were not measured.",
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
        *("| " + " | ".join(cells) + " |" for cells in pairs),
        "",
        "## More budget",
        "",
        "Net corrections over all steps by the budget of each step, means over splits. ✗: more "
        "than two standard errors below a smaller budget.",
        "",
        f"| recording | splits | {' | '.join(BUDGETS)} |",
        "|---|---:|" + "---:|" * len(BUDGETS),
        *("| " + " | ".join(cells) + " |" for cells in budgets),
    ]
    return "\n".join(told) + "\n"


if __name__ == "__main__":
    main()
