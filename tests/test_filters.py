"""Filters select exactly the items for which SQL's three-valued logic says TRUE.

DuckDB is the other opinion. Where the two dialects differ on purpose, the generator stays on what
they share; each such place is marked *dialect*, and docs/howto/filter.md tells users about it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from posterity import Model, Store
from posterity.engine.ledger.context import Context
from posterity.engine.plan.score import satisfying
from posterity.errors import InvalidParameter, StoreError
from posterity.method.data.row_sets import unpacked
from posterity.storage.delta import filters
from posterity.storage.files import open_files
from tests.conftest import ROOT

FILTERS = int(os.environ.get("POSTERITY_FILTERS", "200"))
"""How many random filters are compared; more in `make torture`."""

ITEMS = 400
MODEL = Model("new", accuracy=0.9)
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "o'clock",
    '"',
    "%",
    "_",
    "é",
    "日本",
    "🙂",
    " a ",
    "a\nb",
    "null",
    "a%b",
]
REALS = [0.0, -0.0, 1.5, -2.25, 1e300, float("nan"), float("inf"), float("-inf"), 3.0]


def payload(seed: int) -> pa.Table:
    """Columns of every common type, with NULLs in all of them."""
    chance = random.Random(seed)
    start = datetime(2023, 12, 30)

    def column(kind: pa.DataType, draw: Callable[[], Any]) -> pa.Array:
        return pa.array([None if chance.random() < 0.25 else draw() for _ in range(ITEMS)], kind)

    return pa.table(
        {
            "id": [f"item-{at}" for at in range(ITEMS)],
            "number": column(pa.int64(), lambda: chance.randint(-5, 5)),
            "small": column(pa.int16(), lambda: chance.randint(-3, 300)),
            "real": column(pa.float64(), lambda: chance.choice(REALS)),
            "single": column(pa.float32(), lambda: chance.choice([0.5, -1.0, float("nan")])),
            "text": column(pa.string(), lambda: chance.choice(TEXTS)),
            "digits": column(pa.string(), lambda: str(chance.randint(-9, 99))),
            "flag": column(pa.bool_(), lambda: chance.random() < 0.5),
            "day": column(
                pa.date32(), lambda: date(2023, 12, 30) + timedelta(chance.randint(0, 9))
            ),
            "moment": column(
                pa.timestamp("us"), lambda: start + timedelta(hours=chance.randint(0, 99))
            ),
            "price": column(pa.decimal128(9, 2), lambda: Decimal(chance.randint(-300, 300)) / 100),
            "never": pa.nulls(ITEMS, pa.int64()),
        }
    )


class Writer:
    """Writes random conditions; NULL may stand wherever SQL allows it."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def _one(self, *options: Callable[[], str] | str) -> str:
        chosen = self._chance.choice(options)
        return chosen if isinstance(chosen, str) else chosen()

    def condition(self, depth: int = 4) -> str:
        """True, false or NULL."""
        if depth <= 0:
            return self._one("flag", "true", "false", "null", "not flag", self._compared)
        deeper = depth - 1
        return self._one(
            lambda: f"({self.condition(deeper)} and {self.condition(deeper)})",
            lambda: f"({self.condition(deeper)} or {self.condition(deeper)})",
            lambda: f"{self.condition(deeper)} and {self.condition(deeper)}",
            lambda: f"not ({self.condition(deeper)})",
            lambda: f"(({self.condition(deeper)}))",
            lambda: f"({self.condition(deeper)}) is {self._not()}{self._truth()}",
            lambda: (
                f"case when {self.condition(deeper)} then {self.condition(deeper)} "
                f"else {self.condition(deeper)} end"
            ),
            lambda: f"case when {self.condition(deeper)} then {self.condition(deeper)} end",
            lambda: f"coalesce({self.condition(deeper)}, {self.condition(deeper)})",
            lambda: f"flag = ({self.condition(deeper)})",
            self._compared,
            self._compared,
            self._compared,
        )

    def _not(self) -> str:
        return self._one("", "not ")

    def _truth(self) -> str:
        return self._one("null", "true", "false", "unknown")

    def _sign(self) -> str:
        return self._one("=", "<>", "!=", "<", "<=", ">", ">=")

    def _compared(self) -> str:
        of = self._chance.choice([self._whole, self._real, self._text, self._day, self._moment])
        if self._chance.random() < 0.08:
            of = self._price

        def null_or() -> str:
            return "null" if self._chance.random() < 0.15 else of(1)

        def one_of() -> str:
            # Dialect: `in` tells -0.0 from 0.0, which are equal otherwise; + 0.0 makes both 0.0.
            values = [of(1), *(null_or() for _ in range(self._chance.randint(1, 4)))]
            first, *listed = [f"({one} + 0.0)" for one in values] if of == self._real else values
            return f"{first} {self._not()}in ({', '.join(listed)})"

        return self._one(
            lambda: f"{of(2)} {self._sign()} {null_or()}",
            lambda: f"{of(2)} {self._sign()} {of(2)}",
            lambda: f"null {self._sign()} {of(1)}",
            lambda: f"{of(2)} {self._not()}between {null_or()} and {null_or()}",
            one_of,
            lambda: f"{of(2)} is {self._not()}null",
            lambda: f"({of(1)} is {self._not()}distinct from {null_or()})",
            lambda: f"{self._text(1)} {self._not()}{self._pattern()}",
            lambda: f"{self._one('starts_with', 'contains')}({self._text(1)}, {self._text(0)})",
        )

    def _pattern(self) -> str:
        # Dialect: in a pattern a backslash escapes; in DuckDB it is a character.
        # Dialect: ilike compares letters without ASCII by different tables.
        pattern = self._one("'a%'", "'%'", "''", "'_'", "'%''%'", "null", "'%B'", "'日%'")
        return f"{self._one('like', 'ilike')} {pattern}"

    def _whole(self, depth: int) -> str:
        column = self._one("number", "small", "never", "number")
        if depth <= 0:
            # Dialect: integers wrap around; DuckDB refuses. So all numbers stay small.
            return self._one(column, str(self._chance.randint(-6, 6)), "cast(null as bigint)")
        deeper = depth - 1
        return self._one(
            column,
            lambda: f"({self._whole(deeper)} {self._one('+', '-')} {self._whole(deeper)})",
            lambda: f"({self._whole(deeper)} * {self._chance.randint(-9, 9)})",
            # Dialect: / of integers is an integer, and // is not there.
            lambda: f"({self._whole(deeper)} % {self._chance.randint(1, 7)})",
            lambda: f"(- {self._whole(deeper)})",
            lambda: f"abs({self._whole(deeper)})",
            lambda: f"coalesce({self._whole(deeper)}, {self._whole(deeper)})",
            lambda: f"nullif({self._whole(deeper)}, {self._whole(deeper)})",
            lambda: f"length({self._text(deeper)})",
            lambda: f"strpos({self._text(deeper)}, {self._text(0)})",
            # Dialect: what is read as a number: ' 1', '1.5' and '1e3' are numbers for DuckDB only.
            "cast(digits as bigint)",
            "digits::bigint",
            "try_cast(nullif(digits, '7') as bigint)",
            lambda: f"cast({self._one('flag', 'true')} as integer)",
            lambda: (
                f"case {self._whole(0)} when {self._whole(0)} then {self._whole(deeper)} "
                f"else {self._whole(deeper)} end"
            ),
            lambda: f"date_part('{self._one('year', 'month', 'day', 'hour')}', moment)",
            "extract(day from day)",
        )

    def _real(self, depth: int) -> str:
        if depth <= 0:
            return self._one(
                "real", "single", "1.5", "-2.25", "1e3", "cast('nan' as double)", "0.0"
            )
        deeper = depth - 1
        divisor = self._one("2.0", "-4.0", "nullif(cast(number as double), 0)")
        return self._one(
            "real",
            # Dialect: a NaN that arithmetic makes (inf - inf, 0.0 / 0.0) may have a sign, and is
            # then below all numbers; so only one side is infinite and nothing is divided by 0.0.
            lambda: f"({self._real(deeper)} {self._one('+', '-')} {self._one('1.5', '-0.5')})",
            lambda: f"({self._real(deeper)} / {divisor})",
            lambda: f"(cast({self._whole(deeper)} as double) / {divisor})",
            lambda: f"coalesce({self._real(deeper)}, {self._real(deeper)})",
            lambda: f"abs({self._real(deeper)})",
            lambda: f"floor({self._real(deeper)})",
            lambda: f"cast({self._whole(deeper)} as double)",
        )

    def _text(self, depth: int) -> str:
        if depth <= 0:
            literal = self._chance.choice(TEXTS).replace("'", "''")
            return self._one("text", "digits", f"'{literal}'", "cast(null as varchar)")
        deeper = depth - 1
        return self._one(
            "text",
            lambda: f"({self._text(deeper)} || {self._text(deeper)})",
            lambda: f"{self._one('lower', 'upper', 'trim')}({self._text(deeper)})",
            lambda: f"substr({self._text(deeper)}, {self._chance.randint(1, 3)}, 2)",
            lambda: f"{self._one('left', 'right')}({self._text(deeper)}, 1)",
            lambda: f"concat({self._text(deeper)}, {self._text(deeper)})",
            lambda: f"coalesce({self._text(deeper)}, {self._text(deeper)})",
            lambda: f"nullif({self._text(deeper)}, {self._text(deeper)})",
            # Dialect: how reals and times are written as text.
            lambda: f"cast({self._whole(deeper)} as varchar)",
            lambda: (
                f"case when {self.condition(deeper)} then {self._text(deeper)} "
                f"else {self._text(deeper)} end"
            ),
        )

    def _day(self, depth: int) -> str:
        literal = f"date '2024-01-0{self._chance.randint(1, 9)}'"
        options: list[Callable[[], str] | str] = ["day", literal, "cast(null as date)"]
        if depth > 0:
            options += [
                "cast(moment as date)",
                f"coalesce(day, {literal})",
                f"nullif(day, {literal})",
            ]
        return self._one(*options)

    def _moment(self, depth: int) -> str:
        literal = (
            f"timestamp '2024-01-0{self._chance.randint(1, 3)} 0{self._chance.randint(0, 9)}:00:00'"
        )
        options: list[Callable[[], str] | str] = ["moment", literal, "cast(null as timestamp)"]
        if depth > 0:
            options += [
                "cast(day as timestamp)",
                "date_trunc('day', moment)",
                "moment + interval '1 day'",
            ]
            options += [f"coalesce(moment, {literal})", "cast('2024-01-02 12:30:00' as timestamp)"]
        return self._one(*options)

    def _price(self, depth: int) -> str:
        literal = f"{self._chance.randint(-3, 3)}.{self._chance.randint(0, 9)}5"
        return self._one("price", literal, "1", *(["coalesce(price, 0.25)"] if depth else []))


