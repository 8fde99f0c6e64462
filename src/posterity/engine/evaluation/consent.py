"""Consent: which sources of votes may be run for a store, as decided on this machine.

A store names where a model's votes come from: code to be imported, a file to be unpickled, a server
that is sent the items. A store made by somebody else must not have that run unasked. Decisions are
files in the user's configuration, one each, for a store, its place and the exact source.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path

from posterity.engine.executors import LOCAL
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter, PosterityWarning, Untrusted
from posterity.models.model import Loaded, Model, Predict, load_predict, shown_source

_allowed: set[str] = set()
"""Decided in this process, whether or not it could be kept."""


def allow(store: str, location: str, source: str) -> None:
    """Remember that a source may be run."""
    name = _name(store, location, source)
    if is_allowed(store, location, source):
        return
    _allowed.add(name)
    folder = _folder()
    try:
        if folder is None:
            raise OSError("there is no home folder")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        about = {"store": store, "location": location, "source": source}
        (folder / name).write_text(json.dumps(about, indent=1), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        warnings.warn(
            f"The decision to trust this source cannot be kept ({reason}); it holds for now.",
            PosterityWarning,
            stacklevel=2,
        )


def is_allowed(store: str, location: str, source: str) -> bool:
    """Whether somebody on this machine has said that a source may be run."""
    name, folder = _name(store, location, source), _folder()
    if name in _allowed:
        return True
    try:
        return folder is not None and (folder / name).is_file()
    except OSError:
        return False


def _name(store: str, location: str, source: str) -> str:
    if "://" not in location:
        location = os.path.realpath(location)
    return hashlib.sha256(json.dumps([store, location, source]).encode()).hexdigest()


def _folder() -> Path | None:
    told = os.environ.get("XDG_CONFIG_HOME") or ""
    try:
        # One that is relative has to be ignored, says the specification.
        users = Path(told) if Path(told).is_absolute() else Path.home() / ".config"
    except RuntimeError:  # nobody's home
        return None
    return users / "posterity" / "trusted"


def allow_own(context: Context, model: Model) -> None:
    """Whoever names a source themselves has said that it may be run."""
    if isinstance(model.predict, str):
        allow(context.description.store, context.files.root, model.predict)


def source_of(context: Context, model: Model | str, *, trust: bool) -> Predict | str:
    """The model's own callable, or the one the store names, if it may be run.

    ``trust``: it may, from now on.
    """
    given = model.source if isinstance(model, Model) else None
    if given is None:
        name = model if isinstance(model, str) else model.name
        given = context.model(name).settings.predict
        if given is None:
            raise InvalidParameter(
                "An update needs a model with `predict=`, or votes made elsewhere in `votes=`."
            )
        _check(context, name, given, trust=trust)
    if context.executor != LOCAL:
        return given
    return Loaded(load_predict(given) if isinstance(given, str) else given)


def _check(context: Context, name: str, source: str, *, trust: bool) -> None:
    place = context.description.store, context.files.root
    if trust:
        allow(*place, source)
    if not is_allowed(*place, source):
        raise Untrusted(
            f"The store at '{context.files.root}' names '{shown_source(source)}' as the source of "
            f"votes of '{name}', and nobody has allowed that on this machine yet.",
            hint="If you trust it, run the same with `trust=True`.",
        )
