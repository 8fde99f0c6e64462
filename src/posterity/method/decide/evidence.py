"""Evidence: what a rule may look at when it decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from posterity.errors import InvalidParameter
from posterity.method.beliefs.state import BeliefState
from posterity.method.data.arrays import ArrayLike, Codes, Floats, Rows
from posterity.method.data.votes import as_array, check_codes, check_same_length

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a rule may look at: the items with a new vote in this step.

    Only what the rule at hand uses needs to be given.
    """

    label: Codes
    """l, the stored label before the step."""
    vote: Codes
    """The new vote."""
    best: Codes | None = None
    """k̂, the most believed class."""
    belief_best: Floats | None = None
    """p(k̂)."""
    belief_label: Floats | None = None
    """p(l)."""
    entropy: Floats | None = None
    entropy_before: Floats | None = None
    """The entropy before the new vote was folded."""
    majority: Codes | None = None
    """The most frequent vote so far, the new one included."""
    truth: Codes | None = None
    """Replay only: never known at run time."""

    @classmethod
    def of(
        cls,
        beliefs: BeliefState,
        *,
        label: ArrayLike,
        vote: ArrayLike,
        entropy_before: Floats | None = None,
        rows: Rows | None = None,
        majority: Codes | None = None,
        truth: Codes | None = None,
        belief_label: Floats | None = None,
    ) -> Evidence:
        """What beliefs say about stored labels, after the new votes were folded into them."""
        stored = check_codes(label, beliefs.classes, "label")
        best = beliefs.most_believed(rows, stored=stored)
        return cls(
            label=stored,
            vote=check_codes(vote, beliefs.classes, "vote"),
            best=best,
            belief_best=beliefs.of_best(rows),
            belief_label=beliefs.of(stored, rows) if belief_label is None else belief_label,
            entropy=beliefs.entropy(rows),
            entropy_before=entropy_before,
            majority=majority,
            truth=truth,
        )

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        arrays = {name: as_array(value, name) for name, value in given.items()}
        check_same_length(**{name: len(array) for name, array in arrays.items()})
        for name, array in arrays.items():
            object.__setattr__(self, name, array)


def given(rule: object, field: str, value: _T | None) -> _T:
    """What a rule cannot do without."""
    if value is None:
        raise InvalidParameter(f"The rule '{rule}' needs '{field}' in its evidence.")
    return value
