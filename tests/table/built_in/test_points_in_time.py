"""Arithmetic, parts, rounding and differences of points in time, and the clock."""

from __future__ import annotations

import numpy as np
import pytest
from tests.table.temporal_shown import of_rows, session, shown, typed

from penstock.sql.data.arrow import to_column, to_scalar, to_values
from penstock.sql.data.datetimes import add_months, civil_from_days, days_from_civil, parse_timestamp, to_months
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DateType, LocalZonedTimestampType, TimestampType, TimeType
from penstock.sql.functions import datetime as temporal_arithmetic
from penstock.sql.functions.definition import Call, Operands
from penstock.sql.typed import Constant


def calculated(one: str, operator: str, other: str) -> tuple[object, str]:
    """What an operator gives for two constants: the held value and the type."""
    constants = [typed(text) for text in (one, other)]
    call = Operands(tuple(part.type for part in constants), session=session())
    assert any(signature.match(call) for signature in temporal_arithmetic.SIGNATURES[operator])
    result = temporal_arithmetic.result_type(operator, call)
    kernel = temporal_arithmetic.bind(operator, Call(call, result))
    found = kernel(*[to_scalar(part.value, part.type) for part in constants if isinstance(part, Constant)])
    return to_values(found, result)[0], str(result)


def held(text: str) -> object:
    """The value of a literal."""
    found = typed(text)
    assert isinstance(found, Constant)
    return found.value


@pytest.mark.parametrize(
    ("one", "operator", "other", "wanted", "kind"),
    [
        ("DATE '2020-01-31'", "+", "INTERVAL '1' MONTH", "DATE '2020-02-29'", "DATE NOT NULL"),
        ("DATE '2020-03-31'", "-", "INTERVAL '1' YEAR", "DATE '2019-03-31'", "DATE NOT NULL"),
        ("DATE '2020-01-31'", "+", "INTERVAL '36' HOUR", "DATE '2020-02-01'", "DATE NOT NULL"),
        ("INTERVAL '-30' DAY", "+", "DATE '1990-10-14'", "DATE '1990-09-14'", "DATE NOT NULL"),
        ("TIME '23:00:00'", "+", "INTERVAL '2' HOUR", "TIME '01:00:00'", "TIME(0) NOT NULL"),
        ("TIME '01:00:00'", "-", "INTERVAL '26' HOUR", "TIME '23:00:00'", "TIME(0) NOT NULL"),
        (
            "TIMESTAMP '1970-02-01 00:00:00.123456789'",
            "+",
            "INTERVAL '1' SECOND",
            "TIMESTAMP '1970-02-01 00:00:01.123456789'",
            "TIMESTAMP(9) NOT NULL",
        ),
        (
            "TIMESTAMP '1969-12-31 23:00:00'",
            "-",
            "INTERVAL '10' MONTH",
            "TIMESTAMP '1969-02-28 23:00:00'",
            "TIMESTAMP(0) NOT NULL",
        ),
        ("INTERVAL '2' DAY", "-", "INTERVAL '3' DAY", "INTERVAL '-1' DAY", "INTERVAL DAY(2) NOT NULL"),
        ("INTERVAL '2' DAY", "*", "3", "INTERVAL '6' DAY", "INTERVAL DAY(2) NOT NULL"),
        ("3", "*", "INTERVAL '2' MONTH", "INTERVAL '6' MONTH", "INTERVAL MONTH NOT NULL"),
        ("INTERVAL '3' MONTH", "/", "2", "INTERVAL '1' MONTH", "INTERVAL MONTH NOT NULL"),
        ("INTERVAL '3' DAY", "*", "1.5", "INTERVAL '108' HOUR", "INTERVAL DAY(2) NOT NULL"),
    ],
)
def test_operators_move_points_in_time_and_intervals(
    one: str, operator: str, other: str, wanted: str, kind: str
) -> None:
    assert calculated(one, operator, other) == (held(wanted), kind)