@pytest.fixture(scope="module")
def items() -> pa.Table:
    return payload(1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, items: pa.Table) -> Store:
    """Several shards, some of several files, some whose values are all NULL."""
    made = Store.create(
        tmp_path_factory.mktemp("filters") / "store", classes=["a", "b"], shard_rows=90
    )
    for start, length in ((0, 50), (50, 7), (57, 200), (257, 143)):
        made.add(items.slice(start, length))
    return made


@pytest.fixture(scope="module")
def context(store: Store) -> Context:
    return Context(open_files(store.path))


def selected(context: Context, where: str) -> set[str]:
    """Ids of the items that plans and review queues would take."""
    rows: list[int] = []
    for (_, start, count), bits in zip(context.shards, satisfying(context, where), strict=True):
        assert bits is not None
        rows += (start + np.flatnonzero(unpacked(bits, count))).tolist()
    return {f"item-{row}" for row in rows}  # ids are in the order of rows here


def expected(items: pa.Table, where: str) -> set[str]:
    with duckdb.connect() as database:
        database.register("items", items)
        found = database.execute(f"select id from items where ({where})").fetchall()
    return {one for (one,) in found}


def test_random_filters_select_what_duckdb_selects(context: Context, items: pa.Table) -> None:
    assert context.items is not None
    assert context.items.read(["row", "id"]).sort_by("row").column("id") == items.column("id")
    differing, sizes = [], set()
    for seed in range(FILTERS):
        where = Writer(seed).condition()
        wanted = expected(items, where)
        sizes.add(len(wanted))
        found = selected(context, where)
        if found != wanted:
            differing.append((seed, where, len(found), len(wanted)))
    assert not differing, f"{len(differing)} of {FILTERS} differ; first: {differing[:3]}"
    assert len(sizes) > min(FILTERS, 200) // 10  # else they all select nothing, or everything


