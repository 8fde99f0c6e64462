"""Replay every recording, keep the rows as Parquet, and write docs/measurements/beliefs.md."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks import PAGES
from benchmarks.trust.ablation import ablate
from benchmarks.trust.experiments import METHODS, SETTINGS, given
from benchmarks.trust.page import write_page
from posterity.replay import Results


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, required=True, help="folder of .npz recordings")
    parser.add_argument("--seeds", type=int, default=5, help="splits to average")
    parser.add_argument(
        "--rows", type=Path, default=Path("build/trust"), help="where rows are kept"
    )
    parser.add_argument("--docs", type=Path, default=PAGES, help="where the page is written")
    parser.add_argument("--only", help="one recording; the page is written from all kept rows")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=[*METHODS, "ablation"],
        default=[*METHODS, "ablation"],
        help="what is measured",
    )
    parser.add_argument("--redraw", action="store_true", help="write the page from kept rows")
    options = parser.parse_args()
    options.rows.mkdir(parents=True, exist_ok=True)
    for setting in SETTINGS:
        present = (options.recordings / f"{setting.name}.npz").exists()
        if options.redraw or (options.only or setting.name) != setting.name:
            continue
        if not present:
            print(f"{setting.name}: left out, it is not in {options.recordings}", flush=True)
            continue
        replayed = given(options.recordings, setting, options.seeds)
        for part in options.parts:
            started = time.perf_counter()
            if part == "ablation":
                ablate(replayed, options.rows / f"{setting.name}-ablation.json")
            else:
                results = Results()
                for some in METHODS[part](replayed):
                    results.extend(some)
                results.write(options.rows / f"{setting.name}-{part}.parquet")
            print(f"{setting.name}, {part}: {time.perf_counter() - started:.0f} s", flush=True)
    write_page(options.rows, options.docs)
    print(f"wrote {options.docs / 'beliefs.md'}")


if __name__ == "__main__":
    main()
