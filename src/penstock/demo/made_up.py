"""Made-up flights for use without the real ones: the same number, in the same format, always the same.

Like the real flights, they leave three airports between 5 a.m. and midnight. A few are cancelled, most leave roughly on
time, and some leave many hours late.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
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
