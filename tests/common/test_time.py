"""Lengths of time and points in time."""

import datetime
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.config_options import format_bytes, parse_bytes
from penstock.base.time import format_duration, parse_duration, to_millis
from penstock.common import Duration, Instant, Time


@pytest.mark.parametrize(
    ("value", "millis"),
    [
        (Duration.of_days(1), 86_400_000),
        (Duration.of_hours(1), 3_600_000),
        (Duration.of_minutes(1), 60_000),
        (Duration.of_seconds(1), 1_000),
        (Duration.of_millis(7), 7),
        (Duration.of_nanos(1_999_999), 1),
        (Time.days(1), 86_400_000),
        (Time.hours(1), 3_600_000),
        (Time.minutes(1), 60_000),
        (Time.seconds(1), 1_000),
        (Time.milliseconds(7), 7),
        (datetime.timedelta(seconds=1, microseconds=999), 1_000),
        (42, 42),
    ],
)
def test_every_length_of_time_becomes_millis(value, millis):
    assert to_millis(value) == millis


@pytest.mark.parametrize("value", [True, 1.5, "10 s", None])
def test_what_is_no_length_of_time_is_refused(value):
    with pytest.raises(TypeError, match="a length of time must be"):
        to_millis(value)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("10 s", 10_000),
        ("500 ms", 500),
        ("1min", 60_000),
        ("2 Hours", 7_200_000),
        ("1d", 86_400_000),
        ("15", 15),
        (" 3000 µs ", 3),
        ("PT1M30.5S", 90_500),
        ("P1DT1H", 90_000_000),
    ],
)
def test_durations_parse_as_in_flink(text, millis):
    assert parse_duration(text).to_millis() == millis


@pytest.mark.parametrize("text", ["", "s", "-1 s", "1.5 s", "1 fortnight", "P", "PT", "1 s 2"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**20))
def test_a_duration_reads_back_as_written(nanos):
    assert parse_duration(format_duration(Duration.of_nanos(nanos))) == Duration.of_nanos(nanos)


def test_durations_and_times_are_values():
    assert Duration.of_seconds(60) == Duration.of_minutes(1)
    assert Duration.of_seconds(1) < Duration.of_minutes(1)
    assert len({Time.seconds(60), Time.minutes(1)}) == 1
    assert pickle.loads(pickle.dumps(Time.seconds(1))) == Time.seconds(1)


def test_a_time_is_made_and_read_in_milliseconds():
    assert Time(90_000).to_milliseconds() == Time.milliseconds(milliseconds=90_000).to_milliseconds() == 90_000
    assert Time.seconds(seconds=90) == Time(90_000)
    assert Time.days(days=1).to_milliseconds() == Time.hours(hours=24).to_milliseconds() == 86_400_000
    assert Time.minutes(minutes=2) > Time.seconds(119)
    with pytest.raises(TypeError, match="whole number"):
        Time(1.5)  # type: ignore[arg-type]


def test_an_instant_is_seconds_and_nanos():
    instant = Instant(seconds=1, nanos=2_500_000)
    assert (instant.seconds, instant.nanos, instant.to_epoch_milli()) == (1, 2_500_000, 1_002)
    assert Instant.of_epoch_milli(epoch_milli=-1) == Instant(-1, 999_000_000) < Instant(0, 0) < instant


@given(st.integers(-(10**15), 10**15))
def test_an_instant_keeps_its_millis(millis):
    instant = Instant.of_epoch_milli(millis)
    assert instant.to_epoch_milli() == millis
    assert pickle.loads(pickle.dumps(instant)) == instant


def test_an_instant_has_less_than_a_second_of_nanos():
    with pytest.raises(ValueError, match="nanoseconds"):
        Instant(0, 10**9)


@given(st.integers(0, 2**60))
def test_a_memory_size_reads_back_as_written(size):
    assert parse_bytes(format_bytes(size)) == size


@pytest.mark.parametrize(("text", "size"), [("64 mb", 64 << 20), ("20KB", 20 << 10), ("1g", 1 << 30), ("7", 7)])
def test_memory_sizes_parse_as_in_flink(text, size):
    assert parse_bytes(text) == size
