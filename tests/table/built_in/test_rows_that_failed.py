"""K2: expressions and statements that Flink takes, beside what a real Flink gives."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.table.running import Rows, run_over
from tests.table.sql.shown import shown

from penstock.sql.data.errors import ValidationError
from penstock.sql.functions.definition import INT, STRING
from penstock.sql.parser import parse_statement, to_sql
from penstock.sql.parser.statements import QueryStatement

M = Rows(
    {"id": INT, "tx": STRING, "k": STRING, "d": STRING},
    [(1, "1", "a", "2024-01-02"), (2, "jot", None, "soon"), (3, "1.0", "c", None)],
)


def rows(sql: str) -> list[Any]:
    return sorted(run_over({"m": M}, sql).rows(), key=str)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("tx IN (1, 2)", [1]),
        ("tx NOT IN (1, 2)", [2, 3]),
        ("tx IN (1.0, 2)", [3]),
        ("tx IN (1)", [1]),
        ("tx IN (id, 2)", [1]),
        ("tx IN (TRUE, FALSE)", []),
        ("tx IN (1, 'jot')", [1, 2]),
        (f"tx IN ({', '.join(map(str, range(1, 101)))})", [1]),
        ("d IN (DATE '2024-01-02', DATE '2024-01-03')", [1]),
        ("id IN ('1', '2')", [1, 2]),
    ],
)
def test_a_text_among_numbers_is_compared_as_text(condition: str, ids: list[int]) -> None:
    assert rows(f"SELECT id FROM m WHERE {condition}") == [(one,) for one in ids]


def test_an_unusable_pattern_gives_null() -> None:
    day = int(dt.datetime(2024, 1, 2, tzinfo=dt.UTC).timestamp() * 10**9)
    assert rows("SELECT id, TO_TIMESTAMP(d, tx) FROM m") == [(1, day), (2, None), (3, None)]
    assert rows("SELECT id, TO_TIMESTAMP_LTZ(d, tx) IS NULL FROM m WHERE id = 2") == [(2, True)]
    assert rows("SELECT id, TO_TIMESTAMP_LTZ(d, tx, 'UTC') IS NULL FROM m WHERE id = 2") == [(2, True)]
    assert rows("SELECT TO_TIMESTAMP(d, 'yyyy-MM-dd T') FROM m") == [(None,)] * 3
    with pytest.raises(ValidationError, match="Invalid pattern for parsing TIMESTAMP_LTZ"):
        rows("SELECT TO_TIMESTAMP_LTZ(d, 'yyyy Q?T') FROM m")


DIFFERENCES = {
    "(DATE '2024-03-05' - DATE '2024-02-01') DAY": "+33 00:00:00.000",
    "(DATE '2024-03-05' - DATE '2024-02-01') MONTH": "+0-01",
    "(DATE '2024-03-05' - DATE '2022-02-01') YEAR TO MONTH": "+2-01",
    "(DATE '2024-03-05' - DATE '2022-02-01') YEAR": "+2-01",
    "(DATE '2024-02-29' - DATE '2024-03-31') MONTH": "-0-01",
    "(DATE '2022-02-02' - DATE '2024-03-01') YEAR": "-2-00",
    "(TIMESTAMP '2024-03-05 10:11:12.345' - TIMESTAMP '2024-02-01 00:00:00') DAY TO SECOND": "+33 10:11:12.345",
    "(TIMESTAMP '2024-03-05 10:11:12.345' - TIMESTAMP '2024-02-01 00:00:00') HOUR": "+33 10:11:12.345",
    "(TIME '10:00:00' - TIME '09:58:30') MINUTE": "+0 00:01:30.000",
    "(DATE '2024-03-05' - DATE '2024-02-01') DAY(3) TO SECOND(2)": "+33 00:00:00.000",
}


@pytest.mark.parametrize("expression", DIFFERENCES)
def test_a_difference_of_points_in_time_is_an_interval(expression: str) -> None:
    assert rows(f"SELECT CAST({expression} AS STRING)") == [(DIFFERENCES[expression],)]
    statement = parse_statement(f"SELECT {expression}")
    assert isinstance(statement, QueryStatement)
    assert shown(parse_statement(to_sql(statement.query))) == shown(statement)


def test_such_an_interval_is_compared_and_added() -> None:
    sql = "SELECT id FROM m WHERE (TIMESTAMP '2024-02-01 10:07:00' - TIMESTAMP '2024-02-01 10:00:00') MINUTE > {}"
    assert len(rows(sql.format("INTERVAL '5' MINUTE"))) == 3
    assert rows(sql.format("INTERVAL '7' MINUTE")) == []
    moved = "SELECT CAST(DATE '2024-02-01' + (DATE '2024-03-05' - DATE '2024-02-01') DAY AS STRING)"
    assert rows(moved) == [("2024-03-05",)]
    assert rows("SELECT (CAST(NULL AS DATE) - DATE '2024-02-01') DAY IS NULL") == [(True,)]
    with pytest.raises(ValidationError, match="Invalid function call"):
        rows("SELECT (1 - 2) DAY")
    with pytest.raises(ValidationError, match="Invalid function call"):
        rows("SELECT (DATE '2024-03-05' - TIMESTAMP '2024-02-01 00:00:01') DAY")


@pytest.mark.parametrize(
    "moved",
    ["t + INTERVAL '2' MONTH", "t - INTERVAL '1' YEAR", "TIMESTAMPADD(YEAR, 1, t)", "TIMESTAMPADD(MONTH, 1, t)"],
)
def test_a_time_of_day_is_the_same_in_each_month(moved: str) -> None:
    times = "SELECT TIME '10:20:30' AS t UNION ALL SELECT CAST(NULL AS TIME)"
    assert rows(f"SELECT CAST({moved} AS STRING) FROM ({times})") == [("10:20:30",), (None,)]
