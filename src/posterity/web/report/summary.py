"""Summary: a store, or one step of it, as a report for a colleague: HTML, Markdown, JSON."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from posterity._text import Result
from posterity._version import __version__
from posterity.engine.inspect import queries, reliability, step_views
from posterity.engine.ledger.context import Context
from posterity.engine.plan import prospects
from posterity.errors import InvalidData
from posterity.reader import StoreReader
from posterity.web.report import entropies, flips, item, markdown, models, payloads
from posterity.web.report.pages import self_contained

SHOWN = 20
"""Flips that are shown each."""
PICTURES = 2**21
"""Bytes of pictures that a report holds at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Result):
    """What can be told of a store without the store; print it, or write it to a file."""

    view: dict[str, Any]
    pictures: dict[tuple[int, str], str]
    """Pictures of items it shows, as addresses that hold them."""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return self.view

    def to_html(self) -> str:
        """One file that needs nothing else, neither Python nor a network."""
        return self_contained(self.view, self.pictures)

    def to_markdown(self) -> str:
        """For a pull request or a message."""
        return markdown.told(self.view)

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_markdown_(self) -> str:
        """As notebooks show it."""
        return self.to_markdown()


def summary(
    store: StoreReader,
    step: int | None = None,
    *,
    pictures: str | os.PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Summary:
    """The store, or what one step changed and how far that can be trusted, as a report.

    Print it, or take ``to_html()``, ``to_markdown()``, ``to_dict()``. ``pictures``: the folder
    where relative paths of pictures in a payload begin; None: no picture is read. ``columns``: of
    the payload, in which a star stands for any text; None: the first few, texts before numbers.
    """
    context, path = store._context(), store.path
    folder = None if pictures is None else Path(pictures)
    if step is not None:
        context.check_step(step)
    told = step_views.overview_view(context, queries.status(context, path))
    number = step if step is not None else _last_with_flips(told["steps"])
    view: dict[str, Any] = {
        "store": path.rstrip("/").split("/")[-1] or path,
        "software": __version__,
        "made": datetime.now(UTC).isoformat(timespec="minutes").replace("+00:00", " UTC"),
        "only": step,
        "overview": told,
        "flips": None if number is None else _flips(context, number, folder, columns),
        "reliability": _reliability(context),
        "entropies": None if step is not None else entropies.entropies_view(context),
        "models": None if step is not None else _models(context),
        "outlook": None if step is not None else _outlook(context),
    }
    view["stories"] = _stories(context, view["flips"], folder, columns)
    if step is not None:
        own = step_views.step_of(told["steps"], step)
        before = [one["accuracy"] for one in told["steps"] if one["step"] < step]
        view |= {"step": own, "before": before[-1] if before else None}
        view["trust"] = markdown.trust_lines(view, own)
    return Summary(view, {} if folder is None else _pictures(context, view, folder))


def _last_with_flips(told: list[dict[str, Any]]) -> int | None:
    found = [one["step"] for one in told if one["flips"] and one["counts"]]
    return found[-1] if found else None


def _flips(
    context: Context, number: int, pictures: Path | None, columns: Sequence[str] | None
) -> dict[str, Any]:
    """A step's flips: those believed most, and those most likely to have broken a label."""
    every = flips.flips_of(context, number)
    view = flips.flips_view(context, every, number, flips.Wanted(), size=SHOWN)
    doubtful = every.filter(every.column(flips.OLD).is_valid())
    order = [(flips.OLD, "descending"), ("row", "ascending")]
    view["doubtful"] = doubtful.sort_by(order).slice(0, SHOWN).to_pylist()
    for name in ("flips", "doubtful"):
        view[name] = payloads.with_payloads(context, view[name], pictures, columns)
    return view | {"left_out": payloads.left_out(context, columns)}


def _models(context: Context) -> dict[str, Any]:
    told = models.models_view(context)
    last = told["models"][-1]["model"] if told["models"] else None
    return told | {"model": None if last is None else models.model_view(context, last)}


def _reliability(context: Context) -> dict[str, Any] | None:
    try:
        return reliability.trusted(context).to_dict()
    except InvalidData:
        return None  # told where the picture would be


def _outlook(context: Context) -> dict[str, Any] | None:
    names = prospects.arriving(context)
    return prospects.Prospects(context, names[0]).answer() if names else None


def _stories(
    context: Context,
    told: dict[str, Any] | None,
    pictures: Path | None,
    columns: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """How one label came to move: of the most and of the least believed flip of the step."""
    if told is None or not told["flips"]:
        return []
    ids = dict.fromkeys(flip["id"] for flip in (*told["flips"][:1], *told["doubtful"][:1]))
    return [item.item_view(context, one, pictures, columns) for one in ids]


def _pictures(context: Context, view: dict[str, Any], root: Path) -> dict[tuple[int, str], str]:
    found: dict[tuple[int, str], str] = {}
    left = PICTURES
    shown = view["flips"]["flips"] + view["flips"]["doubtful"] if view["flips"] else []
    for flip in [*shown, *view["stories"]]:
        for cell in flip["payload"]:
            key = (flip["row"], cell["column"])
            if cell["kind"] != payloads.PICTURE or key in found:
                continue
            try:
                picture = payloads.picture_of(context, *key, root)
            except InvalidData:
                continue  # its words are shown
            if len(picture.content) <= left:
                left -= len(picture.content)
                packed = base64.b64encode(picture.content).decode()
                found[key] = f"data:{picture.kind};base64,{packed}"
    return found