@pytest.mark.parametrize(
    ("one", "operator", "other"),
    [
        ("TIMESTAMP '2020-01-01 00:00:00'", "-", "TIMESTAMP '2020-01-01 00:00:00'"),
        ("INTERVAL '1' DAY", "+", "INTERVAL '1' MONTH"),
        ("DATE '2020-01-01'", "*", "INTERVAL '1' MONTH"),
    ],
)
def test_some_operands_are_not_taken(one: str, operator: str, other: str) -> None:
    call = Operands(tuple(typed(text).type for text in (one, other)))
    assert not any(signature.match(call) for signature in temporal_arithmetic.SIGNATURES[operator])


def test_null_moves_nothing() -> None:
    types = (DateType(), typed("INTERVAL '1' MONTH").type)
    result = temporal_arithmetic.result_type("+", Operands(types))
    kernel = temporal_arithmetic.bind("+", Call(Operands(types), result))
    found = kernel(to_column([0, None, 30], DateType()), to_scalar(1, types[1]))
    assert to_values(found, result) == [31, None, 58]
    assert not kernel(to_scalar(None, DateType()), to_scalar(1, types[1])).is_valid


@pytest.mark.parametrize("year", [-400, 0, 1, 1582, 1900, 2000, 2020, 9999, 12_345])
def test_the_calendar_of_columns_is_that_of_single_days(year: int) -> None:
    days = np.array([days_from_civil(year, month, day) for month in range(1, 13) for day in (1, 15, 28)])
    assert [one // 12 + 1970 for one in to_months(days).tolist()] == [year] * len(days)
    for day, moved in zip(days.tolist(), add_months(days, np.ones_like(days)).tolist(), strict=True):
        _, month, of_month = civil_from_days(day)
        assert civil_from_days(moved) == (year + month // 12, month % 12 + 1, of_month)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("EXTRACT(YEAR FROM DATE '1996-11-10')", "1996"),
        ("EXTRACT(DECADE FROM DATE '1996-11-10')", "199"),
        ("EXTRACT(CENTURY FROM DATE '2000-12-31')", "20"),
        ("EXTRACT(CENTURY FROM DATE '2001-01-01')", "21"),
        ("EXTRACT(MILLENNIUM FROM TIMESTAMP '1996-11-10 06:55:44.333')", "2"),
        ("EXTRACT(ISOYEAR FROM DATE '2006-01-01')", "2005"),
        ("EXTRACT(WEEK FROM DATE '2021-01-03')", "53"),
        ("EXTRACT(ISODOW FROM DATE '2005-01-03')", "1"),
        ("EXTRACT(DOW FROM DATE '1996-11-10')", "1"),
        ("EXTRACT(EPOCH FROM DATE '1970-01-02')", "86400"),
        ("EXTRACT(EPOCH FROM TIMESTAMP '1970-01-02 00:00:00.5')", "86400"),
        ("EXTRACT(MILLISECOND FROM TIMESTAMP '1996-11-10 06:55:44.333')", "333"),
        ("EXTRACT(MICROSECOND FROM TIMESTAMP '1970-01-01 00:00:00.123456789')", "123456"),
        ("EXTRACT(NANOSECOND FROM TIMESTAMP '1970-01-01 00:00:03.123456789')", "123456789"),
        ("EXTRACT(HOUR FROM TIMESTAMP '1969-12-31 23:00:00')", "23"),
        ("EXTRACT(HOUR FROM DATE '2020-01-01')", "0"),
        ("EXTRACT(DAY FROM INTERVAL '19 12:10:10.123' DAY TO SECOND(3))", "19"),
        ("EXTRACT(HOUR FROM INTERVAL '-19 12:10:10.123' DAY TO SECOND(3))", "-12"),
        ("EXTRACT(MONTH FROM INTERVAL '2-1' YEAR TO MONTH)", "1"),
        ("EXTRACT(QUARTER FROM INTERVAL '2-1' YEAR TO MONTH)", "1"),
        ("EXTRACT(QUARTER FROM INTERVAL '2-3' YEAR TO MONTH)", "1"),
        ("EXTRACT(QUARTER FROM INTERVAL '11' MONTH)", "4"),
        ("EXTRACT(QUARTER FROM INTERVAL '12' MONTH)", "1"),
        ("EXTRACT(QUARTER FROM INTERVAL '-5' MONTH)", "-1"),
        ("YEAR(DATE '1994-09-27')", "1994"),
        ("QUARTER(DATE '1994-09-27')", "3"),
        ("MONTH(DATE '1994-09-27')", "9"),
        ("WEEK(DATE '1994-09-27')", "39"),
        ("DAYOFYEAR(DATE '1994-09-27')", "270"),
        ("DAYOFMONTH(DATE '1994-09-27')", "27"),
        ("DAYOFWEEK(DATE '1994-09-27')", "3"),
        ("HOUR(TIMESTAMP '1994-09-27 13:14:15')", "13"),
        ("MINUTE(TIME '13:14:15')", "14"),
        ("SECOND(TIMESTAMP '1994-09-27 13:14:15')", "15"),
    ],
)
def test_parts_of_points_in_time(sql: str, wanted: str) -> None:
    assert shown(sql) == (wanted, "BIGINT NOT NULL")


