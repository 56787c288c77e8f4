"""Which rows a condition is true for; what may fail is worked out for the rows alone that need it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.table.functions import Row, session_of, typed_sql

from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Condition, Evaluator, compile_expressions
from penstock.sql.functions.definition import BIGINT
from penstock.sql.typed import Typed, conjuncts

NUMBERS = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(-3, 3))] * 2), min_size=1, max_size=30)
CONDITIONS = (
    "a > 0",
    "a > 0 AND b > 0",
    "a > 2 AND b > a",
    "a > 2 AND b = 2 AND MOD(a, b) = 1",
    "a <> 0 AND 6 / a > 1",
    "a > 0 AND 6 / b > 1",
    "6 / a > 1 AND 6 / b > 1 AND a + b > 2",
    "a > b AND (b = 0 OR a / b > 1)",
    "a > b OR 6 / a > 1",
    "(a = 1 OR 6 / b = 3) AND b > 0",
)


def typed(sql: str) -> Typed:
    (found,) = typed_sql(sql, Row(["a", "b"], [BIGINT, BIGINT], [None, None]), session_of())
    return found


def make_columns(rows: list[Any]) -> Columns:
    return Columns([pa.array([row[place] for row in rows], pa.int64()) for place in (0, 1)], len(rows))


def chosen(condition: Typed, columns: Columns) -> list[int]:
    """The numbers of the rows for which a condition is true."""
    found = Condition(compile_expressions(conjuncts(condition), session_of())).chosen(columns)
    return list(range(columns.rows)) if found.numbers is None else found.numbers.tolist()


@settings(deadline=None)
@given(NUMBERS, st.sampled_from(CONDITIONS))
def test_rows_are_chosen_as_if_each_was_looked_at_alone(rows: list[Any], sql: str) -> None:
    condition = typed(sql)
    alone = Evaluator([condition], session_of())
    try:
        wanted = [place for place, row in enumerate(rows) if alone(make_columns([row]))[0].to_pylist() == [True]]
    except TableRuntimeError:
        with pytest.raises(TableRuntimeError, match="Division by zero"):
            chosen(condition, make_columns(rows))
        return
    assert chosen(condition, make_columns(rows)) == wanted


def test_what_null_leaves_open_is_worked_out() -> None:
    with pytest.raises(TableRuntimeError, match="Division by zero"):
        chosen(typed("a > 0 AND 1 / b > 0"), make_columns([(1, 1), (None, 0)]))


def test_what_is_decided_is_not_worked_out() -> None:
    rows = [(place % 3 - 1, place % 3 - 1) for place in range(40)]
    wanted = [place for place in range(40) if place % 3 == 2]
    assert chosen(typed("a > 0 AND 1 / b > 0"), make_columns(rows)) == wanted
    # Few rows are left: the rest is worked out for them alone.
    few = [(5, 2)] + [(0, 0)] * 40
    assert chosen(typed("a > 0 AND b > 1 AND MOD(a, b) = 1"), make_columns(few)) == [0]


def test_columns_are_cut_for_the_rows_that_are_left() -> None:
    rows = [(place, None if place % 4 else place) for place in range(64)]
    found = Condition(compile_expressions(conjuncts(typed("a >= 4 AND 8 / a < 2 AND b > 0")), session_of())).chosen(
        make_columns(rows)
    )
    assert found[0].to_pylist() == found[1].to_pylist() == list(range(8, 64, 4))
    assert not found[1].null_count