@pytest.mark.parametrize(
    "where",
    [
        "null",
        "not null",
        "number = null",
        "number <> null",
        "not (number = null)",
        "number between 1 and null and number >= 1",
        "number not in (1, null)",
        "number not between null and 1 and number <= 1",
        "flag and null",
        "not flag and null",
        "case when null then true end",
        "text like null",
        "never = never",
        "null is true",
    ],
)
def test_a_condition_that_is_null_selects_nothing(
    context: Context, items: pa.Table, where: str
) -> None:
    assert expected(items, where) == set()
    assert selected(context, where) == set()


WRONG = [
    ("number", "it is Int64, not true or false"),
    ("'a'", "it is Utf8, not true or false"),
    ("number =", "expected an expression, found the end"),
    ("(number = 1", "its parentheses do not match"),
    ("true) or (true", "its parentheses do not match"),
    ("nosuch = 1", "there is no column 'nosuch'; there are: id, "),
    ("Number = 1", "there is no column 'Number'"),
    ("number > 'a'", "cannot cast string 'a' to value of Int64 type"),
    ("number / 0 = 1", "it divides by zero for some rows"),
    ("number % 0 = 1", "it divides by zero for some rows"),
    ("1 / (small - small) = 1", "it divides by zero for some rows"),
    ("cast(text as integer) = 1", "cannot cast string"),
    ("cast(text as date) is null", ""),
    ("text ~ '('", "its regular expression is wrong: unclosed group"),
    ("number + text = 3", ""),
    ("number in (select 1)", "select is not allowed: a filter cannot contain a query"),
    ("exists (values (1))", "exists is not a function that filters can call"),
    ("number in (values (1))", "values is not a function that filters can call"),
    ("number in (table items)", ""),
    ("random() < 0.5", "random is not a function that filters can call"),
    ('"random"() < 0.5', "random is not a function that filters can call"),
    ("rep/* ' */eat('a', 1) = '' or text = ' '", "it has a comment"),
    ("moment < now()", "now is not a function that filters can call"),
    ("day < current_date", "current_date is not allowed: the same filter must always select"),
    ("repeat(text, 1000000000) = 'a'", "repeat is not a function that filters can call"),
    ("count(*) > 0", "count is not a function that filters can call"),
    ("row_number() over () > 1", "row_number is not a function that filters can call"),
    ("number = 1 -- comment", "it has a comment"),
    ("number = 1; drop table items", "it has the character ';', which"),
    ("@number = 1", "it has the character '@'"),
    ("number = $1", "it has the character '$'"),
    ("text = 'a", "one of its quotes is not closed"),
    ("text = E'\\' or true or text = '", "there is no space between E and the quote after it"),
    ("text = '\udc80'", ""),
    ("flag is distinct from flag or flag", "`is distinct from` needs parentheses around it"),
    ("text = text[1][2].a", ""),
    (" or ".join(["flag"] * 3000), "names, operators and parentheses, and at most 1,000 are"),
    ("(" * 900 + "flag" + ")" * 900, "names, operators and parentheses, and at most 1,000 are"),
    ("(" * 400 + "flag" + ")" * 400, "its parentheses are nested too deeply"),
    (f"number in ({','.join(map(str, range(50_000)))})", "50,000 values, and at most 10,000 are"),
]


