"""Text for people: counted nouns, numbers with intervals, and HTML for notebooks."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Result:
    """What an operation found or did: it prints itself, for people, in a console too."""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)

    def __repr__(self) -> str:
        return str(self)


_CELL = "text-align:right;padding:2px 12px 2px 0;font-variant-numeric:tabular-nums"
_TEXT = "text-align:left;padding:2px 12px 2px 0"
_QUIET = "opacity:.7"


def html_page(title: str, figures: Mapping[str, str], *more: str) -> str:
    """A title, what there is to know at a glance, and whatever follows.

    >>> html_page("plan <1>", {"items": "5"}).count("&lt;1&gt;")
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


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
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


def text_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table of text, numbers to the right; nothing where there are none.

    >>> print(text_table([{"model": "old", "votes": 1200}, {"model": "new", "votes": None}]))
    model  votes
    old    1,200
    new        –
    """
    if not rows:
        return ""
    columns = []
    for name in rows[0]:
        cells = [name, *(_shown(row[name]) for row in rows)]
        width = max(map(len, cells))
        right = all(_is_number(row[name]) for row in rows)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def html_lines(told: Iterable[str]) -> str:
    """Sentences, one under the other; nothing where there are none."""
    return "".join(f'<div style="margin:4px 0">{escape(one)}</div>' for one in told if one)


def lines(notes: Iterable[str]) -> str:
    """Notes as one text, a line each; those that are empty say nothing."""
    return "\n".join(note for note in notes if note)


def _cell(kind: str, value: Any, numeric: bool) -> str:
    return f'<{kind} style="{_CELL if numeric else _TEXT}">{escape(_shown(value))}</{kind}>'


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


_PYTHON = re.compile(r"`([^`]+)`")
_COMMANDS = {
    "append_classes": "classes",
    "create": "init",
    "drop_run": "runs",
    "import_predictions": "import",
    "register": "model",
    "repair": "check",
    "review_queue": "review",
}
"""Commands whose name is not that of the method."""
_ALSO = {"append_classes": "--append", "drop_run": "--drop", "repair": "--repair"}
"""Flags that make a command do what the method does."""
_FLAGS = {"classes": "--model-classes", "confusion": "--confusion-matrix"}
"""Flags whose name is not that of the parameter, where it is one of a model."""
_OFF = {"refuse_unlike": "--accept-unlike"}
"""Flags that stand for False."""


def on_command_line(text: str, flags: Mapping[str, str] | None = None) -> str:
    """A message as the command line says it: what is Python in backticks becomes what is typed.

    ``flags``: of the command that was called, by parameter. Other words in backticks stay.

    >>> on_command_line("Pass `trust=True`, or the plan's id with `plan=`; see `ray status`.")
    "Pass `--trust`, or the plan's id with `--plan`; see `ray status`."
    >>> on_command_line("`store.revert(3)` undoes it; `store.update('vit', rule='max-belief')`")
    '`posterity revert STORE 3` undoes it; `posterity update STORE vit --rule max-belief`'
    """
    known = _FLAGS | dict(flags or {})
    return _PYTHON.sub(lambda found: f"`{_typed(found[1], known)}`", text)


ADVICE = ("note", "warning", "broken", "message", "hint")
"""Where results and errors speak of options."""


def advice_on_command_line(told: Any, say: Callable[[str], str] = on_command_line) -> Any:
    """A result or an error, as a dict, with its advice as the command line says it.

    >>> advice_on_command_line({"label": "`a=1`", "note": "see `more=True`"})
    {'label': '`a=1`', 'note': 'see `--more`'}
    """
    if isinstance(told, list):
        return [advice_on_command_line(one, say) for one in told]
    if not isinstance(told, dict):
        return told
    return {
        key: _each(value, say) if key in ADVICE else advice_on_command_line(value, say)
        for key, value in told.items()
    }


def _each(value: Any, say: Callable[[str], str]) -> Any:
    listed = [say(one) for one in value] if isinstance(value, list) else value
    return say(value) if isinstance(value, str) else listed


def _typed(code: str, flags: Mapping[str, str]) -> str:
    if re.fullmatch("[a-z_]+=", code):
        return _flag(code[:-1], flags)
    for source in (code, f"options({code})"):
        try:
            found = ast.parse(source, mode="eval").body
        except SyntaxError:
            continue
        if isinstance(found, ast.Call):
            return " ".join(_words(found, flags)) or code
    return code


def _words(call: ast.Call, flags: Mapping[str, str]) -> Iterator[str]:
    """What is typed for a call: of a store's method a command, of anything else its options."""
    if isinstance(call.func, ast.Attribute):  # else what it makes is only looked into
        verb = call.func.attr
        yield from ("posterity", _COMMANDS.get(verb, verb), "STORE")
        if verb in _ALSO:
            yield _ALSO[verb]
        # The path of a store that is made stands where STORE does.
        yield from map(_word, call.args[verb == "create" :])
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(given, ast.Call):
            yield from _words(given, flags)
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Call):
            continue
        name = keyword.arg or ""
        if name in _OFF and isinstance(keyword.value, ast.Constant) and not keyword.value.value:
            yield _OFF[name]
            continue
        yield _flag(name, flags)
        if not (isinstance(keyword.value, ast.Constant) and keyword.value.value is True):
            yield _word(keyword.value)


