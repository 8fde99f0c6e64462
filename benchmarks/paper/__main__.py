"""Run the experiments, keep their rows as Parquet, and write the page and its figures from them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import PAGES
from benchmarks.paper.experiments import EXPERIMENTS, AbsentError, entropies
from benchmarks.paper.page import write_page


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, required=True, help="folder of .npz recordings")
    parser.add_argument("--seeds", type=int, default=5, help="splits and random draws to average")
    parser.add_argument(
        "--rows", type=Path, default=Path("build/paper"), help="where rows are kept"
    )
    parser.add_argument("--docs", type=Path, default=PAGES, help="where the page is written")
    parser.add_argument("--redraw", action="store_true", help="write the page from kept rows")
    options = parser.parse_args()
    if not options.redraw:
        replay_all(options.recordings, options.seeds, options.rows)
    write_page(options.rows, options.docs)
    print(f"wrote {options.docs / 'paper.md'}")


def replay_all(recordings: Path, seeds: int, rows: Path) -> None:
    """Every experiment whose recordings are there, one results file each."""
    rows.mkdir(parents=True, exist_ok=True)
    for name, experiment in EXPERIMENTS.items():
        kept = rows / f"{name}.parquet"
        kept.unlink(missing_ok=True)
        started = time.perf_counter()
        try:
            experiment(recordings, seeds).write(kept)
        except AbsentError as absent:
            if name == "imagenet":
                sys.exit(
                    f"'{recordings}' has no {absent}; docs/reference/replay.md says how to get it."
                )
            print(f"{name}: left out, {recordings} has no {absent}", flush=True)
            continue
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    histogram = list(entropies(recordings))
    pq.write_table(pa.Table.from_pylist(histogram), rows / "entropies.parquet")


if __name__ == "__main__":
    main()