@pytest.mark.parametrize(("where", "reason"), WRONG, ids=lambda text: text[:30].strip())
def test_a_wrong_filter_is_one_sentence(store: Store, where: str, reason: str) -> None:
    for use in (
        lambda: store.plan(MODEL, where=where),
        lambda: store.update(MODEL, votes=pa.table({"id": ["item-0"], "vote": ["a"]}), where=where),
        lambda: store.review_queue(where=where),
    ):
        with pytest.raises(InvalidParameter, match=r"^The filter ['\"]") as caught:
            use()
        assert reason in caught.value.message
        assert "\n" not in caught.value.message.replace(where, "")
        assert len(caught.value.message) < 600
        assert caught.value.message.endswith(".")
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("where", ["", "  ", 5])
def test_a_filter_is_a_text(store: Store, where: Any) -> None:
    with pytest.raises(InvalidParameter, match="'where' must be a condition in SQL"):
        store.plan(MODEL, where=where)


def test_a_filter_may_fail_late(context: Context) -> None:
    """In the last of several shards, and there not in the first row."""
    assert context.items is not None
    last = ITEMS - 1
    where = f"1 / ({last} - cast(split_part(id, '-', 2) as bigint)) > 5"
    filters.refuse_wrong(context.items, where)  # the first rows do not show it
    with pytest.raises(InvalidParameter, match="it divides by zero for some rows"):
        selected(context, where)
    safe = where.replace("(399", "nullif(399").replace(")) > 5", "), 0) > 5")
    assert safe == f"1 / nullif({last} - cast(split_part(id, '-', 2) as bigint), 0) > 5"
    assert selected(context, safe) == set()


