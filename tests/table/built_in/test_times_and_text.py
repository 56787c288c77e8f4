"""Points in time as text by Java's patterns, and from text."""

from __future__ import annotations

import pytest
from tests.table.temporal_shown import of_rows, shown, typed

from penstock.sql.data.datetimes import format_date, format_timestamp, parse_timestamp
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import LENGTH_MAX, BigIntType, DateType, TimestampType, VarCharType
from penstock.sql.datetime_format.formatting import formatter
from penstock.sql.datetime_format.patterns import Dialect, fraction_digits

STRING = VarCharType(LENGTH_MAX)
POINT = "TIMESTAMP '1990-10-14 22:20:45.123456789'"


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("yyyy-MM-dd HH:mm:ss", "1990-10-14 22:20:45"),
        ("y yy yyyyy u", "1990 90 01990 1990"),
        ("M MM MMM MMMM MMMMM", "10 10 Oct October O"),
        ("d dd D Q QQQ QQQQ", "14 14 287 4 Q4 4th quarter"),
        ("E EEEE EEEEE e", "Sun Sunday S 1"),
        ("Y w W", "1990 42 3"),
        ("h hh K k a", "10 10 10 22 PM"),
        ("S SSS SSSSSS SSSSSSSSS", "1 123 123456 123456789"),
        ("A n N", "80445123 123456789 80445123456789"),
        ("G GGGG", "AD Anno Domini"),
        ("'at' H 'o''clock'''", "at 22 o'clock'"),
        ("yyyy[-MM[-dd]]", "1990-10-14"),
        ("ppppd", "  14"),
        ("''", "'"),
        ("", ""),
    ],
)
def test_timestamps_by_patterns(pattern: str, wanted: str) -> None:
    quoted = pattern.replace("'", "''")
    assert shown(f"DATE_FORMAT({POINT}, '{quoted}')") == (wanted, "STRING")


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("yyyy/MM/dd HH:mm:ss", "1990/10/14 22:20:45"),
        ("y yy yyy M MMM MMMMM", "1990 90 1990 10 Oct October"),
        ("E EEEE u F a h S SSS", "Sun Sunday 7 2 PM 10 0 000"),
    ],
)
def test_texts_by_patterns(pattern: str, wanted: str) -> None:
    assert shown(f"DATE_FORMAT('1990-10-14 22:20:45', '{pattern}')") == (wanted, "STRING")


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("DATE_FORMAT(TIMESTAMP '0000-01-01 00:00:00', 'uuuu yyyy G')", "0000 0001 BC"),
        ("DATE_FORMAT('not a time', 'yyyy')", None),
        ("DATE_FORMAT(CAST(NULL AS TIMESTAMP), 'yyyy')", None),
        (f"DATE_FORMAT({POINT}, CAST(NULL AS STRING))", None),
        ("FROM_UNIXTIME(-1)", "1969-12-31 23:59:59"),
        ("FROM_UNIXTIME(253402300800)", "10000-01-01 00:00:00"),
        ("FROM_UNIXTIME(CAST(NULL AS BIGINT))", None),
        # milliseconds that wrap
        ("FROM_UNIXTIME(9223372036854775807)", "1969-12-31 23:59:59"),
    ],
)
def test_text_at_the_edges(sql: str, wanted: str | None) -> None:
    assert shown(sql) == (wanted, "STRING")


def test_seconds_are_shown_in_the_zone_of_the_session() -> None:
    assert shown("FROM_UNIXTIME(44)", "Asia/Tokyo")[0] == "1970-01-01 09:00:44"
    assert shown("FROM_UNIXTIME(44, 'HH z Z X XX XXX')", "Asia/Tokyo")[0] == "09 JST +0900 +09 +0900 +09:00"
    moment = "CAST(TIMESTAMP '2018-03-14 01:02:03.123456' AS TIMESTAMP_LTZ(6))"
    assert shown(f"DATE_FORMAT({moment}, 'HH:mm:ss.SSSSSS')", "America/Los_Angeles")[0] == "01:02:03.123456"


@pytest.mark.parametrize("pattern", ["yyyy X", "yyyy ]", "b", "yyyy {", "'open", "MMMMMM", "p"])
def test_patterns_that_cannot_be_used(pattern: str) -> None:
    with pytest.raises(TableRuntimeError):
        formatter(pattern, Dialect.MODERN)


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd", "HH:mm", "yyyy-MM-dd HH:mm:ss.SSS", "MMM d"])
def test_columns_give_what_single_values_give(pattern: str) -> None:
    points = [-86_400_000_000_000 + row * 1_234_567_000_000 for row in range(200)]
    found = of_rows(f"DATE_FORMAT(x, '{pattern}')", [*points, None], TimestampType(3))
    singles = [shown(f"DATE_FORMAT(TIMESTAMP '{format_timestamp(one, 3)}', '{pattern}')")[0] for one in points]
    assert found == [*singles, None]


