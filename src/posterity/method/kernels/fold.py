"""Fold: belief, entropy and most believed class of each item from all its votes at once.

Only the classes its votes touch are looked at; what all others add up to is known from the set of
models that voted (``sets``). Where that would lose digits, or leave the range of a float, an item
is summed over all classes instead: slower, and always safe.

The loops are written out: a call, or a part of an array made inside of them, would count references
item by item, and take five times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled
from posterity.method.kernels.plain_entropy import BATCH, KEPT, RANGE, ROWS, SETTLED, finish
from posterity.method.kernels.sets import COLUMNS, accumulate, summarise


@compiled
def fold(terms: Any, cast: Any, sets: Any, stored: Any, out: Any, start: int, stop: int) -> None:
    """Items ``start`` to ``stop``; ``stored`` holds the labels of all items, or nothing."""
    prior, near, starts, middle = terms.prior, terms.near, terms.starts, terms.middle
    base = terms.logs
    hard, soft, soft_cells = cast.hard, cast.soft, cast.soft_cells
    truths, kinds, ratios = cast.truths, cast.kinds, cast.ratios
    number_of, members, table = sets.of, sets.voters, sets.table
    all_sums = sets.sums
    entropy, bests, tied = out.entropy, out.best, out.tied
    log_best, log_total, log_stored = out.log_best, out.log_total, out.log_stored
    asked, models = stored.size > 0, hard.shape[1]
    classes, possible = len(prior), terms.possible
    single = terms.single and not soft.size
    kept, tabulated = number_of.size > 0, table.size > 0
    numbered = kept and members.size > 0
    # Unsigned: an index that may be negative is looked at before every use.
    voters = np.empty(models + 1, np.uint64)
    one_on = np.uint64(1)
    codes = np.empty(models + 1, np.uint64)
    place = np.full(classes, np.int32(-1))
    touched = np.empty(classes + 1, np.uint64)
    # Of the touched classes: without their cells, what those add, and together.
    bare_logs = np.empty(classes + 1)
    bare_weights = np.empty(classes + 1)
    cell_logs = np.empty(classes + 1)
    cell_ratios = np.empty(classes + 1)
    logs = np.empty(2 * classes)
    weights = np.empty(2 * classes)
    sums = np.empty(COLUMNS)
    number: Any = np.uint64(0)
    batch = np.empty((ROWS, BATCH))
    filled = 0
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
        count = np.uint64(0)
        if single and agree and votes > 0 and not tabulated:
            k = codes[0]
            log = prior[k, 0]
            weight = prior[k, 1]
            added = near[k, voters[0] + one_on, 2]
            ratio = near[k, voters[0] + one_on, 3]
            for vote in range(votes):
                log += near[k, voters[vote] + one_on, 0]
                weight *= near[k, voters[vote] + one_on, 1]
            for vote in range(1, votes):
                added += near[k, voters[vote] + one_on, 2]
                ratio *= near[k, voters[vote] + one_on, 3]
            touched[0] = k
            bare_logs[0] = log
            bare_weights[0] = weight
            cell_logs[0] = added
            cell_ratios[0] = ratio
            count = np.uint64(1)
        else:
            if single:
                for vote in range(votes):
                    k = codes[vote]
                    at = 0
                    while at < count and touched[at] != k:
                        at += 1
                    if at == count:
                        touched[at] = k
                        cell_logs[at] = near[k, voters[vote] + one_on, 2]
                        cell_ratios[at] = near[k, voters[vote] + one_on, 3]
                        count += np.uint64(1)
                    else:
                        cell_logs[at] += near[k, voters[vote] + one_on, 2]
                        cell_ratios[at] *= near[k, voters[vote] + one_on, 3]
            else:
                for vote in range(votes):
                    model = voters[vote]
                    if soft.size and soft[item, model] >= 0:
                        first = soft_cells[soft[item, model], 0]
                        last = soft_cells[soft[item, model], 1]
                    else:
                        first = starts[model, codes[vote]]
                        last = starts[model, np.int64(codes[vote]) + 1]
                    for cell in range(np.uint64(first), np.uint64(last)):
                        k = np.uint64(truths[cell])
                        kind = np.uint64(kinds[cell])
                        there = np.int64(place[k])
                        if there < 0:
                            place[k] = count
                            touched[count] = k
                            cell_logs[count] = ratios[kind, 0]
                            cell_ratios[count] = ratios[kind, 1]
                            count += np.uint64(1)
                        else:
                            cell_logs[np.uint64(there)] += ratios[kind, 0]
                            cell_ratios[np.uint64(there)] *= ratios[kind, 1]
                for at in range(count):
                    place[touched[at]] = -1
            if tabulated:
                for at in range(count):
                    bare_logs[at] = table[number, touched[at], 0]
                    bare_weights[at] = table[number, touched[at], 1]
            else:
                for at in range(count):
                    k = touched[at]
                    log = prior[k, 0]
                    weight = prior[k, 1]
                    for vote in range(votes):
                        log += near[k, voters[vote] + one_on, 0]
                        weight *= near[k, voters[vote] + one_on, 1]
                    bare_logs[at] = log
                    bare_weights[at] = weight
        # The best of them.
        safe = True
        most = -np.inf
        for at in range(count):
            # Else a weight may be zero, or infinite, where their product is neither.
            safe &= (bare_logs[at] > -RANGE) & (np.abs(cell_logs[at]) < RANGE)
            log = bare_logs[at] + cell_logs[at]
            logs[at] = log
            weights[at] = bare_weights[at] * cell_ratios[at]
            most = max(most, log)
        # Of exactly level ones the lowest.
        best: Any = np.uint64(0)
        ties = 0
        for at in range(count):
            if logs[at] == most:
                ties += 1
                if ties == 1 or touched[at] < touched[best]:
                    best = at
        label: Any = np.int64(stored[item]) if asked else np.int64(-1)
        log = -np.inf
        if label >= 0:
            k = np.uint64(label)
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
                    log += near[k, voters[vote] + one_on, 0]
        batch[3, filled] = log
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
            top = np.uint64(all_sums[number, 4])
            top_log = all_sums[number, 0]
            others = all_sums[number, 1]
            product = all_sums[number, 2]
            top_weight = all_sums[number, 3]
        else:
            accumulate(terms, voters, votes, logs[classes:], weights[classes:])
            summarise(logs[classes:], weights[classes:], sums)
            top = np.uint64(sums[4])
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
                        log += base[voters[vote], k]
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
        batch[0, filled] = rest
        batch[1, filled] = product
        batch[2, filled] = most
        bests[item] = chosen
        tied[item] = level
        filled += 1
        if filled == BATCH or item == np.uint64(stop - 1):
            finish(batch, filled)
            first_item = item + one_on - np.uint64(filled)
            for i in range(np.uint64(filled)):
                log_total[first_item + i] = batch[0, i]
                entropy[first_item + i] = batch[1, i]
                log_best[first_item + i] = batch[2, i]
                if asked:
                    log_stored[first_item + i] = batch[3, i]
            filled = 0


@compiled
def joints(terms: Any, cast: Any, sets: Any, asked: Any, logs: Any, start: int, stop: int) -> None:
    """(n, m) the log-joints of the classes asked for, (n, m); −inf where none is."""
    prior, near, starts = terms.prior, terms.near, terms.starts
    hard, soft, soft_cells = cast.hard, cast.soft, cast.soft_cells
    truths, kinds, ratios = cast.truths, cast.kinds, cast.ratios
    number_of, table = sets.of, sets.table
    models, tabulated = hard.shape[1], table.size > 0
    voters = np.empty(models + 1, np.int64)
    firsts = np.empty(models + 1, np.int64)
    lasts = np.empty(models + 1, np.int64)
    added_to = np.empty(len(prior))
    touched = np.zeros(len(prior), np.bool_)
    for item in range(start, stop):
        votes = 0
        for model in range(models):
            code = hard[item, model]
            if code < 0:
                continue
            voters[votes] = model
            if soft.size and soft[item, model] >= 0:
                firsts[votes] = soft_cells[soft[item, model], 0]
                lasts[votes] = soft_cells[soft[item, model], 1]
            else:
                firsts[votes] = starts[model, code]
                lasts[votes] = starts[model, code + 1]
            votes += 1
        # What its votes add to the classes they touch: begun with the first cell, and not with
        # zero, as ``fold`` does it.
        for vote in range(votes):
            for cell in range(firsts[vote], lasts[vote]):
                k = truths[cell]
                one = ratios[kinds[cell], 0]
                added_to[k] = added_to[k] + one if touched[k] else one
                touched[k] = True
        for at in range(asked.shape[1]):
            k = asked[item, at]
            if k < 0:
                logs[item, at] = -np.inf
                continue
            if tabulated:
                log = table[number_of[item], k, 0]
            else:
                log = prior[k, 0]
                for vote in range(votes):
                    log += near[k, voters[vote] + 1, 0]
            logs[item, at] = log + added_to[k] if touched[k] else log
        for vote in range(votes):
            for cell in range(firsts[vote], lasts[vote]):
                touched[truths[cell]] = False
