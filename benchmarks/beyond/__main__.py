"""Replay recordings, keep the rows as Parquet, and write docs/measurements/beyond.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks import PAGES
from benchmarks.beyond import budgets, review, shift, weights
from benchmarks.beyond.page import write_page
from posterity.replay import Results

PARTS = ("shift", "weights", "budgets", "review")


def jobs(part: str, recordings: Path) -> Iterator[tuple[str, Callable[[], Results | review.Rows]]]:
    """What to keep the rows as, and how to make them."""
    if part == "shift":
        for name, budget in product(shift.PAIRS, shift.BUDGETS):
            for at, kind in enumerate(shift.KINDS):
                make = partial(shift.measure, recordings, name, kind, budget)
                yield shift.rows_of(name, budget, at), make
    if part == "weights":
        for budget in weights.BUDGETS:
            for at, kind in enumerate(weights.KINDS):
                yield (
                    weights.rows_of(budget, at),
                    partial(weights.measure, recordings, kind, budget),
                )
    if part == "budgets":
        for name in budgets.SEQUENCES:
            yield f"budgets-{name}", partial(budgets.measure, recordings, name)
    if part == "review":
        for name in review.SEQUENCES:
            yield f"review-{name}", partial(review.measure, recordings, name)


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, required=True, help="folder of .npz recordings")
    parser.add_argument("--rows", type=Path, default=Path("build/beyond"), help="where rows are")
    parser.add_argument("--docs", type=Path, default=PAGES, help="where the page is written")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    parser.add_argument("--redraw", action="store_true", help="write the page from kept rows")
    options = parser.parse_args()
    options.rows.mkdir(parents=True, exist_ok=True)
    for part in () if options.redraw else options.parts:
        for name, make in jobs(part, options.recordings):
            if options.only in name:
                started = time.perf_counter()
                make().write(options.rows / f"{name}.parquet")
                print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    write_page(options.rows, options.docs)
    print(f"wrote {options.docs / 'beyond.md'}")


if __name__ == "__main__":
    main()
