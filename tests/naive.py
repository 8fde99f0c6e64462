"""Every formula once more, with plain loops and straight from its definition.

Slow and obvious on purpose: the fast paths are compared with this. No NumPy, except where a test
hands in arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

Matrix = Sequence[Sequence[float]]
NONE = -1


# Confusion: π[i][k] = p(vote = i given truth = k)


def count(truth: Sequence[int], votes: Sequence[int], classes: int) -> list[list[int]]:
    counts = [[0] * classes for _ in range(classes)]
    for true, vote in zip(truth, votes, strict=True):
        if vote != NONE:
            counts[vote][true] += 1
    return counts


def diagonal(counts: Sequence[Sequence[int]]) -> list[list[float]]:
    classes = len(counts)
    table = [[0.0] * classes for _ in range(classes)]
    for k in range(classes):
        seen = sum(counts[i][k] for i in range(classes))
        accuracy = (counts[k][k] + 1) / (seen + 2)
        for i in range(classes):
            table[i][k] = accuracy if i == k else (1 - accuracy) / (classes - 1)
    return table


def full(counts: Sequence[Sequence[int]]) -> list[list[float]]:
    classes = len(counts)
    table = [[0.0] * classes for _ in range(classes)]
    for k in range(classes):
        seen = sum(counts[i][k] for i in range(classes))
        for i in range(classes):
            table[i][k] = (counts[i][k] + 1) / (seen + classes)
    return table


def single(counts: Sequence[Sequence[int]]) -> list[list[float]]:
    classes = len(counts)
    seen = sum(counts[i][k] for i in range(classes) for k in range(classes))
    return spread([(sum(counts[k][k] for k in range(classes)) + 1) / (seen + 2)] * classes)


def shrunk(counts: Sequence[Sequence[int]]) -> list[list[float]]:
    """The strength that makes the counts of all classes likeliest, one chance after the other."""
    classes = len(counts)
    seen = [sum(counts[i][k] for i in range(classes)) for k in range(classes)]
    right = [counts[k][k] for k in range(classes)]
    mean = (sum(right) + 1) / (sum(seen) + 2)

    def likelihood(strength: float) -> float:
        total = 0.0
        for k in range(classes):
            # Item by item: what the ones before it say of the next.
            for before in range(right[k]):
                total += math.log((strength * mean + before) / (strength + before))
            for before in range(seen[k] - right[k]):
                chance = strength * (1 - mean) + before
                total += math.log(chance / (strength + right[k] + before))
        return total

    strengths = [2.0**power for power in range(13)]
    most = max(likelihood(strength) for strength in strengths)
    strength = [one for one in strengths if likelihood(one) > most - 1e-9][-1]
    return spread([(right[k] + strength * mean) / (seen[k] + strength) for k in range(classes)])


def spread(accuracies: Sequence[float]) -> list[list[float]]:
    classes = len(accuracies)
    return [
        [accuracies[k] if i == k else (1 - accuracies[k]) / (classes - 1) for k in range(classes)]
        for i in range(classes)
    ]


def floored(table: Matrix, floor: float) -> list[list[float]]:
    raised = [[max(value, floor) for value in row] for row in table]
    total = [sum(row[k] for row in raised) for k in range(len(raised))]
    return [[row[k] / total[k] for k in range(len(row))] for row in raised]


# Beliefs


def labelled_prior(truth: Sequence[int], classes: int) -> list[float]:
    counts = [max(list(truth).count(k), 0.5) for k in range(classes)]
    return [count / sum(counts) for count in counts]


def top(probabilities: Sequence[float], m: int) -> dict[int, float]:
    ranked = sorted(range(len(probabilities)), key=lambda k: (-probabilities[k], k))[:m]
    kept = sum(probabilities[k] for k in ranked)
    return {k: probabilities[k] / kept for k in ranked} if kept else {}


def likelihood(vote: int | dict[int, float], confusion: Matrix, k: int) -> float:
    if isinstance(vote, dict):
        return sum(weight * confusion[i][k] for i, weight in vote.items())
    return confusion[vote][k]


def log_joint(
    prior: Sequence[float],
    votes: Sequence[int | dict[int, float]],
    confusions: Sequence[Matrix],
) -> list[float]:
    """log p(y=k) + Σ_t log π^t(ŷ^t, k); −∞ where the prior rules a class out."""
    joint = [math.log(p) if p > 0 else -math.inf for p in prior]
    for vote, confusion in zip(votes, confusions, strict=True):
        if vote == NONE or vote == {}:
            continue
        for k in range(len(prior)):
            joint[k] += math.log(likelihood(vote, confusion, k))
    return joint


def log_joint_of_accuracies(
    prior: Sequence[float], votes: Sequence[int], accuracies: Sequence[Sequence[float]]
) -> list[float]:
    """The same where model t is right on class k with ``accuracies[t][k]``, else wrong evenly."""
    joint = [math.log(p) if p > 0 else -math.inf for p in prior]
    for vote, accuracy in zip(votes, accuracies, strict=True):
        if vote == NONE:
            continue
        for k in range(len(prior)):
            wrong = (1 - accuracy[k]) / (len(prior) - 1)
            joint[k] += math.log(accuracy[k] if vote == k else wrong)
    return joint


def log_joint_of_counts(
    prior: Sequence[float], votes: Sequence[int], counts: Sequence[dict[tuple[int, int], int]]
) -> list[float]:
    """The same with Laplace's estimate from the counts c(i, k) that are not zero."""
    classes = len(prior)
    joint = [math.log(p) if p > 0 else -math.inf for p in prior]
    for vote, counted in zip(votes, counts, strict=True):
        if vote == NONE:
            continue
        totals = [0] * classes
        for (_, k), number in counted.items():
            totals[k] += number
        for k in range(classes):
            joint[k] += math.log((counted.get((vote, k), 0) + 1) / (totals[k] + classes))
    return joint


