"""Beliefs from a history of votes, beside plain NumPy and beside a copy of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import fill

import numpy as np

from benchmarks.speed.dense import BLOCK_CELLS, Dense, Fold, spread
from benchmarks.speed.history import History, Setting
from benchmarks.speed.timing import Timing, on_threads, table, timed
from posterity.method.data.votes import VoteTable
from posterity.method.kernels import compiler

HEADLINES = tuple(Setting(1000, 16, 0.1, estimator) for estimator in ("diagonal", "full"))
ITEMS = {
    **{Setting(classes, 16, 0.1, "diagonal"): 8_000_000 for classes in (10, 100, 1000, 10_000)},
    Setting(1000, 16, 0.1, "full"): 1_000_000,
    **{Setting(1000, 1, 0.3, estimator): 2_000_000 for estimator in ("diagonal", "full")},
    **{Setting(1000, 4, 0.3, estimator): 2_000_000 for estimator in ("diagonal", "full")},
    **{Setting(1000, 16, 0.3, estimator): 500_000 for estimator in ("diagonal", "full")},
    **{Setting(1000, 40, 0.3, estimator): 100_000 for estimator in ("diagonal", "full")},
    Setting(1000, 16, 1.0, "diagonal"): 2_000_000,
    Setting(1000, 16, 1.0, "full"): 200_000,
}
"""So many that a repetition takes a second or two."""
DENSE_REPEATS = 3
THREADS = 2


@dataclass(frozen=True)
class DenseTimings:
    """Plain NumPy on one thread."""

    items: int
    arriving: Timing
    at_once: Timing
    one_vote: Timing
    kib: tuple[int, int, int]
    """The size of the best block for each."""
    difference: float
    """Between its entropies and ours, at most."""
    arriving_threaded: Timing | None = None


@dataclass(frozen=True)
class Row:
    """One setting, measured."""

    setting: Setting
    items: int
    step: Timing
    fold: Timing
    copy: Timing
    step_alone: Timing
    """The step on one thread."""
    dense: DenseTimings


def measure(settings: dict[Setting, int] | None = None) -> Iterator[Row]:
    """Every setting, one after the other."""
    for setting, items in (settings or ITEMS).items():
        history = History.draw(setting, items)
        with on_threads(THREADS):
            step, fold = timed(history.step, items), timed(history.fold, items)
            copy = timed(_copy(history.traffic), items)
        with on_threads(1):
            alone = timed(history.step, items)
        yield Row(setting, items, step, fold, copy, alone, _measure_dense(history))


def _copy(traffic: int) -> Callable[[], None]:
    """Copying half the bytes reads and writes as many as there are in all."""
    source = np.ones(traffic // 2, dtype=np.uint8)
    target = np.zeros_like(source)

    def work(start: int, stop: int) -> None:
        target[start:stop] = source[start:stop]

    def copy() -> None:
        compiler.spread(len(source), work)

    return copy


def _measure_dense(history: History) -> DenseTimings:
    setting = history.setting
    items = min(len(history.hard), 200_000, 20_000_000 // setting.classes)
    dense = Dense(history, items)
    # One vote first: the entropies that stay are those of the whole history.
    (one_vote, at_once, arriving), sizes = zip(
        *(
            _best(dense, fold, before)
            for fold, before in (
                (dense.one_vote, dense.keep_beliefs),
                (dense.at_once, _nothing),
                (dense.as_votes_arrive, _nothing),
            )
        ),
        strict=True,
    )
    ours = history.product().fold(VoteTable.only(history.hard[:items])).entropy
    difference = float(np.abs(dense.out.entropy - ours).max())
    threaded = None
    if setting in HEADLINES:
        work = spread(dense.as_votes_arrive, dense, sizes[2], threads=THREADS)
        threaded = timed(work, items, repeats=DENSE_REPEATS)
    kib = tuple(4 * cells // 1024 for cells in reversed(sizes))
    return DenseTimings(
        items, arriving, at_once, one_vote, (kib[0], kib[1], kib[2]), difference, threaded
    )


def _best(dense: Dense, fold: Fold, before: Callable[[], None]) -> tuple[Timing, int]:
    """The time with the block size that is fastest, and that size."""
    tried = {
        cells: timed(spread(fold, dense, cells), dense.items, repeats=1, before=before).median
        for cells in BLOCK_CELLS
    }
    cells = min(tried, key=tried.__getitem__)
    work = spread(fold, dense, cells)
    return timed(work, dense.items, repeats=DENSE_REPEATS, before=before, warm=False), cells


def _nothing() -> None:
    pass


def report(rows: list[Row]) -> str:
    """The measurements as Markdown."""
    ours = table(
        [
            *("classes", "models", "share", "confusion", "items", "a step", "of it the fold"),
            *("a step, 1 thread", "plain copy", "step/copy"),
        ],
        (
            [
                *_settings(row),
                f"{row.items:,}",
                *(row.step, row.fold, row.step_alone, row.copy, row.step / row.copy),
            ]
            for row in rows
        ),
    )
    dense = table(
        [
            *("classes", "models", "share", "confusion", "items", "as votes arrive", "at once"),
            *("one vote", "blocks, KiB", "arrive/ours", "at once/ours", "one vote/ours"),
        ],
        ([*_settings(row), *_beside(row)] for row in rows),
    )
    worst = max(row.dense.difference for row in rows)
    return f"""{_headlines(rows)}

The paper reports 0.406 ms an item for its posterior update, which it calls unoptimised (Träuble et
al., 2021, appendix; a quotation, from another machine).

{ours}

Dense NumPy on the same votes, fewer items, one thread; the last three columns are how many times
as long it takes as our whole step on one thread. It reaches the same entropies to {worst:.1g},
which is what single precision leaves. A ratio below one means that dense NumPy is faster.

{dense}
"""


def _headlines(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        if row.setting not in HEADLINES or row.dense.arriving_threaded is None:
            continue
        said = (
            f"- **{row.setting}: {row.step} an item.** Dense NumPy takes "
            f"{row.dense.arriving / row.step_alone} times as long vote after vote, "
            f"{row.dense.at_once / row.step_alone} times with all votes at once, and "
            f"{row.dense.one_vote / row.step_alone} times for one single vote into kept beliefs "
            f"(one thread each; vote after vote with {THREADS} threads each "
            f"{row.dense.arriving_threaded / row.step})."
        )
        lines.append(fill(said, 100, subsequent_indent="  "))
    return "\n".join(lines)


def _settings(row: Row) -> list[str]:
    setting = row.setting
    return [
        *(f"{setting.classes:,}", str(setting.models)),
        *(f"{setting.share:.0%}", setting.estimator),
    ]


def _beside(row: Row) -> list[object]:
    dense, ours = row.dense, row.step_alone
    return [
        *(f"{dense.items:,}", dense.arriving, dense.at_once, dense.one_vote),
        ", ".join(f"{kib:,}" for kib in dense.kib),
        *(dense.arriving / ours, dense.at_once / ours, dense.one_vote / ours),
    ]
