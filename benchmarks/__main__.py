"""`python -m benchmarks`: throughput at parallelism 1 with a checkpoint every second, beside a bare Python loop.

Each pair runs in one process, one after the other, so that a noisy machine is noisy for both; the ratio is what counts.
"""

from __future__ import annotations

import gc
import json
import logging
import statistics
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import workloads
from benchmarks.workloads import WORKLOADS, Workload, make_events
from penstock.common import Configuration
from penstock.core.connector import Sink, SinkWriter, SinkWriterContext
from penstock.datastream import StreamExecutionEnvironment


class CountingSink(Sink[Any]):
    """Appends records to a list that is emptied now and then: what the bare loop does with its results."""

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        return _CountingWriter()


class _CountingWriter(SinkWriter[Any, Any]):
    def __init__(self) -> None:
        self._kept: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._kept.extend(values)
        if len(self._kept) > 100_000:
            self._kept.clear()


def run_bare(workload: Workload, events: list[Any]) -> float:
    """Seconds that the bare loop takes."""
    kept: list[Any] = []

    def emit(record: Any) -> None:
        kept.append(record)
        if len(kept) > 100_000:
            kept.clear()

    begun = time.perf_counter()
    workload.bare(events, emit)
    return time.perf_counter() - begun


def run_penstock(workload: Workload, events: list[Any], interval_ms: int | None) -> float:
    """Seconds from the job's start to its end, deployment and last checkpoint included."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    if interval_ms is not None:
        env.enable_checkpointing(interval_ms)
    workload.build(env, events).sink_to(CountingSink())
    begun = time.perf_counter()
    env.execute(workload.name)
    return time.perf_counter() - begun


@click.command()
@click.option("--events", "count", default=1_000_000, show_default=True, help="Events a run.")
@click.option("--pairs", default=5, show_default=True, help="Pairs of runs a workload.")
@click.option("--interval", "interval_ms", default=1_000, show_default=True, help="Checkpoint interval, ms; 0: off.")
@click.option("--only", default="", help="Workloads, such as W1,W3.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(count: int, pairs: int, interval_ms: int, only: str, json_path: Path | None) -> None:
    """Print throughput and the ratio to the bare loop."""
    logging.getLogger("penstock").setLevel(logging.WARNING)
    events = workloads.EVENTS
    events[:] = make_events(count)
    gc.freeze()
    console = Console()
    table = Table(title=f"{count:,} events, parallelism 1, checkpoint every {interval_ms} ms, {pairs} pairs")
    for column in ("", "workload", "bare loop, events/s", "Penstock, events/s", "ratio", "min", "max"):
        table.add_column(column, justify="left" if column in ("", "workload") else "right")
    figures = {}
    for key in only.split(",") if only else WORKLOADS:
        workload = WORKLOADS[key]
        bare, engine = [], []
        for pair in range(pairs):
            with console.status(f"{key} {workload.name}: pair {pair + 1} of {pairs}"):
                bare.append(run_bare(workload, events))
                engine.append(run_penstock(workload, events, interval_ms or None))
        ratios = [b / e for b, e in zip(bare, engine, strict=True)]
        rates = count / statistics.median(bare), count / statistics.median(engine)
        ratio = statistics.median(ratios)
        table.add_row(
            key,
            workload.name,
            f"{rates[0]:,.0f}",
            f"{rates[1]:,.0f}",
            f"{ratio:.2f}",
            f"{min(ratios):.2f}",
            f"{max(ratios):.2f}",
        )
        figures[key] = {"bare": rates[0], "penstock": rates[1], "ratio": ratio, "ratios": ratios}
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
