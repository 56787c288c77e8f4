"""IN and EXISTS of queries that are no condition of their own: in CASE, among alternatives, of groups."""

from __future__ import annotations

from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pytest
from tests.table.running import Rows, run

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import IntType, VarCharType

COLUMNS = {"k": IntType(), "v": IntType()}
T = Rows(COLUMNS, [(1, 1), (1, 2), (2, 3), (None, None)])
FULL, WITH_NULL, EMPTY = Rows(COLUMNS, [(1, 1), (3, 2)]), Rows(COLUMNS, [(1, 1), (3, None)]), Rows(COLUMNS)


def found(sql: str, u: Rows = FULL) -> list[tuple[Any, ...]]:
    """The rows of a query over t and u."""
    return sorted(run(sql, t=T, u=u).rows(), key=repr)


@pytest.mark.parametrize(
    ("u", "answers"),
    [
        (FULL, [(1, True), (2, True), (3, False), (None, None)]),
        (WITH_NULL, [(1, True), (2, None), (3, None), (None, None)]),
        (EMPTY, [(1, False), (2, False), (3, False), (None, False)]),
    ],
)
def test_in_is_unknown_where_null_is_among_the_rows_or_compared(u: Rows, answers: list[tuple[Any, ...]]) -> None:
    assert found("SELECT v, v IN (SELECT v FROM u) FROM t", u) == sorted(answers, key=repr)
    denied = [(v, None if answer is None else not answer) for v, answer in answers]
    assert found("SELECT v, v NOT IN (SELECT v FROM u) FROM t", u) == sorted(denied, key=repr)
    assert found("SELECT v, v <> ALL (SELECT v FROM u) FROM t", u) == sorted(denied, key=repr)


COMPARED = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


@pytest.mark.parametrize("u", [FULL, WITH_NULL, EMPTY], ids=["full", "with NULL", "empty"])
@pytest.mark.parametrize("operator", COMPARED)
def test_comparisons_with_some_or_all_rows(operator: str, u: Rows) -> None:
    values = [v for _, (_, v) in u.changes()]

    def answer(v: int | None, ends: bool) -> bool | None:
        """`ends`: the answer of one row that decides."""
        each = [None if v is None or one is None else COMPARED[operator](v, one) for one in values]
        return ends if ends in each else None if None in each else not ends

    select = f"SELECT v, v {operator} SOME (SELECT v FROM u), v {operator} ALL (SELECT v FROM u) FROM t"
    wanted = [(v, answer(v, True), answer(v, False)) for _, (_, v) in T.changes()]
    assert found(select, u) == sorted(wanted, key=repr)
    for place, quantifier in enumerate(("ANY", "ALL"), 1):
        where = f"SELECT v FROM t WHERE v {operator} {quantifier} (SELECT v FROM u)"
        assert found(where, u) == sorted(((row[0],) for row in wanted if row[place]), key=repr)
        denied = f"SELECT v FROM t WHERE NOT (v {operator} {quantifier} (SELECT v FROM u))"
        assert found(denied, u) == sorted(((row[0],) for row in wanted if row[place] is False), key=repr)


def test_comparisons_with_rows_that_share_a_column() -> None:
    assert found("SELECT v FROM t WHERE v >= ALL (SELECT v FROM t AS o WHERE o.k = t.k)") == [(2,), (3,), (None,)]


def test_without_null_one_count_is_enough() -> None:
    once = Rows({"k": IntType(False), "v": IntType(False)}, [(1, 1), (2, 3)])
    assert sorted(run("SELECT v, v IN (SELECT v FROM u) FROM t", t=once, u=once).rows()) == [(1, True), (3, True)]


@pytest.mark.parametrize(("u", "answer"), [(FULL, True), (EMPTY, False)])
def test_exists(u: Rows, answer: bool) -> None:
    assert (
        found("SELECT EXISTS (SELECT 1 FROM u), NOT EXISTS (SELECT 1 FROM u) FROM t", u) == [(answer, not answer)] * 4
    )


def test_queries_may_use_columns_of_the_row() -> None:
    same = "SELECT v, EXISTS (SELECT 1 FROM u WHERE u.k = t.k) FROM t"
    assert found(same) == [(1, True), (2, True), (3, False), (None, False)]
    assert found("SELECT v, v IN (SELECT v FROM u WHERE u.k = t.k) FROM t") == [
        (1, True),
        (2, False),
        (3, False),
        (None, False),
    ]


def test_alternatives_and_cases() -> None:
    assert found("SELECT v FROM t WHERE v IN (SELECT v FROM u) OR k = 2") == [(1,), (2,), (3,)]
    assert found("SELECT CASE WHEN v IN (SELECT v FROM u) THEN 'in' ELSE 'out' END FROM t") == [
        ("in",),
        ("in",),
        ("out",),
        ("out",),
    ]


def test_what_is_aggregated_and_groups() -> None:
    assert found("SELECT SUM(CASE WHEN v IN (SELECT v FROM u) THEN 1 ELSE 0 END) FROM t") == [(2,)]
    rows = Rows(COLUMNS, [(1, 3), (9, None)])
    assert found("SELECT k, SUM(v) FROM t GROUP BY k HAVING SUM(v) IN (SELECT v FROM u) OR k = 2", rows) == [
        (1, 3),
        (2, 3),
    ]
    assert found("SELECT k IN (SELECT k FROM u) AND COUNT(*) > 1 FROM t GROUP BY k") == [(False,), (False,), (True,)]


def test_answers_follow_the_rows_of_the_query() -> None:
    gone = Rows({"v": VarCharType(5)}, [("+I", ("a",)), ("+I", ("b",)), ("-D", ("a",))])
    sql = "SELECT v IN (SELECT v FROM u) FROM (VALUES ('a'), ('b')) AS t (v)"
    assert sorted(run(sql, u=gone).rows()) == [(False,), (True,)]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT v IN (SELECT k, v FROM u) FROM t", "IN compares 1 value with 2 columns"),
        ("SELECT v > ALL (SELECT k, v FROM u) FROM t", "<= compares 1 value with 2 columns"),
        ("SELECT UNIQUE (SELECT v FROM u) FROM t", "such a comparison with a query is not supported"),
        ("SELECT EXISTS (SELECT 1 FROM u WHERE u.k > t.k) FROM t", "other than by = is not supported"),
    ],
)
def test_other_tests_are_refused(sql: str, reason: str) -> None:
    with pytest.raises((UnsupportedError, ValidationError), match=reason):
        found(sql)
