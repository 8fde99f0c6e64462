"""Joints: the log-joints of single classes, the same bits that ``fold`` compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from posterity.method.kernels.compiler import compiled


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
