"""Pages made of figures: the one module that knows Jinja. Everything that is put in is escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from posterity import _text
from posterity.errors import MissingExtra
from posterity.web.report import plotly

STATIC = ("style.css", "theme.js", "charts.js", "page.js", "planner.js", "review.js")
"""What pages load besides the plotting library."""


def render(template: str, **values: Any) -> str:
    """A page as HTML."""
    found: str = _environment().get_template(template).render(**values)
    return found


def check() -> None:
    """Refuse where pages cannot be made, with the line that installs what is missing."""
    _environment()
    plotly.script()


def static(name: str) -> bytes:
    """One of the files pages load."""
    return (files("posterity.web.report") / "static" / name).read_bytes()


@cache
def stamp() -> str:
    """Names what these files say, so that a browser may keep them as long as they say it."""
    told = hashlib.sha256(b"".join(static(name) for name in STATIC))
    return told.hexdigest()[:12]


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra.of("A page", "web") from None
    made = Environment(
        loader=PackageLoader("posterity.web.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_function"] = _dumps
    made.filters |= {
        "number": number,
        "percent": percent,
        "estimate": estimate,
        "belief": belief,
        "times": times,
    }
    return made


def _dumps(value: Any, **options: Any) -> str:
    return json.dumps(value, allow_nan=False, **options)


def number(value: float | None) -> str:
    """A count, or a sum of beliefs, which has a decimal only while it is small.

    >>> number(25000), number(3.26), number(348.2), number(None)
    ('25,000', '3.3', '348', '–')
    """
    if value is None:
        return "–"
    digits = 0 if isinstance(value, int) or abs(value) >= 10 else 1
    return f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """A share.

    >>> percent(0.7146), percent(None)
    ('71.5 %', '–')
    """
    return "–" if value is None else _text.percent(value)


def belief(value: float | None) -> str:
    """A belief; certain only where it is.

    >>> belief(0.70547), belief(0.9996), belief(1.0), belief(0.0002), belief(None)
    ('0.71', '> 0.99', '1', '< 0.01', '–')
    """
    if value is None:
        return "–"
    if value in (0.0, 1.0):
        return f"{value:.0f}"
    if value > 0.995:
        return "> 0.99"
    return "< 0.01" if value < 0.005 else f"{value:.2f}"


def times(weight: float) -> str:
    """How many times as likely a vote makes a label.

    >>> times(3.083), times(1212.4), times(0.25)
    ('3.1 times more likely', '1,212 times more likely', '4 times less likely')
    """
    than, factor = ("more", weight) if weight >= 1 else ("less", 1 / max(weight, 1e-300))
    told = f"{factor:.2g}" if factor < 100 or factor >= 1e6 else f"{factor:,.0f}"
    return f"{told} times {than} likely"


def estimate(told: dict[str, Any] | None, kind: str = "count") -> str:
    """A figure with its interval, in words.

    >>> estimate({"value": 348.2, "low": 327.2, "high": 369.7})
    '348 (327 to 370)'
    >>> estimate({"value": 0.7146, "low": 0.708, "high": 0.721}, "share")
    '71.5 % (70.8 to 72.1)'
    """
    if told is None or told["value"] is None:
        return "–"
    return _text.percent(**told) if kind == "share" else _text.shown(**told)


SCRIPTS = ("theme.js", "charts.js", "page.js")


def self_contained(view: dict[str, Any], pictures: dict[tuple[int, str], str]) -> str:
    """The file. A hash for each script: one that a payload brought would not be run."""
    scripts = [static(name).decode() for name in SCRIPTS]
    scripts.insert(1, plotly.script().decode())
    # Whatever closes a script within one would end it there.
    scripts = [text.replace("</script", "<\\/script") for text in scripts]
    sheet = static("style.css").decode()
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(sheet)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return render(
        "report.html",
        view=view,
        pictures=pictures,
        policy=policy,
        sheet=sheet,
        scripts=scripts,
        maps=plotly.maps_id(),
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
