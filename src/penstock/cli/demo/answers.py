"""Two answers to the same question, and their differences.

The same answer from a plain loop, for use without Spark.

The table at the end of the demo, with both answers side by side.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from penstock.cli.demo.program import HOURLY, LATE_FOR_DAY, LATE_FOR_HOUR, WORST, day_name, hour_name

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


DIFFERENCES_SHOWN_MAX = 20
_HOURS_SHOWN = 4


def print_comparison(console: Console, ours: Answer, theirs: Answer, checked_by: str, mismatches: list[str]) -> None:
    """Print the table and the verdict.

    Args:
        console: the console to print to.
        ours: the job's output.
        theirs: the answer of the check.
        checked_by: the name of the check.
        mismatches: the differences.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("Penstock", justify="right")
    table.add_column(checked_by, justify="right")
    table.add_column("")
    _add(table, "departures, mean delay", _named(by_origin(ours)), _named(by_origin(theirs)))
    _add(table, "worst hours", *_worst_hours(ours, theirs))
    worst, check = by_carrier(ours), by_carrier(theirs)
    minutes = {carrier: f"{delay:,} min" for carrier, delay in worst.items()}
    _add(table, "worst delay of the year", minutes, {carrier: f"{delay:,} min" for carrier, delay in check.items()})
    table.add_row("rows compared", "", "", "")
    _add_row(table, "hours at an airport", f"{len(ours.hourly):,}", f"{len(theirs.hourly):,}")
    _add_row(table, "days of a carrier", f"{len(ours.worst):,}", f"{len(theirs.worst):,}")
    console.print(table)
    if not mismatches:
        rows = len(ours.hourly) + len(ours.worst)
        console.print(f"[bold green]equal[/]: all {rows:,} rows are the same")
        return
    console.print(f"[bold red]different[/]: {len(mismatches):,} rows are not the same")
    for line in mismatches[:DIFFERENCES_SHOWN_MAX]:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    if len(mismatches) > DIFFERENCES_SHOWN_MAX:
        console.print(f"  and {len(mismatches) - DIFFERENCES_SHOWN_MAX:,} more")


def _named(totals: dict[str, tuple[int, int]]) -> dict[str, str]:
    return {origin: _count_and_mean(total) for origin, total in totals.items()}


def _count_and_mean(total: tuple[int, int] | None) -> str:
    if total is None:
        return "nothing"
    departures, delay_minutes = total
    return f"{departures:,}, {delay_minutes / departures:.1f} min"


def _worst_hours(ours: Answer, theirs: Answer) -> tuple[dict[str, str], dict[str, str]]:
    """Return the hours with the most total delay, according to the check."""
    keys = sorted(theirs.hourly, key=lambda key: (-theirs.hourly[key][1], key))[:_HOURS_SHOWN]
    names = [f"{origin} {hour[:10]} {hour[11:16]} UTC" for origin, hour in keys]
    sides = ([_count_and_mean(side.hourly.get(key)) for key in keys] for side in (ours, theirs))
    left, right = (dict(zip(names, texts, strict=True)) for texts in sides)
    return left, right


def _add(table: Table, title: str, ours: dict[str, str], theirs: dict[str, str]) -> None:
    table.add_row(f"[bold]{title}[/]", "", "", "")
    for name in sorted({*ours, *theirs}):
        _add_row(table, name, ours.get(name, "nothing"), theirs.get(name, "nothing"))
    table.add_section()


def _add_row(table: Table, name: str, ours: str, theirs: str) -> None:
    table.add_row(f"  {name}", ours, theirs, "[green]=[/]" if ours == theirs else "[bold red]differs[/]")
