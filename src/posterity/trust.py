"""Trust: how far what is believed holds, as labelled items have it that went through the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posterity import expectations, likeness
from posterity._arrays import Codes
from posterity.expectations import Checked, Estimate, Sums
from posterity.likeness import Difference, Seen
from posterity.metrics import Flips
from posterity.reliability import Reliability
from posterity.shards import Decision, Labels
from posterity.votes import MISSING


@dataclass(frozen=True, eq=False)
class Half:
    """One step on half of the labelled items, by what was learnt on the other."""

    labels: Checked
    """Beliefs in the labels they have after it."""
    fixing: Checked
    """Beliefs in the new labels of flips."""
    breaking: Checked
    """Beliefs in the old ones."""
    flips: Flips
    seen: Seen
    reliability: Reliability
    """Of the beliefs in the labels."""

    @classmethod
    def of(
        cls,
        labels: Labels,
        truth: Codes,
        decisions: Sequence[Decision],
        flips: Flips,
        seen: Seen,
        drift: float,
    ) -> Half:
        """From labels after the step, what the step did, and what its votes looked like.

        ``drift``: how much more the labels are believed by the step's fit than they were.
        """
        has = labels.label != MISSING
        right, belief = (labels.label == truth)[has], labels.belief[has]
        fixing, breaking = Checked(), Checked()
        for made in decisions:
            changed, true = made.flipped, truth[made.rows]
            fixing += Checked.of((made.after == true)[changed], made.belief_after[changed])
            breaking += Checked.of((made.before == true)[changed], made.belief_before[changed])
        return cls(
            Checked.of(right, belief).drifted(drift),
            fixing,
            breaking,
            flips,
            seen.with_held(Sums.of(belief)),
            Reliability.of(right, belief),
        )


@dataclass(frozen=True, eq=False)
class Trust:
    """What the labelled items say, step by step; the last one is the step at hand."""

    steps: tuple[tuple[Half, Half], ...]

    @property
    def checks(self) -> bool:
        """Whether enough labelled items have a label by now."""
        one, other = self.steps[-1]
        return one.labels.items + other.labels.items > 1

    def accuracy(self, held: Sums) -> Estimate | None:
        """Of a target whose labels are believed so."""
        one, other = self.steps[-1]
        return expectations.accuracy(held, one.labels + other.labels)

    def fixed(self, flips: Sums) -> Estimate:
        """Positive flips among those a step made, from the beliefs in their new labels."""
        return expectations.flips(flips, [(a.fixing, b.fixing) for a, b in self.steps])

    def broken(self, flips: Sums) -> Estimate:
        """Negative ones, from the beliefs in their old labels."""
        return expectations.flips(flips, [(a.breaking, b.breaking) for a, b in self.steps])

    @property
    def dispersion(self) -> float:
        """How much more net corrections vary than if each item was on its own."""
        return expectations.dispersion(
            [
                (_net(a.flips), _net(b.flips), _moved(a.flips) + _moved(b.flips))
                for a, b in self.steps
            ]
        )

    @property
    def reliability(self) -> Reliability:
        """Of the beliefs in the labels."""
        one, other = self.steps[-1]
        return one.reliability + other.reliability

    def compare(
        self, target: Seen, earlier: Sequence[Sequence[Difference]] = ()
    ) -> list[Difference]:
        """How a target differs from the labelled items; ``earlier``: how it did in steps before."""
        one, other = self.steps[-1]
        apart = [likeness.differences(a.seen, b.seen) for a, b in self.steps]
        found = likeness.dispersions(apart)
        return likeness.compare(target, one.seen + other.seen, found, earlier)


def _net(flips: Flips) -> int:
    return flips.positive - flips.negative


def _moved(flips: Flips) -> int:
    return flips.positive + flips.negative