def test_filters_at_the_limits_are_evaluated(context: Context, items: pa.Table) -> None:
    everything = set(items.column("id").to_pylist())
    many = f"id in ({', '.join(repr(f'item-{at}') for at in range(filters.MOST_VALUES))})"
    assert selected(context, many) == everything
    for sign, value in (("or", "number is null"), ("and", "number <> 99"), ("+", "number")):
        terms = filters.MOST_WORDS // (1 + len(value.replace("<> 99", "<>").split())) - 1
        chain = f" {sign} ".join([value] * terms)
        where = f"{chain} > 9" if sign == "+" else chain
        assert selected(context, where) == expected(items, where)
    cases = " ".join(f"when number = {at} then flag" for at in range(190))
    assert selected(context, f"case {cases} end") == expected(items, f"case {cases} end")


def test_the_engine_has_every_function(context: Context) -> None:
    assert context.items is not None
    for name in sorted(filters.FUNCTIONS - {"cast", "try_cast", "extract", "position"}):
        said = ""
        try:
            next(filters.rows_where(context.items, f"{name}(number, number, number) is null"), None)
        except InvalidParameter as error:
            said = error.message
        assert "Invalid function" not in said


def test_a_damaged_file_is_not_the_filters_fault(tmp_path: Path, items: pa.Table) -> None:
    store = Store.create(tmp_path / "store", classes=["a", "b"])
    store.add(items)
    (file,) = (tmp_path / "store" / "items").rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:100] + bytes(len(content) - 1000) + content[-900:])
    with pytest.raises(StoreError, match="is damaged"):
        store.review_queue(where="number = 1")


def test_a_filter_is_checked_while_there_are_no_items(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", classes=["a", "b"])
    with pytest.raises(InvalidParameter, match="its parentheses do not match"):
        store.review_queue(where="number = 1)")


def test_the_documentation_lists_every_function() -> None:
    page = (ROOT / "docs" / "howto" / "filter.md").read_text()
    assert [name for name in filters.FUNCTIONS if f"`{name}`" not in page] == []