def test_parts_of_moments_are_those_that_clocks_show() -> None:
    moment = parse_timestamp("2020-06-30 20:00:00")
    assert of_rows("DAYOFMONTH(x)", [moment, None], LocalZonedTimestampType(3), "Asia/Tokyo") == [1, None]
    assert of_rows("HOUR(x)", [moment], LocalZonedTimestampType(3), "Asia/Kolkata") == [1]


@pytest.mark.parametrize("sql", ["EXTRACT(DAY FROM TIME '10:00:00')", "YEAR(5)", "EXTRACT(YEAR FROM INTERVAL '1' DAY)"])
def test_parts_that_there_are_not(sql: str) -> None:
    with pytest.raises(ValidationError):
        typed(sql)


@pytest.mark.parametrize(
    ("unit", "floor", "ceil"),
    [
        ("MILLISECOND", "2018-03-20 06:44:31.987000", "2018-03-20 06:44:31.988000"),
        ("SECOND", "2018-03-20 06:44:31.000000", "2018-03-20 06:44:32.000000"),
        ("MINUTE", "2018-03-20 06:44:00.000000", "2018-03-20 06:45:00.000000"),
        ("HOUR", "2018-03-20 06:00:00.000000", "2018-03-20 07:00:00.000000"),
        ("DAY", "2018-03-20 00:00:00.000000", "2018-03-21 00:00:00.000000"),
        ("WEEK", "2018-03-18 00:00:00.000000", "2018-03-25 00:00:00.000000"),
        ("MONTH", "2018-03-01 00:00:00.000000", "2018-04-01 00:00:00.000000"),
        ("QUARTER", "2018-01-01 00:00:00.000000", "2018-04-01 00:00:00.000000"),
        ("YEAR", "2018-01-01 00:00:00.000000", "2019-01-01 00:00:00.000000"),
        ("DECADE", "2010-01-01 00:00:00.000000", "2020-01-01 00:00:00.000000"),
        ("CENTURY", "2001-01-01 00:00:00.000000", "2101-01-01 00:00:00.000000"),
        ("MILLENNIUM", "2001-01-01 00:00:00.000000", "3001-01-01 00:00:00.000000"),
    ],
)
def test_points_in_time_are_rounded_to_units(unit: str, floor: str, ceil: str) -> None:
    point = "TIMESTAMP '2018-03-20 06:44:31.987654'"
    assert shown(f"FLOOR({point} TO {unit})") == (floor, "TIMESTAMP(6) NOT NULL")
    assert shown(f"CEIL({point} TO {unit})") == (ceil, "TIMESTAMP(6) NOT NULL")


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("CEIL(DATE '2021-02-27' TO DAY)", "2021-02-28"),  # as Flink does
        ("CEIL(DATE '2021-02-28' TO WEEK)", "2021-02-28"),
        ("CEIL(DATE '2021-03-01' TO HOUR)", "2021-03-01"),
        ("CEIL(DATE '2021-04-01' TO QUARTER)", "2021-07-01"),
        ("CEIL(DATE '2021-01-01' TO QUARTER)", "2021-01-01"),
        ("FLOOR(TIME '12:44:31' TO MINUTE)", "12:44:00"),
        ("CEILING(TIME '12:44:31' TO MINUTE)", "12:45:00"),
        ("CEIL(TIMESTAMP '2018-03-20 00:00:00' TO DAY)", "2018-03-20 00:00:00"),
        ("FLOOR(TIMESTAMP '1960-03-20 06:44:31' TO HOUR)", "1960-03-20 06:00:00"),
        ("FLOOR(TIMESTAMP '0000-03-20 06:44:31' TO MONTH)", "0000-03-01 00:00:00"),
        ("FLOOR(CAST(NULL AS DATE) TO MONTH)", None),
        ("FLOOR(-1.5)", "-2"),
        ("CEIL(2.5)", "3"),
        ("CEIL(-1.5e0)", "-1.0"),
        ("FLOOR(5)", "5"),
    ],
)
def test_rounding_at_the_edges(sql: str, wanted: str | None) -> None:
    assert shown(sql)[0] == wanted


