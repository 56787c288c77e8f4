"""What tells plans with functions of the program apart."""

from __future__ import annotations

from tests.table.planned import plan_query
from tests.table.udf.aggregates import Total, manager

from penstock.sql.logical.properties import rows_text, state_id
from penstock.table.udf import udaf, udf


def test_where_a_call_is_written_does_not_matter() -> None:
    """State is kept, and parts are shared, for queries that only have other spaces and names."""
    known = manager(total=udaf(Total()), plus=udf(lambda number: number + 1, result_type="BIGINT"))
    one, other, third = (
        plan_query(sql, known)
        for sql in (
            "SELECT k, total(plus(v)) FROM t GROUP BY k",
            "SELECT k,   total( plus(v) )  AS s FROM t GROUP BY k",
            "SELECT k, total(plus(v) + 1) FROM t GROUP BY k",
        )
    )
    assert state_id(one, "x") == state_id(other, "x")
    assert rows_text(one) == rows_text(other)
    assert state_id(one, "x") != state_id(third, "x")


def test_another_function_is_another_plan() -> None:
    """Also of the same name, for parts that are shared."""
    one, other = (plan_query("SELECT total(v) FROM t", manager(total=udaf(Total()))) for _ in range(2))
    assert rows_text(one) != rows_text(other)
    assert state_id(one, "x") == state_id(other, "x")
