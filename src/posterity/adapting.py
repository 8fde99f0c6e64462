"""Adapting: what was learnt on the labelled set, brought as near to a target as its votes allow.

Three things votes tell without any truth, each with a module of its own: how frequent classes are
(``prevalence``), how hard items are (``difficulty``), and how often each model is right
(``accuracies``). All are tried on the labelled items too, where the answer is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from posterity import accuracies, difficulty, prevalence
from posterity._arrays import Codes
from posterity.dependence import Dependence
from posterity.errors import InvalidParameter, UnknownName
from posterity.products import Votes
from posterity.rehearsed import Adaptation
from posterity.specs import split_list

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


def to_keep(given: Adapt, *, dependent: bool) -> list[str] | None:
    """The same as a store keeps it; None where it is the default."""
    kinds = read_adapt(given)
    if not dependent:
        refuse_plain(kinds)
    return None if kinds == DEFAULT else list(kinds)


@dataclass(frozen=True, eq=False)
class Half:
    """Labelled items with their votes so far, and a calibrated fit learnt on others."""

    fit: Dependence
    votes: Votes
    truth: Codes

    @property
    def sample(self) -> Votes:
        """As many of them as are looked at on a target."""
        return self.votes[difficulty.evenly(len(self.votes))]

    @property
    def who(self) -> range:
        """Every model has its column."""
        return range(self.votes.hard.shape[1])


def adapted(
    known: Dependence,
    halves: Sequence[Half],
    sample: Votes,
    who: Sequence[int],
    *,
    adapt: Sequence[str] = DEFAULT,
    follow: bool = False,
) -> tuple[Dependence, Adaptation]:
    """What a target is believed by, from a calibrated fit and a sample of its votes.

    ``follow``: with classes as frequent as these votes tell. First come the shares of classes, then
    what all items have in common, then what each model has of its own.
    """
    usual, tilt, most = known.prior, 0.0, 0.0
    if follow:
        known = _followed(known, halves, sample, who)
    if DIFFICULTY in adapt:
        labelled = [difficulty.tilt_of(half.fit, half.sample, half.who) for half in halves]
        tilt = difficulty.difference(difficulty.tilt_of(known, sample, who), labelled)
        known = difficulty.tilted(known, tilt)
    if CONFUSIONS in adapt:
        found = accuracies.offsets_of(known, sample, who)
        checks = [accuracies.offsets_of(half.fit, half.sample, half.who) for half in halves]
        moved = accuracies.moved(
            known, accuracies.guarded(known, accuracies.difference(found, checks))
        )
        most, known = accuracies.most(known, moved), moved
    return known, Adaptation(tilt, prevalence.apart(known.prior, usual), most)


def _followed(
    known: Dependence, halves: Sequence[Half], sample: Votes, who: Sequence[int]
) -> Dependence:
    """With classes as frequent as votes tell, as far as they tell it on labelled items."""
    found = prevalence.followed(known, sample, who).prior
    if found is known.prior:
        return known
    checks = [prevalence.check(half.fit, half.votes, half.truth) for half in halves]
    doubt = prevalence.in_doubt(known, sample, who)
    return replace(known, prior=prevalence.believed(found, checks, known.prior, doubt))
