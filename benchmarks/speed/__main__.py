"""See the package; each part of the page is measured by the module it is named after."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import PAGES
from benchmarks.speed import beliefs, beside, dependent, evaluation, rules, scale, selection
from benchmarks.speed.dense import BLOCK_CELLS
from benchmarks.speed.history import HIGHEST, LABELLED, LOWEST
from benchmarks.speed.timing import REPEATS, machine

PEERS = Path(".venv-bench/bin/python")


def part_beliefs(_: argparse.Namespace) -> str:
    """The belief from a history of votes."""
    sizes = ", ".join(f"{4 * cells // 1024:,}" for cells in BLOCK_CELLS)
    return f"""## The belief from a history of votes

What is kept of an item is its votes. A *step* needs from them the entropy, the most believed class,
its belief and the normaliser (the *fold*), and the belief of the stored label. The first model has
voted on every item, each later one on a random share; models err evenly over all classes, with
accuracies from {LOWEST:.0%} to {HIGHEST:.0%}; confusions come from {LABELLED} labelled items a
class. A repetition begins with the confusions, so that tables are part of it; kernels are
compiled before. Two threads unless said. *Plain copy* moves as many bytes as a step must read
(votes, labels) and write (results), on two threads: the limit.

*Dense NumPy* keeps a float32 log-belief for each item and class and adds the logarithm of the
confusion's row for each vote; then arg-max, exponential, sum and entropy, in blocks that fit the
cache (the best of {sizes} KiB), with buffers made once.
*As votes arrive*: the whole history, everything known after each vote, as the method is written.
*At once*: all votes added up and looked at once, which answers the same question as our step.
*One vote*: one single vote added to beliefs that are kept, 4 bytes a class and item, while our step
folds the whole history anew.

{beliefs.report(list(beliefs.measure()))}"""


def part_dependent(_: argparse.Namespace) -> str:
    """Dependent beliefs beside plain ones."""
    return f"""## Dependent beliefs

The same history ({dependent.SETTING}; {dependent.ITEMS:,} items): a step's beliefs both ways, and
what the selector `value` computes. Work is in proportion to votes, not to classes.

{dependent.report(dependent.measure())}"""


def part_scale(_: argparse.Namespace) -> str:
    """Linear in the number of items."""
    return f"""## More items

The same step on {scale.SETTING};
streamed in blocks of {scale.BLOCK:,} items through one set of tables. {scale.DISTINCT} different
blocks are drawn and gone through again and again, so that the stream need not be kept. Each size in
a process of its own; *after a block* is what its peak grew by from the first block to the last.

{scale.report(scale.measure())}
"""


def part_selection(_: argparse.Namespace) -> str:
    """Choosing items."""
    return f"""## Selection

{selection.SHARE:.0%} of all items chosen by score: exactly so many, ties by a hash of the row, rows
in order. It goes by histograms that can be added up over blocks. Beside it NumPy's partition and
sort, which need all scores at once and do not settle ties. A ratio below one means that NumPy is
faster. The largest size is measured once.

{selection.report(list(selection.measure()))}
"""


def part_peers(options: argparse.Namespace) -> str:
    """Other packages."""
    return f"""## Other packages

The same votes and, for crowd-kit, the same confusions and prior, in an environment of their own
(`benchmarks/peers.txt`); ours on one thread. Crowd-kit's E-step is one iteration of its
Dawid-Skene, and the same computation as ours: every item's belief in every class. For it our own
beliefs are written out too (*all beliefs*), which a step never needs. Cleanlab computes something
else from the same votes: a consensus without confusions; its class probabilities are the shares of
votes, and making them is not counted.

{beside.report(list(beside.measure(options.peers)))}
"""


def part_evaluation(_: argparse.Namespace) -> str:
    """Evaluation and bookkeeping."""
    return f"""## Evaluation and bookkeeping

{evaluation.report(evaluation.bookkeeping(), list(evaluation.detectors()))}
"""


def part_rules(options: argparse.Namespace) -> str:
    """One pass for all rules, and the ImageNet table."""
    return f"""## One pass for all rules

Rules never touch beliefs, so a replay folds votes once however many rules it compares.
{rules.shared_pass()}

## The ImageNet table

Both estimators, entropy and random selection, budgets {", ".join(rules.TABLE_BUDGETS)}, all rules,
one seed.

{rules.table_cost(options.recordings / "imagenet_val.npz")}
"""


PARTS: dict[str, Callable[[argparse.Namespace], str]] = {
    "beliefs": part_beliefs,
    "dependent": part_dependent,
    "scale": part_scale,
    "selection": part_selection,
    "peers": part_peers,
    "evaluation": part_evaluation,
    "rules": part_rules,
}


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser(description="Measure speed and memory.")
    parser.add_argument("--recordings", type=Path, default=Path("recordings"))
    parser.add_argument("--peers", type=Path, default=PEERS, help="the other packages' Python")
    parser.add_argument("--docs", type=Path, default=PAGES)
    parser.add_argument("--only", choices=PARTS, action="append", help="print, write nothing")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        print(json.dumps(scale.stream(options.stream)))
        return
    if options.table:
        print(json.dumps(rules.imagenet_table(options.table)))
        return
    parts = []
    for name in options.only or PARTS:
        started = time.perf_counter()
        parts.append(PARTS[name](options))
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    page = f"""# Speed and memory

Generated by `make bench` (`python -m benchmarks.speed`); do not edit.
Machine: {machine()}.
Times per item; medians of {REPEATS} repetitions (3 of dense NumPy, of other packages and of what
takes long), lowest and highest in brackets. All of one run.

{chr(10).join(parts)}"""
    print(page)
    if not options.only:
        options.docs.mkdir(exist_ok=True)
        (options.docs / "performance.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