def test_moments_are_rounded_as_clocks_show_them() -> None:
    moment = parse_timestamp("2020-06-30 20:10:00")
    day = of_rows("FLOOR(x TO DAY)", [moment], LocalZonedTimestampType(3), "Asia/Kolkata")
    assert day == [parse_timestamp("2020-06-30 18:30:00")]


def test_the_type_of_rounded_numbers() -> None:
    assert shown("CEIL(2.5)") == ("3", "DECIMAL(2, 0) NOT NULL")
    assert shown("FLOOR(CAST(2.5 AS FLOAT))") == ("2.0", "FLOAT NOT NULL")


@pytest.mark.parametrize(
    ("sql", "wanted", "kind"),
    [
        ("TIMESTAMPADD(MONTH, 1, DATE '2016-05-31')", "2016-06-30", "DATE NOT NULL"),
        ("TIMESTAMPADD(WEEK, -1, DATE '2016-05-31')", "2016-05-24", "DATE NOT NULL"),
        ("TIMESTAMPADD(SECOND, 1, DATE '2016-06-15')", "2016-06-15 00:00:01.000000", "TIMESTAMP(6) NOT NULL"),
        (
            "TIMESTAMPADD(SQL_TSI_QUARTER, -1000, TIMESTAMP '2017-11-29 22:58:58.998')",
            "1767-11-29 22:58:58.998",
            "TIMESTAMP(3) NOT NULL",
        ),
        ("TIMESTAMPADD(MINUTE, -1, TIME '00:00:59')", "23:59:59", "TIME(0) NOT NULL"),
        ("TIMESTAMPADD(DAY, 15, TIME '23:59:59')", "23:59:59", "TIME(0) NOT NULL"),
        ("TIMESTAMPADD(DAY, CAST(NULL AS INT), DATE '2016-05-31')", None, "DATE"),
        ("TIMESTAMPDIFF(MONTH, DATE '2019-09-01', DATE '2016-08-01')", "-37", "INT NOT NULL"),
        ("TIMESTAMPDIFF(MONTH, DATE '2020-01-31', DATE '2020-02-29')", "1", "INT NOT NULL"),
        ("TIMESTAMPDIFF(YEAR, DATE '2020-02-29', TIMESTAMP '2021-02-27 23:59:59')", "0", "INT NOT NULL"),
        ("TIMESTAMPDIFF(DAY, TIMESTAMP '2016-06-15 11:00:00', DATE '2016-06-19')", "3", "INT NOT NULL"),
        ("TIMESTAMPDIFF(HOUR, DATE '2016-06-15', DATE '2016-06-12')", "-72", "INT NOT NULL"),
        ("TIMESTAMPDIFF(MINUTE, TIME '08:00:00', TIME '11:11:00')", "191", "INT NOT NULL"),
        ("TIMESTAMPDIFF(MONTH, TIMESTAMP '2021-01-04 00:00:00', TIME '00:00:00')", "-612", "INT NOT NULL"),
        ("TIMESTAMPDIFF(DAY, CAST(NULL AS TIMESTAMP), TIMESTAMP '2016-02-24 12:42:25')", None, "INT"),
        # Of nanoseconds and a year that they do not reach; seconds wrap to 32 bits, as in Flink.
        (
            "TIMESTAMPDIFF(SECOND, TIMESTAMP '9999-01-01 00:00:00', TIMESTAMP '2020-02-29 12:34:56.123456789')",
            "1615285361",
            "INT NOT NULL",
        ),
        (
            "TIMESTAMPDIFF(MONTH, TIMESTAMP '0001-01-01 00:00:00', TIMESTAMP '2020-02-29 12:34:56.123456789')",
            "24229",
            "INT NOT NULL",
        ),
        (
            "TIMESTAMPDIFF(WEEK, DATE '9999-01-01', TIMESTAMP '2020-02-29 12:34:56.123456789')",
            "-416315",
            "INT NOT NULL",
        ),
    ],
)
def test_adding_and_counting_units(sql: str, wanted: str | None, kind: str) -> None:
    assert shown(sql) == (wanted, kind)


