"""Diagonal fold: the fold where every vote touches its own class and no other, in small batches.

Items of a batch are taken by how many votes they have, and whether those agree: then all loops have
the same length from one item to the next, and the processor hardly ever guesses wrong. What is not
an easy case is left to ``fold``, which does the same sums in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity.method.kernels.compiler import compiled, compiled_as
from posterity.method.kernels.entropy import BATCH, KEPT, RANGE, ROWS, SETTLED, finish

FEW = 5
"""So few votes have a kernel of their own for each number of them."""


class Bench(NamedTuple):
    """Room to work on a batch."""

    numbers: Any
    """(BATCH,) the set of each item."""
    queues: Any
    """(FEW+2, BATCH) places in the batch of the items with so many votes; last those with more."""
    waiting: Any
    """How many they are."""
    by_classes: Any
    """(T+1, BATCH) the places in a queue of the items whose votes name so many classes."""
    fallen: Any
    """How many they are."""
    voters: Any
    codes: Any
    classes: Any
    """By place in a queue, close together: who voted what, and the classes named, each once."""
    logs: Any
    weights: Any
    """(T+1,) of the classes of an item."""
    batch: Any
    """See ``finish``."""
    left: Any
    """The items that are left over, and before them how many."""


@compiled
def fold_singles(
    terms: Any, hard: Any, sets: Any, stored: Any, start: int, stop: int, out: Any
) -> Any:
    """Items ``start`` to ``stop``; returns those that are left over."""
    number_of, slots, members = sets.of, sets.slots, sets.voters
    entropy, log_best = out.entropy, out.log_best
    log_total, log_stored = out.log_total, out.log_stored
    direct = slots.size > 0
    left = np.empty(stop - start + 1, np.int64)
    left[0] = 0
    models = hard.shape[1]
    numbers = np.empty(BATCH, np.uint32)
    queues = np.empty((FEW + 2, BATCH), np.uint32)
    waiting = np.empty(FEW + 2, np.uint64)
    batch = np.empty((ROWS, BATCH))
    bench = Bench(
        numbers,
        queues,
        waiting,
        np.empty((models + 3, BATCH), np.uint32),
        np.empty(models + 3, np.uint64),
        np.empty(BATCH * models, np.uint32),
        np.empty(BATCH * models, np.uint32),
        np.empty(BATCH * models, np.uint32),
        np.empty(models + 2),
        np.empty(models + 2),
        batch,
        left,
    )
    for first in range(np.uint64(start), np.uint64(stop), np.uint64(BATCH)):
        size = min(np.uint64(BATCH), np.uint64(stop) - first)
        waiting[:] = 0
        seen = np.int32(0)
        for i in range(size):
            number = np.uint64(number_of[first + i])
            if direct:
                number = np.uint64(slots[number])
                votes = number & np.uint64(31)
                number >>= np.uint64(5)
            else:
                votes = np.uint64(members[number, 0])
            numbers[i] = number
            # Read in order here, votes are at hand when they are looked at out of order.
            if models:
                seen |= hard[first + i, 0]
            votes = min(votes, np.uint64(FEW + 1))
            queues[votes, waiting[votes]] = i
            waiting[votes] += np.uint64(1)
        _fold_one(terms, hard, sets, stored, first, bench, out)
        _fold_two(terms, hard, sets, stored, first, bench, out)
        _fold_three(terms, hard, sets, stored, first, bench, out)
        _fold_four(terms, hard, sets, stored, first, bench, out)
        _fold_five(terms, hard, sets, stored, first, bench, out)
        _fold_more(terms, hard, sets, stored, first, bench, out)
        leaving = left[0] + np.int64(seen < np.int32(-1))  # no code is: nothing is added
        for one in range(waiting[0]):
            leaving += 1
            left[leaving] = first + np.uint64(queues[0, one])
            batch[0, queues[0, one]] = 0.0
        left[0] = leaving
        finish(batch, np.int64(size))
        for i in range(size):
            log_total[first + i] = batch[0, i]
            entropy[first + i] = batch[1, i]
            log_best[first + i] = batch[2, i]
        if stored.size:
            for i in range(size):
                log_stored[first + i] = batch[3, i]
    return left[1 : left[0] + 1]


def _with_votes(given: int) -> Any:
    """Items of a batch with so many votes, which is known when it is compiled; 0: with more."""

    @compiled_as(f"fold_with_{given}_votes")
    def fold_some(
        terms: Any, hard: Any, sets: Any, stored: Any, first: Any, bench: Bench, out: Any
    ) -> None:
        # Flat: places are added up, and not multiplied out of shapes that only the array knows.
        near, width = terms.near.reshape(-1), np.uint64(terms.near[0].size)
        members, sums = sets.voters, sets.sums.reshape(-1)
        bests, tied, numbers = out.best, out.tied, bench.numbers
        queue = bench.queues[given or FEW + 1]
        voters, codes, logs, weights = bench.voters, bench.codes, bench.logs, bench.weights
        by_classes, fallen, named = bench.by_classes, bench.fallen, bench.classes
        batch, left, leaving = bench.batch, bench.left, bench.left[0]
        stride = np.uint64(given or hard.shape[1])
        classes, asked = len(terms.prior), stored.size > 0
        enough = SETTLED * classes
        fallen[:] = 0
        for turn in range(bench.waiting[given or FEW + 1]):
            number = np.uint64(numbers[queue[turn]])
            item = first + np.uint64(queue[turn])
            votes = np.uint64(given or members[number, 0])
            base = turn * stride
            different = np.uint64(0)
            for vote in range(votes):
                model = np.uint64(members[number, vote + np.uint64(1)])
                code = np.uint64(hard[item, model])
                voters[base + vote] = np.uint64(4) * model + np.uint64(4)
                codes[base + vote] = code
                again = False
                if given:
                    for earlier in range(np.uint64(vote)):
                        again |= np.uint64(codes[base + earlier]) == code
                else:
                    for earlier in range(different):
                        again |= np.uint64(named[base + earlier]) == code
                named[base + different] = code
                different += np.uint64(not again)
            by_classes[different, fallen[different]] = turn
            fallen[different] += np.uint64(1)
        for at in range(fallen[1]):
            one = np.uint64(by_classes[1, at])
            base = one * stride
            i = np.uint64(queue[one])
            number = np.uint64(8) * np.uint64(numbers[i])
            votes = np.uint64(given or members[numbers[i], 0])
            k = np.uint64(codes[base])
            row = k * width
            log = near[row]
            weight = near[row + np.uint64(1)]
            added = 0.0
            ratio = 1.0
            for vote in range(votes):
                cell = row + np.uint64(voters[base + vote])
                log += near[cell]
                weight *= near[cell + np.uint64(1)]
                added += near[cell + np.uint64(2)]
                ratio *= near[cell + np.uint64(3)]
            top_log = sums[number + np.uint64(0)]
            all_others = sums[number + np.uint64(1)]
            top_weight = sums[number + np.uint64(3)]
            safe = (log > -RANGE) & (np.abs(added) < RANGE)
            most = log + added
            heaviest = weight * ratio
            if heaviest > enough and most < RANGE:
                rest = sums[number + np.uint64(6)]
                product = rest * (sums[number + np.uint64(5)] - most)
            else:
                touched = np.uint64(sums[number + np.uint64(4)]) == k
                bare = 0.0 if touched else weight
                others = all_others - bare
                product = sums[number + np.uint64(2)] - bare * (log - top_log)
                rest = others + (0.0 if touched else top_weight)
                product += (top_log - most) * rest
                safe &= (others >= KEPT * all_others) & (all_others >= 0.0) & (classes > 2)
                safe &= (most > top_log) & (np.abs(most) < RANGE)
            own = 1.0 / heaviest
            batch[0, i] = rest * own
            batch[1, i] = product * own
            batch[2, i] = most
            item = first + i
            bests[item] = k
            tied[item] = False
            if asked:
                batch[3, i] = most
                if np.int64(stored[item]) != np.int64(k):
                    batch[3, i] = -np.inf
                    if stored[item] >= 0:
                        row = np.uint64(stored[item]) * width
                        log = near[row]
                        for vote in range(votes):
                            log += near[row + np.uint64(voters[base + vote])]
                        batch[3, i] = log
            if not safe:
                leaving += 1
                left[leaving] = item
                batch[0, i] = 0.0
        for at in range(fallen[2]):
            one = np.uint64(by_classes[2, at])
            base = one * stride
            i = np.uint64(queue[one])
            item = first + i
            number = np.uint64(8) * np.uint64(numbers[i])
            votes = np.uint64(given or members[numbers[i], 0])
            k = np.uint64(named[base])
            other = np.uint64(named[base + np.uint64(1)])
            row = k * width
            other_row = other * width
            log = near[row]
            weight = near[row + np.uint64(1)]
            added = 0.0
            ratio = 1.0
            other_log = near[other_row]
            other_weight = near[other_row + np.uint64(1)]
            other_added = 0.0
            other_ratio = 1.0
            for vote in range(votes):
                cell = row + np.uint64(voters[base + vote])
                other_cell = other_row + np.uint64(voters[base + vote])
                log += near[cell]
                weight *= near[cell + np.uint64(1)]
                other_log += near[other_cell]
                other_weight *= near[other_cell + np.uint64(1)]
                mine = vote == 0 if given == 2 else np.uint64(codes[base + vote]) == k
                cell = cell if mine else other_cell
                cell_log = near[cell + np.uint64(2)]
                cell_ratio = near[cell + np.uint64(3)]
                added += cell_log if mine else 0.0
                ratio *= cell_ratio if mine else 1.0
                other_added += 0.0 if mine else cell_log
                other_ratio *= 1.0 if mine else cell_ratio
            top_log = sums[number]
            all_others = sums[number + np.uint64(1)]
            product = sums[number + np.uint64(2)]
            top_weight = sums[number + np.uint64(3)]
            top = np.uint64(sums[number + np.uint64(4)])
            safe = (log > -RANGE) & (np.abs(added) < RANGE)
            safe &= (other_log > -RANGE) & (np.abs(other_added) < RANGE)
            top_weight = 0.0 if (k == top) | (other == top) else top_weight
            bare = 0.0 if k == top else weight
            others = all_others - bare
            product -= bare * (log - top_log)
            bare = 0.0 if other == top else other_weight
            others -= bare
            product -= bare * (other_log - top_log)
            log += added
            other_log += other_added
            weights[0] = weight * ratio
            weights[1] = other_weight * other_ratio
            most = max(log, other_log)
            # Its place is reckoned, and not branched to: which of them is best is anybody's guess.
            best = np.uint64(other_log > log)
            heaviest = weights[best]
            if (heaviest > enough) & (most < RANGE):
                rest = sums[number + np.uint64(6)]
                product = rest * (sums[number + np.uint64(5)] - most)
            else:
                rest = others + top_weight
                product += (top_log - most) * rest
                safe &= (others >= KEPT * all_others) & (all_others >= 0.0) & (classes > 3)
                safe &= (most > top_log) & (np.abs(most) < RANGE)
            weight = weights[np.uint64(1) - best]
            own = 1.0 / heaviest
            batch[0, i] = (rest + weight) * own
            batch[1, i] = (product + weight * (min(log, other_log) - most)) * own
            batch[2, i] = most
            k = np.uint64(named[base + best])
            bests[item] = k
            tied[item] = False
            if asked:
                label = np.int64(stored[item])
                other = np.uint64(named[base + np.uint64(1) - best])
                log_label = most if label == np.int64(k) else min(log, other_log)
                if (label != np.int64(k)) & (label != np.int64(other)):
                    log_label = -np.inf
                    if label >= 0:
                        row = np.uint64(label) * width
                        log_label = near[row]
                        for vote in range(votes):
                            log_label += near[row + np.uint64(voters[base + vote])]
                batch[3, i] = log_label
            if (not safe) | (log == other_log):
                leaving += 1
                left[leaving] = item
                batch[0, i] = 0.0
        for count in range(np.uint64(3), np.uint64(len(fallen))):
            for at in range(fallen[count]):
                one = np.uint64(by_classes[count, at])
                base = one * stride
                i = np.uint64(queue[one])
                item = first + i
                number = np.uint64(8) * np.uint64(numbers[i])
                votes = np.uint64(given or members[numbers[i], 0])
                label = np.int64(stored[item]) if asked else np.int64(-1)
                top_log = sums[number + np.uint64(0)]
                all_others = sums[number + np.uint64(1)]
                top_weight = sums[number + np.uint64(3)]
                top = np.uint64(sums[number + np.uint64(4)])
                others = all_others
                product = sums[number + np.uint64(2)]
                safe = np.uint64(classes) > count + np.uint64(1)
                # Places are blended, and not branched to: which class is best is anybody's guess.
                most = -np.inf
                place = np.int64(0)
                mine = np.int64(-1)
                for at_class in range(count):
                    k = np.uint64(named[base + at_class])
                    row = k * width
                    log = near[row]
                    weight = near[row + np.uint64(1)]
                    added = 0.0
                    ratio = 1.0
                    for vote in range(votes):
                        cell = row + np.uint64(voters[base + vote])
                        log += near[cell]
                        weight *= near[cell + np.uint64(1)]
                        cell_log = near[cell + np.uint64(2)]
                        cell_ratio = near[cell + np.uint64(3)]
                        added += cell_log if np.uint64(codes[base + vote]) == k else 0.0
                        ratio *= cell_ratio if np.uint64(codes[base + vote]) == k else 1.0
                    safe &= (log > -RANGE) & (np.abs(added) < RANGE)
                    top_weight = 0.0 if k == top else top_weight
                    bare = 0.0 if k == top else weight
                    others -= bare
                    product -= bare * (log - top_log)
                    log += added
                    logs[at_class] = log
                    weights[at_class] = weight * ratio
                    place += np.int64(log > most) * (np.int64(at_class) - place)
                    mine += np.int64(np.int64(k) == label) * (np.int64(at_class) - mine)
                    most = max(most, log)
                heaviest = weights[place]
                if (heaviest > enough) & (most < RANGE):
                    rest = sums[number + np.uint64(6)]
                    product = rest * (sums[number + np.uint64(5)] - most)
                else:
                    rest = others + top_weight
                    product += (top_log - most) * rest
                    safe &= (others >= KEPT * all_others) & (all_others >= 0.0)
                    safe &= (most > top_log) & (np.abs(most) < RANGE)
                ties = 0
                for at_class in range(count):
                    weight = weights[at_class]
                    weight = 0.0 if np.int64(at_class) == place else weight
                    rest += weight
                    product += weight * (logs[at_class] - most)
                    ties += logs[at_class] == most
                own = 1.0 / heaviest
                batch[0, i] = rest * own
                batch[1, i] = product * own
                batch[2, i] = most
                bests[item] = np.uint64(named[base + np.uint64(place)])
                tied[item] = ties > 1
                if asked:
                    log_label = -np.inf
                    if mine >= 0:
                        log_label = logs[mine]
                    elif label >= 0:
                        row = np.uint64(label) * width
                        log_label = near[row]
                        for vote in range(votes):
                            log_label += near[row + np.uint64(voters[base + vote])]
                    batch[3, i] = log_label
                if not safe or ties > 1:
                    leaving += 1
                    left[leaving] = item
                    batch[0, i] = 0.0
        left[0] = leaving

    return fold_some


_fold_one = _with_votes(1)
_fold_two = _with_votes(2)
_fold_three = _with_votes(3)
_fold_four = _with_votes(4)
_fold_five = _with_votes(5)
_fold_more = _with_votes(0)
