"""Dependent beliefs once more, with plain loops and straight from their definition.

``fit`` is a ``Dependence`` (``method.beliefs.dependent``); a vote is (model, class), in order of
arrival.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

Vote = tuple[int, int]


def accuracy(fit: Any, model: int, level: int, truth: int | None) -> float:
    odds = fit.accuracies[model, level] / (1 - fit.accuracies[model, level])
    if truth is not None:
        odds *= math.exp(fit.shifts[model, truth])
    return float(odds / (1 + odds))


def log_right(fit: Any, votes: Sequence[Vote], truth: int | None) -> float:
    """Who is right: prior and levels; for no truth those of all classes nobody voted for."""
    voted = {code for _, code in votes}
    if truth is None and 1 - sum(float(fit.prior[k]) for k in voted) <= 1e-12:
        return -math.inf
    total = 0.0
    for level in range(fit.accuracies.shape[1]):
        if truth is None:
            weight = sum(
                float(fit.prior[k] * fit.levels[k, level])
                for k in range(fit.classes)
                if k not in voted
            )
        else:
            weight = float(fit.prior[truth] * fit.levels[truth, level])
        for model, code in votes:
            chance = accuracy(fit, model, level, truth)
            weight *= chance if code == truth else 1 - chance
        total += weight
    return math.log(total) if total > 0 else -math.inf


def wrong_rate(fit: Any, model: int, code: int, truth: int | None, *, specific: bool) -> float:
    """How often a wrong vote names a class; if specific, with what was seen under the truth."""
    rate = float(fit.rates[model, code])
    if truth is None:
        return rate
    rate /= 1 - float(fit.rates[model, truth])
    if not specific:
        return rate
    cells = range(int(fit.starts[truth]), int(fit.starts[truth + 1]))
    often = sum(float(fit.seen[cell]) for cell in cells if fit.wrong[cell] == code)
    under = sum(float(fit.seen[cell]) for cell in cells)
    return (often + float(fit.pull) * rate) / (under + float(fit.pull))


def alone(fit: Any, model: int, truth: int | None) -> float:
    """How often a model is right under a truth, whatever the others say."""
    if truth is None:
        share = sum(float(fit.prior[k]) * on_average(fit, model, k) for k in range(fit.classes))
    else:
        share = on_average(fit, model, truth)
    return min(max(share, 1e-3), 1 - 1e-3)


def on_average(fit: Any, model: int, truth: int) -> float:
    return sum(
        float(fit.levels[truth, level]) * accuracy(fit, model, level, truth)
        for level in range(fit.accuracies.shape[1])
    )


def log_product(fit: Any, votes: Sequence[Vote], truth: int | None) -> float:
    """What the votes would say if no model knew of another."""
    voted = {code for _, code in votes}
    left = 1 - sum(float(fit.prior[k]) for k in voted)
    total = math.log(left if truth is None else float(fit.prior[truth]))
    for model, code in votes:
        right = alone(fit, model, truth)
        if code != truth:
            right = (1 - right) * wrong_rate(fit, model, code, truth, specific=True)
        total += math.log(right)
    return total


def log_wrong(fit: Any, votes: Sequence[Vote], truth: int | None, *, specific: bool) -> float:
    """Which wrong labels: each repeats an earlier wrong vote, or is drawn afresh."""
    total = 0.0
    wrong = [vote for vote in votes if vote[1] != truth]
    for at, (model, code) in enumerate(wrong):
        rate = wrong_rate(fit, model, code, truth, specific=specific)
        copies = [(float(fit.copies[model, other]), label) for other, label in wrong[:at]]
        together = sum(chance for chance, _ in copies)
        divisor = 1 + together - max((chance for chance, _ in copies), default=0.0)
        repeats = sum(chance for chance, label in copies if label == code) / divisor
        total += math.log(repeats + (1 - together / divisor) * rate)
    return total


def raw(fit: Any, votes: Sequence[Vote], truth: int | None) -> float:
    return log_right(fit, votes, truth) + log_wrong(fit, votes, truth, specific=False)


def candidates(fit: Any, votes: Sequence[Vote]) -> list[int | None]:
    found: list[int | None] = []
    for _, code in votes:
        if code not in found:
            found.append(code)
    return found if len(found) == fit.classes else [*found, None]


Leaning = dict[int | None, float]
"""What soft votes lean to each candidate by, and to none of these; see ``naive_temperatures``."""


def of_candidates(
    fit: Any,
    votes: Sequence[Vote],
    leaning: Leaning | None = None,
    *,
    formulas_alone: bool = False,
    without: int = -1,
) -> dict[int | None, float]:
    """Calibrated: sharpness, what none of these gets, what wrong labels under a truth tell, what
    the plain product says, and what soft votes lean to; drawn to labelled items with such votes."""
    named = candidates(fit, votes)
    scores = {one: raw(fit, votes, one) for one in named}
    best, many = max(scores.values()), math.log(max(len(votes), 1))
    products = {one: log_product(fit, votes, one) for one in named if scores[one] > -math.inf}
    likeliest = max(products.values())
    numbers = [float(number) for number in fit.calibrator]
    worth = {}
    for one in named:
        if scores[one] == -math.inf:
            worth[one] = -math.inf
            continue
        worth[one] = max(numbers[0] + numbers[1] * many, 1e-3) * max(scores[one] - best, -60)
        worth[one] += numbers[6] * max(products[one] - likeliest, -60)
        worth[one] += numbers[7] * (leaning or {}).get(one, 0.0)
        if one is None:
            worth[one] += numbers[2] + numbers[3] * many + numbers[4] * (len(named) - 2)
        else:
            worth[one] += numbers[5] * (
                log_wrong(fit, votes, one, specific=True)
                - log_wrong(fit, votes, one, specific=False)
            )
    top = max(worth.values())
    total = sum(math.exp(value - top) for value in worth.values())
    known = {one: math.exp(value - top) / total for one, value in worth.items()}
    if formulas_alone:
        return known
    return drawn(known, numbers[8], labelled(fit, votes, named, without)[0])


WORTHS: tuple[float, ...] = struct.unpack("6f", struct.pack("6f", 0.003, 0.01, 0.03, 0.1, 0.3, 1.0))
"""In single precision, as they are kept."""
Told = dict[int | None, float]
"""So many labelled items, by their truth; None for the classes nobody voted for."""


def weight_of(fit: Any, row: int) -> float:
    """What a labelled item counts for: its class may be more frequent than on the labelled set."""
    seen = fit.patterns
    truth = int(seen.truth[row])
    own = sum(float(n) for n, k in zip(seen.counts, seen.truth, strict=True) if k == truth)
    share = own / sum(float(n) for n in seen.counts)
    return float(seen.weights[row]) * float(fit.prior[truth]) / share


def labelled(
    fit: Any, votes: Sequence[Vote], named: Sequence[int | None], without: int = -1
) -> tuple[Told, float, list[int]]:
    """The labelled items with these votes, by truth, as many as they are worth; what a weight is
    multiplied by for that; and their rows. One item of the row ``without`` is left out."""
    seen, rows = fit.patterns, list[int]()
    for row in range(len(seen.truth)):
        if votes and all(int(seen.votes[row, model]) == code for model, code in votes):
            rows.append(row)
    told: Told = dict.fromkeys([*named, None], 0.0)
    total = squares = 0.0
    for row in rows:
        weight, count = weight_of(fit, row), float(seen.counts[row]) - float(row == without)
        truth = int(seen.truth[row])
        told[truth if truth in told else None] += count * weight
        total += count * weight
        squares += count * weight**2
    scale = total / squares if squares > 0 else 0.0
    return {one: scale * many for one, many in told.items()}, scale, rows


def worth_of(usual: float, known: Told, told: Told) -> float:
    """What one of these labelled items counts for, beside the formulas' belief."""
    total = sum(told.values())
    likely = {}
    for worth in WORTHS:
        strength = 1 / worth
        likely[worth] = math.lgamma(strength) - math.lgamma(strength + total)
        for one, many in told.items():
            if many > 0:
                around = strength * max(known.get(one, 0.0), 1e-12)
                likely[worth] += math.lgamma(around + many) - math.lgamma(around)
        likely[worth] += math.log((0.9 if worth == usual else 0.0) + 0.1 / len(WORTHS))
    highest = max(likely.values())
    shares = {w: math.exp(each - highest) / (1 + w * total) for w, each in likely.items()}
    return sum(w * share for w, share in shares.items()) / sum(shares.values())


