"""Full fold: the fold where votes touch several classes and sets are tabulated, in small batches.

The cells of a vote lie anywhere in memory. They are asked for a batch ahead of their use, so that
they are at hand by then. What is not an easy case is left to ``fold``, which does the same sums
in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled
from posterity.method.kernels.entropy import KEPT, RANGE, ROWS, SETTLED, finish

BATCH = 64
"""The cells of so many items stay in the nearest cache."""


@compiled
def fold_cells(
    terms: Any, hard: Any, sets: Any, stored: Any, start: int, stop: int, out: Any
) -> Any:
    """Items ``start`` to ``stop``; returns those that are left over."""
    cells, starts, ratios = terms.cells.reshape(-1), terms.starts.reshape(-1), terms.ratios
    number_of, table, sums = sets.of, sets.table, sets.sums
    entropy, bests, tied = out.entropy, out.best, out.tied
    log_best, log_total, log_stored = out.log_best, out.log_total, out.log_stored
    models, classes, asked = hard.shape[1], len(terms.prior), stored.size > 0
    enough = SETTLED * classes
    left = np.empty(stop - start, np.int64)
    leaving = 0
    votes_of = np.empty(BATCH, np.uint64)
    named = np.empty(models + 1, np.uint64)
    firsts = np.empty((BATCH, models), np.uint64)
    batch = np.empty((ROWS, BATCH))
    place = np.full(classes, np.int32(-1))
    touched = np.empty(classes + 1, np.uint64)
    # Of the touched classes: first what their cells add up to, then all together.
    logs = np.zeros(classes + 1)
    weights = np.ones(classes + 1)
    for begin in range(np.uint64(start), np.uint64(stop), np.uint64(BATCH)):
        size = min(np.uint64(BATCH), np.uint64(stop) - begin)
        seen = np.int32(0)
        for i in range(size):
            votes = np.uint64(0)
            row = np.int64(0)
            for model in range(models):
                code = hard[begin + i, model]
                named[votes] = np.uint64(row + code)
                votes += np.uint64(code >= 0)
                row += classes + 1
            votes_of[i] = votes
            for vote in range(votes):
                # Before each list there are as many ends as lists.
                at = np.uint64(starts[named[vote]]) + named[vote]
                firsts[i, vote] = np.uint64(2) * at
                seen |= cells[np.uint64(2) * at]
        for i in range(size):
            item = begin + i
            number = np.uint64(number_of[item])
            count = np.uint64(0)
            # The first vote's classes are all new; of the others', nobody can guess. To an end that
            # is marked, and not counted to: the compiler would unroll it, and guess once more.
            if votes_of[i] > 0:
                cell = firsts[i, 0]
                while cells[cell] >= 0:
                    k = np.uint64(cells[cell])
                    kind = np.uint64(cells[cell + np.uint64(1)])
                    place[k] = count
                    touched[count] = k
                    logs[count] = ratios[kind, 0]
                    weights[count] = ratios[kind, 1]
                    count += np.uint64(1)
                    cell += np.uint64(2)
            for vote in range(np.uint64(1), votes_of[i]):
                cell = firsts[i, vote]
                while cells[cell] >= 0:
                    k = np.uint64(cells[cell])
                    kind = np.uint64(cells[cell + np.uint64(1)])
                    known = np.int64(place[k])
                    fresh = known < 0
                    at = count if fresh else np.uint64(known)
                    log = logs[at]
                    weight = weights[at]
                    log = 0.0 if fresh else log
                    weight = 1.0 if fresh else weight
                    place[k] = at
                    touched[at] = k
                    logs[at] = log + ratios[kind, 0]
                    weights[at] = weight * ratios[kind, 1]
                    count += np.uint64(fresh)
                    cell += np.uint64(2)
            top_log = sums[number, 0]
            all_others = sums[number, 1]
            product = sums[number, 2]
            top_weight = sums[number, 3]
            top = np.uint64(sums[number, 4])
            others = all_others
            # In no bad case any more than in others: whether all is well is asked at the end.
            safe = (count > 0) & (np.int64(count) < classes - 1) & (seen >= -1)
            most = -np.inf
            for at in range(count):
                k = touched[at]
                place[k] = -1
                log = table[number, k, 0]
                weight = table[number, k, 1]
                bare = 0.0 if k == top else weight
                top_weight = 0.0 if k == top else top_weight
                others -= bare
                product -= bare * (log - top_log)
                safe &= (log > -RANGE) & (np.abs(logs[at]) < RANGE)
                log += logs[at]
                logs[at] = log
                weights[at] *= weight
                most = max(most, log)
            rest = others + top_weight
            product += (top_log - most) * rest
            without = product
            safe &= (others >= KEPT * all_others) & (all_others >= 0.0)
            safe &= (most > top_log) & (np.abs(most) < RANGE)
            label = np.int64(stored[item]) if asked else np.int64(-1)
            best = np.int64(0)
            mine = np.int64(-1)
            ties = 0
            for at in range(count):
                level = logs[at] == most
                weight = weights[at]
                weight = 0.0 if level else weight
                rest += weight
                product += weight * (logs[at] - most)
                ties += int(level)
                best += np.int64(level) * (np.int64(at) - best)
                mine += np.int64(np.int64(touched[at]) == label) * (np.int64(at) - mine)
            if ties > 1:
                # Of exactly level ones the lowest; the others count as others do.
                for at in range(count):
                    if logs[at] == most and touched[at] < touched[best]:
                        best = np.int64(at)
                rest = others + top_weight
                product = without
                for at in range(count):
                    if np.int64(at) != best:
                        rest += weights[at]
                        product += weights[at] * (logs[at] - most)
            heaviest = weights[best]
            own = 1.0 / heaviest
            batch[0, i] = rest * own
            batch[1, i] = product * own
            batch[2, i] = most
            if mine >= 0:
                batch[3, i] = logs[mine]
            elif label >= 0:
                batch[3, i] = table[number, np.uint64(label), 0]
            else:
                batch[3, i] = -np.inf
            bests[item] = touched[best]
            tied[item] = ties > 1
            if not (safe & (heaviest <= enough)):
                left[leaving] = item
                leaving += 1
                batch[0, i] = 0.0
        finish(batch, np.int64(size))
        for i in range(size):
            log_total[begin + i] = batch[0, i]
            entropy[begin + i] = batch[1, i]
            log_best[begin + i] = batch[2, i]
            if asked:
                log_stored[begin + i] = batch[3, i]
    return left[:leaving]
