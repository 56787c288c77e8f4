"""The same answer from a plain loop, for use without Spark."""

from __future__ import annotations

import csv
from pathlib import Path

from penstock.demo.answers import Answer


def answer(flights: Path) -> Answer:
    """Compute the answer from the package's file."""
    hourly: dict[tuple[str, str], tuple[int, int]] = {}
    of_days: dict[str, dict[str, int]] = {}
    with flights.open(encoding="utf-8", newline="") as file:
        for flight in csv.DictReader(file):
            if flight["dep_delay"] == "NA":
                continue
            delay, carrier, day = int(flight["dep_delay"]), flight["carrier"], flight["time_hour"][:10]
            departures, delays = hourly.get((flight["origin"], flight["time_hour"]), (0, 0))
            hourly[flight["origin"], flight["time_hour"]] = departures + 1, delays + delay
            days = of_days.setdefault(carrier, {})
            days[day] = max(delay, days.get(day, delay))
    worst = {}
    for carrier, days in of_days.items():
        so_far = min(days.values())
        for day in sorted(days):
            worst[carrier, day] = so_far = max(so_far, days[day])
    return Answer(hourly, worst)
