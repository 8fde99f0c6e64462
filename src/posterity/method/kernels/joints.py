"""Joints: the log-joints of single classes, the same bits that ``fold`` compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled

FEW = 8
"""Classes of an item whose cells are looked for one by one."""


@compiled
def joints(terms: Any, cast: Any, sets: Any, asked: Any, logs: Any, start: int, stop: int) -> None:
    """(n, m) the log-joints of the classes asked for, (n, m); −inf where none is."""
    prior, near, starts = terms.prior, terms.near, terms.starts
    hard, soft, soft_cells = cast.hard, cast.soft, cast.soft_cells
    truths, kinds, ratios = cast.truths, cast.kinds, cast.ratios
    number_of, members, table = sets.of, sets.voters, sets.table
    models = hard.shape[1]
    single = terms.single and not soft.size
    kept, tabulated = number_of.size > 0, table.size > 0
    numbered = kept and members.size > 0
    voters = np.empty(models + 1, np.uint64)
    one_on = np.uint64(1)
    codes = np.empty(models + 1, np.int64)
    # Where many classes are asked for, the cells are laid out once, and not looked for each time.
    many = asked.shape[1] > FEW
    added_to = np.empty(len(prior) if many else 0)
    touched = np.zeros(len(prior) if many else 0, np.bool_)
    number: Any = np.uint64(0)
    for item in range(np.uint64(start), np.uint64(stop)):
        votes: Any = 0
        if kept:
            number = np.uint64(number_of[item])
        if numbered:
            votes = np.int64(members[number, 0])
            for at in range(votes):
                voters[at] = members[number, at + 1]
                codes[at] = hard[item, voters[at]]
        else:
            for model in range(models):
                code = hard[item, model]
                if code >= 0:
                    voters[votes] = model
                    codes[votes] = code
                    votes += 1
        if many:
            touched[:] = False
            for vote in range(votes):
                model = voters[vote]
                if soft.size and soft[item, model] >= 0:
                    first = soft_cells[soft[item, model], 0]
                    last = soft_cells[soft[item, model], 1]
                else:
                    first = starts[model, codes[vote]]
                    last = starts[model, codes[vote] + 1]
                for cell in range(first, last):
                    k = truths[cell]
                    one = ratios[kinds[cell], 0]
                    added_to[k] = added_to[k] + one if touched[k] else one
                    touched[k] = True
        for at in range(asked.shape[1]):
            k = asked[item, at]
            if at > 0 and asked[item, at - 1] == k:
                logs[item, at] = logs[item, at - 1]
                continue
            if k < 0:
                logs[item, at] = -np.inf
                continue
            if tabulated:
                log = table[number, k, 0]
            else:
                log = prior[k, 0]
                for vote in range(votes):
                    log += near[k, voters[vote] + one_on, 0]
            if many:
                logs[item, at] = log + added_to[k] if touched[k] else log
                continue
            # Begun with the first cell, and not with zero: as the folding does it.
            found = False
            added = 0.0
            for vote in range(votes):
                if single:
                    if codes[vote] == k:
                        one = near[k, voters[vote] + one_on, 2]
                        added = added + one if found else one
                        found = True
                    continue
                model = voters[vote]
                if soft.size and soft[item, model] >= 0:
                    first = soft_cells[soft[item, model], 0]
                    last = soft_cells[soft[item, model], 1]
                else:
                    first = starts[model, codes[vote]]
                    last = starts[model, codes[vote] + 1]
                for cell in range(first, last):
                    if truths[cell] == k:
                        one = ratios[kinds[cell], 0]
                        added = added + one if found else one
                        found = True
                        break
            logs[item, at] = log + added if found else log
