"""`python -m benchmarks.latency`: how long after it was due a record comes out of the keyed reduce (W2).

A record carries the time at which the source was due to emit it, not that at which it did, so a source that is held up
makes the figures worse instead of better. All processes share the machine's monotonic clock.

Beside each run a bare process waits for 1 ms over and over and notes how late it is woken: what the machine adds by
itself, to everybody, once for each time that a record waits for a process.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.events import KEYS, Event
from benchmarks.meeting import MeetingPlace, MeetingSink, PacedSource
from benchmarks.workloads import add, get_event_time, select_key
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}

#: Waits until its input is closed; prints by how many µs it was woken late, one a line.
PROBE = """
import select, sys, time
late = []
while True:
    begun = time.monotonic_ns()
    if select.select([sys.stdin], [], [], 0.001)[0]:
        break
    late.append((time.monotonic_ns() - begun) // 1000 - 1000)
print(*late, sep="\\n")
"""


def make_event(index: int, due_ns: int) -> Event:
    return (index * 7919 % KEYS, index & 1023, due_ns)


def run(target: str, parallelism: int, rate: float, seconds: float, warm_up: float, timeout: str) -> dict[str, Any]:
    """Percentiles of the latency in ms of the records that were due behind the warm-up."""
    with tempfile.TemporaryDirectory(prefix="penstock-latency-") as folder:
        place = MeetingPlace(folder)
        configuration = Configuration()
        configuration.set_string("execution.target", target)
        configuration.set_string("execution.buffer-timeout.interval", timeout)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        source = PacedSource(place, make_event, rate, seconds + warm_up)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
        stream.key_by(select_key).reduce(add).sink_to(MeetingSink(place, get_event_time))
        job = env.execute_async(f"latency at {rate:,.0f} events/s")
        while not place.heard("begun"):
            time.sleep(0.05)
        with subprocess.Popen(
            [sys.executable, "-c", PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as probe:
            job.get_job_execution_result().result()
            late, _ = probe.communicate("")
        times = array("q")
        for path in Path(folder).glob("latencies-*.bin"):
            times.frombytes(path.read_bytes())
        first_us = min(begun for begun, _ in place.heard("begun")) // 1_000 + int(warm_up * 1e6)
    latencies = sorted(late for due, late in zip(times[::2], times[1::2], strict=True) if due >= first_us)
    return {
        "rate": rate,
        "records": len(latencies),
        **percentiles(latencies),
        "machine": percentiles(sorted(int(line) for line in late.split())),
    }


def percentiles(sorted_us: list[int]) -> dict[str, float]:
    """In ms, of values in µs."""
    last = len(sorted_us) - 1
    figures = {name: sorted_us[int(last * share)] / 1_000 for name, share in SHARES.items()}
    return {**figures, "max": sorted_us[last] / 1_000}


def cells(found: list[dict[str, Any]]) -> list[str]:
    """Median, lowest and highest of the runs, for each column."""
    shown = []
    for name in (*SHARES, "max"):
        values = sorted(figure[name] for figure in found)
        shown.append(f"{values[len(values) // 2]:.2f} ({values[0]:.2f} to {values[-1]:.2f})")
    return shown


@click.command()
@click.option("--target", default="spark", show_default=True, help="spark or local.")
@click.option("--parallelism", default=2, show_default=True)
@click.option("--rates", default="1000,10000,100000", show_default=True, help="Events a second.")
@click.option("--seconds", default=10.0, show_default=True, help="Length of a run.")
@click.option("--warm-up", default=2.0, show_default=True, help="Seconds before it that do not count.")
@click.option("--runs", default=3, show_default=True, help="Runs per rate; the rates take turns.")
@click.option("--buffer-timeout", default="1 ms", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(
    target: str,
    parallelism: int,
    rates: str,
    seconds: float,
    warm_up: float,
    runs: int,
    buffer_timeout: str,
    json_path: Path | None,
) -> None:
    """Print percentiles, in ms: the median of the runs, and the lowest and highest of them."""
    logging.basicConfig(level=logging.WARNING)
    wanted = [float(rate) for rate in rates.split(",")]
    figures: dict[float, list[dict[str, Any]]] = {rate: [] for rate in wanted}
    for _ in range(runs):
        for rate in wanted:
            figures[rate].append(run(target, parallelism, rate, seconds, warm_up, buffer_timeout))
    table = Table(title=f"W2 on {target}, parallelism {parallelism}, buffer time-out {buffer_timeout}, ms, {runs} runs")
    for column in ("events/s", *SHARES, "max"):
        table.add_column(column, justify="right")
    for rate, found in figures.items():
        table.add_row(f"{rate:,.0f}", *cells(found))
        table.add_row("a bare process", *cells([figure["machine"] for figure in found]))
    Console(width=140).print(table)
    if json_path is not None:
        json_path.write_text(json.dumps([figure for found in figures.values() for figure in found], indent=1))


if __name__ == "__main__":
    main()