@pytest.mark.parametrize(
    "sql",
    [
        "TIMESTAMPDIFF(SECOND, CURRENT_TIMESTAMP, LOCALTIMESTAMP)",
        "TIMESTAMPDIFF(SECOND, DATE '2020-01-01', '2020-01-01')",
        "TIMESTAMPADD(DOW, 1, DATE '2020-01-01')",
    ],
)
def test_units_that_cannot_be_added_or_counted(sql: str) -> None:
    with pytest.raises(ValidationError):
        typed(sql)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("(TIME '2:55:00', INTERVAL '1' HOUR) OVERLAPS (TIME '3:30:00', INTERVAL '2' HOUR)", "TRUE"),
        ("(TIME '9:00:00', TIME '10:00:00') OVERLAPS (TIME '10:15:00', INTERVAL '3' HOUR)", "FALSE"),
        ("(DATE '2020-01-05', DATE '2020-01-01') OVERLAPS (DATE '2020-01-02', DATE '2020-01-03')", "TRUE"),
        ("(DATE '2020-01-01', DATE '2020-01-02') OVERLAPS (DATE '2020-01-02', DATE '2020-01-03')", "TRUE"),
        ("(DATE '2020-01-01', INTERVAL '1' MONTH) OVERLAPS (DATE '2020-02-02', DATE '2020-02-03')", "FALSE"),
        ("(DATE '2020-01-01', CAST(NULL AS DATE)) OVERLAPS (DATE '2020-01-01', DATE '2020-01-02')", None),
    ],
)
def test_periods_that_overlap(sql: str, wanted: str | None) -> None:
    assert shown(sql)[0] == wanted


def test_overlaps_takes_two_periods() -> None:
    with pytest.raises(ValidationError, match="two periods"):
        typed("DATE '2020-01-01' OVERLAPS DATE '2020-01-01'")


@pytest.mark.parametrize(
    ("sql", "wanted", "kind"),
    [
        ("CURRENT_DATE", "2023-11-15", "DATE NOT NULL"),
        ("CURRENT_TIME", "07:13:20", "TIME(0) NOT NULL"),
        ("LOCALTIME", "07:13:20", "TIME(0) NOT NULL"),
        ("LOCALTIMESTAMP", "2023-11-15 07:13:20.123", "TIMESTAMP(3) NOT NULL"),
        ("CURRENT_TIMESTAMP", "2023-11-15 07:13:20.123", "TIMESTAMP_LTZ(3) NOT NULL"),
        ("NOW()", "2023-11-15 07:13:20.123", "TIMESTAMP_LTZ(3) NOT NULL"),
        ("CURRENT_ROW_TIMESTAMP()", "2023-11-15 07:13:20.123", "TIMESTAMP_LTZ(3) NOT NULL"),
        ("UNIX_TIMESTAMP()", "1700000000", "BIGINT NOT NULL"),
    ],
)
def test_the_clock(sql: str, wanted: str, kind: str) -> None:
    assert shown(sql, "Asia/Tokyo") == (wanted, kind)


def test_columns_of_many_rows() -> None:
    points = [parse_timestamp(f"2020-01-{day:02} 12:00:00") for day in range(1, 31)] + [None]
    assert of_rows("DAYOFMONTH(x)", points, TimestampType(3)) == [*range(1, 31), None]
    assert of_rows("TIMESTAMPDIFF(DAY, TIMESTAMP '2020-01-01 00:00:00', x)", points, TimestampType(6)) == [
        *range(30),
        None,
    ]
    assert of_rows("FLOOR(x TO HOUR)", [3_599_999, None], TimeType(3)) == [0, None]
    assert of_rows("YEAR(x)", [], DateType()) == []
