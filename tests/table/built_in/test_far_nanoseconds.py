"""TIMESTAMP(7) to (9) outside of the years 1678 to 2261: refused with one sentence, wherever the value comes from."""

from __future__ import annotations

import pytest
from tests.table.evaluated import column, type_text, value
from tests.table.planned import manager_of, plan_query
from tests.table.temporal_shown import shown

from penstock.sql.data.datetimes import days_from_civil, parse_timestamp
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType, DateType, LocalZonedTimestampType, TimestampType

REASON = "points in time with more than 6 digits of a second are in the years 1678 to 2261"
FAR, NEAR = "9999-12-31 00:00:00", "2001-01-01 00:00:00"


def nanoseconds(text: str) -> int:
    found = parse_timestamp(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "sql",
    [
        "TIMESTAMP '9999-12-31 23:59:59.999999999'",
        "TIMESTAMP '1600-12-31 23:59:59.1234567'",
        "TIMESTAMP WITH LOCAL TIME ZONE '9999-12-31 23:59:59.12345678'",
        "CAST('9999-12-31 23:59:59.999999999' AS TIMESTAMP(9))",
        "CAST(DATE '9999-12-31' AS TIMESTAMP(9))",
        "CAST(DATE '0001-01-01' AS TIMESTAMP_LTZ(7))",
        "CAST(TIMESTAMP '9999-12-31 00:00:00' AS TIMESTAMP(7))",
        "CAST(TIMESTAMP '9999-12-31 00:00:00.123456' AS TIMESTAMP(8))",
        "CAST(TO_TIMESTAMP_LTZ(253402300799000, 3) AS TIMESTAMP_LTZ(9))",
    ],
)
def test_a_constant_is_refused_when_the_query_is_planned(sql: str) -> None:
    """K4: the literal, and a cast of a constant."""
    with pytest.raises(ValidationError, match=REASON):
        value(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "TIMESTAMPADD(YEAR, 1000, x)",
        "TIMESTAMPADD(DAY, -400000, x)",
        "TIMESTAMPADD(CENTURY, 10, x)",
        "TIMESTAMPADD(NANOSECOND, 1, DATE '9999-12-31')",
        "x + INTERVAL '1000' YEAR(4)",
        "CEIL(x TO MILLENNIUM)",
        "FLOOR((x - INTERVAL '300' YEAR(4)) TO MILLENNIUM)",
    ],
)
def test_a_result_is_refused(sql: str) -> None:
    """K4: of steps through time; it does not come round to another year."""
    with pytest.raises(TableRuntimeError, match=REASON):
        column(sql, {"x": TimestampType(9)}, x=[nanoseconds("2001-02-28 12:34:56.123456789")])


@pytest.mark.parametrize("far", [f"TIMESTAMP '{FAR}.9999999'", f"TIMESTAMP '{FAR}.999'", "DATE '9999-12-31'"])
def test_values_are_refused_when_the_query_is_planned(far: str) -> None:
    """K4: a row of VALUES that another row makes a TIMESTAMP(7)."""
    with pytest.raises(ValidationError, match=REASON):
        plan_query(f"SELECT * FROM (VALUES ({far}), (TIMESTAMP '{NEAR}.1234567')) AS v(s)", manager_of())


KINDS: list[tuple[DataType, int, int]] = [
    (DateType(), days_from_civil(9999, 12, 31), days_from_civil(2001, 1, 1)),
    (TimestampType(0), nanoseconds(FAR), nanoseconds(NEAR)),
    (TimestampType(6), nanoseconds(FAR), nanoseconds(NEAR)),
    (LocalZonedTimestampType(3), nanoseconds(FAR), nanoseconds(NEAR)),
]


@pytest.mark.parametrize(("kind", "far", "near"), KINDS, ids=str)
@pytest.mark.parametrize("to", ["TIMESTAMP(7)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(9)"])
def test_a_cast_of_a_column_fails_with_the_same_reason(kind: DataType, far: int, near: int, to: str) -> None:
    """K4: CAST fails, and TRY_CAST gives NULL, as for text."""
    with pytest.raises(TableRuntimeError, match=REASON):
        column(f"CAST(a AS {to})", {"a": kind}, a=[near, far])
    assert [one is None for one in column(f"TRY_CAST(a AS {to})", {"a": kind}, a=[near, far])] == [False, True]


def test_a_cast_that_nobody_wrote_fails_with_the_same_reason() -> None:
    """K4: COALESCE and comparisons cast to the type with more digits."""
    kinds, far = {"a": TimestampType(3)}, nanoseconds(FAR)
    for sql in ("COALESCE(a, TIMESTAMP '2001-01-01 00:00:00.1234567')", "a > TIMESTAMP '2001-01-01 00:00:00.1234567'"):
        with pytest.raises(TableRuntimeError, match=REASON):
            column(sql, kinds, a=[far])


@pytest.mark.parametrize("move", ["+ INTERVAL '10' YEAR", "+ INTERVAL '365' DAY", "- INTERVAL -'1' MONTH"])
def test_a_move_out_of_these_years_fails(move: str) -> None:
    """K4: it gave a time of another century. NULL moves nowhere."""
    kinds = {"a": TimestampType(9)}
    last = nanoseconds("2262-04-11 12:00:00.123456789")
    assert column(f"a {move}", kinds, a=[None]) == [None]
    assert column(f"CASE WHEN a < TIMESTAMP '{NEAR}' THEN a {move} ELSE a END", kinds, a=[last]) == [last]
    with pytest.raises(TableRuntimeError, match=REASON):
        column(f"a {move}", kinds, a=[last])


def test_fewer_digits_hold_any_year() -> None:
    assert type_text("TIMESTAMP '9999-12-31 23:59:59.999999'") == "TIMESTAMP(6) NOT NULL"
    assert shown("CAST(DATE '9999-12-31' AS TIMESTAMP(6))")[0] == "9999-12-31 00:00:00.000000"
    assert shown("TIMESTAMP '2261-12-31 23:59:59.999999999'")[0] == "2261-12-31 23:59:59.999999999"
