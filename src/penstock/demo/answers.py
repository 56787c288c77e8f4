"""Two answers to the same question, and their differences."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.demo.program import HOURLY, LATE_FOR_DAY, LATE_FOR_HOUR, WORST, day_name, hour_name

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Answer:
    """The answer to the demo's question, in integers only.

    Attributes:
        hourly: departures and the sum of their delays in minutes, by (origin, hour).
        worst: the carrier's worst delay in minutes from the start of the year to that day, by (carrier, day).
        late: the number of flights that were too late for their hour and went to the side output.
        faults: messages about output that no correct answer can contain.
    """

    hourly: Mapping[tuple[str, str], tuple[int, int]]
    worst: Mapping[tuple[str, str], int]
    late: int = 0
    faults: tuple[str, ...] = ()


def read_output(output: Path) -> Answer:
    """Return the job's output, with the late flights added to its rows."""
    hourly: dict[tuple[str, str], tuple[int, int]] = {}
    worst: dict[tuple[str, str], int] = {}
    late = 0
    faults = []

    def add_hour(key: tuple[str, str], departures: int, delay: int) -> None:
        before = hourly.get(key, (0, 0))
        hourly[key] = before[0] + departures, before[1] + delay

    for row in _rows(output / HOURLY):
        add_hour((row["origin"], row["hour"]), int(row["departures"]), int(row["delay_minutes"]))
    for row in _rows(output / LATE_FOR_HOUR):
        late += 1
        add_hour((row["origin"], hour_name(int(row["hour_ms"]))), 1, int(row["delay_minutes"]))
    for row in _rows(output / WORST):
        key = row["carrier"], row["day"]
        if key in worst:
            faults.append(f"worst delay of {' '.join(key)}: Penstock wrote it twice")
        worst[key] = int(row["worst_delay_minutes"])
    for row in _rows(output / LATE_FOR_DAY):
        key = row["carrier"], day_name(int(row["hour_ms"]))
        worst[key] = max(worst.get(key, int(row["delay_minutes"])), int(row["delay_minutes"]))
    return Answer(hourly, running_worst(worst), late, tuple(faults))


def running_worst(worst: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return the worst delay up to each day, by (carrier, day)."""
    so_far: dict[str, int] = {}
    result = {}
    for carrier, day in sorted(worst):
        delay = worst[carrier, day]
        result[carrier, day] = so_far[carrier] = max(delay, so_far.get(carrier, delay))
    return result


def differences(ours: Answer, theirs: Answer) -> list[str]:
    """Return one line for each row that differs between the answers or occurs twice."""
    return [
        *ours.faults,
        *_unequal("departures and minutes of delay", ours.hourly, theirs.hourly),
        *_unequal("worst delay", ours.worst, theirs.worst),
    ]


def by_origin(answer: Answer) -> dict[str, tuple[int, int]]:
    """Return the departures of the year and the sum of their delays, by origin."""
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (origin, _), (departures, delay) in sorted(answer.hourly.items()):
        totals[origin] = totals[origin][0] + departures, totals[origin][1] + delay
    return dict(totals)


def by_carrier(answer: Answer) -> dict[str, int]:
    """Return the worst delay of the year, by carrier."""
    return {carrier: delay for (carrier, _), delay in sorted(answer.worst.items())}


def _rows(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of all visible files; a side output without records has no folder."""
    for path in sorted(folder.glob("[!._]*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def _unequal(measure: str, ours: Mapping[K, V], theirs: Mapping[K, V]) -> Iterator[str]:
    for key in sorted({*ours, *theirs}, key=str):
        if ours.get(key) != theirs.get(key):
            name = " ".join(key) if isinstance(key, tuple) else key
            yield f"{measure} of {name}: Penstock {ours.get(key, 'nothing')}, check {theirs.get(key, 'nothing')}"