def drawn(known: Told, usual: float, told: Told) -> Told:
    """Beliefs drawn to what was true of labelled items with the same votes."""
    if usual <= 0 or not sum(told.values()):
        return known
    worth = worth_of(usual, known, told)
    total = 1 + worth * sum(told.values())
    return {one: (known[one] + worth * told[one]) / total for one in known}


def belief(fit: Any, votes: Sequence[Vote], leaning: Leaning | None = None) -> list[float]:
    """Of every class; what is believed of none of these is spread by the prior."""
    known = of_candidates(fit, votes, leaning)
    left = sum(float(fit.prior[k]) for k in range(fit.classes) if k not in known)
    return [
        known[k] if k in known else known[None] * float(fit.prior[k]) / max(left, 1e-12)
        for k in range(fit.classes)
    ]


def gain(known: dict[int | None, float], label: int, ratio: float) -> float:
    named = {k: chance for k, chance in known.items() if k is not None}
    best = max(named, key=lambda k: named[k])
    if best == label:
        return 0.0
    return max(named[best] - ratio * named.get(label, 0.0), 0.0)


def value(
    fit: Any,
    votes: Sequence[Vote],
    label: int,
    model: int,
    ratio: float,
    leaning: Leaning | None = None,
    without: int = -1,
) -> float:
    """Every class the model may vote for, the beliefs after it, and what they would change."""
    known, hope, worth = of_candidates(fit, votes, leaning, formulas_alone=True), ratio**0.5, 0.0
    told, scale, rows = labelled(fit, votes, list(known), without)
    usual = float(fit.calibrator[8])
    worth_of_one = worth_of(usual, known, told) if usual > 0 and sum(told.values()) > 0 else 0.0
    total = 1 + worth_of_one * sum(told.values())

    def counted(says: int) -> float:
        """What labelled items with these votes count for, of which the model said this next."""
        own = [row for row in rows if int(fit.patterns.votes[row, model]) == says]
        return worth_of_one * scale * sum(weighed(row) for row in own)

    def weighed(row: int) -> float:
        return (float(fit.patterns.counts[row]) - float(row == without)) * weight_of(fit, row)

    before = {one: raw(fit, votes, one) for one in known}
    left = dict.fromkeys(known, 1.0)
    for code in [one for one in known if one is not None]:
        after = [*votes, (model, code)]
        chances = {
            one: min(math.exp(raw(fit, after, one) - before[one]), 1.0)
            for one in known
            if known[one] > 0
        }
        for one, chance in chances.items():
            left[one] -= chance
        likely = sum(known[one] * chance for one, chance in chances.items())
        likely = (likely + counted(code)) / total
        worth += likely * gain(of_candidates(fit, after, leaning, without=without), label, hope)
    if None in known:
        levels = range(fit.accuracies.shape[1])
        weights = [float((fit.prior * fit.levels[:, level]).sum()) for level in levels]
        for level in levels:
            for other, _ in votes:
                weights[level] *= 1 - accuracy(fit, other, level, None)
        right = sum(weights[level] * accuracy(fit, model, level, None) for level in levels)
        likely = sum(known[one] * max(left[one], 0.0) for one in known)
        new = min(known[None] * right / sum(weights), likely)
        old = known.get(label, 0.0) * max(left.get(label, 0.0), 0.0)
        for row in rows:
            says, truth = int(fit.patterns.votes[row, model]), int(fit.patterns.truth[row])
            if says not in known:
                new += worth_of_one * scale * weighed(row) if says == truth else 0.0
                old += worth_of_one * scale * weighed(row) if truth == label else 0.0
        worth += max(new - hope * old, 0.0) / total
    return worth - gain(drawn(known, usual, told), label, ratio)


