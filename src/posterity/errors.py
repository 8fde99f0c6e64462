"""Every error Posterity raises on purpose.

    PosterityError                what went wrong, and a hint what to do about it
    ├── InvalidParameter          an option or argument outside what is allowed (also a ValueError)
    │   └── UnknownName           a rule, selector, model, … that does not exist (also a KeyError)
    ├── InvalidData               arrays or files that cannot be used (also a ValueError)
    │   ├── UnknownItem           an id that no item of the store has (also a KeyError)
    │   └── InvalidRecording      a recording that cannot be read or is inconsistent
    ├── StoreError                a store that cannot be read, written or understood
    │   ├── CommitConflict        somebody else committed first; nothing was lost
    │   │   └── Superseded        what was being read was replaced and vacuumed; read again
    │   └── Missing               a file that is not there, or no longer
    ├── Unavailable               a source of votes that does not answer, whatever it is asked
    ├── Untrusted                 code or a server named by a store, which nobody here has allowed
    ├── Unlike                    items that look unlike the labelled set; their step was not made
    └── MissingExtra              an optional dependency that is not installed (also an ImportError)

``kind`` is the name used in JSON; ``exit_code`` is what the command line ends with:
2 where the call itself was wrong, 1 where what it was given could not be used.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar


class PosterityError(Exception):
    """The base of all errors raised on purpose."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is by itself, an error that comes from another process has lost its hint.
        return _again, (type(self), self.message, self.hint)

    def to_dict(self) -> dict[str, str | None]:
        """The error as the object the command line prints with ``--json``."""
        return {"kind": self.kind, "message": self.message, "hint": self.hint}


def _again(kind: type[PosterityError], message: str, hint: str | None) -> PosterityError:
    return kind(message, hint=hint)


class InvalidParameter(PosterityError, ValueError):
    """A parameter outside what is allowed: names it, what is allowed and what was given."""

    kind = "invalid-parameter"
    exit_code = 2

    @classmethod
    def of(
        cls, parameter: str, allowed: str, given: object, *, hint: str | None = None
    ) -> InvalidParameter:
        """The one sentence every parameter error uses.

        >>> print(InvalidParameter.of("budget", "a count ≥ 0", -1))
        The parameter 'budget' must be a count ≥ 0; got -1.
        """
        return cls(
            f"The parameter '{parameter}' must be {allowed}; got {_shown(given)}.", hint=hint
        )


SHOWN = 200
"""Characters of what was given that an error repeats."""


def _shown(given: object) -> str:
    """A value as an error shows it, whatever it is: some are too long, some cannot be written."""
    try:
        text = repr(given)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return f"a value of type {type(given).__name__} too long to show"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters)"


class UnknownName(InvalidParameter, KeyError):
    """A name that stands for nothing, with the nearest names that do."""

    kind = "unknown-name"

    @classmethod
    def among(cls, what: str, name: str, known: Iterable[str]) -> UnknownName:
        """Say which names exist, and guess which one was meant.

        >>> print(UnknownName.among("selector", "entrpy", ["entropy", "random"]))
        There is no selector 'entrpy'; known are: entropy, random. Did you mean 'entropy'?
        """
        names = list(known)
        if not names:
            return cls(f"There is no {what} {_shown(name)}; there is none yet.")
        # What is longer than this is no slip of the finger, and takes long to compare.
        near = difflib.get_close_matches(name, names, n=1) if len(name) <= SHOWN else []
        shown = ", ".join(names[:20]) + (f", … ({len(names)} in all)" if len(names) > 20 else "")
        hint = f"Did you mean {near[0]!r}?" if near else None
        return cls(f"There is no {what} {_shown(name)}; known are: {shown}.", hint=hint)


class InvalidData(PosterityError, ValueError):
    """Data that is not what it should be: names the argument and the first offender."""

    kind = "invalid-data"


class UnknownItem(InvalidData, KeyError):
    """An id that no item of the store has."""


class InvalidRecording(InvalidData):
    """A recording that cannot be read or contradicts itself."""

    kind = "invalid-recording"


class StoreError(PosterityError):
    """A store that cannot be read, written or understood."""

    kind = "store"


class CommitConflict(StoreError):
    """Somebody else committed first; nothing that was evaluated is lost."""

    kind = "conflict"


class Superseded(CommitConflict):
    """Files that were being read were replaced by a compaction and vacuumed."""


class Missing(StoreError):
    """A file that is not there, or no longer."""


class Unavailable(PosterityError):
    """A source of votes that cannot be used at all: no single item is to blame."""

    kind = "unavailable"


class Untrusted(PosterityError):
    """A source of votes that a store names, and nobody on this machine has allowed."""

    kind = "untrusted"


class Unlike(PosterityError):
    """Items that look unlike the labelled set, in a step that is to be refused then."""

    kind = "unlike"


class PosterityWarning(UserWarning):
    """What does not stop a call, but should be known."""


class MissingExtra(PosterityError, ImportError):
    """An optional dependency that is not installed, with the line that installs it."""

    kind = "missing-extra"

    @classmethod
    def of(cls, what: str, extra: str) -> MissingExtra:
        """
        >>> print(MissingExtra.of("The demo", "demo"))
        The demo needs packages that are not installed. Run: pip install 'posterity[demo]'
        """
        return cls(
            f"{what} needs packages that are not installed.",
            hint=f"Run: pip install 'posterity[{extra}]'",
        )