def test_patterns_may_differ_from_row_to_row() -> None:
    found = of_rows(f"DATE_FORMAT({POINT}, x)", ["yyyy", "MM", None, "yyyy", "dd"], STRING)
    assert found == ["1990", "10", None, "1990", "14"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2017-09-15 00:00:00", "2017-09-15"),
        ("2017-9-5", "2017-09-05"),
        ("2017-9", "2017-09-01"),
        ("2017", "2017-01-01"),
        ("0000-01-01", "0000-01-01"),
        ("2017-02-29", None),
        ("2017-13-01", None),
        ("abc", None),
        ("", None),
    ],
)
def test_days_from_text(text: str, wanted: str | None) -> None:
    assert shown(f"TO_DATE('{text}')") == (wanted, "DATE")


def test_days_from_text_by_patterns() -> None:
    assert shown("TO_DATE('20170915', 'yyyyMMdd')") == ("2017-09-15", "DATE")
    assert shown("TO_DATE('15 sep 2017 and more', 'd MMM yyyy')") == ("2017-09-15", "DATE")
    assert shown("TO_DATE('2017-13-01', 'yyyy-MM-dd')") == ("2018-01-01", "DATE")
    assert shown("TO_DATE('abc', 'yyyy')") == (None, "DATE")


@pytest.mark.parametrize(
    ("operands", "wanted"),
    [
        ("'2017-09-15 00:00:00'", "2017-09-15 00:00:00.000"),
        ("'2017-9-5 1:2:3.45678'", "2017-09-05 01:02:03.456"),
        ("'2017-09-15'", "2017-09-15 00:00:00.000"),
        ("'1969-12-31 23:59:59.9999'", "1969-12-31 23:59:59.999"),
        ("'2017-02-30 00:00:00'", "2017-02-28 00:00:00.000"),
        ("'2017-09-15T00:00:00'", None),
        ("'2017-09-15 00:00'", None),
        ("'0000-09-15 00:00:00'", None),
        ("'20170915100203', 'yyyyMMddHHmmss'", "2017-09-15 10:02:03.000"),
        ("'12/Mar/2020 03:04 PM', 'dd/MMM/yyyy hh:mm a'", "2020-03-12 15:04:00.000"),
        ("'2020-061', 'yyyy-DDD'", "2020-03-01 00:00:00.000"),
        ("'05', 'HH'", "1970-01-01 05:00:00.000"),
        ("'2017-09-15 24:00:00', 'yyyy-MM-dd HH:mm:ss'", "2017-09-16 00:00:00.000"),
        ("'20-1-2', 'yy-M-d'", "2020-01-02 00:00:00.000"),
        ("'2020', 'yyyy[-MM]'", "2020-01-01 00:00:00.000"),
        ("'2020-05', 'yyyy[-MM]'", "2020-05-01 00:00:00.000"),
        ("'2020-05-01 10:00 +0100', 'yyyy-MM-dd HH:mm XX'", "2020-05-01 10:00:00.000"),
        ("'1970-01-01 00:00:00.12345', 'yyyy-MM-dd HH:mm:ss.SSS'", "1970-01-01 00:00:00.123"),
        ("'2017-9-15', 'yyyy-MM-dd'", "2017-09-15 00:00:00.000"),
        ("'abc', 'yyyy'", None),
        ("CAST(NULL AS STRING), 'yyyy'", None),
        ("'2020', CAST(NULL AS STRING)", None),
    ],
)
def test_timestamps_from_text(operands: str, wanted: str | None) -> None:
    assert shown(f"TO_TIMESTAMP({operands})") == (wanted, "TIMESTAMP(3)")


@pytest.mark.parametrize(
    ("operands", "wanted", "kind"),
    [
        ("1000", "1970-01-01 00:00:01.000", 3),
        ("100, 0", "1970-01-01 00:01:40.000", 3),
        ("-100, 0", "1969-12-31 23:58:20.000", 3),
        ("1.5e0, 0", "1970-01-01 00:00:01.500", 3),
        ("1.9, 0", "1970-01-01 00:00:01.000", 3),
        ("1234567890123456, 6", "2009-02-13 23:31:30.123456", 6),
        ("1234567890123456789, 9", "2009-02-13 23:31:30.123456789", 9),
        ("12345, 4", "1970-01-01 00:00:01.2345", 4),
        ("-62167219200000, 3", "0000-01-01 00:00:00.000", 3),
        ("253402300800000, 3", None, 3),
        ("-1.7976931348623157E308, 0", None, 3),
        ("CAST(NULL AS INT), 0", None, 3),
        ("5, CAST(NULL AS INT)", None, 3),
        ("'2023-01-01 00:00:00'", "2023-01-01 00:00:00.000", 3),
        ("'2023-01-01 00:00:00.1234', 'yyyy-MM-dd HH:mm:ss.SSSS'", "2023-01-01 00:00:00.1234", 4),
        ("'2023-01-01 00:00:00', 'yyyy-MM-dd HH:mm:ss', 'Asia/Shanghai'", "2022-12-31 16:00:00.000", 3),
        ("'2023-01-01 00:00:00', 'yyyy-MM-dd HH:mm:ss', '+08:00'", "2022-12-31 16:00:00.000", 3),
        ("'abc', 'yyyy'", None, 3),
        ("CAST(NULL AS STRING)", None, 3),
    ],
)
def test_moments(operands: str, wanted: str | None, kind: int) -> None:
    assert shown(f"TO_TIMESTAMP_LTZ({operands})") == (wanted, f"TIMESTAMP_LTZ({kind})")


