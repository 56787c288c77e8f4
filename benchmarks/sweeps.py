"""Throughput over one quantity: keys, tasks in a row, intervals of checkpoints. Sides and settings take turns."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.events import Event, EventsSpec, SharedEvents, get_events
from benchmarks.measuring import Run, Settings, measure, run_penstock
from benchmarks.registry import WORKLOADS
from benchmarks.workloads import Emit, Workload, without_time
from penstock.datastream import DataStream, StreamExecutionEnvironment

Points = dict[str, Any]


def numbers(text: str, by_tens: bool = False) -> list[int]:
    """`1,2,4`, or from one to another: `1..8`, and by powers of ten `1000..1000000`."""
    try:
        if ".." not in text:
            return [int(part) for part in text.split(",")]
        low, high = map(int, text.split(".."))
    except ValueError:
        raise click.UsageError(f"numbers such as 1,2,4 or 1..8 are expected, not {text!r}") from None
    if not by_tens:
        return list(range(low, high + 1))
    found = [low]
    while found[-1] * 10 <= high:
        found.append(found[-1] * 10)
    return found


# --- keys -------------------------------------------------------------------------------------------------------------


def over_keys(console: Console, spec: EventsSpec, settings: Settings, counts: list[int]) -> Points:
    """The keyed reduce over numbers of keys, each as often as any other; at least as many events as keys."""
    table = Table(title=f"keyed reduce over the number of keys, {settings.pairs} pairs")
    for column in ("keys", "events", "bare loop, events/s", "Penstock, events/s", "ratio", "min", "max"):
        table.add_column(column, justify="right")
    points: Points = {}
    for keys in counts:
        events = EventsSpec(max(spec.count, keys), keys, is_uniform=True)
        with console.status(f"{keys:,} keys"):
            one = measure(WORKLOADS["W2"], events, settings)
        points[str(keys)] = one.to_json()
        ratios = (one.ratio, min(one.ratios), max(one.ratios))
        rates = (one.twin_rate, one.rate)
        table.add_row(
            f"{keys:,}", f"{events.count:,}", *(f"{r:,.0f}" for r in rates), *(f"{ratio:.2f}" for ratio in ratios)
        )
    console.print(table)
    return points


# --- tasks ------------------------------------------------------------------------------------------------------------


def raise_price(event: Event) -> Event:
    return (event[0], event[1] + 1, event[2])


def maps(count: int, is_chained: bool) -> Workload:
    """So many maps in a row; the source and the sink belong to the first and the last of them, when chained."""

    def bare(events: list[Event], emit: Emit) -> None:
        steps = range(count)
        for event in events:
            for _ in steps:
                event = raise_price(event)
            emit(event)

    def build(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
        if not is_chained:
            env.disable_operator_chaining()
        stream: DataStream = env.from_source(SharedEvents(spec), without_time(), "events")
        for _ in range(count):
            stream = stream.map(raise_price)
        return stream

    return Workload(f"{count} maps", bare, build)


def over_tasks(console: Console, spec: EventsSpec, settings: Settings, counts: list[int]) -> Points:
    """Maps in a row, in one chain and each in a task of its own."""
    table = Table(title=f"maps in a row, {spec.count:,} events, {settings.pairs} pairs; ns: of CPU, per event and map")
    for column in ("maps", "bare loop, ns", "one chain, ns", "ratio", "separate tasks, ns", "ratio "):
        table.add_column(column, justify="right")
    get_events(spec)
    points: Points = {}
    for count in counts:
        with console.status(f"{count} maps"):
            chained, apart = (measure(maps(count, is_chained), spec, settings) for is_chained in (True, False))
        nanoseconds = [
            seconds * 1e3 / count
            for seconds in (
                chained.twin_cpu_seconds_per_million,
                chained.cpu_seconds_per_million,
                apart.cpu_seconds_per_million,
            )
        ]
        points[str(count)] = {"chained": chained.to_json(), "apart": apart.to_json(), "nanoseconds": nanoseconds}
        bare, one, own = (f"{each:,.0f}" for each in nanoseconds)
        table.add_row(str(count), bare, one, f"{chained.ratio:.2f}", own, f"{apart.ratio:.2f}")
    console.print(table)
    return points


# --- checkpoints ------------------------------------------------------------------------------------------------------


def over_intervals(console: Console, spec: EventsSpec, settings: Settings) -> Points:
    """Jobs with state with a checkpoint every second, every ten, and none; rates as parts of the last."""
    table = Table(title=f"checkpoints, {spec.count:,} events on {settings.target}, {settings.pairs} rounds")
    for column in ("", "none, events/s", "10 s, events/s", "1 s, events/s", "10 s / none", "1 s / none", "1 s / 10 s"):
        table.add_column(column, justify="right")
    points: Points = {}
    for key in ("W2", "W3", "W4"):
        workload = WORKLOADS[key]
        runs: dict[int | None, list[Run]] = {None: [], 10_000: [], 1_000: []}
        with console.status(f"{key} {workload.name}"):
            run_penstock(workload, spec, settings)
            for turn in range(settings.pairs):
                order = list(runs) if turn % 2 == 0 else list(reversed(runs))
                for interval in order:
                    runs[interval].append(run_penstock(workload, spec, replace(settings, interval_ms=interval)))
        off, seldom, often = ([run.seconds for run in taken] for taken in runs.values())
        parts = {
            "10 s / none": _ratio(off, seldom),
            "1 s / none": _ratio(off, often),
            "1 s / 10 s": _ratio(seldom, often),
        }
        rates = [spec.count / statistics.median(seconds) for seconds in (off, seldom, often)]
        cpu = [statistics.median(run.cpu_seconds for run in taken) for taken in runs.values()]
        points[key] = {"rates": rates, "cpu_seconds": cpu, "parts": parts, "cpu_part": cpu[0] / cpu[2]}
        table.add_row(key, *(f"{rate:,.0f}" for rate in rates), *(f"{part:.2f}" for part in parts.values()))
    console.print(table)
    return points


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))
