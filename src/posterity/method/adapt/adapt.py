"""Adapt: what was learnt on the labelled set, brought as near to a target as its votes allow.

Three things are estimated from votes without any truth, each with a module of its own: how
frequent classes are (``class_shares``), how hard items are (``difficulty``), and how often each
model is right (``model_accuracy``). All are tried on the labelled items too,
where the answer is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from posterity.errors import InvalidParameter, UnknownName
from posterity.method.adapt import class_shares, difficulty, model_accuracy
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data import arrays
from posterity.method.data.arrays import Codes
from posterity.method.data.spec import split_list
from posterity.method.data.votes import VoteTable

DIFFICULTY, CONFUSIONS, NONE = "difficulty", "confusions", "none"
KINDS = (DIFFICULTY, CONFUSIONS)
DEFAULT = (DIFFICULTY,)

Adapt = bool | str | Iterable[str]
"""Which adaptations, as users write it: ``True`` for the default, a list, or names with commas."""


def read_adapt(given: Adapt) -> tuple[str, ...]:
    """The kinds of adaptation that are wanted, in the order they are made.

    >>> read_adapt(True), read_adapt("none"), read_adapt("confusions,difficulty")
    (('difficulty',), (), ('difficulty', 'confusions'))
    """
    if isinstance(given, bool):
        return DEFAULT if given else ()
    try:
        named = split_list(given) if isinstance(given, str) else [str(name) for name in given]
    except TypeError:
        expected = f"True, False, or some of {', '.join(KINDS)}"
        raise InvalidParameter.of("adapt", expected, given) from None
    unknown = [name for name in named if name not in (*KINDS, NONE)]
    if unknown:
        raise UnknownName.among("adaptation", unknown[0], (*KINDS, NONE))
    if NONE in named and len(set(named)) > 1:
        raise InvalidParameter.of("adapt", f"'{NONE}' alone, or others", ",".join(named))
    return tuple(kind for kind in KINDS if kind in named)


def refuse_plain(kinds: Sequence[str]) -> None:
    """Only dependent beliefs are adapted; the default asks plain ones for nothing."""
    if CONFUSIONS in kinds:
        raise InvalidParameter(
            f"The adaptation '{CONFUSIONS}' needs dependent beliefs.",
            hint="Leave it out, or choose the beliefs 'dependent'.",
        )


def to_keep(given: Adapt, *, dependent: bool) -> list[str]:
    """The same as a store keeps it."""
    kinds = read_adapt(given)
    if not dependent:
        refuse_plain(kinds)
    return list(kinds)


@dataclass(frozen=True, eq=False)
class LabelledHalf:
    """Labelled items with their votes so far, and a calibrated fit learnt on others."""

    fit: Dependence
    votes: VoteTable
    truth: Codes

    @property
    def sample(self) -> VoteTable:
        """As many of them as are looked at on a target."""
        return self.votes[arrays.evenly(len(self.votes))]

    @property
    def who(self) -> range:
        """Every model has its column."""
        return range(self.votes.hard.shape[1])


def adapted(
    known: Dependence,
    halves: Sequence[LabelledHalf],
    sample: VoteTable,
    who: Sequence[int],
    *,
    adapt: Sequence[str] = DEFAULT,
    follow: bool = False,
) -> tuple[Dependence, Adaptation]:
    """What a target is believed by, from a calibrated fit and a sample of its votes.

    ``follow``: with class frequencies estimated from these votes. First come the shares
    of classes, then what all items have in common, then what each model has of its own.
    """
    usual, tilt, most = known.prior, 0.0, 0.0
    if follow:
        known = followed(known, halves, sample, who)
    if DIFFICULTY in adapt:
        labelled = [difficulty.tilt_of(half.fit, half.sample, half.who) for half in halves]
        tilt = difficulty.difference(difficulty.tilt_of(known, sample, who), labelled)
        known = difficulty.tilted(known, tilt)
    if CONFUSIONS in adapt:
        found = model_accuracy.offsets_of(known, sample, who)
        checks = [model_accuracy.offsets_of(half.fit, half.sample, half.who) for half in halves]
        moved = model_accuracy.moved(
            known, model_accuracy.guarded(known, model_accuracy.difference(found, checks))
        )
        most, known = model_accuracy.most(known, moved), moved
    return known, Adaptation(tilt, class_shares.apart(known.prior, usual), most)


def followed(
    known: Dependence, halves: Sequence[LabelledHalf], sample: VoteTable, who: Sequence[int]
) -> Dependence:
    """With class frequencies estimated from votes, as far as that works on labelled items."""
    found = class_shares.followed(known, sample, who).prior
    if found is known.prior:
        return known
    checks = [class_shares.check(half.fit, half.votes, half.truth) for half in halves]
    doubt = class_shares.in_doubt(known, sample, who)
    return replace(known, prior=class_shares.believed(found, checks, known.prior, doubt))


LITTLE = 0.1
"""A tilt below this is not worth a word; of shares and accuracies a tenth of it is."""


@dataclass(frozen=True)
class Adaptation:
    """By how much beliefs about a target were adapted to it."""

    tilt: float = 0.0
    """How much harder it looks than the labelled set; see ``difficulty``."""
    shares: float = 0.0
    """How far class frequencies were moved: the share of items that have another class then."""
    accuracies: float = 0.0
    """How far the accuracy that was moved most was moved; see ``model_accuracy``."""
    labelled: float = 1.0
    """The share of labelled items that weights leave; see ``shift``."""

    def to_dict(self) -> dict[str, float]:
        """As ``--json`` prints it."""
        return dict(vars(self))

    def __str__(self) -> str:
        told = []
        if abs(self.tilt) >= LITTLE:
            than = "harder" if self.tilt > 0 else "easier"
            told.append(f"items that look {than} than the labelled set (tilt {self.tilt:+.2f})")
        if self.accuracies >= LITTLE / 10:
            points = 100 * self.accuracies
            told.append(f"models' accuracies on these items, moved by at most {points:.0f} points")
        if self.labelled < 1:
            told.append(f"weights, which leave {100 * self.labelled:.0f} % of labelled items")
        first = ", ".join(told[:-1]) + " and " if told[1:] else ""
        return f"adapted to {first}{told[-1]}" if told else ""