@pytest.mark.parametrize("text", ["abc", "", "2020-13-01 00:00:00", "2020-01-01T00:00:00"])
def test_a_text_without_a_pattern_has_to_be_a_moment(text: str) -> None:
    with pytest.raises(TableRuntimeError, match="could not be parsed as a TIMESTAMP_LTZ"):
        of_rows("TO_TIMESTAMP_LTZ(x)", ["2020-01-01 00:00:00", None, text], STRING)


@pytest.mark.parametrize(
    "operands", ["TRUE", "'text', 0", "5, 'text'", "5, 10", "5, -1", "5, 'a', 'b'", "'a', 'b', 'no zone'"]
)
def test_operands_that_mean_no_moment(operands: str) -> None:
    with pytest.raises(ValidationError):
        typed(f"TO_TIMESTAMP_LTZ({operands})")


@pytest.mark.parametrize(
    ("operands", "wanted"),
    [
        ("'1970-01-01 08:00:01.001', 'yyyy-MM-dd HH:mm:ss.SSS'", "25201"),
        ("'1970-01-01 08:00:01.001 +0800', 'yyyy-MM-dd HH:mm:ss.SSS X'", "1"),
        ("'1970-01-01 08:00:01.001 +0800', 'yyyy-MM-dd HH:mm:ss.SSS'", "25201"),
        ("'1970-01-01 08:00:01.001', 'yyyy-MM-dd HH:mm:ss.SSS X'", str(-(2**63))),
        ("'1970-01-01 01:00:00'", "0"),
        ("'abc'", str(-(2**63))),
    ],
)
def test_seconds_from_text(operands: str, wanted: str) -> None:
    assert shown(f"UNIX_TIMESTAMP({operands})", "Europe/Berlin") == (wanted, "BIGINT NOT NULL")


def test_a_time_that_clocks_show_twice_is_the_second_one() -> None:
    texts = ["2020-10-25 02:30:00", "2020-03-29 02:30:00", None]
    found = of_rows("UNIX_TIMESTAMP(x)", texts, STRING, "Europe/Berlin")
    assert found == [1603589400, 1585445400, None]
    assert shown("UNIX_TIMESTAMP('2020-10-25 02:30:00')", "Europe/Berlin")[0] == "1603589400"


@pytest.mark.parametrize(
    ("text", "before", "after", "wanted"),
    [
        ("1970-01-01 00:00:00", "UTC", "America/Los_Angeles", "1969-12-31 16:00:00"),
        ("2018-03-14 11:00:00", "PST", "Asia/Shanghai", "2018-03-15 02:00:00"),
        ("2018-03-14 11:00:00", "GMT-08:00", "UTC", "2018-03-14 19:00:00"),
        ("2018-03-14 11:00:00", "UTC", "no zone", "2018-03-14 11:00:00"),
        ("invalid value", "UTC", "Asia/Shanghai", None),
    ],
)
def test_texts_from_zone_to_zone(text: str, before: str, after: str, wanted: str | None) -> None:
    assert shown(f"CONVERT_TZ('{text}', '{before}', '{after}')") == (wanted, "STRING")
    assert of_rows(f"CONVERT_TZ('{text}', x, '{after}')", [before, None], STRING) == [wanted, None]


def test_columns_of_usual_texts_are_read_as_single_ones_are() -> None:
    usual = [f"2020-01-{day:02} 01:02:03" for day in range(1, 32)]
    wanted = [parse_timestamp(text) for text in usual]
    assert of_rows("TO_TIMESTAMP(x)", [*usual, None], STRING) == [*wanted, None]
    assert of_rows("TO_TIMESTAMP(x, 'yyyy-MM-dd HH:mm:ss')", [*usual, "?"], STRING) == [*wanted, None]
    assert list(map(format_date, of_rows("TO_DATE(x)", usual, STRING))) == [text[:10] for text in usual]
    assert of_rows("TO_DATE(x)", ["2020-01-01x"], STRING) == [None]
    assert of_rows("TO_TIMESTAMP_LTZ(x, 0)", [1, None], BigIntType()) == [1_000_000_000, None]
    with pytest.raises(ValidationError):
        of_rows("DATE_FORMAT(x, 'dd')", [0, None], DateType())


def test_fraction_digits_are_those_outside_of_quotes() -> None:
    assert fraction_digits("ss.SSSS'SSSSSS'") == 4
    assert fraction_digits("yyyy") == 0
