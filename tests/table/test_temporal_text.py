"""Days, times and timestamps as text."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.data import datetimes as text

EPOCH = dt.date(1970, 1, 1)


@given(st.dates())
def test_days_agree_with_pythons_calendar(day: dt.date) -> None:
    """For all years that Python has."""
    days = (day - EPOCH).days
    assert text.days_from_civil(day.year, day.month, day.day) == days
    assert text.civil_from_days(days) == (day.year, day.month, day.day)
    assert text.format_date(days) == day.isoformat()
    assert text.parse_date(day.isoformat()) == days


@given(st.integers(-4_000_000, 4_000_000))
def test_days_of_all_years_come_back(days: int) -> None:
    """Before the year 1 and after 9999 too."""
    assert text.days_from_civil(*text.civil_from_days(days)) == days


@pytest.mark.parametrize("wrong", ["2020-02-30", "2020-13-01", "2020-00-01", "2020-1", "x", "", "2020-01-01x"])
def test_what_is_no_day_gives_none(wrong: str) -> None:
    """Days that no month has, and other texts."""
    assert text.parse_date(wrong) is None


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ("00:00:00", 0),
        ("12", 12 * 3_600 * 10**9),
        ("1:02:03.5", (3_723 * 10 + 5) * 10**8),
        ("00:00:00.123456789", 123_456_789),
        ("24:00:00", None),
        ("00:60:00", None),
        ("noon", None),
    ],
)
def test_times_of_day(written: str, nanoseconds: int | None) -> None:
    """Minutes, seconds and fractions may be missing."""
    assert text.parse_time(written) == nanoseconds


def test_timestamps() -> None:
    """A blank or a T between day and time, and a day alone; fractions are cut, not rounded."""
    moment = text.parse_timestamp("1970-01-02 00:00:01.987654321")
    assert moment == text.DAY_NS + 1_987_654_321
    assert text.parse_timestamp("1970-01-02T00:00:01.987654321") == moment
    assert text.parse_timestamp("1970-01-02") == text.DAY_NS
    assert text.format_timestamp(moment, 3) == "1970-01-02 00:00:01.987"
    assert text.format_timestamp(-1, 0) == "1969-12-31 23:59:59"
    assert text.parse_timestamp("1970-01-02 25:00:00") is None
    assert text.parse_timestamp("then") is None


def test_digits_of_fractions() -> None:
    """At most nine."""
    assert [text.fraction_digits(one) for one in ("1:00", "1:00.5", "1:00.0123456789")] == [0, 1, 9]