def contest(fit: Any, votes: Sequence[Vote]) -> float:
    """The entropy over all classes of a product with one accuracy for each model."""
    logs = [0.0] * fit.classes
    for model, code in votes:
        right = alone(fit, model, None)
        for k in range(fit.classes):
            logs[k] += math.log(right if k == code else (1 - right) / (fit.classes - 1))
    shares = [math.exp(each - max(logs)) for each in logs]
    return -sum(p / sum(shares) * math.log(p / sum(shares)) for p in shares if p > 0)


def hardness(fit: Any, votes: Sequence[Vote], scale: Sequence[float]) -> float:
    """The mean of a scale over levels: over candidates by belief, over levels by likelihood."""
    mean = 0.0
    voted = {code for _, code in votes}
    for one, believed in of_candidates(fit, votes, formulas_alone=True).items():
        weights = []
        for level in range(fit.accuracies.shape[1]):
            if one is None:
                weight = sum(
                    float(fit.prior[k] * fit.levels[k, level])
                    for k in range(fit.classes)
                    if k not in voted
                )
            else:
                weight = float(fit.levels[one, level])
            for model, code in votes:
                chance = accuracy(fit, model, level, one)
                weight *= chance if code == one else 1 - chance
            weights.append(weight)
        if believed > 0 and sum(weights) > 0:
            told = sum(weight * at for weight, at in zip(weights, scale, strict=True))
            mean += believed * told / sum(weights)
    return mean


def rightness(fit: Any, votes: Sequence[Vote]) -> list[tuple[float, float, float]]:
    """For each vote: that it is right, how likely that was thought to be, and its variance."""
    voted = {code for _, code in votes}
    out = [(0.0, 0.0, 0.0) for _ in votes]
    for one, believed in of_candidates(fit, votes, formulas_alone=True).items():
        weights = []
        for level in range(fit.accuracies.shape[1]):
            if one is None:
                weight = sum(
                    float(fit.prior[k] * fit.levels[k, level])
                    for k in range(fit.classes)
                    if k not in voted
                )
            else:
                weight = float(fit.levels[one, level])
            for model, code in votes:
                chance = accuracy(fit, model, level, one)
                weight *= chance if code == one else 1 - chance
            weights.append(weight)
        if believed <= 0 or sum(weights) <= 0:
            continue
        for at, (model, code) in enumerate(votes):
            right, thought, spread = out[at]
            right += believed if code == one else 0.0
            for level, weight in enumerate(weights):
                chance = accuracy(fit, model, level, one)
                thought += believed * weight / sum(weights) * chance
                spread += believed * weight / sum(weights) * chance * (1 - chance)
            out[at] = right, thought, spread
    return out


def confusion(fit: Any, model: int, truth: int, code: int) -> float:
    """How likely a model is to name a class under a truth, with what was seen under it or not."""
    right = on_average(fit, model, truth)
    if code == truth:
        return right
    return (1 - right) * max(
        wrong_rate(fit, model, code, truth, specific=specific) for specific in (False, True)
    )
