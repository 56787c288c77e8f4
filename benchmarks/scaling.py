"""`python -m benchmarks.scaling`: the keyed workloads on Spark at parallelism 1 and 2, in alternating pairs.

At parallelism 2 the source and the keyed operator run in two processes each, and half of all records cross from one to
the other. Time counts from the first record that a source emitted until the last one reached a sink; every subtask has
its events in memory by then. Both sides must emit as many records as the other, or the run fails.

Two more ratios tell how far the machine is in the way. By processor time: what the ratio would be if both processes had
a processor of their own all the time. Two bare loops: what two processes that have nothing to do with each other get
done at that time, beside one alone.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.events import OUT_OF_ORDER_MS, make_events
from benchmarks.meeting import MeetingPlace, MeetingSink, MemorySource
from benchmarks.workloads import (
    WINDOW_MS,
    Count,
    CountWithTimer,
    add,
    bare_keyed_reduce,
    key_of,
    time_of,
)
from penstock.common import Configuration, Duration, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

#: What the bare loops work on.
CEILING_EVENTS: Final = 500_000


def _with_time() -> WatermarkStrategy:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    return bounded.with_timestamp_assigner(lambda event, _: time_of(event))


WORKLOADS: dict[str, tuple[str, Callable[[], WatermarkStrategy], Callable[[Any], DataStream]]] = {
    "W2": ("keyed reduce", WatermarkStrategy.no_watermarks, lambda keyed: keyed.reduce(add)),
    "W3": (
        "10 s tumbling count",
        _with_time,
        lambda keyed: keyed.window(TumblingEventTimeWindows.of(WINDOW_MS)).aggregate(Count()),
    ),
    "W4": ("keyed process, state and timer", _with_time, lambda keyed: keyed.process(CountWithTimer())),
}


class Run(NamedTuple):
    """From the first record out of a source to the last one into a sink: seconds, and those of all processors."""

    seconds: float
    processor_seconds: float
    records: int


def run(workload: str, count: int, parallelism: int, target: str) -> Run:
    """One job."""
    _, strategy, build = WORKLOADS[workload]
    with tempfile.TemporaryDirectory(prefix="penstock-scaling-") as folder:
        place = MeetingPlace(folder)
        configuration = Configuration()
        configuration.set_string("execution.target", target)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        stream = env.from_source(MemorySource(place, make_events, count), strategy(), "events")
        build(stream.key_by(key_of)).sink_to(MeetingSink(place))
        env.execute(f"{workload} at parallelism {parallelism}")
        begun, ended = place.heard("begun"), place.heard("ended")
    assert len(ended) == parallelism, f"{len(ended)} sinks of {parallelism} came to their end"
    seconds = (max(last for _, last, _ in ended) - min(first for first, _ in begun)) / 1e9
    processor_seconds = (sum(used for _, _, used in ended) - sum(used for _, used in begun)) / 1e9
    return Run(seconds, processor_seconds, sum(records for records, _, _ in ended))


def ceiling(events: list[Any]) -> float:
    """How much more two processes get done at the moment than one, when neither has to do with the other."""

    def seconds() -> float:
        begun = time.perf_counter()
        bare_keyed_reduce(events, lambda record: None)
        return time.perf_counter() - begun

    alone = seconds()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, struct.pack("d", seconds()))
        os._exit(0)
    mine = seconds()
    (other,) = struct.unpack("d", os.read(reading, 8))
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    result: float = alone / mine + alone / other
    return result


def measure(workload: str, count: int, pairs: int, target: str, events: list[Any]) -> dict[str, list[float]]:
    """The figures of one workload, pair by pair."""
    figures: dict[str, list[float]] = {name: [] for name in ("one", "two", "ratio", "by_processor", "ceiling")}
    for _ in range(pairs):
        figures["ceiling"].append(ceiling(events))
        one, two = run(workload, count, 1, target), run(workload, count, 2, target)
        if one.records != two.records:
            raise AssertionError(f"{workload}: {one.records} records at parallelism 1, {two.records} at 2")
        figures["one"].append(count / one.seconds)
        figures["two"].append(count / two.seconds)
        figures["ratio"].append(one.seconds / two.seconds)
        figures["by_processor"].append(2 * one.processor_seconds / two.processor_seconds)
    return figures


@click.command()
@click.option("--events", "count", default=2_000_000, show_default=True, help="Events a run.")
@click.option("--pairs", default=5, show_default=True, help="Pairs of runs a workload.")
@click.option("--target", default="spark", show_default=True, help="spark, or local (one process, for comparison).")
@click.option("--only", default="", help="Workloads, such as W2,W3.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(count: int, pairs: int, target: str, only: str, json_path: Path | None) -> None:
    """Print throughput at parallelism 1 and 2, and their ratio."""
    logging.basicConfig(level=logging.WARNING)
    table = Table(title=f"{count:,} events on {target}, {pairs} pairs")
    for column in ("", "1: events/s", "2: events/s", "ratio", "min", "max", "by processor time", "two bare loops"):
        table.add_column(column, justify="right")
    events = make_events(CEILING_EVENTS)
    gc.freeze()
    figures = {}
    for key in only.split(",") if only else WORKLOADS:
        figure = figures[key] = measure(key, count, pairs, target, events)
        median = {name: statistics.median(values) for name, values in figure.items()}
        shown = (median["ratio"], min(figure["ratio"]), max(figure["ratio"]), median["by_processor"], median["ceiling"])
        rates = (f"{median['one']:,.0f}", f"{median['two']:,.0f}")
        table.add_row(f"{key} {WORKLOADS[key][0]}", *rates, *(f"{ratio:.2f}" for ratio in shown))
    Console(width=140).print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
