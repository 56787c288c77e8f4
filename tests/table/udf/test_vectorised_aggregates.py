"""Aggregate functions of whole columns, and any aggregate function in windows of time and in OVER windows."""

from __future__ import annotations

import datetime
from typing import Any

import pandas
import pyarrow.compute as pc
import pytest
from tests.table.planned import plan_query
from tests.table.udf.aggregates import Texts, Total, manager, timed_rows

from penstock.base.errors import UserFunctionError
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import UserAggregateCall
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.typed import Field
from penstock.sql.user_functions.declare import define
from penstock.sql.user_functions.definition import OpenFunctions
from penstock.table.expressions import col, lit
from penstock.table.table import Table
from penstock.table.types import DataTypes
from penstock.table.udf import AggregateFunction, FunctionContext, udaf
from penstock.table.window import Tumble

MEAN = udaf(lambda values: values.mean(), result_type="DOUBLE", func_type="pandas")
SUM = udaf(pc.sum, result_type="BIGINT", func_type="arrow")
TOTAL, TEXTS = udaf(Total()), udaf(Texts())
ROWS = [("a", 1, 1000), ("b", 4, 2000), ("a", 3, 3000), ("a", 8, 6000), ("b", None, 7000)]
WINDOW = "TABLE t, DESCRIPTOR(ts), INTERVAL"


def compute_rows(sql: str, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """What a query gives over rows."""
    known = manager(mean=MEAN, sum_of=SUM, total=TOTAL, texts=TEXTS)
    return sorted(timed_rows(plan_query(sql, known), known, *(rows or ROWS)), key=str)


WINDOWED = {
    f"SELECT k, mean(v), sum_of(v), total(v) FROM TUMBLE({WINDOW} '5' SECOND) GROUP BY k, window_start, window_end": [
        ("a", 2.0, 4, 4),
        ("a", 8.0, 8, 8),
        ("b", 4.0, 4, 4),
        ("b", None, None, None),
    ],
    f"SELECT k, mean(v), texts(v) FROM HOP({WINDOW} '5' SECOND, INTERVAL '10' SECOND) WHERE k = 'a' "
    "GROUP BY k, window_start, window_end": [
        ("a", 2.0, "1,3"),
        ("a", 4.0, "1,3,8"),
        ("a", 8.0, "8"),
    ],
    "SELECT TUMBLE_START(ts, INTERVAL '5' SECOND), mean(v) FILTER (WHERE v < 8), sum_of(DISTINCT v) FROM t "
    "GROUP BY TUMBLE(ts, INTERVAL '5' SECOND)": [
        (datetime.datetime(1970, 1, 1), 8 / 3, 8),
        (datetime.datetime(1970, 1, 1, 0, 0, 5), None, 8),
    ],
    "SELECT k, texts(v), total(v) FROM t GROUP BY k, SESSION(ts, INTERVAL '4' SECOND)": [
        ("a", "1,3,8", 12),
        ("b", "4", 4),
        ("b", "None", None),
    ],
}


@pytest.mark.parametrize("sql", WINDOWED)
def test_windows_of_time(sql: str) -> None:
    """Of all kinds of functions, beside one another."""
    assert compute_rows(sql) == WINDOWED[sql]


OVER = {
    "SELECT k, v, mean(v) OVER w, sum_of(v) OVER w, total(v) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY ts "
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)": [
        ("a", 1, 1.0, 1, 1),
        ("a", 3, 2.0, 4, 4),
        ("a", 8, 5.5, 11, 11),
        ("b", 4, 4.0, 4, 4),
        ("b", None, 4.0, 4, 4),
    ],
    "SELECT v, mean(v) OVER w, total(v) OVER w FROM t WHERE v > 0 WINDOW w AS (ORDER BY ts RANGE BETWEEN "
    "INTERVAL '3' SECOND PRECEDING AND CURRENT ROW)": [(1, 1.0, 1), (3, 8 / 3, 8), (4, 2.5, 5), (8, 5.5, 11)],
    "SELECT v, texts(v) OVER (ORDER BY ts) FROM t WHERE k = 'a'": [(1, "1"), (3, "1,3"), (8, "1,3,8")],
    "SELECT v, texts(v) OVER (ORDER BY v) FROM t WHERE k = 'a'": [(1, "1"), (3, "1,3"), (8, "1,3,8")],
}


@pytest.mark.parametrize("sql", OVER)
def test_over_windows(sql: str) -> None:
    """With a bound the oldest rows leave; without one nothing does."""
    assert compute_rows(sql) == OVER[sql]


def test_the_window_of_the_table_api() -> None:
    """With its start among the columns."""
    known = manager()

    class Environment:
        """What a table asks of its environment to plan."""

        _manager = known

    table = Table(plan_query("SELECT * FROM t", known), Environment())  # type: ignore[arg-type]
    grouped = table.window(Tumble.over(lit(5).seconds).on(col("ts")).alias("w")).group_by(col("w"), col("k"))
    selected = grouped.select(col("k"), MEAN(col("v")).alias("m"), col("w").start)
    start = datetime.datetime(1970, 1, 1)
    assert ("a", 2.0, start) in timed_rows(selected._plan, known, *ROWS)
    both = udaf(lambda frame: (frame.v.max(), len(frame)), result_type="ROW<most BIGINT, n INT>", func_type="pandas")
    found = grouped.aggregate(both.alias("most", "n")).select(col("k"), col("most") + 1, col("n"), col("w").start)
    assert found.get_schema().get_field_names() == ["k", "_c1", "n", "EXPR$0"]
    assert ("a", 4, 2, start) in timed_rows(found._plan, known, *ROWS)


