"""The demo's input: complete, and in the order of departure."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.cli.demo import flights as data
from penstock.cli.demo import flights as made_up

LIMIT = 3_000


def departure_ms(line: str) -> int:
    fields = line.split(",")
    delay = 0 if fields[5] == "NA" else int(fields[5])
    return data.hour_ms(fields[18]) + (int(fields[17]) + delay) * data.MINUTE_MS


def test_prepare_orders_the_same_lines_by_departure(tmp_path: Path) -> None:
    flights = data.prepare(tmp_path / "input", LIMIT)
    header, *original = flights.original.read_text().splitlines()
    header_again, *departures = flights.departures.read_text().splitlines()
    assert flights.count == len(original) == LIMIT
    assert header == header_again
    assert Counter(original) == Counter(departures)
    assert all(departure_ms(one) <= departure_ms(next_one) for one, next_one in pairwise(departures))


def test_prepare_knows_the_range_of_event_time(tmp_path: Path) -> None:
    flights = data.prepare(tmp_path, 100)
    assert flights.first_ms == data.hour_ms("2013-01-01T10:00:00Z") + 15 * data.MINUTE_MS
    assert flights.first_ms < flights.last_ms < flights.first_ms + 86_400_000


def test_without_the_package_flights_are_made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the same form, the same each time; enough of them are late, and some cancelled."""
    real = data.prepare(tmp_path / "real", LIMIT)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    flights, again = data.prepare(tmp_path / "one", LIMIT), data.prepare(tmp_path / "two", LIMIT)
    assert (real.are_real, flights.are_real) == (True, False)
    assert flights.original.read_text() == again.original.read_text()
    assert flights.count == LIMIT
    header, *lines = flights.departures.read_text().splitlines()
    assert header == real.original.read_text().splitlines()[0]
    assert all(departure_ms(one) <= departure_ms(next_one) for one, next_one in pairwise(lines))
    delays = [line.split(",")[5] for line in lines]
    assert 0 < delays.count("NA") < LIMIT / 20
    assert max(int(delay) for delay in delays if delay != "NA") > 6 * 60


def test_a_made_up_year_is_as_long_as_the_real_one() -> None:
    lines = list(made_up.made_up_flights())
    assert len(lines) == made_up.FLIGHTS
    assert lines[0].endswith("2013-01-01T10:00:00Z")
    assert lines[-1].endswith("2014-01-01T04:00:00Z")
