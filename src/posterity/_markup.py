"""HTML for notebooks: a title, figures side by side and a table, with everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_CELL = "text-align:right;padding:2px 12px 2px 0;font-variant-numeric:tabular-nums"
_TEXT = "text-align:left;padding:2px 12px 2px 0"
_QUIET = "opacity:.7"


def page(title: str, figures: Mapping[str, str], *more: str) -> str:
    """A title, what there is to know at a glance, and whatever follows.

    >>> page("plan <1>", {"items": "5"}).count("&lt;1&gt;")
    1
    """
    told = "".join(
        f'<div style="margin:0 24px 4px 0"><div style="{_QUIET};font-size:.85em">{escape(name)}'
        f'</div><div style="font-weight:600">{escape(value)}</div></div>'
        for name, value in figures.items()
    )
    return (
        f'<div class="posterity"><div style="font-weight:600;margin:2px 0 6px">{escape(title)}'
        f'</div><div style="display:flex;flex-wrap:wrap">{told}</div>{"".join(more)}</div>'
    )


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table, numbers to the right; nothing where there are none."""
    if not rows:
        return ""
    names = list(rows[0])
    numeric = {name: all(_is_number(row[name]) for row in rows) for name in names}
    head = "".join(_cell("th", name, numeric[name]) for name in names)
    body = "".join(
        f"<tr>{''.join(_cell('td', row[name], numeric[name]) for name in names)}</tr>"
        for row in rows
    )
    return (
        f'<table style="margin:6px 0;border-collapse:collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def lines(told: Iterable[str]) -> str:
    """Sentences, one under the other; nothing where there are none."""
    return "".join(f'<div style="margin:4px 0">{escape(one)}</div>' for one in told if one)


def _cell(kind: str, value: Any, numeric: bool) -> str:
    shown = "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return f'<{kind} style="{_CELL if numeric else _TEXT}">{escape(shown)}</{kind}>'


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