def _word(given: ast.expr) -> str:
    """A value as it is typed; a variable is a placeholder, as is the model a call makes."""
    if isinstance(given, ast.Call):
        return _word(given.args[0])
    if isinstance(given, ast.Constant) and given.value is not ...:
        return shlex.quote(str(given.value))
    return given.id.upper() if isinstance(given, ast.Name) else "…"


def _flag(name: str, flags: Mapping[str, str]) -> str:
    return flags.get(name) or f"--{name.replace('_', '-')}"


_OF_ONE = {"are": "is", "were": "was", "have": "has", "occur": "occurs"}


def counted(number: int, noun: str, verb: str = "") -> str:
    """How many of something, and the verb that goes with so many.

    >>> counted(1, "file"), counted(2500, "file"), counted(0, "class")
    ('1 file', '2,500 files', '0 classes')
    >>> counted(1, "flip", "are"), counted(2, "row", "have")
    ('1 flip is', '2 rows have')
    """
    if number != 1:
        noun += "es" if noun.endswith("s") else "s"
    told = f"{number:,} {noun}"
    return f"{told} {_OF_ONE[verb] if number == 1 else verb}" if verb else told


def shown(value: float, low: float | None = None, high: float | None = None) -> str:
    """A count and its interval.

    >>> shown(310.4, 250.2, 371.0), shown(1.26, 0.5, 2.2), shown(0.25)
    ('310 (250 to 371)', '1.3 (0.5 to 2.2)', '0.2')
    """
    digits = 0 if abs(value) >= 10 else 1
    between = "" if low is None or high is None else f" ({low:,.{digits}f} to {high:,.{digits}f})"
    return f"{value:,.{digits}f}{between}"


def percent(value: float, low: float | None = None, high: float | None = None) -> str:
    """A share and its interval.

    >>> percent(0.7921, 0.784, 0.8), percent(0.5)
    ('79.2 % (78.4 to 80.0)', '50.0 %')
    """
    between = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * value:.1f} %{between}"


_UNSEEN = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
SHOWN_AS = {
    **{code: 0x2400 + code for code in range(0x20)},  # ␀ ␁ … ␛ …
    0x7F: 0x2421,
    **dict.fromkeys((*_UNSEEN, *range(0xD800, 0xE000)), 0xFFFD),
}
"""What a terminal would obey (C0, C1, DEL), what turns text around (bidirectional overrides) or
breaks lines, and halves of characters: each as one character that is seen."""
SHOWN_IN_TEXTS = {code: seen for code, seen in SHOWN_AS.items() if code not in (0x09, 0x0A)}
"""The same, but for tabs and line feeds."""
_IN_JSON = {code: f"\\u{code:04x}" for code in SHOWN_AS if code >= 0x20}


def json_text(value: Any, indent: int | None = None, *, compact: bool = False) -> str:
    """JSON that is harmless in a terminal, too; NaN is refused because JSON has none.

    >>> print(json_text({"name": "\\x9b31m"}, compact=True))
    {"name":"\\u009b31m"}
    """
    spaces = (",", ":") if compact else None
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=spaces)
    return text.translate(_IN_JSON)
