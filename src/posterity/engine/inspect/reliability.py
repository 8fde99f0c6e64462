"""Reliability: how well beliefs did on the labelled items that went through a store's steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from posterity._text import Result
from posterity.engine.labelled.rehearse import Prepared
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidData
from posterity.validation.reliability import Reliability

WIDTH = 30


@dataclass(frozen=True, eq=False, repr=False)
class Trusted(Result):
    """Of labels believed so much, how many are right."""

    step: int
    labels: Reliability
    """Of the labels the items have."""
    best: Reliability
    """Of the classes believed most, whatever the rule made of them."""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "step": self.step,
            "labels": self.labels.to_dict(),
            "best": self.best.to_dict(),
        }

    def __str__(self) -> str:
        told = [f"{int(self.labels.items.sum()):,} labelled items after step {self.step}", ""]
        told += ["  belief        items   believed   right"]
        for row in self.labels.bins:
            mark = round(WIDTH * row["belief"])
            bar = "█" * round(WIDTH * row["right"])
            # Where the bar should end stands a mark, within it or beyond it.
            cells = list(bar.ljust(WIDTH + 1))
            cells[mark] = "┃" if mark >= len(bar) else "░"
            told.append(
                f"  {row['from']:.1f} to {row['to']:.1f} {row['items']:>8,} "
                f"{100 * row['belief']:>8.1f} % {100 * row['right']:>5.1f} %  "
                f"{''.join(cells).rstrip()}"
            )
        told += ["", "bar: share that is right; mark: where it would end if beliefs were"]
        told += [
            f"expected calibration error: {_points(self.labels)} of the stored labels, "
            f"{_points(self.best)} of the classes believed most"
        ]
        return "\n".join(told)


def _points(found: Reliability) -> str:
    return f"{100 * found.error:.1f} points ({100 * found.chance:.1f} by chance alone)"


def trusted(context: Context) -> Trusted:
    """Carry the labelled items through the steps that count, and see what came true."""
    live = context.live_updates
    if not live:
        raise InvalidData("There is no step yet whose beliefs could be looked at.")
    prepared = Prepared(context, live[-1].model or "", watched=True)
    found = prepared.reliability()
    if found is None:
        raise InvalidData(
            "Beliefs of this store cannot be checked on labelled items.",
            hint="That needs dependent beliefs, and labelled votes with ids of all its models on "
            "the same items.",
        )
    return Trusted(context.head, *found)