def belief(joint: Sequence[float]) -> list[float]:
    highest = max(joint)
    weights = [math.exp(value - highest) for value in joint]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def entropy(probabilities: Sequence[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0)


def most_believed(joint: Sequence[float], votes: Sequence[int], stored: int = NONE) -> int:
    highest = max(joint)
    tied = [k for k in range(len(joint)) if joint[k] == highest]
    if stored in tied:
        return stored
    for vote in reversed(votes):
        if vote in tied:
            return vote
    return tied[0]


# Selection


def row_hash(row: int) -> int:
    mask = 2**64 - 1
    mixed = (row + 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return mixed ^ (mixed >> 31)


def random_score(seed: int, step: int, row: int) -> float:
    mask = 2**64 - 1
    key = row_hash((row_hash(seed) + step) & mask)
    return (row_hash(key ^ row_hash(row)) >> 11) / 2**53


def budgeted(fraction: float, eligible: int) -> int:
    return min(eligible, math.floor(Decimal(repr(fraction)) * eligible + Decimal("0.5")))


def choose(
    score: Sequence[float], eligible: Sequence[bool], first: Sequence[bool], evaluations: int
) -> list[int]:
    rows = [row for row in range(len(score)) if eligible[row]]
    rows.sort(key=lambda row: (not first[row], -score[row], row_hash(row)))
    return sorted(rows[:evaluations])


def assert_as_good(
    rows: Sequence[int],
    own: Sequence[int],
    score: Sequence[float],
    eligible: Sequence[bool],
    first: Sequence[bool],
) -> None:
    """Another choice may differ from our own only among scores that are equal up to rounding."""
    assert len(set(rows)) == len(rows) == len(own)
    assert all(eligible[row] for row in rows)
    assert sum(first[row] for row in rows) == sum(first[row] for row in own)
    for theirs, ours in zip(
        sorted((first[row], score[row]) for row in rows),
        sorted((first[row], score[row]) for row in own),
        strict=True,
    ):
        assert math.isclose(theirs[1], ours[1], rel_tol=1e-9, abs_tol=1e-9)


# Rules


def majority(votes: Sequence[int]) -> int:
    cast = [vote for vote in votes if vote != NONE]
    if not cast:
        return NONE
    most = max(cast.count(vote) for vote in cast)
    return next(vote for vote in reversed(cast) if cast.count(vote) == most)


@dataclass
class Item:
    """One item's story so far."""

    votes: list[int]
    probabilities: list[float]
    entropy: float
    label: int = NONE
    proposed: int = NONE


def confirmed(rule: str, label: int, wanted: int | None, proposed: int) -> tuple[int, int]:
    """The label and the pending proposal of an item after an update step.

    ``wanted``: what the rule without its modifier makes of the new vote; None without a vote.
    """
    if wanted is None:
        return (label if proposed == NONE else proposed), NONE
    if wanted == label:
        return label, NONE
    if rule.endswith("+confirm") and label != NONE and proposed == NONE:
        return label, wanted
    return wanted, NONE


def decide(
    rule: str,
    *,
    label: int,
    vote: int,
    best: int,
    probabilities: Sequence[float],
    entropy_before: float,
    entropy_after: float,
    votes: Sequence[int],
    truth: int,
) -> int:
    rule = rule.removesuffix("+confirm")
    if label == NONE:
        return vote
    if rule == "replace":
        return vote
    if rule == "majority-vote":
        return majority(votes)
    if rule == "max-belief":
        return best
    if rule == "max-belief-min-entropy":
        return best if entropy_after < entropy_before else label
    if rule == "oracle":
        return vote if label != truth and vote == truth else label
    ratio, _, neutral = rule.removeprefix("cost-ratio:").partition(",neutral=")
    if best == label:
        return label
    new, old = probabilities[best], probabilities[label]
    worth = new - float(ratio) * old - float(neutral or 0) * (1 - new - old)
    return best if worth > 0 else label


# Metrics


def flips(truth: Sequence[int], before: Sequence[int], after: Sequence[int]) -> dict[str, int]:
    counted = {"negative": 0, "positive": 0, "neutral": 0}
    for true, old, new in zip(truth, before, after, strict=True):
        if old in (NONE, new):
            continue
        if old == true:
            counted["negative"] += 1
        elif new == true:
            counted["positive"] += 1
        else:
            counted["neutral"] += 1
    return counted


def accuracy(truth: Sequence[int], labels: Sequence[int]) -> float:
    return sum(true == label for true, label in zip(truth, labels, strict=True)) / len(truth)


def btc(truth: Sequence[int], before: Sequence[int], after: Sequence[int]) -> float | None:
    rows = list(zip(truth, before, after, strict=True))
    were_right = [row for row in rows if row[1] == row[0]]
    if not were_right:
        return None
    return sum(true == new for true, _, new in were_right) / len(were_right)


def bec(truth: Sequence[int], before: Sequence[int], after: Sequence[int]) -> float | None:
    rows = list(zip(truth, before, after, strict=True))
    are_wrong = [row for row in rows if row[2] != row[0]]
    if not are_wrong:
        return None
    return sum(true != old for true, old, _ in are_wrong) / len(are_wrong)


def mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# A whole replay of one rule


def replay(
    truth: Sequence[int],
    votes: Sequence[Sequence[int]],
    confusions: Sequence[Matrix],
    *,
    prior: Sequence[float],
    fraction: float,
    rule: str,
    chosen: Sequence[Sequence[int]] | None = None,
    random_seed: int | None = None,
    soft: Sequence[Sequence[dict[int, float]]] | None = None,
) -> dict[str, Any]:
    """Entropy selection; returns the metrics of a result row, rates as fractions.

    ``chosen``: rows another implementation chose; checked to be a highest choice, then followed.
    ``random_seed``: random selection instead. ``soft``: each model's weights on each item.
    """
    items = [Item([], entropy=entropy(prior), probabilities=list(prior)) for _ in truth]
    labels = [NONE] * len(truth)
    steps: list[dict[str, Any]] = []
    even = False
    for step, cast in enumerate(votes):
        eligible = [vote != NONE for vote in cast]
        budget = sum(eligible) if step == 0 else budgeted(fraction, sum(eligible))
        unvoted = [all(vote == NONE for vote in item.votes) for item in items]
        score = [item.entropy for item in items]
        if random_seed is not None:
            score = [random_score(random_seed, step, row) for row in range(len(items))]
        rows = choose(score, eligible, unvoted, budget)
        if chosen is not None:
            assert_as_good(chosen[step], rows, score, eligible, unvoted)
            rows = list(chosen[step])
        expected_nf = expected_pf = 0.0
        for row, item in enumerate(items):
            item.votes.append(cast[row] if row in rows else NONE)
            if row not in rows:
                if rows and item.proposed != NONE:
                    expected_nf += item.probabilities[item.label]
                    expected_pf += item.probabilities[item.proposed]
                    item.label, item.proposed = confirmed(rule, item.label, None, item.proposed)
                continue
            weighed: list[int | dict[int, float]] = [
                vote if soft is None or vote == NONE else soft[t][row]
                for t, vote in enumerate(item.votes)
            ]
            joint = log_joint(prior, weighed, confusions[: step + 1])
            now = belief(joint)
            wanted = decide(
                rule,
                label=item.label,
                vote=cast[row],
                best=most_believed(joint, item.votes, item.label),
                probabilities=now,
                entropy_before=item.entropy,
                entropy_after=entropy(now),
                votes=item.votes,
                truth=truth[row],
            )
            even |= item.label != NONE and math.isclose(item.entropy, entropy(now), rel_tol=1e-9)
            after, item.proposed = confirmed(rule, item.label, wanted, item.proposed)
            if item.label not in (NONE, after):
                expected_nf += now[item.label]
                expected_pf += now[after]
            item.label, item.probabilities, item.entropy = after, now, entropy(now)
        for item in items if step + 1 == len(votes) else []:
            if item.proposed != NONE:  # nobody comes to confirm it
                expected_nf += item.probabilities[item.label]
                expected_pf += item.probabilities[item.proposed]
                item.label, item.proposed = confirmed(rule, item.label, None, item.proposed)
        before, labels = labels, [item.label for item in items]
        counted = flips(truth, before, labels)
        believed = [item.probabilities[item.label] if item.label != NONE else 0.0 for item in items]
        steps.append(
            {
                "evaluations": len(rows),
                "accuracy": accuracy(truth, labels),
                "delta_accuracy": accuracy(truth, labels) - (steps or [{}])[0].get("accuracy", 0),
                "negative_flips": counted["negative"],
                "positive_flips": counted["positive"],
                "neutral_flips": counted["neutral"],
                "btc": btc(truth, before, labels),
                "bec": bec(truth, before, labels),
                "expected_accuracy": sum(believed) / len(believed),
                "expected_negative_flips": expected_nf,
                "expected_positive_flips": expected_pf,
            }
        )
    steps[0]["delta_accuracy"] = 0.0
    later = steps[1:]

    def total(key: str) -> float:
        return float(sum(step[key] for step in later))

    return {
        "labels": labels,
        "entropy_even": even,  # so near that rounding tells whether it fell
        "steps": steps,
        "evaluations": total("evaluations"),
        "accuracy": steps[-1]["accuracy"],
        "delta_accuracy": steps[-1]["accuracy"] - steps[0]["accuracy"],
        "mean_accuracy": mean([step["accuracy"] for step in later]),
        "negative_flips": total("negative_flips"),
        "positive_flips": total("positive_flips"),
        "neutral_flips": total("neutral_flips"),
        "nfr": total("negative_flips") / (len(truth) * len(later)) if later else None,
        "pf_nf": (
            total("positive_flips") / total("negative_flips") if total("negative_flips") else None
        ),
        "btc": mean([step["btc"] for step in later]),
        "bec": mean([step["bec"] for step in later]),
        "expected_accuracy": steps[-1]["expected_accuracy"],
        "expected_negative_flips": total("expected_negative_flips"),
        "expected_positive_flips": total("expected_positive_flips"),
    }


# Answers: a model's own words as codes of ours


@dataclass
class Words:
    """What ``Answers`` is told; names go with their type, since True == 1."""

    classes: Sequence[Any]
    own: Sequence[Any] | None = None
    rename: Sequence[tuple[Any, Any]] = ()
    other: Any = None

    def code(self, name: Any) -> int | None:
        """Our code for one name of the model; None if it is a mistake."""
        if name is None:
            return NONE
        coded = type(name) is int and self.own is not None and type(self.own[0]) is str
        if coded and self.own is not None:  # a place in the list of its own classes
            return self.code(self.own[name]) if 0 <= name < len(self.own) else None
        if self.own is not None and not _listed(name, self.own):
            return None
        for old, new in self.rename:
            if type(old) is type(name) and old == name:
                return list(self.classes).index(new)
        if _listed(name, self.classes):
            return list(self.classes).index(name)
        return None if self.other is None else list(self.classes).index(self.other)

    def probabilities(self, row: Sequence[float]) -> tuple[int, list[float]]:
        """The vote, and the probabilities of our classes."""
        own = self.classes if self.own is None else self.own
        ours = [0.0] * len(self.classes)
        for name, value in zip(own, row, strict=True):
            code = self.code(name)
            assert code is not None
            ours[code] += value / sum(row)
        best = max(range(len(row)), key=lambda at: (row[at], -at))
        vote = self.code(own[best])
        assert vote is not None
        return vote, ours

    def scored(self, names: Sequence[Any], scores: Sequence[float]) -> tuple[int, list[float]]:
        """The same where only some classes have scores."""
        ours = [0.0] * len(self.classes)
        best = (0.0, 0)
        for name, score in zip(names, scores, strict=True):
            code = self.code(name)
            assert code is not None
            ours[code] += score
            best = max(best, (score, -code))
        return -best[1], ours


def _listed(name: Any, names: Sequence[Any]) -> bool:
    return any(type(one) is type(name) and one == name for one in names)


# Ids


def text_hash(text: bytes, seed: int) -> int:
    """The hash of ``kernels.hashes``, one text at a time."""
    full = 2**64 - 1
    state = (seed ^ len(text)) * 0x9E3779B97F4A7C15 & full
    for start in range(0, len(text), 8):
        state = (state ^ int.from_bytes(text[start : start + 8], "little")) * 0xBF58476D1CE4E5B9
        state &= full
        state ^= state >> 29
    state = (state ^ (state >> 31)) * 0x94D049BB133111EB & full
    return state ^ (state >> 32)


def find(ids: Sequence[Any], stored: Sequence[tuple[int, Any]]) -> list[int | None]:
    """The row of each id."""
    rows = {key: row for row, key in stored}
    return [rows.get(key) for key in ids]


def repeated(ids: Sequence[Any]) -> list[Any]:
    """The ids that occur more than once, in the order of their first occurrence."""
    return [key for key in dict.fromkeys(ids) if list(ids).count(key) > 1]


def promise_allows(labelled: int, items: int, rate: Fraction, doubt: Fraction) -> int | None:
    """How many labelled items may break, by counting the ways; None: none at all is too many."""
    most, found = math.floor(rate * items), None
    for broken in range(labelled + 1):
        breaking = broken + most + 1
        if breaking > labelled + items:
            return labelled
        ways = sum(
            math.comb(labelled, some) * math.comb(items, breaking - some)
            for some in range(broken + 1)
        )
        if Fraction(ways, math.comb(labelled + items, breaking)) > doubt:
            return found
        found = broken
    return found


def concave_slopes(places: list[float], heights: list[float]) -> list[float]:
    """Of the least concave curve above points: at each place the highest chord that spans it."""

    def height(at: int) -> float:
        best = heights[at]
        for left in range(at):
            for right in range(at + 1, len(places)):
                part = (places[at] - places[left]) / (places[right] - places[left])
                best = max(best, heights[left] + part * (heights[right] - heights[left]))
        return best

    curve = [height(at) for at in range(len(places))]
    return [
        (curve[at + 1] - curve[at]) / (places[at + 1] - places[at]) for at in range(len(places) - 1)
    ]


def spend_best_first(
    own: list[tuple[float, float]], coming: list[tuple[float, float]], others: int, left: float
) -> float:
    """What a step spends of what is left: (value, cost) of its evaluations and of those to come.

    The best first, whoever has them; of equally good ones each step has its part.
    """
    spent = 0.0
    values = sorted({value for value, _ in own} | {value for value, _ in coming}, reverse=True)
    for value in values:
        ours = sum(cost for each, cost in own if each == value)
        theirs = others * sum(cost for each, cost in coming if each == value)
        taken = min(left, ours + theirs)
        if ours + theirs:
            spent += taken * ours / (ours + theirs)
        left -= taken
    return spent


def balanced_ratio(
    flips: list[tuple[float, bool, bool]], ratios: tuple[float, ...], share: float
) -> float:
    """The highest ratio that keeps its share of the best net corrections; else 1.5.

    But if 1.5 clearly does harm, the lowest ratio that does none, or 10.

    A flip is its margin, whether it fixes a label, and whether it breaks one.
    """
    nets, moved = {}, {}
    for ratio in ratios:
        fixed = broken = 0
        for margin, fixes, breaks in flips:
            if margin > ratio:
                fixed += fixes
                broken += breaks
        nets[ratio], moved[ratio] = fixed - broken, fixed + broken
    best = ratios[0]
    for ratio in ratios:
        if nets[ratio] > nets[best]:
            best = ratio
    if nets[best] <= 0 or nets[best] < 2 * moved[best] ** 0.5:
        if nets[1.5] == 0 or nets[1.5] > -2 * moved[1.5] ** 0.5:
            return 1.5
        harmless = [ratio for ratio in ratios if nets[ratio] >= 0]
        return min(harmless) if harmless else 10.0
    chosen = best
    for ratio in ratios:
        if nets[ratio] >= share * nets[best]:
            chosen = max(chosen, ratio)
    return chosen
