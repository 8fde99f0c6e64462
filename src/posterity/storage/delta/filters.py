"""Filters: which rows of a table satisfy a condition that somebody wrote in SQL.

DataFusion, which comes with ``deltalake``, evaluates them. It gets only what it evaluates right,
with the same result each time and in bounded work: a condition on the columns of one row.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from posterity.errors import InvalidParameter
from posterity.storage.delta.table import Snapshot

# Two or three times as much overflows the engine's stack.
MOST_VALUES = 10_000
MOST_WORDS = 1_000
"""Names, operators and parentheses of a filter."""

# No function whose result differs from call to call (random, now), can be much longer than what it
# is given (repeat, lpad, replace), or depends on other rows (count, row_number).
_FUNCTIONS = """
abs acos asin atan atan2 ceil cos degrees exp floor greatest isnan least ln log log10 log2 nanvl
power pow radians round signum sin sqrt tan trunc
coalesce ifnull nullif nvl cast try_cast
ascii bit_length btrim char_length character_length chr concat concat_ws contains ends_with
initcap left length lower ltrim md5 octet_length position regexp_like reverse right rtrim sha256
split_part starts_with strpos substr substring translate trim upper
date_bin date_part date_trunc extract to_date to_timestamp to_timestamp_micros
to_timestamp_millis to_timestamp_seconds
array_has array_length cardinality
"""
_OTHERS = """
and or not in between like ilike case when then else is from to char decimal numeric timestamp
varchar
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
_BEFORE_PARENTHESIS = FUNCTIONS | set(_OTHERS.split())
"""Words that may stand before a parenthesis: functions, operators, and types with a length."""
_REFUSED = {
    "select": "a filter cannot contain a query",
    **dict.fromkeys(
        ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"),
        "the same filter must always select the same items; write the time itself",
    ),
}
_PREFIX = r"^(?:[\w ]*[Ee]rror(?: during planning)?: |This feature is not implemented: )+"
# Only what we and the engine read alike; so no comments, escapes, dollar quotes or placeholders.
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<literal>'(?:[^']|'')*' | (?:\d|\.\d)[\w.]*(?:(?<=[eE])[+-]\d+)?)
      | (?P<name>"(?:[^"]|"")+")
      | (?P<word>[^\W\d]\w*)
      | (?P<sign>\|\||::|<=|>=|<>|!=|==|[=<>+*%|&^~!.,()\[\]:]|-(?!-)|/(?!\*))""",
    re.VERBOSE,
)


def check(where: str) -> None:
    """Refuse a text that is not one condition, before an engine reads it."""
    if not isinstance(where, str) or not where.strip():
        raise InvalidParameter.of("where", "a condition in SQL, for example lang = 'en'", where)
    open_ones, values, words, at, before = 0, 0, 0, 0, ""
    greedy: set[int] = set()
    """Levels of parentheses at which an ``is distinct from`` has not ended."""
    while at < len(where):
        found = _TOKEN.match(where, at)
        if found is None:
            raise _wrong(where, _unread(where, at))
        at, text = found.end(), found.group()
        if found.lastgroup == "space":
            continue
        if found.lastgroup == "word":
            if where[at : at + 1] == "'":
                raise _wrong(where, f"there is no space between {text} and the quote after it")
            if text.lower() in _REFUSED:
                raise _wrong(where, f"{text} is not allowed: {_REFUSED[text.lower()]}")
        lower = text.lower()
        if text == "(":
            _check_call(where, before)
        open_ones += (text == "(") - (text == ")")
        if open_ones < 0:
            raise _wrong(where, "its parentheses do not match")
        if lower == "from" and before == "distinct":
            greedy.add(open_ones)
        elif lower in ("and", "or") and open_ones in greedy:
            # The engine would read a IS DISTINCT FROM (b OR c).
            raise _wrong(where, "a comparison with `is distinct from` needs parentheses around it")
        elif lower in (",", "when", "then", "else", "end"):
            greedy.discard(open_ones)
        elif text == ")":
            greedy.discard(open_ones + 1)
        negative = text == "-" and before in ("(", ",")
        values += found.lastgroup == "literal"
        words += not (found.lastgroup == "literal" or text == "," or negative)
        before = lower
    if open_ones:
        raise _wrong(where, "its parentheses do not match")
    for count, most, what in (
        (values, MOST_VALUES, "values"),
        (words, MOST_WORDS, "names, operators and parentheses"),
    ):
        if count > most:
            raise _wrong(where, f"it has {count:,} {what}, and at most {most:,} are allowed")


def _check_call(where: str, before: str) -> None:
    """What stands before a parenthesis."""
    called = before.strip('"').lower()
    if not re.match(r"[^\W\d]", called) or called in _BEFORE_PARENTHESIS:
        return
    raise _wrong(
        where,
        f"{called} is not a function that filters can call",
        hint=f"They can call: {', '.join(sorted(FUNCTIONS))}.",
    )


def _unread(where: str, at: int) -> str:
    if where[at] in "'\"":
        return "one of its quotes is not closed"
    if where.startswith(("--", "/*"), at):
        return "it has a comment"
    return f"it has the character {where[at]!r}, which is not allowed outside of quotes"


def refuse_wrong(snapshot: Snapshot | None, where: str) -> None:
    """Refuse a filter that cannot be used, as far as the first rows show it."""
    check(where)
    if snapshot is not None:
        next(rows_where(snapshot, where, next(iter(snapshot.partitions()), None)), None)


def rows_where(
    snapshot: Snapshot, where: str, partition: int | None = None
) -> Iterator[NDArray[np.int64]]:
    """The numbers of the rows for which a filter is true, some at a time, in any order."""
    check(where)
    # Planned by itself first, so that messages are about what was written.
    _run(lambda: snapshot.scan(["row"], where), where, snapshot)
    # Without IS TRUE, parts of a condition that are NULL for all rows would be left out.
    exact = f"(({where}\n) IS TRUE)"
    if partition is not None:
        exact += f" AND {snapshot.table.partition} = {partition}"
    batches = iter(_run(lambda: snapshot.scan(["row"], exact), where, snapshot))
    while (batch := _run(lambda: next(batches, None), where, snapshot, partition)) is not None:
        yield pa.record_batch(batch).column("row").to_numpy()


def _run(
    work: Callable[[], Any], where: str, snapshot: Snapshot, partition: int | None = None
) -> Any:
    try:
        return work()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the engine is no Exception
        names = [name for name in snapshot.schema.names if name != snapshot.table.partition]
        wrong = _explained(str(error), where, [name for name in names if name != "row"])
    if partition is not None:
        needed = [name for name in names if name in where]
        for file in snapshot.files_of(partition):  # the filter is not to blame for damaged files
            deque(snapshot.row_groups(file, needed), maxlen=0)
    raise wrong


def _explained(text: str, where: str, names: Sequence[str]) -> InvalidParameter:
    """What an engine says in many ways, as one sentence."""
    unknown = re.search(r"No field named (.+?)\.(?:\s|$)", text)
    if unknown:
        name = unknown[1].replace('"', "")
        known = ", ".join(names)
        other_case = [one for one in names if one.lower() == name.lower()]
        hint = f"Did you mean {other_case[0]!r}? Case counts." if other_case else None
        return _wrong(where, f"there is no column {name!r}; there are: {known}", hint=hint)
    if "DivideByZero" in text or "Divide by zero" in text:
        hint = "Divide by nullif(x, 0) instead of x: rows where x is 0 are then not selected."
        return _wrong(where, "it divides by zero for some rows", hint=hint)
    kind = re.search(r"non-boolean predicate .* returning (\w+)", text)
    if kind:
        return _wrong(where, f"it is {kind[1]}, not true or false")
    pattern = re.search(r"regex parse error:.*error: ([^\n\"\\]+)", text, re.DOTALL)
    if pattern:
        return _wrong(where, f"its regular expression is wrong: {pattern[1]}")
    if "recursion limit" in text:
        return _wrong(where, "its parentheses are nested too deeply")
    quoted = re.search(r'Error\("(.+?)"\)', text)
    last = text.split("caused by\n")[-1].strip().partition("\n")[0]
    said = quoted[1] if quoted else re.sub(_PREFIX, "", last)
    said = said.replace("Expected: ", "expected ").replace(", found: EOF", ", found the end")
    said = re.sub(r"^[A-Z](?=[a-z])", lambda first: first[0].lower(), said)[:300]
    hint = "`try_cast` gives NULL where `cast` fails." if "cannot cast" in said else None
    return _wrong(where, said or "it cannot be evaluated", hint=hint)


def _wrong(where: str, reason: str, hint: str | None = None) -> InvalidParameter:
    shown = where if len(where) <= 200 else f"{where[:200]}…"
    return InvalidParameter(
        f"The filter {shown!r} cannot be used: {reason.rstrip('.')}.", hint=hint
    )
