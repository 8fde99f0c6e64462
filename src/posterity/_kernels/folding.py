"""Fold: belief, entropy and most believed class of each item from all its votes at once.

Only the classes its votes touch are looked at; what all others add up to is known from the set of
models that voted (``sets``). Where that would lose digits, or leave the range of a float, an item
is summed over all classes instead: slower, and always safe.

The loops are written out: a call, or a part of an array made inside of them, would count references
item by item, and take five times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity._kernels.policy import compiled
from posterity._kernels.sets import accumulate, summarise

KEPT = 2.0**-6
"""The least share of a sum that may be left after subtracting: six of 53 bits are lost at most."""
SETTLED = 2.0**50
"""So much heavier than all untouched classes together, and their exact sum is below rounding."""
SMALL = 2.0**-10
"""Below it six terms of the series of log(1 + x) are exact to the last bit but one."""
RANGE = 600.0
"""Weights stay within e^±RANGE, well inside what a float holds."""


class Folded(NamedTuple):
    """What is written for each item."""

    entropy: Any
    best: Any
    tied: Any
    log_best: Any
    log_total: Any
    log_stored: Any
    """Of the label each item has; not written where no labels are given."""


@compiled
def fold(terms: Any, cast: Any, sets: Any, stored: Any, start: int, stop: int, out: Any) -> None:
    """Items ``start`` to ``stop``; ``stored`` holds their labels, or nothing."""
    prior, near, starts, middle = terms.prior, terms.near, terms.starts, terms.middle
    hard, soft, soft_cells = cast.hard, cast.soft, cast.soft_cells
    truths, kinds, ratios = cast.truths, cast.kinds, cast.ratios
    number_of, members, table = sets.of, sets.voters, sets.table
    tops, all_sums = sets.masses.top, sets.masses.sums
    entropy, bests, tied = out.entropy, out.best, out.tied
    log_best, log_total, log_stored = out.log_best, out.log_total, out.log_stored
    asked = stored.size > 0
    models, classes, possible = hard.shape[1], len(prior), terms.possible
    single = terms.single and not soft.size
    kept, tabulated = number_of.size > 0, table.size > 0
    numbered = kept and members.size > 0
    # Unsigned: an index that may be negative is looked at before every use.
    voters = np.empty(models + 1, np.uint64)
    codes = np.empty(models + 1, np.uint64)
    place = np.full(classes, -1, np.int64)
    touched = np.empty(classes + 1, np.uint64)
    # Of the touched classes: without their cells, what those add, and together.
    bare_logs = np.empty(classes + 1)
    bare_weights = np.empty(classes + 1)
    cell_logs = np.empty(classes + 1)
    cell_ratios = np.empty(classes + 1)
    logs = np.empty(2 * classes)
    weights = np.empty(2 * classes)
    sums = np.empty(4)
    number: Any = np.uint64(0)
    for item in range(np.uint64(start), np.uint64(stop)):
        # Who voted what.
        votes: Any = 0
        agree = True
        if kept:
            number = np.uint64(number_of[item])
        if numbered:
            votes = np.int64(members[number, 0])
            for at in range(votes):
                voters[at] = members[number, at + 1]
                codes[at] = hard[item, voters[at]]
                agree &= codes[at] == codes[0]
        else:
            for model in range(models):
                code = hard[item, model]
                if code >= 0:
                    voters[votes] = model
                    codes[votes] = code
                    votes += 1
                    agree &= code == codes[0]
        # The classes that touches, by how much, and what they are without.
        count = 0
        if single and agree and votes > 0 and not tabulated:
            k = codes[0]
            log = prior[k, 0]
            weight = prior[k, 1]
            added = near[voters[0], k, 2]
            ratio = near[voters[0], k, 3]
            for vote in range(votes):
                log += near[voters[vote], k, 0]
                weight *= near[voters[vote], k, 1]
            for vote in range(1, votes):
                added += near[voters[vote], k, 2]
                ratio *= near[voters[vote], k, 3]
            touched[0] = k
            bare_logs[0] = log
            bare_weights[0] = weight
            cell_logs[0] = added
            cell_ratios[0] = ratio
            count = 1
        else:
            if single:
                for vote in range(votes):
                    k = codes[vote]
                    at = 0
                    while at < count and touched[at] != k:
                        at += 1
                    if at == count:
                        touched[at] = k
                        cell_logs[at] = near[voters[vote], k, 2]
                        cell_ratios[at] = near[voters[vote], k, 3]
                        count += 1
                    else:
                        cell_logs[at] += near[voters[vote], k, 2]
                        cell_ratios[at] *= near[voters[vote], k, 3]
            else:
                for vote in range(votes):
                    model = voters[vote]
                    if soft.size and soft[item, model] >= 0:
                        first = soft_cells[soft[item, model], 0]
                        last = soft_cells[soft[item, model], 1]
                    else:
                        first = starts[model, codes[vote]]
                        last = starts[model, np.int64(codes[vote]) + 1]
                    for cell in range(first, last):
                        k = np.uint64(truths[cell])
                        at = place[k]
                        if at < 0:
                            place[k] = count
                            touched[count] = k
                            cell_logs[count] = ratios[kinds[cell], 0]
                            cell_ratios[count] = ratios[kinds[cell], 1]
                            count += 1
                        else:
                            cell_logs[at] += ratios[kinds[cell], 0]
                            cell_ratios[at] *= ratios[kinds[cell], 1]
                for at in range(count):
                    place[touched[at]] = -1
            for at in range(count):
                k = touched[at]
                if tabulated:
                    log = table[number, k, 0]
                    weight = table[number, k, 1]
                else:
                    log = prior[k, 0]
                    weight = prior[k, 1]
                    for vote in range(votes):
                        log += near[voters[vote], k, 0]
                        weight *= near[voters[vote], k, 1]
                bare_logs[at] = log
                bare_weights[at] = weight
        # The best of them.
        safe = True
        most = -np.inf
        best = 0
        ties = 0
        for at in range(count):
            # Else a weight may be zero, or infinite, where their product is neither.
            safe &= bare_logs[at] > -RANGE and -RANGE < cell_logs[at] < RANGE
            log = bare_logs[at] + cell_logs[at]
            logs[at] = log
            weights[at] = bare_weights[at] * cell_ratios[at]
            if log > most:
                most = log
                best = at
                ties = 1
            elif log == most:
                ties += 1
                if touched[at] < touched[best]:
                    best = at
        if asked:
            log = -np.inf
            if stored[item] >= 0:
                k = np.uint64(stored[item])
                at = 0
                while at < count and touched[at] != k:
                    at += 1
                if at < count:
                    log = logs[at]
                elif tabulated:
                    log = table[number, k, 0]
                else:
                    log = prior[k, 0]
                    for vote in range(votes):
                        log += near[voters[vote], k, 0]
            log_stored[item] = log
        chosen: Any = np.int64(touched[best]) if count else 0
        level = ties > 1
        settled = safe and count > 0 and SETTLED * classes < weights[best] and most < RANGE
        top: Any = np.uint64(0)
        top_log = 0.0
        top_weight = 0.0
        others = 0.0
        product = 0.0
        if settled:
            # No untouched class weighs more than one: together they are less than rounding. The
            # order of settled items is all they are wanted for, and their mean is enough for that.
            log = middle[0]
            for vote in range(votes):
                log += middle[np.int64(voters[vote]) + 1]
            others = possible * np.exp(log)
            product = others * (log - most)
        elif kept:
            top = np.uint64(tops[number])
            top_log = all_sums[number, 0]
            others = all_sums[number, 1]
            product = all_sums[number, 2]
            top_weight = all_sums[number, 3]
        else:
            accumulate(terms, voters, votes, logs[classes:], weights[classes:])
            top = np.uint64(summarise(logs[classes:], weights[classes:], sums))
            top_log = sums[0]
            others = sums[1]
            product = sums[2]
            top_weight = sums[3]
        if not settled:
            # What all classes add up to, without the touched ones.
            all_others = others
            safe &= others >= 0.0  # not where it is no number
            top_touched = 0
            for at in range(count):
                if touched[at] == top:
                    top_touched = 1
                else:
                    others -= bare_weights[at]
                    product -= bare_weights[at] * (bare_logs[at] - top_log)
            if count - top_touched == classes - 1:
                others = 0.0  # nothing is left, and not only nearly nothing
                product = 0.0
            else:
                safe &= others >= KEPT * all_others
            if top_touched:
                top_weight = 0.0
                # Else a class that nobody touched may be the best, and nobody knows which.
                safe &= most > top_log
            safe &= top_log >= most or -RANGE < most < RANGE
        if not safe:
            # Sum over all classes, in logarithms.
            for k in range(classes):
                if tabulated:
                    log = table[number, k, 0]
                else:
                    log = prior[k, 0]
                    for vote in range(votes):
                        log += near[voters[vote], k, 0]
                logs[k] = log
            for at in range(count):
                logs[touched[at]] += cell_logs[at]
            most = -np.inf
            for k in range(classes):
                if logs[k] > most:
                    most = logs[k]
                    chosen = k
            rest = 0.0
            product = 0.0
            ties = 0
            for k in range(classes):
                below = logs[k] - most
                ties += below == 0.0
                weight = np.exp(below)
                if k != chosen and weight > 0.0:
                    rest += weight
                    product += weight * below
            level = ties > 1
        elif not settled and top_log >= most:
            # The class that is most believed without any cell stays so. Whether another untouched
            # class is level with it is for ``Product.prefer`` to find out.
            rest = others
            for at in range(count):
                rest += weights[at]
                product += weights[at] * (logs[at] - top_log)
            own = 1.0 / top_weight
            rest *= own
            product *= own
            # A touched class that is level with it, and has a lower code, comes first.
            lower = count > 0 and most == top_log and touched[best] < top
            chosen = np.int64(touched[best]) if lower else np.int64(top)
            most = top_log
            level = True
        else:
            rest = others + top_weight
            if not settled:
                product += (top_log - most) * rest
            for at in range(count):
                if at != best:
                    rest += weights[at]
                    product += weights[at] * (logs[at] - most)
            own = 1.0 / weights[best]
            rest *= own
            product *= own
        # The best class's own term comes back as log(1 + rest): else an entropy below 1e-16 would
        # round to zero and nearly settled items would lose their order.
        if rest > SMALL:
            log_rest = np.log(1.0 + rest)
        else:
            # The series: faster than the library's log1p, and as exact where the rest is small.
            log_rest = rest * (
                1.0 - rest * (1 / 2 - rest * (1 / 3 - rest * (1 / 4 - rest * (1 / 5 - rest / 6))))
            )
        entropy[item] = log_rest - product / (1.0 + rest)
        bests[item] = chosen
        tied[item] = level
        log_best[item] = most
        log_total[item] = most + log_rest