def test_a_class_gets_all_rows_at_once() -> None:
    """A new accumulator, what accumulates, and the value."""

    class Spread(AggregateFunction[int, list[Any]]):
        def create_accumulator(self) -> list[Any]:
            return []

        def accumulate(self, accumulator: list[Any], *args: Any) -> None:
            assert isinstance(args[0], pandas.Series)
            accumulator.append(args[0].max() - args[0].min())

        def get_value(self, accumulator: list[Any]) -> int:
            (value,) = accumulator
            return int(value)

    known = manager(spread=udaf(Spread(), func_type="pandas"))
    sql = f"SELECT spread(v) FROM TUMBLE({WINDOW} '1' MINUTE) GROUP BY window_start, window_end"
    assert timed_rows(plan_query(sql, known), known, *ROWS) == [(7,)]


SEEN: list[tuple[str, Any, str, Any]] = [
    ("ts", lambda times: times.max(), "TIMESTAMP(3)", datetime.datetime(1970, 1, 1, 0, 0, 7)),
    ("CAST(v AS DECIMAL(5, 2))", lambda values: values.dropna().iloc[0], "DECIMAL(5, 2)", None),
    ("ROW(k, v)", lambda frame: "".join(frame.iloc[:, 0]), "STRING", "abaab"),
    ("v", lambda values: [int(one) for one in values.dropna()], "ARRAY<BIGINT>", [1, 4, 3, 8]),
    ("v > 2", lambda values: bool(values.any()), "BOOLEAN", True),
    ("v", lambda values: float("nan"), "DOUBLE", None),
    ("v", lambda values: pandas.NA, "INT", None),
    ("1", lambda values: len(values), "INT", 5),
]


@pytest.mark.parametrize(("operand", "function", "kind", "expected"), SEEN)
def test_values_come_as_pandas_has_them(operand: str, function: Any, kind: str, expected: Any) -> None:
    """And what NumPy and pandas give is taken as Python's; not a number is NULL."""
    known = manager(f=udaf(function, result_type=kind, func_type="pandas"))
    sql = f"SELECT f({operand}) FROM TUMBLE({WINDOW} '1' MINUTE) GROUP BY window_start, window_end"
    ((found,),) = timed_rows(plan_query(sql, known), known, *ROWS)
    assert found == (expected if expected is not None or "DECIMAL" not in kind else 1)


def test_one_value_is_due() -> None:
    """And not a column."""
    known = manager(f=udaf(lambda values: values, result_type="BIGINT", func_type="pandas"))
    sql = f"SELECT f(v) FROM TUMBLE({WINDOW} '1' MINUTE) GROUP BY window_start, window_end"
    with pytest.raises(UserFunctionError, match="gives one value for all rows, not a Series"):
        timed_rows(plan_query(sql, known), known, *ROWS)


def make_call(function: Any) -> UserAggregateCall:
    """A call with one operand."""
    user = define(function, "f")
    return UserAggregateCall("f", (Field(DataTypes.DOUBLE(), 0),), user.result_type, user=user)


def test_rows_that_go_leave_what_a_function_gets() -> None:
    """One for one, also not a number, and also before they came."""
    sizes: list[list[float]] = []

    def noted(values: Any) -> int:
        sizes.append(list(values))
        return len(values)

    functions = OpenFunctions("Aggregate", FunctionContext(None, {}), datetime.UTC)  # type: ignore[arg-type]
    accumulator = build_accumulator(make_call(udaf(noted, func_type="pandas")), True, functions)
    held = accumulator.create()
    for value in (1.0, float("nan"), 1.0, 2.0):
        held = accumulator.add(held, (value,))
    for value in (1.0, float("nan"), 7.0):
        held = accumulator.retract(held, (value,))
    assert accumulator.value(held) == 2
    assert sizes[-1] == [1.0, 2.0]
    for value in (7.0, 3.0):
        held = accumulator.add(held, (value,))
    assert accumulator.value(held) == 3
    assert sizes[-1] == [1.0, 2.0, 3.0]
    for value in (1.0, 2.0, 3.0):
        held = accumulator.retract(held, (value,))
    assert accumulator.is_spent(held)


REFUSED = {
    "SELECT mean(v) OVER (ORDER BY ts) FROM t": "Pandas UDAFs are not supported in streaming mode without windows",
    "SELECT sum_of(v) FROM t": "is of func_type 'arrow', so all rows of a group would be kept for ever",
    "SELECT texts(v) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t": (
        "Could not find an implementation method 'retract' in class 'Texts'"
    ),
    "SELECT mean(v) FROM t GROUP BY SESSION(ts, INTERVAL '5' SECOND)": (
        "Session Group Window is currently not supported for Pandas UDAF: aggregate function 'mean'"
    ),
    "SELECT total(v) IGNORE NULLS OVER (ORDER BY ts) FROM t": "'total' takes neither IGNORE NULLS",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_refused(sql: str) -> None:
    """When the query is planned."""
    with pytest.raises(ValidationError, match=REFUSED[sql]):
        compute_rows(sql)
